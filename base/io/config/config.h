/* config.h - declares the schema of the configuration, and loads, prints and documents values by it.
 *
 * Layer:    base/io (base/core, libyaml in config_yaml.c)
 * Threads:  a struct config is read-only once loaded
 * Lifetime: section structs, strings and lists live in the config's arena until config_free
 * Rules:    (1) flag > environment > file > default, and every value remembers which it was
 *           (2) an unknown or repeated key, a wrong type, a number out of range, an anchor, an
 *               alias or a tag is a problem with a line number; a config with one does not load
 *           (3) the schema decides the type: `version: 1.10` is the text 1.10 where text is wanted
 *
 * A role declares its rows and its struct side by side; the CLI joins the sections:
 *
 *     struct engine_config { struct str model; int64_t port; int64_t idle_us; };
 *     static const struct config_field rows[] = {
 *         { .name = "model", .type = CONFIG_TEXT, .required = true,
 *           .offset = offsetof(struct engine_config, model), .about = "Path of the GGUF file." },
 *         { .name = "port", .type = CONFIG_INT, .default_text = "8200", .min = 0, .max = 65535,
 *           .offset = offsetof(struct engine_config, port), .about = "Port to listen on." },
 *     };
 *     static const struct config_record record = CONFIG_RECORD_OF(struct engine_config, rows);
 *     const struct config_section engine_section = {
 *         .name = "engine", .about = "One model server.", .record = &record };
 */
#pragma once
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/err.h"

#define CONFIG_FILE_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_DEPTH_MAX 16        /* mappings and lists inside each other */
#define CONFIG_NODES_MAX 65536     /* keys and values of one file */
#define CONFIG_KEYS_MAX 1024       /* keys of one mapping: repeats are found by a linear search */
#define CONFIG_LIST_MAX 1024       /* items of a list whose row names no max */
#define CONFIG_TEXT_BYTES_MAX 4096 /* bytes of a text whose row names no max */
#define CONFIG_MEMORY_BYTES_MAX ((size_t)32 << 20)
#define CONFIG_PROBLEMS_MAX 32        /* sentences kept; more are counted */
#define CONFIG_NO_MAX __builtin_inf() /* for rows with a lower bound only */

/*                  C type at `offset`             written in the file, a flag, the environment */
// clang-format off
enum config_type {
    CONFIG_BOOL,     /* bool                           true, false */
    CONFIG_INT,      /* int64_t                        8200 */
    CONFIG_FLOAT,    /* double                         0.5, 1e-3 */
    CONFIG_TEXT,     /* struct str, NUL-terminated;    text
                      * data is NULL when unset */
    CONFIG_ENUM,     /* int or an enum: the index      one of `names` */
    CONFIG_DURATION, /* int64_t, microseconds          5us 250ms 10s 1.5m 2h 1d; 0 needs no unit */
    CONFIG_BYTES,    /* int64_t                        512 64KiB 1GB 1.5GiB */
    CONFIG_TEXTS,    /* struct config_texts            list of text; a,b in a flag */
    CONFIG_RECORD,   /* the record's struct            mapping */
    CONFIG_RECORDS,  /* struct config_records          list of mappings; the file only */
    CONFIG_TYPE_COUNT
};
// clang-format on

struct config_texts {
    const struct str *items;
    size_t count;
};

struct config_records {
    const void *items; /* array of the record's struct */
    size_t count;
};

/* A key that people expect in a record although there is none. The problem says why, and what to use
 * instead. */
struct config_absent {
    const char *name, *why;
};

struct config_record {
    const struct config_field *fields;
    size_t field_count;
    size_t size;     /* of the C struct */
    const char *key; /* in a list: this text field must differ between items; may be NULL */
    const struct config_absent *absent; /* ends with a NULL name; NULL: none */
};

// clang-format off
#define CONFIG_RECORD_OF(type, rows)                                                               \
    { .fields = (rows), .field_count = COUNT_OF(rows), .size = sizeof(type) }
#define CONFIG_LIST_OF(type, rows, key_field)                                                      \
    { .fields = (rows), .field_count = COUNT_OF(rows), .size = sizeof(type), .key = (key_field) }
// clang-format on

struct config_field {
    const char *name; /* snake_case; the flag --snake-case; MUSTER_SECTION_SNAKE_CASE */
    enum config_type type;
    const char *about;        /* one sentence */
    const char *unit;         /* "tokens", "requests"; NULL where the type says it */
    const char *default_text; /* as it would be written in a flag. NULL only for required
                               * fields, records, and texts and lists that start unset */
    double min, max; /* inclusive, in the stored unit, when min < max. Text: bytes; lists: items */
    const char *const *names; /* CONFIG_ENUM: NULL-terminated */
    bool required;            /* must be set by a source; see config_require */
    bool reloadable;          /* can be changed in a running process, by its API */
    bool debug;               /* diagnostics: listed apart in help and docs */
    char letter;              /* command options only: -x; 0 for none */
    size_t offset;
    const struct config_record *record; /* CONFIG_RECORD, CONFIG_RECORDS */
};

struct config_section {
    const char *name; /* the top-level key */
    const char *about;
    const struct config_record *record;
    bool list; /* the key holds a list of records (services), not one */
};

struct config_schema {
    const struct config_section *const *sections;
    size_t count;
    const struct config_absent *absent; /* of the file's top; as in a record */
};

/* A flag of a command line that stands for a configuration value. */
struct config_flag {
    const char *path;  /* "engine.max_num_seqs" */
    const char *value; /* NUL-terminated text */
    const char *shown; /* "--max-num-seqs": for messages and origins; NULL: made from path */
};

/* The sources of values, weakest first. All are borrowed for the call. */
struct config_sources {
    const char *path;           /* the file; NULL: none */
    struct str text;            /* with data: the file's content, `path` only names it */
    const char *const *environ; /* NULL-terminated NAME=value; NULL: none */
    const struct config_flag *flags;
    size_t flag_count;
};

/* Collects all problems, for `config check`. Lines end with \n. { 0 } is empty. */
struct config_problems {
    struct buf text;
    uint32_t count; /* of all problems; `text` has the first CONFIG_PROBLEMS_MAX */
};

struct config;

/* Loads and checks everything. On success *ret is the caller's to free. With problems returns
 * -EINVAL: err holds the first one (and how many more), `problems` (may be NULL) all. A file that
 * cannot be read gives its errno. -ENOMEM at CONFIG_MEMORY_BYTES_MAX. */
int config_load(const struct config_schema *schema, const struct config_sources *sources,
                struct config **ret, struct config_problems *problems, struct err *err);
void config_free(struct config *c);
static inline void config_freep(struct config **c)
{
    config_free(*c);
    *c = NULL;
}

/* Returns the section's struct (or its struct config_records for a list section), with defaults where
 * no source set a value. Must be a section of the schema. */
const void *config_section_get(const struct config *c, const char *name);
const struct config_schema *config_schema_of(const struct config *c);

/* Checks that the required values of a plain section are set. The role that runs on the section calls
 * it, because a file may leave out sections of other roles (in lists of records required values are
 * checked at load). -EINVAL with a sentence naming the key, its flag and its environment variable. */
int config_require(const struct config *c, const char *section, struct err *err);

/* Looks up one value by path ("services[0].pools[1].price", "engine.port"). Appends its text as it
 * would be written, and its origin ("default", "file muster.yaml:12", "env MUSTER_ENGINE_PORT",
 * "flag --port"). Either buffer may be NULL. -ENOENT with the nearest name. */
int config_lookup(const struct config *c, const char *path, struct buf *value, struct buf *origin,
                  struct err *err);

enum config_form { CONFIG_YAML, CONFIG_JSON };

/* Prints the whole configuration in effect. YAML loads back to the same values; with `origin` each line
 * says where its value came from (JSON: {"value":..,"origin":..} at the leaves). */
int config_view(const struct config *c, enum config_form form, bool origin, struct buf *out);

/* These three print the schema, without values. */
int config_markdown(const struct config_schema *schema, struct buf *out);    /* docs page */
int config_json_schema(const struct config_schema *schema, struct buf *out); /* draft 2020-12 */
int config_help(const struct config_record *record, struct buf *out); /* option lines of --help */

/* An option as --help shows it. The texts live during the call of fn only. */
struct config_option {
    const char *flag;        /* "--max-num-seqs"; "--no-..." where the value is on by default */
    const char *placeholder; /* "N"; NULL: the option takes no value */
    struct str text;         /* its sentence with unit, range and default */
    const struct config_field *field;
};
typedef int (*config_option_fn)(void *ctx, const struct config_option *option);
/* Calls fn for each option in the order of --help. Stops at a negative result of fn and returns it. */
int config_options_each(const struct config_record *record, config_option_fn fn, void *ctx);

void config_field_facts(const struct config_field *f, struct buf *out); /* " (unit; 1 to 9)" */
const char *config_type_name(enum config_type type); /* in documents: "list of text" */

/* Appends words in lines as wide as those of --help. The first word goes where `out` stands, which is
 * column `indent`; further lines are indented to it. config_help_about appends what an option or an
 * argument is, behind its name, which ends at `column`. */
void config_help_words(struct buf *out, struct str text, size_t indent);
void config_help_about(struct buf *out, struct str text, size_t column);
void config_schema_check(const struct config_schema *schema); /* must()s on a wrong table */

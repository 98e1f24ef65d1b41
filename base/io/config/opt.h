/* opt.h - parses a command's options, which are declared by the same rows as the configuration.
 *
 * Layer:    base/io (base/core, config)
 * Forms:    --name value  --name=value  --flag  --no-flag  -x value  -xvalue  -abc (flags)  --
 *           options and positional arguments may alternate; lists take a,b or repetition
 * Lifetime: texts point into argv or the command's table; lists live until opt_parsed_fini
 * Exit:     a usage mistake ends the program with OPT_EXIT_USAGE
 *
 *     struct load_options { struct str trace; double speed; struct config_texts urls; };
 *     static const struct config_field rows[] = { { .name = "speed", .letter = 's', ... } };
 *     static const struct config_record record = CONFIG_RECORD_OF(struct load_options, rows);
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/config/config.h"

#define OPT_EXIT_USAGE 2
#define OPT_OPTIONS_MAX 128      /* own options of one command */
#define OPT_CONFIG_FLAGS_MAX 128 /* configuration values given as flags at once */
#define OPT_MEMORY_BYTES_MAX ((size_t)1 << 20)

struct opt_positional {
    const char *name; /* "MODEL" */
    const char *about;
    bool required;
    const char *const *words; /* what it may be, for completions; ends with NULL; NULL: any text */
    bool many;     /* the last one only: the rest, a struct config_texts; otherwise a struct str */
    size_t offset; /* in the options struct */
};

struct opt_command {
    const char *name; /* as typed: "muster engine" */
    const char *about;
    const struct config_record *options; /* own options, perhaps 0 rows; NULL: no struct at all */
    const struct opt_positional *positionals;
    size_t positional_count;
    const struct config_section *section; /* its values are flags of this command too; or NULL */
    const char *notes;                    /* behind the options in --help; or NULL */
};

struct opt_parsed {
    bool help; /* -h or --help was given: nothing else was checked */
    struct config_flag flags[OPT_CONFIG_FLAGS_MAX]; /* for struct config_sources */
    size_t flag_count;
    bool said[OPT_OPTIONS_MAX]; /* own options that were given, by their order in `options` */
    struct arena arena;
};

/* Parses argv[0..argc) (without the command's own words) into `values`, a struct of
 * options->size bytes that is filled with defaults first (NULL when options is NULL; then there
 * are no positionals). The last of a repeated option counts; lists grow. -EINVAL with a sentence
 * naming the option and the range or the nearest option.
 * Call opt_parsed_fini also after a failure. */
int opt_parse(const struct opt_command *cmd, int argc, char *const *argv, void *values,
              struct opt_parsed *ret, struct err *err);
void opt_parsed_fini(struct opt_parsed *p);

int opt_help(const struct opt_command *cmd, struct buf *out);

/* Ends a command that was called wrongly: prints the sentence and where to find help to stderr. Returns
 * OPT_EXIT_USAGE. */
int opt_fail(const struct opt_command *cmd, const struct err *err);

/* Prints the help to stdout; returns 0, the exit status of `--help`. */
int opt_show_help(const struct opt_command *cmd);

/* Lets fn have the tables that opt_show_help would print, until it is called with NULL. Manual pages and shell
 * completions are made so from exactly what `--help` shows, also where a command makes its tables as it starts.
 * The tables live during the call only. Main thread. */
typedef void (*opt_help_fn)(void *ctx, const struct opt_command *cmd);
void opt_help_catch(opt_help_fn fn, void *ctx);

/* config_tree.h - types shared by the files of config: the YAML tree, value slots, the schema walk.
 *
 * Layer: base/io; the tree and its parser also for other YAML files than ours (kubeconfig, templates)
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/config/config.h"

#define CONFIG_PATH_MAX 256 /* "services[0].pools[1].price"; longer paths are cut in sentences */

enum config_node_kind { CONFIG_NODE_SCALAR, CONFIG_NODE_MAP, CONFIG_NODE_LIST };

/* One YAML value; lives in the arena it was parsed into. */
struct config_node {
    enum config_node_kind kind;
    bool plain; /* scalar without quotes */
    uint32_t line;
    uint32_t count;  /* children */
    struct str text; /* scalar */
    struct str key;  /* when the parent is a mapping */
    uint32_t key_line;
    struct config_node *first, *last, *next;
};

/* Parses one YAML document of at most CONFIG_FILE_BYTES_MAX into a tree; *ret is NULL when it
 * holds nothing. Refused with "name:line: sentence": text that is not YAML, duplicate keys, anchors,
 * aliases, tags, directives, keys that are no text, a second document, the bounds. */
int config_tree_parse(struct str text, const char *name, struct arena *arena,
                      struct config_node **ret, struct err *err);

/* Appends the tree as JSON. Plain scalars are null, true, false or numbers where YAML 1.2's core schema
 * says so, and texts otherwise; a quoted scalar is always a text. */
void config_tree_json(const struct config_node *node, struct buf *out);

enum config_origin { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_ENV, CONFIG_FROM_FLAG };

/* The origin of a value; each field of each record has one. */
struct config_slot {
    enum config_origin from;
    uint32_t line;             /* CONFIG_FROM_FILE */
    const char *name;          /* the variable or the flag as shown */
    struct config_slot *slots; /* CONFIG_RECORD: its fields; CONFIG_RECORDS: count times those */
};

struct config {
    struct arena arena;
    const struct config_schema *schema;
    const char *path;          /* of the file, for messages; NULL without one */
    struct config_record root; /* the sections as fields of one record */
    void *values;              /* of the root record */
    struct config_slot *slots;
};

#define CONFIG_SCHEMA_BYTES_MAX ((size_t)1 << 20) /* of the arena for a root record alone */

/* Makes one record of the schema, with its sections as fields, in `arena`. -ENOMEM. */
int config_root(const struct config_schema *schema, struct arena *arena, struct config_record *ret);

/* A value that a flag or a variable can reach: every field outside lists of records. */
struct config_leaf {
    const char *path; /* below the record that was walked: "kv.page_tokens" */
    const struct config_field *field;
    size_t offset;            /* in that record's struct */
    struct config_slot *slot; /* NULL when walked without slots */
};

/* Calls fn for each leaf in order until it returns false. `slots` may be NULL. */
typedef bool (*config_leaf_fn)(void *ctx, const struct config_leaf *leaf);
bool config_leaves(const struct config_record *record, struct config_slot *slots, config_leaf_fn fn,
                   void *ctx);

/* Returns the field called `name`, and its position, or NULL. */
const struct config_field *config_field_find(const struct config_record *record, struct str name,
                                             size_t *ret_index);
const char *config_field_nearest(const struct config_record *record, struct str name);

/* must()s on wrong rows; opt.c checks its tables with it, too. */
void config_record_check(const struct config_record *record, uint32_t depth);

static inline bool config_is_record(const struct config_field *f)
{
    return f->type == CONFIG_RECORD || f->type == CONFIG_RECORDS;
}

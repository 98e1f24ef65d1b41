/* config_check.c - checks a schema's tables at the start: a wrong row is a bug of ours, and ends the process.
 *
 * A row is checked by what its C type needs, its default by the parser that reads the file, and flags for being
 * each one value's.
 */
#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/config/config_value.h"

#include <stddef.h>
#include <string.h>

static bool is_name(const char *name)
{
    if (!name || name[0] < 'a' || name[0] > 'z') return false;
    for (const char *c = name; *c; c++)
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && *c != '_') return false;
    return true;
}

static const size_t type_sizes[CONFIG_TYPE_COUNT] = {
    [CONFIG_BOOL] = sizeof(bool),
    [CONFIG_INT] = sizeof(int64_t),
    [CONFIG_FLOAT] = sizeof(double),
    [CONFIG_TEXT] = sizeof(struct str),
    [CONFIG_ENUM] = sizeof(int),
    [CONFIG_DURATION] = sizeof(int64_t),
    [CONFIG_BYTES] = sizeof(int64_t),
    [CONFIG_TEXTS] = sizeof(struct config_texts),
    [CONFIG_RECORDS] = sizeof(struct config_records),
};

static void field_check(const struct config_field *f, size_t record_size)
{
    must(is_name(f->name));
    must(f->about && *f->about);
    must(f->type < CONFIG_TYPE_COUNT);
    must(f->min <= f->max);
    must((f->type == CONFIG_ENUM) == (f->names != NULL));
    must(config_is_record(f) == (f->record != NULL));
    size_t size = f->type == CONFIG_RECORD ? f->record->size : type_sizes[f->type];
    must(f->offset + size <= record_size);
    if (config_is_record(f) || f->required) {
        must(f->default_text == NULL);
        return;
    }
    must(f->default_text || f->type == CONFIG_TEXT || f->type == CONFIG_TEXTS);
    if (!f->default_text) return;
    _Alignas(max_align_t) char value[sizeof(struct config_texts)];
    must(config_value_parse(f, str_from(f->default_text), NULL, value, NULL) == 0);
}

void config_record_check(const struct config_record *record, uint32_t depth)
{
    must(depth < CONFIG_DEPTH_MAX);
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        field_check(f, record->size);
        for (size_t j = 0; j < i; j++)
            must(strcmp(f->name, record->fields[j].name) != 0);
        if (f->record) config_record_check(f->record, depth + 1);
    }
    if (!record->key) return;
    const struct config_field *key = config_field_find(record, str_from(record->key), NULL);
    must(key && key->type == CONFIG_TEXT);
}

struct name_count {
    const struct config_record *record;
    struct str flag;
    uint32_t found;
};

static bool flag_count(void *ctx, const struct config_leaf *leaf)
{
    struct name_count *n = ctx;
    CLEANUP(buf_fini) struct buf flag = { 0 };
    config_flag_name(leaf->path, &flag);
    n->found += str_eq(buf_view(&flag), n->flag);
    return true;
}

/* Checks that no other value has the same flag: kv.pages and kv_pages would share flag and variable. */
static bool flag_is_alone(void *ctx, const struct config_leaf *leaf)
{
    CLEANUP(buf_fini) struct buf flag = { 0 };
    config_flag_name(leaf->path, &flag);
    struct name_count n = { .flag = buf_view(&flag) };
    config_leaves(ctx, NULL, flag_count, &n);
    must(n.found == 1);
    return true;
}

void config_schema_check(const struct config_schema *schema)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, CONFIG_SCHEMA_BYTES_MAX);
    struct config_record root;
    must(config_root(schema, &arena, &root) == 0);
    config_record_check(&root, 0);
    config_leaves(&root, NULL, flag_is_alone, &root);
}

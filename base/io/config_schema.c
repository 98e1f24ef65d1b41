/* config_schema.c - a schema as one record: its sections are fields, its leaves can be walked. */
#include "base/io/config_tree.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>

int config_root(const struct config_schema *schema, struct arena *arena, struct config_record *ret)
{
    struct config_field *rows = arena_array(arena, schema->count, sizeof *rows);
    if (!rows) return -ENOMEM;
    size_t size = 0;
    for (size_t i = 0; i < schema->count; i++) {
        const struct config_section *s = schema->sections[i];
        rows[i] = (struct config_field){
            .name = s->name,
            .about = s->about,
            .type = s->list ? CONFIG_RECORDS : CONFIG_RECORD,
            .record = s->record,
            .offset = size,
        };
        size += s->list ? sizeof(struct config_records) : s->record->size;
        size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    }
    *ret = (struct config_record){
        .fields = rows, .field_count = schema->count, .size = size, .absent = schema->absent
    };
    return 0;
}

const struct config_field *config_field_find(const struct config_record *record, struct str name,
                                             size_t *ret_index)
{
    for (size_t i = 0; i < record->field_count; i++) {
        if (!str_eq(name, str_from(record->fields[i].name))) continue;
        if (ret_index) *ret_index = i;
        return &record->fields[i];
    }
    return NULL;
}

const char *config_field_nearest(const struct config_record *record, struct str name)
{
    const char *best = NULL;
    for (size_t i = 0; i < record->field_count; i++) {
        const char *pair[2] = { best, record->fields[i].name };
        best = best ? str_nearest(name, pair, 2) : str_nearest(name, pair + 1, 1);
    }
    return best;
}

struct leaf_walk {
    config_leaf_fn fn;
    void *ctx;
};

static bool leaves_walk(const struct leaf_walk *w, const struct config_record *record,
                        struct config_slot *slots, size_t offset, const char *prefix)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        if (f->type == CONFIG_RECORDS) continue;
        char path[CONFIG_PATH_MAX];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", f->name);
        struct config_slot *slot = slots ? &slots[i] : NULL;
        struct config_leaf leaf = { path, f, offset + f->offset, slot };
        bool more = f->type == CONFIG_RECORD
                        ? leaves_walk(w, f->record, slot ? slot->slots : NULL, leaf.offset, path)
                        : w->fn(w->ctx, &leaf);
        if (!more) return false;
    }
    return true;
}

bool config_leaves(const struct config_record *record, struct config_slot *slots, config_leaf_fn fn,
                   void *ctx)
{
    return leaves_walk(&(struct leaf_walk){ fn, ctx }, record, slots, 0, "");
}

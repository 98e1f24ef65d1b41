/* config_diff.c - walks two configurations of one schema side by side and tells where they differ.
 *
 * Values are compared in their printed form, so that 1000ms and 1s are the same. */
#include "base/io/config/config_diff.h"

#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/config/config_value.h"

#include <stdio.h>

struct diff {
    struct buf path;
    const char *section;
    config_change_fn fn;
    void *ctx;
};

static int tell(struct diff *d, const struct config_field *f, enum config_change_kind kind,
                struct str from, struct str to)
{
    const struct config_change change = { .path = d->path.data,
                                          .section = d->section,
                                          .field = f,
                                          .kind = kind,
                                          .from = from,
                                          .to = to };
    return d->path.rc < 0 ? d->path.rc : d->fn(d->ctx, &change);
}

static void cut_path(struct diff *d, size_t len)
{
    d->path.len = len;
    if (d->path.data) d->path.data[len] = 0;
}

static int diff_leaf(struct diff *d, const struct config_field *f, const void *a, const void *b)
{
    CLEANUP(buf_fini) struct buf from = { 0 }, to = { 0 };
    config_value_print(f, a, &from);
    config_value_print(f, b, &to);
    if (from.rc < 0 || to.rc < 0) return -ENOMEM;
    if (str_eq(buf_view(&from), buf_view(&to))) return 0;
    return tell(d, f, CONFIG_CHANGED, buf_view(&from), buf_view(&to));
}

static int diff_record(struct diff *d, const struct config_record *record, const char *a,
                       const char *b);

static const char *item_at(const struct config_field *f, const struct config_records *list,
                           size_t i)
{
    return (const char *)list->items + i * f->record->size;
}

static struct str key_of(const struct config_record *record, const char *item)
{
    const struct config_field *key = config_field_find(record, str_from(record->key), NULL);
    return *(const struct str *)(const void *)(item + key->offset);
}

/* Returns the other list's item of the same key, or at the same index; NULL: it has none. */
static const char *twin_of(const struct config_field *f, const struct config_records *other,
                           const char *item, size_t index)
{
    if (!f->record->key) return index < other->count ? item_at(f, other, index) : NULL;
    for (size_t i = 0; i < other->count; i++)
        if (str_eq(key_of(f->record, item_at(f, other, i)), key_of(f->record, item)))
            return item_at(f, other, i);
    return NULL;
}

static void push_item(struct diff *d, const struct config_field *f, const char *item, size_t index)
{
    if (f->record->key)
        buf_printf(&d->path, "[" STR_FMT "]", STR_ARG(key_of(f->record, item)));
    else
        buf_printf(&d->path, "[%zu]", index);
}

static int diff_records(struct diff *d, const struct config_field *f,
                        const struct config_records *a, const struct config_records *b)
{
    const struct str none = { 0 };
    size_t before = d->path.len;
    int rc = 0;
    for (size_t i = 0; i < a->count && rc == 0; i++) {
        const char *item = item_at(f, a, i), *twin = twin_of(f, b, item, i);
        push_item(d, f, item, i);
        rc = twin ? diff_record(d, f->record, item, twin) : tell(d, f, CONFIG_REMOVED, none, none);
        cut_path(d, before);
    }
    for (size_t i = 0; i < b->count && rc == 0; i++) {
        const char *item = item_at(f, b, i);
        if (twin_of(f, a, item, i)) continue;
        push_item(d, f, item, i);
        rc = tell(d, f, CONFIG_ADDED, none, none);
        cut_path(d, before);
    }
    return rc;
}

static int diff_record(struct diff *d, const struct config_record *record, const char *a,
                       const char *b)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        const char *from = a + f->offset, *to = b + f->offset;
        size_t before = d->path.len;
        buf_printf(&d->path, "%s%s", before ? "." : "", f->name);
        if (before == 0) d->section = f->name;
        int rc;
        if (f->type == CONFIG_RECORD)
            rc = diff_record(d, f->record, from, to);
        else if (f->type == CONFIG_RECORDS)
            rc = diff_records(d, f, (const void *)from, (const void *)to);
        else
            rc = diff_leaf(d, f, from, to);
        cut_path(d, before);
        if (rc != 0) return rc;
    }
    return 0;
}

int config_diff(const struct config *from, const struct config *to, config_change_fn fn, void *ctx)
{
    struct diff d = { .fn = fn, .ctx = ctx };
    must(from->schema == to->schema);
    int rc = diff_record(&d, &from->root, from->values, to->values);
    buf_fini(&d.path);
    return rc;
}

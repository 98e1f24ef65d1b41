/* snapshot.c - hands out references to the newest snapshot under a short lock, one for a request. */
#include "router/snapshot.h"

#include <stdlib.h>

int snapshot_board_init(struct snapshot_board *b)
{
    b->current = calloc(1, sizeof *b->current);
    if (!b->current) return -ENOMEM;
    b->current->refs = 1;
    lock_init(&b->lock);
    return 0;
}

static void drop(struct snapshot_board *b, struct snapshot *f)
{
    bundle_unpin(&b->pins, &f->pins);
    tenant_keys_unref(f->tenants);
    free(f->adapter);
    free(f);
}

void snapshot_board_fini(struct snapshot_board *b)
{
    if (!b->current) return;
    must(b->current->refs == 1);
    drop(b, b->current);
    b->current = NULL;
    lock_fini(&b->lock);
}

struct snapshot *snapshot_get(struct snapshot_board *b)
{
    lock_take(&b->lock);
    struct snapshot *f = b->current;
    f->refs++;
    lock_drop(&b->lock);
    return f;
}

void snapshot_unref(struct snapshot_board *b, struct snapshot *f)
{
    lock_take(&b->lock);
    bool last = --f->refs == 0;
    lock_drop(&b->lock);
    if (last) drop(b, f);
}

void snapshot_publish(struct snapshot_board *b, struct snapshot *owned)
{
    owned->refs = 1;
    lock_take(&b->lock);
    struct snapshot *before = b->current;
    b->current = owned;
    bool last = --before->refs == 0;
    lock_drop(&b->lock);
    if (last) drop(b, before);
}

const struct snapshot_model *snapshot_model_of(const struct snapshot *f, uint64_t service)
{
    for (uint32_t i = 0; i < f->model_count; i++)
        if (f->model[i].service == service) return &f->model[i];
    return NULL;
}

const struct snapshot_model *snapshot_find(const struct snapshot *f, struct str name,
                                           const struct snapshot_adapter **ret_adapter)
{
    *ret_adapter = NULL;
    if (name.len == 0) return f->model_count == 1 ? &f->model[0] : NULL;
    for (uint32_t i = 0; i < f->model_count; i++)
        if (str_eq(str_from(f->model[i].name), name)) return &f->model[i];
    for (uint32_t i = 0; i < f->adapter_count; i++) {
        if (!str_eq(str_from(f->adapter[i].name), name)) continue;
        *ret_adapter = &f->adapter[i];
        return snapshot_model_of(f, f->adapter[i].service);
    }
    return NULL;
}

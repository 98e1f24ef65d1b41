/* snapshot.c - hands out references to the newest snapshot under a short lock, one for a request. */
#include "router/snapshot.h"

#include "base/core/hash.h"

#include <stdlib.h>

int snapshot_board_init(struct snapshot_board *b)
{
    b->current = calloc(1, sizeof *b->current);
    if (!b->current) return -ENOMEM;
    b->current->refs = 1;
    pthread_mutex_init(&b->lock, NULL);
    return 0;
}

static void drop(struct snapshot_board *b, struct snapshot *f)
{
    bundle_unpin(&b->pins, &f->pins);
    tenant_keys_unref(f->tenants);
    free(f);
}

void snapshot_board_fini(struct snapshot_board *b)
{
    if (!b->current) return;
    must(b->current->refs == 1);
    drop(b, b->current);
    b->current = NULL;
    pthread_mutex_destroy(&b->lock);
}

struct snapshot *snapshot_get(struct snapshot_board *b)
{
    pthread_mutex_lock(&b->lock);
    struct snapshot *f = b->current;
    f->refs++;
    pthread_mutex_unlock(&b->lock);
    return f;
}

void snapshot_unref(struct snapshot_board *b, struct snapshot *f)
{
    pthread_mutex_lock(&b->lock);
    bool last = --f->refs == 0;
    pthread_mutex_unlock(&b->lock);
    if (last) drop(b, f);
}

void snapshot_publish(struct snapshot_board *b, struct snapshot *owned)
{
    owned->refs = 1;
    pthread_mutex_lock(&b->lock);
    struct snapshot *before = b->current;
    b->current = owned;
    bool last = --before->refs == 0;
    pthread_mutex_unlock(&b->lock);
    if (last) drop(b, before);
}

const struct snapshot_model *snapshot_model_find(const struct snapshot *f, struct str name)
{
    if (name.len == 0) return f->model_count == 1 ? &f->model[0] : NULL;
    for (uint32_t i = 0; i < f->model_count; i++) {
        if (str_eq(str_from(f->model[i].name), name)) return &f->model[i];
    }
    return NULL;
}

/* Finds a service of the router by its name or the hash of that. */

int services_new(struct services *s)
{
    s->item = calloc(SYNC_SERVICES_MAX, sizeof *s->item);
    s->count = 0;
    return s->item ? 0 : -ENOMEM;
}

void services_fini(struct services *s)
{
    free(s->item);
    *s = (struct services){ 0 };
}

struct service *services_by_hash(struct services *s, uint64_t hash)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->item[i].hash == hash) return &s->item[i];
    }
    return NULL;
}

struct service *services_get(struct services *s, struct str name)
{
    uint64_t hash = hash64(name.data, name.len, 0);
    struct service *known = services_by_hash(s, hash);
    if (known) return known;
    if (s->count == SYNC_SERVICES_MAX || name.len == 0 || name.len >= SERVICE_NAME_MAX) return NULL;
    struct service *made = &s->item[s->count++];
    *made = (struct service){ .hash = hash };
    memcpy(made->name, name.data, name.len);
    return made;
}

void services_remove(struct services *s, uint32_t at)
{
    must(at < s->count);
    s->item[at] = s->item[--s->count];
}

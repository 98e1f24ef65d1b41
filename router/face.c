/* face.c - a counted snapshot behind a short lock: a byte loop takes one a request. */
#include "router/face.h"

#include <stdlib.h>

int face_board_init(struct face_board *b)
{
    b->current = calloc(1, sizeof *b->current);
    if (!b->current) return -ENOMEM;
    b->current->refs = 1;
    pthread_mutex_init(&b->lock, NULL);
    return 0;
}

static void drop(struct face_board *b, struct face *f)
{
    bundle_unpin(&b->pins, &f->pins);
    tenant_keys_unref(f->tenants);
    free(f);
}

void face_board_fini(struct face_board *b)
{
    if (!b->current) return;
    must(b->current->refs == 1);
    drop(b, b->current);
    b->current = NULL;
    pthread_mutex_destroy(&b->lock);
}

struct face *face_get(struct face_board *b)
{
    pthread_mutex_lock(&b->lock);
    struct face *f = b->current;
    f->refs++;
    pthread_mutex_unlock(&b->lock);
    return f;
}

void face_unref(struct face_board *b, struct face *f)
{
    pthread_mutex_lock(&b->lock);
    bool last = --f->refs == 0;
    pthread_mutex_unlock(&b->lock);
    if (last) drop(b, f);
}

void face_publish(struct face_board *b, struct face *owned)
{
    owned->refs = 1;
    pthread_mutex_lock(&b->lock);
    struct face *before = b->current;
    b->current = owned;
    bool last = --before->refs == 0;
    pthread_mutex_unlock(&b->lock);
    if (last) drop(b, before);
}

const struct face_model *face_model_find(const struct face *f, struct str name)
{
    if (name.len == 0) return f->model_count == 1 ? &f->model[0] : NULL;
    for (uint32_t i = 0; i < f->model_count; i++) {
        if (str_eq(str_from(f->model[i].name), name)) return &f->model[i];
    }
    return NULL;
}

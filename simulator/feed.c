/* feed.c - a ring that doubles; its bound is the memory of all caches' events within one lag. */
#include "simulator/feed.h"

#include <stdlib.h>

#define CAPACITY_FIRST 1024

void feed_fini(struct feed *f)
{
    free(f->event);
    *f = (struct feed){ 0 };
}

static bool grow(struct feed *f)
{
    size_t capacity = f->capacity ? 2 * f->capacity : CAPACITY_FIRST;
    struct feed_event *more = malloc(capacity * sizeof *more);
    if (!more) return false;
    for (size_t i = 0; i < f->count; i++)
        more[i] = f->event[(f->first + i) % f->capacity];
    free(f->event);
    *f = (struct feed){ .event = more, .count = f->count, .capacity = capacity };
    return true;
}

bool feed_push(struct feed *f, const struct feed_event *ev)
{
    if (f->count == f->capacity && !grow(f)) return false;
    f->event[(f->first + f->count++) % f->capacity] = *ev;
    return true;
}

bool feed_pop(struct feed *f, int64_t now_us, struct feed_event *ret)
{
    if (f->count == 0 || f->event[f->first].due_us > now_us) return false;
    *ret = f->event[f->first];
    f->first = (f->first + 1) % f->capacity;
    f->count--;
    return true;
}

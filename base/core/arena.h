/* arena.h - memory that is dropped whole: a request's, a tick's.
 *
 * Layer:    base/core (libc)
 * Lifetime: arena_reset frees what was handed out and keeps the first chunk
 * Bound:    `bytes_max` at init; reaching it, or FAULT("arena.alloc"), returns NULL
 */
#pragma once
#include "base/core/str.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *head;
    size_t bytes_used; /* handed out since the last reset, alignment included */
    size_t bytes_max;
};

void arena_init(struct arena *a, size_t bytes_max);
void arena_fini(struct arena *a);
void arena_reset(struct arena *a);

/* Zeroed and aligned for any type; NULL at the bound or without memory. size 0 gives a
 * valid pointer. arena_array refuses count * size that would wrap. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t count, size_t size);

/* A copy with a NUL behind it; data is NULL when there was no memory. */
struct str arena_str(struct arena *a, struct str s);

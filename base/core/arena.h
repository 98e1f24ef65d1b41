/* arena.h - allocates memory that is freed all at once (of a request, of a tick), and pools of objects of one size.
 *
 * Layer:    base/core (libc)
 * Lifetime: arena_reset frees all that was handed out and keeps the head chunk for reuse
 * Bound:    `bytes_max` at init; reaching it, or FAULT("arena.alloc"), returns NULL
 */
#pragma once
#include "base/core/str.h"

#include <stddef.h>
#include <stdint.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *head;
    size_t bytes_used; /* handed out since the last reset, alignment included */
    size_t bytes_max;
};

void arena_init(struct arena *a, size_t bytes_max);
void arena_fini(struct arena *a);
void arena_reset(struct arena *a);

/* Return memory that is zeroed and aligned for any type; NULL at the bound or without memory. size 0
 * gives a valid pointer. arena_array refuses a count * size that would wrap. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t count, size_t size);

/* Returns a copy with a NUL behind it; its data is NULL when there was no memory. */
struct str arena_str(struct arena *a, struct str s);

/* A pool holds a fixed number of objects of one size, taken and given back without malloc.
 *
 * Lifetime: all memory is taken at init; an object is zeroed when taken
 * Threads:  the owner's only
 */

struct pool {
    char *memory;
    uint32_t *free_next; /* index of the next free object, behind each object */
    size_t object_bytes;
    uint32_t count;
    uint32_t used;
    uint32_t free_head;
};

/* Returns 0 or -ENOMEM. */
int pool_init(struct pool *p, size_t object_bytes, uint32_t count);
void pool_fini(struct pool *p);
void *pool_take(struct pool *p);              /* NULL when all are taken */
void pool_give(struct pool *p, void *object); /* must be of this pool, and taken */
uint32_t pool_index(const struct pool *p, const void *object);
void *pool_at(struct pool *p, uint32_t index); /* whether in use or not */

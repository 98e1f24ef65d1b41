/* pool.h - a fixed number of objects of one size, taken and given back without malloc.
 *
 * Layer:    base/core (libc)
 * Lifetime: all memory is taken at init; an object is zeroed when taken
 * Threads:  the owner's only
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct pool {
    char *memory;
    uint32_t *free_next; /* index of the next free object, behind each object */
    size_t object_bytes;
    uint32_t count;
    uint32_t used;
    uint32_t free_head;
};

/* 0, or -ENOMEM. */
int pool_init(struct pool *p, size_t object_bytes, uint32_t count);
void pool_fini(struct pool *p);
void *pool_take(struct pool *p);              /* NULL when all are out */
void pool_give(struct pool *p, void *object); /* must be one of ours and out */
uint32_t pool_index(const struct pool *p, const void *object);
void *pool_at(struct pool *p, uint32_t index); /* whether in use or not */

/* pool.c - fixed objects on a free list of indices.
 *
 * The links lie beside the objects, not inside them: a write through a stale pointer cannot
 * corrupt the list, and giving an object back twice is caught. */
#include "base/core/pool.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/fault.h"

#include <stdlib.h>

#define LINK_END UINT32_MAX
#define LINK_OUT (UINT32_MAX - 1) /* the object is with a caller */

int pool_init(struct pool *p, size_t object_bytes, uint32_t count)
{
    must(object_bytes > 0 && count < LINK_OUT);
    *p = (struct pool){ .free_head = LINK_END }; /* until all is well: an empty pool */
    size_t stride, bytes;
    if (!align_fits(object_bytes, _Alignof(max_align_t), &stride)) return -ENOMEM;
    if (!mul_fits(count ? count : 1, stride, &bytes) || FAULT("pool.init")) return -ENOMEM;
    p->memory = calloc(1, bytes);
    p->free_next = calloc(count ? count : 1, sizeof *p->free_next);
    if (!p->memory || !p->free_next) {
        pool_fini(p);
        return -ENOMEM;
    }
    p->object_bytes = stride;
    p->count = count;
    p->free_head = count ? 0 : LINK_END;
    for (uint32_t i = 0; i < count; i++)
        p->free_next[i] = i + 1 < count ? i + 1 : LINK_END;
    return 0;
}

void pool_fini(struct pool *p)
{
    free(p->memory);
    free(p->free_next);
    *p = (struct pool){ .free_head = LINK_END };
}

void *pool_take(struct pool *p)
{
    if (p->used == p->count) return NULL; /* before free_head: { 0 } is an empty pool */
    uint32_t index = p->free_head;
    p->free_head = p->free_next[index];
    p->free_next[index] = LINK_OUT;
    p->used++;
    return memset(pool_at(p, index), 0, p->object_bytes);
}

void pool_give(struct pool *p, void *object)
{
    uint32_t index = pool_index(p, object);
    must(p->free_next[index] == LINK_OUT);
    p->free_next[index] = p->free_head;
    p->free_head = index;
    p->used--;
}

uint32_t pool_index(const struct pool *p, const void *object)
{
    uintptr_t offset = (uintptr_t)object - (uintptr_t)p->memory;
    must(p->object_bytes > 0 && offset % p->object_bytes == 0);
    must(offset / p->object_bytes < p->count);
    return (uint32_t)(offset / p->object_bytes);
}

void *pool_at(struct pool *p, uint32_t index)
{
    must(index < p->count);
    return p->memory + (size_t)index * p->object_bytes;
}

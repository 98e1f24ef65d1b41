/* arena.c - takes memory from malloc in chunks that double in size, and frees them together.
 *
 * `head` is the chunk from which small requests are cut. A request above CHUNK_BYTES_MAX gets a chunk
 * of its own behind the head, so that the free tail of the head stays usable: the memory held stays
 * below about twice what was handed out. */
#include "base/core/arena.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/fault.h"

#include <stdlib.h>

#define CHUNK_BYTES_MIN ((size_t)4096)
#define CHUNK_BYTES_MAX ((size_t)65536)
#define ARENA_ALIGN _Alignof(max_align_t)

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, cap;
    _Alignas(max_align_t) char data[];
};

void arena_init(struct arena *a, size_t bytes_max)
{
    *a = (struct arena){ .bytes_max = bytes_max };
}

static void free_from(struct arena_chunk *chunk)
{
    while (chunk) {
        struct arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
}

void arena_fini(struct arena *a)
{
    free_from(a->head);
    *a = (struct arena){ .bytes_max = a->bytes_max };
}

void arena_reset(struct arena *a)
{
    a->bytes_used = 0;
    if (!a->head) return;
    free_from(a->head->next);
    a->head->next = NULL;
    a->head->used = 0;
}

/* Adds a chunk with room for `size`; NULL without memory. */
static struct arena_chunk *add_chunk(struct arena *a, size_t size)
{
    size_t cap = a->head ? min_size(a->head->cap * 2, CHUNK_BYTES_MAX) : CHUNK_BYTES_MIN;
    if (cap < size) cap = size;
    size_t bytes;
    if (!add_fits(sizeof(struct arena_chunk), cap, &bytes)) return NULL;
    struct arena_chunk *chunk = malloc(bytes);
    if (!chunk) return NULL;
    chunk->used = 0;
    chunk->cap = cap;
    if (a->head && size > CHUNK_BYTES_MAX) {
        chunk->next = a->head->next;
        a->head->next = chunk;
    } else {
        chunk->next = a->head;
        a->head = chunk;
    }
    return chunk;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t bytes, total;
    if (!align_fits(size ? size : 1, ARENA_ALIGN, &bytes)) return NULL;
    if (!add_fits(a->bytes_used, bytes, &total) || total > a->bytes_max) return NULL;
    if (FAULT("arena.alloc")) return NULL;

    struct arena_chunk *chunk = a->head;
    if (!chunk || chunk->cap - chunk->used < bytes) chunk = add_chunk(a, bytes);
    if (!chunk) return NULL;
    void *p = chunk->data + chunk->used;
    chunk->used += bytes;
    a->bytes_used = total;
    return memset(p, 0, bytes);
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (!mul_fits(count, size, &bytes)) return NULL;
    return arena_alloc(a, bytes);
}

struct str arena_str(struct arena *a, struct str s)
{
    size_t bytes;
    if (!add_fits(s.len, 1, &bytes)) return (struct str){ 0 };
    char *copy = arena_alloc(a, bytes);
    if (!copy) return (struct str){ 0 };
    if (s.len) memcpy(copy, s.data, s.len);
    return str_of(copy, s.len);
}

/* The pool keeps its free objects in a list of indices.
 *
 * The links lie in an array beside the objects, not inside them: a write through a stale pointer
 * cannot corrupt the list, and giving an object back twice is caught. */

#define LINK_END UINT32_MAX
#define LINK_OUT (UINT32_MAX - 1) /* the object is with a caller */

int pool_init(struct pool *p, size_t object_bytes, uint32_t count)
{
    must(object_bytes > 0 && count < LINK_OUT);
    *p = (struct pool){ .free_head = LINK_END }; /* an empty pool until all memory is there */
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
    if (p->used == p->count) return NULL; /* not by free_head: in a pool of { 0 } it is 0 */
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

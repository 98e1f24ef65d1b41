/* arena.c - chunks that double, dropped together.
 *
 * `head` is the chunk small requests are cut from. A request that is larger than a chunk gets one
 * of its own behind the head, so that it does not strand the head's free tail: memory held stays
 * below about twice what was handed out. */
#include "base/core/arena.h"

#include "base/core/bits.h"
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

/* A chunk with room for `size`; NULL without memory. */
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

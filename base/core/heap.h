/* heap.h - intrusive binary min-heap by a 64-bit key, for timers and simulated events.
 *
 * Layer: base/core (libc). The heap holds pointers to nodes that callers embed. Equal keys come
 * out in the order they went in (a sequence number breaks ties), so that runs are repeatable.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t key;
    uint64_t order; /* set by heap_push */
    size_t pos;     /* 1-based place in the heap; 0 when not in it */
};

struct heap {
    struct heap_node **node;
    size_t count, capacity, count_max;
    uint64_t pushed;
};

void heap_init(struct heap *h, size_t count_max);
void heap_fini(struct heap *h);
int heap_push(struct heap *h, struct heap_node *n, int64_t key); /* -ENOSPC at the bound, -ENOMEM */
void heap_remove(struct heap *h, struct heap_node *n);           /* n must be in it */
struct heap_node *heap_peek(const struct heap *h);               /* NULL when empty */
struct heap_node *heap_pop(struct heap *h);

static inline bool heap_has(const struct heap_node *n)
{
    return n->pos != 0;
}

/* heap.c - binary heap of pointers; every node knows its place, so removal is O(log n). */
#include "base/core/heap.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/fault.h"

#include <stdlib.h>

#define CAPACITY_MIN 16

void heap_init(struct heap *h, size_t count_max)
{
    *h = (struct heap){ .count_max = count_max };
}

void heap_fini(struct heap *h)
{
    for (size_t i = 0; i < h->count; i++)
        h->node[i]->pos = 0;
    free(h->node);
    *h = (struct heap){ .count_max = h->count_max };
}

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    return a->key != b->key ? a->key < b->key : a->order < b->order;
}

static void place(struct heap *h, size_t i, struct heap_node *n)
{
    h->node[i] = n;
    n->pos = i + 1;
}

static void sift_up(struct heap *h, size_t i, struct heap_node *n)
{
    while (i > 0 && before(n, h->node[(i - 1) / 2])) {
        place(h, i, h->node[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(h, i, n);
}

static void sift_down(struct heap *h, size_t i, struct heap_node *n)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && before(h->node[child + 1], h->node[child])) child++;
        if (!before(h->node[child], n)) break;
        place(h, i, h->node[child]);
        i = child;
    }
    place(h, i, n);
}

static int grow(struct heap *h)
{
    size_t capacity = h->capacity ? h->capacity * 2 : CAPACITY_MIN;
    size_t bytes;
    if (!mul_fits(capacity, sizeof *h->node, &bytes) || FAULT("heap.grow")) return -ENOMEM;
    struct heap_node **node = realloc(h->node, bytes);
    if (!node) return -ENOMEM;
    h->node = node;
    h->capacity = capacity;
    return 0;
}

int heap_push(struct heap *h, struct heap_node *n, int64_t key)
{
    must(n->pos == 0);
    if (h->count >= h->count_max) return -ENOSPC;
    if (h->count == h->capacity) {
        int rc = grow(h);
        if (rc < 0) return rc;
    }
    n->key = key;
    n->order = h->pushed++;
    sift_up(h, h->count++, n);
    return 0;
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    must(n->pos > 0 && n->pos <= h->count && h->node[n->pos - 1] == n);
    size_t i = n->pos - 1;
    n->pos = 0;
    struct heap_node *last = h->node[--h->count];
    if (last == n) return;
    if (i > 0 && before(last, h->node[(i - 1) / 2]))
        sift_up(h, i, last);
    else
        sift_down(h, i, last);
}

struct heap_node *heap_peek(const struct heap *h)
{
    return h->count ? h->node[0] : NULL;
}

struct heap_node *heap_pop(struct heap *h)
{
    struct heap_node *n = heap_peek(h);
    if (n) heap_remove(h, n);
    return n;
}

/* kv_pool.h - hands out pages of the KV cache and counts the holders of each.
 *
 * Layer:    engine/core (base/core)
 * Threads:  the device thread, or the simulator
 * Lifetime: created with the engine; pages are numbers, their bytes belong to the executor
 * Rules:    (1) a page is free, held (one holder or more) or cached (no holder, but named in the
 *               index); free + held + cached == total, checked after every plan in debug builds
 *           (2) a page that has several holders, or is named in the index, is never written
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define KV_PAGE_NONE UINT32_MAX
#define KV_PAGES_MAX (1u << 24) /* of one pool; 16 M pages of 16 tokens are 268 M tokens */

struct kv_pool {
    uint32_t *refs;
    bool *indexed;        /* named in the index: cached, not free, once it has no holder */
    uint32_t *free_stack; /* free_count page numbers, the next one to hand out last */
    uint32_t total;
    uint32_t free_count, held_count, cached_count;
};

int kv_pool_init(struct kv_pool *p, uint32_t total); /* -EINVAL, -ENOMEM */
void kv_pool_fini(struct kv_pool *p);

uint32_t kv_pool_take(struct kv_pool *p);           /* a free page with one holder, or NONE */
void kv_pool_ref(struct kv_pool *p, uint32_t page); /* held or cached */

/* Drops one holder; returns true if it was the last. */
bool kv_pool_unref(struct kv_pool *p, uint32_t page);

/* Marks a held page as named in the index, or as not: a cached page is free from then on. */
void kv_pool_set_indexed(struct kv_pool *p, uint32_t page, bool indexed);

static inline bool kv_pool_shared(const struct kv_pool *p, uint32_t page)
{
    return p->refs[page] > 1 || p->indexed[page];
}

/* Recounts everything; returns false if a rule is broken. */
bool kv_pool_check(const struct kv_pool *p);

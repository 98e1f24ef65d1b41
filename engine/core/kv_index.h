/* kv_index.h - hands out pages of the KV cache (kv_pool), and finds those that already hold the beginning of a prompt, by
 * chained block keys.
 *
 * Layer:    engine/core (base/core, policies/evict/evict.h)
 * Threads:  the device thread, or the simulator
 * Lifetime: beside a kv_pool, which it borrows
 * Rules:    (1) only full pages are named; a page is named by the key of its last granule
 *           (2) a key alone is no proof: parent key and token ids are compared on every hit
 *           (3) two sessions may fill equal pages at once: the first is named, the other stays
 *               private and is free when its session ends
 *           (4) each name added or removed is an event with the next sequence number; the ring
 *               keeps the last `events_max`, and a reader that fell behind takes a snapshot
 */
#pragma once

#include "base/core/block_key.h"
#include "base/core/heap.h"
#include "base/core/map.h"
#include "policies/evict/evict.h"

#include <stdbool.h>
#include <stdint.h>

/* Hands out pages of the KV cache and counts the holders of each.
 *
 * Lifetime: created with the engine; pages are numbers, their bytes belong to the executor
 * Rules:    (1) a page is free, held (one holder or more) or cached (no holder, but named in the
 *               index); free + held + cached == total, checked after every plan in debug builds
 *           (2) a page that has several holders, or is named in the index, is never written */

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

#define KV_INDEX_TOKENS_MAX 64
#define KV_GRANULES_MAX (KV_INDEX_TOKENS_MAX / BLOCK_TOKENS)

/* The keys of one page's granules were added (add) or removed. */
struct kv_event {
    uint64_t seq; /* from 1, without gaps */
    bool add;
    uint32_t key_count;
    struct block_key key[KV_GRANULES_MAX];
};

struct kv_entry; /* what is known about a named page */

struct kv_index {
    struct kv_pool *pool;
    const struct evict_policy *evict;
    uint32_t page_tokens, granules;
    struct map by_key;      /* last key -> page */
    struct kv_entry *entry; /* one a page */
    uint32_t *entry_ids;    /* page_tokens a page */
    struct heap evictable;  /* cached pages by rank */
    uint64_t releases;      /* so far */
    uint64_t evictions;
    int64_t floor;     /* rank of the page dropped last */
    uint32_t released; /* plus 1: the page released last; it may continue the next one */
    double depth_cost; /* what each token before a page adds to its cost, relative; set at will */
    struct kv_event *event; /* ring */
    uint32_t events_max;
    uint64_t event_seq; /* of the last event; 0: none yet */
};

/* page_tokens: a whole number of granules up to KV_INDEX_TOKENS_MAX. -EINVAL, -ENOMEM. */
int kv_index_init(struct kv_index *x, struct kv_pool *pool, uint32_t page_tokens,
                  const struct evict_policy *evict, uint32_t events_max);
void kv_index_fini(struct kv_index *x);

/* Returns the pages that kv_index_take could hand out now. */
static inline uint32_t kv_index_available(const struct kv_index *x)
{
    return x->pool->free_count + x->pool->cached_count;
}

/* Takes a page for one holder; evicts a cached one if none is free. NONE: every page is held. */
uint32_t kv_index_take(struct kv_index *x);

/* Drops one holder of the page. Release a session's tail before its head. */
void kv_index_release(struct kv_index *x, uint32_t page);

/* Finds the longest run of named pages that holds the beginning of `ids`; keys[i] covers granule i.
 * Looks at `pages_max` pages at most. Takes no reference: ret_pages is valid until the next
 * call that takes or releases. Returns how many. */
uint32_t kv_index_match(const struct kv_index *x, struct block_key salt,
                        const struct block_key *keys, const uint32_t *ids, uint32_t pages_max,
                        uint32_t *ret_pages);

/* Estimates how many pages kv_index_match would find, by a few probes instead of one a page: never
 * too few, and too many only if a page in the middle is missing. */
uint32_t kv_index_probe(const struct kv_index *x, const struct block_key *keys, uint32_t pages_max);

/* Adds a holder that found the page by a lookup; counts as a use. */
void kv_index_hit(struct kv_index *x, uint32_t page);

/* Adds a holder of a named page; does not count as a use. */
void kv_index_hold(struct kv_index *x, uint32_t page);

/* Names a page that its holder has filled: `keys` are its granules', `ids` its tokens', `parent`
 * the key before it (or the salt), `depth` the pages before it. Does nothing when an equal page is
 * named already. */
void kv_index_seal(struct kv_index *x, uint32_t page, uint32_t depth, struct block_key parent,
                   const struct block_key *keys, const uint32_t *ids);

/* Forgets every name; pages that are held stay with their holders. */
void kv_index_clear(struct kv_index *x);

/* Copies up to `max` events that follow `after` (a sequence number). Returns how many; -ESTALE
 * when some were overwritten already and a snapshot is needed. */
int kv_index_events(const struct kv_index *x, uint64_t after, struct kv_event *ret, uint32_t max);

/* Walks the named pages: *cursor starts at 0; false at the end. For snapshots. */
bool kv_index_next(const struct kv_index *x, uint32_t *cursor, struct kv_event *ret);

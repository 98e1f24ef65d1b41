/* kv_index.h - finds the pages of the KV cache that already hold the beginning of a prompt, by chained block keys.
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
#include "engine/core/kv_pool.h"
#include "policies/evict/evict.h"

#include <stdbool.h>
#include <stdint.h>

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

/* Returns the units that no holder needs. */
static inline uint64_t kv_index_units(const struct kv_index *x)
{
    return x->pool->units - x->pool->held_units;
}

/* Returns the whole pages that kv_index_take could hand out now. */
static inline uint32_t kv_index_available(const struct kv_index *x)
{
    const uint64_t whole = kv_index_units(x) / kv_pool_whole(x->pool);
    return (uint32_t)min_u64(whole, x->pool->free_count + x->pool->cached_count);
}

/* Takes a whole page for one holder whose window covers it. Where memory is short, parts that windows have left
 * behind go first, those longest ago before others; then cached pages by the policy. NONE: all is held. */
uint32_t kv_index_take(struct kv_index *x);
uint32_t kv_index_take_full(struct kv_index *x); /* without the part of layers with a window */

/* Drops one holder of the page, whose window covers it. Release a session's tail before its head. */
void kv_index_release(struct kv_index *x, uint32_t page);
void kv_index_release_full(struct kv_index *x, uint32_t page); /* its window does not */

/* Does kv_pool_regain, for which others give memory as for kv_index_take. Returns false if all is held. */
bool kv_index_regain(struct kv_index *x, uint32_t page);

/* Returns the first page whose window part a query needs that has `before` tokens before it. */
uint32_t kv_index_window_from(const struct kv_index *x, uint32_t before);

/* Returns how many of `count` found pages can be used as the beginning of a sequence: behind them the
 * window needs only whole pages. */
uint32_t kv_index_usable(const struct kv_index *x, const uint32_t *pages, uint32_t count);

/* Finds the longest run of named pages that holds the beginning of `ids`; keys[i] covers granule i.
 * Looks at `pages_max` pages at most. Takes no reference: ret_pages is valid until the next
 * call that takes or releases. Returns how many. */
uint32_t kv_index_match(const struct kv_index *x, struct block_key salt,
                        const struct block_key *keys, const uint32_t *ids, uint32_t pages_max,
                        uint32_t *ret_pages);

/* Estimates how many pages kv_index_match would find, by a few probes instead of one a page: never
 * too few, and too many only if a page in the middle is missing. */
uint32_t kv_index_probe(const struct kv_index *x, const struct block_key *keys, uint32_t pages_max);

/* Adds a holder that found the page by a lookup; counts as a use. Its window is not over the page: kv_pool_enter. */
void kv_index_hit(struct kv_index *x, uint32_t page);

/* Adds such a holder of a named page; does not count as a use. */
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

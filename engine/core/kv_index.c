/* kv_index.c - finds named pages by a hash map of chained keys, and evicts them by a heap.
 *
 * A radix tree was rejected: with keys that cover everything before them a flat map finds the
 * longest run with one probe a page, and router, tiers and events speak the same keys. Eviction
 * is a heap ranked once at release rather than a linked list, so that a policy of the evict table
 * can be any function of a page's history at the cost of O(log pages).
 *
 * A page stays named after its parent was evicted, though no lookup reaches it. Releasing tails
 * first makes that rare, and such a page is the next to go under any rank that grows with the
 * releases.
 */
#include "engine/core/kv_index.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/list.h"

#include <stdlib.h>
#include <string.h>

struct kv_entry {
    struct heap_node node; /* in `evictable` while cached */
    struct block_key parent;
    struct block_key key[KV_GRANULES_MAX];
    uint32_t hits;
    uint32_t depth; /* pages before it */
};

int kv_index_init(struct kv_index *x, struct kv_pool *pool, uint32_t page_tokens,
                  const struct evict_policy *evict, uint32_t events_max)
{
    memset(x, 0, sizeof *x);
    if (page_tokens == 0 || page_tokens % BLOCK_TOKENS || page_tokens > KV_INDEX_TOKENS_MAX ||
        events_max == 0) {
        return -EINVAL;
    }
    x->pool = pool;
    x->evict = evict;
    x->page_tokens = page_tokens;
    x->granules = page_tokens / BLOCK_TOKENS;
    x->events_max = events_max;
    map_init(&x->by_key, sizeof(struct block_key), sizeof(uint32_t), pool->total, MAP_FOREIGN);
    heap_init(&x->evictable, pool->total);
    x->entry = calloc(pool->total, sizeof *x->entry);
    x->entry_ids = calloc((size_t)pool->total * page_tokens, sizeof *x->entry_ids);
    x->event = calloc(events_max, sizeof *x->event);
    if (!x->entry || !x->entry_ids || !x->event) {
        kv_index_fini(x);
        return -ENOMEM;
    }
    /* No event has this number. It is written so that the ring's memory is resident from the start:
     * otherwise the process would seem to leak until the ring was full once. */
    for (uint32_t i = 0; i < events_max; i++)
        x->event[i].seq = UINT64_MAX;
    return 0;
}

void kv_index_fini(struct kv_index *x)
{
    if (x->pool) {
        map_fini(&x->by_key);
        heap_fini(&x->evictable);
    }
    free(x->entry);
    free(x->entry_ids);
    free(x->event);
    memset(x, 0, sizeof *x);
}

static uint32_t *ids_of(const struct kv_index *x, uint32_t page)
{
    return x->entry_ids + (size_t)page * x->page_tokens;
}

static void fill_event(const struct kv_index *x, uint32_t page, struct kv_event *ret)
{
    ret->key_count = x->granules;
    memcpy(ret->key, x->entry[page].key, x->granules * sizeof ret->key[0]);
}

static void emit(struct kv_index *x, uint32_t page, bool add)
{
    uint64_t seq = ++x->event_seq;
    struct kv_event *ev = &x->event[seq % x->events_max];
    ev->seq = seq;
    ev->add = add;
    fill_event(x, page, ev);
}

/* Removes the page's name; a cached page becomes free. */
static void forget(struct kv_index *x, uint32_t page)
{
    struct kv_entry *e = &x->entry[page];
    must(map_remove(&x->by_key, &e->key[x->granules - 1]));
    if (heap_has(&e->node)) heap_remove(&x->evictable, &e->node);
    emit(x, page, false);
    kv_pool_set_indexed(x->pool, page, false);
}

/* Returns false if no page is cached. */
static bool evict_one(struct kv_index *x)
{
    struct heap_node *node = heap_peek(&x->evictable);
    if (!node) return false;
    x->evictions++;
    x->floor = node->key;
    forget(x, (uint32_t)(CONTAINER_OF(node, struct kv_entry, node) - x->entry));
    return true;
}

static uint32_t take(struct kv_index *x, bool whole)
{
    for (;;) {
        const uint32_t page = kv_pool_take(x->pool, whole);
        if (page != KV_PAGE_NONE) return page;
        if (x->pool->free_count > 0 && kv_pool_drop_left(x->pool)) continue;
        if (!evict_one(x)) return KV_PAGE_NONE;
    }
}

uint32_t kv_index_take(struct kv_index *x)
{
    return take(x, true);
}

uint32_t kv_index_take_full(struct kv_index *x)
{
    return take(x, false);
}

/* Returns the page's rank for eviction, raised to that of its tail. If the page released just
 * before continues this one, it is found through it alone: a head must not go before its tail,
 * whatever the policy says. */
static int64_t rank_of(const struct kv_index *x, const struct kv_entry *e,
                       const struct evict_page *view)
{
    int64_t rank = x->evict->rank(view);
    if (x->released == 0) return rank;
    const struct kv_entry *tail = &x->entry[x->released - 1];
    bool behind = heap_has(&tail->node) && block_key_eq(tail->parent, e->key[x->granules - 1]);
    return behind && tail->node.key > rank ? tail->node.key : rank;
}

static void release(struct kv_index *x, uint32_t page, bool window)
{
    if (!kv_pool_unref(x->pool, page, window) || !x->pool->indexed[page]) return;
    struct kv_entry *e = &x->entry[page];
    struct evict_page view = {
        .releases = ++x->releases,
        .hits = e->hits,
        .pages_total = x->pool->total,
        .floor = x->floor,
        .cost = 1 + x->depth_cost * (double)e->depth * (double)x->page_tokens,
    };
    int64_t rank = rank_of(x, e, &view);
    x->released = page + 1;
    if (heap_push(&x->evictable, &e->node, rank) == 0) return;
    /* The heap could not grow: a page that could never be evicted again must not stay cached. */
    forget(x, page);
}

void kv_index_release(struct kv_index *x, uint32_t page)
{
    release(x, page, true);
}

void kv_index_release_full(struct kv_index *x, uint32_t page)
{
    release(x, page, false);
}

/* ---- windows ---- */

bool kv_index_regain(struct kv_index *x, uint32_t page)
{
    while (!kv_pool_regain(x->pool, page))
        if (!kv_pool_drop_left(x->pool) && !evict_one(x)) return false;
    return true;
}

uint32_t kv_index_window_from(const struct kv_index *x, uint32_t before)
{
    const uint32_t window = x->pool->parts.window_tokens;
    return window > 0 && before >= window ? (before + 1 - window) / x->page_tokens : 0;
}

/* One token less than the pages hold may be used: the last is computed again where nothing else is left to compute. */
uint32_t kv_index_usable(const struct kv_index *x, const uint32_t *pages, uint32_t count)
{
    uint32_t best = 0, run = 0; /* whole pages in a row, up to the one looked at */
    if (!x->pool->window) return count;
    for (uint32_t i = 0; i < count; i++) {
        run = x->pool->window[pages[i]].here ? run + 1 : 0;
        const uint32_t from = kv_index_window_from(x, (i + 1) * x->page_tokens - 1);
        if (run >= i + 1 - from) best = i + 1;
    }
    return best;
}

/* ---- finding and naming ---- */

static bool entry_is(const struct kv_index *x, uint32_t page, struct block_key parent,
                     const struct block_key *keys, const uint32_t *ids)
{
    const struct kv_entry *e = &x->entry[page];
    return block_key_eq(e->parent, parent) &&
           memcmp(e->key, keys, x->granules * sizeof *keys) == 0 &&
           memcmp(ids_of(x, page), ids, x->page_tokens * sizeof *ids) == 0;
}

uint32_t kv_index_match(const struct kv_index *x, struct block_key salt,
                        const struct block_key *keys, const uint32_t *ids, uint32_t pages_max,
                        uint32_t *ret_pages)
{
    struct block_key parent = salt;
    uint32_t n = 0;
    for (; n < pages_max; n++) {
        const struct block_key *own = keys + (size_t)n * x->granules;
        const uint32_t *page = map_get(&x->by_key, &own[x->granules - 1]);
        if (!page || !entry_is(x, *page, parent, own, ids + (size_t)n * x->page_tokens)) break;
        ret_pages[n] = *page;
        parent = own[x->granules - 1];
    }
    return n;
}

uint32_t kv_index_probe(const struct kv_index *x, const struct block_key *keys, uint32_t pages_max)
{
    uint32_t here = 0, gone = pages_max + 1; /* pages known to be there; and not to be */
    while (gone - here > 1) {
        uint32_t middle = here + (gone - here) / 2;
        if (map_get(&x->by_key, &keys[(size_t)middle * x->granules - 1])) {
            here = middle;
        } else {
            gone = middle;
        }
    }
    return here;
}

void kv_index_hold(struct kv_index *x, uint32_t page)
{
    struct kv_entry *e = &x->entry[page];
    if (heap_has(&e->node)) heap_remove(&x->evictable, &e->node);
    kv_pool_ref(x->pool, page);
}

void kv_index_hit(struct kv_index *x, uint32_t page)
{
    struct kv_entry *e = &x->entry[page];
    if (e->hits < UINT32_MAX) e->hits++;
    kv_index_hold(x, page);
}

void kv_index_seal(struct kv_index *x, uint32_t page, uint32_t depth, struct block_key parent,
                   const struct block_key *keys, const uint32_t *ids)
{
    bool is_new;
    uint32_t *slot = map_put(&x->by_key, &keys[x->granules - 1], &is_new);
    if (!slot || !is_new) return; /* without memory the page is merely not found again */
    *slot = page;
    struct kv_entry *e = &x->entry[page];
    e->parent = parent;
    e->hits = 0;
    e->depth = depth;
    memcpy(e->key, keys, x->granules * sizeof *keys);
    memcpy(ids_of(x, page), ids, x->page_tokens * sizeof *ids);
    kv_pool_set_indexed(x->pool, page, true);
    emit(x, page, true);
}

void kv_index_clear(struct kv_index *x)
{
    for (uint32_t page = 0; page < x->pool->total; page++) {
        if (x->pool->indexed[page]) forget(x, page);
    }
}

int kv_index_events(const struct kv_index *x, uint64_t after, struct kv_event *ret, uint32_t max)
{
    if (after >= x->event_seq) return 0;
    if (x->event_seq - after > x->events_max) return -ESTALE;
    uint32_t count = min_u32((uint32_t)(x->event_seq - after), max);
    for (uint32_t i = 0; i < count; i++)
        ret[i] = x->event[(after + 1 + i) % x->events_max];
    return (int)count;
}

bool kv_index_next(const struct kv_index *x, uint32_t *cursor, struct kv_event *ret)
{
    while (*cursor < x->pool->total) {
        uint32_t page = (*cursor)++;
        if (!x->pool->indexed[page]) continue;
        *ret = (struct kv_event){ .seq = x->event_seq, .add = true };
        fill_event(x, page, ret);
        return true;
    }
    return false;
}

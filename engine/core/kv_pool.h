/* kv_pool.h - hands out pages of the KV cache and counts the holders of each.
 *
 * Layer:    engine/core (base/core)
 * Threads:  the device thread, or the simulator
 * Lifetime: created with the engine; pages are numbers, their bytes belong to the executor
 * Rules:    (1) a page is free, held (one holder or more) or cached (no holder, but named in the
 *               index); free + held + cached == total, checked after every plan in debug builds
 *           (2) a page that has several holders, or is named in the index, is never written
 *           (3) where some layers have a sliding window a page has two parts: one of the layers that see
 *               all positions, which it always has, and one of the others, which returns to the pool when
 *               no holder's window covers the page any more. A named page keeps that part until its
 *               memory is needed
 *           (4) memory is counted in units; what no holder needs can be handed out: kv_index_take
 */
#pragma once
#include "base/core/bits.h"
#include "base/core/list.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_PAGE_NONE UINT32_MAX
#define KV_PAGES_MAX (1u << 24) /* of one pool; 16 M pages of 16 tokens are 268 M tokens */

/* The two parts of a page. All 0: a page has one part, of one unit. */
struct kv_parts {
    uint32_t window_tokens; /* that a query sees in the layers with a window, with its own */
    uint32_t full, window;  /* units of the part of all other layers (or 0), and of theirs */
    uint32_t numbers;       /* pages that may be in use at once: more than fit whole */
};

struct kv_window_part {
    struct list left; /* in kv_pool.left */
    uint32_t refs;    /* holders whose window covers the page */
    bool here;        /* its memory is counted */
    bool stale;       /* in kv_pool.stale */
};

struct kv_pool {
    uint32_t *refs;
    bool *indexed;        /* named in the index: cached, not free, once it has no holder */
    uint32_t *free_stack; /* free_count page numbers, the next one to hand out last */
    uint32_t total;
    uint32_t free_count, held_count, cached_count;

    struct kv_parts parts;           /* full and window are 1 and 0 where a page has one part */
    uint64_t units;                  /* of all memory */
    uint64_t used_units, held_units; /* of pages that are not free; of what holders need */
    struct kv_window_part *window;   /* one a page; NULL: a page has one part */
    struct list left; /* parts that no holder needs, of named pages, the first to go first */
    uint32_t *stale, stale_count; /* pages that lost memory since kv_pool_next_stale */
};

/* `pages` fit whole; parts NULL: they have one part. -EINVAL, -ENOMEM. */
int kv_pool_init(struct kv_pool *p, uint32_t pages, const struct kv_parts *parts);
void kv_pool_fini(struct kv_pool *p);

/* Hands out a free page with one holder, whose window covers it if `whole`; NONE: no number is free, or not
 * enough memory. */
uint32_t kv_pool_take(struct kv_pool *p, bool whole);
void kv_pool_ref(struct kv_pool *p, uint32_t page); /* held or cached */

/* Drops one holder; `window`: its window covers the page. Returns true if it was the last. */
bool kv_pool_unref(struct kv_pool *p, uint32_t page, bool window);

/* Marks a held page as named in the index, or as not: a cached page is free from then on. */
void kv_pool_set_indexed(struct kv_pool *p, uint32_t page, bool indexed);

static inline bool kv_pool_shared(const struct kv_pool *p, uint32_t page)
{
    return p->refs[page] > 1 || p->indexed[page];
}

/* Returns true if the page has the part of layers with a window; always where there are none. */
static inline bool kv_pool_is_whole(const struct kv_pool *p, uint32_t page)
{
    return !p->window || p->window[page].here;
}

/* Returns the units of a whole page. */
static inline uint32_t kv_pool_whole(const struct kv_pool *p)
{
    return p->parts.full + p->parts.window;
}

/* Counts pages by state, in whole pages' memory: they add up to those that fit whole. */
struct kv_pool_pages {
    uint32_t free, held, cached;
};
struct kv_pool_pages kv_pool_pages(const struct kv_pool *p);

/* ---- the part of layers with a window; nothing of it where a page has one part ---- */

/* Adds a holder of the part, to one of the page: the part is here. */
void kv_pool_enter(struct kv_pool *p, uint32_t page);
/* Drops it: the holder's window has passed the page, which it still holds. */
void kv_pool_leave(struct kv_pool *p, uint32_t page);
/* Drops the part that was left longest ago. Returns false if there is none. */
bool kv_pool_drop_left(struct kv_pool *p);
/* Gives a held page that lacks the part a new one, and a holder of it. Returns false without memory for it. */
bool kv_pool_regain(struct kv_pool *p, uint32_t page);

/* Tells of a page whose memory, or that of its window part, is not counted any more: false if there is no
 * other. A page that was handed out meanwhile is passed over. ret_whole: it is free. */
bool kv_pool_next_stale(struct kv_pool *p, uint32_t *ret_page, bool *ret_whole);

/* Recounts everything; returns false if a rule is broken. */
bool kv_pool_check(const struct kv_pool *p);

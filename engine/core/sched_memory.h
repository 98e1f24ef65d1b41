/* sched_memory.h - gives KV pages to sessions, takes them back, swaps them; admits sessions.
 *
 * Layer:    engine/core, private to the scheduler: include sched_state.h
 * Rules:    sched_memory.c alone writes struct sched_memory
 */
#pragma once
#include "base/core/err.h"
#include "engine/core/kv_index.h"
#include "engine/core/session.h"

struct scheduler;

/* Histogram of running sessions by the pages that each is still expected to grow by: exact below
 * 16, then four bins an octave. */
#define GROWTH_BINS 100
struct growth {
    uint32_t count[GROWTH_BINS];
    uint64_t held[GROWTH_BINS]; /* pages that those sessions hold now and return when they end */
    uint32_t sessions;          /* of all bins: running ones, and those about to run */
};

struct sched_memory {
    struct kv_pool pool;
    struct kv_index index;
    void *admit_state;
    uint32_t *match; /* scratch: pages of one lookup */
    uint32_t *swap_free, swap_free_count;
    uint32_t moves_max;
    uint64_t committed; /* whole pages that running sessions still need for known tokens */
    uint64_t growth;    /* pages beyond, for output that the admit policy reserves */
    struct growth growing;
    uint64_t kept; /* pages of ended sessions that are still being copied */
};

int sched_memory_init(struct scheduler *s, struct err *err); /* call sched_memory_fini also then */
void sched_memory_fini(struct scheduler *s);
void sched_memory_perf(struct scheduler *s); /* s->perf has changed */

uint32_t sched_pages_for(const struct scheduler *s, uint32_t tokens);

/* Returns the units (sched_units_of) that a session needs for its known tokens, and those of its pages, in memory or swapped. */
uint64_t sched_units_to_run(const struct scheduler *s, const struct session *x);
uint64_t sched_units_kept(const struct scheduler *s, const struct session *x);
/* Returns the whole pages that take so many units: policies and reports count in these. */
uint32_t sched_whole_pages(const struct scheduler *s, uint64_t units);

/* Gives back the session's pages, tail first, or its swap places. `computed` becomes 0. */
void sched_release_pages(struct scheduler *s, struct session *x);
/* Counts, or no longer counts, the pages that an ended session keeps until sched_release_pages. */
void sched_keep_pages(struct scheduler *s, const struct session *x);
void sched_unkeep_pages(struct scheduler *s, const struct session *x);

/* Takes pages for tokens up to `upto`. Returns false and takes nothing if pages are missing: a page taken
 * for a session that cannot go on would be lost from the cache for nothing. */
bool sched_make_room(struct scheduler *s, struct session *x, uint32_t upto);

/* Makes room by taking pages from other sessions; returns false if `x` itself lost its pages. */
bool sched_force_room(struct scheduler *s, struct session *x, uint32_t upto);

/* Takes the device pages of a running or parked session, which waits from now on. Returns false if
 * the preempt policy refuses; it cannot refuse if newcomer is NULL. */
bool sched_give_up(struct scheduler *s, struct session *x, struct session *newcomer);
void sched_park(struct scheduler *s, struct session *x);

/* Takes the pages of the parked session with the worst rank. Returns false if `newcomer` does not
 * go before it, if there is none, or if the preempt policy refuses. */
bool sched_reclaim(struct scheduler *s, struct session *newcomer);
void sched_swap_early(struct scheduler *s);
/* Returns true if a session without device pages must not be admitted in this step, to spare the
 * swap space. */
bool sched_swap_waits(const struct scheduler *s, const struct session *x);
struct session *sched_victim(struct scheduler *s, bool paused_only); /* running; NULL: none */

/* ---- admission ---- */

struct sched_need {
    uint32_t hit_pages;             /* cached pages that it would hold */
    uint64_t hit_units, idle_units; /* theirs; those of them that no session holds now */
};

/* Sum the pages that running sessions still need: of all anew, or of one session more. */
void sched_sum_demand(struct scheduler *s);
void sched_add_demand(struct scheduler *s, struct session *x);

/* Returns true if a waiting session may be admitted; a parked one has its own pages.
 * ret_hits: cached tokens. */
bool sched_find_need(struct scheduler *s, struct session *x, struct sched_need *ret,
                     uint32_t *ret_hits);

/* Takes the session's pages from the session itself, the swap space or the cache. Returns
 * false if the pages to swap in do not fit. */
bool sched_admit(struct scheduler *s, struct session *x, const struct sched_need *need,
                 uint32_t hit_tokens, int64_t now_us);

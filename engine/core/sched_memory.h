/* sched_memory.h - KV pages of sessions: taken, given up, swapped; and who is admitted to them.
 *
 * Layer:    engine/core, private to the scheduler: include sched_state.h
 * Rules:    sched_memory.c alone writes struct sched_memory
 */
#pragma once
#include "base/core/err.h"
#include "engine/core/kv_index.h"
#include "engine/core/session.h"

struct scheduler;

/* Running sessions by the pages that they are still to grow by: exact below 16, then four bins an
 * octave. */
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
    uint64_t promised; /* pages that running sessions still need for known tokens */
    uint64_t growth;   /* pages beyond, for output that the admit policy reserves */
    struct growth growing;
    uint64_t kept; /* pages of ended sessions that are still being copied */
};

int sched_memory_init(struct scheduler *s, struct err *err); /* call sched_memory_fini also then */
void sched_memory_fini(struct scheduler *s);
void sched_memory_perf(struct scheduler *s); /* s->perf has changed */

uint32_t sched_pages_for(const struct scheduler *s, uint32_t tokens);

/* Returns the session's pages, tail first, or its swap places. `computed` becomes 0. */
void sched_release_pages(struct scheduler *s, struct session *x);
/* An ended session keeps its pages until sched_release_pages. */
void sched_keep_pages(struct scheduler *s, const struct session *x);
void sched_unkeep_pages(struct scheduler *s, const struct session *x);

/* Makes tokens [computed, upto) writable: copies a shared first page, takes new ones. False, and
 * nothing was taken, when pages are missing: a page taken for a session that cannot go on would be
 * lost from the cache for nothing. */
bool sched_make_room(struct scheduler *s, struct session *x, uint32_t upto);

/* Makes room by taking pages from other sessions; false when `x` itself lost its pages. */
bool sched_force_room(struct scheduler *s, struct session *x, uint32_t upto);

/* The session, running or parked, waits without device pages; false when the preempt policy
 * refuses. newcomer NULL: it cannot refuse. */
bool sched_give_up(struct scheduler *s, struct session *x, struct session *newcomer);
void sched_park(struct scheduler *s, struct session *x);

/* Takes the pages of the worst parked session that `newcomer` goes before. False: there is none, or
 * the preempt policy refuses. */
bool sched_reclaim(struct scheduler *s, struct session *newcomer);
void sched_swap_early(struct scheduler *s);
/* Returns true if a session without device pages is not admitted in this step for the sake of the
 * swap space. */
bool sched_swap_waits(const struct scheduler *s, const struct session *x);
struct session *sched_victim(struct scheduler *s, bool paused_only); /* running; NULL: none */

/* ---- admission ---- */

struct sched_need {
    uint32_t hit_pages, idle_hits; /* cached pages; those of them that no session holds now */
    uint32_t copied;               /* a partly shared page is copied before the first write */
};

/* Adds up what running sessions still need: of all anew, or of one more. */
void sched_sum_demand(struct scheduler *s);
void sched_add_demand(struct scheduler *s, struct session *x);

/* Returns true if the admit policy finds pages for a waiting session; a parked one has its own.
 * ret_hits: cached tokens. */
bool sched_find_need(struct scheduler *s, struct session *x, struct sched_need *ret,
                     uint32_t *ret_hits);

/* Takes the session's pages from the session itself, the swap space or the cache. False: the pages
 * to swap in do not fit. */
bool sched_admit(struct scheduler *s, struct session *x, const struct sched_need *need,
                 uint32_t hit_tokens, int64_t now_us);

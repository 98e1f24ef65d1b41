/* sched_part.h - what the files of the scheduler share: scheduler.c plans, sched_admit.c knows who
 * may run, sched_chunk.c how much of a prompt, sched_yield.c who gives way, sched_queue.c who waits
 * and what the rows hear, sched_pages.c moves pages, sched_new.c makes and frees it all,
 * sched_look.c answers questions.
 *
 * Layer: engine/core, private to these
 */
#pragma once
#include "engine/core/scheduler.h"

#define SESSION_OF(node) CONTAINER_OF(node, struct session, link)
#define SCHED_ASIDE_MAX 64 /* waiting sessions that are passed over in one plan */

/* Running sessions by the pages that they are still to grow by: exact below 16, then four bins an
 * octave. */
#define GROWTH_BINS 100
struct growth {
    uint32_t count[GROWTH_BINS];
    uint64_t held[GROWTH_BINS]; /* pages that those hold now, and give back when they end */
    uint32_t sessions;          /* of all bins: those that run, and those about to */
};

struct tenant_queue {
    uint64_t tenant;
    double weight;
    uint32_t members; /* its sessions that have not ended; 0: the place may be given away */
    uint32_t running;
    bool is_new; /* the fair row still knows its place as nobody's, or as another's */
    struct wait_queue queue;
};

struct scheduler {
    struct sched_config config;
    struct step_rows rows;
    struct kv_pool pool;
    struct kv_index index;
    struct list waiting, parked, running, ended;
    struct list unranked, aborting, probing;
    struct heap due, again;
    struct tenant_queue *tenant;
    uint32_t tenant_count;
    void *fair_state, *order_state, *admit_state;
    struct sched_batch batch;
    uint32_t moves_max;
    struct sched_counts counts;
    int64_t now_us;                /* of the last call that told it; never goes back */
    struct perf_coef perf;         /* of the current plan */
    struct chunk_session *promise; /* scratch of promises_max, for a chunk row that aims; or NULL */
    uint32_t promises_max;
    uint32_t aim; /* of the current plan, once asked for */
    bool aimed;
    double arrivals_s, arrived_owed_s; /* requests and prompt tokens a second, in the long run */
    int64_t arrived_us;
    double batch_mean;            /* sessions running, in the long run */
    double output_mean;           /* of answers that ended by themselves or by their limit */
    struct perf_coef ranked_perf; /* when all ranks were last asked for */
    double ranked_batch;
    uint64_t promised; /* pages that running sessions still need for known tokens */
    uint64_t growth;   /* and those they will need beyond, by what the admit row reserves */
    struct growth growing;
    uint64_t kept;   /* pages of ended sessions whose copies are under way */
    uint32_t *match; /* scratch: pages of one lookup */
    uint32_t *swap_free, swap_free_count;
    struct session *aside[SCHED_ASIDE_MAX];
    uint32_t aside_count;
    uint32_t standing; /* sessions that are paused or held: no step, and in no queue */
    bool watched;      /* some row hears of every session in every step */
    bool planned;      /* between plan and commit */
};

static inline bool session_stands(const struct session *x)
{
    return x->paused || x->held;
}

static inline bool session_is_parked(const struct session *x)
{
    return x->state == SESSION_WAITING && x->page_count > 0 && !x->swapped;
}

/* Waiting sessions that could run, if they were let. */
uint32_t sched_queued(const struct scheduler *s);

void sched_batch_shape(struct sched_batch *b); /* fills in its shape */

/* ---- sched_chunk.c -------------------------------------------------------------------------- */

void sched_arrived(struct scheduler *s, const struct sched_request *req);

/* What of the session's known tokens goes into the batch; 0: nothing of it. */
uint32_t sched_chunk_tokens(struct scheduler *s, const struct session *session);

/* ---- sched_admit.c -------------------------------------------------------------------------- */

struct sched_need {
    uint32_t hit_pages, idle_hits; /* found in the cache; of them nobody holds now */
    uint32_t copied;               /* a page shared in part is copied before the first write */
};

/* What running sessions still need: of all of them anew, or of one more. */
void sched_sum_demand(struct scheduler *s);
void sched_add_demand(struct scheduler *s, struct session *x);

/* Whether there are pages for who waits, as the admit row counts them; a session that parks has its
 * own. ret_hits: tokens in the cache. */
bool sched_find_need(struct scheduler *s, struct session *x, struct sched_need *ret,
                     uint32_t *ret_hits);

/* Its pages come from where they are: with it already, in the swap space, in the cache. False: the
 * swap space's do not fit. */
bool sched_admit(struct scheduler *s, struct session *x, const struct sched_need *need,
                 uint32_t hit_tokens, int64_t now_us);

/* ---- sched_yield.c -------------------------------------------------------------------------- */

/* Sessions whose slice is over, or that outgrew what they were admitted for, go back. */
void sched_return(struct scheduler *s);

/* For rows that preempt: the best of those who wait get places, and pages, of the worst that run, as
 * long as the step has tokens for them. They are admitted later in the plan, like all others. */
void sched_reorder(struct scheduler *s, int64_t now_us);

/* ---- sched_queue.c -------------------------------------------------------------------------- */

/* Where the tenant's sessions wait: in its own place, else in one that nobody ever had, else in
 * that of an idle tenant, who is forgotten; else it shares one, whose owner stays the owner. */
uint32_t sched_tenant_slot(struct scheduler *s, uint64_t tenant, double weight);

struct step_session sched_view(const struct scheduler *s, struct session *x);
uint32_t sched_expected_total(const struct scheduler *s, struct session *x);

/* Ranks those that came, and those whose rank changed by time, by their row or by the machine. */
void sched_refresh_ranks(struct scheduler *s, int64_t now_us);
void sched_rank_unranked(struct scheduler *s, int64_t now_us);
void sched_enqueue_later(struct scheduler *s, struct session *x); /* waits from now on */
void sched_dequeue(struct scheduler *s, struct session *x);
struct session *sched_next_waiting(struct scheduler *s, int64_t now_us);
void sched_set_aside(struct scheduler *s, struct session *x);
void sched_put_back(struct scheduler *s);

/* Tells the rows. `ev` without kind-independent fields: session, now and tenant are filled in. */
void sched_tell(struct scheduler *s, struct session *x, struct step_event ev);

/* ---- sched_pages.c -------------------------------------------------------------------------- */

uint32_t sched_pages_for(const struct scheduler *s, uint32_t tokens);

/* Pages go back, tail first; of a swapped session its places. `computed` becomes 0. */
void sched_release_pages(struct scheduler *s, struct session *x);

/* Makes tokens [computed, upto) writable: copies a shared page they begin in, takes new ones.
 * False, and nothing was taken, when pages are missing: a page taken for one who cannot go on is a
 * name lost from the cache. */
bool sched_make_room(struct scheduler *s, struct session *x, uint32_t upto);

/* Room by taking others' pages; false when `x` itself was the one to go. */
bool sched_force_room(struct scheduler *s, struct session *x, uint32_t upto);

/* What of the known tokens is in pages already, in s->match. At least the last token is always
 * computed: somebody has to give its logits. */
uint32_t sched_find_pages(struct scheduler *s, struct session *x, uint32_t *ret_pages);

/* The session, running or parked, waits without device pages; false when the preempt row would
 * rather not. newcomer NULL: it has to. */
bool sched_give_up(struct scheduler *s, struct session *x, struct session *newcomer);
void sched_park(struct scheduler *s, struct session *x);

/* Pages of the worst parked session that `newcomer` goes before. False: there is none, or its pages
 * are better left. */
bool sched_reclaim(struct scheduler *s, struct session *newcomer);
bool sched_swap_in(struct scheduler *s, struct session *x); /* false: pages are missing */
void sched_swap_early(struct scheduler *s);

void sched_batch_remove(struct scheduler *s, struct session *x);
struct session *sched_victim(struct scheduler *s, bool paused_only); /* running; NULL: none */

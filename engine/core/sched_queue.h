/* sched_queue.h - keeps waiting sessions by tenant and rank, and tells policies of events.
 *
 * Layer:    engine/core, private to the scheduler: include sched_state.h
 * Rules:    (1) sched_queue.c alone writes struct sched_queue
 *           (2) a waiting session that is neither paused nor held is in exactly one of: its
 *               tenant's queue, `unranked`, `aside`
 */
#pragma once
#include "base/core/heap.h"
#include "base/core/list.h"
#include "base/perf/perf.h"
#include "engine/core/session.h"
#include "engine/core/wait_queue.h"
#include "policies/step.h"

#define SCHED_ASIDE_MAX 64 /* waiting sessions that one plan passes over */

struct scheduler;

struct tenant_queue {
    uint64_t tenant;
    double weight;
    uint32_t members; /* sessions that have not ended; 0: the slot may be given to another tenant */
    uint32_t running;
    bool is_new; /* the fair policy was not told yet that the slot has a new tenant */
    struct wait_queue queue;
};

struct sched_queue {
    struct tenant_queue *tenant;
    uint32_t tenant_count;
    void *fair_state, *order_state;
    struct list unranked; /* sessions that get a rank in the next plan */
    struct list probing;  /* queued sessions with a rank that depends on the cache */
    struct heap again;    /* queued sessions by the time their rank is computed again */
    struct session *aside[SCHED_ASIDE_MAX];
    uint32_t aside_count;
    struct perf_coef ranked_perf; /* when all ranks were last computed */
    double ranked_batch;          /* likewise; < 0: compute all ranks in the next plan */
};

int sched_queue_init(struct scheduler *s); /* -ENOMEM; call sched_queue_fini also then */
void sched_queue_fini(struct scheduler *s);

/* Returns the slot in which a tenant's sessions wait: its own, else a slot that was never used,
 * else the slot of an idle tenant, which is forgotten; else a slot shared with another tenant,
 * which keeps its weight. */
uint32_t sched_tenant_slot(struct scheduler *s, uint64_t tenant, double weight);
int sched_tenant_reserve(struct scheduler *s, uint32_t slot); /* room for one more; -ENOMEM */
void sched_tenant_join(struct scheduler *s, struct session *x, uint32_t slot);
void sched_tenant_leave(struct scheduler *s, const struct session *x); /* it has ended */
/* Returns the session that the fair policy takes out of a full queue for a request of slot
 * `newcomer`: one that never ran here or elsewhere; NULL: none, and the newcomer is refused. */
struct session *sched_tenant_displace(const struct scheduler *s, uint32_t newcomer);
void sched_tenant_run(struct scheduler *s, const struct session *x, bool runs);

struct step_session sched_view(const struct scheduler *s, struct session *x);
uint32_t sched_expected_total(const struct scheduler *s, struct session *x);

/* Ranks new sessions and ranks anew what changed by time, by policy or with the machine. */
void sched_refresh_ranks(struct scheduler *s, int64_t now_us);
void sched_rank_unranked(struct scheduler *s, int64_t now_us);
void sched_enqueue_later(struct scheduler *s, struct session *x); /* waits from now on */
void sched_dequeue(struct scheduler *s, struct session *x);
struct session *sched_next_waiting(struct scheduler *s, int64_t now_us);
/* Writes the first `count` waiting sessions in order of admission; returns how many there are. */
uint32_t sched_first_waiting(struct scheduler *s, int64_t now_us, uint32_t count,
                             struct session **ret);
void sched_set_aside(struct scheduler *s, struct session *x);
void sched_put_back(struct scheduler *s);

/* Tells the policies of an event; fills in its session, time and tenant. */
void sched_tell(struct scheduler *s, struct session *x, struct step_event ev);

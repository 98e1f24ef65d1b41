/* sched_state.h - defines the members of a scheduler.
 *
 * Layer:    engine/core, private to scheduler.c and sched_*.c
 * Rules:    `queue` is written by sched_queue.c alone, `memory` by sched_memory.c alone, `round` by
 *           sched_round.c alone, `chunk` by sched_chunk.c alone, `draft` by sched_draft.c alone; lists of sessions
 *           and counts by scheduler.c and sched_plan.c and, where a session gives up its place, by sched_memory.c
 */
#pragma once
#include "engine/core/sched_chunk.h"
#include "engine/core/sched_draft.h"
#include "engine/core/sched_memory.h"
#include "engine/core/sched_queue.h"
#include "engine/core/sched_round.h"
#include "engine/core/scheduler.h"

#define SESSION_OF(node) CONTAINER_OF(node, struct session, link)

struct scheduler {
    struct sched_config config;
    struct step_policies policies;
    struct sched_queue queue;
    struct sched_memory memory;
    struct sched_round round; /* for an admit policy that forms batches */
    struct sched_chunk chunk;
    struct sched_draft draft;
    struct list waiting, parked, running, ended;
    struct list aborting;
    struct heap due;
    struct sched_batch batch;
    struct sched_counts counts;
    int64_t now_us;           /* of the last call with a time; never goes back */
    struct perf_coef perf;    /* of the current plan */
    double batch_mean;        /* running mean of running sessions */
    double output_mean;       /* running mean of outputs that ended by stop or length */
    double preempt_s;         /* expected cost of preemptions since the last step */
    uint32_t standing;        /* paused or held sessions: no step, and in no queue */
    bool watched;             /* a policy observes every session in every step */
    bool planned;             /* between plan and commit */
    uint32_t unchecked_steps; /* since a debug build recounted all pages */
};

static inline bool session_stands(const struct session *x)
{
    return x->paused || x->held;
}

static inline bool session_is_parked(const struct session *x)
{
    return x->state == SESSION_WAITING && x->page_count > 0 && !x->swapped;
}

/* ---- scheduler.c ---- */

/* Returns the scheduler's time, which never goes back. */
int64_t sched_clock(struct scheduler *s, int64_t now_us);
void sched_end_due(struct scheduler *s, int64_t now_us);         /* aborts and deadlines */
uint32_t sched_queued_count(const struct scheduler *s);          /* waiting sessions that may run */
void sched_stop_running(struct scheduler *s, struct session *x); /* from running to waiting */

/* ---- sched_plan.c ---- */

void sched_batch_remove(struct scheduler *s, struct session *x);
void sched_batch_shape(struct sched_batch *b); /* fills `shape` from the items */

/* sched_round.h - keeps rounds of closed batches, for an admit policy that forms batches.
 *
 * Layer:    engine/core, private to the scheduler: include sched_state.h
 * Lifetime: members are waiting sessions; a session leaves when it is admitted or ends
 * Rules:    (1) sched_round.c alone writes struct sched_round
 *           (2) a new batch opens when no running session takes steps and all members of the batch
 *               before it were admitted or left; a new round when all batches were open
 *           (3) a session that is queued after the round was formed is in the next one
 */
#pragma once
#include "engine/core/session.h"
#include "policies/admit/admit.h"

struct scheduler;

struct sched_round {
    struct session **member;           /* by batch; NULL: left */
    struct admit_candidate *candidate; /* scratch */
    uint32_t *batch;                   /* scratch while the round is formed, then of each member */
    uint32_t capacity, count;
    uint32_t next;     /* the first that may still be there */
    uint32_t open_end; /* behind the members of the open batch */
};

/* Nothing is allocated for policies that form no batches. -ENOMEM; call sched_round_fini also then. */
int sched_round_init(struct scheduler *s);
void sched_round_fini(struct scheduler *s);

/* Opens the next batch and forms a new round if the last one is over; a batch that still has
 * members stays open. Call when no running session takes steps, after all waiting ones have their
 * ranks. */
void sched_round_open(struct scheduler *s, int64_t now_us);

/* Returns the next member of the open batch; NULL: all have left. A member that is paused or held
 * leaves. */
struct session *sched_round_head(struct scheduler *s);
void sched_round_leave(struct scheduler *s, struct session *x); /* nothing if it is in no round */

/* Takes the pages of the parked session that will run last, members of the open batch excepted.
 * Returns false if there is none. */
bool sched_round_reclaim(struct scheduler *s);
bool sched_round_check(const struct scheduler *s);

/* sched_chunk.h - says how many tokens a session gets in a step.
 *
 * Layer:    engine/core, private to the scheduler: include sched_state.h
 * Rules:    sched_chunk.c alone writes struct sched_chunk
 */
#pragma once
#include "engine/core/session.h"
#include "policies/chunk/chunk.h"

struct scheduler;

struct sched_chunk {
    struct chunk_session *pending; /* scratch of pending_max, for a policy that aims; or NULL */
    uint32_t pending_max;
    uint32_t aim; /* of the current plan, once computed */
    bool aimed;
    double arrivals_s, arrived_owed_s; /* running means: requests and prompt tokens a second */
    int64_t arrived_us;
};

int sched_chunk_init(struct scheduler *s); /* -ENOMEM; call sched_chunk_fini also then */
void sched_chunk_fini(struct scheduler *s);
void sched_chunk_begin(struct scheduler *s); /* a plan */
void sched_chunk_arrived(struct scheduler *s, const struct sched_request *req);

/* Returns the tokens that the session gets in this step, with what is planned already; 0: none, which a policy may
 * not say of the first. */
uint32_t sched_chunk_tokens(struct scheduler *s, const struct session *session);

/* plan_desk.h - one service under decision: what the steps of plan() hand to each other.
 *
 * Layer:   controller/core, for plan*.c
 * Threads: pure
 * Steps:   see (plan_view.c) -> the scaling row -> targets (plan_target.c) -> where (plan_where.c)
 *          -> actions (plan_action.c)
 */
#pragma once
#include "controller/core/plan.h"

/* One service under decision. */
struct plan_desk {
    const struct plan_view *view;
    const struct plan_service *service;
    uint32_t index;
    int64_t now_us;
    struct scale_view scale;
    struct scale_instance *seen; /* of the view; PLAN_INSTANCES_MAX */
    struct plan_decision *decision;
    struct plan *plan;
    struct plan_memory *memory;
    struct rng *rng;
    bool *taken;                                         /* by place in the view: has an action */
    struct place_verdict where[SCALE_POOLS_MAX];         /* want: what is missing at each offer */
    uint32_t surplus[SCALE_POOLS_MAX][PLACE_OFFERS_MAX]; /* what is there and not wanted there */
};

static inline bool plan_is_mine(const struct plan_desk *d, const struct plan_instance *in,
                                uint32_t pool)
{
    return in->service == d->index && in->pool == pool;
}

/* Pools that a person has in hand keep out of the signal's and the shaper's reach. */
static inline bool plan_in_hand(const struct plan_desk *d, uint32_t pool)
{
    return d->service->paused || d->service->pool[pool].manual >= 0;
}

/* What the scaling row sees, and what of it the decision records. */
void plan_see(struct plan_desk *d);

/* From the row's wants to targets: bounds, shaper, hands, proof. */
void plan_target(struct plan_desk *d);

/* Where the pool's next instances come from: what its row wants less what is there. May raise the
 * target for spares and replacements. */
void plan_ask_row(struct plan_desk *d, uint32_t pool);

/* The offer to launch at next, which is taken off what is wanted; PLAN_NONE: none can be had. */
uint32_t plan_next_offer(struct plan_desk *d, uint32_t pool);

/* From targets to actions of one pool. */
void plan_grow(struct plan_desk *d, uint32_t pool);
void plan_shrink(struct plan_desk *d, uint32_t pool);

/* Ends instances whose service or pool is configured no more. */
void plan_retire(struct plan_desk *d);

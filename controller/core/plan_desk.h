/* plan_desk.h - defines the desk on which one service is decided: its view, and the results of the steps so far.
 *
 * Layer:   controller/core, private to plan.c, plan_see.c and plan_act.c
 * Threads: pure
 * Rules:   each step reads what those before it wrote, and writes its own: plan_see.c the scaling view, plan.c the
 *          targets, plan_act.c offers and actions
 */
#pragma once
#include "controller/core/plan.h"

/* The service under decision, with the results of the steps so far. */
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
    bool *taken;                                         /* by index in the view: has an action */
    struct place_view offers[SCALE_POOLS_MAX];           /* as the placement policy saw them */
    struct place_verdict where[SCALE_POOLS_MAX];         /* want: instances missing at each offer */
    uint32_t surplus[SCALE_POOLS_MAX][PLACE_OFFERS_MAX]; /* instances beyond what is wanted there */
    uint32_t next[SCALE_POOLS_MAX]; /* the pool's offer that is taken next, or PLACE_NONE */
};

static inline bool plan_is_mine(const struct plan_desk *d, const struct plan_instance *in,
                                uint32_t pool)
{
    return in->service == d->index && in->pool == pool;
}

/* Returns true if an instance serves and nothing is known against it. */
static inline bool plan_is_ready(const struct plan_instance *in)
{
    return in->phase == PHASE_READY && !in->at_risk && !in->doomed;
}

/* Returns true if a person has paused the service, drained the pool or set its count: then neither the
 * scaling policy nor the shaper changes it. */
static inline bool plan_is_overridden(const struct plan_desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    return d->service->paused || p->drained || p->manual >= 0;
}

/* Returns what one more instance of the offer costs an hour: nothing while reserved ones are free. `more`: launches
 * that are decided already. */
double plan_price_of_next(const struct plan_view *view, uint32_t offer, uint32_t more);

/* ---- plan_see.c ---- */

/* Fills the scaling policy's view, and the decision's counts. */
void plan_see(struct plan_desk *d);
/* Fills the placement policy's view: the pool's offers, and our instances at each. */
void plan_place_view(const struct plan_view *view, uint32_t service, uint32_t pool, uint32_t target,
                     int64_t now_us, struct place_view *ret);
/* Returns true if the offer is not in back-off and, where there is a budget, its price is known. */
bool plan_offer_is_usable(const struct plan_view *view, const struct plan_service *service,
                          uint32_t offer, int64_t now_us);

/* ---- plan_act.c ---- */

void plan_place(struct plan_desk *d, uint32_t pool);   /* asks the placement policy for offers */
void plan_grow(struct plan_desk *d, uint32_t pool);    /* keeps and launches up to the target */
void plan_shrink(struct plan_desk *d, uint32_t pool);  /* cancels and drains down to it */
void plan_relieve(struct plan_desk *d, uint32_t pool); /* drains those at risk once others serve */
void plan_retire(struct plan_desk *d);                 /* ends instances of no configured pool */

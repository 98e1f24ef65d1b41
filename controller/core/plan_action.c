/* plan_action.c - from targets to launches, keeps, cancels and drains within the budget. */
#include "controller/core/plan_desk.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ALIKE 0.02        /* work that costs less more than this costs the same */
#define PRICE_LEAST 1e-6  /* dollars an hour: of what is free the faster is worth more */
#define BUDGET_SLACK 1e-9 /* relative: prices are sums of floats */

static bool push(struct plan_desk *d, const struct plan_action *a)
{
    if (d->plan->action_count == PLAN_ACTIONS_MAX) {
        d->plan->dropped++;
        return false;
    }
    d->plan->action[d->plan->action_count++] = *a;
    return true;
}

static uint32_t launches(const struct plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->action_count; i++)
        n += plan->action[i].act == PLAN_LAUNCH;
    return n;
}

/* Most requests, then most cache: the drain that would lose most by going on. */
static uint32_t best_to_keep(const struct plan_desk *d, uint32_t pool)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool) || in->phase != PHASE_DRAINING || d->taken[i]) continue;
        if (in->doomed) continue;
        const struct plan_instance *b = best == PLAN_NONE ? NULL : &d->view->instance[best];
        if (!b || in->in_flight > b->in_flight ||
            (in->in_flight == b->in_flight && in->pages_cached > b->pages_cached))
            best = i;
    }
    return best;
}

void plan_grow(struct plan_desk *d, uint32_t pool)
{
    struct plan_decision *r = d->decision;
    uint32_t have = r->have[pool];
    for (; have < r->target[pool]; have++) {
        uint32_t kept = best_to_keep(d, pool);
        if (kept == PLAN_NONE) break;
        struct plan_action a = { PLAN_KEEP, d->index, pool, PLAN_NONE, kept, r->reason };
        if (!push(d, &a)) return;
        d->taken[kept] = true;
    }
    for (; have < r->target[pool]; have++) {
        uint32_t offer = plan_next_offer(d, pool);
        if (offer == PLAN_NONE) {
            r->blocked = "no offer of the pool can be had now";
            return;
        }
        double price = d->view->offer[offer].price_h;
        double ceiling = d->service->budget_h * (1 + BUDGET_SLACK);
        if (d->service->budget_h > 0 && r->cost_h_after + price > ceiling) {
            r->blocked = "the budget";
            return;
        }
        if (launches(d->plan) >= d->view->room) {
            r->blocked = "no room for more instances in the store";
            d->plan->dropped++;
            return;
        }
        struct plan_action a = { PLAN_LAUNCH, d->index, pool, offer, PLAN_NONE, r->reason };
        if (!push(d, &a)) return;
        r->cost_h_after += price;
    }
}

/* What work costs on an instance, as a number that grows by one every ALIKE: of instances of one kind
 * some are slower than others. */
static int work_class(const struct plan_instance *in)
{
    double cost = perf_read_s(&in->perf) * fmax(in->price_h, PRICE_LEAST);
    return (int)floor(log(fmax(cost, DBL_MIN)) / log1p(ALIKE));
}

/* True when `a` is the better one to give up: both serve nobody, or both serve. */
static bool worth_less(const struct plan_instance *a, const struct plan_instance *b)
{
    int work_a = work_class(a), work_b = work_class(b);
    if (a->has_perf && b->has_perf && work_a != work_b) return work_a > work_b;
    if (a->in_flight != b->in_flight) return a->in_flight < b->in_flight;
    if (a->pages_cached != b->pages_cached) return a->pages_cached < b->pages_cached;
    if (a->price_h > b->price_h || a->price_h < b->price_h) return a->price_h > b->price_h;
    if (a->since_us != b->since_us) return a->since_us > b->since_us; /* the youngest */
    return strcmp(a->id, b->id) < 0; /* so that two runs choose alike */
}

/* The count of its offer's surplus, or NULL when it stands at no offer of the pool. */
static uint32_t *surplus_of(struct plan_desk *d, uint32_t pool, const struct plan_instance *in)
{
    const struct plan_pool *p = &d->service->pool[pool];
    for (uint32_t i = 0; i < p->offer_count; i++)
        if (p->offer[i] == in->offer) return &d->surplus[pool][i];
    return NULL;
}

static bool goes_first(struct plan_desk *d, uint32_t pool, const struct plan_instance *a,
                       const struct plan_instance *b)
{
    const uint32_t *sa = surplus_of(d, pool, a), *sb = surplus_of(d, pool, b);
    bool first = sa && *sa > 0, second = sb && *sb > 0;
    return first != second ? first : worth_less(a, b);
}

static uint32_t victim(struct plan_desk *d, uint32_t pool, enum phase phase)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool) || in->phase != phase || d->taken[i]) continue;
        if (in->pinned) continue;
        if (best == PLAN_NONE || goes_first(d, pool, in, &d->view->instance[best])) best = i;
    }
    return best;
}

void plan_shrink(struct plan_desk *d, uint32_t pool)
{
    struct plan_decision *r = d->decision;
    for (uint32_t have = r->have[pool]; have > r->target[pool]; have--) {
        enum plan_act act = PLAN_CANCEL;
        uint32_t at = victim(d, pool, PHASE_STARTING);
        if (at == PLAN_NONE) {
            act = PLAN_DRAIN;
            at = victim(d, pool, PHASE_READY);
        }
        if (at == PLAN_NONE) { /* have counts just these, and what is pinned */
            r->blocked = "instances whose records cannot be read";
            return;
        }
        struct plan_action a = { act, d->index, pool, PLAN_NONE, at, r->reason };
        if (!push(d, &a)) return;
        d->taken[at] = true;
        uint32_t *surplus = surplus_of(d, pool, &d->view->instance[at]);
        if (surplus && *surplus > 0) --*surplus;
        r->cost_h_after -= d->view->instance[at].price_h;
    }
}

void plan_retire(struct plan_desk *d)
{
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (in->service != PLAN_NONE && in->pool != PLAN_NONE) continue;
        if (in->phase > PHASE_READY || in->pinned) continue;
        struct plan_action a = { in->phase == PHASE_READY ? PLAN_DRAIN : PLAN_CANCEL,
                                 PLAN_NONE,
                                 PLAN_NONE,
                                 PLAN_NONE,
                                 i,
                                 "its pool is not configured any more" };
        if (!push(d, &a)) return;
    }
}

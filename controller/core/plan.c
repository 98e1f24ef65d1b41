/* plan.c - decides the fleet's next actions, one service after the other.
 *
 *     view -> scaling policy (wants) -> bounds of the service -> shaper -> manual override
 *          -> proof before anything goes down -> placement policy (offers) -> actions in the budget
 *
 * Views are in plan_see.c, targets in this file, offers and actions in plan_act.c; each step writes into struct
 * plan_desk. Services are decided separately: a service never takes another one's budget or room. */
#include "controller/core/plan.h"

#include "base/core/bits.h"
#include "controller/core/plan_desk.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const char *const plan_act_names[PLAN_ACT_COUNT] = {
    [PLAN_LAUNCH] = "launch",
    [PLAN_CANCEL] = "cancel",
    [PLAN_DRAIN] = "drain",
    [PLAN_KEEP] = "keep",
};

/* ---- from wants to targets ---- */

/* Applies the service's own bounds over all pools: the cheapest come in, the dearest go out. */
static void apply_bounds(struct plan_desk *d, uint32_t want[SCALE_POOLS_MAX])
{
    uint32_t total = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += want[p];
    while (total < d->service->min) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            const struct scale_pool *s = &d->scale.pool[p];
            if (want[p] >= scale_reach(s)) continue;
            if (best == PLAN_NONE || s->price_h < d->scale.pool[best].price_h) best = p;
        }
        if (best == PLAN_NONE) return;
        want[best]++;
        total++;
        d->decision->reason = "the service's minimum";
    }
    while (total > d->service->max) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            const struct scale_pool *s = &d->scale.pool[p];
            if (want[p] <= s->min) continue;
            if (best == PLAN_NONE || s->price_h > d->scale.pool[best].price_h) best = p;
        }
        if (best == PLAN_NONE) return;
        want[best]--;
        total--;
        d->decision->blocked = "the service's maximum";
    }
}

static uint32_t override_target(const struct plan_desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    if (p->drained) return 0;
    if (p->manual >= 0) return min_u32((uint32_t)p->manual, p->max);
    return d->decision->have[pool];
}

static const char *override_reason(const struct plan_desk *d, uint32_t pool)
{
    if (d->service->pool[pool].drained) return "drained by hand";
    return d->service->paused ? "paused by hand" : "counts set by hand";
}

static void shape_targets(struct plan_desk *d)
{
    struct plan_decision *r = d->decision;
    uint32_t want[SCALE_POOLS_MAX];
    memcpy(want, r->verdict.choice.want, sizeof want);
    r->reason = r->verdict.reason;
    apply_bounds(d, want);

    struct scale_shaped shaped;
    const struct scale_shaper *shaper =
        d->service->shaper ? d->service->shaper : &scale_shape_window;
    struct scale_shape_ask ask = { d->service->pool_count, want, r->have, r->ready };
    shaper->shape(d->memory->shape, &d->service->shape, &ask, d->now_us, &shaped);
    for (uint32_t p = 0; p < d->service->pool_count; p++) /* a rate knows no bounds */
        shaped.target[p] = max_u32(shaped.target[p], d->scale.pool[p].min);
    if (shaped.limited) {
        r->blocked = shaped.limit;
        r->hold_s = shaped.hold_s;
    }
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        r->target[p] = shaped.target[p];
        if (!plan_is_overridden(d, p)) continue;
        r->target[p] = override_target(d, p);
        r->reason = override_reason(d, p);
        r->blocked = NULL;
    }
}

/* Returns why nothing may go down now, or NULL. */
static const char *missing_proof(const struct plan_desk *d)
{
    const struct plan_decision *r = d->decision;
    if (!r->demand.present) return "no router has reported: absent demand is not zero";
    if (!r->routers_fresh) return "a router is silent: its demand is unknown";
    if (r->fresh < r->expected * PLAN_FRESH_SHARE)
        return "too few fresh reports of agents to shrink on";
    return NULL;
}

static void demand_proof(struct plan_desk *d)
{
    struct plan_decision *r = d->decision;
    const char *missing = missing_proof(d);
    uint32_t total = 0, have = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        total += r->target[p];
        have += r->have[p];
    }
    bool to_zero = total == 0 && have > 0;
    bool busy = r->demand.in_flight > 0 || r->demand.held > 0;
    if (!missing && to_zero && busy) missing = "routers still hold or serve requests";
    if (!missing) return;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        if (plan_is_overridden(d, p) || r->target[p] >= r->have[p]) continue;
        r->target[p] = r->have[p];
        r->blocked = missing;
    }
}

/* Keeps growth within the service's maximum. The shaper or missing proof may keep one pool from
 * shrinking while another grows: growth then waits for it, the dearest pool first. */
static void cap_growth(struct plan_desk *d)
{
    struct plan_decision *r = d->decision;
    uint32_t total = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += r->target[p];
    for (; total > d->service->max; total--) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            if (plan_is_overridden(d, p) || r->target[p] <= r->have[p]) continue;
            if (best == PLAN_NONE || d->scale.pool[p].price_h > d->scale.pool[best].price_h)
                best = p;
        }
        if (best == PLAN_NONE) return;
        r->target[best]--;
        r->blocked = "the service's maximum";
    }
}

/* Returns how many instances of `a` do the work of one of `b`, by a step that decodes; 1 where a speed is not known. */
static double worth(const struct scale_pool *a, const struct scale_pool *b)
{
    const struct perf_shape shape = { .decoding_seqs = 1 };
    if (!a->perf_known || !b->perf_known) return 1;
    double sa = perf_step_s(&a->perf, &shape), sb = perf_step_s(&b->perf, &shape);
    return sa > 0 && sb > 0 ? sa / sb : 1;
}

/* Returns true if the budget lets the pool grow beside all that runs: else what runs would be in the way of its own
 * replacement for ever. */
static bool may_grow_beside(const struct plan_desk *d, uint32_t pool)
{
    if (d->service->budget_h <= 0) return true;
    return d->decision->cost_h + d->scale.pool[pool].price_h <= d->service->budget_h;
}

/* Keeps ready instances of a pool that shrinks while those of another pool that are to replace them are not ready:
 * their launch may be refused, and nothing would work then. */
static void keep_until_replaced(struct plan_desk *d)
{
    struct plan_decision *r = d->decision;
    uint32_t total = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += r->target[p];
    for (uint32_t q = 0; q < d->service->pool_count; q++) {
        if (r->target[q] <= r->ready[q] || !may_grow_beside(d, q)) continue;
        double missing = r->target[q] - r->ready[q]; /* in instances of q */
        for (uint32_t p = 0; p < d->service->pool_count && missing > 0; p++) {
            if (p == q || plan_is_overridden(d, p) || r->target[p] >= r->ready[p]) continue;
            double each = worth(&d->scale.pool[p], &d->scale.pool[q]);
            uint32_t keep = min_u32(r->ready[p] - r->target[p], (uint32_t)ceil(missing * each));
            keep = min_u32(keep, d->service->max - min_u32(total, d->service->max));
            if (keep == 0) continue;
            r->target[p] += keep;
            total += keep;
            missing -= keep / each;
            r->blocked = "what would replace it is not ready yet";
        }
    }
}

static void set_targets(struct plan_desk *d)
{
    shape_targets(d);
    demand_proof(d);
    cap_growth(d);
    keep_until_replaced(d);
}

/* ---- one decision ---- */

static void watch_zones(struct plan_desk *d, struct pool_mix *mix)
{
    double dt_h = mix->watched_us ? fmax(0, (double)(d->now_us - mix->watched_us) / 3600e6) : 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        struct place_view offers;
        plan_place_view(d->view, d->index, p, 0, d->now_us, &offers);
        pool_mix_watch(mix, p, &offers, d->next[p], dt_h, d->now_us);
    }
    mix->watched_us = d->now_us;
}

/* Replaces the scaling policy's counts by the mix policy's. Where the scaling policy wants no instance,
 * or no mix is found, its counts stand. */
static void apply_mix(struct plan_desk *d)
{
    struct scale_choice *c = &d->decision->verdict.choice;
    uint32_t total = 0;
    if (!d->service->mix) return;
    must(d->view->mix_room && d->view->mix);
    struct pool_mix *mix = &d->view->mix[d->index];
    watch_zones(d, mix);
    pool_mix_solve(d->service->mix, &d->scale, &d->service->scale, d->now_us, d->view->mix_room,
                   mix);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += c->want[p];
    if (!mix->found || total == 0) return;
    c->cost_h = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        const struct scale_pool *s = &d->scale.pool[p];
        c->want[p] = max_u32(mix->want[p], s->min);
        c->cost_h += c->want[p] * s->price_h;
    }
    d->decision->verdict.has_runner_up = false;
    d->decision->verdict.reason = "the mix for the lengths that are expected";
}

static void decide_service(struct plan_desk *d)
{
    struct plan_decision *r = d->decision;
    plan_see(d);
    d->service->policy->decide(d->memory->policy, &d->service->scale, &d->scale, d->now_us, d->rng,
                               &r->verdict);
    apply_mix(d);
    set_targets(d);
    r->cost_h_after = r->cost_h;
    r->action_from = d->plan->action_count;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        plan_place(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        plan_grow(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        plan_shrink(d, p);
    for (uint32_t p = 0; p < d->service->pool_count && !missing_proof(d); p++)
        plan_relieve(d, p);
    r->action_count = d->plan->action_count - r->action_from;
}

void plan(const struct plan_view *view, struct plan_memory *memory, int64_t now_us, struct rng *rng,
          struct plan *ret)
{
    must(view->service_count <= PLAN_SERVICES_MAX && view->instance_count <= PLAN_INSTANCES_MAX);
    memset(ret, 0, offsetof(struct plan, seen));
    memset(ret->taken, 0, view->instance_count * sizeof *ret->taken);
    struct plan_desk d = { .view = view,
                           .now_us = now_us,
                           .seen = ret->seen,
                           .taken = ret->taken,
                           .plan = ret,
                           .rng = rng };
    for (uint32_t s = 0; s < view->service_count; s++) {
        d.service = &view->service[s];
        d.index = s;
        d.decision = &ret->decision[ret->decision_count++];
        d.decision->service = s;
        d.memory = &memory[s];
        decide_service(&d);
    }
    plan_retire(&d);
}

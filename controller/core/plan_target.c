/* plan_target.c - from the wants of the scaling row to targets that may be acted on.
 *
 *     wants -> bounds of the service -> shaper -> hands -> proof before anything goes down
 *           -> what goes up waits for what is held up */
#include "base/core/bits.h"
#include "controller/core/plan_desk.h"

#include <string.h>

/* The service's own bounds, over all pools: cheapest in, dearest out. */
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

static uint32_t hand_target(const struct plan_desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    if (p->manual >= 0) return min_u32((uint32_t)p->manual, p->max);
    return d->decision->have[pool];
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
        if (!plan_in_hand(d, p)) continue;
        r->target[p] = hand_target(d, p);
        r->reason = d->service->paused ? "paused by hand" : "counts set by hand";
        r->blocked = NULL;
    }
}

/* Why nothing may go down now, or NULL. */
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
        if (plan_in_hand(d, p) || r->target[p] >= r->have[p]) continue;
        r->target[p] = r->have[p];
        r->blocked = missing;
    }
}

/* One pool may be held up, by the window or for want of proof, while another grows: what goes up
 * waits for what goes down, the dearest first. */
static void cap_growth(struct plan_desk *d)
{
    struct plan_decision *r = d->decision;
    uint32_t total = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += r->target[p];
    for (; total > d->service->max; total--) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            if (plan_in_hand(d, p) || r->target[p] <= r->have[p]) continue;
            if (best == PLAN_NONE || d->scale.pool[p].price_h > d->scale.pool[best].price_h)
                best = p;
        }
        if (best == PLAN_NONE) return;
        r->target[best]--;
        r->blocked = "the service's maximum";
    }
}

void plan_target(struct plan_desk *d)
{
    shape_targets(d);
    demand_proof(d);
    cap_growth(d);
}

/* control_service.c - a simulated fleet as the plan's service: its pools and their offers. */
#include "simulator/control_service.h"

#include "base/core/bits.h"

#include <stdio.h>

int control_service_check(const struct sim_control_setup *s, struct err *err)
{
    if (s->pool_count == 0 || s->pool_count > SCALE_POOLS_MAX)
        return err_set(err, -EINVAL, "a fleet has 1 to %d pools", SCALE_POOLS_MAX);
    if (!(s->ttft_slo_s > 0) || !(s->tpot_slo_s > 0))
        return err_set(err, -EINVAL, "scaling needs a promise: TTFT and TPOT");
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct sim_control_pool *pool = &s->pool[p];
        if (pool->min > pool->max || pool->max > SCALE_COUNT_MAX || pool->zone >= SIM_ZONES_MAX)
            return err_set(err, -EINVAL, "pool %u: min, max or zone out of bounds", p);
        if (!(pool->lead_s >= 0) || pool->start > pool->max)
            return err_set(err, -EINVAL, "pool %u: lead time or start out of bounds", p);
    }
    return 0;
}

/* Engines of both pools would be told apart by nothing but their offer. */
static bool are_alike(const struct sim_control_pool *a, const struct sim_control_pool *b)
{
    const struct perf_coef *f = &a->prior, *g = &b->prior;
    bool alike = !(f->a < g->a) && !(f->a > g->a) && !(f->b < g->b) && !(f->b > g->b);
    alike &= !(f->c < g->c) && !(f->c > g->c) && !(f->d < g->d) && !(f->d > g->d);
    return alike && a->seqs_max == b->seqs_max && a->kv_tokens_max == b->kv_tokens_max &&
           a->context_tokens == b->context_tokens;
}

/* Makes pool `p` an offer of the plan's pool of its kind, which is added when it is the first. */
static void add_offer(struct control_service *c, uint32_t p)
{
    const struct sim_control_pool *from = &c->setup->pool[p];
    struct plan_service *v = &c->plan;
    uint32_t first = 0;
    while (first < p && !are_alike(&c->setup->pool[first], from))
        first++;
    uint32_t g = first < p ? c->group[first] : v->pool_count++;
    struct plan_pool *to = &v->pool[g];
    c->group[p] = g;
    if (first == p) {
        *to = (struct plan_pool){ .manual = -1 };
        snprintf(to->name, sizeof to->name, "pool%u", p);
        snprintf(to->provider, sizeof to->provider, "sim");
    }
    to->offer[to->offer_count++] = p;
    to->min += from->min;
    to->max = min_u32(to->max + from->max, SCALE_COUNT_MAX);
}

void control_service_init(struct control_service *c, const struct sim_control_setup *s)
{
    *c = (struct control_service){ .setup = s };
    const struct scale_policy *policy = s->policy ? s->policy : scale_find(STR(SCALE_DEFAULT));
    struct plan_service *v = &c->plan;
    *v = (struct plan_service){ .name = "service",
                                .min = s->min,
                                .max = s->max,
                                .ttft_slo_s = s->ttft_slo_s,
                                .tpot_slo_s = s->tpot_slo_s,
                                .budget_h = s->budget_h,
                                .policy = policy,
                                .scale = s->scale,
                                .place = s->place ? s->place : place_find(STR(PLACE_DEFAULT)) };
    v->shaper = s->shaper ? s->shaper : scale_shape_find(str_from(policy->shaper));
    must(v->shaper);
    v->shape = !s->shaper && policy->shape ? *policy->shape : v->shaper->published;
    if (s->has_shape) v->shape = s->shape;
    uint32_t sum = 0;
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct sim_control_pool *from = &s->pool[p];
        add_offer(c, p);
        struct offer *o = &c->offer[p];
        *o = (struct offer){ .price_h = from->price_h,
                             .price_known = true,
                             .spot = from->spot,
                             .lead_s = from->lead_s,
                             .seqs_max = from->seqs_max,
                             .kv_tokens_max = from->kv_tokens_max,
                             .step_tokens = from->step_tokens,
                             .has_prior = perf_coef_valid(&from->prior),
                             .prior = from->prior };
        snprintf(o->name, sizeof o->name, "offer%u", p);
        sum += from->max;
        c->floor += from->min;
    }
    if (v->max == 0) v->max = sum;
    c->floor = max_u32(c->floor, v->min);
}

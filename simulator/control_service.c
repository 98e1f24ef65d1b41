/* control_service.c - a simulated fleet as the plan's services: their pools and offers. */
#include "simulator/control_service.h"

#include "base/core/bits.h"

#include <stdio.h>

static uint32_t services_of(const struct sim_control_setup *s)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < s->pool_count; p++)
        count = max_u32(count, s->pool[p].service + 1);
    return count;
}

static int check_service(const struct sim_control_setup *s, uint32_t service, struct err *err)
{
    uint32_t pools = 0;
    for (uint32_t p = 0; p < s->pool_count; p++)
        pools += s->pool[p].service == service;
    if (pools == 0) {
        return err_set(err, -EINVAL,
                       "services that scale are numbered from 0 without a gap: none is %u",
                       service);
    }
    if (!(s->service[service].ttft_slo_s > 0) || !(s->service[service].tpot_slo_s > 0))
        return err_set(err, -EINVAL, "scaling needs a promise: TTFT and TPOT");
    return 0;
}

int control_services_check(const struct sim_control_setup *s, struct err *err)
{
    if (s->pool_count == 0 || s->pool_count > SCALE_POOLS_MAX)
        return err_set(err, -EINVAL, "a fleet has 1 to %d pools", SCALE_POOLS_MAX);
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct sim_control_pool *pool = &s->pool[p];
        if (pool->min > pool->max || pool->max > SCALE_COUNT_MAX || pool->zone >= SIM_ZONES_MAX ||
            pool->service >= SIM_SERVICES_MAX)
            return err_set(err, -EINVAL, "pool %u: min, max, zone or service out of bounds", p);
        if (!(pool->lead_s >= 0) || pool->start > pool->max)
            return err_set(err, -EINVAL, "pool %u: lead time or start out of bounds", p);
    }
    uint32_t count = services_of(s);
    if (s->future && count > 1)
        return err_set(err, -EINVAL, "the clairvoyant bound is of one service");
    int rc = 0;
    for (uint32_t k = 0; k < count && rc == 0; k++)
        rc = check_service(s, k, err);
    return rc;
}

/* Engines of both pools would be told apart by nothing but their offer. */
static bool are_alike(const struct sim_control_pool *a, const struct sim_control_pool *b)
{
    const struct perf_coef *f = &a->prior, *g = &b->prior;
    if (a->service != b->service) return false;
    bool alike = !(f->step_s < g->step_s) && !(f->step_s > g->step_s) &&
                 !(f->prefill_token_s < g->prefill_token_s) &&
                 !(f->prefill_token_s > g->prefill_token_s);
    alike &= !(f->decode_seq_s < g->decode_seq_s) && !(f->decode_seq_s > g->decode_seq_s) &&
             !(f->kv_read_s < g->kv_read_s) && !(f->kv_read_s > g->kv_read_s);
    return alike && a->seqs_max == b->seqs_max && a->kv_tokens_max == b->kv_tokens_max &&
           a->context_tokens == b->context_tokens;
}

/* Makes pool `p` an offer of the plan's pool of its kind, which is added when it is the first. */
static void add_offer(struct control_services *c, uint32_t p)
{
    const struct sim_control_pool *from = &c->setup->pool[p];
    struct plan_service *v = &c->plan[from->service];
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
}

static void add_service(struct control_services *c, uint32_t k)
{
    const struct sim_control_service *s = &c->setup->service[k];
    const struct scale_policy *policy = s->policy ? s->policy : scale_find(STR(SCALE_DEFAULT));
    struct plan_service *v = &c->plan[k];
    *v = (struct plan_service){ .min = s->min,
                                .max = s->max,
                                .ttft_slo_s = s->ttft_slo_s,
                                .tpot_slo_s = s->tpot_slo_s,
                                .budget_h = s->budget_h,
                                .policy = policy,
                                .scale = s->scale,
                                .place = s->place ? s->place : place_find(STR(PLACE_DEFAULT)) };
    snprintf(v->name, sizeof v->name, "service%u", k);
    v->shaper = s->shaper ? s->shaper : scale_shape_find(str_from(policy->shaper));
    must(v->shaper);
    v->shape = !s->shaper && policy->shape ? *policy->shape : v->shaper->published;
    if (s->has_shape) v->shape = s->shape;
    uint32_t floor = 0, sum = 0;
    for (uint32_t p = 0; p < c->setup->pool_count; p++) {
        const struct sim_control_pool *from = &c->setup->pool[p];
        if (from->service != k) continue;
        add_offer(c, p);
        sum += from->max;
        floor += from->min;
    }
    if (v->max == 0) v->max = sum;
    c->floor += max_u32(floor, v->min);
}

void control_services_init(struct control_services *c, const struct sim_control_setup *s)
{
    *c = (struct control_services){ .setup = s, .count = services_of(s) };
    for (uint32_t k = 0; k < c->count; k++)
        add_service(c, k);
}

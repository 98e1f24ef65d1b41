/* plan_see.c - builds what the scaling and placement policies see of one service: its pools, offers and instances.
 */
#include "controller/core/plan_desk.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- a pool's offers as its placement policy sees them ---- */

_Static_assert(PLAN_POOL_OFFERS_MAX <= PLACE_OFFERS_MAX, "the placement view");

/* Returns true if the offer is not in back-off and, where there is a budget, its price is known. */
bool plan_offer_is_usable(const struct plan_view *view, const struct plan_service *service,
                          uint32_t offer, int64_t now_us)
{
    const struct offer *o = &view->offer[offer];
    if (!offer_may_be_asked(&view->health[offer], now_us)) return false;
    return o->price_known || service->budget_h <= 0; /* an unknown price fits no budget */
}

static uint32_t at_offer(const struct plan_view *view, uint32_t offer)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < view->instance_count; k++)
        n += view->instance[k].offer == offer && view->instance[k].phase != PHASE_STOPPED;
    return n;
}

double plan_price_of_next(const struct plan_view *view, uint32_t offer, uint32_t more)
{
    const struct offer *o = &view->offer[offer];
    if (o->reserved > 0 && at_offer(view, offer) + more < o->reserved) return 0;
    return o->price_h;
}

/* Returns how long the next launch of a pool at the offer takes: a stopped instance is started before one is made. */
static double lead_of_next(const struct plan_view *view, uint32_t service, uint32_t pool,
                           uint32_t offer)
{
    bool again = false;
    for (uint32_t k = 0; k < view->instance_count && !again; k++) {
        const struct plan_instance *in = &view->instance[k];
        again = in->phase == PHASE_STOPPED && in->service == service && in->pool == pool &&
                in->offer == offer;
    }
    return offer_lead_s(&view->offer[offer], again);
}

/* Returns the price at which `target` instances of the pool would run at the offer, each: those that are reserved and
 * that no other pool uses cost nothing. */
static double price_for(const struct plan_view *view, uint32_t offer, uint32_t mine,
                        uint32_t target)
{
    const struct offer *o = &view->offer[offer];
    if (o->reserved == 0 || target == 0) return plan_price_of_next(view, offer, 0);
    uint32_t others = at_offer(view, offer) - mine;
    uint32_t free = o->reserved > others ? o->reserved - others : 0;
    return target > free ? o->price_h * (target - free) / target : 0;
}

/* Returns the seconds of an instance's time that are lost when it is given up: until its requests have ended, and for
 * prompts whose cache is gone. */
static double leave_s(const struct plan_view *view, uint32_t service,
                      const struct plan_instance *in)
{
    if (!in->has_perf || in->phase != PHASE_READY) return 0;
    const struct perf_shape step = { .decoding_seqs = in->in_flight };
    double outputs = in->in_flight > 0 ? view->demand[service].sum.output_tokens : 0;
    return outputs * perf_step_s(&in->perf, &step) +
           (double)in->cached_tokens * in->perf.prefill_token_s;
}

/* Fills the placement policy's view: the pool's offers, and our instances at each. */
void plan_place_view(const struct plan_view *view, uint32_t service, uint32_t pool, uint32_t target,
                     int64_t now_us, struct place_view *ret)
{
    const struct plan_service *s = &view->service[service];
    const struct plan_pool *p = &s->pool[pool];
    *ret = (struct place_view){ .offer_count = p->offer_count,
                                .target = target,
                                .availability = s->scale.attainment > 0 ? s->scale.attainment
                                                                        : PLAN_AVAILABILITY };
    for (uint32_t i = 0; i < p->offer_count; i++) {
        const struct offer *o = &view->offer[p->offer[i]];
        const struct offer_health *h = &view->health[p->offer[i]];
        ret->offer[i] =
            (struct place_offer){ .usable = plan_offer_is_usable(view, s, p->offer[i], now_us),
                                  .spot = o->spot,
                                  .start_usd = o->start_usd,
                                  .lead_s = lead_of_next(view, service, pool, p->offer[i]),
                                  .out = view->sold_out ? view->sold_out[p->offer[i]] : 0,
                                  .lost = h->lost,
                                  .refused = h->refused };
    }
    for (uint32_t k = 0; k < view->instance_count; k++) {
        const struct plan_instance *in = &view->instance[k];
        if (in->service != service || in->pool != pool) continue;
        for (uint32_t i = 0; i < p->offer_count; i++) {
            if (p->offer[i] != in->offer) continue;
            ret->offer[i].ready += plan_is_ready(in);
            ret->offer[i].leaving += in->phase == PHASE_READY && !plan_is_ready(in);
            ret->offer[i].starting += in->phase == PHASE_STARTING;
            ret->offer[i].leave_s += leave_s(view, service, in);
        }
    }
    for (uint32_t i = 0; i < p->offer_count; i++)
        if (ret->offer[i].ready > 0) ret->offer[i].leave_s /= ret->offer[i].ready;
    for (uint32_t i = 0; i < p->offer_count; i++)
        ret->offer[i].price_h = price_for(view, p->offer[i], place_have(&ret->offer[i]), target);
}

/* Returns the offer that one more instance would come from, or PLAN_NONE. Asks the placement policy on
 * a copy of its state, because only the price is needed here. */
static uint32_t offer_of_next(const struct plan_view *view, uint32_t service, uint32_t pool,
                              const void *state, int64_t now_us, const struct rng *rng)
{
    _Alignas(8) char copy[PLACE_STATE_BYTES_MAX];
    memcpy(copy, state, sizeof copy);
    struct rng chance = *rng;
    struct place_view v;
    plan_place_view(view, service, pool, 0, now_us, &v);
    for (uint32_t i = 0; i < v.offer_count; i++)
        v.target += place_have(&v.offer[i]);
    v.target++;
    struct place_verdict verdict;
    view->service[service].place->choose(copy, &v, now_us, &chance, &verdict);
    return verdict.next == PLACE_NONE ? PLAN_NONE
                                      : view->service[service].pool[pool].offer[verdict.next];
}

/* ---- the scaling policy's view ---- */

/* Fills the pool's speed: the mean of the speeds that its staying instances have measured, else the
 * offer's prior. */
static void fill_perf(const struct plan_desk *d, uint32_t pool, const struct offer *o,
                      struct scale_pool *ret)
{
    struct perf_coef sum = { 0 };
    uint32_t known = 0;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool)) continue;
        if (in->seqs_max) ret->seqs_max = in->seqs_max;
        if (in->load.kv_tokens_max) ret->kv_tokens_max = in->load.kv_tokens_max;
        if (in->context_tokens) ret->context_tokens = in->context_tokens;
        if (in->step_tokens) ret->step_tokens = in->step_tokens;
        if (!in->has_perf || in->phase == PHASE_DRAINING) continue;
        sum.step_s += in->perf.step_s;
        sum.prefill_token_s += in->perf.prefill_token_s;
        sum.decode_seq_s += in->perf.decode_seq_s;
        sum.kv_read_s += in->perf.kv_read_s;
        sum.attend_s += in->perf.attend_s;
        known++;
    }
    if (known) {
        ret->perf = (struct perf_coef){ .step_s = sum.step_s / known,
                                        .prefill_token_s = sum.prefill_token_s / known,
                                        .decode_seq_s = sum.decode_seq_s / known,
                                        .kv_read_s = sum.kv_read_s / known,
                                        .attend_s = sum.attend_s / known,
                                        .samples = known };
        ret->perf_known = true;
    } else if (o && o->has_prior) {
        ret->perf = o->prior;
        ret->perf_known = true;
    }
    if (ret->seqs_max == 0) ret->seqs_max = o && o->seqs_max ? o->seqs_max : 1;
    if (ret->kv_tokens_max == 0 && o) ret->kv_tokens_max = o->kv_tokens_max;
    if (ret->step_tokens == 0 && o) ret->step_tokens = o->step_tokens;
}

/* Returns the seconds until a starting instance serves, by the lead of the offer it came from. */
static double left_s(const struct plan_desk *d, const struct plan_instance *in,
                     const struct scale_pool *pool)
{
    double age_s = (double)(d->now_us - in->since_us) / 1e6;
    return fmax(0, (in->lead_s > 0 ? in->lead_s : pool->lead_s) - age_s);
}

/* Adds an instance to the scaling policy's view. */
static void fill_seen(struct plan_desk *d, const struct plan_instance *in, uint32_t pool,
                      double left)
{
    struct scale_instance *s = &d->seen[d->scale.instance_count++];
    *s = in->load;
    s->pool = pool;
    s->ready = in->phase == PHASE_READY;
    s->fresh = in->fresh;
    s->left_s = s->ready ? 0 : left;
    s->price_h = in->price_h;
    s->read_s = in->has_perf ? perf_read_s(&in->perf) : 0;
}

static void fill_pool(struct plan_desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    struct scale_pool *s = &d->scale.pool[pool];
    uint32_t usable =
        offer_of_next(d->view, d->index, pool, d->memory->place[pool], d->now_us, d->rng);
    uint32_t shown = usable != PLAN_NONE ? usable : p->offer_count ? p->offer[0] : PLAN_NONE;
    d->next[pool] = PLACE_NONE;
    for (uint32_t i = 0; i < p->offer_count && usable != PLAN_NONE; i++)
        if (p->offer[i] == usable) d->next[pool] = i;
    const struct offer *o = shown == PLAN_NONE ? NULL : &d->view->offer[shown];
    *s = (struct scale_pool){ .min = p->min, .max = p->max, .available = usable != PLAN_NONE };
    if (p->drained) *s = (struct scale_pool){ .available = false };
    if (o) {
        s->price_h = plan_price_of_next(d->view, shown, 0);
        s->lead_s = lead_of_next(d->view, d->index, pool, shown);
    }
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool)) continue;
        d->decision->cost_h += in->price_h;
        d->decision->failing += in->phase == PHASE_READY && in->failing;
        if (in->doomed) continue; /* it serves for a while, and another has to be bought now */
        double left = left_s(d, in, s);
        if (in->phase == PHASE_STARTING || plan_is_ready(in)) fill_seen(d, in, pool, left);
        if (in->phase == PHASE_STARTING) {
            s->left_s += left;
            s->starting++;
        }
        if (plan_is_ready(in)) {
            s->ready++;
            d->decision->expected++;
            if (in->fresh) d->decision->fresh++;
        }
    }
    if (s->starting) s->left_s /= s->starting;
    d->decision->ready[pool] = s->ready;
    d->decision->have[pool] = scale_have(s);
    fill_perf(d, pool, o, s);
}

/* Returns the part of the budget that ready and starting instances may use: drains still cost. */
static double budget_left(const struct plan_desk *d)
{
    if (d->service->budget_h <= 0) return 0;
    double leaving = 0;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        bool goes = in->phase >= PHASE_DRAINING || (in->phase == PHASE_READY && !plan_is_ready(in));
        if (in->service == d->index && goes) leaving += in->price_h;
    }
    return fmax(d->service->budget_h - leaving, DBL_MIN); /* 0 would mean: no ceiling */
}

void plan_see(struct plan_desk *d)
{
    const struct plan_demand *demand = &d->view->demand[d->index];
    d->scale = (struct scale_view){ .pool_count = d->service->pool_count,
                                    .instance = d->seen,
                                    .demand = demand->sum,
                                    .ttft_slo_s = d->service->ttft_slo_s,
                                    .tpot_slo_s = d->service->tpot_slo_s };
    d->decision->demand = demand->sum;
    d->decision->routers_fresh = demand->sum.present && demand->all_fresh;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        fill_pool(d, p);
    d->scale.budget_h = budget_left(d);
}

/* plan_view.c - a service's pools, instances and demand as scaling rows see them. */
#include "controller/core/plan_desk.h"
#include "controller/core/plan_place.h"

#include <float.h>
#include <math.h>

/* What its instances that stay have learned, averaged; else what the offer claims. */
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
        sum.a += in->perf.a;
        sum.b += in->perf.b;
        sum.c += in->perf.c;
        sum.d += in->perf.d;
        sum.e += in->perf.e;
        known++;
    }
    if (known) {
        ret->perf = (struct perf_coef){ .a = sum.a / known,
                                        .b = sum.b / known,
                                        .c = sum.c / known,
                                        .d = sum.d / known,
                                        .e = sum.e / known,
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

/* Seconds until a starting instance serves, by the lead of the offer it came from. */
static double left_s(const struct plan_desk *d, const struct plan_instance *in,
                     const struct scale_pool *pool)
{
    double age_s = (double)(d->now_us - in->since_us) / 1e6;
    return fmax(0, (in->lead_s > 0 ? in->lead_s : pool->lead_s) - age_s);
}

/* The instance as signals see it. */
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
        plan_place_offer(d->view, d->index, pool, d->memory->place[pool], d->now_us, d->rng);
    uint32_t shown = usable != PLAN_NONE ? usable : p->offer_count ? p->offer[0] : PLAN_NONE;
    const struct offer *o = shown == PLAN_NONE ? NULL : &d->view->offer[shown];
    *s = (struct scale_pool){ .min = p->min, .max = p->max, .available = usable != PLAN_NONE };
    if (o) {
        s->price_h = o->price_h;
        s->lead_s = o->lead_s;
    }
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool)) continue;
        d->decision->cost_h += in->price_h;
        double left = left_s(d, in, s);
        if (in->phase == PHASE_STARTING || in->phase == PHASE_READY) fill_seen(d, in, pool, left);
        if (in->phase == PHASE_STARTING) {
            s->left_s += left;
            s->starting++;
        }
        if (in->phase == PHASE_READY) {
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

/* The part of the budget that ready and starting instances may use: drains still cost. */
static double budget_left(const struct plan_desk *d)
{
    if (d->service->budget_h <= 0) return 0;
    double leaving = 0;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (in->service == d->index && in->phase >= PHASE_DRAINING) leaving += in->price_h;
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

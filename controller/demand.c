/* demand.c - what the routers want of each service, summed, and what its policy cannot see. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <math.h>

#define TTFT_COUNT_MIN 10 /* answers in the window before their P90 means anything */

/* Joined to what other routers say; it has aged since it was sent. */
static void add_lengths(struct scale_lengths *sum, const struct scale_lengths *l, double age_s)
{
    struct scale_lengths aged = *l;
    aged.age_s += age_s;
    if (aged.count > 0) scale_lengths_join(sum, &aged, sum);
}

static void add_demand(struct plan_demand *sum, const struct demand_seen *d, double *weight,
                       double age_s, int64_t now_us)
{
    const struct service_demand *s = &d->last;
    double n = s->arrival_per_s > 0 ? s->arrival_per_s : 1e-9;
    double prompt = s->prompt_tokens_mean * (1 - d->cached_share);
    double idle = (double)(now_us - d->arrived_us) / 1e6;
    sum->sum.arrivals_s += s->arrival_per_s;
    sum->sum.prompt_tokens += n * prompt;
    sum->sum.output_tokens += n * s->predicted_tokens_mean;
    sum->sum.in_flight += s->in_flight;
    sum->sum.held += s->held;
    sum->sum.idle_s = sum->sum.present ? fmin(sum->sum.idle_s, idle) : idle;
    sum->sum.held_prompt_tokens += s->held_prompt_tokens;
    sum->sum.age_s = fmax(sum->sum.age_s, age_s);
    add_lengths(&sum->sum.expected, &d->expected, age_s);
    add_lengths(&sum->sum.queued, &d->queued, age_s);
    if (s->tpot_s.count >= TTFT_COUNT_MIN) {
        sum->sum.tpot_known = true;
        sum->sum.tpot_s = fmax(sum->sum.tpot_s, s->tpot_s.p90);
    }
    if (s->ttft_s.count >= TTFT_COUNT_MIN) { /* the worst router: quantiles cannot be added */
        sum->sum.ttft_known = true;
        sum->sum.ttft_s = fmax(sum->sum.ttft_s, s->ttft_s.p90);
    }
    sum->sum.present = true;
    *weight += n;
}

/* Requests that engines have and do not compute yet, as their agents say. */
static uint32_t waiting_in_engines(const struct control *c, uint32_t service, int64_t now_us)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct detail *d = &c->detail[i];
        if (d->service != service || !d->has_engine) continue;
        if (sighting_is_fresh(&c->seen[i], &c->setup.merge, now_us)) waiting += d->engine.waiting;
    }
    return waiting;
}

static struct plan_demand sum_service(const struct control *c, uint32_t service, int64_t now_us)
{
    struct plan_demand sum = { .all_fresh = true };
    double weight = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->router[r];
        if (!rt->id[0]) continue;
        double age_s = (double)(now_us - rt->heard_us) / 1e6;
        if (!control_router_is_fresh(rt, now_us))
            sum.all_fresh = false;
        else if (rt->demand[service].present)
            add_demand(&sum, &rt->demand[service], &weight, age_s, now_us);
    }
    if (weight > 0) {
        sum.sum.prompt_tokens /= weight;
        sum.sum.output_tokens /= weight;
    }
    sum.sum.arrivals_total = c->counted[service].arrivals;
    sum.sum.slo_known = sum.sum.present;
    sum.sum.slo_met_total = c->counted[service].met;
    sum.sum.slo_missed_total = c->counted[service].missed;
    sum.sum.waiting = min_u32(waiting_in_engines(c, service, now_us), sum.sum.in_flight);
    return sum;
}

static void forget_long_silent(struct control *c, int64_t now_us)
{
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        struct router *rt = &c->router[r];
        int64_t since_us = max_i64(rt->heard_us, c->listening_us); /* our gap is not its silence */
        if (!rt->id[0] || now_us - since_us < ROUTER_FORGET_US) continue;
        log_event(LOG_WARN, "router_forgotten", "router=%s", rt->id);
        rt->id[0] = 0;
    }
}

/* What routers have under way at each instance. */
static void count_routed(struct control *c, int64_t now_us)
{
    for (uint32_t at = 0; at < c->count; at++)
        c->detail[at].routed = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->router[r];
        if (!rt->id[0] || !control_router_is_fresh(rt, now_us)) continue;
        for (uint32_t e = 0; e < rt->endpoint_count; e++) {
            uint32_t at = control_find(c, rt->endpoint[e].instance);
            if (at != UINT32_MAX) c->detail[at].routed += rt->endpoint[e].in_flight;
        }
    }
}

static void measure_routers(struct control *c, int64_t now_us)
{
    struct str fresh = STR("fresh"), silent = STR("silent");
    uint32_t all = 0, heard = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->router[r];
        if (!rt->id[0]) continue;
        all++;
        heard += control_router_is_fresh(rt, now_us);
    }
    metric_set(metric_series(c->metrics, CONTROL_M_ROUTERS, &fresh), heard);
    metric_set(metric_series(c->metrics, CONTROL_M_ROUTERS, &silent), all - heard);
}

void control_sum_demand(struct control *c, int64_t now_us)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++)
        c->demand[s] = sum_service(c, s, now_us);
    forget_long_silent(c, now_us);
    count_routed(c, now_us);
    measure_routers(c, now_us);
}

const char *control_missing(const struct control *c, uint32_t service, int64_t now_us)
{
    uint32_t has = SCALE_NEEDS_TPOT; /* routers measure it themselves */
    bool any = false;
    for (uint32_t at = 0; at < c->count; at++) {
        const struct sighting *s = &c->seen[at];
        if (c->detail[at].service != service || !s->engine_ready) continue;
        if (!sighting_is_fresh(s, &c->setup.merge, now_us)) continue;
        any = true;
        if (s->kv_tokens_max) has |= SCALE_NEEDS_KV;
        if (s->prefill_known) has |= SCALE_NEEDS_PREFILL;
        uint32_t offer = control_find_offer(c, c->intent[at].provider, c->intent[at].offer);
        bool prior = offer != PLAN_NONE && c->offer[offer].has_prior;
        if (s->has_perf || prior) has |= SCALE_NEEDS_SPEED;
    }
    return any ? scale_missing(c->service[service].policy->needs, has) : NULL;
}

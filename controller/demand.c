/* demand.c - what the routers want of each service, summed, and what its policy cannot see. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

/* Requests that engines have and do not compute yet, as their agents say. */
static uint32_t waiting_in_engines(const struct control *c, uint32_t service, int64_t now_us)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < c->money.count; i++) {
        const struct detail *d = &c->observed.detail[i];
        if (d->service != service || !d->has_engine) continue;
        if (sighting_is_fresh(&c->observed.seen[i], &c->setup.merge, now_us))
            waiting += d->engine.waiting;
    }
    return waiting;
}

static struct plan_demand merge_service(const struct control *c, uint32_t service, int64_t now_us)
{
    struct demand_source source[CONTROL_ROUTERS_MAX];
    uint32_t count = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        if (!rt->id[0]) continue;
        source[count++] =
            (struct demand_source){ .seen = &rt->demand[service], .heard_us = rt->heard_us };
    }
    struct plan_demand ret;
    ret.all_fresh = demand_merge(source, count, &c->observed.counted[service],
                                 waiting_in_engines(c, service, now_us), now_us, &ret.sum);
    return ret;
}

static void forget_long_silent(struct control *c, int64_t now_us)
{
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        struct router *rt = &c->observed.router[r];
        int64_t since_us =
            max_i64(rt->heard_us, c->observed.listening_us); /* our gap is not its silence */
        if (!rt->id[0] || now_us - since_us < ROUTER_FORGET_US) continue;
        log_event(LOG_WARN, "router_forgotten", "router=%s", rt->id);
        rt->id[0] = 0;
    }
}

/* What routers have under way at each instance. */
static void count_routed(struct control *c, int64_t now_us)
{
    for (uint32_t at = 0; at < c->money.count; at++)
        c->observed.detail[at].routed = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        if (!rt->id[0] || !control_router_is_fresh(rt, now_us)) continue;
        for (uint32_t e = 0; e < rt->endpoint_count; e++) {
            uint32_t at = control_find(c, rt->endpoint[e].instance);
            if (at != UINT32_MAX) c->observed.detail[at].routed += rt->endpoint[e].in_flight;
        }
    }
}

static void measure_routers(struct control *c, int64_t now_us)
{
    struct str fresh = STR("fresh"), silent = STR("silent");
    uint32_t all = 0, heard = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
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
        c->observed.demand[s] = merge_service(c, s, now_us);
    forget_long_silent(c, now_us);
    count_routed(c, now_us);
    measure_routers(c, now_us);
}

const char *control_missing(const struct control *c, uint32_t service, int64_t now_us)
{
    uint32_t has = SCALE_NEEDS_TPOT; /* routers measure it themselves */
    bool any = false;
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct sighting *s = &c->observed.seen[at];
        if (c->observed.detail[at].service != service || !s->engine_ready) continue;
        if (!sighting_is_fresh(s, &c->setup.merge, now_us)) continue;
        any = true;
        if (s->kv_tokens_max) has |= SCALE_NEEDS_KV;
        if (s->prefill_known) has |= SCALE_NEEDS_PREFILL;
        uint32_t offer =
            control_find_offer(c, c->money.intent[at].provider, c->money.intent[at].offer);
        bool prior = offer != PLAN_NONE && c->money.offer[offer].has_prior;
        if (s->has_perf || prior) has |= SCALE_NEEDS_SPEED;
    }
    return any ? scale_missing(c->desired.service[service].policy->needs, has) : NULL;
}

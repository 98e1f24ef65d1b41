/* observe.c - what providers list and what routers want, brought into one view. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TTFT_COUNT_MIN 10 /* answers in the window before their P90 means anything */

uint32_t control_find(const struct control *c, const char *id)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (strcmp(c->intent[i].id, id) == 0) return i;
    return UINT32_MAX;
}

uint32_t control_find_offer(const struct control *c, const char *provider, const char *name)
{
    for (uint32_t i = 0; i < c->offer_count; i++)
        if (strcmp(c->offer[i].name, name) == 0 && strcmp(c->offer[i].provider, provider) == 0)
            return i;
    return PLAN_NONE;
}

uint32_t control_find_cloud(const struct control *c, const char *provider)
{
    for (uint32_t i = 0; i < c->setup.cloud_count; i++)
        if (strcmp(c->cloud[i].driver->name, provider) == 0) return i;
    return PLAN_NONE;
}

/* ---- providers ---- */

static void take_listing(struct control *c, uint32_t cloud, int64_t now_us)
{
    struct cloud *cl = &c->cloud[cloud];
    struct listing *l = &c->listing[cloud];
    struct err err = { 0 };
    uint32_t count = 0;
    int rc = cl->driver->list(cl->ctx, now_us, c->listed[cloud], CLOUD_LIST_MAX, &count, &err);
    l->ok = rc == 0;
    if (rc < 0) {
        control_count(c, CONTROL_M_LIST_FAILURES, cl->driver->name);
        log_event(LOG_WARN, "list_failed", "provider=%s error=%s", cl->driver->name,
                  err_text(&err, rc));
        l->count = 0;
        return;
    }
    *l = (struct listing){ .provider = cl->driver->name,
                           .item = c->listed[cloud],
                           .count = count,
                           .ok = true,
                           .taken_us = now_us,
                           .lag_us = cl->lag_us };
    /* A lagging listing shows the world since our start only once the lag has passed. */
    if (now_us >= c->started_us + cl->lag_us) c->observed[cloud] = true;
}

static bool pool_is_known(const void *ctx, const char *service, const char *pool,
                          const char *provider)
{
    const struct control *c = ctx;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *sv = &c->service[s];
        if (strcmp(sv->name, service) != 0) continue;
        for (uint32_t p = 0; p < sv->pool_count; p++)
            if (strcmp(sv->pool[p].name, pool) == 0)
                return strcmp(sv->pool[p].provider, provider) == 0;
    }
    return false;
}

static int settle_strays(struct control *c, uint32_t cloud, int64_t now_us)
{
    const struct listing *l = &c->listing[cloud];
    if (!l->ok) return 0;
    merge_claims(l, c->intent, c->count, pool_is_known, c, &c->setup.merge, now_us, c->claimed);
    for (uint32_t i = 0; i < l->count; i++) {
        int rc = 0;
        switch (c->claimed[i].claim) {
        case CLAIM_ADOPT:
            rc = control_adopt(c, cloud, &l->item[i], now_us);
            break;
        case CLAIM_DUPLICATE:
            control_count(c, CONTROL_M_DUPLICATES, NULL);
            rc = control_remove_stray(c, cloud, &l->item[i], now_us);
            break;
        case CLAIM_END:
            rc = control_remove_stray(c, cloud, &l->item[i], now_us);
            break;
        case CLAIM_OWN:
        case CLAIM_WAIT:
            break;
        }
        if (rc == -ECANCELED) return rc;
    }
    return 0;
}

static const struct listed *find_item(const struct listing *l, const struct intent *i)
{
    const struct listed *found = NULL;
    for (uint32_t k = 0; l && l->ok && k < l->count; k++) {
        if (strcmp(l->item[k].intent, i->id) != 0) continue;
        if (!found || strcmp(l->item[k].handle, i->handle) == 0) found = &l->item[k];
    }
    return found;
}

static bool offer_is_askable(const struct control *c, const struct intent *i, int64_t now_us)
{
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    return offer != PLAN_NONE && offer_may_be_asked(&c->health[offer], now_us);
}

/* Launch to ready, once for each instance whose whole way we have seen. */
static void learn_lead(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->intent[at];
    struct detail *d = &c->detail[at];
    if (d->lead_learned || i->called_us < c->started_us) return;
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (offer == PLAN_NONE) return;
    d->lead_learned = true;
    offer_learn_lead(&c->offer[offer], (double)(now_us - i->called_us) / 1e6);
}

static bool router_is_fresh(const struct router *r, int64_t now_us)
{
    return now_us - r->heard_us <= ROUTER_FRESH_US;
}

/* Whether somebody has requests at `at`, as far as anybody knows: without fresh word of every
 * router nobody can say that nobody has. A controller cut off from agents and routers alike must
 * not end what goes on serving. */
static bool may_be_routed(const struct control *c, uint32_t at, int64_t now_us)
{
    bool heard = false;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        if (!c->router[r].id[0]) continue;
        if (!router_is_fresh(&c->router[r], now_us)) return true;
        heard = true;
    }
    return !heard || c->detail[at].routed > 0;
}

static int drive_intent(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->intent[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    const struct listing *l = cloud == PLAN_NONE ? NULL : &c->listing[cloud];
    struct merge_view v = { .intent = i,
                            .seen = &c->seen[at],
                            .listing = l,
                            .item = find_item(l, i),
                            .may_ask = offer_is_askable(c, i, now_us),
                            .routed = may_be_routed(c, at, now_us),
                            .started_us = c->started_us };
    enum intent_event e = merge_event(&v, &c->setup.merge, now_us);
    const char *handle = v.item ? v.item->handle : NULL;
    int rc = e == INTENT_EVENT_COUNT ? 0 : control_apply(c, at, e, NULL, handle, now_us);
    if (rc == -ECANCELED) return rc;

    struct detail *d = &c->detail[at];
    enum phase phase = merge_phase(&c->intent[at], &c->seen[at], &c->setup.merge, now_us);
    if (phase != d->phase) {
        if (phase == PHASE_READY && c->seen[at].heard_us) learn_lead(c, at, now_us);
        d->phase = phase;
        d->phase_us = now_us;
    }
    return 0;
}

int control_observe(struct control *c, int64_t now_us)
{
    for (uint32_t cloud = 0; cloud < c->setup.cloud_count; cloud++) {
        take_listing(c, cloud, now_us);
        int rc = settle_strays(c, cloud, now_us);
        if (rc < 0) return rc;
    }
    for (uint32_t at = 0; at < c->count; at++) {
        int rc = drive_intent(c, at, now_us);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- routers ---- */

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
    sum->sum.window_s = fmax(sum->sum.window_s, d->window_s);
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

void control_sum_demand(struct control *c, int64_t now_us)
{
    uint32_t fresh = 0, silent = 0;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        struct plan_demand sum = { .all_fresh = true };
        double weight = 0;
        for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
            const struct router *rt = &c->router[r];
            if (!rt->id[0]) continue;
            double age_s = (double)(now_us - rt->heard_us) / 1e6;
            if (!router_is_fresh(rt, now_us))
                sum.all_fresh = false;
            else if (rt->demand[s].present)
                add_demand(&sum, &rt->demand[s], &weight, age_s, now_us);
        }
        if (weight > 0) {
            sum.sum.prompt_tokens /= weight;
            sum.sum.output_tokens /= weight;
        }
        sum.sum.arrivals_total = c->counted[s].arrivals;
        sum.sum.slo_known = sum.sum.present;
        sum.sum.slo_met_total = c->counted[s].met;
        sum.sum.slo_missed_total = c->counted[s].missed;
        sum.sum.waiting = min_u32(waiting_in_engines(c, s, now_us), sum.sum.in_flight);
        c->demand[s] = sum;
    }
    for (uint32_t at = 0; at < c->count; at++)
        c->detail[at].routed = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        struct router *rt = &c->router[r];
        if (!rt->id[0]) continue;
        if (now_us - rt->heard_us >= ROUTER_FORGET_US) {
            log_event(LOG_WARN, "router_forgotten", "router=%s", rt->id);
            rt->id[0] = 0;
            continue;
        }
        bool is_fresh = router_is_fresh(rt, now_us);
        *(is_fresh ? &fresh : &silent) += 1;
        for (uint32_t e = 0; is_fresh && e < rt->endpoint_count; e++) {
            uint32_t at = control_find(c, rt->endpoint[e].instance);
            if (at != UINT32_MAX) c->detail[at].routed += rt->endpoint[e].in_flight;
        }
    }
    struct str label = STR("fresh");
    metric_set(metric_series(c->metrics, CONTROL_M_ROUTERS, &label), fresh);
    label = STR("silent");
    metric_set(metric_series(c->metrics, CONTROL_M_ROUTERS, &label), silent);
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

/* ---- the view for the plan ---- */

/* The id's hexadecimal digits: one of its own for each instance. */
static uint64_t id_number(const char *id)
{
    return strtoull(id + strlen("i-"), NULL, 16);
}

static void fill_instance(const struct control *c, uint32_t at, int64_t now_us,
                          struct plan_instance *ret)
{
    const struct intent *i = &c->intent[at];
    const struct sighting *s = &c->seen[at];
    const struct detail *d = &c->detail[at];
    *ret = (struct plan_instance){
        .service = d->service,
        .pool = d->pool,
        .offer = control_find_offer(c, i->provider, i->offer),
        .phase = merge_phase(i, s, &c->setup.merge, now_us),
        .fresh = sighting_is_fresh(s, &c->setup.merge, now_us),
        .doomed = d->doomed,
        .in_flight = max_u32(s->in_flight, d->routed),
        .pages_cached = s->pages_cached,
        .has_perf = s->has_perf,
        .perf = s->perf,
        .seqs_max = s->seqs_max,
        .price_h = i->price_h,
        .since_us = d->phase_us,
        .context_tokens = s->heard_us && d->has_engine ? d->engine.context_tokens : 0,
        .step_tokens = s->heard_us && d->has_engine ? d->engine.step_tokens : 0,
        .load = { .id = id_number(i->id),
                  .running = s->running,
                  .waiting = s->waiting,
                  .kv_tokens = s->kv_tokens,
                  .kv_tokens_max = s->kv_tokens_max,
                  .prefill_known = s->prefill_known,
                  .prefill_tokens = s->prefill_tokens },
    };
    uint32_t offer = ret->offer;
    if (offer != PLAN_NONE) ret->lead_s = c->offer[offer].lead_s;
    memcpy(ret->id, i->id, sizeof ret->id);
}

void control_build_view(struct control *c, int64_t now_us, struct plan_view *ret)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < c->count && n < CONTROL_INSTANCES_MAX; at++) {
        if (!intent_is_live(&c->intent[at])) continue;
        fill_instance(c, at, now_us, &c->view_instance[n]);
        c->view_slot[n++] = at;
    }
    *ret = (struct plan_view){ .service = c->service,
                               .service_count = c->setup.service_count,
                               .offer = c->offer,
                               .health = c->health,
                               .instance = c->view_instance,
                               .instance_count = n,
                               .demand = c->demand,
                               .room = CONTROL_INSTANCES_MAX - n };
}

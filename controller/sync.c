/* sync.c - what agents and routers say, and what they are told. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <stdio.h>
#include <string.h>

#define SYNC_AGAIN_MS 500
#define CACHED_WEIGHT 0.2 /* of the newest sync in the mean share of cached prompt tokens */

/* Copies what fits; names from peers are bounded by the wire already. */
static void keep_text(char *to, size_t size, struct str from)
{
    size_t n = min_size(from.len, size - 1);
    if (n) memcpy(to, from.data, n);
    to[n] = 0;
}

/* ---- agents ---- */

static void keep_engine(struct detail *d, struct sighting *s, const struct engine_report *e)
{
    keep_text(d->host, sizeof d->host, e->host);
    keep_text(d->model, sizeof d->model, e->model);
    keep_text(d->digest, sizeof d->digest, e->digest);
    keep_text(d->numerics, sizeof d->numerics, e->numerics);
    d->power.hardware = hardware_find(e->hardware);
    d->engine = *e;
    d->engine.host = d->engine.model = d->engine.digest = d->engine.numerics = d->engine.hardware =
        (struct str){ 0 }; /* the copies above are the strings */
    s->engine_ready = e->health == ENGINE_READY;
    s->in_flight = e->running + e->waiting;
    s->running = e->running;
    s->waiting = e->waiting;
    uint64_t idle = (uint64_t)e->pages_free + e->pages_cached;
    s->kv_tokens_max = (uint64_t)e->pages_total * e->page_tokens;
    s->kv_tokens = idle < e->pages_total ? (e->pages_total - idle) * e->page_tokens : 0;
    s->pages_cached = e->pages_cached;
    s->prefill_known = e->has_owed;
    s->prefill_tokens = e->owed.prompt_tokens;
    s->seqs_max = e->running_max;
    s->perf = (struct perf_coef){ e->perf.a,       e->perf.b,         e->perf.c, e->perf.d,
                                  e->perf.samples, e->perf.ratio_p90, e->perf.e };
    s->has_perf = e->has_perf && perf_coef_valid(&s->perf);
}

void control_report(struct control *c, const struct agent_report *r, int64_t now_us,
                    struct agent_reply *ret)
{
    *ret = (struct agent_reply){ .lease_ms = c->setup.lease_ms };
    char id[INTENT_ID_BYTES];
    struct str name = r->intent.len ? r->intent : r->instance;
    uint32_t at = name_copy(id, sizeof id, name) < 0 ? UINT32_MAX : control_find(c, id);
    if (at == UINT32_MAX) {
        /* Known soon, when the provider lists it; the lease keeps it alive until then. */
        control_count(c, CONTROL_M_REPORTS, "unknown");
        return;
    }
    struct detail *d = &c->detail[at];
    struct sighting *s = &c->seen[at];
    bool stale = d->agent_boot == r->boot && r->seq <= d->agent_seq;
    control_count(c, CONTROL_M_REPORTS, stale ? "late" : "taken");
    if (!stale) {
        bool was_ready = s->engine_ready;
        enum agent_state was = s->state;
        d->agent_boot = r->boot;
        d->agent_seq = r->seq;
        d->restarts = r->restarts;
        keep_text(d->trouble, sizeof d->trouble, r->trouble);
        *s = (struct sighting){ .heard_us = now_us, .state = r->state };
        d->has_engine = r->has_engine;
        if (r->has_engine) keep_engine(d, s, &r->engine);
        c->urgent |= was != s->state || was_ready != s->engine_ready;
    }
    enum intent_state state = c->intent[at].state;
    ret->known = true;
    ret->drain = state == INTENT_DRAINING;
    ret->stop = state == INTENT_ENDING || state == INTENT_ENDED;
    ret->clock = control_clock(c, at);
}

/* ---- routers ---- */

_Static_assert((int)ROLE_BOTH == ENDPOINT_BOTH && (int)ROLE_PREFILL == ENDPOINT_PREFILL &&
                   (int)ROLE_DECODE == ENDPOINT_DECODE && (int)ROLE_COUNT == ENDPOINT_ROLE_COUNT,
               "roles of the wire and of the policies");

static struct router *find_router(struct control *c, struct str id)
{
    struct router *vacant = NULL;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        struct router *rt = &c->router[r];
        if (rt->id[0] && str_eq(str_from(rt->id), id)) return rt;
        if (!rt->id[0] && !vacant) vacant = rt;
    }
    if (!vacant) return NULL;
    struct routed *endpoint = vacant->endpoint;
    struct usage_seen *usage = vacant->usage;
    memset(usage, 0, CONTROL_TENANTS_MAX * sizeof *usage);
    *vacant = (struct router){ .endpoint = endpoint, .usage = usage };
    keep_text(vacant->id, sizeof vacant->id, id);
    log_event(LOG_INFO, "router_known", "router=%s", vacant->id);
    return vacant;
}

/* What rose since the last word. A router's counters begin at zero with each boot; what a router
 * counted before we knew it is none of ours. */
static void count_demand(struct counted *c, const struct demand_seen *d,
                         const struct service_demand *now, bool same_boot)
{
    static const struct service_demand nothing;
    if (!d->present) return;
    const struct service_demand *last = same_boot ? &d->last : &nothing;
    if (now->arrivals_total > last->arrivals_total)
        c->arrivals += now->arrivals_total - last->arrivals_total;
    if (now->slo_met_total > last->slo_met_total)
        c->met += now->slo_met_total - last->slo_met_total;
    if (now->slo_missed_total > last->slo_missed_total)
        c->missed += now->slo_missed_total - last->slo_missed_total;
}

_Static_assert(WIRE_LENGTH_BINS == SCALE_LENGTH_BINS, "bins of the wire and of the policies");

static void keep_lengths(bool has, const struct wire_lengths *w, struct scale_lengths *ret)
{
    *ret = (struct scale_lengths){ 0 };
    if (!has) return;
    *ret = (struct scale_lengths){ .count = w->count,
                                   .age_s = w->age_s,
                                   .prompt = w->prompt,
                                   .output = w->output,
                                   .prompt_sq = w->prompt_sq,
                                   .output_sq = w->output_sq,
                                   .cross = w->cross };
    for (uint32_t i = 0; i < w->bin_count; i++)
        ret->bin[i / SCALE_LENGTH_BINS][i % SCALE_LENGTH_BINS] = (float)w->bins[i];
}

static void keep_demand(struct demand_seen *d, const struct service_demand *now, bool same_boot,
                        int64_t now_us)
{
    bool known = d->present && same_boot;
    /* What arrived before we first heard of it is taken as of now: the careful side. */
    if (!known || now->arrivals_total != d->last.arrivals_total || now->held > 0)
        d->arrived_us = now_us;
    if (known && now->prompt_tokens_total > d->last.prompt_tokens_total) {
        double prompt = (double)(now->prompt_tokens_total - d->last.prompt_tokens_total);
        double cached = now->cached_tokens_total > d->last.cached_tokens_total
                            ? (double)(now->cached_tokens_total - d->last.cached_tokens_total)
                            : 0;
        double share = cached < prompt ? cached / prompt : 1;
        d->cached_share += CACHED_WEIGHT * (share - d->cached_share);
    }
    d->last = *now;
    keep_lengths(now->has_expected, &now->expected, &d->expected);
    keep_lengths(now->has_queued, &now->queued, &d->queued);
    d->last.service = (struct str){ 0 };
    d->last.expected.bins = d->last.queued.bins = NULL;
    d->present = true;
}

static void keep_sync(struct control *c, struct router *r, const struct router_sync *s,
                      int64_t now_us)
{
    bool same_boot = r->boot == s->boot;
    if (same_boot && s->seq <= r->seq && r->heard_us) return; /* overtaken on its way */
    r->boot = s->boot;
    r->seq = s->seq;
    r->heard_us = now_us;
    r->port = s->port;
    keep_text(r->host, sizeof r->host, s->host);
    for (uint32_t k = 0; k < c->setup.service_count; k++) {
        struct str name = str_from(c->service[k].name);
        for (uint32_t i = 0; i < s->service_count; i++) {
            const struct service_demand *d = &s->services[i];
            if (!str_eq(d->service, name)) continue;
            if (d->held > 0 && r->demand[k].last.held == 0) c->urgent = true;
            count_demand(&c->counted[k], &r->demand[k], d, same_boot);
            keep_demand(&r->demand[k], d, same_boot, now_us);
        }
    }
    r->endpoint_count = 0;
    for (uint32_t i = 0; i < s->endpoint_count && i < SYNC_ENDPOINTS_MAX; i++) {
        struct routed *e = &r->endpoint[r->endpoint_count];
        if (name_copy(e->instance, sizeof e->instance, s->endpoints[i].instance) < 0) continue;
        e->in_flight = s->endpoints[i].in_flight;
        r->endpoint_count++;
    }
    refused_take(r, s, now_us);
}

static enum endpoint_state endpoint_state_of(const struct control *c, uint32_t at)
{
    if (c->intent[at].state == INTENT_DRAINING) return ENDPOINT_DRAINING;
    return c->seen[at].engine_ready && c->seen[at].state == AGENT_UP ? ENDPOINT_READY
                                                                     : ENDPOINT_STARTING;
}

static void fill_endpoint(const struct control *c, uint32_t at, struct endpoint *ret)
{
    const struct intent *i = &c->intent[at];
    const struct detail *d = &c->detail[at];
    *ret = (struct endpoint){
        .instance = str_from(i->id),
        .service = str_from(i->service),
        .pool = str_from(i->pool),
        .model = str_from(d->model),
        .digest = str_from(d->digest),
        .host = str_from(d->host),
        .port = d->engine.port,
        .tls = d->engine.tls,
        .kind = d->engine.kind,
        .state = endpoint_state_of(c, at),
        .role = (enum endpoint_role)d->role,
        .boot = d->engine.boot,
        .price_per_h = i->price_h,
        .context_tokens = d->engine.context_tokens,
        .page_tokens = d->engine.page_tokens,
        .pages_total = d->engine.pages_total,
        .running_max = d->engine.running_max,
        .step_tokens = d->engine.step_tokens,
        .kv_token_bytes = d->engine.kv_token_bytes,
        .has_perf = c->seen[at].has_perf,
        .perf = d->engine.perf,
        .clock = d->engine.clock,
    };
}

/* An endpoint is what a router may know about: its agent has named an address, and it is not on
 * its way out. */
static bool is_endpoint(const struct control *c, uint32_t at)
{
    enum intent_state s = c->intent[at].state;
    const struct detail *d = &c->detail[at];
    return (s == INTENT_REGISTERED || s == INTENT_DRAINING) && d->has_engine && d->host[0] &&
           d->engine.port;
}

/* Whether the list names every endpoint there is. One that was not heard since our start has an
 * address that nobody has told us; it stays so until it speaks, or is ended for its silence. */
bool control_is_complete(const struct control *c)
{
    if (!control_has_observed(c)) return false; /* an instance may be found that no record names */
    for (uint32_t at = 0; at < c->count; at++) {
        enum intent_state s = c->intent[at].state;
        bool serves = (s == INTENT_REGISTERED || s == INTENT_DRAINING) && !c->intent[at].aside;
        if (serves && c->seen[at].heard_us == 0) return false;
    }
    return true;
}

static bool is_coming(const struct control *c, uint32_t at)
{
    const struct intent *i = &c->intent[at];
    if (i->state < INTENT_REGISTERED) return true;
    return i->state == INTENT_REGISTERED && endpoint_state_of(c, at) == ENDPOINT_STARTING;
}

static void fill_starting(const struct control *c, uint32_t at, int64_t now_us,
                          struct starting *ret)
{
    const struct intent *i = &c->intent[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    double lead = offer == PLAN_NONE ? 0 : c->offer[offer].lead_s;
    double passed = i->called_us ? (double)(now_us - i->called_us) / 1e6 : 0;
    double left = lead > passed ? lead - passed : 1; /* late: soon, nobody knows when */
    *ret = (struct starting){ .service = str_from(i->service), .eta_ms = (uint32_t)(left * 1e3) };
}

static bool may_start(const struct control *c, uint32_t service, bool any_coming, int64_t now_us)
{
    const struct plan_service *s = &c->service[service];
    if (any_coming) return true;
    if (s->paused) return false;
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct plan_pool *pool = &s->pool[p];
        if (pool->max == 0 || pool->manual == 0) continue;
        for (uint32_t o = 0; o < pool->offer_count; o++)
            if (offer_may_be_asked(&c->health[pool->offer[o]], now_us)) return true;
    }
    return false;
}

static int fill_lists(struct control *c, int64_t now_us, struct arena *arena,
                      struct router_rules *ret)
{
    struct endpoint *e = arena_array(arena, SYNC_ENDPOINTS_MAX, sizeof *e);
    struct starting *st = arena_array(arena, SYNC_STARTING_MAX, sizeof *st);
    struct service_rules *sv = arena_array(arena, PLAN_SERVICES_MAX, sizeof *sv);
    if (!e || !st || !sv) return -ENOMEM;
    bool coming[PLAN_SERVICES_MAX] = { false }, serving[PLAN_SERVICES_MAX] = { false };
    for (uint32_t at = 0; at < c->count; at++) {
        uint32_t service = c->detail[at].service;
        if (is_endpoint(c, at) && ret->endpoint_count < SYNC_ENDPOINTS_MAX) {
            fill_endpoint(c, at, &e[ret->endpoint_count]);
            if (service != PLAN_NONE && e[ret->endpoint_count].state == ENDPOINT_READY)
                serving[service] = true;
            ret->endpoint_count++;
        }
        if (!is_coming(c, at)) continue;
        if (service != PLAN_NONE) coming[service] = true;
        if (ret->starting_count < SYNC_STARTING_MAX)
            fill_starting(c, at, now_us, &st[ret->starting_count++]);
    }
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *p = &c->service[s];
        /* A paused service goes on with what it has; with nothing, waiting would be for ever. */
        sv[s] = (struct service_rules){ .service = str_from(p->name),
                                        .paused = p->paused && !serving[s] && !coming[s],
                                        .may_start = may_start(c, s, coming[s], now_us),
                                        .slo_ttft_s = p->ttft_slo_s,
                                        .slo_tpot_s = p->tpot_slo_s,
                                        .has_kv_link = true,
                                        .kv_link_bytes_s = p->kv_link_bytes_s };
    }
    ret->endpoints = e;
    ret->starting = st;
    ret->services = sv;
    ret->service_count = c->setup.service_count;
    return 0;
}

/* Which of the routers that were heard of lately this one is, so that each may prefer instances of
 * its own while their views of each other are old. */
static void number_router(const struct control *c, const struct router *me, int64_t now_us,
                          struct router_rules *ret)
{
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->router[r];
        if (rt == me) ret->router_index = ret->router_count;
        ret->router_count += rt->id[0] && now_us - rt->heard_us <= ROUTER_FRESH_US;
    }
}

int control_sync(struct control *c, const struct router_sync *s, int64_t now_us,
                 struct arena *arena, struct router_rules *ret, struct err *err)
{
    struct router *r = find_router(c, s->router);
    if (!r) {
        control_bound_reached(c, "routers");
        return err_set(err, -ENOSPC, "%d routers are known already", CONTROL_ROUTERS_MAX);
    }
    control_count(c, CONTROL_M_SYNCS, NULL);
    tenants_take_usage(c, r, s);
    keep_sync(c, r, s, now_us);

    struct router_rules rules = { .keys_required = keys_needed(c),
                                  .keys_opened = c->keys == KEYS_OPENED,
                                  .has_complete = true,
                                  .complete = control_is_complete(c),
                                  .tenants_version = c->tenants_version,
                                  .has_tenants = s->tenants_version != c->tenants_version,
                                  .again_ms = SYNC_AGAIN_MS };
    number_router(c, r, now_us, &rules);
    int rc = fill_lists(c, now_us, arena, &rules);
    if (rc == 0) rc = refused_rules(c, r, now_us, arena, &rules);
    if (rc == 0 && rules.has_tenants)
        rc = tenants_rules(c, arena, &rules.tenants, &rules.tenant_count);
    if (rc == 0 && rules.has_tenants)
        rc = tokens_rules(c, arena, &rules.tokens, &rules.token_count);
    if (rc < 0) return err_set(err, rc, "no memory for the router's rules");
    *ret = rules;
    return 0;
}

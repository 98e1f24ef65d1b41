/* director.c - passes each event on to the dispatch, to the service's telemetry and to the state of the
 * request's KV transfer, alike for every host. */
#include "router/core/director.h"

#include "base/core/hash.h"
#include "base/core/own.h"

#include <stdlib.h>
#include <string.h>

/* Step budget of an engine that does not report its own: a usual value of other engines. */
#define STEP_TOKENS_GUESS 512

struct director {
    struct director_config config;
    struct dispatch *dispatch;
    struct services services;
    struct director_endpoint *endpoint; /* by slot */
    uint32_t slots;
    uint64_t endpoints_seen; /* their serial numbers */
    struct migrate_look look;
    void *look_memory; /* NULL: nothing migrates */
};

CLEANUP_FREEP(director, struct director)

int director_new(const struct director_config *config, struct director **ret, struct err *err)
{
    CLEANUP(director_freep) struct director *d = calloc(1, sizeof *d);
    if (!d) return err_set(err, -ENOMEM, "router: no memory");
    const struct dispatch_config *c = &config->dispatch;
    d->config = *config;
    d->slots = c->endpoints_max ? c->endpoints_max : DISPATCH_ENDPOINTS;
    d->endpoint = calloc(d->slots, sizeof *d->endpoint);
    if (config->migrate) d->look_memory = calloc(1, migrate_look_bytes(d->slots, c->requests_max));
    if (!d->endpoint || (config->migrate && !d->look_memory) || services_new(&d->services) < 0)
        return err_set(err, -ENOMEM, "router: no memory for %u requests", c->requests_max);
    int rc = dispatch_new(c, &d->dispatch, err);
    if (rc < 0) return rc;
    if (config->migrate)
        migrate_look_init(&d->look, config->migrate, d->slots, c->requests_max, c->seed,
                          d->look_memory);
    *ret = TAKE(d);
    return 0;
}

void director_free(struct director *d)
{
    if (!d) return;
    dispatch_free(d->dispatch);
    services_fini(&d->services);
    free(d->look_memory);
    free(d->endpoint);
    free(d);
}

struct dispatch *director_dispatch(struct director *d)
{
    return d->dispatch;
}

struct services *director_services(struct director *d)
{
    return &d->services;
}

/* ---- what the controller says ---- */

/* Sets when another instance of the request's service is expected. */
static void tell_eta(void *director, struct dispatch_request *r)
{
    struct director *d = director;
    const struct router_service *s = services_by_hash(&d->services, r->model);
    r->eta_s = s ? s->eta_s : 0;
}

void director_rules(struct director *d, const struct router_rules *rules)
{
    services_rules(&d->services, rules, &d->config.service);
    dispatch_held_each(d->dispatch, tell_eta, d);
    if (rules->router_index < rules->router_count)
        dispatch_peers_set(d->dispatch, rules->router_index, rules->router_count);
}

static uint64_t group_of(const struct router_service *s, const struct endpoint *ep)
{
    const uint64_t key[] = { s->hash, hash64(ep->digest.data, ep->digest.len, 0) };
    return hash64(key, sizeof key, 0) | 1;
}

int director_endpoint_read(struct director *d, const struct endpoint *ep, bool reachable,
                           int64_t now_us, struct director_endpoint *ret)
{
    const struct router_service *s =
        services_get(&d->services, ep->service.len ? ep->service : ep->model);
    const struct engine_traits *traits = &engine_traits[ep->kind];
    bool takes_ids = traits->takes_ids;
    *ret = (struct director_endpoint){
        .known = { .boot = ep->boot,
                   .takes_ids = takes_ids,
                   .cache_guessed = !traits->serves_itself && !ep->kv_events,
                   .hit_tokens = traits->serves_itself ? 0 : ep->page_tokens,
                   .perf_learned = !traits->serves_itself,
                   .ready = ep->state == ENDPOINT_READY && reachable,
                   .at_risk = ep->at_risk,
                   .role = ep->role,
                   .has_perf = ep->has_perf,
                   .token_budget = ep->step_tokens > 0 ? ep->step_tokens : STEP_TOKENS_GUESS,
                   .seqs_max = ep->running_max,
                   .kv_tokens_max = (uint64_t)ep->pages_total * ep->page_tokens,
                   .kv_bytes_per_token = ep->kv_token_bytes,
                   .price_per_hour = ep->price_per_h },
        .draining = ep->state == ENDPOINT_DRAINING,
        .leaves_us = ep->leaves_ms > 0 ? now_us + ep->leaves_ms * INT64_C(1000) : 0,
        .page_tokens = ep->page_tokens,
    };
    struct dispatch_endpoint *known = &ret->known;
    if (!s || ep->instance.len == 0 || ep->instance.len >= sizeof known->name) return -EINVAL;
    memcpy(known->name, ep->instance.data, ep->instance.len);
    known->model = s->hash;
    for (uint32_t i = 0; takes_ids && i < ep->adapter_count; i++)
        known->adapter[known->adapter_count++] = adapter_id(ep->adapters[i].digest);
    /* KV is copied only between engines of one model, recognised by the digest of their weights. */
    if (takes_ids) known->link_bytes_s = service_link(s, &d->config.service);
    if (takes_ids && reachable) ret->group = group_of(s, ep);
    if (!ep->has_perf) return 0;
    known->perf = ep->clock > 0 ? perf_at_clock(&ep->perf, ep->clock) : ep->perf;
    known->has_perf = perf_coef_valid(&known->perf);
    return 0;
}

void director_endpoints_begin(struct director *d)
{
    for (uint32_t i = 0; i < d->slots; i++)
        d->endpoint[i].listed = false;
}

static void port_set(struct director *d, uint32_t slot)
{
    if (!d->look_memory || d->look.port[slot].serial == d->endpoint[slot].serial) return;
    d->look.port[slot] = (struct kv_port){ .serial = d->endpoint[slot].serial };
}

int director_endpoint_put(struct director *d, const struct director_endpoint *ep,
                          uint32_t *ret_slot)
{
    int rc = dispatch_endpoint_put(d->dispatch, &ep->known, ret_slot);
    if (rc < 0) return rc;
    struct director_endpoint *at = &d->endpoint[*ret_slot];
    uint64_t serial = at->serial ? at->serial : ++d->endpoints_seen;
    *at = *ep;
    at->serial = serial;
    at->listed = true;
    port_set(d, *ret_slot);
    return 0;
}

void director_endpoint_remove(struct director *d, uint32_t slot)
{
    dispatch_endpoint_remove(d->dispatch, slot);
    d->endpoint[slot].serial = 0;
    port_set(d, slot);
}

uint32_t director_endpoint_gone(struct director *d, bool complete)
{
    for (uint32_t i = 0; complete && i < d->slots; i++) {
        if (!d->endpoint[i].serial || d->endpoint[i].listed) continue;
        director_endpoint_remove(d, i);
        return i;
    }
    return ROUTE_NONE;
}

/* Removes deleted services once SYNC_SERVICES_MAX are known, to make room for new ones. */
static void forget_services(struct director *d)
{
    if (d->services.count < SYNC_SERVICES_MAX) return;
    for (uint32_t i = d->services.count; i-- > 0;) {
        const struct router_service *s = &d->services.item[i];
        if (!s->from_controller && !director_has_endpoint(d, s)) services_remove(&d->services, i);
    }
}

struct director_count director_endpoints_end(struct director *d)
{
    struct director_count count = { 0 };
    for (uint32_t i = 0; i < d->slots; i++) {
        const struct director_endpoint *ep = &d->endpoint[i];
        count.ready += ep->serial && ep->known.ready;
        count.unlisted += ep->serial && !ep->listed;
    }
    forget_services(d);
    return count;
}

const struct director_endpoint *director_endpoint_at(const struct director *d, uint32_t slot)
{
    return d->endpoint[slot].serial ? &d->endpoint[slot] : NULL;
}

bool director_has_endpoint(const struct director *d, const struct router_service *s)
{
    for (uint32_t i = 0; i < d->slots; i++)
        if (d->endpoint[i].serial && d->endpoint[i].known.model == s->hash) return true;
    return false;
}

bool director_may_copy(const struct director *d, uint32_t from, uint32_t at)
{
    const struct director_endpoint *source = director_endpoint_at(d, from);
    const struct director_endpoint *target = director_endpoint_at(d, at);
    if (!source || !target || from == at || !(target->known.link_bytes_s > 0)) return false;
    return source->group != 0 && source->group == target->group;
}

/* ---- KV transfers ---- */

static void feed(struct director *d, struct director_request *r, enum kv_transfer_event event,
                 struct kv_transfer_input in, int64_t now_us)
{
    in.now_us = now_us;
    if (d->look_memory) migrate_look_on(&d->look, &r->kv, event, in);
}

static void feed_bare(struct director *d, struct director_request *r, enum kv_transfer_event event,
                      int64_t now_us)
{
    feed(d, r, event, (struct kv_transfer_input){ 0 }, now_us);
}

static struct kv_end end_at(const struct director *d, uint32_t slot)
{
    return (struct kv_end){ slot, d->look.port[slot].serial };
}

static void transfer_sent(struct director *d, struct director_request *r, bool prefills,
                          int64_t now_us)
{
    if (!d->look_memory) return;
    kv_transfer_at(&r->kv, end_at(d, r->dispatch.slot));
    r->kv.fixed = r->is_question || r->dispatch.adapter != 0;
    if (prefills) feed_bare(d, r, KVT_PREFILL, now_us);
}

static void transfer_over(struct director *d, struct director_request *r, int64_t now_us)
{
    if (!d->look_memory) return;
    migrate_look_gone(&r->kv);
    feed_bare(d, r, KVT_ENDED, now_us);
}

bool director_is_copied(const struct director_request *r)
{
    return r->kv.state == KVT_COPYING || r->kv.state == KVT_STOPPING;
}

void director_migrated(struct director *d, struct director_request *r, int64_t now_us)
{
    if (!director_is_copied(r)) return;
    const struct kv_end to = r->kv.to;
    feed_bare(d, r, KVT_STOPPED, now_us);
    if (!kv_port_of(d->look.port, to)) return; /* another endpoint may have its slot by now */
    dispatch_migrate(d->dispatch, &r->dispatch, to.slot, now_us);
}

void director_stays(struct director *d, struct director_request *r, int64_t now_us)
{
    if (director_is_copied(r)) feed_bare(d, r, KVT_LOST, now_us);
}

bool director_migrate_endpoint(const struct director *d, uint32_t slot,
                               struct migrate_endpoint *ret)
{
    const struct director_endpoint *ep = director_endpoint_at(d, slot);
    if (!ep) return false;
    *ret = (struct migrate_endpoint){ .group = ep->page_tokens ? ep->group : 0,
                                      .page_tokens = ep->page_tokens,
                                      .kv_bytes_per_token = ep->known.kv_bytes_per_token,
                                      .link_bytes_s = ep->known.link_bytes_s,
                                      .role = ep->known.role,
                                      .ready = ep->known.ready,
                                      .draining = ep->draining,
                                      .leaves_us = ep->leaves_us,
                                      .kv_tokens_max = ep->known.kv_tokens_max,
                                      .perf = ep->known.has_perf ? &ep->known.perf : NULL };
    return true;
}

struct looking {
    struct director *d;
    const struct director_host *host;
    int64_t now_us;
};

static bool look_endpoint(void *arg, uint32_t slot, struct migrate_endpoint *ret)
{
    const struct looking *l = arg;
    if (!director_migrate_endpoint(l->d, slot, ret)) return false;
    ret->load = l->host->told(l->host->arg, slot, &ret->told_us);
    return true;
}

static void look_migrate(void *arg, struct kv_transfer *x, uint32_t to)
{
    const struct looking *l = arg;
    struct director_request *r = CONTAINER_OF(x, struct director_request, kv);
    uint32_t page_tokens = l->d->endpoint[to].page_tokens;
    const struct kv_transfer_input in = { .to = end_at(l->d, to),
                                          .tokens = x->tokens,
                                          .pages = x->tokens / page_tokens,
                                          .page_tokens = page_tokens };
    feed(l->d, r, KVT_MIGRATE, in, l->now_us);
    l->host->migrate(l->host->arg, r, to);
}

int64_t director_look(struct director *d, const struct director_host *host, int64_t now_us)
{
    must(d->look_memory != NULL);
    struct looking looking = { d, host, now_us };
    const struct migrate_host look = { &looking, look_endpoint, look_migrate };
    return migrate_look(&d->look, &look, now_us);
}

const struct migrate_policy *director_migrate_policy(const struct director *d)
{
    return d->config.migrate;
}

/* ---- requests ---- */

static struct router_service *service_of(struct director *d, const struct director_request *r)
{
    return services_by_hash(&d->services, r->dispatch.model);
}

static void queue_out(struct director *d, struct director_request *r)
{
    struct router_service *s = r->told.queued ? service_of(d, r) : NULL;
    if (s) telemetry_unqueued(&s->telemetry, &r->told);
    r->told.queued = false; /* of a service that is gone, too */
}

/* Turns the dispatch's verdict into one for the host. */
static void decided(struct director *d, struct director_request *r,
                    const struct dispatch_verdict *v, int64_t now_us, struct director_verdict *ret)
{
    struct dispatch_verdict lost;
    struct dispatch_request *out =
        v->answer == DISPATCH_WAIT ? dispatch_displaced(d->dispatch, &lost) : NULL;
    *ret = (struct director_verdict){ .answer = v->answer,
                                      .status = v->status,
                                      .retry_after_s = v->retry_after_s,
                                      .why = v->why,
                                      .kv_from = ROUTE_NONE };
    if (out) {
        ret->displaced = CONTAINER_OF(out, struct director_request, dispatch);
        ret->status = lost.status;
        ret->retry_after_s = lost.retry_after_s;
    }
    if (v->answer != DISPATCH_SEND) return;
    const struct dispatch_endpoint *ep = &d->endpoint[r->dispatch.slot].known;
    uint32_t peer = r->dispatch.route.fetch_from_id;
    ret->slot = r->dispatch.slot;
    ret->prefills = ep->takes_ids && ep->role == ROLE_PREFILL;
    if (peer != ROUTE_NONE && director_may_copy(d, peer, ret->slot)) ret->kv_from = peer;
    transfer_sent(d, r, ret->prefills, now_us);
}

static void count_refusal(struct router_service *s, const struct director_request *r,
                          int64_t now_us)
{
    const struct route_verdict *why = &r->dispatch.route;
    if (why->late)
        telemetry_refused_late(&s->telemetry, why->estimate_s, now_us);
    else
        telemetry_refused(&s->telemetry);
}

/* Returns true if an instance serves or starts for the service, or would be started. */
static bool can_come(const struct director *d, const struct router_service *s)
{
    return s->may_start || director_has_endpoint(d, s);
}

void director_arrive(struct director *d, struct director_request *r, int64_t now_us,
                     struct director_verdict *ret)
{
    struct router_service *s = service_of(d, r);
    r->arrived = true;
    if (!s || s->paused || !can_come(d, s)) {
        if (s) telemetry_refused(&s->telemetry);
        *ret = (struct director_verdict){ .answer = DISPATCH_REFUSE,
                                          .status = 503,
                                          .retry_after_s = 1,
                                          .why = REFUSAL_UNSERVED,
                                          .kv_from = ROUTE_NONE };
        return;
    }
    struct dispatch_request *c = &r->dispatch;
    c->slo_ttft_s = s->slo_ttft_s;
    c->slo_tpot_s = s->slo_tpot_s;
    c->refuse_late = s->refuse_late;
    c->eta_s = s->eta_s;
    struct dispatch_verdict v = dispatch_arrive(d->dispatch, c, now_us);
    telemetry_arrived(&s->telemetry, c->prompt_tokens, c->length.mean, now_us);
    telemetry_queued(&s->telemetry, &r->told, c->prompt_tokens - c->hit_tokens, c->length.mean,
                     now_us);
    if (v.answer == DISPATCH_REFUSE) {
        count_refusal(s, r, now_us);
        queue_out(d, r);
    }
    decided(d, r, &v, now_us, ret);
    ret->hurry = v.answer == DISPATCH_WAIT;
}

bool director_tokens(struct director *d, struct director_request *r, uint32_t count, int64_t now_us)
{
    if (count > 0) queue_out(d, r);
    bool acquitted = dispatch_tokens(d->dispatch, &r->dispatch, count, now_us);
    if (!d->look_memory) return acquitted;
    r->kv.tokens = dispatch_tokens_known(&r->dispatch);
    migrate_look_tokens(&d->look, &r->kv);
    feed_bare(d, r, KVT_TOKENS, now_us);
    return acquitted;
}

void director_fail(struct director *d, struct director_request *r, enum retry_failure failure,
                   int64_t now_us, struct director_verdict *ret)
{
    const struct director_endpoint *at = &d->endpoint[r->dispatch.slot];
    if (failure == RETRY_DIED && at->leaves_us > 0) failure = RETRY_TAKEN;
    transfer_over(d, r, now_us);
    tell_eta(d, &r->dispatch);
    struct dispatch_verdict v = dispatch_fail(d->dispatch, &r->dispatch, failure, now_us);
    decided(d, r, &v, now_us, ret);
    ret->failure = failure;
}

void director_slice_end(struct director *d, struct director_request *r, int64_t now_us,
                        struct director_verdict *ret)
{
    transfer_over(d, r, now_us);
    tell_eta(d, &r->dispatch);
    struct dispatch_verdict v = dispatch_slice_end(d->dispatch, &r->dispatch, now_us);
    decided(d, r, &v, now_us, ret);
}

void director_prefilled(struct director *d, struct director_request *r, int64_t now_us,
                        struct director_verdict *ret)
{
    uint32_t from = r->dispatch.slot;
    uint32_t to = dispatch_pd_handoff(d->dispatch, &r->dispatch, now_us);
    bool elsewhere = to != ROUTE_NONE && to != from;
    *ret = (struct director_verdict){ .answer = DISPATCH_SEND,
                                      .slot = r->dispatch.slot,
                                      .kv_from = ROUTE_NONE };
    if (elsewhere && director_may_copy(d, from, to)) ret->kv_from = from;
    if (!d->look_memory || r->kv.state != KVT_PREFILLING) return;
    const struct kv_transfer_input in = { .to = end_at(d, ret->slot) };
    feed(d, r, ret->slot == r->kv.from.slot ? KVT_UNPLACED : KVT_PREFILLED, in, now_us);
}

static enum slo_result count_end(struct director *d, const struct director_request *r,
                                 const struct director_end *end, int64_t now_us)
{
    struct router_service *s = service_of(d, r);
    if (!s || r->is_question) return SLO_UNCOUNTED;
    if (!end->ok) {
        telemetry_failed(&s->telemetry);
        return SLO_MISSED;
    }
    struct telemetry_outcome outcome = end->outcome;
    outcome.ttft_slo_s = s->slo_ttft_s;
    outcome.tpot_slo_s = s->slo_tpot_s;
    return telemetry_finished(&s->telemetry, &outcome, now_us) ? SLO_MET : SLO_MISSED;
}

enum slo_result director_end(struct director *d, struct director_request *r,
                             const struct director_end *end, int64_t now_us)
{
    if (!r->arrived) return SLO_UNCOUNTED;
    queue_out(d, r);
    transfer_over(d, r, now_us);
    r->dispatch.cached_known = end->cached_known;
    r->dispatch.cached_tokens = end->outcome.cached_tokens;
    if (r->dispatch.state == DISPATCH_SENT || r->dispatch.state == DISPATCH_HELD) {
        uint32_t generated = r->is_question ? 0 : end->generated;
        dispatch_end(d->dispatch, &r->dispatch, generated, end->censored, now_us);
    }
    return count_end(d, r, end, now_us);
}

struct director_request *director_held_next(struct director *d, int64_t now_us,
                                            struct director_verdict *ret)
{
    struct dispatch_verdict v;
    struct dispatch_request *c = dispatch_held_next(d->dispatch, now_us, &v);
    if (!c) return NULL;
    struct director_request *r = CONTAINER_OF(c, struct director_request, dispatch);
    decided(d, r, &v, now_us, ret);
    return r;
}

struct each {
    void (*fn)(void *arg, struct director_request *r);
    void *arg;
};

static void each_held(void *each, struct dispatch_request *c)
{
    const struct each *e = each;
    e->fn(e->arg, CONTAINER_OF(c, struct director_request, dispatch));
}

void director_held_each(struct director *d, void (*fn)(void *arg, struct director_request *r),
                        void *arg)
{
    dispatch_held_each(d->dispatch, each_held, &(struct each){ fn, arg });
}

/* ---- what the controller is told ---- */

void director_report_service(struct director *d, const struct router_service *s, int64_t now_us,
                             struct service_demand *ret)
{
    telemetry_report(&s->telemetry, now_us, ret);
    ret->service = str_from(s->name);
    dispatch_report(d->dispatch, s->hash, now_us, ret);
}

void director_report(struct director *d, int64_t now_us, struct director_report *ret)
{
    ret->service_count = ret->endpoint_count = 0;
    for (uint32_t i = 0; i < d->slots; i++) {
        const struct director_endpoint *e = director_endpoint_at(d, i);
        if (!e) continue;
        struct endpoint_demand *to = &ret->endpoint[ret->endpoint_count++];
        *to = (struct endpoint_demand){ .instance = str_from(e->known.name),
                                        .in_flight = dispatch_in_flight(d->dispatch, i) };
        to->has_perf = dispatch_learned_perf(d->dispatch, i, &to->perf);
    }
    for (uint32_t i = 0; i < d->services.count; i++)
        director_report_service(d, &d->services.item[i], now_us,
                                &ret->service[ret->service_count++]);
}

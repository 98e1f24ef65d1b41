/* sync.c - takes the reports of agents and the syncs of routers, and makes the replies to them. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/auth/auth.h"
#include "base/io/log.h"
#include "base/io/tunnel/tunnel.h"
#include "controller/control_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYNC_AGAIN_MS 500

/* ---- prompts that killed engines ----
 *
 * Each router refuses such prompts, and all the others are told of them. A router's list replaces its
 * earlier one of the same boot id. Entries of an earlier boot stay until they expire, and that router is
 * told them again: it has forgotten them. Nothing is stored; a restarted controller gets the lists from
 * the routers. */

static void drop_refused(struct router *r, uint32_t at)
{
    r->refused_count--;
    memmove(&r->refused[at], &r->refused[at + 1], (r->refused_count - at) * sizeof *r->refused);
}

/* Returns the place for one more entry; at the bound, that of the entry that expires first. */
static struct refused_seen *refused_place(struct router *r)
{
    if (r->refused_count == SYNC_REFUSED_MAX) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < r->refused_count; i++)
            if (r->refused[i].until_us < r->refused[first].until_us) first = i;
        drop_refused(r, first);
    }
    return &r->refused[r->refused_count++];
}

static void refused_take(struct router *r, const struct router_sync *s, int64_t now_us)
{
    for (uint32_t i = r->refused_count; i-- > 0;)
        if (r->refused[i].boot == s->boot || r->refused[i].until_us <= now_us) drop_refused(r, i);
    for (uint32_t i = 0; i < s->refused_count; i++) {
        const struct refused_prompt *p = &s->refused[i];
        *refused_place(r) =
            (struct refused_seen){ p->fingerprint, s->boot, now_us + p->left_ms * 1000LL };
    }
}

static int refused_rules(const struct control *c, const struct router *me, int64_t now_us,
                         struct arena *arena, struct router_rules *ret)
{
    struct refused_prompt *list = NULL;
    for (uint32_t k = 0; k < CONTROL_ROUTERS_MAX; k++) {
        const struct router *r = &c->observed.router[k];
        if (!r->id[0] || r->refused_count == 0) continue;
        if (!list) list = arena_array(arena, SYNC_ELSEWHERE_MAX, sizeof *list);
        if (!list) return -ENOMEM;
        for (uint32_t i = 0; i < r->refused_count; i++) {
            const struct refused_seen *p = &r->refused[i];
            int64_t left_us = p->until_us - now_us;
            if (left_us <= 0 || (r == me && p->boot == me->boot)) continue;
            list[ret->refused_count++] =
                (struct refused_prompt){ p->fingerprint, (uint32_t)(left_us / 1000) };
        }
    }
    ret->refused = list;
    return 0;
}

void control_quarantine_clear(struct control *c, uint64_t fingerprint)
{
    uint32_t cleared = 0;
    for (uint32_t k = 0; k < CONTROL_ROUTERS_MAX; k++) {
        struct router *r = &c->observed.router[k];
        for (uint32_t i = r->refused_count; i-- > 0;) {
            if (fingerprint != 0 && r->refused[i].fingerprint != fingerprint) continue;
            drop_refused(r, i);
            cleared++;
        }
    }
    log_event(LOG_INFO, "quarantine_cleared", "prompts=%u", cleared);
}

/* Copies as much as fits; the wire already bounds names from peers. */
static void keep_text(char *to, size_t size, struct str from)
{
    size_t n = min_size(from.len, size - 1);
    if (n) memcpy(to, from.data, n);
    to[n] = 0;
}

static struct str keep_in(char **to, struct str from)
{
    char *at = *to;
    memcpy(at, from.data, from.len);
    *to += from.len;
    return str_of(at, from.len);
}

/* Copies what an engine says of its adapters. Without memory they are unknown until its next report. */
static void keep_adapters(struct detail *d, const struct engine_report *e)
{
    size_t bytes = 0;
    free(d->adapters);
    d->adapters = NULL;
    for (uint32_t i = 0; i < e->adapter_count; i++)
        bytes += e->adapters[i].name.len + e->adapters[i].digest.len;
    if (e->adapter_count == 0) return;
    struct known_adapters *k = calloc(1, sizeof *k + bytes);
    if (!k) return;
    char *to = k->texts;
    for (; k->count < e->adapter_count; k->count++) {
        k->list[k->count].name = keep_in(&to, e->adapters[k->count].name);
        k->list[k->count].digest = keep_in(&to, e->adapters[k->count].digest);
    }
    d->adapters = k;
}

/* ---- agents ---- */

static void keep_engine(struct detail *d, struct sighting *s, const struct engine_report *e)
{
    keep_text(d->host, sizeof d->host, e->host);
    keep_text(d->model, sizeof d->model, e->model);
    keep_text(d->digest, sizeof d->digest, e->digest);
    keep_text(d->numerics, sizeof d->numerics, e->numerics);
    keep_text(d->agent_host, sizeof d->agent_host, e->agent_host);
    keep_adapters(d, e);
    d->power.hardware = hardware_find(e->hardware);
    d->engine = *e;
    d->engine.adapters = NULL;
    d->engine.adapter_count = 0;
    d->engine.host = d->engine.model = d->engine.digest = d->engine.numerics = d->engine.hardware =
        d->engine.agent_host = d->engine.service =
            (struct str){ 0 }; /* the copies above are the strings */
    sighting_take(s, e);
}

static void keep_weights(struct detail *d, const struct agent_report *r)
{
    d->has_weights = r->has_weights;
    d->weights = r->weights;
    keep_text(d->weights_sha256, sizeof d->weights_sha256, r->weights.sha256);
    d->weights.sha256 = str_from(d->weights_sha256);
}

/* Returns the time until the provider takes the instance away; 0: none is announced. A moment that has
 * passed counts as a millisecond away: the instance is there as long as it reports. */
static uint32_t leaves_ms(const struct detail *d, int64_t now_us)
{
    if (!d->leaves_us) return 0;
    return (uint32_t)min_i64(max_i64((d->leaves_us - now_us) / 1000, 1), UINT32_MAX);
}

/* Counts the engine's restarts since the agent's last report. The first report says only how many there were
 * before. */
static void count_restarts(struct control *c, uint32_t at, const struct agent_report *r)
{
    const struct detail *d = &c->observed.detail[at];
    const struct intent *i = &c->money.intent[at];
    uint32_t before = d->agent_boot == r->boot ? d->restarts : 0;
    if (d->agent_boot == 0 || r->restarts <= before) return;
    const struct str label[] = { str_from(i->service), str_from(i->pool) };
    metric_add(metric_series(c->metrics, CONTROL_M_RESTARTS, label), r->restarts - before);
}

static void note_trouble(struct control *c, uint32_t at, const struct agent_report *r,
                         int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    char text[REPORT_TEXT_BYTES_MAX + 1];
    keep_text(text, sizeof text, r->trouble);
    const struct event_note note = { .what = "trouble",
                                     .by = "agent",
                                     .service = i->service,
                                     .pool = i->pool,
                                     .instance = i->id,
                                     .text = text };
    control_note(c, &note, now_us);
}

/* A machine at risk is replaced while it serves on: people see why. */
static void note_risk(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    log_event(LOG_WARN, "at_risk", "id=%s offer=%s why=%s", i->id, i->offer,
              c->observed.detail[at].notice_why);
    const struct event_note note = { .what = "at_risk",
                                     .by = i->provider,
                                     .service = i->service,
                                     .pool = i->pool,
                                     .instance = i->id,
                                     .offer = i->offer,
                                     .text = c->observed.detail[at].notice_why };
    control_note(c, &note, now_us);
    c->urgent = true;
}

/* Names the routers to an agent that dials them. */
static void name_routers(struct control *c, struct agent_reply *ret)
{
    struct str *names = c->observed.reach;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++)
        if (c->observed.router[r].id[0] && c->observed.router[r].reach[0])
            names[ret->router_count++] = str_from(c->observed.router[r].reach);
    ret->routers = names;
}

void control_report(struct control *c, const struct agent_report *r, int64_t now_us,
                    struct agent_reply *ret)
{
    owner_assert(&c->owner);
    *ret = (struct agent_reply){ .lease_ms = c->setup.lease_ms, .epoch = c->setup.term.epoch };
    if (r->has_engine && tunnel_is_host(r->engine.host)) name_routers(c, ret);
    if (r->service.len > 0 && c->setup.adopted) c->setup.adopted(c->setup.adopted_ctx, r, now_us);
    char id[INTENT_ID_BYTES];
    struct str name = r->intent.len ? r->intent : r->instance;
    uint32_t at = name_copy(id, sizeof id, name) < 0 ? UINT32_MAX : control_find(c, id);
    if (at == UINT32_MAX) {
        /* It is known once the provider lists it; the lease keeps it alive until then. */
        control_count(c, CONTROL_M_REPORTS, "unknown");
        return;
    }
    struct detail *d = &c->observed.detail[at];
    struct sighting *s = &c->observed.seen[at];
    bool stale = d->agent_boot == r->boot && r->seq <= d->agent_seq;
    control_count(c, CONTROL_M_REPORTS, stale ? "late" : "taken");
    if (!stale) {
        bool was_ready = s->engine_ready;
        enum agent_state was = s->state;
        count_restarts(c, at, r);
        control_keep_machine(c, at, r, now_us);
        d->agent_boot = r->boot;
        d->agent_seq = r->seq;
        d->restarts = r->restarts;
        if (r->trouble.len && !str_eq(r->trouble, str_from(d->trouble)))
            note_trouble(c, at, r, now_us);
        keep_text(d->trouble, sizeof d->trouble, r->trouble);
        keep_text(d->version, sizeof d->version, r->version);
        d->unfinished = r->unfinished;
        c->urgent |= r->leaves_ms > 0 && !d->noticed_us;
        d->noticed_us = r->leaves_ms > 0 ? now_us + r->leaves_ms * 1000LL : d->noticed_us;
        if (r->leaves_ms > 0 || r->at_risk)
            keep_text(d->notice_why, sizeof d->notice_why, r->leaves_why);
        if (r->at_risk && !d->at_risk) note_risk(c, at, now_us);
        d->at_risk = d->at_risk || r->at_risk; /* it is not taken back */
        lead_take(r, now_us - c->money.intent[at].called_us, &d->told);
        d->has_clock = r->date_us > 0 && c->date_known;
        d->clock_ahead_us = r->date_us - (now_us + c->date_ahead_us);
        *s = (struct sighting){ .heard_us = now_us, .state = r->state };
        keep_weights(d, r);
        d->has_engine = r->has_engine;
        if (r->has_engine) keep_engine(d, s, &r->engine);
        c->urgent |= was != s->state || was_ready != s->engine_ready;
    }
    enum intent_state state = c->money.intent[at].state;
    ret->known = true;
    ret->drain = state == INTENT_DRAINING;
    ret->stop = state == INTENT_STOPPING || state == INTENT_STOPPED || state >= INTENT_ENDING;
    ret->clock = control_clock(c, at);
    ret->leaves_ms = leaves_ms(d, now_us);
}

/* ---- agents that have a model ---- */

/* Names one that has the model that `reader` fetches, and gives the key that reads it there. */
static int put_seed(const struct control *c, uint32_t at, struct str reader, struct arena *arena,
                    struct wire_seed *ret)
{
    const struct detail *d = &c->observed.detail[at];
    CLEANUP(buf_fini) struct buf id = { 0 };
    struct auth_key key;
    char hex[2 * AUTH_KEY_BYTES + 1];
    *ret = (struct wire_seed){ .host = str_from(d->host), .port = d->weights.port };
    if (c->setup.secret.len == 0) return 0; /* a fleet without one: peers of one machine */
    buf_printf(&id, "weights/%s/" STR_FMT, c->money.intent[at].id, STR_ARG(reader));
    if (id.rc < 0 || auth_key_of(c->setup.secret, buf_view(&id), &key) < 0) return -ENOMEM;
    hex_from(key.byte, sizeof key.byte, hex);
    ret->id = arena_str(arena, buf_view(&id));
    ret->key = arena_str(arena, str_from(hex));
    explicit_bzero(&key, sizeof key);
    explicit_bzero(hex, sizeof hex);
    return ret->id.data && ret->key.data ? 0 : -ENOMEM;
}

/* Returns true if the instance may be asked for its model: it is not on its way out, and not behind a tunnel, which carries
 * calls of routers alone. */
static bool may_give(const struct control *c, uint32_t at, int64_t now_us)
{
    const struct detail *d = &c->observed.detail[at];
    enum intent_state s = c->money.intent[at].state;
    bool there = s >= INTENT_CREATING && s <= INTENT_REGISTERED;
    return there && d->has_weights && d->weights.whole && d->weights.port != 0 && d->host[0] &&
           !tunnel_is_host(str_from(d->host)) &&
           sighting_is_fresh(&c->observed.seen[at], &c->setup.merge, now_us);
}

/* Those that come first depend on the reader, so that many readers do not all ask the same few. */
void control_seeds(const struct control *c, const struct agent_report *r, int64_t now_us,
                   struct arena *arena, struct agent_reply *ret)
{
    const struct wire_weights *w = &r->weights;
    uint32_t n = c->money.count;
    if (!r->has_weights || w->whole || w->sha256.len == 0 || n == 0 || !ret->known) return;
    struct wire_seed *list = arena_array(arena, WIRE_SEEDS_MAX, sizeof *list);
    uint32_t first = (uint32_t)(hash64(r->instance.data, r->instance.len, 0) % n);
    for (uint32_t k = 0; list && k < n && ret->seed_count < WIRE_SEEDS_MAX; k++) {
        uint32_t at = (first + k) % n;
        const char *has = c->observed.detail[at].weights_sha256;
        if (!may_give(c, at, now_us) || !str_eq_nocase(str_from(has), w->sha256)) continue;
        if (put_seed(c, at, r->instance, arena, &list[ret->seed_count]) == 0) ret->seed_count++;
    }
    ret->seeds = list;
}

/* ---- routers ---- */

static struct router *find_router(struct control *c, struct str id)
{
    struct router *vacant = NULL;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        struct router *rt = &c->observed.router[r];
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
    keep_text(r->reach, sizeof r->reach, s->reach);
    keep_text(r->version, sizeof r->version, s->version);
    r->has_clock = s->date_us > 0 && c->date_known;
    r->clock_ahead_us = s->date_us - (now_us + c->date_ahead_us);
    for (uint32_t k = 0; k < c->setup.service_count; k++) {
        struct str name = str_from(c->desired.service[k].name);
        for (uint32_t i = 0; i < s->service_count; i++) {
            const struct service_demand *d = &s->services[i];
            if (!str_eq(d->service, name)) continue;
            if (d->held > 0 && r->demand[k].last.held == 0) c->urgent = true;
            demand_heard(&r->demand[k], &c->observed.counted[k], d, same_boot, now_us);
        }
    }
    r->endpoint_count = 0;
    for (uint32_t i = 0; i < s->endpoint_count && i < SYNC_ENDPOINTS_MAX; i++) {
        struct routed *e = &r->endpoint[r->endpoint_count];
        if (name_copy(e->instance, sizeof e->instance, s->endpoints[i].instance) < 0) continue;
        e->in_flight = s->endpoints[i].in_flight;
        e->has_perf = s->endpoints[i].has_perf && perf_coef_valid(&s->endpoints[i].perf);
        e->perf = s->endpoints[i].perf;
        r->endpoint_count++;
    }
    refused_take(r, s, now_us);
}

static enum endpoint_state endpoint_state_of(const struct control *c, uint32_t at)
{
    if (c->money.intent[at].state == INTENT_DRAINING) return ENDPOINT_DRAINING;
    return c->observed.seen[at].engine_ready && c->observed.seen[at].state == AGENT_UP
               ? ENDPOINT_READY
               : ENDPOINT_STARTING;
}

static void fill_endpoint(const struct control *c, uint32_t at, int64_t now_us,
                          struct endpoint *ret)
{
    const struct intent *i = &c->money.intent[at];
    const struct detail *d = &c->observed.detail[at];
    *ret = (struct endpoint){
        .instance = str_from(i->id),
        .service = str_from(i->service),
        .pool = str_from(i->pool),
        .model = str_from(d->model),
        .digest = str_from(d->digest),
        .adapters = d->adapters ? d->adapters->list : NULL,
        .adapter_count = d->adapters ? d->adapters->count : 0,
        .host = str_from(d->host),
        .port = d->engine.port,
        .tls = d->engine.tls,
        .kind = d->engine.kind,
        .agent_host = str_from(d->agent_host),
        .agent_port = d->engine.agent_port,
        .agent_tls = d->engine.agent_tls,
        .kv_events = d->engine.kv_events,
        .state = endpoint_state_of(c, at),
        .role = (enum role)d->role,
        .boot = d->engine.boot,
        .price_per_h = i->price_h,
        .context_tokens = d->engine.context_tokens,
        .page_tokens = d->engine.page_tokens,
        .pages_total = d->engine.pages_total,
        .running_max = d->engine.running_max,
        .step_tokens = d->engine.step_tokens,
        .kv_token_bytes = d->engine.kv_token_bytes,
        .task = d->engine.task,
        .has_perf = c->observed.seen[at].has_perf,
        .perf = c->observed.seen[at].perf,
        .clock = d->engine.clock,
        .leaves_ms = leaves_ms(d, now_us),
        .at_risk = d->at_risk || d->machine.health == MACHINE_FAILING,
    };
}

/* Returns true if routers are told of the instance: its agent has named an address, and it is not
 * ending. */
static bool is_endpoint(const struct control *c, uint32_t at)
{
    enum intent_state s = c->money.intent[at].state;
    const struct detail *d = &c->observed.detail[at];
    return (s == INTENT_REGISTERED || s == INTENT_DRAINING) && d->has_engine && d->host[0] &&
           d->engine.port;
}

/* Returns true if the list names every endpoint. The address of one that has not reported since the
 * controller's start is unknown, until it reports or is ended for its silence. */
bool control_is_complete(const struct control *c)
{
    if (!control_has_observed(c))
        return false; /* an instance without a record may still be found */
    for (uint32_t at = 0; at < c->money.count; at++) {
        enum intent_state s = c->money.intent[at].state;
        bool serves =
            (s == INTENT_REGISTERED || s == INTENT_DRAINING) && !c->money.intent[at].aside;
        if (serves && c->observed.seen[at].heard_us == 0) return false;
    }
    return true;
}

static bool is_coming(const struct control *c, uint32_t at)
{
    const struct intent *i = &c->money.intent[at];
    if (i->state < INTENT_REGISTERED) return true;
    return i->state == INTENT_REGISTERED && endpoint_state_of(c, at) == ENDPOINT_STARTING;
}

static void fill_starting(const struct control *c, uint32_t at, int64_t now_us,
                          struct starting *ret)
{
    const struct intent *i = &c->money.intent[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    double left = offer == PLAN_NONE ? 1 : offer_left_s(&c->money.offer[offer], i, now_us);
    *ret = (struct starting){ .service = str_from(i->service), .eta_ms = (uint32_t)(left * 1e3) };
}

/* Returns true if an instance is coming or would be asked for. *ret_wake_s is how long the quickest offer that would
 * be asked takes; 0: none would. */
static bool may_start(const struct control *c, uint32_t service, bool any_coming, int64_t now_us,
                      double *ret_wake_s)
{
    const struct plan_service *s = &c->desired.service[service];
    *ret_wake_s = 0;
    if (s->paused) return any_coming;
    for (uint32_t p = 0; p < s->pool_count; p++) {
        const struct plan_pool *pool = &s->pool[p];
        if (pool->max == 0 || pool->manual == 0 || pool->drained) continue;
        for (uint32_t o = 0; o < pool->offer_count; o++) {
            if (!offer_may_be_asked(&c->money.health[pool->offer[o]], now_us)) continue;
            double lead_s = fmax(1, c->money.offer[pool->offer[o]].lead_s);
            if (*ret_wake_s == 0 || lead_s < *ret_wake_s) *ret_wake_s = lead_s;
        }
    }
    return any_coming || *ret_wake_s > 0;
}

static int fill_lists(struct control *c, int64_t now_us, struct arena *arena,
                      struct router_rules *ret)
{
    struct endpoint *e = arena_array(arena, SYNC_ENDPOINTS_MAX, sizeof *e);
    struct starting *st = arena_array(arena, SYNC_STARTING_MAX, sizeof *st);
    struct service_rules *sv = arena_array(arena, PLAN_SERVICES_MAX, sizeof *sv);
    if (!e || !st || !sv) return -ENOMEM;
    bool coming[PLAN_SERVICES_MAX] = { false }, serving[PLAN_SERVICES_MAX] = { false };
    uint32_t adapters = 0;
    for (uint32_t at = 0; at < c->money.count; at++) {
        uint32_t service = c->observed.detail[at].service;
        if (is_endpoint(c, at) && ret->endpoint_count < SYNC_ENDPOINTS_MAX) {
            fill_endpoint(c, at, now_us, &e[ret->endpoint_count]);
            adapters += e[ret->endpoint_count].adapter_count;
            if (adapters > SYNC_ADAPTERS_MAX) e[ret->endpoint_count].adapter_count = 0;
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
        const struct plan_service *p = &c->desired.service[s];
        double wake_s;
        bool starts = may_start(c, s, coming[s], now_us, &wake_s);
        /* A paused service goes on with its instances; without any, waiting would be for ever. */
        sv[s] = (struct service_rules){ .service = str_from(p->name),
                                        .paused = p->paused && !serving[s] && !coming[s],
                                        .may_start = starts,
                                        .wake_ms = (uint32_t)(wake_s * 1e3),
                                        .slo_ttft_s = p->ttft_slo_s,
                                        .slo_tpot_s = p->tpot_slo_s,
                                        .refuse_late = p->refuse_late,
                                        .has_kv_link = true,
                                        .kv_link_bytes_s = p->kv_link_bytes_s };
    }
    ret->endpoints = e;
    ret->starting = st;
    ret->services = sv;
    ret->service_count = c->setup.service_count;
    return 0;
}

/* Numbers the router among those that were heard lately, so that each may prefer instances of its own
 * while their views of each other are old. */
static void number_router(const struct control *c, const struct router *me, int64_t now_us,
                          struct router_rules *ret)
{
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        if (rt == me) ret->router_index = ret->router_count;
        ret->router_count += rt->id[0] && now_us - rt->heard_us <= DEMAND_FRESH_US;
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
                                  .keys_opened = c->people.keys == KEYS_OPENED,
                                  .has_complete = true,
                                  .complete = control_is_complete(c),
                                  .tenants_version = c->people.tenants_version,
                                  .has_tenants = s->tenants_version != c->people.tenants_version,
                                  .again_ms = SYNC_AGAIN_MS,
                                  .epoch = c->setup.term.epoch };
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

/* ---- demand, summed over the routers ---- */

/* Returns the requests that wait in engines, as their agents report. */
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
        /* A gap of ours is not the router's silence. */
        int64_t since_us = max_i64(rt->heard_us, c->observed.listening_us);
        if (!rt->id[0] || now_us - since_us < ROUTER_FORGET_US) continue;
        log_event(LOG_WARN, "router_forgotten", "router=%s", rt->id);
        rt->id[0] = 0;
    }
}

/* Takes the step times that a router learned, for an engine that reports none; of several routers', those
 * behind which the most samples are. */
static void take_learned(struct control *c, uint32_t at, const struct routed *e)
{
    struct detail *d = &c->observed.detail[at];
    struct sighting *s = &c->observed.seen[at];
    if (!e->has_perf || !d->has_engine || d->engine.has_perf) return;
    if (s->has_perf && s->perf.samples > e->perf.samples) return;
    s->has_perf = true;
    s->perf = e->perf;
}

/* Sums the requests that routers have in flight at each instance. */
static void count_routed(struct control *c, int64_t now_us)
{
    for (uint32_t at = 0; at < c->money.count; at++)
        c->observed.detail[at].routed = 0;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        if (!rt->id[0] || !control_router_is_fresh(rt, now_us)) continue;
        for (uint32_t e = 0; e < rt->endpoint_count; e++) {
            uint32_t at = control_find(c, rt->endpoint[e].instance);
            if (at == UINT32_MAX) continue;
            c->observed.detail[at].routed += rt->endpoint[e].in_flight;
            take_learned(c, at, &rt->endpoint[e]);
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

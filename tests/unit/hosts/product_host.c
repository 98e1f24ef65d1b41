/* product_host.c - feeds the stream to the product's own code: each router's director, its sync
 * message encoded and decoded, agents' reports, and the controller on a cloud in memory. Periods
 * and bounds are the configuration's defaults; timers run where the product's loops have them. */
#include "agent/agent.h"
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "cli/schema.h"
#include "controller/config.h"
#include "controller/control_state.h"
#include "fleet/defaults.h"
#include "router/config.h"
#include "router/core/director.h"
#include "simulator/trace.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/hosts/hosts.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define PRE_ROLL_S 40 /* until all instances run */

struct product_request {
    struct director_request routed;
    struct block_key key[HOST_BLOCKS];
    uint32_t router, generated;
    int64_t arrived_us, first_us, last_us;
};

struct product_router {
    struct director *director;
    struct dispatch *dispatch;         /* the director's */
    int64_t sync_us, look_us, held_us; /* next sync, look and check of held requests */
};

struct product {
    const struct stream *stream;
    struct world *w;
    struct config *defaults;
    struct trace_features *features;
    struct product_router router[HOST_ROUTERS];
    struct product_request request[HOST_REQUESTS];
    struct endpoint listed[HOST_INSTANCES]; /* as last listed, without their texts */
    bool lost[HOST_INSTANCES];
    struct reported_load told[HOST_INSTANCES];
    int64_t told_us[HOST_INSTANCES];
    uint64_t model, seq, agent_seq;
    int64_t zero_us, tick_us, report_us; /* start of the stream; next tick and report */
};

static const struct router_config *router_defaults(const struct product *p)
{
    return config_section_get(p->defaults, router_section.name);
}

/* Reports an engine's load to the controller, as its agent would. */
static void report(struct product *p, uint32_t instance, int64_t second)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(p->w->fake, &count);
    struct stream_load l;
    stream_load(p->stream, instance, second, &l);
    assert_int_equal(count, HOST_INSTANCES);
    uint32_t total = HOST_KV_TOKENS / HOST_PAGE,
             held = ceil_div_u32((uint32_t)l.kv_tokens, HOST_PAGE);
    struct agent_report r = {
        .instance = str_from(in[instance].intent),
        .intent = str_from(in[instance].intent),
        .boot = 2, /* another agent than the one of the pre-roll */
        .seq = ++p->agent_seq,
        .state = AGENT_UP,
        .has_engine = true,
        .engine = { .host = STR("127.0.0.1"),
                    .port = 8200 + instance,
                    .health = ENGINE_READY,
                    .model = STR("chat"),
                    .boot = 1 + instance,
                    .page_tokens = HOST_PAGE,
                    .context_tokens = HOST_KV_TOKENS,
                    .step_tokens = 2048,
                    .running = l.running,
                    .running_max = 256,
                    .waiting = l.waiting,
                    .pages_total = total,
                    .pages_free = total - held - (uint32_t)l.pages_cached,
                    .pages_cached = (uint32_t)l.pages_cached,
                    .has_perf = true,
                    .perf = l.perf,
                    .has_owed = true,
                    .owed = { l.prefill_tokens },
                    .clock = 1,
                    .hardware = STR("a100"),
                    .has_work = true,
                    .work = l.work,
                    .has_spec = true },
    };
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &r.engine.spec, NULL), 0);
    r.engine.kv_token_bytes = (uint32_t)model_spec_kv_token_bytes(&r.engine.spec);
    struct agent_reply reply;
    control_report(p->w->control, &r, p->w->now, &reply);
    assert_true(reply.known);
}

static void held_again(struct product *p, struct product_router *r);

/* Names equal the simulator's, because a policy's chance derives from them. */
static void put_endpoint(struct product *p, struct product_router *r, uint32_t instance)
{
    struct director_endpoint ep;
    uint32_t slot;
    char name[8];
    snprintf(name, sizeof name, "i%u", instance);
    struct endpoint e = p->listed[instance];
    e.instance = str_from(name);
    e.service = STR("chat");
    assert_int_equal(director_endpoint_read(r->director, &e, true, p->w->now, &ep), 0);
    assert_int_equal(director_endpoint_put(r->director, &ep, &slot), 0);
    assert_int_equal(slot, instance);
}

static void put_endpoints(struct product *p, struct product_router *r,
                          const struct router_rules *rules)
{
    assert_int_equal(rules->endpoint_count, HOST_INSTANCES);
    assert_true(router_rules_complete(rules));
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        uint32_t instance = rules->endpoints[i].port - 8200;
        if (p->lost[instance]) continue;
        p->listed[instance] = rules->endpoints[i];
        p->listed[instance].instance = p->listed[instance].pool = p->listed[instance].model =
            p->listed[instance].digest = p->listed[instance].host = (struct str){ 0 };
    }
    director_rules(r->director, rules);
    director_endpoints_begin(r->director);
    for (uint32_t i = 0; i < HOST_INSTANCES; i++)
        if (!p->lost[i]) put_endpoint(p, r, i);
    while (director_endpoint_gone(r->director, true) != ROUTE_NONE)
        continue;
    director_endpoints_end(r->director);
    held_again(p, r);
}

/* Brings the next tick nearer after an urgent message, as the controller's loop does. */
static void urge(struct product *p)
{
    if (control_is_urgent(p->w->control))
        p->tick_us = min_i64(p->tick_us, p->w->now + URGENT_TICK_US);
}

/* Sends a router's message to the controller through the wire, and applies the reply. */
static void sync(struct product *p, uint32_t router)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct product_router *r = &p->router[router];
    arena_init(&arena, SYNC_BYTES_MAX);
    char name[8];
    snprintf(name, sizeof name, "r%u", router);
    struct director_report *said = malloc(sizeof *said);
    must(said);
    director_report(r->director, p->w->now, said);
    struct router_sync in, out = { .router = str_from(name),
                                   .boot = 5,
                                   .seq = ++p->seq,
                                   .window_s = (double)TELEMETRY_WINDOW_US * 1e-6,
                                   .services = said->service,
                                   .service_count = said->service_count };
    struct router_rules rules;
    struct err err = { 0 };
    assert_int_equal(router_sync_encode(&out, &text), 0);
    free(said);
    if (router_sync_decode(buf_view(&text), &arena, &in, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(control_sync(p->w->control, &in, p->w->now, &arena, &rules, NULL), 0);
    urge(p);
    put_endpoints(p, r, &rules);
    r->sync_us = p->w->now + router_defaults(p)->sync_us;
}

/* Makes the routers. The first sync brings the rules; before it a router has no service. */
static void make_routers(struct product *p)
{
    const struct router_config *c = router_defaults(p);
    for (uint32_t i = 0; i < HOST_ROUTERS; i++) {
        const struct director_config config = {
            .dispatch = { .route = &probe_route,
                          .predict = predict_find(c->predict),
                          .index_bytes = (size_t)c->index_bytes,
                          .requests_max = (uint32_t)c->requests_max,
                          .held_max = (uint32_t)c->held_max,
                          .hold_us_max = c->hold_us_max,
                          .seed = 1 + i },
            .migrate = &probe_migrate,
        };
        struct product_router *r = &p->router[i];
        assert_int_equal(director_new(&config, &r->director, NULL), 0);
        r->dispatch = director_dispatch(r->director);
        r->held_us = INT64_MAX;
        r->look_us = p->zero_us;
        sync(p, i);
        r->sync_us = p->zero_us;
    }
}

static void note_load(struct product *p, uint32_t instance)
{
    struct stream_load l;
    stream_load(p->stream, instance, (p->w->now - p->zero_us) / SECOND, &l);
    p->told[instance] = (struct reported_load){ .running = l.running,
                                                .waiting = l.waiting,
                                                .prefill_tokens = l.prefill_tokens,
                                                .kv_tokens = l.kv_tokens,
                                                .uncached_total = l.uncached_total };
    p->told_us[instance] = p->w->now;
}

/* Reports each engine's load to every router, as the stream of the engine's events does. */
static void tell_loads(struct product *p)
{
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        if (p->lost[i]) continue;
        note_load(p, i);
        for (uint32_t r = 0; r < HOST_ROUTERS; r++)
            dispatch_endpoint_report(p->router[r].dispatch, i, &p->told[i], p->w->now, p->w->now);
    }
}

static void tell_agents(struct product *p)
{
    const struct agent_config *agent = config_section_get(p->defaults, agent_section.name);
    for (uint32_t i = 0; i < HOST_INSTANCES; i++)
        if (!p->lost[i]) report(p, i, (p->w->now - p->zero_us) / SECOND);
    p->report_us += agent->report_us;
}

/* Starts the fleet before the stream begins: three instances whose loads were never reported. */
static struct product *product_start(const struct stream *s)
{
    struct product *p = calloc(1, sizeof *p);
    struct config_sources nothing = { 0 };
    struct fake_config plain = { .boot_us = SECOND };
    must(p);
    p->stream = s;
    p->model = hash64("chat", 4, 0);
    if (config_load(&schema, &nothing, &p->defaults, NULL, NULL) < 0) fail_msg("no defaults");
    must(trace_features_new(s->trace, &p->features, NULL) == 0);
    p->w = world_new(&plain);
    struct plan_service *v = &p->w->service;
    v->policy = &scale_static;
    v->scale.count = HOST_INSTANCES;
    v->shaper = &scale_shape_none;
    v->place = &probe_place;
    v->pool_count = 1;
    v->max = HOST_INSTANCES;
    v->kv_link_bytes_s = 25e9;
    v->ttft_slo_s = HOST_SLO_TTFT_S;
    v->tpot_slo_s = HOST_SLO_TPOT_S;
    v->pool[0].max = HOST_INSTANCES;
    v->pool[0].offer_count = 1;
    p->w->router_silent = true;
    world_run(p->w, PRE_ROLL_S);
    assert_int_equal(world_running(p->w), HOST_INSTANCES);
    p->zero_us = p->tick_us = p->report_us = p->w->now;
    tell_agents(p); /* comes first: a router that meets a new boot forgets the load */
    make_routers(p);
    tell_loads(p);
    struct control *c = p->w->control;
    c->money.offer[0].lead_s = HOST_LEAD_S; /* as before the fleet's own launches taught it */
    c->desired.service[0].policy = &probe_scale;
    c->desired.service[0].role = &probe_role;
    c->desired.service[0].power = &probe_power;
    c->observed.power[0].tails.taken_us = p->zero_us;
    return p;
}

static void product_free(struct product *p)
{
    for (uint32_t i = 0; i < HOST_ROUTERS; i++)
        director_free(p->router[i].director);
    trace_features_free(p->features);
    config_free(p->defaults);
    world_free(p->w);
    free(p);
}

/* ---- migrations ---- */

static const struct reported_load *told(void *arg, uint32_t slot, int64_t *ret_told_us)
{
    const struct product *p = arg;
    *ret_told_us = p->told_us[slot];
    return p->told_us[slot] ? &p->told[slot] : NULL;
}

static void migrate(void *arg, struct director_request *r, uint32_t to)
{
    (void)arg, (void)r, (void)to;
    fail_msg("nothing migrates");
}

static void look(struct product *p, struct product_router *r)
{
    const struct director_host host = { p, told, migrate };
    r->look_us = director_look(r->director, &host, p->w->now);
}

/* ---- requests ---- */

static void end(struct product *p, struct product_request *r, bool ok)
{
    int64_t gaps = (int64_t)r->generated - 1;
    struct director_end e = { .ok = ok, .censored = !ok, .generated = r->generated };
    if (ok)
        e.outcome = (struct telemetry_outcome){
            .ttft_s = (double)(r->first_us - r->arrived_us) * 1e-6,
            .tpot_s = gaps > 0 ? (double)((r->last_us - r->first_us) / gaps) * 1e-6 : 0,
            .e2e_s = (double)(r->last_us - r->arrived_us) * 1e-6,
            .prompt_tokens = r->routed.dispatch.prompt_tokens,
            .cached_tokens = stream_cached(p->stream, (uint32_t)(r - p->request)),
            .generated_tokens = r->generated,
        };
    director_end(p->router[r->router].director, &r->routed, &e, p->w->now);
}

static void follow(struct product *p, struct product_request *r, const struct director_verdict *v)
{
    struct product_router *router = &p->router[r->router];
    if (v->hurry) router->sync_us = min_i64(router->sync_us, p->w->now + URGENT_SYNC_US);
    if (v->displaced) end(p, CONTAINER_OF(v->displaced, struct product_request, routed), false);
    if (v->answer == DISPATCH_REFUSE) end(p, r, false);
}

static void held_again(struct product *p, struct product_router *r)
{
    struct director_verdict v;
    struct director_request *c;
    while ((c = director_held_next(r->director, p->w->now, &v)))
        follow(p, CONTAINER_OF(c, struct product_request, routed), &v);
    r->held_us = dispatch_held_deadline_us(r->dispatch, p->w->now);
}

static void arrive(struct product *p, const struct event *e)
{
    struct product_request *r = &p->request[e->request];
    const struct trace_request *t = &p->stream->trace->request[e->request];
    uint32_t keys = stream_keys(p->stream, e->request, r->key);
    r->router = simulator_router(e->request);
    r->arrived_us = p->w->now;
    r->routed.dispatch = (struct dispatch_request){
        .model = p->model, .prompt_tokens = t->prompt_tokens, .keys = r->key, .key_count = keys
    };
    trace_features_of(p->features, e->request, r->key[0].lo, &r->routed.dispatch.features);
    struct product_router *router = &p->router[r->router];
    struct director_verdict v;
    director_arrive(router->director, &r->routed, p->w->now, &v);
    follow(p, r, &v);
    router->held_us = dispatch_held_deadline_us(router->dispatch, p->w->now);
}

static bool is_sent(const struct product_request *r)
{
    return r->routed.dispatch.state == DISPATCH_SENT;
}

static void breaks(struct product *p, struct product_request *r)
{
    struct product_router *router = &p->router[r->router];
    struct director_verdict v;
    r->routed.dispatch.generated = r->generated;
    director_fail(router->director, &r->routed, RETRY_DIED, p->w->now, &v);
    follow(p, r, &v);
    held_again(p, router);
}

static void loses(struct product *p, uint32_t instance)
{
    for (uint32_t i = 0; i < HOST_REQUESTS; i++) {
        struct product_request *r = &p->request[i];
        if (is_sent(r) && r->routed.dispatch.slot == instance) breaks(p, r);
    }
    p->lost[instance] = true;
    for (uint32_t r = 0; r < HOST_ROUTERS; r++)
        director_endpoint_remove(p->router[r].director, instance);
    for (uint32_t r = 0; r < HOST_ROUTERS; r++)
        held_again(p, &p->router[r]);
}

static void returns(struct product *p, uint32_t instance)
{
    p->lost[instance] = false;
    note_load(p, instance); /* for migrations; simulated routers hear loads each second only */
    for (uint32_t r = 0; r < HOST_ROUTERS; r++)
        put_endpoint(p, &p->router[r], instance);
    for (uint32_t r = 0; r < HOST_ROUTERS; r++)
        held_again(p, &p->router[r]);
}

static void block_event(struct product *p, const struct event *e)
{
    struct block_key key[HOST_BLOCKS];
    if (p->lost[e->instance]) return;
    stream_keys(p->stream, e->request, key);
    for (uint32_t r = 0; r < HOST_ROUTERS; r++) {
        struct prefix_index *ix = dispatch_index(p->router[r].dispatch);
        for (uint32_t i = 0; i < e->count; i++) {
            if (e->kind == STORES)
                prefix_index_add(ix, e->instance, key[i]);
            else
                prefix_index_drop(ix, e->instance, key[i]);
        }
    }
}

static void request_event(struct product *p, const struct event *e)
{
    struct product_request *r = &p->request[e->request];
    struct product_router *router = &p->router[r->router];
    if (!is_sent(r)) return;
    if (e->kind == TOKENS) {
        if (r->generated == 0) r->first_us = p->w->now;
        r->generated += e->count;
        r->last_us = p->w->now;
        director_tokens(router->director, &r->routed, e->count, p->w->now);
    } else if (e->kind == ENDS && r->generated > 0) {
        end(p, r, true);
        held_again(p, router);
    } else if (e->kind == BREAKS) {
        breaks(p, r);
    }
}

static void product_event(struct product *p, const struct event *e)
{
    p->w->now = p->zero_us + e->at_us;
    switch (e->kind) {
    case ARRIVES:
        arrive(p, e);
        break;
    case TOKENS:
    case ENDS:
    case BREAKS:
        request_event(p, e);
        break;
    case STORES:
    case DROPS:
        block_event(p, e);
        break;
    case LOSES:
        loses(p, e->instance);
        break;
    case RETURNS:
        returns(p, e->instance);
        break;
    }
}

/* ---- timers ---- */

static int64_t next_us(const struct product *p)
{
    int64_t at_us = min_i64(p->tick_us, p->report_us);
    for (uint32_t i = 0; i < HOST_ROUTERS; i++) {
        const struct product_router *r = &p->router[i];
        at_us = min_i64(at_us, min_i64(r->sync_us, min_i64(r->look_us, r->held_us)));
    }
    return at_us;
}

static void product_timers(struct product *p, int64_t until_us)
{
    const struct controller_section *controller =
        config_section_get(p->defaults, controller_section.name);
    for (int64_t at_us; (at_us = next_us(p)) < until_us;) {
        p->w->now = at_us;
        fake_cloud_turn(p->w->fake, at_us);
        if (at_us >= p->report_us) {
            tell_agents(p);
            tell_loads(p);
        }
        for (uint32_t r = 0; r < HOST_ROUTERS; r++)
            if (at_us >= p->router[r].sync_us) sync(p, r);
        for (uint32_t r = 0; r < HOST_ROUTERS; r++)
            if (at_us >= p->router[r].look_us) look(p, &p->router[r]);
        for (uint32_t r = 0; r < HOST_ROUTERS; r++)
            if (at_us >= p->router[r].held_us) held_again(p, &p->router[r]);
        if (at_us < p->tick_us) continue;
        assert_int_equal(control_tick(p->w->control, at_us), 0);
        p->tick_us = at_us + controller->tick_us;
        urge(p);
    }
}

void feed_product(const struct stream *s, struct probe_log *log)
{
    struct product *p = product_start(s);
    log->zero_us = p->zero_us;
    log->from_us = HOST_FROM_US;
    probe_log_set(log);
    for (uint32_t i = 0; i < s->count; i++) {
        product_timers(p, p->zero_us + s->event[i].at_us);
        product_event(p, &s->event[i]);
    }
    probe_log_set(NULL);
    product_free(p);
}

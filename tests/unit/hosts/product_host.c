/* product_host.c - what runs in the product: dispatch and telemetry of each router, its sync message
 * encoded and decoded, agents' reports, and the controller itself on a cloud in memory, in the periods
 * and bounds that the configuration has by default. */
#include "agent/agent.h"
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "cli/schema.h"
#include "controller/config.h"
#include "controller/control_state.h"
#include "fleet/telemetry.h"
#include "router/config.h"
#include "router/core/dispatch.h"
#include "simulator/trace.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/hosts/hosts.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define PRE_ROLL_S 40 /* until the fleet stands */

struct product_request {
    struct dispatch_request dispatch;
    struct telemetry_place told;
    struct predict_features features;
    uint32_t router, generated;
    int64_t arrived_us, first_us, last_us;
};

struct product {
    const struct stream *stream;
    struct world *w;
    struct config *defaults;
    struct trace_features *features;
    struct dispatch *dispatch[HOST_ROUTERS];
    struct telemetry telemetry[HOST_ROUTERS];
    struct product_request request[HOST_REQUESTS];
    uint64_t model, seq, agent_seq;
    int64_t zero_us, tick_us, report_us, sync_us[HOST_ROUTERS]; /* when each is due */
};

static const struct router_config *router_defaults(const struct product *p)
{
    return config_section_get(p->defaults, router_section.name);
}

/* One agent's report, as its engine would make it. */
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
        .boot = 2, /* not the agent that reported while the fleet came to stand */
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

/* Names as the simulator has them: they are where a policy's chance comes from. */
static void put_endpoints(struct product *p, uint32_t router, const struct router_rules *rules)
{
    assert_int_equal(rules->endpoint_count, HOST_INSTANCES);
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        const struct endpoint *e = &rules->endpoints[i];
        struct dispatch_endpoint ep = {
            .model = p->model,
            .boot = e->boot,
            .ready = e->state == ENDPOINT_READY,
            .takes_ids = true,
            .role = e->role,
            .has_perf = e->has_perf,
            .perf = perf_at_clock(&e->perf, e->clock),
            .token_budget = e->step_tokens,
            .seqs_max = e->running_max,
            .kv_tokens_max = (uint64_t)e->pages_total * e->page_tokens,
            .link_bytes_s = rules->services[0].kv_link_bytes_s,
            .kv_bytes_per_token = e->kv_token_bytes,
            .price_per_hour = e->price_per_h,
        };
        snprintf(ep.name, sizeof ep.name, "i%u", e->port - 8200);
        uint32_t slot;
        assert_int_equal(dispatch_endpoint_put(p->dispatch[router], &ep, &slot), 0);
    }
}

/* A router's message, through the wire, and the controller's answer. */
static void sync(struct product *p, uint32_t router)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, SYNC_BYTES_MAX);
    char name[8];
    snprintf(name, sizeof name, "r%u", router);
    struct service_demand d;
    telemetry_report(&p->telemetry[router], p->w->now, &d);
    dispatch_report(p->dispatch[router], p->model, p->w->now, &d);
    d.service = STR("chat");
    struct router_sync in, out = { .router = str_from(name),
                                   .boot = 5,
                                   .seq = ++p->seq,
                                   .window_s = (double)TELEMETRY_WINDOW_US * 1e-6,
                                   .services = &d,
                                   .service_count = 1 };
    struct router_rules rules;
    struct err err = { 0 };
    assert_int_equal(router_sync_encode(&out, &text), 0);
    if (router_sync_decode(buf_view(&text), &arena, &in, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(control_sync(p->w->control, &in, p->w->now, &arena, &rules, NULL), 0);
    put_endpoints(p, router, &rules);
}

static void make_routers(struct product *p)
{
    const struct router_config *c = router_defaults(p);
    for (uint32_t i = 0; i < HOST_ROUTERS; i++) {
        const struct dispatch_config config = {
            .route = &probe_route,
            .predict = predict_find(c->predict),
            .index_bytes = (size_t)c->index_bytes,
            .requests_max = (uint32_t)c->requests_max,
            .held_max = (uint32_t)c->held_max,
            .hold_us_max = c->hold_us_max,
            .seed = 1 + i,
        };
        assert_int_equal(dispatch_new(&config, &p->dispatch[i], NULL), 0);
        dispatch_peers_set(p->dispatch[i], i, HOST_ROUTERS);
    }
}

/* The fleet stands before the stream begins: three instances, of whose loads nobody has heard. */
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
    make_routers(p);
    p->zero_us = p->w->now;
    p->tick_us = p->report_us = p->zero_us;
    for (uint32_t r = 0; r < HOST_ROUTERS; r++)
        p->sync_us[r] = p->zero_us;
    struct control *c = p->w->control;
    c->money.offer[0].lead_s = HOST_LEAD_S; /* less was learned while the fleet came to stand */
    c->desired.service[0].policy = &probe_scale;
    c->desired.service[0].role = &probe_role;
    c->desired.service[0].power = &probe_power;
    c->observed.power[0].tails.taken_us = p->zero_us;
    return p;
}

static void product_free(struct product *p)
{
    for (uint32_t i = 0; i < HOST_ROUTERS; i++)
        dispatch_free(p->dispatch[i]);
    trace_features_free(p->features);
    config_free(p->defaults);
    world_free(p->w);
    free(p);
}

/* The stream of an engine's events that every router reads tells its load too. */
static void tell_loads(struct product *p)
{
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        struct stream_load l;
        stream_load(p->stream, i, (p->w->now - p->zero_us) / SECOND, &l);
        const struct reported_load said = { .running = l.running,
                                            .waiting = l.waiting,
                                            .prefill_tokens = l.prefill_tokens,
                                            .kv_tokens = l.kv_tokens,
                                            .uncached_total = l.uncached_total };
        for (uint32_t r = 0; r < HOST_ROUTERS; r++)
            dispatch_endpoint_report(p->dispatch[r], i, &said, p->w->now, p->w->now);
    }
}

static void tell_agents(struct product *p)
{
    const struct agent_config *agent = config_section_get(p->defaults, agent_section.name);
    for (uint32_t i = 0; i < HOST_INSTANCES; i++)
        report(p, i, (p->w->now - p->zero_us) / SECOND);
    p->report_us += agent->report_us;
}

static void product_timers(struct product *p, int64_t until_us)
{
    const struct controller_section *controller =
        config_section_get(p->defaults, controller_section.name);
    for (;;) {
        int64_t at_us = min_i64(p->tick_us, p->report_us);
        for (uint32_t r = 0; r < HOST_ROUTERS; r++)
            at_us = min_i64(at_us, p->sync_us[r]);
        if (at_us >= until_us) return;
        p->w->now = at_us;
        fake_cloud_turn(p->w->fake, at_us);
        bool reports = at_us >= p->report_us;
        if (reports) tell_agents(p);
        for (uint32_t r = 0; r < HOST_ROUTERS; r++) {
            if (at_us < p->sync_us[r]) continue;
            sync(p, r);
            p->sync_us[r] += router_defaults(p)->sync_us;
        }
        if (reports) tell_loads(p); /* behind the sync that names the endpoints first */
        if (at_us < p->tick_us) continue;
        assert_int_equal(control_tick(p->w->control, at_us), 0);
        p->tick_us += controller->tick_us;
    }
}

static void arrive(struct product *p, const struct event *e)
{
    struct product_request *r = &p->request[e->request];
    const struct trace_request *t = &p->stream->trace->request[e->request];
    struct telemetry *telemetry;
    r->router = simulator_router(e->request);
    telemetry = &p->telemetry[r->router];
    r->arrived_us = p->w->now;
    r->dispatch = (struct dispatch_request){ .model = p->model,
                                             .prompt_tokens = t->prompt_tokens,
                                             .slo_ttft_s = HOST_SLO_TTFT_S,
                                             .slo_tpot_s = HOST_SLO_TPOT_S };
    trace_features_of(p->features, e->request, 0, &r->dispatch.features);
    struct dispatch_verdict v = dispatch_arrive(p->dispatch[r->router], &r->dispatch, p->w->now);
    assert_int_equal(v.answer, DISPATCH_SEND);
    telemetry_arrived(telemetry, t->prompt_tokens, r->dispatch.length.mean, p->w->now);
    telemetry_queued(telemetry, &r->told, r->dispatch.prompt_tokens - r->dispatch.hit_tokens,
                     r->dispatch.length.mean, p->w->now);
}

static void end(struct product *p, const struct event *e, struct product_request *r)
{
    struct telemetry *t = &p->telemetry[r->router];
    telemetry_unqueued(t, &r->told);
    dispatch_end(p->dispatch[r->router], &r->dispatch, r->generated, false, p->w->now);
    int64_t gaps = r->generated - 1;
    const struct telemetry_outcome o = {
        .ttft_s = (double)(r->first_us - r->arrived_us) * 1e-6,
        .tpot_s = gaps > 0 ? (double)((r->last_us - r->first_us) / gaps) * 1e-6 : 0,
        .e2e_s = (double)(r->last_us - r->arrived_us) * 1e-6,
        .ttft_slo_s = HOST_SLO_TTFT_S,
        .tpot_slo_s = HOST_SLO_TPOT_S,
        .prompt_tokens = r->dispatch.prompt_tokens,
        .cached_tokens = stream_cached(p->stream, e->request),
        .generated_tokens = r->generated,
    };
    telemetry_finished(t, &o, p->w->now);
}

static void product_event(struct product *p, const struct event *e)
{
    struct product_request *r = &p->request[e->request];
    p->w->now = p->zero_us + e->at_us;
    if (e->kind == ARRIVES) {
        arrive(p, e);
        return;
    }
    if (r->dispatch.state != DISPATCH_SENT) return;
    if (e->kind == TOKENS) {
        if (r->generated == 0) r->first_us = p->w->now;
        r->generated += e->count;
        r->last_us = p->w->now;
        telemetry_unqueued(&p->telemetry[r->router], &r->told);
        dispatch_tokens(p->dispatch[r->router], &r->dispatch, e->count, p->w->now);
    } else if (e->kind == ENDS) {
        end(p, e, r);
    } else {
        r->dispatch.generated = r->generated;
        struct dispatch_verdict v =
            dispatch_fail(p->dispatch[r->router], &r->dispatch, RETRY_DIED, p->w->now);
        assert_int_equal(v.answer, DISPATCH_SEND); /* no request is held: the periods stay even */
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

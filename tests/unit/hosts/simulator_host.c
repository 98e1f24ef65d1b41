/* simulator_host.c - feeds the stream to the simulator's hosts (run.h: routers, demand, heard,
 * control, roles, clocks) through instances that do what the stream says. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/perf/roofline.h"
#include "simulator/run.h"
#include "tests/unit/hosts/hosts.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

struct sim_host {
    const struct stream *stream;
    struct run run;
    struct sim_result result;
    struct sim_control_setup scaling;
    const struct instance_kind *engine; /* the kind that the scripted one replaces */
    struct flight *flight[HOST_REQUESTS];
    bool lost[HOST_INSTANCES];
    struct roofline roofline;
};

static struct sim_host *sim; /* the host of the scripted instances */

static int take(struct instance *in, struct flight *f, int64_t now_us, struct err *err)
{
    (void)in, (void)now_us, (void)err;
    sim->flight[f->request] = f;
    return 0;
}

static struct stream_load load_now(const struct instance *in, int64_t now_us)
{
    struct stream_load l;
    stream_load(sim->stream, in->config.place, now_us / SECOND, &l);
    return l;
}

static void load(struct instance *in, int64_t now_us, struct instance_load *ret)
{
    const struct stream_load l = load_now(in, now_us);
    *ret = (struct instance_load){ .running = l.running,
                                   .waiting = l.waiting,
                                   .prefill_tokens = l.prefill_tokens,
                                   .kv_tokens = l.kv_tokens,
                                   .kv_tokens_max = HOST_KV_TOKENS,
                                   .pages_cached = l.pages_cached,
                                   .perf = l.perf };
}

static void stats(struct instance *in, struct instance_stats *ret)
{
    const struct stream_load l = load_now(in, sim->run.now_us);
    *ret = (struct instance_stats){ .prompt_tokens = l.uncached_total + 7, .hit_tokens = 7 };
}

static void work(struct instance *in, int64_t now_us, struct instance_work *ret)
{
    *ret = (struct instance_work){ &sim->roofline, load_now(in, now_us).work };
}

static void leave(struct instance *in)
{
    sim->engine->free(in);
}

/* The kind must offer to hold a session, but the probe never migrates one. */
static void hold(struct instance *in, struct flight *f, int64_t now_us)
{
    (void)in, (void)f, (void)now_us;
    fail_msg("nothing migrates");
}

static const struct instance_kind scripted = {
    .submit = take, .load = load, .stats = stats, .work = work, .hold = hold, .free = leave
};

static void sim_start(struct sim_host *h, const struct stream *s)
{
    struct sim_config config = { .seed = HOST_SEED,
                                 .pool_count = 1,
                                 .route = &probe_route,
                                 .role = &probe_role,
                                 .migrate = &probe_migrate,
                                 .power = &probe_power,
                                 .routers = HOST_ROUTERS,
                                 .kv_tokens = HOST_KV_TOKENS,
                                 .page_tokens = HOST_PAGE,
                                 .slo_ttft_s = HOST_SLO_TTFT_S,
                                 .slo_tpot_s = HOST_SLO_TPOT_S,
                                 .scaling = &h->scaling };
    config.pool[0] = (struct sim_pool){
        .hardware = hardware_find(STR("a100")), .tp = 1, .count = HOST_INSTANCES, .price_h = 1
    };
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &config.model, NULL), 0);
    h->scaling.pool[0] = (struct sim_control_pool){ .max = HOST_INSTANCES,
                                                    .start = HOST_INSTANCES,
                                                    .lead_s = HOST_LEAD_S };
    h->scaling.service[0] = (struct sim_control_service){ .policy = &probe_scale,
                                                          .shaper = &scale_shape_none,
                                                          .place = &probe_place,
                                                          .scale = SCALE_CONFIG_DEFAULT };
    h->stream = s;
    struct err err = { 0 };
    if (sim_config_check(&config, s->trace, &err) < 0) fail_msg("%s", err.text);
    h->run.config = sim_config_resolved(&config, s->trace);
    h->run.trace = s->trace;
    h->run.result = &h->result;
    assert_true(roofline_init(&h->roofline, config.pool[0].hardware, &config.model, 1));
    if (run_start(&h->run, &err) < 0) fail_msg("%s", err.text);
    run_at(&h->run, &h->run.report, 0, RANK_REPORT);
    run_at(&h->run, &h->run.clocks.tick, 0, RANK_POWER);
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        h->engine = h->run.instance[i]->kind;
        h->run.instance[i]->kind = &scripted;
    }
}

/* Runs a timer's event; reports of lost instances are left out. */
static void without_lost(struct sim_host *h, struct heap_node *node, int64_t until_us)
{
    struct instance *saved[HOST_INSTANCES];
    uint32_t rank = (uint32_t)(node->key % RUN_RANKS);
    bool reports = rank == RANK_REPORT || rank == RANK_CONTROL;
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        saved[i] = h->run.instance[i];
        if (reports && h->lost[i]) h->run.instance[i] = NULL;
    }
    run_happen(&h->run, node, until_us);
    for (uint32_t i = 0; i < HOST_INSTANCES; i++)
        h->run.instance[i] = saved[i];
}

static void sim_timers(struct sim_host *h, int64_t until_us)
{
    for (struct heap_node *node; (node = heap_peek(&h->run.events));) {
        if (node->key / RUN_RANKS >= until_us) return;
        without_lost(h, node, until_us);
    }
}

static bool is_sent(const struct flight *f)
{
    return f && f->routed.dispatch.state == DISPATCH_SENT;
}

static void breaks(struct sim_host *h, uint32_t request)
{
    struct flight *f = h->flight[request];
    struct instance *in = h->run.instance[f->instance];
    h->flight[request] = NULL;
    list_remove(&f->on_instance);
    in->in_flight--;
    kv_transfers_forget(&h->run, f);
    routers_died(&h->run, f);
}

static void look_at_held(struct run *run)
{
    for (uint32_t r = 0; r < HOST_ROUTERS; r++)
        routers_look_at_held(run, r);
}

static void engine_event(struct sim_host *h, const struct event *e)
{
    struct run *run = &h->run;
    struct instance *in = run->instance[e->instance];
    if (e->kind == LOSES) {
        for (uint32_t i = 0; i < HOST_REQUESTS; i++)
            if (is_sent(h->flight[i]) && h->flight[i]->instance == e->instance) breaks(h, i);
        routers_endpoint_gone(run, in);
        h->lost[e->instance] = true;
        look_at_held(run);
    } else if (e->kind == RETURNS) {
        h->lost[e->instance] = false;
        routers_endpoint(run, in);
        look_at_held(run);
    } else if (!h->lost[e->instance]) {
        struct block_key key[HOST_BLOCKS];
        stream_keys(h->stream, e->request, key);
        for (uint32_t i = 0; i < e->count; i++)
            in->config.hooks.block(run, in, key[i], e->kind == STORES, run->now_us);
    }
}

static void sim_event(struct sim_host *h, const struct event *e)
{
    struct run *run = &h->run;
    run->now_us = e->at_us;
    if (e->kind >= STORES) {
        engine_event(h, e);
        return;
    }
    if (e->kind == ARRIVES) {
        routers_arrive(run, e->request);
        return;
    }
    struct flight *f = h->flight[e->request];
    if (!is_sent(f)) return;
    const struct instance_hooks *hooks = &run->instance[f->instance]->config.hooks;
    if (e->kind == TOKENS) {
        if (f->generated == 0) f->cached_tokens = stream_cached(h->stream, e->request);
        hooks->tokens(hooks->arg, f, e->count, run->now_us, run->now_us);
    } else if (e->kind == ENDS && f->generated > 0) {
        h->flight[e->request] = NULL;
        hooks->ended(hooks->arg, f, run->now_us);
    } else if (e->kind == BREAKS) {
        breaks(h, e->request);
    }
}

void feed_simulator(const struct stream *s, struct probe_log *log)
{
    sim = calloc(1, sizeof *sim);
    must(sim);
    log->from_us = HOST_FROM_US;
    probe_log_set(log);
    sim_start(sim, s);
    for (uint32_t i = 0; i < s->count; i++) {
        sim_timers(sim, s->event[i].at_us);
        sim_event(sim, &s->event[i]);
    }
    probe_log_set(NULL);
    run_stop(&sim->run);
    sim_result_fini(&sim->result);
    free(sim);
}

uint32_t simulator_router(uint32_t request)
{
    return (uint32_t)(rng_at(HOST_SEED ^ WORLD_ROUTER, request) % HOST_ROUTERS);
}

/* t_sim_worlds.c - tests invariants of runs in small worlds drawn by seed, with all a run knows in them:
 * requests in equal requests out, the bill equals the time that instances stood, and a run depends on
 * its inputs alone.
 *
 * A failing world is named by its seed: world_of(seed) draws it again. */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "simulator/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define WORLDS 120
#define NEAR 1e-9 /* relative: sums of floats */

struct world_case {
    struct sim_config config;
    struct sim_control_setup control;
    struct trace *trace;
    bool scales;
};

static bool chance(struct rng *r, double p)
{
    return rng_f64(r) < p;
}

/* ---- drawing ---- */

static struct trace *draw_trace(struct rng *r, uint32_t services)
{
    static const char *const arrivals[] = { "poisson", "constant", "gamma,cv=3" };
    static const char *const talk[] = {
        "", ",turns=uniform(1,4),think=exponential(1),block=16,system=1500,systems=3",
        ",output_max=60"
    };
    char text[400];
    struct generate_spec spec;
    struct trace *t;
    snprintf(text, sizeof text,
             "%s,rate=%.2f,n=%u,services=%u,prompt=lognormal(%u,1),output=lognormal(%u,2)%s",
             arrivals[rng_below(r, COUNT_OF(arrivals))], 1 + 12 * rng_f64(r),
             40 + (uint32_t)rng_below(r, 100), services, 100 + (uint32_t)rng_below(r, 1500),
             10 + (uint32_t)rng_below(r, 120), talk[rng_below(r, COUNT_OF(talk))]);
    assert_int_equal(generate_parse(str_from(text), &spec, NULL), 0);
    assert_int_equal(generate_trace(&spec, rng_u64(r), &t, NULL), 0);
    return t;
}

/* Draws a pool; all pools of a service have one price, so that the service's cost is known. */
static void draw_pool(struct rng *r, struct sim_config *c, uint32_t service, bool serial)
{
    static const char *const names[] = { "a100", "l4", "h100", "a10g" };
    struct sim_pool *p = &c->pool[c->pool_count++];
    *p = (struct sim_pool){
        .count = 1 + (uint32_t)rng_below(r, 3), .tp = 1, .service = service, .price_h = 1 + service
    };
    if (serial) return;
    if (chance(r, 0.2)) {
        p->has_step = true;
        p->step = (struct perf_coef){ .step_s = 0.02,
                                      .prefill_token_s = 1e-4,
                                      .decode_seq_s = 5e-4,
                                      .kv_read_s = 1e-7,
                                      .attend_s = 1e-9 };
    } else {
        p->hardware = hardware_find(str_from(names[rng_below(r, COUNT_OF(names))]));
    }
}

static void draw_rows(struct rng *r, struct sim_config *c, bool one_service, bool serial)
{
    c->route = route_table[rng_below(r, route_count)];
    if (chance(r, 0.2)) c->route = route_find(STR("mooncake_fetch")); /* the only fetching one */
    c->preset = chance(r, 0.5) ? preset_table[rng_below(r, preset_count)] : NULL;
    c->perf = perf_table[rng_below(r, perf_count)];
    c->power = power_table[rng_below(r, power_count)];
    c->power_limit_watts = chance(r, 0.5) ? 900 : 0;
    c->kv_tokens = chance(r, 0.3) ? 9000 + rng_below(r, 20000) : 40000;
    if (!one_service || serial) return;
    if (chance(r, 0.6)) c->migrate = migrate_table[rng_below(r, migrate_count)];
    if (chance(r, 0.4)) {
        c->role = role_table[rng_below(r, role_count)];
        for (uint32_t p = 0; p < c->pool_count; p++)
            c->pool[p].role = (enum role)rng_below(r, ROLE_COUNT);
    } else if (c->pool_count > 1 && chance(r, 0.3)) {
        c->pool[0].role = ROLE_PREFILL;
        c->pool[1].role = ROLE_DECODE;
    }
}

static void draw_scaling(struct rng *r, struct world_case *w)
{
    struct sim_control_setup *s = &w->control;
    *s = (struct sim_control_setup){ .notice_s = 3 * rng_f64(r), .lead_sigma = 0.3 };
    for (uint32_t k = 0; k < SIM_SERVICES_MAX; k++) {
        s->service[k].scale = SCALE_CONFIG_DEFAULT;
        s->service[k].policy = scale_table[rng_below(r, scale_count)];
        uint32_t place = (uint32_t)rng_below(r, place_count);
        s->service[k].place = place_table[place];
    }
    for (uint32_t p = 0; p < w->config.pool_count; p++)
        s->pool[p] = (struct sim_control_pool){ .min = chance(r, 0.5),
                                                .max = 2 + (uint32_t)rng_below(r, 5),
                                                .start = chance(r, 0.7),
                                                .lead_s = 8 * rng_f64(r),
                                                .fail_share = chance(r, 0.5) ? 0.3 : 0,
                                                .life_s = chance(r, 0.5) ? 5 + 30 * rng_f64(r) : 0,
                                                .spot = chance(r, 0.5),
                                                .zone = (uint32_t)rng_below(r, 2) };
    s->zone[0] = (struct sim_zone){ 10, 5 };
    s->zone[1] = (struct sim_zone){ 6, 8 };
    for (uint32_t p = 0; p < w->config.pool_count; p++)
        if (w->config.pool[p].role == ROLE_BOTH && s->pool[p].start == 0)
            w->config.pool[p].count = 0; /* else `start` would come from it */
    w->config.scaling = s;
    w->scales = true;
}

static struct world_case *world_of(uint64_t seed)
{
    struct world_case *w = calloc(1, sizeof *w);
    assert_non_null(w);
    struct rng r;
    rng_seed(&r, seed);
    uint32_t services = chance(&r, 0.25) ? 2 : 1;
    bool serial = services == 1 && chance(&r, 0.1);
    struct sim_config *c = &w->config;
    *c = (struct sim_config){ .seed = rng_below(&r, 1000),
                              .routers = 1 + (uint32_t)rng_below(&r, 2),
                              .report_delay_us = 100000 + (int64_t)rng_below(&r, 1000000),
                              .event_lag_us = chance(&r, 0.5) ? 20000 : 0,
                              .link_bytes_s = chance(&r, 0.5) ? 25e9 : 1e8,
                              .bias_sigma = 0.1,
                              .residual_sigma = 0.05,
                              .slo_ttft_s = 1,
                              .slo_tpot_s = 0.05,
                              .drain_s = chance(&r, 0.3) ? 5 : 200 };
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &c->model, NULL), 0);
    for (uint32_t k = 0; k < services; k++)
        draw_pool(&r, c, k, serial);
    if (!serial && chance(&r, 0.6)) draw_pool(&r, c, 0, false);
    draw_rows(&r, c, services == 1, serial);
    if (chance(&r, 0.6)) draw_scaling(&r, w);
    w->trace = draw_trace(&r, services);
    return w;
}

static void world_free(struct world_case *w)
{
    trace_free(w->trace);
    free(w);
}

/* ---- invariants ---- */

static bool is_near(double a, double b)
{
    return fabs(a - b) <= NEAR * fmax(1, fmax(fabs(a), fabs(b)));
}

static void every_request_ends_once(const struct world_case *w, const struct sim_result *r)
{
    uint32_t ended[SIM_END_COUNT] = { 0 }, sum = 0;
    for (uint32_t i = 0; i < r->offered; i++) {
        const struct sim_outcome *o = &r->outcome[i];
        const struct trace_request *q = &w->trace->request[i];
        ended[o->end]++;
        uint32_t most =
            q->output_max && q->output_max < q->output_tokens ? q->output_max : q->output_tokens;
        assert_true(o->arrival_us == q->at_us && o->service == q->service);
        assert_true(o->generated <= most);
        if (o->end == SIM_COMPLETED) assert_int_equal(o->generated, most);
        if (o->end == SIM_REJECTED || o->end == SIM_TOO_LONG) assert_int_equal(o->generated, 0);
        if (o->generated == 0) continue;
        assert_true(o->first_us >= o->arrival_us && o->last_us >= o->first_us);
        assert_true((o->generated > 1) == (o->last_us > o->first_us));
        assert_true(o->cached_tokens < q->prompt_tokens);
    }
    for (int e = 0; e < SIM_END_COUNT; e++) {
        assert_int_equal(r->ended[e], ended[e]);
        sum += ended[e];
    }
    assert_int_equal(sum, w->trace->count);
}

static void what_stood_is_paid(const struct world_case *w, const struct sim_result *r)
{
    const struct sim_config *c = &w->config;
    double seconds = 0, cost = 0, stood = 0;
    for (uint32_t k = 0; k < SIM_SERVICES_MAX; k++) {
        assert_true(r->service[k].instance_seconds >= 0);
        assert_true(r->service[k].instances_max <= r->instances_max);
        assert_true(r->service[k].instance_seconds <=
                    r->service[k].instances_max * r->stood_s * (1 + NEAR));
        seconds += r->service[k].instance_seconds;
        cost += r->service[k].instance_seconds / 3600 * (1 + k);
    }
    assert_true(is_near(seconds, r->instance_seconds) && is_near(cost, r->cost_usd));
    assert_true(is_near(r->gpu_seconds, r->instance_seconds)); /* one device each */
    assert_true(r->stood_s >= r->span_s - 1e-6);
    assert_true(r->energy_j >= 0 && isfinite(r->energy_j));
    assert_true(r->hotspot >= 0 && isfinite(r->hotspot));
    assert_true(r->stall_s >= 0 && r->link_bytes >= 0 && r->hit_tokens <= r->prompt_tokens);
    assert_true(r->lost + r->launches_failed <= r->launches + r->instances_max);
    assert_true(r->floor_s >= 0 && r->floor_instance_seconds <= r->instance_seconds * (1 + NEAR));
    if (w->scales) return;
    for (uint32_t p = 0; p < c->pool_count; p++)
        stood += c->pool[p].count * r->stood_s;
    assert_true(is_near(stood, r->instance_seconds));
}

static bool are_equal(const struct sim_result *a, const struct sim_result *b)
{
    return a->digest == b->digest && a->events == b->events && a->steps == b->steps &&
           is_near(a->cost_usd, b->cost_usd) && is_near(a->energy_j, b->energy_j) &&
           a->migrations == b->migrations && a->fetches == b->fetches && a->lost == b->lost;
}

static struct sim_result run(const struct world_case *w, uint64_t seed)
{
    struct sim_result r;
    struct err err = { 0 };
    if (sim_run(&w->config, w->trace, &r, &err) < 0)
        fail_msg("world %lu: %s", (unsigned long)seed, err_text(&err, -EINVAL));
    return r;
}

/* Counts each kind of event: over all worlds together none may be missing. */
struct seen {
    uint64_t ended[SIM_END_COUNT];
    uint64_t handoffs, migrations, fetches, swaps, preemptions, roles, lost, failed, trips, hits,
        resumed;
};

static void note(struct seen *s, const struct sim_result *r)
{
    for (int e = 0; e < SIM_END_COUNT; e++)
        s->ended[e] += r->ended[e];
    s->handoffs += r->handoffs, s->migrations += r->migrations, s->fetches += r->fetches;
    s->swaps += r->swaps, s->preemptions += r->preemptions, s->roles += r->role_changes;
    s->lost += r->lost, s->failed += r->launches_failed, s->trips += r->trips;
    s->hits += r->hit_tokens, s->resumed += r->resumed;
}

static void what_comes_in_goes_out(void **state)
{
    (void)state;
    struct seen s = { 0 };
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct world_case *w = world_of(seed);
        struct sim_result first = run(w, seed), again = run(w, seed);
        w->config.exact = true;
        struct sim_result exact = run(w, seed);
        if (!are_equal(&first, &again) || !are_equal(&first, &exact))
            fail_msg("world %lu: the runs differ", (unsigned long)seed);
        every_request_ends_once(w, &first);
        what_stood_is_paid(w, &first);
        note(&s, &first);
        sim_result_fini(&first);
        sim_result_fini(&again);
        sim_result_fini(&exact);
        world_free(w);
    }
    for (int e = 0; e < SIM_END_COUNT; e++)
        if (e != SIM_TOO_LONG) assert_true(s.ended[e] > 0);
    assert_true(s.handoffs && s.migrations && s.fetches && s.swaps && s.preemptions && s.roles);
    assert_true(s.lost && s.failed && s.trips && s.hits && s.resumed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_in_goes_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

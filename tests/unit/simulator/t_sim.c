/* t_sim.c - tests runs of the simulator with known outcomes, and that skipping ahead equals going
 * step by step. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "simulator/generate.h"
#include "simulator/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- runs with known outcomes ---- */

/* Makes prompts of one to five blocks; every third shares its first two with the others. */
static struct trace *make_trace(uint32_t count, int64_t gap_us, bool blocks)
{
    struct trace *t;
    assert_int_equal(trace_new(&t, NULL), 0);
    t->block_tokens = blocks ? 512 : 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = 1 + i % 5;
        uint64_t id[5];
        for (uint32_t b = 0; b < n; b++)
            id[b] = i % 3 == 0 && b < 2 ? b : 1000 + 10 * (uint64_t)i + b;
        struct trace_request r = { .at_us = i * gap_us,
                                   .prompt_tokens = n * 512 - i % 7,
                                   .output_tokens = 1 + (uint32_t)(rng_at(7, i) % 300),
                                   .block_count = blocks ? n : 0 };
        assert_int_equal(trace_append(t, &r, blocks ? id : NULL, (struct str){ 0 }, NULL), 0);
    }
    return t;
}

static struct sim_config config_of(const char *hardware, uint32_t count)
{
    struct sim_config c = { .seed = 3, .pool_count = 1, .routers = 1, .slo_tpot_s = 0.1 };
    c.pool[0] = (struct sim_pool){ .count = count, .tp = 1, .price_h = 3.6 };
    if (hardware) c.pool[0].hardware = hardware_find(str_from(hardware));
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
    if (hardware) c.bias_sigma = c.residual_sigma = 0.05;
    return c;
}

static struct sim_result run(const struct sim_config *c, const struct trace *t)
{
    struct sim_result r;
    struct err err = { 0 };
    assert_int_equal(sim_run(c, t, &r, &err), 0);
    uint32_t ended = 0;
    for (uint32_t i = 0; i < SIM_END_COUNT; i++)
        ended += r.ended[i];
    assert_int_equal(ended, t->count);
    return r;
}

static void equal_inputs_give_equal_digests_and_other_seeds_do_not(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(400, 20000, true);
    struct sim_config c = config_of("a100", 4);
    struct sim_result a = run(&c, t), b = run(&c, t);
    assert_true(a.digest == b.digest);
    assert_int_equal(a.ended[SIM_COMPLETED], 400);
    c.seed = 4;
    struct sim_result other = run(&c, t);
    assert_true(other.digest != a.digest);
    sim_result_fini(&a);
    sim_result_fini(&b);
    sim_result_fini(&other);
}

static void the_serial_reference_is_arithmetic(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t;
    assert_int_equal(trace_new(&t, NULL), 0);
    t->block_tokens = 512;
    /* The second request waits for the first and hits one of its two blocks. */
    uint64_t first[] = { 1, 2 }, second[] = { 1, 3 };
    struct trace_request r[] = {
        { .at_us = 0, .prompt_tokens = 1024, .output_tokens = 3, .block_count = 2 },
        { .at_us = 1000, .prompt_tokens = 1000, .output_tokens = 1, .block_count = 2 },
    };
    assert_int_equal(trace_append(t, &r[0], first, (struct str){ 0 }, NULL), 0);
    assert_int_equal(trace_append(t, &r[1], second, (struct str){ 0 }, NULL), 0);
    struct sim_config c = config_of(NULL, 1);
    struct sim_result got = run(&c, t);
    assert_int_equal(got.outcome[0].first_us, 128000);
    assert_int_equal(got.outcome[0].last_us, 168000);
    assert_int_equal(got.outcome[1].cached_tokens, 512);
    assert_int_equal(got.outcome[1].first_us, 128000 + 488 * 125);
    assert_int_equal(got.hit_tokens, 512);
    sim_result_fini(&got);
}

static void shared_blocks_are_found_and_others_are_not(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(300, 100000, true);
    struct sim_config c = config_of("a100", 1);
    struct sim_result r = run(&c, t);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t shared = i % 3 == 0 ? min_u32(t->request[i].prompt_tokens, 1024) : 0;
        assert_true(r.outcome[i].cached_tokens <= shared);
        if (i > 30 && shared == 1024) assert_true(r.outcome[i].cached_tokens >= 1008);
    }
    sim_result_fini(&r);
}

/* No policy sees the future: other lengths and arrivals from `cut` on leave everything sent before
 * unchanged. Requests under way at the cut may get other lengths too, if they agree in the tokens
 * generated before it. */
static void the_future_never_enters_a_view(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < route_count; p++) {
        CLEANUP(trace_freep) struct trace *t = make_trace(600, 8000, true);
        struct sim_config c = config_of("a100", 4);
        c.route = route_table[p];
        struct sim_result a = run(&c, t);
        int64_t cut_us = t->request[300].at_us;
        for (uint32_t i = 0; i < t->count; i++) {
            if (i >= 300) t->request[i].at_us += 3000 * (i - 299);
            if (i >= 300 || a.outcome[i].last_us > cut_us) t->request[i].output_tokens += 100;
        }
        struct sim_result b = run(&c, t);
        for (uint32_t i = 0; i < 300; i++) {
            if (a.outcome[i].first_us > cut_us) continue;
            assert_int_equal(a.outcome[i].instance, b.outcome[i].instance);
            assert_int_equal(a.outcome[i].first_us, b.outcome[i].first_us);
        }
        sim_result_fini(&a);
        sim_result_fini(&b);
    }
}

/* Two services with their own pools serve only their own requests. */
static void services_do_not_mix(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(200, 50000, false);
    for (uint32_t i = 0; i < t->count; i++)
        t->request[i].service = i % 2;
    struct sim_config c = config_of("a100", 2);
    struct sim_result r;
    struct err err = { 0 };
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL); /* service 1 has no pool */
    c.pool[1] = c.pool[0];
    c.pool[1].service = 1;
    c.pool[1].has_model = true;
    assert_int_equal(model_spec_find(STR("llama-2-7b"), &c.pool[1].model, NULL), 0);
    c.pool_count = 2;
    r = run(&c, t);
    for (uint32_t i = 0; i < t->count; i++)
        assert_int_equal(r.outcome[i].instance / 2, i % 2);
    sim_result_fini(&r);
}

static void what_cannot_be_served_is_counted_as_such(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(10, 1000000, false);
    t->request[4].prompt_tokens = 3000000;
    struct sim_config c = config_of("l4", 1);
    struct sim_result r = run(&c, t);
    assert_int_equal(r.ended[SIM_TOO_LONG], 1);
    assert_int_equal(r.outcome[4].end, SIM_TOO_LONG);
    sim_result_fini(&r);

    c.drain_s = 1e-3;
    t->request[9].output_tokens = 300;
    r = run(&c, t);
    assert_int_equal(r.outcome[9].end, SIM_UNFINISHED);
    sim_result_fini(&r);
}

/* A run cut off after a second of draining is billed up to then. */
static void an_unfinished_run_is_billed_to_its_end(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(40, 1000, false);
    struct sim_config c = config_of("a100", 1);
    c.drain_s = 1;
    struct sim_result r = run(&c, t);
    assert_true(r.ended[SIM_UNFINISHED] > 0);
    assert_true(fabs(r.stood_s - (39 * 0.001 + 1)) < 1e-6);
    assert_true(fabs(r.cost_usd - 3.6 * r.stood_s / 3600) < 1e-9);
    sim_result_fini(&r);
}

/* Every third request has a common prefix, so one instance of three gets more than a third. */
static void the_hotspot_is_the_largest_part_times_instances(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(300, 5000, true);
    struct sim_config c = config_of("a100", 3);
    c.route = route_find(STR("prefix_affinity"));
    struct sim_result r = run(&c, t);
    double tokens[3] = { 0 }, sum = 0, most = 0;
    for (uint32_t i = 0; i < r.offered; i++) {
        assert_in_range(r.outcome[i].instance, 0, 2);
        tokens[r.outcome[i].instance] += t->request[i].prompt_tokens;
        sum += t->request[i].prompt_tokens;
    }
    for (uint32_t i = 0; i < 3; i++)
        most = fmax(most, tokens[i]);
    assert_true(fabs(r.hotspot - 3 * most / sum) < 1e-9);
    assert_true(r.hotspot > 1);
    sim_result_fini(&r);
}

static void what_no_table_stands_behind_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *hardware, *model;
        uint32_t tp, batch_tokens;
        bool extrapolated;
    } rows[] = {
        { "rtx4090", "llama-3.2-3b", 1, 2048, false },
        { "rtx4090", "llama-3.2-3b", 1, 4096, true },
        { "rtxpro6000", "llama-3-8b", 1, 2048, false },
        { "rtxpro6000", "llama-3-8b", 2, 2048, true }, /* its links were not measured */
        { "a100", "llama-3-8b", 1, 2048, true },       /* nor the attention of these */
        { "h100", "llama-3-8b", 1, 2048, true },
        { "a40", "llama-3-8b", 1, 2048, true },
        { "l4", "llama-3-8b", 1, 2048, true },
        { "a100", "mixtral-8x7b", 4, 2048, true },
    };
    CLEANUP(trace_freep) struct trace *t = make_trace(40, 100, false);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sim_config c = config_of(rows[i].hardware, 1);
        assert_int_equal(model_spec_find(str_from(rows[i].model), &c.model, NULL), 0);
        c.pool[0].tp = rows[i].tp;
        c.batch_tokens_max = rows[i].batch_tokens;
        c.step.chunk = chunk_find(STR("budget"));
        struct sim_result r = run(&c, t);
        assert_int_equal(r.extrapolated, rows[i].extrapolated);
        sim_result_fini(&r);
    }
}

static void configurations_that_cannot_run_are_refused(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = make_trace(3, 1000, true), *none = make_trace(0, 1, true);
    struct sim_result r;
    struct err err = { 0 };
    struct sim_config c = config_of("a100", 0);
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    c = config_of("a100", 1);
    assert_int_equal(sim_run(&c, none, &r, &err), -EINVAL);
    c.routers = 0;
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    c = config_of(NULL, 1);
    c.pool[c.pool_count++] = config_of("a100", 1).pool[0];
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    for (enum role role = ROLE_PREFILL; role <= ROLE_DECODE; role++) { /* the other is missing */
        c = config_of("a100", 2);
        c.pool[0].role = role;
        assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    }
    CLEANUP(trace_freep) struct trace *years = make_trace(3, 366LL * 86400 * 1000000, true);
    c = config_of("a100", 1);
    assert_int_equal(sim_run(&c, years, &r, &err), -EINVAL);
}

static int sim_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_inputs_give_equal_digests_and_other_seeds_do_not),
        cmocka_unit_test(the_serial_reference_is_arithmetic),
        cmocka_unit_test(shared_blocks_are_found_and_others_are_not),
        cmocka_unit_test(the_future_never_enters_a_view),
        cmocka_unit_test(services_do_not_mix),
        cmocka_unit_test(what_cannot_be_served_is_counted_as_such),
        cmocka_unit_test(an_unfinished_run_is_billed_to_its_end),
        cmocka_unit_test(the_hotspot_is_the_largest_part_times_instances),
        cmocka_unit_test(what_no_table_stands_behind_is_said),
        cmocka_unit_test(configurations_that_cannot_run_are_refused),
    };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}

/* ---- skipping ahead takes the same steps as `exact` ----
 *
 * `exact` asks the queue of events before each step. Each of fourteen workloads has something else
 * under way that could be skipped over. */

static void pool_of(struct sim_config *c, const char *hardware, uint32_t count)
{
    struct sim_pool *p = &c->pool[c->pool_count++];
    *p = (struct sim_pool){ .count = count, .tp = 1, .price_h = 2 };
    if (hardware) p->hardware = hardware_find(str_from(hardware));
}

/* ---- other events in a workload; each function sets them up, or returns how many happened ---- */

static uint64_t nothing_else(struct sim_config *c, const struct sim_result *r)
{
    if (!r) pool_of(c, "a100", 1);
    return 1;
}

static uint64_t eight_instances(struct sim_config *c, const struct sim_result *r)
{
    if (!r) pool_of(c, "h100", 8);
    return 1;
}

static uint64_t two_late_routers(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->hit_tokens;
    pool_of(c, "l4", 3);
    c->routers = 2;
    c->report_delay_us = 300000;
    c->event_lag_us = 20000;
    return 0;
}

static uint64_t one_prompt_after_another(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->hit_tokens;
    pool_of(c, NULL, 4);
    c->route = route_find(STR("dynamo_cost")); /* it looks at tokens of running outputs */
    return 0;
}

static uint64_t hand_overs(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->handoffs;
    pool_of(c, "a100", 2);
    pool_of(c, "a100", 2);
    c->pool[0].role = ROLE_PREFILL;
    c->pool[1].role = ROLE_DECODE;
    return 0;
}

static uint64_t migrations(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->migrations;
    pool_of(c, "l4", 4);
    c->kv_tokens = 8000;
    c->route = route_find(STR("random"));
    c->migrate = migrate_find(STR("llumnix"));
    return 0;
}

static uint64_t peers_caches(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->fetches;
    pool_of(c, "a100", 4);
    c->route = route_find(STR("mooncake_fetch"));
    return 0;
}

static uint64_t swaps(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->swaps;
    pool_of(c, "l4", 1);
    c->kv_tokens = 6000;
    c->preset = preset_find(STR("fastserve"));
    return 0;
}

static uint64_t services(struct sim_config *c, const struct sim_result *r)
{
    if (!r) pool_of(c, "l4", 2);
    if (!r) pool_of(c, "a100", 1);
    c->pool[1].service = 1;
    return 1;
}

static uint64_t clocks(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->trips; /* after a trip the policy lowers clocks */
    pool_of(c, "a100", 4);
    c->power = power_find(STR("polca"));
    c->power_limit_watts = 700;
    return 0;
}

static uint64_t changes_of_role(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->role_changes;
    pool_of(c, "a100", 4);
    c->role = role_find(STR("distserve"));
    return 0;
}

static struct sim_control_setup control;

static uint64_t a_fleet_that_scales_and_loses(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->lost > 0 && r->launches_failed > 0 ? r->scale_actions : 0;
    pool_of(c, "l4", 1);
    pool_of(c, "l4", 1);
    control = (struct sim_control_setup){ .service = { { .scale = SCALE_CONFIG_DEFAULT } },
                                          .notice_s = 2 };
    for (uint32_t p = 0; p < 2; p++) {
        control.pool[p] = (struct sim_control_pool){
            .min = p == 0, .max = 6, .start = 1, .lead_s = 4, .fail_share = 0.2, .life_s = 40
        };
    }
    control.pool[1].spot = true;
    control.zone[0] = (struct sim_zone){ 15, 5 };
    control.lead_sigma = 0.3;
    c->scaling = &control;
    return 0;
}

static uint64_t two_services_that_scale(struct sim_config *c, const struct sim_result *r)
{
    if (r) return r->service[0].instances_max > 1 ? r->service[1].instances_max - 1 : 0;
    control = (struct sim_control_setup){ .lead_sigma = 0.3 };
    for (uint32_t k = 0; k < 2; k++) {
        pool_of(c, "l4", 1);
        c->pool[k].service = k;
        control.service[k].scale = SCALE_CONFIG_DEFAULT;
        control.pool[k] = (struct sim_control_pool){ .min = 1, .max = 6, .lead_s = 4 };
    }
    c->scaling = &control;
    return 0;
}

/* ---- the two runs ---- */

#define SHORT "prompt=lognormal(400,1),output=lognormal(80,1)"
#define TALKS "turns=uniform(1,4),think=exponential(2),block=16,system=64,systems=3," SHORT

static const struct {
    const char *trace;
    uint64_t (*with)(struct sim_config *, const struct sim_result *);
} rows[] = {
    { "constant,rate=0.1,n=40,prompt=300,output=uniform(2,150)", nothing_else },
    { "gamma,cv=3,rate=12,n=500," SHORT, nothing_else },
    { "poisson,rate=150,n=900," SHORT, eight_instances },
    { "poisson,rate=3,n=200," TALKS, two_late_routers },
    { "poisson,rate=4,n=200,turns=3,think=5,block=512,prompt=lognormal(1500,1),output=80",
      one_prompt_after_another },
    { "poisson,rate=12,n=400," SHORT, hand_overs },
    { "poisson,rate=9,n=500,prompt=200,output=lognormal(250,2)", migrations },
    { "poisson,rate=30,n=300,turns=uniform(2,5),think=exponential(1),block=16,system=2000,systems="
      "4,"
      "prompt=lognormal(800,1),output=30",
      peers_caches },
    { "poisson,rate=3,n=200,prompt=200,output=lognormal(250,2),output_max=1500", swaps },
    { "poisson,rate=8,services=2,n=300," SHORT, services },
    { "poisson,rate=20,n=900," SHORT, clocks },
    { "poisson,rate=30,n=700,prompt=lognormal(3000,1),output=20", changes_of_role },
    { "poisson,rate=7,n=500," SHORT, a_fleet_that_scales_and_loses },
    { "poisson,rate=8,services=2,n=500," SHORT, two_services_that_scale },
};

static struct sim_result run_exact(const struct sim_config *c, const struct trace *t)
{
    struct sim_result r;
    struct err err = { 0 };
    if (sim_run(c, t, &r, &err) < 0) fail_msg("%s", err_text(&err, -EINVAL));
    return r;
}

static void skipping_ahead_takes_the_same_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(trace_freep) struct trace *t = NULL;
        struct generate_spec spec;
        assert_int_equal(generate_parse(str_from(rows[i].trace), &spec, NULL), 0);
        assert_int_equal(generate_trace(&spec, 2, &t, NULL), 0);
        struct sim_config c = { .seed = 3,
                                .routers = 1,
                                .slo_ttft_s = 1,
                                .slo_tpot_s = 0.1,
                                .bias_sigma = 0.05,
                                .residual_sigma = 0.05 };
        assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
        rows[i].with(&c, NULL);
        struct sim_result skipped = run_exact(&c, t);
        c.exact = true;
        struct sim_result exact = run_exact(&c, t);
        if (skipped.digest != exact.digest || skipped.events != exact.events ||
            skipped.steps != exact.steps)
            fail_msg("workload %zu: digests %lx %lx, events %lu %lu, steps %lu %lu", i,
                     (unsigned long)skipped.digest, (unsigned long)exact.digest,
                     (unsigned long)skipped.events, (unsigned long)exact.events,
                     (unsigned long)skipped.steps, (unsigned long)exact.steps);
        assert_true(exact.events >= exact.steps);
        if (rows[i].with(&c, &exact) == 0) fail_msg("workload %zu: nothing of the kind", i);
        sim_result_fini(&skipped);
        sim_result_fini(&exact);
    }
}

/* Alone on an instance, every token of an output is a step of its own and an event. */
static void every_token_is_a_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(trace_freep) struct trace *t = NULL;
        struct generate_spec spec;
        assert_int_equal(generate_parse(str_from(rows[0].trace), &spec, NULL), 0);
        assert_int_equal(generate_trace(&spec, 2, &t, NULL), 0);
        struct sim_config c = { .seed = 3, .routers = 1, .slo_ttft_s = 1, .slo_tpot_s = 0.1 };
        assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
        pool_of(&c, i == 0 ? "a100" : NULL, 1);
        struct sim_result r = run_exact(&c, t);
        uint64_t tokens = 0;
        for (uint32_t k = 0; k < r.offered; k++)
            tokens += r.outcome[k].generated;
        assert_int_equal(r.steps, tokens); /* a prompt fits the step of its first token */
        sim_result_fini(&r);
    }
}

static int sim_exact_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skipping_ahead_takes_the_same_steps),
        cmocka_unit_test(every_token_is_a_step),
    };
    return cmocka_run_group_tests_name("sim_exact", tests, NULL, NULL);
}

int main(void)
{
    return sim_tests() + sim_exact_tests();
}

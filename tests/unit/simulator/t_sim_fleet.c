/* t_sim_fleet.c - fleets of more than a thousand instances: every place is used, every row that looks
 * at the fleet sees all of it, and skipping ahead changes nothing. */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "simulator/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LARGE 1200

static struct trace *generated(const char *text)
{
    struct generate_spec spec;
    struct trace *t;
    assert_int_equal(generate_parse(str_from(text), &spec, NULL), 0);
    assert_int_equal(generate_trace(&spec, 1, &t, NULL), 0);
    return t;
}

/* Small machines, known by their step alone: little memory, a few sequences. */
static struct sim_config fleet_of(uint32_t count)
{
    struct sim_config c = { .seed = 5,
                            .pool_count = 1,
                            .routers = 1,
                            .kv_tokens = 16384,
                            .seqs_max = 8,
                            .bias_sigma = 0.05,
                            .residual_sigma = 0.05,
                            .slo_ttft_s = 1,
                            .slo_tpot_s = 0.1 };
    c.pool[0] = (struct sim_pool){ .count = count,
                                   .tp = 1,
                                   .has_step = true,
                                   .step = { .step_s = 0.02,
                                             .prefill_token_s = 1e-4,
                                             .decode_seq_s = 5e-4,
                                             .kv_read_s = 1e-7 },
                                   .price_h = 1 };
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
    return c;
}

static struct sim_result run(const struct sim_config *c, const struct trace *t)
{
    struct sim_result r;
    struct err err = { 0 };
    if (sim_run(c, t, &r, &err) < 0) fail_msg("%s", err_text(&err, -EINVAL));
    return r;
}

/* Different instances that gave a first token. */
static uint32_t used(const struct sim_result *r)
{
    static bool seen[SIM_INSTANCES_MAX];
    uint32_t n = 0;
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < r->offered; i++) {
        if (r->outcome[i].end != SIM_COMPLETED) continue;
        assert_in_range(r->outcome[i].instance, 0, SIM_INSTANCES_MAX - 1);
        n += !seen[r->outcome[i].instance];
        seen[r->outcome[i].instance] = true;
    }
    return n;
}

static void all_of_a_large_fleet_serves_and_exact_agrees(void **state)
{
    (void)state;
    static const char *const text[] = {
        "constant,rate=3000,n=4000,prompt=uniform(50,400),output=uniform(2,40)",
        "poisson,rate=400,n=1200,turns=uniform(1,4),think=exponential(1),block=16,"
        "prompt=uniform(60,300),output=uniform(2,40)",
    };
    for (size_t k = 0; k < COUNT_OF(text); k++) {
        CLEANUP(trace_freep) struct trace *t = generated(text[k]);
        struct sim_config c = fleet_of(LARGE);
        c.event_lag_us = 1000;
        c.routers = 1 + (uint32_t)k;
        struct sim_result skipped = run(&c, t);
        c.exact = true;
        struct sim_result exact = run(&c, t);
        assert_true(skipped.digest == exact.digest);
        assert_int_equal(skipped.ended[SIM_COMPLETED], t->count);
        assert_true(used(&skipped) > (k == 0 ? 1100 : 600));
        if (k > 0) assert_true(skipped.hit_tokens > 0); /* found again beyond slot 256 too */
        sim_result_fini(&skipped);
        sim_result_fini(&exact);
    }
}

static void the_bound_is_an_answer(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = generated("constant,rate=10,n=20,prompt=10,output=2");
    struct sim_config c = fleet_of(SIM_INSTANCES_MAX);
    struct sim_result r = run(&c, t);
    assert_int_equal(r.instances_max, SIM_INSTANCES_MAX);
    sim_result_fini(&r);
    struct err err = { 0 };
    c.pool[0].count++;
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    assert_non_null(strstr(err_text(&err, -EINVAL), "at most 4096 instances"));
}

/* What a row may hold of instances is enough for all of them. */
static void every_row_decides_over_a_large_fleet(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        generated("constant,rate=2000,n=1300,block=16,prompt=uniform(50,300),output=uniform(2,20)");
    for (uint32_t i = 0; i < route_count; i++) {
        struct sim_config c = fleet_of(LARGE);
        c.route = route_table[i];
        struct sim_result r = run(&c, t);
        assert_int_equal(r.ended[SIM_COMPLETED] + r.ended[SIM_REJECTED] + r.ended[SIM_UNFINISHED],
                         t->count);
        assert_true(r.ended[SIM_COMPLETED] > 0);
        sim_result_fini(&r);
    }
    for (uint32_t i = 0; i < role_count; i++) {
        struct sim_config c = fleet_of(LARGE);
        c.role = role_table[i];
        struct sim_result r = run(&c, t);
        assert_int_equal(r.ended[SIM_COMPLETED], t->count);
        sim_result_fini(&r);
    }
    for (uint32_t i = 0; i < migrate_count; i++) {
        struct sim_config c = fleet_of(LARGE);
        c.route = route_find(STR("random"));
        c.migrate = migrate_table[i];
        struct sim_result r = run(&c, t);
        assert_int_equal(r.ended[SIM_COMPLETED], t->count);
        sim_result_fini(&r);
    }
}

static void a_fleet_scales_beyond_a_thousand(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        generated("constant,rate=100,n=1500,prompt=uniform(50,300),output=uniform(2,20)");
    struct sim_config c = fleet_of(LARGE);
    struct sim_control_setup s = { .service = { { .policy = scale_find(STR("static")),
                                                  .scale = SCALE_CONFIG_DEFAULT } } };
    s.pool[0].min = 1;
    s.pool[0].max = 2000;
    s.pool[0].start = LARGE;
    s.pool[0].lead_s = 5;
    s.service[0].scale.count = 1500;
    c.scaling = &s;
    struct sim_result up = run(&c, t);
    assert_int_equal(up.ended[SIM_COMPLETED], t->count);
    assert_int_equal(up.instances_max, 1500);
    assert_int_equal(up.scale_actions, 300);
    s.service[0].scale.count = 300;
    struct sim_result down = run(&c, t);
    assert_int_equal(down.ended[SIM_COMPLETED], t->count);
    assert_int_equal(down.instances_max, LARGE);
    assert_true(down.instance_seconds < up.instance_seconds);
    sim_result_fini(&up);
    sim_result_fini(&down);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_large_fleet_serves_and_exact_agrees),
        cmocka_unit_test(the_bound_is_an_answer),
        cmocka_unit_test(every_row_decides_over_a_large_fleet),
        cmocka_unit_test(a_fleet_scales_beyond_a_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

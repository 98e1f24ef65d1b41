/* t_sim_fleet.c - tests fleets that grow, shrink and lose instances, and fleets of more than a
 * thousand. */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "simulator/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- fleets that grow, shrink and lose instances, in whole runs ---- */

#define SPEC "constant,rate=steps(1:120,6:240,1:600),prompt=fixed(1000),output=fixed(100),n=2160"

static struct trace *make_trace(void)
{
    struct generate_spec spec;
    struct trace *t;
    struct err err = { 0 };
    assert_int_equal(generate_parse(STR(SPEC), &spec, &err), 0);
    assert_int_equal(generate_trace(&spec, 1, &t, &err), 0);
    return t;
}

static struct sim_config config_of(const struct sim_control_setup *setup)
{
    struct sim_config c = { .seed = 5, .pool_count = 1, .routers = 1, .scaling = setup };
    c.pool[0] = (struct sim_pool){ .hardware = hardware_find(STR("l4")), .tp = 1, .price_h = 3.6 };
    c.slo_ttft_s = 3;
    c.slo_tpot_s = 0.2;
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
    return c;
}

static struct sim_control_setup setup_of(void)
{
    struct sim_control_setup s = { .service = { { .scale = SCALE_CONFIG_DEFAULT } } };
    s.pool[0] = (struct sim_control_pool){ .lead_s = 30, .min = 1, .max = 24, .start = 2 };
    return s;
}

static struct sim_result run(const struct sim_config *c, const struct trace *t)
{
    struct sim_result r;
    struct err err = { 0 };
    int rc = sim_run(c, t, &r, &err);
    if (rc < 0) print_message("%s\n", err.text);
    assert_int_equal(rc, 0);
    uint32_t ended = 0;
    for (uint32_t i = 0; i < SIM_END_COUNT; i++)
        ended += r.ended[i];
    assert_int_equal(ended, t->count);
    return r;
}

static double met(const struct sim_result *r, double ttft_s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->offered; i++) {
        const struct sim_outcome *o = &r->outcome[i];
        n += o->end == SIM_COMPLETED && (double)(o->first_us - o->arrival_us) * 1e-6 <= ttft_s;
    }
    return n / (double)r->offered;
}

static void the_fleet_grows_with_the_load_and_shrinks_after_it(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace();
    struct sim_control_setup setup = setup_of();
    struct sim_config c = config_of(&setup);
    struct sim_result r = run(&c, t);
    assert_int_equal(r.ended[SIM_COMPLETED], t->count);
    assert_true(r.instances_max > 2);
    assert_true(r.instance_seconds < 0.8 * r.instances_max * r.span_s);
    assert_true(r.scale_actions >= 2);
    assert_true(r.launches >= r.instances_max - setup.pool[0].start);
    double lead_s = 0;
    for (uint32_t k = 0; k < SIM_PHASE_COUNT; k++)
        lead_s += r.phase_s[k] / r.launches;
    assert_true(fabs(lead_s - setup.pool[0].lead_s) < 0.5 * setup.pool[0].lead_s);
    assert_int_equal(r.launches_failed + r.lost, 0); /* no failures and no losses here */
    assert_true(fabs(r.cost_usd - r.instance_seconds / 1000) < 1e-6 * r.cost_usd + 1e-9);
    struct sim_result again = run(&c, t);
    assert_true(r.digest == again.digest);
    sim_result_fini(&r);
    sim_result_fini(&again);
}

static void knowing_the_future_costs_less_or_serves_better(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace();
    struct sim_control_setup setup = setup_of();
    struct sim_config c = config_of(&setup);
    struct sim_result own = run(&c, t);
    c.scaling_clairvoyant = true;
    struct sim_result bound = run(&c, t);
    assert_true(bound.cost_usd <= own.cost_usd || met(&bound, 3) >= met(&own, 3));
    assert_true(met(&bound, 3) > 0.95);
    sim_result_fini(&own);
    sim_result_fini(&bound);
}

/* Instances die every four minutes: requests whose output had begun fail, the others go
 * elsewhere. */
static void lost_instances_lose_only_what_had_begun(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace();
    struct sim_control_setup setup = setup_of();
    setup.pool[0].min = 3;
    setup.pool[0].life_s = 240;
    struct sim_config c = config_of(&setup);
    struct sim_result r = run(&c, t);
    assert_true(r.ended[SIM_FAILED] > 0);
    assert_true(r.ended[SIM_COMPLETED] > t->count / 2);
    for (uint32_t i = 0; i < r.offered; i++)
        if (r.outcome[i].end == SIM_FAILED) assert_true(r.outcome[i].generated > 0);
    sim_result_fini(&r);
}

/* ---- several services ---- */

/* Every other request is for the other service; service `follows` scales with its load, the other
 * has three instances. */
static void set_two(struct sim_config *c, struct sim_control_setup *setup, uint32_t follows)
{
    *setup = setup_of();
    setup->pool[0].start = 1;
    setup->pool[1] = setup->pool[0];
    for (uint32_t k = 0; k < 2; k++) {
        setup->service[k] = (struct sim_control_service){ .scale = SCALE_CONFIG_DEFAULT };
        setup->service[k].policy = scale_find(k == follows ? STR("work") : STR("static"));
        setup->service[k].scale.count = 3;
    }
    *c = config_of(setup);
    c->pool[1] = c->pool[0];
    c->pool[1].service = 1;
    c->pool_count = 2;
    c->slo[1 - follows] = (struct sim_slo){ .ttft_s = 30, .tpot_s = 1 };
}

static struct trace *make_shared(void)
{
    struct trace *t = make_trace();
    for (uint32_t i = 0; i < t->count; i++)
        t->request[i].service = i % 2;
    return t;
}

static void each_service_follows_its_own_demand(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_shared();
    for (uint32_t follows = 0; follows < 2; follows++) {
        struct sim_control_setup setup;
        struct sim_config c;
        set_two(&c, &setup, follows);
        struct sim_result r = run(&c, t);
        const struct sim_share *own = &r.service[follows], *fixed = &r.service[1 - follows];
        assert_int_equal(r.ended[SIM_COMPLETED], t->count);
        assert_true(own->instances_max > 1);
        assert_true(own->instance_seconds < 0.9 * own->instances_max * r.stood_s);
        assert_int_equal(fixed->instances_max, 3);
        assert_true(fabs(fixed->instance_seconds - 3 * r.stood_s) < 5);
        assert_true(fabs(own->instance_seconds + fixed->instance_seconds - r.instance_seconds) <
                    1e-6);
        uint32_t most = own->instances_max;
        sim_result_fini(&r);

        setup.service[follows].budget_h = 1.01 * c.pool[0].price_h; /* no second instance */
        r = run(&c, t);
        assert_true(most > 1 && r.service[follows].instances_max == 1);
        assert_int_equal(r.service[1 - follows].instances_max, 3); /* the other has no budget */
        sim_result_fini(&r);
    }
}

/* A service without requests shrinks to its minimum, whatever the other's load. */
static void demand_is_of_the_service_that_is_asked(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace();
    struct sim_control_setup setup;
    struct sim_config c;
    set_two(&c, &setup, 1);
    setup.service[0].policy = setup.service[1].policy;
    struct sim_result r = run(&c, t); /* all requests are for service 0 */
    assert_true(r.service[0].instances_max > 2);
    assert_int_equal(r.service[1].instances_max, 1);
    sim_result_fini(&r);
}

static void services_that_scale_are_checked(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace();
    struct sim_control_setup setup;
    struct sim_config c;
    struct sim_result r;
    struct err err = { 0 };
    set_two(&c, &setup, 0);
    c.pool[1].service = 2;
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    assert_non_null(strstr(err.text, "without a gap: none is 1"));
    set_two(&c, &setup, 0);
    c.scaling_clairvoyant = true;
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    assert_non_null(strstr(err.text, "of one service"));
}

static int sim_scaling_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fleet_grows_with_the_load_and_shrinks_after_it),
        cmocka_unit_test(knowing_the_future_costs_less_or_serves_better),
        cmocka_unit_test(lost_instances_lose_only_what_had_begun),
        cmocka_unit_test(each_service_follows_its_own_demand),
        cmocka_unit_test(demand_is_of_the_service_that_is_asked),
        cmocka_unit_test(services_that_scale_are_checked),
    };
    return cmocka_run_group_tests_name("sim_scaling", tests, NULL, NULL);
}

/* ---- fleets of more than a thousand instances ----
 *
 * Every slot is used, every policy that looks at the fleet sees all of it, and skipping ahead changes
 * nothing. */

#define LARGE 1200

static struct trace *generated(const char *text)
{
    struct generate_spec spec;
    struct trace *t;
    assert_int_equal(generate_parse(str_from(text), &spec, NULL), 0);
    assert_int_equal(generate_trace(&spec, 1, &t, NULL), 0);
    return t;
}

/* Returns a fleet of small machines with a known step time: little memory, a few sequences. */
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

static struct sim_result run_large(const struct sim_config *c, const struct trace *t)
{
    struct sim_result r;
    struct err err = { 0 };
    if (sim_run(c, t, &r, &err) < 0) fail_msg("%s", err_text(&err, -EINVAL));
    return r;
}

/* Returns the number of instances that completed a request. */
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
        struct sim_result skipped = run_large(&c, t);
        c.exact = true;
        struct sim_result exact = run_large(&c, t);
        assert_true(skipped.digest == exact.digest);
        assert_int_equal(skipped.ended[SIM_COMPLETED], t->count);
        assert_true(used(&skipped) > (k == 0 ? 1100 : 600));
        if (k > 0) assert_true(skipped.hit_tokens > 0); /* hits beyond slot 256 too */
        sim_result_fini(&skipped);
        sim_result_fini(&exact);
    }
}

static void the_bound_is_an_answer(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = generated("constant,rate=10,n=20,prompt=10,output=2");
    struct sim_config c = fleet_of(SIM_INSTANCES_MAX);
    struct sim_result r = run_large(&c, t);
    assert_int_equal(r.instances_max, SIM_INSTANCES_MAX);
    sim_result_fini(&r);
    struct err err = { 0 };
    c.pool[0].count++;
    assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
    assert_non_null(strstr(err_text(&err, -EINVAL), "at most 4096 instances"));
}

/* Every route policy has room for all instances of a large fleet. */
static void every_row_decides_over_a_large_fleet(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        generated("constant,rate=2000,n=1300,block=16,prompt=uniform(50,300),output=uniform(2,20)");
    for (uint32_t i = 0; i < route_count; i++) {
        struct sim_config c = fleet_of(LARGE);
        c.route = route_table[i];
        struct sim_result r = run_large(&c, t);
        assert_int_equal(r.ended[SIM_COMPLETED] + r.ended[SIM_REJECTED] + r.ended[SIM_UNFINISHED],
                         t->count);
        assert_true(r.ended[SIM_COMPLETED] > 0);
        sim_result_fini(&r);
    }
    for (uint32_t i = 0; i < role_count; i++) {
        struct sim_config c = fleet_of(LARGE);
        c.role = role_table[i];
        struct sim_result r = run_large(&c, t);
        assert_int_equal(r.ended[SIM_COMPLETED], t->count);
        sim_result_fini(&r);
    }
    for (uint32_t i = 0; i < migrate_count; i++) {
        struct sim_config c = fleet_of(LARGE);
        c.route = route_find(STR("random"));
        c.migrate = migrate_table[i];
        struct sim_result r = run_large(&c, t);
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
    struct sim_result up = run_large(&c, t);
    assert_int_equal(up.ended[SIM_COMPLETED], t->count);
    assert_int_equal(up.instances_max, 1500);
    assert_int_equal(up.scale_actions, 300);
    s.service[0].scale.count = 300;
    struct sim_result down = run_large(&c, t);
    assert_int_equal(down.ended[SIM_COMPLETED], t->count);
    assert_int_equal(down.instances_max, LARGE);
    assert_true(down.instance_seconds < up.instance_seconds);
    sim_result_fini(&up);
    sim_result_fini(&down);
}

static int sim_fleet_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_large_fleet_serves_and_exact_agrees),
        cmocka_unit_test(the_bound_is_an_answer),
        cmocka_unit_test(every_row_decides_over_a_large_fleet),
        cmocka_unit_test(a_fleet_scales_beyond_a_thousand),
    };
    return cmocka_run_group_tests_name("sim_fleet", tests, NULL, NULL);
}

int main(void)
{
    return sim_scaling_tests() + sim_fleet_tests();
}

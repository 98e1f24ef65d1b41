/* t_sim_exact.c - skipping ahead takes the same steps as `exact`, which asks the queue of events before
 * each: fourteen workloads, each with what could be skipped over under way. */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "simulator/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void pool_of(struct sim_config *c, const char *hardware, uint32_t count)
{
    struct sim_pool *p = &c->pool[c->pool_count++];
    *p = (struct sim_pool){ .count = count, .tp = 1, .price_h = 2 };
    if (hardware) p->hardware = hardware_find(str_from(hardware));
}

/* ---- what else is under way in a workload; each tells how it is known to have happened ---- */

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
    c->route = route_find(STR("dynamo_cost")); /* it looks at tokens of answers under way */
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
    if (r) return r->trips; /* then it brakes */
    pool_of(c, "a100", 4);
    c->power = power_find(STR("polca"));
    c->row_watts_max = 700;
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

static struct sim_result run(const struct sim_config *c, const struct trace *t)
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
        struct sim_result skipped = run(&c, t);
        c.exact = true;
        struct sim_result exact = run(&c, t);
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

/* Alone on an instance, every token of an answer is a step of its own and an event. */
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
        struct sim_result r = run(&c, t);
        uint64_t tokens = 0;
        for (uint32_t k = 0; k < r.offered; k++)
            tokens += r.outcome[k].generated;
        assert_int_equal(r.steps, tokens); /* prompts fit one step: that of the first token */
        sim_result_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skipping_ahead_takes_the_same_steps),
        cmocka_unit_test(every_token_is_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

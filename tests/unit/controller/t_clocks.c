/* t_clocks.c - tests which clocks agents are told, by their reports and those of routers. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/control_state.h"
#include "policies/scale/scale.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Returns the report of a one-core engine that computes all the time: in each second ten steps of
 * four decoding sessions and a chunk of a prompt. */
static struct engine_report busy_engine(void)
{
    return (struct engine_report){ .host = STR("127.0.0.1"),
                                   .port = 8200,
                                   .health = ENGINE_READY,
                                   .model = STR("chat"),
                                   .boot = 9,
                                   .running_max = 16,
                                   .clock = 1,
                                   .cores = 1,
                                   .hardware = STR("cpu"),
                                   .has_work = true,
                                   .has_spec = true,
                                   .spec = { .layers = 4,
                                             .hidden = 128,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 32,
                                             .ffn = 512,
                                             .vocab = 4096,
                                             .gated = true,
                                             .weight_bytes = 1.0625,
                                             .kv_element_bytes = 2 } };
}

static void compute(struct engine_report *e, double busy)
{
    struct wire_work *w = &e->work;
    w->span_s += 1;
    w->busy_s += busy;
    w->steps += 10;
    w->prefill_tokens += 10 * 32;
    w->prefill_chunks += 10;
    w->decoding_seqs += 10 * 4;
    w->kv_tokens += 10 * (4 * 100 + 32 * 50);
    w->kv_tokens_decoding += 10 * 4 * 100;
}

struct fleet {
    struct world w;
    struct engine_report engine;
    double busy;        /* share of each second */
    double ttft_s;      /* P99 as the router measures it */
    uint64_t answers;   /* in one window of the router */
    bool one_token;     /* outputs have one token, so no TPOT */
    double told, least; /* clocks told to the agent: the last, and the least */
};

static struct fleet *fleet_new(const char *power, double power_limit_watts)
{
    struct fleet *f = calloc(1, sizeof *f);
    must(f);
    struct fake_config plain = { .boot_us = SECOND };
    world_init(&f->w, &plain, 1);
    f->w.service.policy = &scale_static;
    f->w.service.scale.count = 1;
    f->w.service.shaper = &scale_shape_none;
    f->w.service.pool[0].min = f->w.service.pool[0].max = 1;
    f->w.service.power = power ? power_find(str_from(power)) : NULL;
    f->w.service.power_limit_watts = power_limit_watts;
    f->w.router_silent = true;
    f->engine = busy_engine();
    f->w.engine = &f->engine;
    f->busy = 1, f->ttft_s = 0.1, f->answers = 60, f->least = 1;
    return f;
}

static void fleet_free(struct fleet *f)
{
    world_fini(&f->w);
    free(f);
}

static void sync_clocks(struct fleet *f)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct service_demand d = { .service = STR("chat"),
                                .ttft_s = { .count = f->answers, .p99 = f->ttft_s },
                                .tpot_s = { .count = f->one_token ? 0 : f->answers, .p99 = 0.01 } };
    struct router_sync s = { .router = STR("r1"),
                             .boot = 5,
                             .seq = ++f->w.router_seq,
                             .window_s = 15,
                             .services = &d,
                             .service_count = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(f->w.control, &s, f->w.now, &arena, &rules, NULL), 0);
}

/* Runs for some seconds, in which the agent follows the clock it is told. */
static void run(struct fleet *f, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        compute(&f->engine, f->busy);
        world_second(&f->w);
        sync_clocks(f);
        uint32_t count;
        const struct fake_instance *in = fake_cloud_instances(f->w.fake, &count);
        uint32_t at = count ? control_find(f->w.control, in[0].intent) : UINT32_MAX;
        if (at == UINT32_MAX) continue;
        f->told = control_clock(f->w.control, at);
        if (f->told <= 0) continue;
        if (f->engine.clock > 0) f->engine.clock = f->told;
        f->least = fmin(f->least, f->told);
    }
}

static bool is(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static void says_if(struct fleet *f, enum control_view view, const char *what, bool wanted)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(f->w.control, view, f->w.now, &text), 0);
    if ((strstr(text.data, what) != NULL) != wanted)
        fail_msg("'%s' is %sin %s", what, wanted ? "not " : "", text.data);
}

static void says(struct fleet *f, enum control_view view, const char *what)
{
    says_if(f, view, what, true);
}

static double metric(struct fleet *f, enum control_metric m)
{
    struct str name = STR("chat");
    return metric_value(metric_series(control_metrics(f->w.control), m, &name));
}

static void without_a_row_the_full_clock_is_wished(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(NULL, 0);
    f->engine.clock = 0.5; /* left over from a former policy */
    run(f, 10);
    assert_true(is(f->told, 1));
    says(f, CONTROL_SERVICES, "\"power\":null");
    says(f, CONTROL_INSTANCES, "\"clock\":null,\"watts\":null");
    fleet_free(f);
}

static void nothing_is_wished_before_the_first_word(void **state)
{
    (void)state;
    struct fleet *f = fleet_new("max", 0);
    run(f, 30);
    assert_true(is(f->told, 0)); /* the policy looked at an empty fleet, and looks once a minute */
    run(f, 60);
    assert_true(is(f->told, 1));
    says(f, CONTROL_SERVICES, "\"power\":\"max\",\"power_reason\":\"power is not managed\"");
    says(f, CONTROL_INSTANCES, "\"clock\":1,\"watts\":");
    world_kill(&f->w); /* a new controller on the same store */
    world_start(&f->w);
    assert_int_equal(f->w.control->money.count, 1);
    assert_true(is(control_clock(f->w.control, 0), 0));
    fleet_free(f);
}

/* One window of 60 outputs is too few to estimate a P99; two are enough. */
static void slack_is_fed_back(void **state)
{
    (void)state;
    struct fleet *f = fleet_new("mu_serve", 0);
    run(f, 16);
    assert_true(is(f->engine.clock, 1));
    run(f, 26); /* it looks every 20 s */
    assert_true(is(f->engine.clock, 0.95));
    run(f, 20);
    assert_true(is(f->engine.clock, 0.9));
    says(f, CONTROL_INSTANCES, "\"clock\":0.9");
    f->ttft_s = 1.9; /* the SLO is 2 s */
    run(f, 20);
    assert_true(is(f->engine.clock, 1));
    says(f, CONTROL_SERVICES, "\"power_reason\":\"clocks follow the SLO's slack\"");

    /* The SLO was nearly missed at 0.9: for ten minutes the clock stays two rungs above that. */
    f->ttft_s = 0.1, f->least = 1;
    run(f, 300);
    assert_true(is(f->least, 1));
    fleet_free(f);
}

static void what_nobody_measured_slows_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint64_t answers;
        bool one_token, no_spec, unknown_hardware, no_work;
        double least;
    } rows[] = {
        { "enough is known", 60, false, false, false, false, 0.9 },
        { "few answers", 5, false, false, false, false, 1 },
        { "no second tokens", 60, true, false, false, false, 1 },
        { "its model is not said", 60, false, true, false, false, 1 },
        { "its hardware is not known", 60, false, false, true, false, 1 },
        { "its work is not said", 60, false, false, false, true, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fleet *f = fleet_new("mu_serve", 0);
        f->answers = rows[i].answers, f->one_token = rows[i].one_token;
        f->engine.has_spec = !rows[i].no_spec, f->engine.has_work = !rows[i].no_work;
        if (rows[i].unknown_hardware) f->engine.hardware = STR("abacus");
        run(f, 70);
        if (!is(f->least, rows[i].least)) fail_msg("%s: %g", rows[i].why, f->least);
        bool modelled = !rows[i].no_spec && !rows[i].unknown_hardware && !rows[i].no_work;
        says(f, CONTROL_SERVICES, modelled ? "\"unmodelled\":0" : "\"unmodelled\":1");
        says_if(f, CONTROL_INSTANCES, "\"watts\":null", !modelled);
        if (rows[i].no_work) assert_true(is(f->told, 0)); /* not shown to the policy, no order */
        fleet_free(f);
    }
}

/* Returns the watts of the instance at the full clock, busy all the time. */
static double full_watts(void)
{
    struct fleet *f = fleet_new("max", 0);
    run(f, 70);
    double watts = f->w.control->observed.power[0].watts;
    assert_true(is(metric(f, CONTROL_M_WATTS), watts));
    assert_true(watts > 10 && watts < 32); /* between idle and the limit of one core */
    fleet_free(f);
    return watts;
}

/* A row of machines that would draw 2 % more than its breaker allows trips once, brakes, and stays
 * below. */
static void a_cap_holds_the_row_below_its_breaker(void **state)
{
    (void)state;
    double limit = full_watts() / 1.02;
    struct fleet *f = fleet_new("polca", limit);
    run(f, 12);
    assert_true(is(f->least, POWER_CLOCK_MIN));
    assert_true(is(metric(f, CONTROL_M_BREAKER), 1));
    run(f, 30);
    for (int i = 0; i < 30; i++) {
        run(f, 1);
        assert_true(f->w.control->observed.power[0].watts < limit);
        assert_true(is(f->engine.clock, 0.95));
    }
    assert_true(is(metric(f, CONTROL_M_BREAKER), 1));
    says(f, CONTROL_SERVICES, "\"power_reason\":\"everybody is capped\"");
    fleet_free(f);
}

/* At 85 % of the row's breaker, work of low priority is slowed and other work is not. */
static void a_pool_of_low_priority_is_capped_first(void **state)
{
    (void)state;
    double limit = full_watts() / 0.85;
    for (int low = 0; low < 2; low++) {
        struct fleet *f = fleet_new("polca", limit);
        f->w.service.pool[0].priority = low ? PRIORITY_LOW : PRIORITY_HIGH;
        run(f, 40);
        assert_true(is(f->engine.clock, low ? 0.90 : 1));
        says(f, CONTROL_SERVICES, "\"power_reason\":\"low priority is capped\"");
        says(f, CONTROL_POOLS, low ? "\"priority\":\"low\"" : "\"priority\":\"high\"");
        fleet_free(f);
    }
}

/* Idle injection saves no energy for the same work, so no clock is lowered. */
static void energy_is_not_saved_by_pauses(void **state)
{
    (void)state;
    struct fleet *f = fleet_new("dynamollm", 0);
    f->busy = 0.3;
    run(f, 120);
    assert_true(is(f->least, 1) && is(f->told, 1));
    fleet_free(f);
}

/* A peer's numbers are bounded: watts stay finite, a clock stays a clock. */
static void wild_words_do_no_harm(void **state)
{
    (void)state;
    static const struct wire_work wild[] = {
        { 1e18, 1e18, UINT64_MAX, UINT64_MAX, 0, UINT64_MAX, UINT64_MAX, UINT64_MAX },
        { 2e9, 1e18, 1, UINT64_MAX, 0, 0, UINT64_MAX, 0 },
        { 3e9, 0, 2, 0, UINT64_MAX, 0, 0, 0 },
        { .steps = 0 },
        { 4e9, 1, 3, 1, 0, UINT64_MAX, 5, 5 },
        { 5e9, 1, 4, 2, 0, UINT64_MAX, 6, 6 },
    };
    struct fleet *f = fleet_new("polca", 20);
    f->engine.spec = (struct model_spec){ .layers = 1024,
                                          .hidden = 1 << 20,
                                          .heads = 4096,
                                          .kv_heads = 4096,
                                          .head_dim = 4096,
                                          .ffn = 1 << 22,
                                          .vocab = 1 << 24,
                                          .gated = true,
                                          .weight_bytes = 8,
                                          .kv_element_bytes = 8 };
    for (size_t i = 0; i < COUNT_OF(wild) * 2; i++) {
        f->engine.work = wild[i % COUNT_OF(wild)];
        f->engine.boot = 1 + i / 3; /* with restarts in between */
        run(f, 6);
        double watts = f->w.control->observed.power[0].watts;
        assert_true(isfinite(watts) && watts >= 0 && watts <= 32);
        assert_true(f->told == 0 || (f->told >= POWER_CLOCK_MIN && f->told <= 1));
    }
    fleet_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_row_the_full_clock_is_wished),
        cmocka_unit_test(nothing_is_wished_before_the_first_word),
        cmocka_unit_test(slack_is_fed_back),
        cmocka_unit_test(what_nobody_measured_slows_nothing),
        cmocka_unit_test(a_cap_holds_the_row_below_its_breaker),
        cmocka_unit_test(a_pool_of_low_priority_is_capped_first),
        cmocka_unit_test(energy_is_not_saved_by_pauses),
        cmocka_unit_test(wild_words_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

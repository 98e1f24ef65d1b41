/* t_power.c - tests power policies on hand-made views: clocks by slack, by predicted energy and by
 * the limit of a row of machines. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/power/power.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT 8
#define TTFT_SLO 1.0
#define TPOT_SLO 0.05

static struct roofline a100;

static int setup(void **state)
{
    (void)state;
    struct model_spec m;
    if (model_spec_find(STR("llama-3-8b"), &m, NULL) < 0) return -1;
    return roofline_init(&a100, hardware_find(STR("a100")), &m, 1) ? 0 : -1;
}

static struct power_instance instance(double busy, double ttft_s, double tpot_s)
{
    return (struct power_instance){
        .roofline = &a100,
        .shape = { .decoding_seqs = 24,
                   .kv_tokens_read = 24 * 1200 + 256 * 600,
                   .kv_tokens_decoding = 24 * 1200,
                   .prefill_tokens = 256,
                   .prefill_chunks = 1 },
        .busy = busy,
        .clock = 1,
        .tail_known = true,
        .ttft_s = ttft_s,
        .tpot_s = tpot_s,
    };
}

static struct power_view view_of(const struct power_instance *in, uint32_t count)
{
    return (struct power_view){
        .instance = in, .count = count, .ttft_slo_s = TTFT_SLO, .tpot_slo_s = TPOT_SLO
    };
}

static double one_clock(const char *row, const struct power_instance *in)
{
    double clock = 0;
    unsigned char state[POWER_STATE_BYTES_MAX] = { 0 };
    struct power_verdict v = { .clock = &clock };
    struct power_view view = view_of(in, 1);
    power_decide(power_find(str_from(row)), state, &view, 7, &v);
    assert_true(v.again_us > 7 && v.reason);
    return clock;
}

static void t_by_hand(void **state)
{
    (void)state;
    struct power_instance busy_one = instance(0.6, 0.5, 0.03);
    static const struct {
        const char *why, *row;
        double clock, ttft_s, tpot_s;
        uint32_t waiting;
        bool unknown_tail, unknown_model;
        double least, most;
    } rows[] = {
        { "max is max", "max", 0.5, 0.1, 0.01, 0, false, false, 1, 1 },
        { "slack: a rung down", "mu_serve", 0.8, 0.3, 0.02, 0, false, false, 0.75, 0.75 },
        { "between the marks: rest", "mu_serve", 0.8, 0.75, 0.02, 0, false, false, 0.8, 0.8 },
        { "little slack: full", "mu_serve", 0.8, 0.9, 0.02, 0, false, false, 1, 1 },
        { "a queue: full", "mu_serve", 0.8, 0.3, 0.02, 9, false, false, 1, 1 },
        { "missed: full at once", "mu_serve", 0.4, 0.3, 0.06, 0, false, false, 1, 1 },
        { "never below the least", "mu_serve", 0.2, 0.1, 0.01, 0, false, false, 0.2, 0.2 },
        { "no tail: as it is", "mu_serve", 0.6, 0, 0, 0, true, false, 0.6, 0.6 },
        { "no tail: as it is", "dynamollm", 0.6, 0, 0, 0, true, false, 0.6, 0.6 },
        { "no model: full", "mu_serve", 0.6, 0.1, 0.01, 0, false, true, 1, 1 },
        { "no model: full", "dynamollm", 0.6, 0.1, 0.01, 0, false, true, 1, 1 },
        { "much slack: well below full", "dynamollm", 1, 0.2, 0.015, 0, false, false, 0.3, 0.8 },
        { "tpot near its limit: full", "dynamollm", 1, 0.2, 0.045, 0, false, false, 1, 1 },
        { "ttft near its limit: full", "dynamollm", 1, 0.9, 0.015, 0, false, false, 1, 1 },
        { "a queue: full", "dynamollm", 0.5, 0.2, 0.015, 9, false, false, 1, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct power_instance in = busy_one;
        in.clock = rows[i].clock, in.ttft_s = rows[i].ttft_s, in.tpot_s = rows[i].tpot_s;
        in.waiting = rows[i].waiting, in.tail_known = !rows[i].unknown_tail;
        if (rows[i].unknown_model) in.roofline = NULL;
        double clock = one_clock(rows[i].row, &in);
        if (clock < rows[i].least - 1e-9 || clock > rows[i].most + 1e-9)
            fail_msg("%s, %s: %g", rows[i].row, rows[i].why, clock);
    }
}

/* On every view clocks are rungs within bounds, an instance without a tail is not slowed for its
 * SLO, and dynamollm's clock keeps the SLO that the full clock keeps and draws no more. */
static void t_properties(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 11);
    for (int n = 0; n < 3000; n++) {
        struct power_instance in[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) {
            in[i] = instance(rng_f64(&rng), 1.5 * rng_f64(&rng), 0.07 * rng_f64(&rng));
            in[i].clock = 0.2 + POWER_RUNG * (double)rng_below(&rng, 17);
            in[i].tail_known = rng_below(&rng, 5) != 0;
            in[i].waiting = rng_below(&rng, 2) ? 0 : (uint32_t)rng_below(&rng, 9);
            in[i].priority = rng_below(&rng, 2) ? PRIORITY_LOW : PRIORITY_HIGH;
            if (rng_below(&rng, 8) == 0) in[i].roofline = NULL;
            if (rng_below(&rng, 8) == 0) in[i].shape = (struct perf_shape){ 0 };
        }
        struct power_view view = view_of(in, COUNT);
        view.power_limit_watts = rng_below(&rng, 3) ? 1000 : 0;
        view.drawn_watts = 1300 * rng_f64(&rng);
        for (uint32_t p = 0; p < power_count; p++) {
            double clock[COUNT], again[COUNT];
            unsigned char a[POWER_STATE_BYTES_MAX] = { 0 }, b[POWER_STATE_BYTES_MAX];
            struct power_verdict v = { .clock = clock }, w = { .clock = again };
            assert_true(power_table[p]->state_size <= sizeof a);
            power_decide(power_table[p], a, &view, 0, &v);
            memcpy(b, a, sizeof b);
            power_decide(power_table[p], a, &view, 1, &v);
            power_decide(power_table[p], b, &view, 1, &w);
            assert_memory_equal(clock, again, sizeof clock);
            assert_memory_equal(a, b, sizeof a);
            for (uint32_t i = 0; i < COUNT; i++) {
                double rungs = clock[i] / POWER_RUNG;
                assert_true(clock[i] >= POWER_CLOCK_MIN && clock[i] <= 1);
                assert_true(fabs(rungs - round(rungs)) < 1e-6);
                if (strcmp(power_table[p]->name, "dynamollm") || !in[i].roofline) continue;
                if (!in[i].tail_known) continue;
                assert_true(power_watts(&in[i], clock[i]) <= power_watts(&in[i], 1) + 1e-9);
                if (clock[i] == 1) continue;
                struct power_point at;
                power_point_at(&in[i], clock[i], &at);
                assert_true(at.stable && at.load <= 0.7 && in[i].waiting <= 4);
                assert_true(in[i].tpot_s * at.stretch <= TPOT_SLO);
            }
        }
    }
}

/* A day of one engine: requests of 600 tokens arrive evenly, outputs have 200, and every step holds
 * what arrived since the last. Latencies and energy are those of the steps, at the policy's
 * clock. */
struct day {
    double joules;
    uint32_t missed, windows;
};

struct engine {
    double sessions, owed; /* decoding; prompt tokens that have arrived */
};

/* Runs ten seconds of steps; writes what a window shows of them. */
static double run_window(struct engine *e, double rate, double clock, struct power_instance *ret)
{
    double now_s = 0, busy_s = 0, joules = 0, worst_s = 0;
    uint32_t steps = 0;
    *ret = (struct power_instance){ .roofline = &a100, .clock = clock, .tail_known = true };
    for (; now_s < 10; steps++) {
        uint64_t n = (uint64_t)fmin(e->owed, 512), seqs = (uint64_t)ceil(e->sessions);
        struct perf_shape s = { .prefill_tokens = (uint32_t)n,
                                .prefill_chunks = n > 0,
                                .decoding_seqs = (uint32_t)seqs,
                                .kv_tokens_decoding = seqs * 700,
                                .kv_tokens_read = seqs * 700 + n * 300 };
        bool idle = n == 0 && seqs == 0;
        double s_s = idle ? 0.01 : roofline_step_clock_s(&a100, &s, clock);
        joules += s_s * roofline_watts(&a100, &s, clock);
        if (!idle) busy_s += s_s, worst_s = fmax(worst_s, s_s);
        e->sessions += (double)n / 600 - e->sessions / 200;
        e->owed += rate * 600 * s_s - (double)n;
        now_s += s_s;
        ret->shape = s;
    }
    ret->busy = busy_s / now_s;
    ret->tpot_s = worst_s;
    ret->ttft_s = worst_s * (2 + (e->owed + 600) / 512);
    ret->waiting = (uint32_t)(e->owed / 600);
    return joules;
}

static struct day run_day(const char *row)
{
    struct day day = { 0 };
    struct engine e = { 0 };
    const struct power_policy *p = power_find(str_from(row));
    unsigned char state[POWER_STATE_BYTES_MAX] = { 0 };
    double clock = 1;
    int64_t ask_us = 0;
    for (int window = 0; window < 24 * 60; window++) {
        double rate = 5 - 4 * cos(6.2831853 * window / (24 * 60)); /* requests a second */
        struct power_instance in;
        day.joules += run_window(&e, rate, clock, &in);
        day.missed += in.tpot_s > TPOT_SLO || in.ttft_s > TTFT_SLO;
        day.windows++;
        struct power_view view = view_of(&in, 1);
        struct power_verdict v = { .clock = &clock };
        if (window * 10000000ll < ask_us) continue;
        power_decide(p, state, &view, window * 10000000ll, &v);
        ask_us = v.again_us;
    }
    printf("%-10s %6.1f MJ, SLO missed in %u of %u windows\n", row, day.joules / 1e6, day.missed,
           day.windows);
    return day;
}

static void t_day(void **state)
{
    (void)state;
    struct day full = run_day("max"), mu = run_day("mu_serve"), dynamo = run_day("dynamollm");
    assert_int_equal(full.missed, 0);
    assert_true(mu.joules < 0.9 * full.joules && mu.missed <= mu.windows / 100);
    assert_true(dynamo.joules < 0.9 * full.joules && dynamo.missed == 0);
}

/* Returns the row's watts at these clocks with prompts everywhere, the worst moment. */
static double drawn_watts(const struct power_instance *in, const double clock[COUNT])
{
    double sum = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        sum += roofline_watts(&a100, &in[i].shape, clock[i]);
    return sum;
}

static void t_polca(void **state)
{
    (void)state;
    const struct power_policy *p = power_find(STR("polca"));
    static const struct {
        double share;     /* of the limit */
        double low, high; /* the clocks it leads to */
    } rows[] = {
        { 0.79, 1, 1 },       { 0.80, 0.90, 1 },    { 0.79, 0.90, 1 },    { 0.76, 0.90, 1 },
        { 0.74, 1, 1 },       { 0.90, 0.90, 1 },    { 0.90, 0.80, 1 },    { 0.90, 0.80, 0.95 },
        { 0.90, 0.80, 0.95 }, { 0.86, 0.80, 0.95 }, { 0.83, 0.80, 1 },    { 0.83, 0.90, 1 },
        { 1.00, 0.20, 0.20 }, { 0.86, 0.20, 0.20 }, { 0.50, 0.80, 0.95 }, { 0.50, 0.80, 1 },
    };
    struct power_instance in[2] = { instance(1, 0.1, 0.01), instance(1, 0.1, 0.01) };
    in[0].priority = PRIORITY_LOW;
    unsigned char bytes[POWER_STATE_BYTES_MAX] = { 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        double clock[2];
        struct power_view view = view_of(in, 2);
        struct power_verdict v = { .clock = clock };
        view.power_limit_watts = 1000, view.drawn_watts = 1000 * rows[i].share;
        power_decide(p, bytes, &view, 0, &v);
        if (fabs(clock[0] - rows[i].low) > 1e-9 || fabs(clock[1] - rows[i].high) > 1e-9)
            fail_msg("row %zu: %g %g", i, clock[0], clock[1]);
    }
}

/* The row has a ninth more servers than its breaker carries at full clock, all at full load: after
 * some decisions it draws less than its limit, and stays there. */
static void t_polca_holds(void **state)
{
    (void)state;
    const struct power_policy *p = power_find(STR("polca"));
    struct power_instance in[COUNT];
    double clock[COUNT];
    unsigned char bytes[POWER_STATE_BYTES_MAX] = { 0 };
    for (uint32_t i = 0; i < COUNT; i++) {
        in[i] = instance(1, 0.1, 0.01);
        in[i].shape = (struct perf_shape){ .prefill_tokens = 2048,
                                           .prefill_chunks = 1,
                                           .kv_tokens_read = 2048 * 1025 };
        in[i].priority = i < COUNT / 2 ? PRIORITY_LOW : PRIORITY_HIGH;
        clock[i] = 1;
    }
    double limit = drawn_watts(in, clock) / 1.11; /* at 1.25 the brake would stay on */
    for (int n = 0; n < 50; n++) {
        struct power_view view = view_of(in, COUNT);
        struct power_verdict v = { .clock = clock };
        view.power_limit_watts = limit, view.drawn_watts = drawn_watts(in, clock);
        power_decide(p, bytes, &view, 2000000ll * n, &v);
        if (n >= 4) assert_true(drawn_watts(in, clock) < limit);
    }
}

/* A clock kept by idle injection stretches steps by all of it and saves no energy for the same
 * work, so only a policy that looks at slack alone lowers it; a fully loaded instance draws less by
 * its share. */
static void t_idle_is_injected(void **state)
{
    (void)state;
    struct power_instance in = instance(0.3, 0.2, 0.015);
    struct power_point at, device;
    in.injects_idle = true;
    power_point_at(&in, 0.5, &at);
    assert_true(fabs(at.stretch - 2) < 1e-9 && fabs(at.busy - 0.6) < 1e-9 && at.stable);
    assert_true(fabs(at.watts - power_watts(&in, 1)) < 1e-6);
    in.injects_idle = false;
    power_point_at(&in, 0.5, &device);
    assert_true(device.stretch < at.stretch && device.watts < at.watts);

    in.injects_idle = true;
    assert_true(one_clock("dynamollm", &in) >= 1);
    assert_true(fabs(one_clock("mu_serve", &in) - 0.95) < 1e-9);
    in = instance(1, 0.2, 0.015);
    in.injects_idle = true, in.clock = 0.5; /* its present load, measured at half the clock */
    double idle = a100.watts_idle, full = roofline_watts(&a100, &in.shape, 1);
    assert_true(fabs(power_watts(&in, 0.5) - (idle + full) / 2) < 1e-6);
}

/* A miss is remembered for ten minutes, even when the clock is set back a day meanwhile. */
static void t_clock_set_back(void **state)
{
    (void)state;
    _Alignas(8) unsigned char bytes[POWER_STATE_BYTES_MAX] = { 0 };
    const struct power_policy *p = power_find(STR("mu_serve"));
    struct power_instance in = instance(0.6, 2 * TTFT_SLO, 0.02);
    struct power_view view = view_of(&in, 1);
    double clock;
    struct power_verdict v = { .clock = &clock };
    int64_t now_us = 100 * 86400ll * 1000000;
    in.clock = 0.5;
    power_decide(p, bytes, &view, now_us, &v);
    assert_true(clock >= 1);
    in = instance(0.6, 0.1 * TTFT_SLO, 0.01);
    in.clock = 0.6;
    power_decide(p, bytes, &view, now_us + 60000000, &v);
    assert_true(fabs(clock - 0.6) < 1e-9); /* two rungs above the missed clock */
    power_decide(p, bytes, &view, now_us - 86400ll * 1000000, &v);
    assert_true(fabs(clock - 0.55) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_by_hand),
        cmocka_unit_test(t_properties),
        cmocka_unit_test(t_day),
        cmocka_unit_test(t_polca),
        cmocka_unit_test(t_polca_holds),
        cmocka_unit_test(t_clock_set_back),
        cmocka_unit_test(t_idle_is_injected),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

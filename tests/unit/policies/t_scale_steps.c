/* t_scale_steps.c - tests signals that go step by step, learn a capacity or forecast, on views
 * whose right result is their source's formula worked out by hand. */
#include "base/core/bits.h"
#include "policies/scale/capacity.h"
#include "policies/scale/forecast.h"
#include "tests/unit/policies/scale_rig.h"

#include <math.h>

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fmax(1, fabs(want))) fail_msg("%.12g, wanted %.12g", got, want);
}

/* Returns the rate that one instance of the rig serves at its mean lengths. */
static double rig_rate(const struct rig *r)
{
    struct lengths mean = { 0 };
    struct scale_load load;
    lengths_add(&mean, r->v.demand.prompt_tokens, r->v.demand.output_tokens, 1);
    lengths_mean(&mean);
    scale_load_of(&r->v.pool[0], &mean, &load);
    return scale_load_rate(&load, r->v.ttft_slo_s, r->v.tpot_slo_s, 1);
}

static void spare_memory_and_queue_room(void **state)
{
    (void)state;
    static const struct {
        uint32_t have;
        uint64_t kv;
        uint32_t waiting;
        uint64_t first_kv; /* of the first instance; 0: like the others */
        uint32_t want;
        const char *why;
    } rows[] = {
        { 3, 710, 0, 0, 4, "0.09 of memory to spare" },
        { 3, 690, 0, 0, 3, "0.11, but two could not hold it" },
        { 3, 300, 3, 0, 4, "room for two in the queue" },
        { 3, 300, 0, 0, 2, "0.9 / 2 leaves 0.35" },
        { 2, 300, 0, 0, 1, "0.6 / 1 leaves 0.2" },
        { 2, 360, 0, 0, 2, "0.72 / 1 leaves 0.08" },
        { 3, 300, 2, 0, 3, "six waiting over two: room for two" },
        { 1, 10, 0, 0, 1, "never below one by itself" },
        { 3, 850, 0, 0, 4, "all are saturated" },
        { 3, 300, 0, 900, 2, "the saturated one is left out: 0.6 / 1" },
        { 2, 300, 0, 900, 2, "one is not enough to judge by" },
    };
    struct rig r;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        rig_init(&r, &scale_wva_v1, rows[i].have);
        rig_load(&r, rows[i].kv, rows[i].waiting);
        if (rows[i].first_kv) r.in[0].kv_tokens = rows[i].first_kv;
        if (rig_ask(&r, 1000) != rows[i].want)
            fail_msg("%s: want %u", rows[i].why, r.got.choice.want[0]);
        assert_int_equal(rig_ask(&r, 1020), rows[i].have); /* every 30 s */
    }
    /* The peak of the last minute counts. */
    rig_init(&r, &scale_wva_v1, 3);
    rig_load(&r, 750, 0);
    assert_int_equal(rig_ask(&r, 1000), 4);
    rig_load(&r, 100, 0);
    assert_int_equal(rig_ask(&r, 1030), 4);
    assert_int_equal(rig_ask(&r, 1060), 2); /* six buckets of ten seconds later */
    /* The cheapest pool has a launch under way, so the next one grows; a single pool waits. */
    rig_init(&r, &scale_wva_v1, 3);
    rig_fleet(&r, 4, 3);
    rig_load(&r, 750, 0);
    r.v.pool_count = 2;
    r.v.pool[1] = rig_pool(2);
    assert_int_equal(rig_ask(&r, 1000), 5);
    assert_int_equal(r.got.choice.want[1], 1);
    r.v.pool_count = 1;
    assert_int_equal(rig_ask(&r, 1030), 4);
}

static void tokens_against_a_learned_capacity(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_wva_v2, 2);
    rig_load(&r, 700, 0); /* 1,400 / 0.85 - 1,600 = 47: one of 800 more */
    assert_int_equal(rig_ask(&r, 0), 3);
    assert_int_equal(rig_ask(&r, 29), 2); /* every 30 s */
    rig_load(&r, 670, 0);                 /* 1,340 / 0.85 = 1,576 */
    assert_int_equal(rig_ask(&r, 30), 2);
    r.v.demand.held_prompt_tokens = 900; /* 2,240 / 0.85 - 1,600 = 1,035: two */
    assert_int_equal(rig_ask(&r, 60), 4);
    rig_fleet(&r, 4, 2); /* starting instances count as supply */
    rig_load(&r, 670, 0);
    assert_int_equal(rig_ask(&r, 90), 4);

    rig_init(&r, &scale_wva_v2, 5);
    rig_load(&r, 200, 0); /* 4,000 - 1,000 / 0.70 = 2,571: three of 800 */
    assert_int_equal(rig_ask(&r, 0), 2);
    rig_init(&r, &scale_wva_v2, 5);
    rig_load(&r, 459, 0); /* 4,000 - 3,279 = 721 */
    assert_int_equal(rig_ask(&r, 0), 5);

    /* A queue that saturates at 400 tokens teaches 400: 400 + 5 x 200 and 400 against 800. */
    rig_init(&r, &scale_wva_v2, 2);
    rig_load(&r, 400, 0);
    r.in[0].waiting = 5;
    assert_int_equal(rig_ask(&r, 0), 6); /* 1,800 / 0.85 - 800 = 1,318: four of 400 */
    near(r.got.load, 1800.0 / 800);
    r.in[0].waiting = 0;
    assert_int_equal(rig_ask(&r, 30), 3); /* 800 / 0.85 - 800 = 141 */
    r.v.demand.output_tokens = 600;       /* another class has not saturated yet */
    assert_int_equal(rig_ask(&r, 60), 2);
    near(r.got.load, 0.5);
    r.v.demand.output_tokens = 100; /* the mean of the last ten: ten of 600 forget the 400 */
    r.in[0].waiting = 5, r.in[0].kv_tokens = 600, r.in[1].kv_tokens = 0;
    for (int k = 0; k < 10; k++)
        rig_ask(&r, 90 + 30 * k);
    r.in[0].waiting = 0;
    rig_ask(&r, 390);
    near(r.got.load, 600.0 / 1200);
}

static void estimates_of_every_engine(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_dynamo_load, 2);
    r.in[0].prefill_tokens = r.in[1].prefill_tokens = 4000; /* 2.1 s and a step: above 2 s */
    assert_int_equal(rig_ask(&r, 0), 3);
    r.in[1].prefill_tokens = 3000; /* 1.61 s: one instance keeps the SLO */
    assert_int_equal(rig_ask(&r, 4), 2);
    assert_int_equal(rig_ask(&r, 5), 2);
    r.in[0].prefill_tokens = 3000; /* 0.805 of the SLO */
    assert_int_equal(rig_ask(&r, 10), 2);
    r.in[0].prefill_tokens = r.in[1].prefill_tokens = 2900; /* 0.78 */
    assert_int_equal(rig_ask(&r, 15), 1);
    r.in[0].running = r.in[1].running = 91; /* 101 ms a token */
    assert_int_equal(rig_ask(&r, 20), 3);
    rig_fleet(&r, 3, 2);
    r.in[0].running = r.in[1].running = 91;
    assert_int_equal(rig_ask(&r, 25), 3); /* a change is in progress */
    rig_init(&r, &scale_dynamo_load, 1);
    assert_int_equal(rig_ask(&r, 0), 1); /* the last one stays */
}

static void thresholds_any_up_all_down(void **state)
{
    (void)state;
    static const struct {
        uint64_t line[2], kv[2];
        uint32_t waiting; /* at the first instance */
        uint32_t want;
        const char *why;
    } rows[] = {
        { { 1000, 0 }, { 0, 0 }, 0, 3, "one prompt line of a context's length" },
        { { 999, 0 }, { 0, 0 }, 0, 2, "just below" },
        { { 99, 99 }, { 599, 599 }, 0, 1, "all below both lower thresholds" },
        { { 100, 0 }, { 599, 599 }, 0, 2, "one prompt line at a tenth" },
        { { 0, 0 }, { 600, 0 }, 0, 2, "one memory at 0.6" },
        { { 0, 0 }, { 1000, 0 }, 0, 2, "full is not over" },
        { { 0, 0 }, { 900, 0 }, 1, 3, "900 and one that waits with 200" },
    };
    struct rig r;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        rig_init(&r, &scale_dynamo_static, 2);
        for (int k = 0; k < 2; k++) {
            r.in[k].prefill_tokens = rows[i].line[k];
            r.in[k].kv_tokens = rows[i].kv[k];
        }
        r.in[0].waiting = rows[i].waiting;
        if (rig_ask(&r, 10) != rows[i].want)
            fail_msg("%s: want %u", rows[i].why, r.got.choice.want[0]);
        assert_int_equal(rig_ask(&r, 14), 2); /* every 5 s */
    }
}

static void share_of_busy_instances(void **state)
{
    (void)state;
    static const struct {
        uint32_t waiting, want; /* at so many of five */
        const char *why;
    } rows[] = { { 4, 6, "0.8" }, { 3, 4, "0.6 is not more than 0.6" }, { 0, 4, "none" } };
    struct rig r;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        rig_init(&r, &scale_chiron, 5);
        for (uint32_t k = 0; k < rows[i].waiting; k++)
            r.in[k].waiting = 1;
        if (rig_ask(&r, 0) != rows[i].want)
            fail_msg("%s: want %u", rows[i].why, r.got.choice.want[0]);
        assert_int_equal(rig_ask(&r, 9), 5); /* every 10 s */
    }
    rig_init(&r, &scale_chiron, 5); /* busy by memory, and by steps of 101 ms / (1 - 0.02) */
    rig_load(&r, 900, 0);
    assert_int_equal(rig_ask(&r, 0), 6);
    rig_load(&r, 0, 0);
    for (int k = 0; k < 5; k++)
        r.in[k].running = 91;
    assert_int_equal(rig_ask(&r, 10), 6);
    rig_fleet(&r, 6, 5);
    assert_int_equal(rig_ask(&r, 20), 6); /* waits for starting instances */
}

/* ---- forecasts ---- */

static void forecasts_by_hand(void **state)
{
    (void)state;
    const double two[] = { 10, 14 };
    near(scale_forecast_next(&scale_forecast_constant, two, 2, 5), 14);
    /* Level .8 x 14 + .2 x (10 + .9 x 4), trend .5 x 3.92 + .5 x .9 x 4, damped by .9 and .81. */
    near(scale_forecast_next(&scale_forecast_holt, two, 2, 1), 13.92 + 3.76 * 0.9);
    near(scale_forecast_next(&scale_forecast_holt, two, 2, 2), 13.92 + 3.76 * (0.9 + 0.81));
    /* Covariance (10, 0, 1) becomes (12, 1, 1.1); gains 12 / 22 and 1 / 22 of the miss of 4. */
    near(scale_forecast_kalman.next(two, 2, 1), 10 + 4 * 13.0 / 22);
    near(scale_forecast_next(&scale_forecast_kalman, two, 2, 1), 14); /* five points first */

    double ramp[12], wave[24];
    for (int i = 0; i < 12; i++)
        ramp[i] = 3 + 2 * i;
    for (uint32_t ahead = 1; ahead < 4; ahead++)
        if (fabs(scale_forecast_next(&scale_forecast_arima, ramp, 12, ahead) - (25 + 2 * ahead)) >
            0.05)
            fail_msg("a ramp goes on");
    assert_true(scale_forecast_next(&scale_forecast_kalman, ramp, 12, 1) > 25.5);
    assert_true(scale_forecast_next(&scale_forecast_holt, ramp, 12, 1) > 25);

    /* Differences y = 0.6 y[t-1] - 0.3 y[t-2] + 1, which ARIMA(2,1,0) knows. */
    double y1 = 5, y2 = -3;
    wave[0] = 100;
    for (int i = 1; i < 24; i++) {
        double y = 0.6 * y1 - 0.3 * y2 + 1;
        wave[i] = wave[i - 1] + y;
        y2 = y1;
        y1 = y;
    }
    double next = wave[23] + 0.6 * y1 - 0.3 * y2 + 1;
    assert_true(fabs(scale_forecast_next(&scale_forecast_arima, wave, 24, 1) - next) < 0.01);
    const double fall[] = { 9, 6, 3, 0, 0, 0, 0, 0, 0 };
    for (uint32_t i = 0; i < scale_forecast_count; i++)
        assert_true(scale_forecast_next(scale_forecast_table[i], fall, 4, 3) >= 0);
}

/* Each of ten intervals of 180 s has two requests a second more: the forecasts differ, and want =
 * ceil(forecast / what one serves). */
static void throughput_sizes_for_the_forecast(void **state)
{
    (void)state;
    static const struct scale_forecast *const way[] = { &scale_forecast_constant,
                                                        &scale_forecast_arima,
                                                        &scale_forecast_kalman };
    uint32_t want[3];
    for (size_t k = 0; k < COUNT_OF(way); k++) {
        struct rig r;
        rig_init(&r, &scale_dynamo_throughput, 1);
        r.config.forecast = way[k];
        r.v.pool[0].max = SCALE_COUNT_MAX;
        r.v.pool[0].seqs_max = 16;
        double each = rig_rate(&r), series[10];
        r.v.demand.arrivals_s = 2.5 * each; /* before the first interval has passed */
        assert_int_equal(rig_ask(&r, 1), 3);
        for (int i = 0; i < 10; i++) {
            uint64_t came = (uint64_t)round(2 * each * (i + 1) * 180);
            series[i] = (double)came / 180;
            r.v.demand.arrivals_total += came;
            r.v.demand.arrivals_s = 1000; /* not asked again */
            want[k] = rig_ask(&r, 1 + 180 * (i + 1));
            assert_int_equal(rig_ask(&r, 1 + 180 * (i + 1) + 179), want[k]);
        }
        double next = scale_forecast_next(way[k], series, 10, 1);
        assert_int_equal(want[k], (uint32_t)ceil(next / each - 1e-3));
    }
    assert_in_range(want[0], 20, 21);
    assert_in_range(want[1], 22, 23);
    assert_true(want[2] > want[0]);
}

/* The routers are silent for an hour: its arrivals did not come in one interval. */
static void silence_is_no_interval(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_dynamo_throughput, 1);
    r.config.forecast = &scale_forecast_constant;
    r.v.pool[0].seqs_max = 16;
    double each = rig_rate(&r);
    rig_ask(&r, 1);
    r.v.demand.arrivals_total = (uint64_t)(180 * 2.5 * each);
    assert_int_equal(rig_ask(&r, 181), 3);
    r.v.demand.present = false;
    rig_ask(&r, 400);
    r.v.demand.present = true;
    r.v.demand.arrivals_total += (uint64_t)(3600 * 2.5 * each);
    assert_int_equal(rig_ask(&r, 3781), 3);

    rig_init(&r, &scale_sageserve, 4);
    r.config.forecast = &scale_forecast_constant;
    r.v.pool[0].seqs_max = 16;
    rig_load(&r, 400, 0);
    for (int i = 0; i <= 12; i++) {
        r.v.demand.arrivals_total = (uint64_t)(i * 300 * 3.5 * each);
        rig_ask(&r, 1 + 300 * i);
    }
    r.v.demand.arrivals_total += (uint64_t)(3600 * 3.5 * each);
    assert_int_equal(rig_ask(&r, 7201), 4); /* the guard does not see twelve times the forecast */
}

static void hourly_target_gated_by_memory(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_sageserve, 2);
    rig_load(&r, 510, 0); /* before the first hour: reactive */
    assert_int_equal(rig_ask(&r, 0), 3);
    rig_fleet(&r, 3, 3);
    rig_load(&r, 510, 0);
    assert_int_equal(rig_ask(&r, 154), 3); /* locked for 155 s */
    assert_int_equal(rig_ask(&r, 155), 4);
    rig_load(&r, 240, 0);
    assert_int_equal(rig_ask(&r, 311), 2); /* below 0.25: down */
    rig_load(&r, 400, 0);
    assert_int_equal(rig_ask(&r, 312), 3);

    /* An hour of what keeps 3.5 busy: a target of 4. */
    rig_init(&r, &scale_sageserve, 3);
    r.config.forecast = &scale_forecast_constant;
    r.v.pool[0].seqs_max = 16;
    double each = rig_rate(&r);
    rig_load(&r, 400, 0);
    for (int i = 0; i <= 12; i++) {
        r.v.demand.arrivals_total = (uint64_t)(i * 300 * 3.5 * each);
        rig_ask(&r, 1 + 300 * i);
    }
    static const struct {
        uint32_t have;
        uint64_t kv;
        uint32_t want;
        const char *why;
    } rows[] = {
        { 3, 510, 4, "below the target and memory in use: up" },
        { 3, 490, 3, "not in use" },
        { 4, 890, 4, "the target is reached" },
        { 4, 910, 5, "the guard goes beyond it" },
        { 4, 100, 4, "not below the target" },
        { 6, 240, 5, "above the target and memory free: down" },
        { 6, 260, 6, "not free" },
    };
    char saved[sizeof r.state];
    memcpy(saved, r.state, sizeof saved);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        memcpy(r.state, saved, sizeof saved);
        rig_fleet(&r, rows[i].have, rows[i].have);
        rig_load(&r, rows[i].kv, 0);
        if (rig_ask(&r, 3700) != rows[i].want)
            fail_msg("%s: want %u", rows[i].why, r.got.choice.want[0]);
    }
    /* Six times the forecast within five minutes triggers the guard, whatever the memory. */
    memcpy(r.state, saved, sizeof saved);
    rig_fleet(&r, 4, 4);
    rig_load(&r, 400, 0);
    r.v.demand.arrivals_total += (uint64_t)(300 * 6 * 3.5 * each);
    assert_int_equal(rig_ask(&r, 3901), 5);
}

/* Step-by-step policies wake from zero, keep what they cannot judge, and stay where nothing can be
 * bought. */
static void steps_begin_and_end(void **state)
{
    (void)state;
    static const struct scale_policy *const rows[] = { &scale_wva_v1,      &scale_wva_v2,
                                                       &scale_dynamo_load, &scale_dynamo_static,
                                                       &scale_chiron,      &scale_sageserve };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct rig r;
        rig_init(&r, rows[i], 0);
        r.v.demand.held = 1;
        assert_int_equal(rig_ask(&r, 0), 1);
        r.v.pool[0].available = false;
        assert_int_equal(rig_ask(&r, 1000), 0);
        rig_init(&r, rows[i], 3);
        for (int k = 0; k < 3; k++)
            r.in[k].fresh = false;
        assert_int_equal(rig_ask(&r, 0), 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spare_memory_and_queue_room),
        cmocka_unit_test(tokens_against_a_learned_capacity),
        cmocka_unit_test(estimates_of_every_engine),
        cmocka_unit_test(thresholds_any_up_all_down),
        cmocka_unit_test(share_of_busy_instances),
        cmocka_unit_test(forecasts_by_hand),
        cmocka_unit_test(throughput_sizes_for_the_forecast),
        cmocka_unit_test(silence_is_no_interval),
        cmocka_unit_test(hourly_target_gated_by_memory),
        cmocka_unit_test(steps_begin_and_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_report.c - tests reports: quantiles with misses, intervals of a few runs, the members of the
 * JSON form. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "simulator/report.h"
#include "simulator/stats.h"
#include "tests/unit/unit.h"

#include <math.h>

static bool close_to(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static struct sim_outcome done(double arrival_s, double ttft_s, double tpot_s, uint32_t tokens)
{
    double first = arrival_s + ttft_s;
    return (struct sim_outcome){ .end = SIM_COMPLETED,
                                 .arrival_us = (int64_t)(arrival_s * 1e6),
                                 .first_us = (int64_t)(first * 1e6 + 0.5),
                                 .last_us = (int64_t)((first + tpot_s * (tokens - 1)) * 1e6 + 0.5),
                                 .generated = tokens };
}

static struct report make(struct sim_outcome *outcome, uint32_t count)
{
    struct sim_config config = { .slo_ttft_s = 1, .slo_tpot_s = 0.05, .seed = 9 };
    struct sim_result result = { .outcome = outcome,
                                 .offered = count,
                                 .prompt_tokens = 1000,
                                 .hit_tokens = 250,
                                 .span_s = 4,
                                 .stood_s = 4,
                                 .instance_seconds = 10,
                                 .instances_max = 3,
                                 .gpu_seconds = 7200,
                                 .energy_j = 3.6e6,
                                 .digest = 0xabc,
                                 .steps = 500,
                                 .cpu_s = 0.5 };
    for (uint32_t i = 0; i < count; i++)
        result.ended[outcome[i].end]++;
    struct report r;
    assert_int_equal(report_make(&config, &result, &r), 0);
    return r;
}

static void figures_are_exact(void **state)
{
    (void)state;
    struct sim_outcome o[] = {
        done(0, 0.5, 0.04, 11), done(1, 1.5, 0.04, 11), /* TTFT too long */
        done(2, 0.5, 0.06, 11),                         /* TPOT too long */
        done(3, 1.0, 0, 1),                             /* one token: no TPOT to miss */
    };
    struct report r = make(o, COUNT_OF(o));
    assert_true(close_to(r.attainment, 0.5) && close_to(r.goodput_rps, 0.5));
    assert_true(close_to(r.ttft_s.mean, 3.5 / 4) && close_to(r.ttft_s.p50, 0.5));
    assert_true(close_to(r.ttft_s.p90, 1.5) && close_to(r.ttft_s.p99, 1.5));
    assert_true(close_to(r.tpot_s.mean, 0.14 / 3) && close_to(r.tpot_s.p99, 0.06));
    assert_true(close_to(r.jct_s.mean, (0.9 + 1.9 + 1.1 + 1.0) / 4));
    assert_true(close_to(r.token_hit_ratio, 0.25) && close_to(r.instances_mean, 2.5));
    assert_true(close_to(r.gpu_hours, 2) && close_to(r.energy_kwh, 1));
    assert_true(isnan(r.itl_s.p50)); /* no gaps were counted */
}

static void misses_are_infinite(void **state)
{
    (void)state;
    struct sim_outcome o[10];
    for (uint32_t i = 0; i < COUNT_OF(o); i++)
        o[i] = done(i, 0.1 * (i + 1), 0.01, 5);
    o[7].end = SIM_REJECTED;
    o[8].end = SIM_UNFINISHED; /* a miss, although its first token came */
    o[9].end = SIM_TOO_LONG;
    struct report r = make(o, COUNT_OF(o));
    assert_int_equal(r.completed, 7);
    assert_int_equal(r.rejected + r.unfinished + r.too_long, 3);
    assert_true(close_to(r.ttft_s.mean, 0.4)); /* of completed requests */
    assert_true(close_to(r.ttft_s.p50, 0.5));
    assert_true(isinf(r.ttft_s.p90) && isinf(r.jct_s.p99) && isinf(r.tpot_s.p90));
    assert_true(close_to(r.attainment, 0.7));

    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    report_json(&r, &w);
    assert_true(str_find(buf_view(&out), STR("\"p50\":0.5,\"p90\":null")) != SIZE_MAX);
    assert_true(str_find(buf_view(&out), STR("\"digest\":\"0000000000000abc\"")) != SIZE_MAX);
    assert_true(str_find(buf_view(&out), STR("\"requests_per_core_minute\":1200,")) != SIZE_MAX);
    buf_clear(&out);
    assert_int_equal(report_table(&r, &out), 0);
    assert_true(str_find(buf_view(&out), STR(" inf")) != SIZE_MAX);
    assert_true(str_find(buf_view(&out), STR("a miss is infinite")) != SIZE_MAX);
}

/* The table names rare events that happened and leaves out those that did not. */
static void rare_things_are_said_when_they_are(void **state)
{
    (void)state;
    static const char *const words[] = { "2 fetches of 640 tokens",
                                         "(3 given up)",
                                         "4 changes of role",
                                         "5 looks with the breaker",
                                         "roles     at last: a split; 2.500 requests/s foreseen, "
                                         "2.250 by the next best",
                                         "9 launches, 6 of them failed, 7 instances taken away" };
    struct sim_outcome o[] = { done(0, 0.5, 0.04, 11) };
    struct report r = make(o, 1);
    for (int told = 0; told < 2; told++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        assert_int_equal(report_table(&r, &out), 0);
        for (size_t i = 0; i < COUNT_OF(words); i++)
            assert_int_equal(str_find(buf_view(&out), str_from(words[i])) != SIZE_MAX, told);
        r.fetches = 2;
        r.fetched_tokens = 640;
        r.migrations_dropped = 3;
        r.role_changes = 4;
        r.role_reason = "a split";
        r.role_rps = 2.5;
        r.role_runner_up_rps = 2.25;
        r.breaker_trips = 5;
        r.launches = 9;
        r.launches_failed = 6;
        r.lost = 7;
    }
}

/* Each service is judged by its own SLO: a request late for one is in time for the other. */
static void services_are_judged_each_by_its_slo(void **state)
{
    (void)state;
    struct sim_outcome o[] = { done(0, 0.5, 0.04, 11), done(1, 1.5, 0.04, 11),
                               done(2, 1.5, 0.04, 11), done(3, 0.5, 0.04, 11) };
    o[2].service = o[3].service = 3;
    o[3].end = SIM_FAILED;
    struct sim_config config = { .slo_ttft_s = 1, .slo_tpot_s = 0.05 };
    struct sim_result result = { .outcome = o, .offered = 4, .span_s = 4, .stood_s = 4 };
    result.ended[SIM_COMPLETED] = 3, result.ended[SIM_FAILED] = 1;
    result.service[0] = (struct sim_share){ 6, 2 };
    result.service[3] = (struct sim_share){ 4, 1 };
    config.slo[3].ttft_s = 2;
    struct report r;
    assert_int_equal(report_make(&config, &result, &r), 0);
    assert_true(close_to(r.attainment, 0.5) && isnan(r.slo.ttft_s) && close_to(r.slo.tpot_s, 0.05));
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    report_json(&r, &w);
    assert_non_null(
        strstr(out.data,
               "\"services\":[{\"service\":0,\"offered\":2,\"completed\":2,\"slo\":{\"ttft_s\":1,"
               "\"tpot_s\":0.05,\"attainment\":0.5},\"instances\":{\"mean\":1.5,\"max\":2}},"
               "{\"service\":3,\"offered\":2,\"completed\":1,\"slo\":{\"ttft_s\":2,"
               "\"tpot_s\":0.05,\"attainment\":0.5},\"instances\":{\"mean\":1,\"max\":1}}]"));
    buf_clear(&out);
    assert_int_equal(report_table(&r, &out), 0);
    assert_non_null(strstr(out.data, "SLO       of each service: 50.00 % met"));
    assert_non_null(strstr(out.data, "service3  2 offered, 1 completed; TTFT 2 s, TPOT 0.05 s: "
                                     "50.00 % met; 1.00 instances, at most 1\n"));
}

/* Twelve digits hide a sum's rounding, and NaN and infinity become null. */
static void figures_have_twelve_digits(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    double sum = 0;
    for (int i = 0; i < 13; i++)
        sum += 0.001;
    assert_true(sum < 0.013 || sum > 0.013);
    json_writer_init(&w, &out);
    json_object(&w);
    stats_figure_json(&w, "cost", sum);
    stats_figure_json(&w, "third", 1.0 / 3);
    stats_figure_json(&w, "count", 123456789012);
    stats_figure_json(&w, "none", (double)NAN);
    stats_figure_json(&w, "miss", (double)INFINITY);
    json_object_end(&w);
    assert_string_equal(out.data, "{\"cost\":0.013,\"third\":0.333333333333,"
                                  "\"count\":123456789012,\"none\":null,\"miss\":null}");
}

static void nothing_completed_is_no_number(void **state)
{
    (void)state;
    struct sim_outcome o[] = { { .end = SIM_REJECTED } };
    struct report r = make(o, 1);
    assert_true(isnan(r.ttft_s.mean) && isinf(r.ttft_s.p50) && r.attainment == 0);
}

static void intervals_are_students(void **state)
{
    (void)state;
    static const double a[] = { 10, 12, 11, 13 }, b[] = { 9, 11.5, 9.5, 12 };
    struct stats_mean m = stats_mean(a, 4);
    assert_true(close_to(m.mean, 11.5));
    assert_true(fabs(m.half - 3.1824 * sqrt(5.0 / 3) / 2) < 1e-4);
    struct stats_mean d = stats_paired(a, b, 4); /* 1, .5, 1.5, 1 */
    assert_true(close_to(d.mean, 1));
    assert_true(fabs(d.half - 3.1824 * sqrt(0.5 / 3) / 2) < 1e-4);
    assert_true(isnan(stats_mean(a, 1).half) && isnan(stats_mean(a, 0).mean));
    static const double far[] = { 1, INFINITY };
    assert_true(isinf(stats_mean(far, 2).mean) && isnan(stats_mean(far, 2).half));
    /* The values are from tables of Student's distribution. */
    static const struct {
        uint32_t freedom;
        double t;
    } rows[] = { { 1, 12.706 }, { 9, 2.262 },  { 11, 2.201 },
                 { 19, 2.093 }, { 29, 2.045 }, { 99, 1.984 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_true(fabs(stats_t975(rows[i].freedom) - rows[i].t) < 0.0007);
}

static void means_are_told_with_their_interval(void **state)
{
    (void)state;
    static const struct {
        struct stats_mean m;
        double factor;
        int digits;
        bool sign;
        const char *text, *why;
    } rows[] = {
        { { 3, 1.26e9, 4e8 }, 1e-9, 1, false, "1.3 \u00b10.4", "in the unit of the factor" },
        { { 3, -2, 0.25 }, 1, 2, true, "-2.00 \u00b10.25", "the interval has no sign" },
        { { 3, 2, 0.25 }, 1, 2, true, "+2.00 \u00b10.25", "a difference shows its own" },
        { { 1, 2, (double)NAN }, 1, 0, false, "2", "one value has no interval" },
        { { 0, (double)NAN, (double)NAN }, 1, 0, false, "-", "nothing was measured" },
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        stats_mean_text(&out, rows[i].m, rows[i].factor, rows[i].digits, rows[i].sign);
        if (!str_eq(buf_view(&out), str_from(rows[i].text))) fail_msg("%s", rows[i].why);
        buf_clear(&out);
    }
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    stats_mean_json(&w, "a", rows[1].m);
    stats_mean_json(&w, "b", rows[3].m);
    json_object_end(&w);
    assert_true(str_eq(buf_view(&out), STR("{\"a\":{\"mean\":-2,\"ci95\":0.25},"
                                           "\"b\":{\"mean\":2,\"ci95\":null}}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_exact),
        cmocka_unit_test(misses_are_infinite),
        cmocka_unit_test(rare_things_are_said_when_they_are),
        cmocka_unit_test(services_are_judged_each_by_its_slo),
        cmocka_unit_test(figures_have_twelve_digits),
        cmocka_unit_test(nothing_completed_is_no_number),
        cmocka_unit_test(intervals_are_students),
        cmocka_unit_test(means_are_told_with_their_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

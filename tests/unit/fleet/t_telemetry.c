/* t_telemetry.c - tests windows of measurements: quantiles, rates, lengths, reports. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "fleet/telemetry.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sliding windows against a plain sort, rates beyond the window, reports ---- */

#define SECOND 1000000

static void telemetry_free(struct telemetry *t)
{
    free(t);
}

CLEANUP_FREEP(telemetry, struct telemetry)

static void insertion_sort(double *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        double one = v[i];
        uint32_t at = i;
        for (; at > 0 && v[at - 1] > one; at--)
            v[at] = v[at - 1];
        v[at] = one;
    }
}

/* The oracle keeps all values and sorts those of the window among the last
 * TELEMETRY_SAMPLES_MAX. */
static void quantiles_are_those_of_a_sort(void **state)
{
    (void)state;
    enum { ADDED = 3000 };
    static double value[ADDED];
    static int64_t at_us[ADDED];
    static struct value_window w;
    struct rng rng;
    rng_seed(&rng, 5);
    int64_t now_us = SECOND;
    for (uint32_t i = 0; i < ADDED; i++) {
        now_us += (int64_t)(rng_u64(&rng) % 40000);
        value[i] = (double)(rng_u64(&rng) % 1000) * 0.25;
        at_us[i] = now_us;
        value_window_add(&w, value[i], now_us);
        if (i % 97 != 0) continue;
        double recent[ADDED], sum = 0;
        uint32_t n = 0;
        uint32_t first = i + 1 > TELEMETRY_SAMPLES_MAX ? i + 1 - TELEMETRY_SAMPLES_MAX : 0;
        for (uint32_t k = first; k <= i; k++) {
            if (now_us - at_us[k] > TELEMETRY_WINDOW_US) continue;
            recent[n++] = value[k];
            sum += value[k];
        }
        insertion_sort(recent, n);
        struct wire_quantiles q;
        value_window_quantiles(&w, now_us, &q);
        assert_int_equal(q.count, n);
        assert_true(fabs(q.mean - sum / (double)n) < 1e-9);
        assert_float_equal(q.p50, recent[(n - 1) / 2], 0);
        assert_float_equal(q.p90, recent[(n - 1) * 9 / 10], 0);
        assert_float_equal(q.p99, recent[(n - 1) * 99 / 100], 0);
    }
}

static void values_leave_the_window(void **state)
{
    (void)state;
    static struct value_window w;
    struct wire_quantiles q;
    value_window_quantiles(&w, 0, &q);
    assert_int_equal(q.count, 0);
    value_window_add(&w, 3, SECOND);
    value_window_add(&w, 5, 2 * SECOND);
    value_window_quantiles(&w, SECOND + TELEMETRY_WINDOW_US, &q);
    assert_int_equal(q.count, 2);
    value_window_quantiles(&w, SECOND + TELEMETRY_WINDOW_US + 1, &q);
    assert_int_equal(q.count, 1);
    assert_float_equal(q.p50, 5, 0);
    value_window_quantiles(&w, 3 * SECOND + TELEMETRY_WINDOW_US, &q);
    assert_int_equal(q.count, 0);
    assert_float_equal(q.mean, 0, 0);
}

static void rates_are_right_below_and_above_the_windows_size(void **state)
{
    (void)state;
    const struct {
        int64_t every_us;
        double per_s;
        const char *why;
    } rows[] = {
        { 500000, 2, "a few" },
        { 20000, 50, "many, all in the window" },
        { 1000, 1000, "more than the window holds" },
        { 100, 10000, "a flood" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct value_window *w = calloc(1, sizeof *w);
        int64_t now_us = 0;
        while (now_us < 2 * TELEMETRY_WINDOW_US)
            value_window_add(w, 1, now_us += rows[i].every_us);
        double got = value_window_per_s(w, now_us);
        /* Both ends belong to the window, so one sample more may fall into it. */
        double most = 0.03 * rows[i].per_s + 1e6 / TELEMETRY_WINDOW_US;
        if (fabs(got - rows[i].per_s) > most) {
            fail_msg("%s: %.1f a second instead of %.1f", rows[i].why, got, rows[i].per_s);
        }
        assert_float_equal(value_window_per_s(w, now_us + 2 * TELEMETRY_WINDOW_US), 0, 0);
        free(w);
    }
}

static void a_report_carries_rates_means_and_counters(void **state)
{
    (void)state;
    CLEANUP(telemetry_freep) struct telemetry *one = calloc(1, sizeof *one);
    assert_non_null(one);
    for (uint32_t i = 0; i < 30; i++) {
        telemetry_arrived(one, 100 + i % 2 * 20, 8, SECOND * (int64_t)10);
        const struct telemetry_outcome ended = {
            .ttft_s = 0.5, .e2e_s = 0.75, .ttft_slo_s = i % 3 ? 1 : 0.4, .generated_tokens = 1
        };
        assert_int_equal(telemetry_finished(one, &ended, SECOND * (int64_t)10), i % 3 != 0);
    }
    telemetry_refused(one);
    for (uint32_t i = 0; i < 6; i++)
        telemetry_refused_late(one, 9, SECOND * (int64_t)10);
    struct service_demand d;
    telemetry_report(one, SECOND * (int64_t)11, &d);
    assert_int_equal(d.arrivals_total, 30);
    assert_int_equal(d.rejected_total, 7);
    assert_float_equal(d.late_refused_per_s, 0.4, 1e-9);
    assert_float_equal(d.arrival_per_s, 2, 1e-9);
    assert_float_equal(d.prompt_tokens_mean, 110, 1e-9);
    assert_float_equal(d.predicted_tokens_mean, 8, 1e-9);
    assert_int_equal(d.ttft_s.count, 30);
    assert_float_equal(d.ttft_s.p99, 0.5, 0);
    assert_float_equal(d.e2e_s.p50, 0.75, 0);
    assert_int_equal(d.tpot_s.count, 0); /* a single token has no TPOT */
    assert_int_equal(d.finished_total, 30);
    assert_int_equal(d.slo_met_total, 20);
    assert_int_equal(d.slo_missed_total, 10);
}

/* The controller reads the lengths that the router counted: whole requests, and moments that stay
 * consistent however often sums rose and fell. */
static void lengths_are_told_as_they_were_counted(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static struct telemetry_place place[COUNT];
    struct service_demand d;
    struct err err = { 0 };
    CLEANUP(telemetry_freep) struct telemetry *one = calloc(1, sizeof *one);
    int64_t now_us = (int64_t)100 * SECOND;
    assert_non_null(one);
    telemetry_report(one, now_us, &d);
    assert_false(d.has_expected || d.has_queued); /* absent, not a distribution of nothing */
    for (uint32_t i = 0; i < COUNT; i++)
        telemetry_queued(one, &place[i], 1e6 / (i + 1.3), 77.7 / (i + 1), now_us);
    for (uint32_t i = 0; i < COUNT - 1; i++)
        telemetry_unqueued(one, &place[i]);
    telemetry_unqueued(one, &place[0]); /* it left before: no effect */
    now_us += (int64_t)2 * SECOND;
    telemetry_report(one, now_us, &d);
    assert_true(d.has_expected && d.has_queued);
    assert_float_equal(d.expected.count, COUNT, 0);
    assert_float_equal(d.expected.age_s, 2, 1e-9);
    assert_float_equal(d.queued.count, 1, 0);
    assert_true(fabs(d.queued.prompt - 1e6 / (COUNT + 0.3)) < 1e-3);
    assert_true(d.queued.prompt_sq >= d.queued.prompt * d.queued.prompt);
    assert_true(d.queued.output_sq >= d.queued.output * d.queued.output && d.queued.cross >= 0);

    d.service = STR("m");
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 1 << 20);
    struct router_sync out = { .router = STR("r"), .boot = 1, .services = &d, .service_count = 1 };
    struct router_sync in;
    assert_int_equal(router_sync_encode(&out, &text), 0);
    if (router_sync_decode(buf_view(&text), &arena, &in, &err) < 0) fail_msg("%s", err.text);
    assert_memory_equal(&in.services[0].expected, &d.expected, sizeof d.expected);
    assert_memory_equal(&in.services[0].queued, &d.queued, sizeof d.queued);
}

static int telemetry_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_those_of_a_sort),
        cmocka_unit_test(values_leave_the_window),
        cmocka_unit_test(rates_are_right_below_and_above_the_windows_size),
        cmocka_unit_test(a_report_carries_rates_means_and_counters),
        cmocka_unit_test(lengths_are_told_as_they_were_counted),
    };
    return cmocka_run_group_tests_name("telemetry", tests, NULL, NULL);
}

/* ---- lengths that arrived and lengths that wait, against sums by hand ---- */

#define LENGTHS_SECOND ((int64_t)1000000)

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

static void lengths_are_those_that_came(void **state)
{
    (void)state;
    struct length_window r = { 0 };
    struct lengths l;
    length_window_expected(&r, LENGTH_BUCKETS, 10 * LENGTHS_SECOND, &l);
    assert_true(l.count <= 0);
    length_window_arrived(&r, 10, 20, 10 * LENGTHS_SECOND);   /* bins 0, 0 */
    length_window_arrived(&r, 100, 40, 12 * LENGTHS_SECOND);  /* bins 2, 1 */
    length_window_arrived(&r, 1e9, 1e9, 13 * LENGTHS_SECOND); /* the last bins are open-ended */
    length_window_expected(&r, LENGTH_BUCKETS, 15 * LENGTHS_SECOND, &l);
    assert_true(near(l.count, 3) && near(l.age_s, 2));
    assert_true(near(l.prompt, (110 + 1e9) / 3) && near(l.output, (60 + 1e9) / 3));
    assert_true(near(l.cross, (200 + 4000 + 1e18) / 3));
    assert_true(near(l.bin[0][0], 1) && near(l.bin[2][1], 1));
    assert_true(near(l.bin[LENGTH_BINS - 1][LENGTH_BINS - 1], 1));
}

static void what_left_waits_no_more(void **state)
{
    (void)state;
    struct length_window r = { 0 };
    struct lengths l;
    length_window_arrived(&r, 100, 50, 1);
    length_window_arrived(&r, 300, 70, 2);
    length_window_left(&r, 100, 50);
    length_window_queued(&r, &l);
    assert_true(near(l.count, 1) && near(l.prompt, 300) && near(l.output, 70));
    assert_true(near(l.prompt_sq, 90000) && near(l.bin[2][1], 0) && near(l.bin[4][2], 1));
    length_window_left(&r, 300, 70);
    length_window_queued(&r, &l);
    assert_true(l.count <= 0);
    length_window_expected(&r, LENGTH_BUCKETS, 3, &l);
    assert_true(near(l.count, 2)); /* it still arrived */
}

/* The oracle keeps every arrival and sums those of the buckets in the window. */
static void windows_forget_by_the_bucket(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static struct length_window r;
    static double prompt[COUNT], output[COUNT];
    static int64_t at_us[COUNT];
    struct rng rng;
    rng_seed(&rng, 9);
    int64_t now_us = LENGTHS_SECOND;
    for (uint32_t i = 0; i < COUNT; i++) {
        now_us +=
            (int64_t)(rng_u64(&rng) % (i % 500 == 499 ? 400 * LENGTHS_SECOND : LENGTHS_SECOND));
        prompt[i] = 1 + (double)(rng_u64(&rng) % 5000);
        output[i] = 1 + (double)(rng_u64(&rng) % 1000);
        at_us[i] = now_us;
        length_window_arrived(&r, prompt[i], output[i], now_us);
        if (i % 37 != 0) continue;
        for (uint32_t buckets = 12; buckets <= LENGTH_BUCKETS; buckets += 48) {
            double n = 0, p = 0, po = 0;
            for (uint32_t k = 0; k <= i; k++) {
                if (now_us / LENGTH_BUCKET_US - at_us[k] / LENGTH_BUCKET_US >= buckets) continue;
                n++;
                p += prompt[k];
                po += prompt[k] * output[k];
            }
            struct lengths l;
            length_window_expected(&r, buckets, now_us, &l);
            assert_true(near(l.count, n) && near(l.prompt, p / n) && near(l.cross, po / n));
        }
    }
}

static void two_joined_are_one(void **state)
{
    (void)state;
    struct length_window a = { 0 }, b = { 0 }, both = { 0 };
    struct lengths x, y, sum, want, none = { 0 };
    for (uint32_t i = 1; i <= 40; i++) {
        length_window_arrived(i % 3 ? &a : &b, i * 50, i * 7, i * LENGTHS_SECOND);
        length_window_arrived(&both, i * 50, i * 7, i * LENGTHS_SECOND);
    }
    length_window_expected(&a, LENGTH_BUCKETS, 41 * LENGTHS_SECOND, &x);
    length_window_expected(&b, LENGTH_BUCKETS, 41 * LENGTHS_SECOND, &y);
    length_window_expected(&both, LENGTH_BUCKETS, 41 * LENGTHS_SECOND, &want);
    lengths_join(&x, &y, &sum);
    assert_true(near(sum.count, 40) && near(sum.prompt, want.prompt) && near(sum.age_s, 1));
    assert_true(near(sum.output_sq, want.output_sq) && near(sum.cross, want.cross));
    assert_memory_equal(sum.bin, want.bin, sizeof sum.bin);
    lengths_join(&none, &y, &sum); /* an absent part has no age */
    assert_true(near(sum.age_s, 2) && near(sum.count, y.count));
    lengths_join(&y, &none, &sum);
    assert_true(near(sum.age_s, 2) && near(sum.prompt, y.prompt));
}

static int length_window_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_those_that_came),
        cmocka_unit_test(what_left_waits_no_more),
        cmocka_unit_test(windows_forget_by_the_bucket),
        cmocka_unit_test(two_joined_are_one),
    };
    return cmocka_run_group_tests_name("length_window", tests, NULL, NULL);
}

int main(void)
{
    return telemetry_tests() + length_window_tests();
}

/* t_load.c - reports add what others sent, compared with the own past; meters see ramps at once. */
#include "base/core/bits.h"
#include "router/core/failure.h"
#include "router/core/load.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND 1000000

static struct route_instance instance(void)
{
    return (struct route_instance){ .has_perf = true,
                                    .perf = { .prefill_token_s = 1e-3 },
                                    .token_budget = 512 };
}

static void without_a_report_nothing_is_added(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct route_instance in = instance();
    in.in_flight = 3;
    in.prefill_tokens = 100;
    load_view(&l, (struct ledger_sums){ .in_flight = 3 }, SECOND, &in);
    assert_int_equal(in.in_flight, 3);
    assert_int_equal(in.prefill_tokens, 100);
}

static void a_report_is_compared_with_the_ledger_of_then(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct ledger_sums own = { .in_flight = 2,
                               .waiting = 1,
                               .kv_tokens = 500,
                               .prefill_tokens = 300,
                               .uncached_total = 1000 };
    load_note(&l, own, SECOND);
    /* Two more are sent after the engine counted: not mistaken for nobody's. */
    struct ledger_sums later = own;
    later.in_flight = later.waiting = 4;
    later.uncached_total = 1400;
    load_note(&l, later, 2 * SECOND);
    struct reported_load report = {
        .running = 3, .waiting = 2, .prefill_tokens = 900, .kv_tokens = 1500, .uncached_total = 5000
    };
    assert_int_equal(load_report(&l, &report, later, SECOND + 1000), 0); /* counting begins */
    struct route_instance in = instance();
    in.in_flight = in.waiting = 4;
    in.prefill_tokens = 700;
    load_view(&l, later, SECOND + 1000, &in);
    assert_int_equal(in.in_flight, 4 + 3);
    assert_int_equal(in.waiting, 4 + 1);
    assert_int_equal(in.decoding, 2);
    assert_int_equal(in.kv_tokens, 1000);
    assert_int_equal(in.prefill_tokens, 900 + 400); /* owed then, and sent since */
    in.prefill_tokens = 700;
    load_view(&l, later, SECOND + 501000, &in); /* half a second computed 500 of them */
    assert_int_equal(in.prefill_tokens, 400 + 400);
    in.prefill_tokens = 700;
    load_view(&l, later, 3 * SECOND, &in); /* never below what this router still waits for */
    assert_int_equal(in.prefill_tokens, 700);
}

static void old_reports_fade_and_late_ones_are_dropped(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct ledger_sums none = { 0 };
    struct reported_load report = { .running = 10 };
    load_report(&l, &report, none, 10 * SECOND);
    report.running = 99;
    load_report(&l, &report, none, 9 * SECOND);
    static const struct {
        int64_t at_us;
        uint32_t in_flight;
    } rows[] = { { 10 * SECOND, 10 }, { 15 * SECOND, 10 }, { 20 * SECOND, 5 }, { 25 * SECOND, 0 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct route_instance in = instance();
        load_view(&l, none, rows[i].at_us, &in);
        assert_int_equal(in.in_flight, rows[i].in_flight);
    }
    load_boot(&l);
    struct route_instance in = instance();
    load_view(&l, none, 10 * SECOND, &in);
    assert_int_equal(in.in_flight, 0);
}

static void others_work_is_counted_once(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct ledger_sums own = { 0 };
    struct reported_load report = { .uncached_total = 7000 };
    assert_int_equal(load_report(&l, &report, own, SECOND), 0);
    own.uncached_total = 500; /* own prompts on their way: the difference falls, then comes back */
    load_note(&l, own, 2 * SECOND);
    assert_int_equal(load_report(&l, &report, own, 2 * SECOND), 0);
    report.uncached_total = 7500;
    assert_int_equal(load_report(&l, &report, own, 3 * SECOND), 0);
    report.uncached_total = 7900;
    assert_int_equal(load_report(&l, &report, own, 4 * SECOND), 400);
}

/* An engine whose counter begins anew without saying so, and one that says what cannot be. */
static void no_report_freezes_or_floods(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct ledger_sums own = { .uncached_total = 100 };
    struct reported_load report = { .uncached_total = 1000000 };
    load_report(&l, &report, own, SECOND);
    report.uncached_total = 50;
    assert_int_equal(load_report(&l, &report, own, 2 * SECOND), 0);
    report.uncached_total = 450;
    assert_int_equal(load_report(&l, &report, own, 3 * SECOND), 400);

    report = (struct reported_load){ UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    load_report(&l, &report, own, 4 * SECOND);
    struct route_instance in = instance();
    in.in_flight = in.waiting = 7;
    load_view(&l, own, 4 * SECOND, &in);
    assert_true(in.in_flight >= 7 && in.waiting >= 7 && in.waiting <= in.in_flight);
    assert_int_equal(in.waiting + in.decoding, in.in_flight);
}

/* The ledger of now is found again although the clock went back to before all that was noted. */
static void a_clock_that_is_set_back_freezes_nothing(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct ledger_sums own = { .in_flight = 5, .uncached_total = 100 };
    load_note(&l, own, 100 * SECOND);
    own.in_flight = 2;
    load_note(&l, own, SECOND);
    own.in_flight = 3;
    load_note(&l, own, 2 * SECOND);
    struct reported_load report = { .running = 3 };
    load_report(&l, &report, own, 3 * SECOND);
    assert_int_equal(l.own_then.in_flight, 3);
    load_report(&l, &report, own, 3 * SECOND);
    struct route_instance in = instance();
    load_view(&l, own, 3 * SECOND, &in);
    assert_int_equal(in.in_flight, 0); /* all of what it reports is our own */
}

/* At any constant rate the meter says the rate, from a few seconds after the start on. */
static void meters_are_right_from_the_start(void **state)
{
    (void)state;
    struct load_meter m = { 0 };
    assert_true(load_meter_rate(&m, LOAD_US, 0) == 0);
    for (int64_t at = SECOND; at <= 300 * SECOND; at += SECOND / 10) {
        load_meter_add(&m, LOAD_US, 0.07, at);
        double rate = load_meter_rate(&m, LOAD_US, at);
        if (at > 7 * SECOND && fabs(rate - 0.7) > 0.02) fail_msg("%ld: %f", (long)at, rate);
    }
    double after = load_meter_rate(&m, LOAD_US, 360 * SECOND);
    assert_true(fabs(after - 0.7 * exp(-1)) < 0.02);
}

/* Which silence ends an attempt: rows of what an engine said and when. */

static const struct silence_config config = {
    .head_us = 30 * SECOND,
    .gap_us = 10 * SECOND,
    .other_first_us = 120 * SECOND,
    .other_gap_us = 60 * SECOND,
};

struct row {
    bool ours, streams;
    int64_t head_s, beat_ms; /* head_s 0: none came */
    int64_t bytes_s;         /* the last byte; 0: none came */
    int64_t silent_s;        /* since the call began; 0: never */
    const char *why;
};

/* When the silence is noticed by one who looks when told to. */
static int64_t noticed_s(struct silence *s, int64_t from_s)
{
    while (s->look_us != INT64_MAX) {
        int64_t at_us = s->look_us;
        if (silence_look(s, &config, at_us)) return at_us / SECOND - from_s;
        assert_true(s->look_us > at_us);
    }
    return 0;
}

static void limits_are_as_said(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { true, true, 0, 0, 0, 30, "ours: no head" },
        { true, false, 0, 0, 0, 30, "ours: frames, whatever the client asked for" },
        { true, true, 5, 1000, 0, 15, "ours: nothing behind the head" },
        { true, true, 5, 1000, 300, 310, "ours: beats, then silence" },
        { true, true, 5, 5000, 8, 28, "ours: a slow beat has four chances" },
        { true, true, 5, 0, 8, 0, "ours, and older: it names no beat" },
        { false, true, 0, 0, 0, 120, "another: its queue is silent" },
        { false, true, 1, 0, 0, 121, "another: a head is no token" },
        { false, true, 1, 0, 7, 67, "another: between tokens" },
        { false, false, 0, 0, 0, 0, "another: a whole answer comes at its end" },
        { false, false, 1, 0, 3, 0, "another: a whole answer" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *r = &rows[i];
        struct silence s;
        int64_t from = 1000 * SECOND;
        silence_begin(&s, &config, r->ours, r->streams, from);
        if (r->head_s) silence_head(&s, &config, r->beat_ms * 1000, from + r->head_s * SECOND);
        for (int64_t t = r->head_s + 1; t <= r->bytes_s; t++) {
            silence_heard(&s, &config, from + t * SECOND);
            if (s.look_us <= from + t * SECOND)
                assert_false(silence_look(&s, &config, from + t * SECOND));
        }
        int64_t got = noticed_s(&s, 1000);
        if (got != r->silent_s) fail_msg("%s: %ld", r->why, (long)got);
    }
}

/* What came meanwhile lies unread, or was never asked for. */
static void a_late_look_proves_nothing(void **state)
{
    (void)state;
    struct silence s;
    silence_begin(&s, &config, true, true, SECOND);
    silence_head(&s, &config, SECOND, SECOND);
    int64_t late = s.look_us + 100 * SECOND;
    assert_false(silence_look(&s, &config, late));
    assert_int_equal(s.look_us, late + config.gap_us);
    assert_true(silence_look(&s, &config, s.look_us));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_report_nothing_is_added),
        cmocka_unit_test(a_report_is_compared_with_the_ledger_of_then),
        cmocka_unit_test(old_reports_fade_and_late_ones_are_dropped),
        cmocka_unit_test(others_work_is_counted_once),
        cmocka_unit_test(no_report_freezes_or_floods),
        cmocka_unit_test(a_clock_that_is_set_back_freezes_nothing),
        cmocka_unit_test(meters_are_right_from_the_start),
        cmocka_unit_test(limits_are_as_said),
        cmocka_unit_test(a_late_look_proves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

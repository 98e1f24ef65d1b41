/* t_ledger.c - tests the router's record of its own requests, the loads that engines report, and
 * limits of silence. */
#include "base/core/bits.h"
#include "router/core/failure.h"
#include "router/core/ledger.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- the ledger: sums follow entries, owed prefill shrinks, full slots predict a wait; retries
 * ---- */

static struct route_instance instance(void)
{
    return (struct route_instance){
        .has_perf = true,
        .perf = { .step_s = 0.01, .prefill_token_s = 0.001, .decode_seq_s = 0.002 },
        .token_budget = 100,
        .seqs_max = 2,
    };
}

static struct ledger_entry *send(struct ledger *l, uint32_t slot, uint32_t prompt_tokens,
                                 uint32_t hit_tokens, double output_expected)
{
    struct ledger_sending s = { .prompt_tokens = prompt_tokens,
                                .hit_tokens = hit_tokens,
                                .output_expected = output_expected,
                                .tenant = 7 };
    return ledger_send(l, slot, &s, 0);
}

static void sums_follow_entries(void **state)
{
    (void)state;
    struct ledger *l = NULL;
    assert_int_equal(ledger_new(4, 4, &l, NULL), 0);
    struct route_instance in = instance();
    struct ledger_entry *a = send(l, 1, 100, 40, 10);
    struct ledger_entry *b = send(l, 1, 50, 0, 20);
    ledger_view(l, 1, 7, 0, &in);
    assert_int_equal(in.in_flight, 2);
    assert_int_equal(in.prefill_tokens, 110);
    ledger_tokens(l, a, 1, 1000);
    ledger_tokens(l, a, 2, 2000);
    ledger_view(l, 1, 7, 1000, &in);
    assert_int_equal(in.decoding, 1);
    assert_int_equal(in.kv_tokens, 103);
    assert_int_equal(in.prefill_tokens, 50);
    ledger_end(l, a);
    ledger_end(l, b);
    ledger_view(l, 1, 7, 3000, &in);
    assert_int_equal(in.in_flight + in.decoding + in.kv_tokens + in.prefill_tokens, 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_non_null(send(l, 2, 10, 0, 1));
    assert_null(send(l, 3, 10, 0, 1)); /* the bound is reached */
    ledger_free(l);
}

static void owed_prefill_shrinks_but_never_vanishes(void **state)
{
    (void)state;
    struct ledger *l = NULL;
    assert_int_equal(ledger_new(4, 4, &l, NULL), 0);
    struct route_instance in = instance();
    send(l, 0, 1000, 0, 10);
    ledger_view(l, 0, 7, 110000, &in); /* 0.11 s at 1 ms + 10 ms / 100 a token */
    assert_int_equal(in.prefill_tokens, 900);
    ledger_view(l, 0, 7, 60000000, &in);
    assert_int_equal(in.prefill_tokens, 1);
    ledger_free(l);
}

static void full_slots_wait_for_the_next_end(void **state)
{
    (void)state;
    struct ledger *l = NULL;
    assert_int_equal(ledger_new(8, 4, &l, NULL), 0);
    struct route_instance in = instance();
    struct ledger_entry *a = send(l, 0, 10, 0, 31);
    ledger_view(l, 0, 7, 0, &in);
    assert_true(in.slot_wait_s == 0);
    send(l, 0, 10, 0, 100);
    ledger_tokens(l, a, 1, 0);
    ledger_view(l, 0, 7, 0, &in); /* both slots taken: the shorter has 30 tokens to go */
    assert_true(fabs(in.slot_wait_s - 30 * (0.01 + 2 * 0.002)) < 1e-9);
    ledger_free(l);
}

/* Orders doubles for qsort; the sorted rest lengths are the slow reference of the test below. */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void the_next_free_slot_is_the_nth_end(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    struct rng rng;
    rng_seed(&rng, 8);
    for (uint32_t round = 0; round < 300; round++) {
        struct ledger *l = NULL;
        double left[COUNT];
        struct route_instance in = instance();
        uint32_t count = 1 + (uint32_t)rng_below(&rng, COUNT), spread = round % 3 ? 1000 : 4;
        in.seqs_max = 1 + (uint32_t)rng_below(&rng, count);
        in.perf = (struct perf_coef){ .step_s = 1 }; /* a second a token */
        assert_int_equal(ledger_new(COUNT, 1, &l, NULL), 0);
        struct ledger_entry *e[COUNT];
        for (uint32_t i = 0; i < count; i++) {
            left[i] = 1 + (double)rng_below(&rng, spread);
            e[i] = send(l, 0, 10, 0, left[i]);
        }
        ledger_view(l, 0, 7, 0, &in);
        qsort(left, count, sizeof left[0], by_value);
        assert_true(in.slot_wait_s == left[count - in.seqs_max]);
        assert_int_equal(in.tenant_waiting, count);
        for (uint32_t i = 0; i < count; i++)
            ledger_end(l, e[i]);
        ledger_free(l);
    }
}

/* Ten requests earn one retry. */
static void a_tenth_of_the_traffic_may_be_retried(void **state)
{
    (void)state;
    struct retry_budget budget;
    retry_budget_init(&budget);
    for (uint32_t i = 0; i < 3 * RETRY_FLOOR; i++) {
        struct retry_request r = { .attempts = 1 };
        assert_int_equal(retry_decide(&budget, &r, RETRY_ERROR).again, i < RETRY_FLOOR);
    }
    for (uint32_t i = 0; i < 100; i++) {
        struct retry_request r = { .attempts = 1 };
        retry_budget_earn(&budget);
        bool again = retry_decide(&budget, &r, RETRY_ERROR).again;
        assert_int_equal(again, (i + 1) % RETRY_REQUESTS == 0);
    }
    for (uint32_t i = 0; i < 10 * RETRY_SAVED_MAX * RETRY_REQUESTS; i++)
        retry_budget_earn(&budget);
    assert_int_equal(budget.saved, RETRY_SAVED_MAX * RETRY_REQUESTS);
}

static void retry_rules(void **state)
{
    (void)state;
    static const struct {
        struct retry_request before;
        uint32_t retries;
        enum retry_failure failure;
        bool again;
        int status;
        const char *why;
    } rows[] = {
        { { 1, 0, 0, 0, false }, 0, RETRY_UNREACHABLE, true, 0, "a dead connection costs nothing" },
        { { 1, 0, 0, 0, false }, 1, RETRY_DIED, true, 0, "the first crash goes elsewhere" },
        { { 2, 1, 1, 1, false }, 9, RETRY_DIED, false, 422, "the second crash is the request's" },
        { { 4, 0, 2, 2, false }, 9, RETRY_DIED, true, 0, "it went on after the first two" },
        { { 4, 0, 3, 3, false }, 9, RETRY_DIED, false, 422, "deaths are bounded" },
        { { 1, 0, 0, 0, false }, 0, RETRY_DIED, true, 0, "the first engine lost is free" },
        { { 4, 0, 2, 2, false }, 0, RETRY_DIED, false, 502, "no budget" },
        { { 1, 0, 0, 0, true }, 9, RETRY_DIED, false, 0, "the client has a part of the answer" },
        { { 1, 0, 0, 0, false }, 9, RETRY_OVERLOADED, true, 0, "another may have room" },
        { { 2, 1, 1, 1, false },
          9,
          RETRY_TAKEN,
          true,
          0,
          "its provider ended it, not the request" },
        { { 2, 0, 0, 1, false }, 0, RETRY_TAKEN, false, 502, "the second one lost is paid for" },
        { { 1, 0, 0, 0, false }, 9, RETRY_SILENT, true, 0, "another may speak" },
        { { 2, 1, 1, 1, false }, 9, RETRY_SILENT, true, 0, "silence is no proof of a crash" },
        { { 1, 0, 0, 0, false }, 0, RETRY_SILENT, true, 0, "a silent one is lost too" },
        { { 2, 0, 0, 1, false }, 0, RETRY_SILENT, false, 502, "the second is paid for" },
        { { 1, 0, 0, 0, false }, 0, RETRY_BROKEN, true, 0, "all requests of a broken one get 500" },
        { { 2, 0, 0, 1, false }, 0, RETRY_BROKEN, false, 502, "the second is paid for" },
        { { 2, 0, 0, 1, false }, 9, RETRY_BROKEN, true, 0, "a 500 is no proof of a crash" },
        { { 1, 0, 0, 0, false }, 0, RETRY_ERROR, false, 502, "one of ours answers for itself" },
        { { 1, 0, 0, 0, false }, 0, RETRY_OVERLOADED, false, 503, "nor budget" },
        { { 8, 0, 0, 0, false }, 9, RETRY_UNREACHABLE, false, 503, "attempts are bounded" },
        { { 1, 1, 1, 1, false }, 0, RETRY_LOCAL, true, 0, "what ran short here costs nothing" },
        { { 1, 0, 0, 0, true }, 9, RETRY_LOCAL, false, 0, "nor does it take back what was sent" },
    };
    for (uint32_t i = 0; i < COUNT_OF(rows); i++) {
        struct retry_budget budget = { .saved = rows[i].retries * RETRY_REQUESTS };
        struct retry_request r = rows[i].before;
        struct retry_verdict v = retry_decide(&budget, &r, rows[i].failure);
        if (v.again != rows[i].again || v.status != rows[i].status) fail_msg("%s", rows[i].why);
    }
}

static int ledger_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow_entries),
        cmocka_unit_test(owed_prefill_shrinks_but_never_vanishes),
        cmocka_unit_test(full_slots_wait_for_the_next_end),
        cmocka_unit_test(the_next_free_slot_is_the_nth_end),
        cmocka_unit_test(a_tenth_of_the_traffic_may_be_retried),
        cmocka_unit_test(retry_rules),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}

/* ---- reported loads add what other routers sent, compared with our own past; meters ---- */

#define SECOND 1000000

static struct route_instance load_instance(void)
{
    return (struct route_instance){ .has_perf = true,
                                    .perf = { .prefill_token_s = 1e-3 },
                                    .token_budget = 512 };
}

static void without_a_report_nothing_is_added(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct route_instance in = load_instance();
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
    load_note(&l, &own, SECOND);
    /* Two requests sent after the engine counted must not count as another router's. */
    struct ledger_sums later = own;
    later.in_flight = later.waiting = 4;
    later.uncached_total = 1400;
    load_note(&l, &later, 2 * SECOND);
    struct reported_load report = {
        .running = 3, .waiting = 2, .prefill_tokens = 900, .kv_tokens = 1500, .uncached_total = 5000
    };
    assert_int_equal(load_report(&l, &report, later, SECOND + 1000), 0); /* only a start */
    struct route_instance in = load_instance();
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
    load_view(&l, later, 3 * SECOND, &in); /* at least what this router itself still waits for */
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
        struct route_instance in = load_instance();
        load_view(&l, none, rows[i].at_us, &in);
        assert_int_equal(in.in_flight, rows[i].in_flight);
    }
    load_boot(&l);
    struct route_instance in = load_instance();
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
    own.uncached_total = 500; /* own prompts under way: the difference falls, then returns */
    load_note(&l, &own, 2 * SECOND);
    assert_int_equal(load_report(&l, &report, own, 2 * SECOND), 0);
    report.uncached_total = 7500;
    assert_int_equal(load_report(&l, &report, own, 3 * SECOND), 0);
    report.uncached_total = 7900;
    assert_int_equal(load_report(&l, &report, own, 4 * SECOND), 400);
}

/* An engine's counter may restart without notice, and an engine may report impossible numbers. */
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

    report = (struct reported_load){ UINT32_MAX, UINT32_MAX, UINT64_MAX,
                                     UINT64_MAX, UINT32_MAX, UINT64_MAX };
    load_report(&l, &report, own, 4 * SECOND);
    struct route_instance in = load_instance();
    in.in_flight = in.waiting = 7;
    load_view(&l, own, 4 * SECOND, &in);
    assert_true(in.in_flight >= 7 && in.waiting >= 7 && in.waiting <= in.in_flight);
    assert_int_equal(in.waiting + in.decoding, in.in_flight);
}

/* After a clock that jumped back the right note of the ledger is still found. */
static void a_clock_that_is_set_back_freezes_nothing(void **state)
{
    (void)state;
    struct load l = { 0 };
    struct ledger_sums own = { .in_flight = 5, .uncached_total = 100 };
    load_note(&l, &own, 100 * SECOND);
    own.in_flight = 2;
    load_note(&l, &own, SECOND);
    own.in_flight = 3;
    load_note(&l, &own, 2 * SECOND);
    struct reported_load report = { .running = 3 };
    load_report(&l, &report, own, 3 * SECOND);
    assert_int_equal(l.own_then.in_flight, 3);
    load_report(&l, &report, own, 3 * SECOND);
    struct route_instance in = load_instance();
    load_view(&l, own, 3 * SECOND, &in);
    assert_int_equal(in.in_flight, 0); /* the report is all our own */
}

/* At a constant rate the meter is right from a few seconds after its start. */
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

/* ---- the silence that ends an attempt: what an engine sent, and when ---- */

static const struct silence_config config = {
    .head_us = 30 * SECOND,
    .gap_us = 10 * SECOND,
    .other_first_us = 120 * SECOND,
    .other_gap_us = 60 * SECOND,
};

struct row {
    bool ours, streams;
    int64_t head_s, beat_ms; /* head_s 0: no head came */
    int64_t bytes_s;         /* the last byte; 0: none came */
    int64_t silent_s;        /* since the call began; 0: never */
    const char *why;
};

/* Looks whenever it is due; returns the seconds after which silence is reported, or 0 for never. */
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

/* A late look proves nothing: bytes that came meanwhile may lie unread. */
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

static int load_tests(void)
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
    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}

int main(void)
{
    return ledger_tests() + load_tests();
}

/* t_ledger.c - sums follow entries, owed prefill shrinks with time, full slots foretell a wait;
 * and the retry rules row by row. */
#include "base/core/bits.h"
#include "router/core/failure.h"
#include "router/core/ledger.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

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
    assert_null(send(l, 3, 10, 0, 1)); /* the bound is an answer */
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

/* Against the slow truth: all lengths that are left, sorted, and the one counted to. */
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

/* Ten requests earn one retry: neither nine nor eleven. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow_entries),
        cmocka_unit_test(owed_prefill_shrinks_but_never_vanishes),
        cmocka_unit_test(full_slots_wait_for_the_next_end),
        cmocka_unit_test(the_next_free_slot_is_the_nth_end),
        cmocka_unit_test(a_tenth_of_the_traffic_may_be_retried),
        cmocka_unit_test(retry_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

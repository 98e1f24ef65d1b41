/* t_step.c - the rows of the engine's step: what each prefers, at and around its edges. */
#include "base/core/bits.h"
#include "policies/admit.h"
#include "policies/chunk.h"
#include "policies/evict.h"
#include "policies/order.h"
#include "policies/preempt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000

static void t_order(void **state)
{
    (void)state;
    static const struct {
        const char *why, *row;
        struct step_session first, second; /* the first goes first */
    } rows[] = {
        { "fcfs: by arrival, whatever the work",
          "fcfs",
          { .arrival_us = 5, .work_s = 90 },
          { .arrival_us = 6, .work_s = 1 } },
        { "shortest: by work",
          "shortest_predicted",
          { .arrival_us = 6, .work_s = 1 },
          { .arrival_us = 5, .work_s = 2 } },
        { "shortest: ten seconds of waiting are one of work",
          "shortest_predicted",
          { .arrival_us = 0, .work_s = 3 },
          { .arrival_us = 21 * SECOND, .work_s = 1 } },
        { "ratio: equal waits, the shorter",
          "response_ratio",
          { .arrival_us = 0, .work_s = 1 },
          { .arrival_us = 0, .work_s = 2 } },
        { "ratio: nobody waited, equal",
          "response_ratio",
          { .arrival_us = 39 * SECOND, .work_s = 1 },
          { .arrival_us = 40 * SECOND, .work_s = 9 } },
        { "ratio: a long one that waited its share passes",
          "response_ratio",
          { .arrival_us = 0, .work_s = 10 },
          { .arrival_us = 37 * SECOND, .work_s = 1 } },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct order_policy *row = order_find(str_from(rows[i].row));
        assert_non_null(row);
        int64_t now = 40 * SECOND;
        if (!(row->rank(&rows[i].first, now) < row->rank(&rows[i].second, now))) {
            fail_msg("%s", rows[i].why);
        }
    }
}

static void t_nobody_starves(void **state)
{
    (void)state;
    /* However long its work, a session passes one of a second that has just come, in time. */
    for (uint32_t i = 0; i < order_count; i++) {
        struct step_session old = { .arrival_us = 0, .work_s = 100 };
        int64_t now = 2000 * (int64_t)SECOND;
        struct step_session young = { .arrival_us = now, .work_s = 1 };
        if (!(order_table[i]->rank(&old, now) < order_table[i]->rank(&young, now))) {
            fail_msg("%s starves", order_table[i]->name);
        }
    }
}

static void t_admit(void **state)
{
    (void)state;
    static const struct {
        const char *why, *row;
        struct admit_view view;
        bool yes;
    } rows[] = {
        { "fit: exactly, with a page for each that runs",
          "fit",
          { .pages_available = 10, .pages_needed = 7, .running = 3, .pages_growth = 99 },
          true },
        { "fit: one short",
          "fit",
          { .pages_available = 9, .pages_needed = 7, .running = 3 },
          false },
        { "reserve: exactly, with all growth",
          "reserve",
          { .pages_available = 10, .pages_needed = 4, .pages_growth = 3, .running_growth = 3 },
          true },
        { "reserve: one short",
          "reserve",
          { .pages_available = 9, .pages_needed = 4, .pages_growth = 3, .running_growth = 3 },
          false },
        { "reserve: sums that would wrap",
          "reserve",
          { .pages_available = 9, .pages_needed = 4, .running_growth = UINT32_MAX },
          false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bool yes = admit_find(str_from(rows[i].row))->decide(&rows[i].view);
        if (yes != rows[i].yes) fail_msg("%s", rows[i].why);
    }
}

static void t_chunk(void **state)
{
    (void)state;
    const struct perf_coef perf = { .a = 10e-3, .b = 1e-3, .c = 2e-3, .d = 1e-6, .e = 1e-6 };
    static const struct {
        const char *why, *row;
        struct chunk_view view;
        uint32_t tokens;
    } rows[] = {
        { "budget: what is left of the prompt",
          "budget",
          { .tokens_left = 5, .budget_left = 9 },
          5 },
        { "budget: what is left of the budget",
          "budget",
          { .tokens_left = 9, .budget_left = 5 },
          5 },
        { "slack: nobody decodes, nobody is delayed",
          "slack",
          { .tokens_left = 900, .budget_left = 512, .step_s_max = 0.05 },
          512 },
        { "slack: no limit set",
          "slack",
          { .tokens_left = 900, .budget_left = 512, .planned.decoding_seqs = 5 },
          512 },
        /* 50 ms - (10 + 5 * 2) ms = 30 ms at 1 ms a token */
        { "slack: as many as fit",
          "slack",
          { .tokens_left = 900,
            .budget_left = 512,
            .planned.decoding_seqs = 5,
            .step_s_max = 0.0501 },
          30 },
        /* behind 1,000 tokens one costs 1 ms + 1,000 us = 2 ms */
        { "slack: what it attends to counts",
          "slack",
          { .tokens_left = 900,
            .budget_left = 512,
            .computed = 1000,
            .planned.decoding_seqs = 5,
            .step_s_max = 0.0621 },
          21 },
        { "slack: never less than 16, or a long prompt would not end",
          "slack",
          { .tokens_left = 900,
            .budget_left = 512,
            .planned.decoding_seqs = 100,
            .step_s_max = 0.05 },
          16 },
        { "slack: unless the budget is smaller still",
          "slack",
          { .tokens_left = 900,
            .budget_left = 7,
            .planned.decoding_seqs = 100,
            .step_s_max = 0.05 },
          7 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct chunk_view view = rows[i].view;
        view.perf = perf;
        uint32_t tokens = chunk_find(str_from(rows[i].row))->decide(&view);
        if (tokens != rows[i].tokens) fail_msg("%s: %u", rows[i].why, tokens);
    }
}

static void t_preempt(void **state)
{
    (void)state;
    struct step_session old = { .arrival_us = 1, .computed = 10 };
    struct step_session young = { .arrival_us = 2, .computed = 20 };
    const struct preempt_policy *newest = preempt_find(STR("newest"));
    const struct preempt_policy *least = preempt_find(STR("least_computed"));
    assert_true(newest->rank(&young) > newest->rank(&old));
    assert_true(least->rank(&old) > least->rank(&young));
}

static void t_evict(void **state)
{
    (void)state;
    const struct evict_policy *lru = evict_find(STR("lru"));
    const struct evict_policy *probation = evict_find(STR("probation_2hit"));
    struct evict_page cold = { .clock = 50, .pages_total = 100 };
    struct evict_page hot = { .clock = 10, .hits = 1, .pages_total = 100 };
    assert_true(lru->rank(&hot) < lru->rank(&cold));
    assert_true(probation->rank(&cold) < probation->rank(&hot));
    cold.clock = 111; /* more than one turnover later */
    assert_true(probation->rank(&hot) < probation->rank(&cold));
}

static void t_tables(void **state)
{
    (void)state;
    assert_non_null(order_find(STR(ORDER_DEFAULT)));
    assert_non_null(admit_find(STR(ADMIT_DEFAULT)));
    assert_non_null(chunk_find(STR(CHUNK_DEFAULT)));
    assert_non_null(preempt_find(STR(PREEMPT_DEFAULT)));
    assert_non_null(evict_find(STR(EVICT_DEFAULT)));
    assert_null(order_find(STR("")));
    assert_null(admit_find(STR("Fit")));
    assert_null(chunk_find(STR("budgets")));
    assert_null(preempt_find(STR("newes")));
    assert_null(evict_find(STR("none")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_order),  cmocka_unit_test(t_nobody_starves), cmocka_unit_test(t_admit),
        cmocka_unit_test(t_chunk),  cmocka_unit_test(t_preempt),        cmocka_unit_test(t_evict),
        cmocka_unit_test(t_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_order.c - tests order and fair policies: which session goes first, around the thresholds, and
 * that none starves. */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/rng.h"
#include "policies/fair/fair.h"
#include "policies/order/order.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000
#define NOW (40 * (int64_t)SECOND)

static uint64_t memory[8192 / 8];

static struct order_rank rank_of(const struct order_policy *policy, struct step_session session,
                                 int64_t now)
{
    struct step_scratch scratch = { 0 };
    struct order_rank r;
    if (!session.scratch) session.scratch = &scratch;
    must(policy->state_size <= sizeof memory);
    order_rank_of(policy, memory, &session, now, &r);
    return r;
}

/* Returns a negative number when `a` goes first. */
static int compare(const char *name, struct step_session a, struct step_session b, int64_t now)
{
    const struct order_policy *policy = order_find(str_from(name));
    if (!policy) fail_msg("%s: no such row", name);
    struct order_rank ra = rank_of(policy, a, now), rb = rank_of(policy, b, now);
    double va = order_rank_at(&ra, now), vb = order_rank_at(&rb, now);
    if (va < vb || va > vb) return va < vb ? -1 : 1;
    return ra.tie_us < rb.tie_us ? -1 : ra.tie_us > rb.tie_us;
}

static void t_who_goes_first(void **state)
{
    (void)state;
    memset(memory, 0, sizeof memory);
    static const struct {
        const char *why, *row;
        struct step_session first, second; /* the first must go before the second */
    } rows[] = {
        // clang-format off
        { "fcfs: by arrival, whatever the work", "fcfs",
          { .arrival_us = 5, .work_s = 90 }, { .arrival_us = 6, .work_s = 1 } },
        { "work: the shorter", "sjf_work",
          { .arrival_us = 6, .work_s = 1 }, { .arrival_us = 5, .work_s = 2 } },
        { "work: two thousand seconds of waiting are one of work", "sjf_work",
          { .arrival_us = NOW - 4001 * (int64_t)SECOND, .work_s = 3 },
          { .arrival_us = NOW, .work_s = 1 } },
        { "prompt: the shorter prefill, whatever the answer", "sjf_prompt",
          { .prefill_s = 1, .decode_s = 9, .work_s = 10 },
          { .prefill_s = 2, .decode_s = 1, .work_s = 3 } },
        { "output: the shorter answer, whatever the prompt", "sjf_output",
          { .prefill_s = 9, .decode_s = 1, .work_s = 10 },
          { .prefill_s = 1, .decode_s = 2, .work_s = 3 } },
        { "ratio: equal waits, the shorter", "response_ratio",
          { .arrival_us = 0, .work_s = 1 }, { .arrival_us = 0, .work_s = 2 } },
        { "ratio: nobody waited, by arrival", "response_ratio",
          { .arrival_us = 39 * SECOND, .work_s = 1 }, { .arrival_us = 40 * SECOND, .work_s = 9 } },
        { "ratio: a long one that waited its share passes", "response_ratio",
          { .arrival_us = 0, .work_s = 10 }, { .arrival_us = 37 * SECOND, .work_s = 1 } },
        { "srtf: the less work left", "srtf",
          { .work_s = 2, .running = true, .waiting_us = NOW },
          { .work_s = 3, .running = true, .waiting_us = NOW } },
        { "srtf: two thousand seconds since it came are one of work", "srtf",
          { .arrival_us = NOW - 4001 * (int64_t)SECOND, .work_s = 3, .waiting_us = NOW },
          { .arrival_us = NOW, .work_s = 1, .waiting_us = NOW } },
        { "srtf: a running one keeps its age", "srtf",
          { .arrival_us = NOW - 4001 * (int64_t)SECOND, .work_s = 3, .running = true },
          { .arrival_us = NOW, .work_s = 1 } },
        { "mlfq: the shorter prefill joins higher", "mlfq",
          { .arrival_us = 9, .prefill_s = 0.010, .waiting_us = NOW },
          { .arrival_us = 5, .prefill_s = 0.0101, .waiting_us = NOW } },
        { "mlfq: one level, by arrival", "mlfq",
          { .arrival_us = 5, .prefill_s = 0.04, .waiting_us = NOW },
          { .arrival_us = 9, .prefill_s = 0.021, .waiting_us = NOW } },
        { "mlfq: who waited three seconds is at the top", "mlfq",
          { .prefill_s = 9, .waiting_us = NOW - 3 * SECOND },
          { .prefill_s = 0.02, .waiting_us = NOW } },
        { "rank: the lower score", "learned_rank",
          { .arrival_us = 9, .has_rank = true, .rank = -1.5, .remaining = 9 },
          { .has_rank = true, .rank = -1, .remaining = 1 } },
        { "rank: without one the expected length", "learned_rank",
          { .arrival_us = 9, .remaining = 5 }, { .generated = 3, .remaining = 3 } },
        { "skip: without predictions all are short, by arrival", "skip_predict",
          { .arrival_us = 1, .remaining = 900 }, { .arrival_us = 2, .remaining = 1 } },
        { "groups: most decode per prefill", "batch_llm",
          { .arrival_us = 5, .prompt_tokens = 100, .remaining = 50 },
          { .arrival_us = 1, .prompt_tokens = 1000, .remaining = 60 } },
        { "split: a prompt goes before any decode", "prefill_sjf",
          { .prefill_s = 9 }, { .generated = 1, .prompt_tokens = 1, .waiting_us = NOW } },
        { "split: the shorter prompt", "prefill_sjf",
          { .arrival_us = 9, .prefill_s = 1 }, { .arrival_us = 9, .prefill_s = 2 } },
        { "split: decodes with little KV are higher", "prefill_sjf",
          { .arrival_us = 9, .generated = 1, .prompt_tokens = 511, .waiting_us = NOW },
          { .arrival_us = 1, .generated = 1, .prompt_tokens = 512, .waiting_us = NOW } },
        { "prefix: the longest in the cache", "longest_prefix",
          { .prompt_tokens = 900, .uncached = 400 }, { .prompt_tokens = 500, .uncached = 10 } },
        { "pool: who waits longest, whenever it came", "round_robin",
          { .arrival_us = 9, .waiting_us = 10 }, { .arrival_us = 1, .waiting_us = 20 } },
        { "largest: it is hardest to place", "largest_first",
          { .prompt_tokens = 900, .remaining = 10 }, { .prompt_tokens = 500, .remaining = 400 } },
        // clang-format on
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (compare(rows[i].row, rows[i].first, rows[i].second, NOW) >= 0)
            fail_msg("%s", rows[i].why);
        if (compare(rows[i].row, rows[i].second, rows[i].first, NOW) <= 0)
            fail_msg("%s, the other way", rows[i].why);
    }
}

static void t_nobody_starves(void **state)
{
    (void)state;
    /* However long its work, a waiting session does not stay behind one that has just arrived. */
    memset(memory, 0, sizeof memory);
    for (uint32_t i = 0; i < order_count; i++) {
        const struct order_policy *policy = order_table[i];
        struct step_scratch scratch = { 0 };
        struct step_session old = { .work_s = 100,
                                    .prefill_s = 50,
                                    .decode_s = 50,
                                    .prompt_tokens = 9000,
                                    .uncached = 9000,
                                    .remaining = 4000,
                                    .predicted_mean = 4000,
                                    .scratch = &scratch };
        int64_t now = 300000 * (int64_t)SECOND;
        struct step_session young = { .arrival_us = now,
                                      .waiting_us = now,
                                      .work_s = 1,
                                      .prefill_s = 0.5,
                                      .decode_s = 0.5,
                                      .prompt_tokens = 100,
                                      .uncached = 100,
                                      .remaining = 10,
                                      .predicted_mean = 10 };
        if (policy->observe) { /* outputs are short, and two hundred steps pass */
            struct step_event end = {
                .kind = STEP_ENDED, .session = &young, .output_tokens = 100, .whole = true
            };
            struct step_event done = { .kind = STEP_DONE, .seconds = 1 };
            young.scratch = &scratch;
            rank_of(policy, old, 0);
            policy->observe(memory, &end);
            for (int k = 0; k < 201; k++)
                policy->observe(memory, &done);
            young.scratch = NULL;
        }
        struct order_rank a = rank_of(policy, old, now), b = rank_of(policy, young, now);
        /* Groups that decode the most may keep one that decodes little waiting, so BatchLLM is for
         * batches, which end. */
        if (strcmp(policy->name, "batch_llm") == 0) continue;
        if (order_rank_at(&a, now) > order_rank_at(&b, now)) fail_msg("%s starves", policy->name);
    }
}

static void t_ranks_never_rise(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    memset(memory, 0, sizeof memory);
    for (uint32_t i = 0; i < order_count; i++) {
        for (int k = 0; k < 100; k++) {
            struct step_session x = { .arrival_us = (int64_t)rng_below(&rng, NOW),
                                      .prompt_tokens = 1 + (uint32_t)rng_below(&rng, 9000),
                                      .remaining = 1 + (double)rng_below(&rng, 999),
                                      .work_s = 0.001 * (1 + (double)rng_below(&rng, 99999)) };
            x.waiting_us = x.arrival_us, x.prefill_s = x.decode_s = x.work_s / 2;
            struct order_rank r = rank_of(order_table[i], x, NOW);
            assert_true(isfinite(r.base) && r.slope <= 0);
            assert_true(r.again_us > NOW);
        }
    }
}

static void ran(const struct order_policy *policy, struct step_session *x, double seconds)
{
    policy->observe(memory,
                    &(struct step_event){ .kind = STEP_RAN, .session = x, .seconds = seconds });
}

static void t_mlfq_levels(void **state)
{
    (void)state;
    const struct order_policy *policy = order_find(STR("mlfq"));
    struct step_scratch scratch = { 0 };
    struct step_session x = { .scratch = &scratch, .prefill_s = 0.015, .waiting_us = NOW };
    struct order_rank r = rank_of(policy, x, NOW);
    assert_true(r.base == 1); /* fits 20 ms */
    assert_int_equal(r.again_us, NOW + 3 * SECOND);
    x.running = true;
    ran(policy, &x, 0.012);
    assert_true(rank_of(policy, x, NOW).base == 1);
    ran(policy, &x, 0.009); /* 21 ms served */
    assert_true(rank_of(policy, x, NOW).base == 2);
    ran(policy, &x, 0.041); /* 40 ms fill level 2 */
    assert_true(rank_of(policy, x, NOW).base == 3);
    x.running = false, x.waiting_us = NOW;
    assert_true(rank_of(policy, x, NOW + 2999999).base == 3);
    struct step_scratch copy = scratch; /* the state is bytes: a copy continues alike */
    assert_true(rank_of(policy, x, NOW + 3 * SECOND).base == 0);
    x.scratch = &copy;
    assert_true(rank_of(policy, x, NOW + 3 * SECOND).base == 0);
    for (int i = 0; i < 60; i++)
        ran(policy, &x, 1e6);
    assert_true(rank_of(policy, x, NOW).base == MLFQ_LEVELS - 1); /* the last level */
}

static void t_trail_yields(void **state)
{
    (void)state;
    const struct order_policy *policy = order_find(STR("srtf"));
    struct step_session x = { .generated = 79, .predicted_mean = 100 };
    assert_true(policy->yields(NULL, &x));
    x.generated = 80;
    assert_false(policy->yields(NULL, &x));
    x = (struct step_session){ .generated = 8, .remaining = 3 }; /* the mean output is 11 */
    assert_true(policy->yields(NULL, &x));
    x.generated = 9, x.remaining = 2;
    assert_false(policy->yields(NULL, &x));
}

static void t_learned_rank_guard(void **state)
{
    (void)state;
    const struct order_policy *policy = order_find(STR("learned_rank"));
    memset(memory, 0, sizeof memory);
    struct step_scratch scratch = { 0 };
    struct step_session x = { .scratch = &scratch, .has_rank = true, .rank = 7 };
    assert_true(rank_of(policy, x, NOW).base == 7);
    for (int i = 0; i < 199; i++)
        policy->observe(memory, &(struct step_event){ .kind = STEP_DONE, .seconds = 0.1 });
    struct order_rank r = rank_of(policy, x, NOW);
    assert_true(r.base == 7);
    assert_true(r.again_us > NOW && r.again_us <= NOW + SECOND / 5); /* about one step away */
    policy->observe(memory, &(struct step_event){ .kind = STEP_DONE, .seconds = 0.1 });
    assert_true(rank_of(policy, x, NOW).base < -1e17);
    for (int i = 0; i < 9; i++)
        ran(policy, &x, 0.1);
    assert_true(rank_of(policy, x, NOW).base < -1e17);
    ran(policy, &x, 0.1);
    assert_true(rank_of(policy, x, NOW).base == 7);
}

/* Promotions and preemptions stop where their cost exceeds a twentieth of the time, and resume once
 * that cost is forgotten. */
static void t_mlfq_guards_its_cost(void **state)
{
    (void)state;
    const struct order_policy *policy = order_find(STR("mlfq"));
    struct step_scratch scratch = { 0 };
    struct step_session waits = { .prefill_s = 1,
                                  .waiting_us = NOW - 4000000,
                                  .scratch = &scratch };
    struct order_rank rank;
    memset(memory, 0, sizeof memory);
    assert_true(policy->yields(memory, &waits));
    policy->observe(memory,
                    &(struct step_event){ .kind = STEP_DONE, .seconds = 1, .preempt_s = 0.04 });
    assert_true(policy->yields(memory, &waits));
    policy->observe(memory,
                    &(struct step_event){ .kind = STEP_DONE, .seconds = 1, .preempt_s = 0.5 });
    assert_false(policy->yields(memory, &waits));
    order_rank_of(policy, memory, &waits, NOW, &rank);
    assert_true(rank.base > 0 && rank.again_us > NOW); /* not promoted, asked again later */
    for (int i = 0; i < 60; i++)
        policy->observe(memory, &(struct step_event){ .kind = STEP_DONE, .seconds = 1 });
    assert_true(policy->yields(memory, &waits));
    order_rank_of(policy, memory, &waits, NOW, &rank);
    assert_true(rank.base <= 0);
}

static void t_skip_predict_classes(void **state)
{
    (void)state;
    const struct order_policy *policy = order_find(STR("skip_predict"));
    memset(memory, 0, sizeof memory);
    struct step_session done = { 0 };
    struct step_event end = {
        .kind = STEP_ENDED, .session = &done, .output_tokens = 100, .whole = true
    };
    policy->observe(memory, &end);
    struct step_scratch scratch[3] = { 0 };
    struct step_session s = {
        .arrival_us = 9, .predicted_mean = 100, .remaining = 100, .scratch = &scratch[0]
    };
    struct step_session l = { .arrival_us = 1,
                              .predicted_mean = 101,
                              .remaining = 2,
                              .waiting_us = NOW,
                              .scratch = &scratch[1] };
    assert_true(compare("skip_predict", s, l, NOW) < 0);
    assert_false(policy->yields(memory, &s));
    assert_true(policy->yields(memory, &l));
    struct step_session longer = l;
    longer.arrival_us = 0, longer.remaining = 50, longer.scratch = &scratch[2];
    assert_true(compare("skip_predict", l, longer, NOW) < 0);
    end.output_tokens = 9000; /* now above both: sessions keep the class they had */
    policy->observe(memory, &end);
    assert_true(policy->yields(memory, &l));
    assert_false(policy->yields(memory, &s));
}

static void t_groups_stay_together(void **state)
{
    (void)state;
    const struct order_policy *policy = order_find(STR("batch_llm"));
    memset(memory, 0, sizeof memory);
    struct step_scratch scratch[4] = { 0 };
    struct step_session x[4];
    for (int i = 0; i < 4; i++) { /* groups 7, 7, 8, 8; the second decodes more */
        x[i] = (struct step_session){ .arrival_us = i,
                                      .group = 7 + (uint64_t)i / 2,
                                      .prompt_tokens = 100,
                                      .remaining = i < 2 ? 10 : 30,
                                      .scratch = &scratch[i] };
        policy->observe(memory, &(struct step_event){ .kind = STEP_ARRIVED, .session = &x[i] });
    }
    assert_true(compare("batch_llm", x[2], x[0], NOW) < 0);
    struct step_event go = { .kind = STEP_ADMITTED, .session = &x[0] };
    assert_true(policy->observe(memory, &go)); /* all ranks change */
    assert_true(compare("batch_llm", x[1], x[2], NOW) < 0);
    go.session = &x[1];
    assert_false(policy->observe(memory, &go));
    go.session = &x[2];
    assert_true(policy->observe(memory, &go));
    assert_true(rank_of(policy, x[3], NOW).base < -1e17);
}

/* ---- fairness -------------------------------------------------------------------------------- */

static uint32_t serve(const struct fair_policy *policy, const struct fair_tenant *t, uint32_t count,
                      uint32_t input, uint32_t cached, uint32_t output)
{
    uint32_t at = policy->pick(memory, t, count);
    struct fair_event ev = { .kind = STEP_ADMITTED,
                             .slot = t[at].slot,
                             .weight = t[at].weight,
                             .input_tokens = input,
                             .cached_tokens = cached };
    policy->observe(memory, &ev);
    ev.kind = STEP_RAN, ev.output_tokens = output;
    policy->observe(memory, &ev);
    return t[at].slot;
}

static void t_vtc_is_fair(void **state)
{
    (void)state;
    const struct fair_policy *policy = fair_find(STR("vtc"));
    memset(memory, 0, sizeof memory);
    /* With both always waiting, service is equal, or in proportion to the weights. */
    struct fair_tenant t[2] = { { .slot = 3, .weight = 1 }, { .slot = 5, .weight = 1 } };
    double served[8] = { 0 };
    for (int i = 0; i < 1000; i++)
        served[serve(policy, t, 2, 100, 0, (uint32_t)(i % 7) * 20)] += 100 + 2 * (i % 7) * 20;
    assert_true(fabs(served[3] - served[5]) <= 340);
    t[1].weight = 3;
    memset(served, 0, sizeof served);
    memset(memory, 0, sizeof memory);
    for (int i = 0; i < 4000; i++)
        served[serve(policy, t, 2, 100, 0, 10)] += 120;
    assert_true(fabs(served[5] / served[3] - 3) < 0.01);
    uint64_t copy[COUNT_OF(memory)];
    memcpy(copy, memory, sizeof copy);
    uint32_t next = serve(policy, t, 2, 1, 0, 1);
    memcpy(memory, copy, sizeof copy);
    assert_int_equal(serve(policy, t, 2, 1, 0, 1), next);
}

static void t_idling_earns_nothing(void **state)
{
    (void)state;
    const struct fair_policy *policy = fair_find(STR("vtc"));
    memset(memory, 0, sizeof memory);
    bool active[FAIR_TENANTS_MAX] = { [3] = true };
    struct fair_tenant t[2] = { { .slot = 3, .weight = 1 }, { .slot = 5, .weight = 1 } };
    for (int i = 0; i < 100; i++)
        serve(policy, t, 1, 100, 0, 0);
    policy->observe(
        memory,
        &(struct fair_event){
            .kind = STEP_ARRIVED, .slot = 5, .weight = 1, .was_idle = true, .active = active });
    uint32_t newcomer = 0;
    for (int i = 0; i < 10; i++)
        newcomer += serve(policy, t, 2, 100, 0, 0) == 5;
    assert_int_equal(newcomer, 5); /* turn by turn, not ten in a policy */
}

static void t_dlpm_keeps_locality_within_quanta(void **state)
{
    (void)state;
    const struct fair_policy *policy = fair_find(STR("dlpm"));
    memset(memory, 0, sizeof memory);
    /* The first tenant always has the better head, and still gets one quantum at a time. */
    struct fair_tenant t[2] = { { .slot = 0, .weight = 1, .head_rank = -900 },
                                { .slot = 1, .weight = 1, .head_rank = -10 } };
    uint32_t runs = 0, last = 2;
    double served[2] = { 0 };
    for (int i = 0; i < 2000; i++) {
        uint32_t slot = serve(policy, t, 2, 1000, 500, 0);
        served[slot] += 500;
        runs += slot != last;
        last = slot;
    }
    assert_true(fabs(served[0] - served[1]) <= 2 * 4096);
    assert_true(runs < 2000 / 4); /* about eight requests a turn, so there is locality */
    memset(memory, 0, sizeof memory);
    for (int i = 0; i < 100; i++) /* fully cached prompts cost nothing, so the turn goes on */
        assert_int_equal(serve(policy, t, 2, 1000, 1000, 0), 0);
}

static void t_tables(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < order_count; i++) {
        assert_ptr_equal(order_find(str_from(order_table[i]->name)), order_table[i]);
        assert_non_null(order_table[i]->source);
    }
    assert_non_null(order_find(STR(ORDER_DEFAULT)));
    assert_non_null(fair_find(STR(FAIR_DEFAULT)));
    assert_null(order_find(STR("")));
    assert_null(fair_find(STR("vt")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_who_goes_first),
        cmocka_unit_test(t_nobody_starves),
        cmocka_unit_test(t_ranks_never_rise),
        cmocka_unit_test(t_mlfq_levels),
        cmocka_unit_test(t_mlfq_guards_its_cost),
        cmocka_unit_test(t_trail_yields),
        cmocka_unit_test(t_learned_rank_guard),
        cmocka_unit_test(t_skip_predict_classes),
        cmocka_unit_test(t_groups_stay_together),
        cmocka_unit_test(t_vtc_is_fair),
        cmocka_unit_test(t_idling_earns_nothing),
        cmocka_unit_test(t_dlpm_keeps_locality_within_quanta),
        cmocka_unit_test(t_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

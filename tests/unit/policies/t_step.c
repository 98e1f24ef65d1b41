/* t_step.c - the rows of the engine's step: what each prefers, at and around its edges. */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "policies/preset.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

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
        { "reserve: exactly, at the peak, whatever the sum",
          "reserve",
          { .pages_available = 13,
            .pages_needed = 4,
            .running_growth = 99,
            .peak_growth = 6,
            .running = 3 },
          true },
        { "reserve: one short",
          "reserve",
          { .pages_available = 12, .pages_needed = 4, .peak_growth = 6, .running = 3 },
          false },
        { "P90: the same, of what its answers would be",
          "reserve_p90",
          { .pages_available = 12, .pages_needed = 4, .peak_growth = 6, .running = 3 },
          false },
        { "P90: exactly",
          "reserve_p90",
          { .pages_available = 13, .pages_needed = 4, .peak_growth = 6, .running = 3 },
          true },
        { "all: without any page", "all", { .pages_needed = 9 }, true },
        { "limits: as reserve, by another measure",
          "max_reserve",
          { .pages_available = 9, .pages_needed = 4, .pages_growth = 3, .running_growth = 3 },
          false },
        { "s3: what runs has its reserve",
          "s3",
          { .pages_available = 10, .pages_needed = 4, .pages_growth = 3, .running_growth = 3 },
          true },
        { "reserve: sums that would wrap",
          "reserve",
          { .pages_available = 9, .pages_needed = 4, .peak_growth = UINT32_MAX },
          false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct admit_policy *row = admit_find(str_from(rows[i].row));
        assert_int_equal(row->state_size, 0);
        bool yes = row->decide(NULL, &rows[i].view);
        if (yes != rows[i].yes) fail_msg("%s", rows[i].why);
    }
}

static uint32_t reserved(const char *row, const void *state, struct step_session session)
{
    struct step_scratch scratch = { 0 };
    session.scratch = &scratch;
    return admit_find(str_from(row))->reserve(state, &session);
}

static void t_reserves(void **state)
{
    (void)state;
    struct step_session x = { .prompt_tokens = 100, .output_max = 1000, .predicted_mean = 101 };
    assert_int_equal(reserved("max_reserve", NULL, x), 1000);
    assert_int_equal(reserved("static_batch", NULL, x), 1000);
    assert_int_equal(reserved("s3", NULL, x), 104); /* bins of 52 */
    x.predicted_mean = 0, x.predicted_p50 = 105;
    assert_int_equal(reserved("s3", NULL, x), 156);
    x.predicted_p50 = 0; /* without a prediction its limit, as before S3 */
    assert_int_equal(reserved("s3", NULL, x), 1000);
    assert_null(admit_find(STR("reserve"))->reserve); /* the scheduler's expectation */
    x.remaining = 100; /* without a prediction the P90 of an exponential about the mean */
    assert_int_equal(reserved("reserve_p90", NULL, x), 230);
    x.generated = 50, x.remaining = 1;
    assert_int_equal(reserved("reserve_p90", NULL, x), 117);
    x.predicted_p90 = 333;
    assert_int_equal(reserved("reserve_p90", NULL, x), 333);
}

static void ended(const struct admit_policy *row, void *state, uint32_t prompt, uint32_t output)
{
    struct step_scratch scratch = { 0 };
    struct step_session x = { .prompt_tokens = prompt, .generated = output, .scratch = &scratch };
    struct step_event ev = {
        .kind = STEP_ENDED, .session = &x, .output_tokens = output, .whole = true
    };
    row->observe(state, &ev);
    ev.whole = false; /* cut off: says nothing */
    ev.output_tokens = 1;
    row->observe(state, &ev);
}

static void t_infermax_learns(void **state)
{
    (void)state;
    const struct admit_policy *row = admit_find(STR("infermax"));
    char memory[1024] = { 0 }, copy[1024];
    must(row->state_size <= sizeof memory);
    struct step_session x = { .prompt_tokens = 1500, .output_max = 9000 };
    assert_int_equal(reserved("infermax", memory, x), 0); /* no history: the prompt alone */
    ended(row, memory, 1024, 1000);
    ended(row, memory, 2000, 600);
    ended(row, memory, 100, 5000);
    assert_int_equal(reserved("infermax", memory, x), 812); /* mean total 2312 of its bucket */
    x.prompt_tokens = 2040;
    assert_int_equal(reserved("infermax", memory, x), 272);
    x.prompt_tokens = 100; /* short: on its prompt alone, whatever its bucket says */
    assert_int_equal(reserved("infermax", memory, x), 0);
    memcpy(copy, memory, sizeof copy);
    ended(row, memory, 1500, 10000);
    ended(row, copy, 1500, 10000);
    assert_memory_equal(memory, copy, sizeof copy);
}

static void t_s3_doubles(void **state)
{
    (void)state;
    const struct admit_policy *row = admit_find(STR("s3"));
    struct step_scratch scratch = { 0 };
    struct step_session x = { .output_max = 1000, .predicted_mean = 150, .scratch = &scratch };
    x.generated = 155;
    assert_false(row->outgrown(NULL, &x));
    x.generated = 156;
    assert_true(row->outgrown(NULL, &x)); /* and from here on twice as much */
    assert_false(row->outgrown(NULL, &x));
    assert_int_equal(row->reserve(NULL, &x), 312);
    x.generated = 312;
    assert_true(row->outgrown(NULL, &x));
    x.generated = 624;
    assert_true(row->outgrown(NULL, &x));
    assert_int_equal(row->reserve(NULL, &x), 1000);
    x.generated = 1000;
    assert_false(row->outgrown(NULL, &x)); /* at its limit it ends by itself */
}

static void t_static_batch_is_closed(void **state)
{
    (void)state;
    const struct admit_policy *row = admit_find(STR("static_batch"));
    char memory[16] = { 0 };
    must(row->state_size <= sizeof memory);
    struct admit_view view = { .pages_available = 10, .pages_needed = 2 };
    assert_true(row->decide(memory, &view));
    view.running = 1;
    assert_true(row->decide(memory, &view)); /* it is being formed */
    row->observe(memory, &(struct step_event){ .kind = STEP_DONE });
    assert_false(row->decide(memory, &view));
    view.running = 0;
    assert_true(row->decide(memory, &view));
    view.running = 1;
    assert_true(row->decide(memory, &view));
}

struct chunk_row {
    const char *why, *row;
    struct chunk_view view;
    uint32_t tokens;
};

static void check_chunks(const struct chunk_row *rows, size_t count, const struct perf_coef *perf)
{
    for (size_t i = 0; i < count; i++) {
        struct chunk_view view = rows[i].view;
        view.perf = *perf;
        uint32_t tokens = chunk_find(str_from(rows[i].row))->decide(&view);
        if (tokens != rows[i].tokens) fail_msg("%s: %u", rows[i].why, tokens);
    }
}

static void t_chunk_fixed(void **state)
{
    (void)state;
    static const struct chunk_row rows[] = {
        { "sarathi: 512 with what is planned",
          "sarathi",
          { .tokens_left = 900,
            .budget_left = 8000,
            .planned = { .decoding_seqs = 5, .prefill_tokens = 100 } },
          407 },
        { "sarathi: full",
          "sarathi",
          { .tokens_left = 900, .budget_left = 8000, .planned.decoding_seqs = 600 },
          0 },
        { "whole: fits",
          "whole",
          { .tokens_left = 900, .budget_left = 900, .planned.prefill_tokens = 9 },
          900 },
        { "whole: not beside another, so in the next step",
          "whole",
          { .tokens_left = 901, .budget_left = 900, .planned.prefill_tokens = 9 },
          0 },
        { "whole: longer than a step can be",
          "whole",
          { .tokens_left = 901, .budget_left = 900, .planned.decoding_seqs = 9 },
          900 },
        { "scls: fills the budget", "scls", { .tokens_left = 9, .budget_left = 5 }, 5 },
    };
    const struct perf_coef perf = { .a = 10e-3, .b = 1e-3 };
    check_chunks(rows, COUNT_OF(rows), &perf);
    assert_int_equal(chunk_find(STR("scls"))->slice_tokens, 128);
    assert_int_equal(chunk_find(STR(CHUNK_DEFAULT))->slice_tokens, 0);
}

static void t_chunk(void **state)
{
    (void)state;
    const struct perf_coef perf = { .a = 10e-3, .b = 1e-3, .c = 2e-3, .d = 1e-6, .e = 1e-6 };
    static const struct chunk_row rows[] = {
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
    check_chunks(rows, COUNT_OF(rows), &perf);
}

/* Alone a step takes 20 ms and 0.1 ms for each prompt token: 300 of them within 50 ms. */
static uint32_t aim_of(const struct chunk_scene *scene, uint32_t decoding)
{
    const struct chunk_view view = { .tokens_left = 900,
                                     .budget_left = 2048,
                                     .planned.decoding_seqs = decoding,
                                     .perf = { .a = 20e-3, .b = 0.1e-3 },
                                     .step_s_max = 0.05 };
    return chunk_find(STR("deadline"))->aim(&view, scene);
}

static void t_chunk_deadline_aims(void **state)
{
    (void)state;
    static const struct row {
        const char *why;
        struct chunk_session waits; /* and ten who answer: */
        double hand_s, arrivals_s, arrived_owed_s;
        uint32_t want;
    } rows[] = {
        { "a short queue is cleared by one small step", { 290, 0.01, 200 }, 0, 0, 0, 0 },
        { "small steps are fast enough", { 3000, 10, 200 }, 0, 0, 0, 0 },
        /* 3,000 tokens in 0.45 s: 300 a step make 6,000 a second, 450 make 6,923 */
        { "as much as keeps the promise, and no more", { 3000, 0.45, 200 }, 1, 0, 0, 450 },
        { "unless it costs others theirs", { 3000, 0.45, 200 }, 0, 0, 0, 0 },
        { "who is late already is not held against it",
          { 3000, 0.45, 200 },
          -(double)INFINITY,
          0,
          0,
          450 },
        { "nor is it done for him", { 3000, -0.01, 200 }, 1, 0, 0, 0 },
        { "more comes than small steps compute", { 3000, 10, 200 }, 0, 8, 8000, 2048 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct chunk_session session[11];
        for (uint32_t k = 0; k < 10; k++)
            session[k] = (struct chunk_session){ .hand_s = rows[i].hand_s, .answer = 20 };
        session[10] = rows[i].waits;
        const struct chunk_scene scene = { .session = session,
                                           .count = COUNT_OF(session),
                                           .owed = rows[i].waits.owed,
                                           .ttft_s_max = 1,
                                           .arrivals_s = rows[i].arrivals_s,
                                           .arrived_owed_s = rows[i].arrived_owed_s,
                                           .answer = 200 };
        uint32_t got = aim_of(&scene, 10);
        if (got != rows[i].want) fail_msg("%s: %u instead of %u", rows[i].why, got, rows[i].want);
        assert_int_equal(aim_of(&scene, 0), 0); /* nobody answers: the whole budget anyway */
    }
}

static void t_chunk_deadline(void **state)
{
    (void)state;
    const struct perf_coef perf = { .a = 20e-3, .b = 0.1e-3 };
    static const struct chunk_row rows[] = {
        { "deadline: nobody decodes, nobody is delayed",
          "deadline",
          { .tokens_left = 900, .budget_left = 512, .step_s_max = 0.05 },
          512 },
        { "deadline: no wish, as `slack` does",
          "deadline",
          { .tokens_left = 900,
            .budget_left = 512,
            .planned.decoding_seqs = 5,
            .step_s_max = 0.0501 },
          300 },
        { "deadline: a prompt that fits is taken whole",
          "deadline",
          { .tokens_left = 440,
            .budget_left = 512,
            .planned.decoding_seqs = 5,
            .step_s_max = 0.05,
            .aim = 450 },
          440 },
        { "deadline: of a longer one what is wished for",
          "deadline",
          { .tokens_left = 900,
            .budget_left = 512,
            .planned = { .decoding_seqs = 5, .prefill_tokens = 100, .prefill_chunks = 1 },
            .step_s_max = 0.05,
            .aim = 450 },
          350 },
        { "deadline: but no part of it once the step is half full",
          "deadline",
          { .tokens_left = 900,
            .budget_left = 512,
            .planned = { .decoding_seqs = 5, .prefill_tokens = 310, .prefill_chunks = 1 },
            .step_s_max = 0.05,
            .aim = 450 },
          0 },
        { "deadline: never more than the budget",
          "deadline",
          { .tokens_left = 900,
            .budget_left = 512,
            .planned.decoding_seqs = 5,
            .step_s_max = 0.05,
            .aim = 2048 },
          512 },
    };
    check_chunks(rows, COUNT_OF(rows), &perf);
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
    old.work_s = 3, young.work_s = 2;
    assert_true(preempt_find(STR("most_remaining"))->rank(&old) >
                preempt_find(STR("most_remaining"))->rank(&young));
}

static void t_preempt_how(void **state)
{
    (void)state;
    struct step_session longer = { .work_s = 10 }, shorter = { .work_s = 4 };
    const struct preempt_policy *checked = preempt_find(STR("cost_checked"));
    struct preempt_view v = {
        .victim = &longer, .can_swap = true, .swap_s = 0.5, .recompute_s = 0.4, .running = 11
    };
    assert_null(preempt_find(STR("newest"))->how);
    assert_int_equal(preempt_cheaper(&v), PREEMPT_RECOMPUTE);
    assert_int_equal(checked->how(&v), PREEMPT_RECOMPUTE);
    v.recompute_s = 0.5;
    assert_int_equal(preempt_cheaper(&v), PREEMPT_SWAP);
    v.newcomer = &shorter; /* saves 6 s; the copies cost 12 sessions half a second each */
    assert_int_equal(checked->how(&v), PREEMPT_NOT);
    v.running = 10;
    assert_int_equal(checked->how(&v), PREEMPT_SWAP);
    v.can_swap = false;
    assert_int_equal(checked->how(&v), PREEMPT_NOT);
    assert_int_equal(preempt_cheaper(&v), PREEMPT_RECOMPUTE);
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

    const struct evict_policy *gdsf = evict_find(STR("gdsf"));
    const struct evict_policy *weighted = evict_find(STR("gdsf_cost"));
    struct evict_page once = { .hits = 0, .cost = 1 }, thrice = { .hits = 2, .cost = 1 };
    assert_true(gdsf->rank(&once) < gdsf->rank(&thrice));
    once.floor = gdsf->rank(&thrice); /* what has been dropped since was worth as much */
    assert_true(gdsf->rank(&thrice) < gdsf->rank(&once));
    struct evict_page deep = { .hits = 0, .cost = 2.5 }, twice = { .hits = 1, .cost = 1 };
    assert_true(gdsf->rank(&deep) < gdsf->rank(&twice));
    assert_true(weighted->rank(&twice) < weighted->rank(&deep));
}

/* Two presets that say the same would be one system under two names. */
static void t_no_two_presets_are_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < preset_count; i++) {
        struct step_rows rows = { 0 };
        preset_fill(preset_table[i], &rows);
        for (uint32_t k = 0; k < i; k++) {
            struct step_rows other = { 0 };
            preset_fill(preset_table[k], &other);
            bool same = rows.fair == other.fair && rows.order == other.order &&
                        rows.admit == other.admit && rows.preempt == other.preempt &&
                        rows.chunk == other.chunk && rows.evict == other.evict;
            if (same && preset_table[i]->swap_ratio == preset_table[k]->swap_ratio)
                fail_msg("%s is %s", preset_table[i]->name, preset_table[k]->name);
        }
    }
}

static void t_presets(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < preset_count; i++) {
        struct step_rows rows = { 0 };
        preset_fill(preset_table[i], &rows);
        if (!rows.fair || !rows.order || !rows.admit || !rows.preempt || !rows.chunk || !rows.evict)
            fail_msg("%s names a row that is not there", preset_table[i]->name);
        assert_ptr_equal(preset_find(str_from(preset_table[i]->name)), preset_table[i]);
    }
    struct step_rows rows = { .order = order_find(STR("fcfs")) };
    preset_fill(preset_find(STR("fastserve")), &rows);
    assert_string_equal(rows.order->name, "fcfs"); /* named beside it: goes before it */
    rows = (struct step_rows){ 0 };
    preset_fill(NULL, &rows);
    assert_string_equal(rows.order->name, ORDER_DEFAULT);
    assert_string_equal(rows.chunk->name, CHUNK_DEFAULT);
    assert_string_equal(rows.evict->name, EVICT_DEFAULT);
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
        cmocka_unit_test(t_admit),
        cmocka_unit_test(t_reserves),
        cmocka_unit_test(t_infermax_learns),
        cmocka_unit_test(t_s3_doubles),
        cmocka_unit_test(t_static_batch_is_closed),
        cmocka_unit_test(t_chunk),
        cmocka_unit_test(t_chunk_deadline),
        cmocka_unit_test(t_chunk_deadline_aims),
        cmocka_unit_test(t_chunk_fixed),
        cmocka_unit_test(t_preempt),
        cmocka_unit_test(t_evict),
        cmocka_unit_test(t_preempt_how),
        cmocka_unit_test(t_presets),
        cmocka_unit_test(t_no_two_presets_are_one),
        cmocka_unit_test(t_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

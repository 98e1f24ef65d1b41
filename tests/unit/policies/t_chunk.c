/* t_chunk.c - tests policies for the prompt's chunk in a step, at and around their thresholds. */
#include "base/core/bits.h"
#include "policies/chunk/chunk.h"
#include "tests/unit/unit.h"

#include <math.h>

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
    const struct perf_coef perf = { .step_s = 10e-3, .prefill_token_s = 1e-3 };
    check_chunks(rows, COUNT_OF(rows), &perf);
    assert_int_equal(chunk_find(STR("scls"))->slice_tokens, 128);
    assert_int_equal(chunk_find(STR(CHUNK_DEFAULT))->slice_tokens, 0);
}

static void t_chunk(void **state)
{
    (void)state;
    const struct perf_coef perf = { .step_s = 10e-3,
                                    .prefill_token_s = 1e-3,
                                    .decode_seq_s = 2e-3,
                                    .kv_read_s = 1e-6,
                                    .attend_s = 1e-6 };
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

/* Returns the tokens aimed at. A step without any takes 20 ms, and each prompt token 0.1 ms: 300
 * tokens fit 50 ms. */
static uint32_t aim_of(const struct chunk_scene *scene, uint32_t decoding)
{
    const struct chunk_view view = { .tokens_left = 900,
                                     .budget_left = 2048,
                                     .planned.decoding_seqs = decoding,
                                     .perf = { .step_s = 20e-3, .prefill_token_s = 0.1e-3 },
                                     .step_s_max = 0.05 };
    return chunk_find(STR("deadline"))->aim(&view, scene);
}

static void t_chunk_deadline_aims(void **state)
{
    (void)state;
    static const struct row {
        const char *why;
        struct chunk_session waits; /* waits beside ten decoding sessions */
        double slack_s, arrivals_s, arrived_owed_s;
        uint32_t want;
    } rows[] = {
        { "a short queue is cleared by one small step", { 290, 0.01, 200 }, 0, 0, 0, 0 },
        { "small steps are fast enough", { 3000, 10, 200 }, 0, 0, 0, 0 },
        /* 3,000 tokens in 0.45 s: 300 a step make 6,000 a second, 450 make 6,923 */
        { "as much as keeps the SLO, and no more", { 3000, 0.45, 200 }, 1, 0, 0, 450 },
        { "unless it costs others theirs", { 3000, 0.45, 200 }, 0, 0, 0, 0 },
        { "who is late already is not held against it",
          { 3000, 0.45, 200 },
          -(double)INFINITY,
          0,
          0,
          450 },
        { "nor is it done for this one", { 3000, -0.01, 200 }, 1, 0, 0, 0 },
        { "more comes than small steps compute", { 3000, 10, 200 }, 0, 8, 8000, 2048 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct chunk_session session[11];
        for (uint32_t k = 0; k < 10; k++)
            session[k] = (struct chunk_session){ .slack_s = rows[i].slack_s, .output = 20 };
        session[10] = rows[i].waits;
        const struct chunk_scene scene = { .session = session,
                                           .count = COUNT_OF(session),
                                           .owed = rows[i].waits.owed,
                                           .ttft_s_max = 1,
                                           .arrivals_s = rows[i].arrivals_s,
                                           .arrived_owed_s = rows[i].arrived_owed_s,
                                           .output = 200 };
        uint32_t got = aim_of(&scene, 10);
        if (got != rows[i].want) fail_msg("%s: %u instead of %u", rows[i].why, got, rows[i].want);
        assert_int_equal(aim_of(&scene, 0), 0); /* none decodes: the whole budget anyway */
    }
}

static void t_chunk_deadline(void **state)
{
    (void)state;
    const struct perf_coef perf = { .step_s = 20e-3, .prefill_token_s = 0.1e-3 };
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_chunk_fixed),
        cmocka_unit_test(t_chunk),
        cmocka_unit_test(t_chunk_deadline_aims),
        cmocka_unit_test(t_chunk_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

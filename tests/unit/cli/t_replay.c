/* t_replay.c - prompts share what the trace shares, reports are exact. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/load/load_report.h"
#include "cli/load/replay.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void message(struct replay *r, uint32_t index, struct buf *out)
{
    buf_clear(out);
    assert_int_equal(replay_message(r, index, out), 0);
}

static size_t common(const struct buf *a, const struct buf *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n])
        n++;
    return n;
}

static void prompts_share_what_the_trace_shares(void **state)
{
    (void)state;
    uint64_t blocks[] = { 1, 2, 3, 4, 1, 2, 8, 9, 7 }; /* same, half the same, apart */
    struct trace_request requests[] = {
        { .prompt_tokens = 2048, .block_first = 0, .block_count = 4 },
        { .prompt_tokens = 2048, .block_first = 4, .block_count = 4 },
        { .prompt_tokens = 2048, .block_first = 8, .block_count = 1 },
        { .prompt_tokens = 2048, .block_first = 0, .block_count = 4 },
    };
    struct trace trace = { .request = requests, .count = COUNT_OF(requests), .block = blocks };
    struct replay r = { .trace = &trace,
                        .count = trace.count,
                        .speed = 2,
                        .divide = 4,
                        .tokens_max = 100000,
                        .seed = 1,
                        .tokens_per_word = 1 };
    CLEANUP(buf_fini) struct buf a = { 0 };
    CLEANUP(buf_fini) struct buf b = { 0 };
    message(&r, 0, &a);
    message(&r, 0, &b);
    assert_true(a.len == b.len && common(&a, &b) == a.len); /* a function of its arguments */
    size_t quarter = a.len / 4;
    message(&r, 1, &b);
    assert_true(common(&a, &b) > quarter && common(&a, &b) < 3 * quarter);
    message(&r, 2, &b);
    assert_true(common(&a, &b) < quarter);
    message(&r, 3, &b);
    assert_true(common(&a, &b) > 2 * quarter); /* equal blocks; the tail is each request's own */

    r.divide = 512; /* blocks of one token still come to an end */
    message(&r, 0, &b);
    assert_true(b.len > 0 && b.len < quarter);
    r.divide = 4;

    r.seed = 2; /* nothing of another seed's text is found in a cache */
    message(&r, 0, &b);
    assert_true(common(&a, &b) < 40);
    r.tokens_max = 64;
    message(&r, 0, &b);
    assert_true(b.len < a.len / 3);
    assert_int_equal(r.cut, 1);
}

static void questions_are_there(void **state)
{
    (void)state;
    const char *first = prompt_question(0).data;
    uint64_t count = 0; /* until they come round */
    do {
        struct str q = prompt_question(count++);
        assert_true(q.len > 2 && str_find(q, STR("\t")) == SIZE_MAX);
    } while (prompt_question(count).data != first);
    assert_true(count > 100 && count < 1024); /* at the bound some would be left out */
}

static struct load_sample answered(double ttft_s, double e2e_s, uint32_t tokens, double predicted)
{
    return (struct load_sample){ .outcome = LOAD_OK,
                                 .ttft_us = (int64_t)(ttft_s * 1e6),
                                 .e2e_us = (int64_t)(e2e_s * 1e6),
                                 .output_tokens = tokens,
                                 .prompt_tokens = 100,
                                 .cached_tokens = 25,
                                 .predicted_p50 = predicted,
                                 .predicted_p90 = predicted * 2 };
}

static void reports_are_exact(void **state)
{
    (void)state;
    struct load_sample s[] = {
        answered(0.1, 1.0, 10, 8),  /* TPOT 0.1 */
        answered(0.2, 0.65, 10, 9), /* TPOT 0.05 */
        answered(3.0, 3.9, 10, 7),  /* TTFT misses the SLO */
        answered(0.4, 0.4, 1, 3),   /* one token: no TPOT to miss */
        { .outcome = LOAD_TIMED_OUT, .prompt_tokens = 0, .e2e_us = 5000000 },
    };
    static const float gaps[] = { 0.1f, 0.3f };
    struct load_slo slo = { 1.0, 0.2 };
    struct load_report r;
    assert_int_equal(load_report_make(s, COUNT_OF(s), NULL, NULL, gaps, 2, slo, &r), 0);
    assert_int_equal(r.sent, 5);
    assert_int_equal(r.ok, 4);
    assert_int_equal(r.failed_by[LOAD_TIMED_OUT], 1);
    assert_true(fabs(r.attainment - 3.0 / 5) < 1e-9); /* a failure is a miss */
    assert_true(fabs(r.duration_s - 5) < 1e-9);
    assert_true(fabs(r.goodput_rps - 3.0 / 5) < 1e-9);
    assert_true(fabs(r.ttft_s.mean - (0.1 + 0.2 + 3 + 0.4) / 4) < 1e-6);
    assert_true(fabs(r.ttft_s.p50 - 0.2) < 1e-6 && fabs(r.ttft_s.p99 - 3.0) < 1e-6);
    assert_true(fabs(r.tpot_s.p50 - 0.1) < 1e-6 && fabs(r.tpot_s.mean - 0.25 / 3) < 1e-6);
    assert_int_equal(r.cached_tokens, 100);
    /* Pairs of different length: (10, 1) three times, all ordered rightly. */
    assert_true(fabs(r.concordance - 1) < 1e-9);
    assert_true(fabs(r.p90_coverage - 1) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_share_what_the_trace_shares),
        cmocka_unit_test(questions_are_there),
        cmocka_unit_test(reports_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

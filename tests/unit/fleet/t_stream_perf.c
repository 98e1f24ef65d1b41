/* t_stream_perf.c - tests step times that are learned from streams, against an engine whose step times are
 * known. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "fleet/stream_perf.h"
#include "tests/unit/unit.h"

#include <math.h>

#define SECOND 1000000

static const struct perf_coef truth = {
    .step_s = 0.012, .prefill_token_s = 2e-4, .decode_seq_s = 1.5e-3, .kv_read_s = 2e-7
};

static int64_t us(double seconds)
{
    return (int64_t)llround(seconds * 1e6);
}

static double gap_s(uint32_t seqs, uint64_t kv_tokens)
{
    const struct perf_shape s = { .decoding_seqs = seqs,
                                  .kv_tokens_decoding = kv_tokens,
                                  .kv_tokens_read = kv_tokens };
    return perf_step_s(&truth, &s);
}

/* Plays one request beside `others` that decode: its first token, then two runs of tokens. `rival`: a prompt
 * of another request waits meanwhile, and makes everything ten times as slow. Returns the time of its end. */
static int64_t play(struct stream_perf *p, uint32_t prompt, uint32_t others, bool rival,
                    int64_t now_us)
{
    struct stream_watch w;
    uint64_t context = 500ull * others;
    double slow = rival ? 10 : 1;
    const struct stream_moment sent = { others, 1 + rival, context, 1000 };
    const struct stream_moment later = { others + 1, rival, context + prompt, 1000 };
    const struct perf_shape first = { .prefill_tokens = prompt,
                                      .prefill_chunks = 1,
                                      .decoding_seqs = others,
                                      .kv_tokens_decoding = context,
                                      .kv_tokens_read = context };
    stream_watch_sent(&w, &sent, now_us);
    now_us += us(slow * perf_step_s(&truth, &first));
    stream_watch_tokens(&w, p, 1, prompt, 0, &later, now_us);
    for (uint32_t tokens = 1 + STREAM_GAP_TOKENS; tokens <= 1 + 2 * STREAM_GAP_TOKENS;
         tokens += STREAM_GAP_TOKENS) {
        now_us += us(slow * STREAM_GAP_TOKENS * gap_s(others + 1, context + prompt));
        stream_watch_tokens(&w, p, tokens, prompt, 0, &later, now_us);
    }
    return now_us;
}

static void expect_close(double got, double want, double within)
{
    if (fabs(got - want) > within * want) fail_msg("%g is not %g", got, want);
}

static void the_engine_behind_the_streams_is_found(void **state)
{
    (void)state;
    struct stream_perf p = { 0 };
    struct perf_coef c;
    struct rng rng;
    int64_t now_us = SECOND;
    rng_seed(&rng, 7);
    for (int i = 0; i < 300; i++)
        now_us = play(&p, 16 + (uint32_t)(rng_u64(&rng) % 1000), (uint32_t)(rng_u64(&rng) % 12),
                      false, now_us);
    assert_true(stream_perf_get(&p, &c));
    for (uint32_t seqs = 1; seqs <= 12; seqs += 3) {
        const struct perf_shape s = { .decoding_seqs = seqs,
                                      .kv_tokens_decoding = 500 * seqs,
                                      .kv_tokens_read = 500 * seqs };
        expect_close(perf_step_s(&c, &s), gap_s(seqs, 500 * seqs), 0.1);
    }
    expect_close(perf_prefill_s(&c, 800), perf_prefill_s(&truth, 800), 0.1);
}

static void nothing_is_known_before_both_kinds_came(void **state)
{
    (void)state;
    struct stream_perf p = { 0 };
    struct perf_coef c;
    struct stream_watch w;
    const struct stream_moment alone = { 0, 1, 0, 1 }, decodes = { 1, 0, 100, 1 };
    for (int i = 1; i <= 10; i++) { /* answers of one token have no gaps */
        stream_watch_sent(&w, &alone, i * SECOND);
        stream_watch_tokens(&w, &p, 1, 100, 0, &decodes, i * SECOND + 50000);
    }
    assert_int_equal(p.firsts, 10);
    assert_false(stream_perf_get(&p, &c));
    for (int64_t i = 0, now_us = 20 * SECOND; i < STREAM_SAMPLES_MIN; i++)
        now_us = play(&p, 100, 0, false, now_us);
    assert_true(stream_perf_get(&p, &c));
}

static void what_waited_with_another_prompt_teaches_nothing(void **state)
{
    (void)state;
    struct stream_perf p = { 0 };
    int64_t now_us = SECOND;
    for (int i = 0; i < 20; i++)
        now_us = play(&p, 100, 3, true, now_us);
    assert_int_equal(p.firsts, 0);
    assert_int_equal(p.gaps, 0);
    now_us = play(&p, 100, 3, false, now_us);
    assert_int_equal(p.firsts, 1);
    assert_int_equal(p.gaps, 2);
}

static void a_gap_in_which_a_prompt_came_and_went_teaches_nothing(void **state)
{
    (void)state;
    struct stream_perf p = { 0 };
    struct stream_watch w;
    const struct stream_moment sent = { 0, 1, 0, 1000 }, one = { 1, 0, 100, 1000 },
                               two = { 2, 0, 400,
                                       1300 }; /* nothing waits now, but the total rose */
    stream_watch_sent(&w, &sent, SECOND);
    stream_watch_tokens(&w, &p, 1, 100, 0, &one, SECOND + 100000);
    stream_watch_tokens(&w, &p, 1 + STREAM_GAP_TOKENS, 100, 0, &two, 2 * SECOND);
    assert_int_equal(p.gaps, 0);
    stream_watch_tokens(&w, &p, 1 + 2 * STREAM_GAP_TOKENS, 100, 0, &two, 2 * SECOND + 500000);
    assert_int_equal(p.gaps, 1); /* from the last look on it was quiet */
}

static void news_that_bring_no_time_or_no_token_change_nothing(void **state)
{
    (void)state;
    struct stream_perf p = { 0 };
    struct stream_watch w = { 0 };
    const struct stream_moment alone = { 0, 1, 0, 1 }, decodes = { 1, 0, 100, 1 };
    stream_watch_tokens(&w, &p, 1, 100, 0, &decodes, SECOND); /* nobody watched it being sent */
    stream_watch_sent(&w, &alone, SECOND);
    stream_watch_tokens(&w, &p, 0, 100, 0, &decodes, 2 * SECOND);
    stream_watch_tokens(&w, &p, 1, 100, 0, &decodes, SECOND); /* a clock that stands */
    assert_false(p.begun);
    stream_watch_tokens(&w, &p, 1, 0, 100, &decodes, SECOND + 20000); /* all of it was cached */
    assert_int_equal(p.firsts, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_behind_the_streams_is_found),
        cmocka_unit_test(nothing_is_known_before_both_kinds_came),
        cmocka_unit_test(what_waited_with_another_prompt_teaches_nothing),
        cmocka_unit_test(a_gap_in_which_a_prompt_came_and_went_teaches_nothing),
        cmocka_unit_test(news_that_bring_no_time_or_no_token_change_nothing),
    };
    return cmocka_run_group_tests_name("stream_perf", tests, NULL, NULL);
}

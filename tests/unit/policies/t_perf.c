/* t_perf.c - the step-time model finds hidden coefficients, keeps them and follows changes. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/perf/linear.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct perf_coef truth = { .step_s = 4e-3,
                                        .prefill_token_s = 3e-4,
                                        .decode_seq_s = 8e-4,
                                        .kv_read_s = 5e-7,
                                        .attend_s = 3e-8 };

static struct perf_shape any_shape(struct rng *rng)
{
    struct perf_shape s = { 0 };
    if (rng_below(rng, 3) == 0) s.prefill_tokens = 1 + (uint32_t)rng_below(rng, 512);
    if (s.prefill_tokens == 0 || rng_below(rng, 2) == 0) {
        s.decoding_seqs = 1 + (uint32_t)rng_below(rng, 16);
    }
    s.kv_tokens_decoding = s.decoding_seqs * (64 + rng_below(rng, 2000));
    s.kv_tokens_read = s.kv_tokens_decoding +
                       (uint64_t)s.prefill_tokens * (s.prefill_tokens + 1) / 2 +
                       s.prefill_tokens * rng_below(rng, 2000);
    s.prefill_chunks = s.prefill_tokens > 0;
    return s;
}

static double noisy(const struct perf_coef *coef, const struct perf_shape *s, struct rng *rng,
                    double noise)
{
    return perf_step_s(coef, s) * exp(noise * rng_normal(rng));
}

/* The largest relative error over shapes drawn afresh: what users of the model meet. */
static double worst_error(const struct perf_coef *got, const struct perf_coef *want)
{
    struct rng rng;
    rng_seed(&rng, 77);
    double worst = 0;
    for (int i = 0; i < 500; i++) {
        struct perf_shape s = any_shape(&rng);
        worst = fmax(worst, fabs(perf_step_s(got, &s) / perf_step_s(want, &s) - 1));
    }
    return worst;
}

static void t_converges(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        double noise, worst;
        uint32_t steps;
    } rows[] = {
        { "exact observations: exact within two dozen steps", 0, 0.02, 24 },
        { "five per cent of noise", 0.05, 0.10, 400 },
        { "thirty per cent of noise", 0.30, 0.45, 2000 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct perf_linear fit;
        struct rng rng;
        rng_seed(&rng, 1 + i);
        perf_linear_init(&fit, NULL);
        for (uint32_t n = 0; n < rows[i].steps; n++) {
            struct perf_shape s = any_shape(&rng);
            perf_linear_observe(&fit, &s, noisy(&truth, &s, &rng, rows[i].noise));
        }
        double worst = worst_error(&fit.coef, &truth);
        if (worst > rows[i].worst) fail_msg("%s: off by %.3f", rows[i].why, worst);
        assert_true(fit.coef.samples == rows[i].steps);
    }
}

static void t_follows_a_change(void **state)
{
    (void)state;
    const double factors[] = { 5.0, 0.2, 1.5 };
    for (size_t i = 0; i < COUNT_OF(factors); i++) {
        struct perf_linear fit;
        struct rng rng;
        rng_seed(&rng, 9 + i);
        perf_linear_init(&fit, NULL);
        for (int n = 0; n < 1000; n++) {
            struct perf_shape s = any_shape(&rng);
            perf_linear_observe(&fit, &s, noisy(&truth, &s, &rng, 0.05));
        }
        struct perf_coef later = truth;
        later.step_s *= factors[i], later.prefill_token_s *= factors[i],
            later.decode_seq_s *= factors[i], later.kv_read_s *= factors[i];
        for (int n = 0; n < 600; n++) {
            struct perf_shape s = any_shape(&rng);
            perf_linear_observe(&fit, &s, noisy(&later, &s, &rng, 0.05));
        }
        double worst = worst_error(&fit.coef, &later);
        if (worst > 0.25) fail_msg("machine %.1f times slower: off by %.3f", factors[i], worst);
    }
}

static void t_decoding_alone_keeps_the_prefill_term(void **state)
{
    (void)state;
    struct perf_linear fit;
    struct rng rng;
    rng_seed(&rng, 3);
    perf_linear_init(&fit, NULL);
    for (int n = 0; n < 500; n++) {
        struct perf_shape s = any_shape(&rng);
        perf_linear_observe(&fit, &s, noisy(&truth, &s, &rng, 0.02));
    }
    for (int n = 0; n < 20000; n++) {
        struct perf_shape s = { .decoding_seqs = 1,
                                .kv_tokens_read = 200,
                                .kv_tokens_decoding = 200 };
        perf_linear_observe(&fit, &s, noisy(&truth, &s, &rng, 0.02));
    }
    assert_true(fabs(fit.coef.prefill_token_s / truth.prefill_token_s - 1) < 0.15);
    assert_true(perf_coef_valid(&fit.coef));
}

static void t_one_stall_moves_little(void **state)
{
    (void)state;
    struct perf_linear fit;
    struct rng rng;
    rng_seed(&rng, 5);
    perf_linear_init(&fit, NULL);
    for (int n = 0; n < 1000; n++) {
        struct perf_shape s = any_shape(&rng);
        perf_linear_observe(&fit, &s, noisy(&truth, &s, &rng, 0.05));
    }
    struct perf_shape s = { .decoding_seqs = 4,
                            .kv_tokens_read = 1000,
                            .kv_tokens_decoding = 1000 };
    double before = perf_step_s(&fit.coef, &s);
    perf_linear_observe(&fit, &s, 100 * before);
    assert_true(perf_step_s(&fit.coef, &s) < 1.15 * before);
}

static void t_never_negative(void **state)
{
    (void)state;
    /* Seconds that fall with the batch: least squares alone would answer with c < 0. */
    struct perf_linear fit;
    perf_linear_init(&fit, NULL);
    for (int n = 0; n < 400; n++) {
        struct perf_shape s = { .decoding_seqs = 1 + (uint32_t)n % 8,
                                .kv_tokens_read = 100 * (1 + (uint64_t)n % 8),
                                .kv_tokens_decoding = 100 * (1 + (uint64_t)n % 8) };
        perf_linear_observe(&fit, &s, 0.010 - 0.0005 * s.decoding_seqs);
        assert_true(perf_coef_valid(&fit.coef));
    }
    struct perf_shape s = { .decoding_seqs = 4, .kv_tokens_read = 400, .kv_tokens_decoding = 400 };
    assert_true(fabs(perf_step_s(&fit.coef, &s) - 0.008) < 0.002);
}

static void t_p90_covers_nine_in_ten(void **state)
{
    (void)state;
    struct perf_linear fit;
    struct rng rng;
    rng_seed(&rng, 11);
    perf_linear_init(&fit, NULL);
    uint32_t below = 0, asked = 0;
    for (int n = 0; n < 6000; n++) {
        struct perf_shape s = any_shape(&rng);
        double seconds = noisy(&truth, &s, &rng, 0.15);
        if (n >= 1000) {
            asked++;
            if (seconds <= perf_step_s(&fit.coef, &s) * fit.coef.ratio_p90) below++;
        }
        perf_linear_observe(&fit, &s, seconds);
    }
    double covered = (double)below / asked;
    if (covered < 0.87 || covered > 0.93) fail_msg("covered %.3f", covered);
}

static void t_nonsense_is_refused(void **state)
{
    (void)state;
    struct perf_linear fit, before;
    perf_linear_init(&fit, NULL);
    before = fit;
    struct perf_shape empty = { .kv_tokens_read = 5 }, one = { .decoding_seqs = 1 };
    perf_linear_observe(&fit, &empty, 1);
    perf_linear_observe(&fit, &one, 0);
    perf_linear_observe(&fit, &one, -1);
    perf_linear_observe(&fit, &one, (double)NAN);
    perf_linear_observe(&fit, &one, (double)INFINITY);
    assert_memory_equal(&fit, &before, sizeof fit);

    static const struct {
        const char *why;
        struct perf_coef coef;
        bool valid;
    } rows[] = {
        { "the truth",
          { .step_s = 1e-3, .prefill_token_s = 1e-4, .decode_seq_s = 1e-4, .kv_read_s = 1e-7 },
          true },
        { "one term is enough", { .step_s = 1e-3 }, true },
        { "all zero is no model", { .step_s = 0 }, false },
        { "negative", { .step_s = 1, .prefill_token_s = -1e-9 }, false },
        { "infinite", { .step_s = (double)INFINITY }, false },
        { "not a number", { .step_s = 1, .decode_seq_s = (double)NAN }, false },
        { "negative samples", { .step_s = 1, .samples = -1 }, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (perf_coef_valid(&rows[i].coef) != rows[i].valid) fail_msg("%s", rows[i].why);
    }
}

static void steps_stretch_with_the_clock(void **state)
{
    (void)state;
    const struct perf_coef full = { 1, 2, 3, 4, 5, 100, 1.5 }, half = { 2, 4, 6, 8, 10, 100, 1.5 };
    struct perf_coef now = perf_at_clock(&full, 0.5);
    assert_memory_equal(&now, &half, sizeof half);
    now = perf_at_clock(&full, 1);
    assert_memory_equal(&now, &full, sizeof full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_stretch_with_the_clock),
        cmocka_unit_test(t_converges),
        cmocka_unit_test(t_follows_a_change),
        cmocka_unit_test(t_decoding_alone_keeps_the_prefill_term),
        cmocka_unit_test(t_one_stall_moves_little),
        cmocka_unit_test(t_never_negative),
        cmocka_unit_test(t_p90_covers_nine_in_ten),
        cmocka_unit_test(t_nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

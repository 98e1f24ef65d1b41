/* t_perf.c - tests step-time models: linear regression, and what holds for every policy. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/perf/linear.h"
#include "policies/perf/perf_model.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- the linear model finds hidden coefficients, keeps them and follows changes ---- */

static const struct perf_coef hidden = { .step_s = 4e-3,
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

/* Returns the largest relative error over freshly drawn shapes, as users of the model meet them. */
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
            perf_linear_observe(&fit, &s, noisy(&hidden, &s, &rng, rows[i].noise));
        }
        double worst = worst_error(&fit.coef, &hidden);
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
            perf_linear_observe(&fit, &s, noisy(&hidden, &s, &rng, 0.05));
        }
        struct perf_coef later = hidden;
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
        perf_linear_observe(&fit, &s, noisy(&hidden, &s, &rng, 0.02));
    }
    for (int n = 0; n < 20000; n++) {
        struct perf_shape s = { .decoding_seqs = 1,
                                .kv_tokens_read = 200,
                                .kv_tokens_decoding = 200 };
        perf_linear_observe(&fit, &s, noisy(&hidden, &s, &rng, 0.02));
    }
    assert_true(fabs(fit.coef.prefill_token_s / hidden.prefill_token_s - 1) < 0.15);
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
        perf_linear_observe(&fit, &s, noisy(&hidden, &s, &rng, 0.05));
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
    /* Step times fall with the batch: least squares alone would give c < 0. */
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
        double seconds = noisy(&hidden, &s, &rng, 0.15);
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

static int perf_tests(void)
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
    return cmocka_run_group_tests_name("perf", tests, NULL, NULL);
}

/* ---- every perf policy learns hidden step times and keeps its state in its bytes ---- */

union bytes {
    max_align_t align;
    unsigned char of[PERF_STATE_BYTES_MAX];
};

static struct roofline a100(void)
{
    struct model_spec m;
    struct roofline r;
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &m, NULL), 0);
    assert_true(roofline_init(&r, hardware_find(STR("a100")), &m, 1));
    return r;
}

static struct perf_shape row_shape(struct rng *rng)
{
    struct perf_shape s = { .decoding_seqs = 1 + (uint32_t)rng_below(rng, 100) };
    s.kv_tokens_decoding = s.kv_tokens_read = s.decoding_seqs * (100 + rng_below(rng, 2000));
    if (rng_below(rng, 3) == 0) {
        uint64_t n = 16 + rng_below(rng, 1000);
        s.prefill_tokens = (uint32_t)n;
        s.prefill_chunks = 1;
        s.kv_tokens_read += n * rng_below(rng, 2000) + n * (n + 1) / 2;
    }
    return s;
}

/* Returns the mean relative error over freshly drawn shapes. */
static double mean_error(const struct perf_policy *p, const void *state,
                         const struct roofline *truth)
{
    struct rng rng;
    double sum = 0;
    rng_seed(&rng, 99);
    for (int i = 0; i < 500; i++) {
        struct perf_shape s = row_shape(&rng);
        sum += fabs(p->step_s(state, &s) / roofline_step_s(truth, &s) - 1) / 500;
    }
    return sum;
}

static void feed(const struct perf_policy *p, void *state, const struct roofline *truth, int steps,
                 uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (int i = 0; i < steps; i++) {
        struct perf_shape s = row_shape(&rng);
        p->observe(state, &s, roofline_step_s(truth, &s) * exp(0.03 * rng_normal(&rng)));
    }
}

/* An instance's matrices take 1.4 times and its host twice as long as its hardware entry says. The
 * policies that learn find out; the closed form alone stays off. */
static void t_learn(void **state)
{
    (void)state;
    static const double off[ROOFLINE_PARTS] = { 1.4, 1.1, 0.8, 2, 1 };
    static const struct {
        const char *row;
        double before, after20, after500; /* at most; `before` at least */
    } rows[] = {
        { "roofline_residual", 0.2, 0.04, 0.02 },
        { "roofline", 0.2, 1, 1 },
        { "linear", 0.2, 0.06, 0.06 },
        { "table", 0.2, 0.12, 0.08 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct perf_policy *p = perf_find(str_from(rows[i].row));
        struct roofline told = a100(), truth = told;
        struct perf_coef prior;
        union bytes b = { 0 };
        roofline_scale(&truth, off);
        roofline_linear(&told, ROOFLINE_POINT_DEFAULT, &prior);
        const struct perf_setup setup = { .roofline = &told, .prior = &prior };
        p->init(&b, &setup);
        double before = mean_error(p, &b, &truth);
        feed(p, &b, &truth, 20, 1);
        double after20 = mean_error(p, &b, &truth);
        feed(p, &b, &truth, 480, 2);
        double after500 = mean_error(p, &b, &truth);
        printf("%-18s off by %4.1f %%, after 20 steps %4.1f, after 500 %4.1f\n", p->name,
               100 * before, 100 * after20, 100 * after500);
        if (before < rows[i].before || after20 > rows[i].after20 || after500 > rows[i].after500)
            fail_msg("%s", p->name);
        if (!strcmp(p->name, "roofline")) assert_true(after500 == before);
    }
}

/* Shapes that no step has had keep the closed form's estimate: only decode steps are seen, of an
 * instance whose entry is right, and prompts are still estimated well. */
static void t_unseen(void **state)
{
    (void)state;
    const struct perf_policy *p = perf_find(STR("roofline_residual"));
    struct roofline r = a100();
    const struct perf_setup setup = { .roofline = &r };
    union bytes b = { 0 };
    p->init(&b, &setup);
    for (uint64_t i = 0; i < 5000; i++) {
        struct perf_shape s = { .decoding_seqs = 1 + (uint32_t)i % 64 };
        s.kv_tokens_decoding = s.kv_tokens_read = s.decoding_seqs * (200 + i % 1000);
        p->observe(&b, &s, roofline_step_s(&r, &s));
    }
    struct perf_shape chunk = { .prefill_tokens = 2048,
                                .prefill_chunks = 1,
                                .kv_tokens_read = 2048 * 4096 };
    assert_true(fabs(p->step_s(&b, &chunk) / roofline_step_s(&r, &chunk) - 1) < 0.02);
}

/* Calls `fn` for each policy, with a roofline, and without one where it needs none. */
static void each_start(void (*fn)(const struct perf_policy *p, void *state))
{
    struct roofline r = a100();
    for (uint32_t i = 0; i < perf_count; i++) {
        const struct perf_policy *p = perf_table[i];
        for (int known = p->needs_roofline; known <= 1; known++) {
            const struct perf_setup setup = { .roofline = known ? &r : NULL };
            union bytes b = { 0 };
            assert_true(p->state_size > 0 && p->state_size <= sizeof b);
            p->init(&b, &setup);
            fn(p, &b);
            for (size_t k = p->state_size; k < sizeof b; k++)
                assert_int_equal(b.of[k], 0); /* no byte beyond its size */
        }
    }
}

/* Checks that a copy of the bytes gives the same further estimates. */
static void check_copy(const struct perf_policy *p, void *state)
{
    union bytes copy = { 0 };
    struct roofline truth = a100();
    struct perf_coef a, b;
    feed(p, state, &truth, 100, 3);
    memcpy(&copy, state, p->state_size);
    feed(p, state, &truth, 100, 4);
    feed(p, &copy, &truth, 100, 4);
    assert_memory_equal(&copy, state, p->state_size);
    p->coef(state, &a), p->coef(&copy, &b);
    assert_memory_equal(&a, &b, sizeof a);
}

static void t_bytes(void **state)
{
    (void)state;
    each_start(check_copy);
}

static void check_nonsense(const struct perf_policy *p, void *state)
{
    union bytes before;
    struct perf_shape empty = { 0 }, one = { .decoding_seqs = 1 };
    memcpy(&before, state, p->state_size);
    p->observe(state, &empty, 0.1);
    p->observe(state, &one, 0);
    p->observe(state, &one, -1);
    p->observe(state, &one, NAN);
    p->observe(state, &one, INFINITY);
    assert_memory_equal(&before, state, p->state_size);
    assert_true(isfinite(p->step_s(state, &empty)));
}

static void t_nonsense(void **state)
{
    (void)state;
    each_start(check_nonsense);
}

/* Checks that the coefficients told to others are usable, count the steps, and agree with the
 * policy at that state. */
static void check_coef(const struct perf_policy *p, void *state)
{
    struct roofline truth = a100();
    struct perf_coef c;
    p->coef(state, &c);
    assert_true(perf_coef_valid(&c) && c.samples == 0 && c.ratio_p90 == 1);
    feed(p, state, &truth, 1000, 5);
    p->coef(state, &c);
    assert_true(perf_coef_valid(&c) && c.samples == 1000);
    if (c.ratio_p90 < 0.8 || c.ratio_p90 > 1.6) fail_msg("%s: p90 %g", p->name, c.ratio_p90);
    struct perf_shape s = { .decoding_seqs = 32,
                            .kv_tokens_read = 32 * 1024,
                            .kv_tokens_decoding = 32 * 1024 };
    double off = perf_step_s(&c, &s) / p->step_s(state, &s) - 1;
    if (fabs(off) > 0.1) fail_msg("%s: surrogate %+.1f %%", p->name, 100 * off);
    if (!p->watts) return;
    double full = p->watts(state, &s, 1), half = p->watts(state, &s, 0.5);
    assert_true(full > truth.watts_idle && full <= truth.watts_max && half < full);
}

static void t_coef(void **state)
{
    (void)state;
    each_start(check_coef);
}

/* The table gives the measured time at a knot, and the mean half-way between two. */
static void t_table(void **state)
{
    (void)state;
    const struct perf_policy *p = perf_find(STR("table"));
    const struct perf_setup setup = { 0 };
    union bytes b = { 0 };
    struct perf_shape four = { .decoding_seqs = 4,
                               .kv_tokens_read = 512,
                               .kv_tokens_decoding = 512 };
    struct perf_shape sixteen = { .decoding_seqs = 16,
                                  .kv_tokens_read = 2048,
                                  .kv_tokens_decoding = 2048 };
    struct perf_shape ten = { .decoding_seqs = 10,
                              .kv_tokens_read = 1280,
                              .kv_tokens_decoding = 1280 };
    p->init(&b, &setup);
    for (int i = 0; i < 60; i++)
        p->observe(&b, &four, 0.010), p->observe(&b, &sixteen, 0.030);
    assert_true(fabs(p->step_s(&b, &four) - 0.010) < 1e-6);
    assert_true(fabs(p->step_s(&b, &sixteen) - 0.030) < 1e-6);
    assert_true(fabs(p->step_s(&b, &ten) - 0.020) < 1e-6);
}

static void t_rows(void **state)
{
    (void)state;
    assert_non_null(perf_find(STR(PERF_DEFAULT)));
    const struct perf_policy *unknown = perf_find(STR(PERF_DEFAULT_UNKNOWN));
    assert_false(unknown->needs_roofline);
    assert_null(perf_find(STR("exact")));
}

static int perf_rows_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_learn),    cmocka_unit_test(t_unseen), cmocka_unit_test(t_bytes),
        cmocka_unit_test(t_nonsense), cmocka_unit_test(t_coef),   cmocka_unit_test(t_table),
        cmocka_unit_test(t_rows),
    };
    return cmocka_run_group_tests_name("perf_rows", tests, NULL, NULL);
}

int main(void)
{
    return perf_tests() + perf_rows_tests();
}

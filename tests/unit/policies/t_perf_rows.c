/* t_perf_rows.c - every performance row: learns hidden seconds, keeps its state in its bytes. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/perf/perf_model.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static struct perf_shape any_shape(struct rng *rng)
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

/* Mean relative error over shapes drawn afresh. */
static double mean_error(const struct perf_policy *p, const void *state,
                         const struct roofline *truth)
{
    struct rng rng;
    double sum = 0;
    rng_seed(&rng, 99);
    for (int i = 0; i < 500; i++) {
        struct perf_shape s = any_shape(&rng);
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
        struct perf_shape s = any_shape(&rng);
        p->observe(state, &s, roofline_step_s(truth, &s) * exp(0.03 * rng_normal(&rng)));
    }
}

/* An instance whose matrices take 1.4 times and whose host twice as long as the table says. The
 * rows that learn get there; the closed form alone stays off by what it was told wrong. */
static void t_learn(void **state)
{
    (void)state;
    static const double off[ROOFLINE_PARTS] = { 1.4, 1.1, 0.8, 2, 1 };
    static const struct {
        const char *row;
        double before, after20, after500; /* at most; before at least */
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

/* What no step has spoken about stays as the closed form has it: only decode steps are seen, of an
 * instance that is right, and prompts are still estimated. */
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

/* Each row, with and without a roofline where it can do without. */
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
                assert_int_equal(b.of[k], 0); /* not one byte beyond its size */
        }
    }
}

/* The copied bytes give the same further estimates. */
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

/* What others are told is usable, counts the steps, and agrees with the row where it was taken. */
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

/* The table gives back what was measured at a knot, and the mean half-way between two. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_learn),    cmocka_unit_test(t_unseen), cmocka_unit_test(t_bytes),
        cmocka_unit_test(t_nonsense), cmocka_unit_test(t_coef),   cmocka_unit_test(t_table),
        cmocka_unit_test(t_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

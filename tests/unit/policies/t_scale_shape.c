/* t_scale_shape.c - tests shapers: how much of equal wishes each allows, and when. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/scale/bound.h"
#include "policies/scale/shape/shape.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

struct bench {
    const struct scale_shaper *policy;
    struct scale_shape_config config;
    _Alignas(8) char state[SHAPE_STATE_BYTES_MAX];
    struct scale_shaped out;
};

static void bench_init(struct bench *b, const struct scale_shaper *policy)
{
    *b = (struct bench){ .policy = policy, .config = policy->published };
}

/* Returns the instances allowed to a single pool that wants `want` and has `have`. */
static uint32_t allow(struct bench *b, double at_s, uint32_t want, uint32_t have)
{
    struct scale_shape_ask ask = { 1, &want, &have, &have };
    b->policy->shape(b->state, &b->config, &ask, (int64_t)(at_s * 1e6), &b->out);
    assert_int_equal(b->out.limited, b->out.target[0] != want);
    assert_int_equal(b->out.limited, b->out.limit != NULL);
    return b->out.target[0];
}

/* Lets the fleet follow at once; returns its count after the seconds [from_s, to_s). */
static uint32_t follow(struct bench *b, int from_s, int to_s, uint32_t want, uint32_t have)
{
    for (int t = from_s; t < to_s; t++)
        have = allow(b, t, want, have);
    return have;
}

/* Each shaper gets the same signal: a burst to 20, and back to 1 after two minutes. */
static void the_same_burst_behind_each(void **state)
{
    (void)state;
    static const struct {
        const struct scale_shaper *policy;
        uint32_t first, second_15, second_30; /* up from 2 at 400 s */
        uint32_t down_1, down_2, down_4;      /* seconds after the wish of 1 at 520 s */
        uint32_t down_59, down_70, down_299, down_320;
    } rows[] = {
        { &scale_shape_none, 20, 20, 20, 1, 1, 1, 1, 1, 1, 1 },
        { &scale_shape_kpa, 20, 20, 20, 10, 5, 2, 1, 1, 1, 1 },
        { &scale_shape_window, 20, 20, 20, 20, 20, 20, 20, 11, 1, 1 },
        { &scale_shape_hpa, 6, 12, 20, 20, 20, 20, 20, 20, 20, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct bench b;
        bench_init(&b, rows[i].policy);
        uint32_t have = follow(&b, 1, 400, 2, 2);
        assert_int_equal(have, 2);
        have = follow(&b, 400, 401, 20, have);
        assert_int_equal(have, rows[i].first);
        have = follow(&b, 401, 416, 20, have);
        assert_int_equal(have, rows[i].second_15);
        have = follow(&b, 416, 431, 20, have);
        assert_int_equal(have, rows[i].second_30);
        have = follow(&b, 431, 520, 20, have);
        assert_int_equal(have, 20);
        const int after[] = { 1, 2, 4, 59, 70, 299, 320 };
        const uint32_t left[] = { rows[i].down_1,  rows[i].down_2,  rows[i].down_4,
                                  rows[i].down_59, rows[i].down_70, rows[i].down_299,
                                  rows[i].down_320 };
        for (size_t k = 0, t = 0; k < COUNT_OF(after); t = (size_t)after[k++]) {
            have = follow(&b, 520 + (int)t, 520 + after[k], 1, have);
            if (have != left[k])
                fail_msg("%s, %d s after: %u, wanted %u", rows[i].policy->name, after[k], have,
                         left[k]);
        }
    }
}

static void hpa_rates_upward(void **state)
{
    (void)state;
    static const struct {
        uint32_t have, want, most;
        const char *why;
    } rows[] = {
        { 1, 20, 5, "four more than one" }, { 4, 20, 8, "either doubles four" },
        { 9, 40, 18, "twice as many" },     { 9, 12, 12, "what is wanted is within it" },
        { 0, 3, 3, "four from none" },
    };
    struct bench b;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bench_init(&b, &scale_shape_hpa);
        if (allow(&b, 1, rows[i].want, rows[i].have) != rows[i].most)
            fail_msg("%s: %u", rows[i].why, b.out.target[0]);
    }
    bench_init(&b, &scale_shape_hpa); /* the period is a sliding one */
    assert_int_equal(follow(&b, 1, 15, 40, 9), 18);
    assert_int_equal(follow(&b, 15, 17, 40, 18), 36);
}

/* Other rates and windows: +100 % or 4 in 60 s towards the least of 30 s, one down in 120 s towards
 * the most of 180 s. */
static void hpa_with_other_numbers(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, &scale_shape_hpa);
    b.config = (struct scale_shape_config){ .up_window_s = 30,
                                            .up_share = 1,
                                            .up_count = 4,
                                            .up_period_s = 60,
                                            .down_window_s = 180,
                                            .down_count = 1,
                                            .down_period_s = 120 };
    assert_int_equal(follow(&b, 1, 200, 3, 3), 3);
    assert_int_equal(follow(&b, 200, 229, 8, 3), 3); /* three was asked for within 30 s */
    uint32_t have = follow(&b, 229, 240, 8, 3);
    assert_int_equal(have, 7); /* max(6, 7) */
    assert_int_equal(follow(&b, 240, 280, 8, have), 7);
    have = follow(&b, 280, 300, 8, have);
    assert_int_equal(have, 8);
    have = follow(&b, 300, 470, 3, have);
    assert_int_equal(have, 8); /* eight was asked for within 180 s */
    have = follow(&b, 470, 500, 3, have);
    assert_int_equal(have, 7);
    assert_int_equal(follow(&b, 500, 600, 3, have), 7); /* one in two minutes */
    assert_int_equal(follow(&b, 600, 630, 3, have), 6);
}

static void kpa_halves_what_is_ready(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, &scale_shape_kpa);
    assert_int_equal(allow(&b, 10, 0, 9), 4);   /* floor(9 / 2) */
    assert_int_equal(allow(&b, 11, 0, 4), 4);   /* a tick is two seconds */
    assert_int_equal(allow(&b, 11.9, 7, 4), 7); /* upwards between two ticks */
    assert_int_equal(allow(&b, 12, 0, 4), 2);
    assert_int_equal(allow(&b, 14, 5, 9), 5);
    assert_int_equal(allow(&b, 16, 0, 1), 0);
    assert_int_equal(allow(&b, 18, 2500, 2), 2000);
    assert_int_equal(allow(&b, 20, 2500, 0), 1000); /* zero counts as one */
    assert_int_equal(allow(&b, 3, 0, 9), 4);        /* the clock went back */
    uint32_t want = 0, have = 9, ready = 2;         /* a starting instance is not ready */
    struct scale_shape_ask ask = { 1, &want, &have, &ready };
    scale_shape_kpa.shape(b.state, &b.config, &ask, 30 * SECOND, &b.out);
    assert_int_equal(b.out.target[0], 1);
}

static void window_goes_up_at_once_and_down_after_it(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, &scale_shape_window);
    b.config.down_step_max = 0;
    assert_int_equal(allow(&b, 1000, 4, 1), 4);
    int fell = 0;
    for (int i = 1; i <= 130 && !fell; i++)
        if (allow(&b, 1000 + i, 1, 4) < 4) fell = i;
    assert_in_range(fell, 59, 64); /* the window, and at most one bucket more */
    assert_int_equal(b.out.target[0], 1);
}

static void window_takes_the_maximum_of_a_flapping_signal(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, &scale_shape_window);
    for (int i = 0; i < 600; i++)
        assert_int_equal(allow(&b, 1000 + i, i % 50 == 0 ? 3 : 1, 3), 3);
}

static void window_steps_and_forgets_after_a_gap(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, &scale_shape_window);
    b.config =
        (struct scale_shape_config){ .down_window_s = 10, .up_step_max = 2, .down_step_max = 1 };
    assert_int_equal(allow(&b, 1000, 9, 1), 3);
    for (int i = 1; i <= 12; i++)
        allow(&b, 1000 + i, 0, 5);
    assert_int_equal(b.out.target[0], 4);       /* one at a time */
    assert_int_equal(allow(&b, 1100, 0, 5), 5); /* after a gap a new window begins */
    assert_true(b.out.hold_s > 0);
    assert_int_equal(allow(&b, 1050, 0, 5), 5); /* the clock went back */
}

/* A copy of a shaper's bytes decides alike from there on, and no byte behind them is written. */
static void state_is_bytes(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < scale_shape_count; row++) {
        const struct scale_shaper *s = scale_shape_table[row];
        assert_ptr_equal(scale_shape_find(str_from(s->name)), s);
        assert_true(s->state_size <= SHAPE_STATE_BYTES_MAX);
        struct bench a, b;
        bench_init(&a, s);
        bench_init(&b, s);
        for (uint32_t t = 1; t < 900; t++) {
            uint32_t want = t * 2654435761u >> 28, have = t * 40503u >> 4 & 15;
            memcpy(b.state, a.state, s->state_size);
            assert_int_equal(allow(&a, t, want, have), allow(&b, t, want, have));
            assert_memory_equal(a.state, b.state, sizeof a.state);
        }
        for (uint32_t i = s->state_size; i < sizeof a.state; i++)
            assert_int_equal(a.state[i], 0);
    }
    assert_null(scale_shape_find(STR("windows")));
}

/* Instances added an hour ahead of the present clock are not part of the last fifteen seconds. */
static void a_clock_that_goes_back_limits_nothing(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, &scale_shape_hpa);
    assert_int_equal(allow(&b, 7200, 20, 4), 8);
    assert_int_equal(allow(&b, 7201, 20, 8), 8);
    assert_int_equal(allow(&b, 3600, 20, 8), 16);
}

/* ---- the instances that a clairvoyant needs, on futures written by hand ---- */

#define SECOND ((int64_t)1000000)

/* Gaps no longer than the lead are filled to the lower of their sides; then each second has the
 * most of the lead behind it. */
static void launched_so_early_that_it_is_ready(void **state)
{
    (void)state;
    static const struct {
        uint16_t need[10], plan[10];
        double lead_s;
        const char *why;
    } rows[] = {
        { { 1, 1, 4, 4, 1, 1, 1, 1, 1, 1 }, { 1, 1, 4, 4, 1, 1, 1, 1, 1, 1 }, 0, "no lead" },
        { { 1, 1, 1, 4, 1, 1, 1, 1, 1, 1 }, { 1, 4, 4, 4, 1, 1, 1, 1, 1, 1 }, 2, "two early" },
        { { 1, 1, 1, 4, 1, 1, 1, 1, 1, 1 },
          { 1, 4, 4, 4, 1, 1, 1, 1, 1, 1 },
          1.2,
          "a part is one" },
        { { 3, 1, 1, 2, 1, 1, 1, 1, 1, 2 }, { 3, 2, 2, 2, 1, 1, 2, 2, 2, 2 }, 3, "one gap of two" },
        { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 5 },
          { 5, 5, 5, 5, 5, 5, 5, 5, 5, 5 },
          99,
          "the whole past" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint16_t got[10];
        memcpy(got, rows[i].need, sizeof got);
        scale_bound_plan(got, COUNT_OF(got), rows[i].lead_s);
        if (memcmp(got, rows[i].plan, sizeof got) != 0) fail_msg("%s", rows[i].why);
    }
    scale_bound_plan(NULL, 0, 5);
}

/* A plan is never below the need, and planning again changes nothing. */
static void a_plan_covers_its_need(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 4);
    for (uint32_t round = 0; round < 200; round++) {
        uint16_t need[80], plan[80];
        for (uint32_t i = 0; i < COUNT_OF(need); i++)
            need[i] = (uint16_t)(rng_below(&rng, 3) ? 0 : rng_below(&rng, 9));
        memcpy(plan, need, sizeof plan);
        uint32_t lead = (uint32_t)rng_below(&rng, 12);
        scale_bound_plan(plan, COUNT_OF(plan), lead);
        for (uint32_t i = 0; i < COUNT_OF(need); i++)
            for (uint32_t k = i; k <= i + lead && k < COUNT_OF(need); k++)
                assert_true(plan[i] >= need[k]);
    }
}

static void need_is_the_rate_over_what_one_serves(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    static int64_t at_us[COUNT];
    static uint32_t prompt[COUNT], output[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) { /* ten a second for ten seconds */
        at_us[i] = i * SECOND / 10;
        prompt[i] = 1000;
        output[i] = 100;
    }
    const struct scale_future f = { at_us, prompt, output, COUNT };
    struct scale_pool p = {
        .perf = { .step_s = 0.01, .prefill_token_s = 1e-4, .decode_seq_s = 1e-4 }, .seqs_max = 256
    };
    double each = scale_bound_need(&f, &p, 1, 0.1, 5 * SECOND, 2);
    assert_true(each > 0 && isfinite(each));
    /* Behind the last request half of the window is empty, later all of it. */
    assert_true(fabs(scale_bound_need(&f, &p, 1, 0.1, 10 * SECOND, 2) - each / 2) < 1e-9);
    assert_true(scale_bound_need(&f, &p, 1, 0.1, 50 * SECOND, 2) <= 0);
    assert_true(scale_bound_need(&f, &p, 1, 0.1, 0, 2) > 0); /* the window has some at time 0 */
    assert_true(isinf(scale_bound_need(&f, &p, 1, 0.001, 5 * SECOND, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_burst_behind_each),
        cmocka_unit_test(hpa_rates_upward),
        cmocka_unit_test(hpa_with_other_numbers),
        cmocka_unit_test(kpa_halves_what_is_ready),
        cmocka_unit_test(window_goes_up_at_once_and_down_after_it),
        cmocka_unit_test(window_takes_the_maximum_of_a_flapping_signal),
        cmocka_unit_test(window_steps_and_forgets_after_a_gap),
        cmocka_unit_test(a_clock_that_goes_back_limits_nothing),
        cmocka_unit_test(state_is_bytes),
        cmocka_unit_test(launched_so_early_that_it_is_ready),
        cmocka_unit_test(a_plan_covers_its_need),
        cmocka_unit_test(need_is_the_rate_over_what_one_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_predict.c - the length predictor learns, backs off, stays calibrated and bounded. */
#include "base/core/rng.h"
#include "policies/predict/predict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct predict_policy *row;
static void *memory;

static int fresh(void **state)
{
    (void)state;
    row = predict_find(STR(PREDICT_DEFAULT));
    memory = malloc(row->state_size);
    assert_non_null(memory);
    row->init(memory);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    free(memory);
    memory = NULL;
    return 0;
}

static struct predict_features features(uint64_t tenant, uint64_t prefix, uint64_t ask)
{
    return (struct predict_features){
        .tenant = tenant, .prefix = prefix, .ask = ask, .prompt_tokens = 100, .output_max = 2048
    };
}

static struct predict_verdict said(const struct predict_features *f)
{
    struct predict_verdict v;
    row->decide(memory, f, &v);
    assert_true(v.p50 >= 1 && v.p50 <= v.p90 && v.p90 <= f->output_max);
    return v;
}

static void special_keys_outweigh_general_ones(void **state)
{
    (void)state;
    struct predict_features lists = features(1, 10, 100), words = features(1, 10, 200);
    for (uint32_t i = 0; i < 40; i++) {
        row->observe(memory, &lists, 300, false);
        row->observe(memory, &words, 8, false);
    }
    assert_true(said(&lists).mean > 200 && said(&lists).p50 > 200);
    assert_true(said(&words).mean < 40 && said(&words).p50 < 15);
    struct predict_features strange = features(1, 11, 300); /* only the tenant is known */
    double mean = said(&strange).mean;
    assert_true(mean > 60 && mean < 250);
}

static void the_limit_clamps(void **state)
{
    (void)state;
    struct predict_features f = features(1, 1, 1);
    f.output_max = 5;
    assert_true(said(&f).p90 <= 5);
}

static void censored_ends_only_raise(void **state)
{
    (void)state;
    struct predict_features f = features(1, 1, 1);
    for (uint32_t i = 0; i < 30; i++)
        row->observe(memory, &f, 100, false);
    double before = said(&f).mean;
    for (uint32_t i = 0; i < 30; i++)
        row->observe(memory, &f, 3, true); /* clients that left */
    assert_true(fabs(said(&f).mean - before) < 1e-9);
    for (uint32_t i = 0; i < 30; i++)
        row->observe(memory, &f, 400, true); /* cut at the limit */
    assert_true(said(&f).mean > 1.5 * before);
}

static void remaining_grows_more_certain(void **state)
{
    (void)state;
    struct predict_features f = features(2, 2, 2);
    for (uint32_t i = 0; i < 50; i++)
        row->observe(memory, &f, i % 2 ? 10 : 300, false);
    double at_start = row->remaining(memory, &f, 0), past_short = row->remaining(memory, &f, 40);
    assert_true(at_start > 80 && at_start < 220);
    assert_true(past_short > 180); /* the short kind is ruled out */
    assert_true(row->remaining(memory, &f, 5000) >= 1);
}

static void p90_covers_nine_in_ten(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 11);
    uint32_t covered = 0, counted = 0;
    for (uint32_t i = 0; i < 6000; i++) {
        struct predict_features f =
            features(rng_below(&rng, 3), rng_below(&rng, 20), rng_below(&rng, 5));
        double tokens = exp(3.0 + 0.4 * (double)f.ask + 0.7 * rng_normal(&rng));
        uint32_t length = (uint32_t)fmax(1, fmin(2000, tokens));
        if (i >= 1000) {
            counted++;
            covered += (double)length <= said(&f).p90;
        }
        row->observe(memory, &f, length, false);
    }
    assert_in_range(covered * 1000 / counted, 880, 920);
}

static void a_flood_of_keys_stays_within_the_state(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        struct predict_features f = features(i, i * 3, i * 7);
        row->observe(memory, &f, (uint32_t)(i % 500) + 1, false);
        if (i % 1000 == 0) said(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(special_keys_outweigh_general_ones, fresh, drop),
        cmocka_unit_test_setup_teardown(the_limit_clamps, fresh, drop),
        cmocka_unit_test_setup_teardown(censored_ends_only_raise, fresh, drop),
        cmocka_unit_test_setup_teardown(remaining_grows_more_certain, fresh, drop),
        cmocka_unit_test_setup_teardown(p90_covers_nine_in_ten, fresh, drop),
        cmocka_unit_test_setup_teardown(a_flood_of_keys_stays_within_the_state, fresh, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

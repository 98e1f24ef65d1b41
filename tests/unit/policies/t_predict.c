/* t_predict.c - the length predictor learns, backs off, stays calibrated and bounded. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/predict/predict.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct predict_policy *policy;
static void *memory;

static int fresh(void **state)
{
    (void)state;
    policy = predict_find(STR(PREDICT_DEFAULT));
    memory = malloc(policy->state_size);
    assert_non_null(memory);
    policy->init(memory);
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
    policy->decide(memory, f, &v);
    assert_true(v.p50 >= 1 && v.p50 <= v.p90 && v.p90 <= f->output_max);
    return v;
}

static void special_keys_outweigh_general_ones(void **state)
{
    (void)state;
    struct predict_features lists = features(1, 10, 100), words = features(1, 10, 200);
    for (uint32_t i = 0; i < 40; i++) {
        policy->observe(memory, &lists, 300, false);
        policy->observe(memory, &words, 8, false);
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
        policy->observe(memory, &f, 100, false);
    double before = said(&f).mean;
    for (uint32_t i = 0; i < 30; i++)
        policy->observe(memory, &f, 3, true); /* clients that left */
    assert_true(fabs(said(&f).mean - before) < 1e-9);
    for (uint32_t i = 0; i < 30; i++)
        policy->observe(memory, &f, 400, true); /* cut at the limit */
    assert_true(said(&f).mean > 1.5 * before);
}

static void remaining_grows_more_certain(void **state)
{
    (void)state;
    struct predict_features f = features(2, 2, 2);
    for (uint32_t i = 0; i < 50; i++)
        policy->observe(memory, &f, i % 2 ? 10 : 300, false);
    double at_start = policy->remaining(memory, &f, 0),
           past_short = policy->remaining(memory, &f, 40);
    assert_true(at_start > 80 && at_start < 220);
    assert_true(past_short > 180); /* the short kind is ruled out */
    assert_true(policy->remaining(memory, &f, 5000) >= 1);
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
        policy->observe(memory, &f, length, false);
    }
    assert_in_range(covered * 1000 / counted, 880, 920);
}

static void a_flood_of_keys_stays_within_the_state(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        struct predict_features f = features(i, i * 3, i * 7);
        policy->observe(memory, &f, (uint32_t)(i % 500) + 1, false);
        if (i % 1000 == 0) said(&f);
    }
}

/* Every predictor on thousands of ends that chance made, wild ones among
 * them: verdicts keep their bounds, a copy of the bytes foretells alike, what one wild end left
 * behind is forgotten, and few ends are enough not to be far off. */

enum { ENDS = 2000, TEXT_MAX = 900 };

struct request {
    struct predict_features f;
    char text[TEXT_MAX];
    float hidden[PREDICT_HIDDEN_DIMS];
    uint32_t tokens;
    bool censored;
};

/* Mostly of the size that is met, now and then none, one, or as many as there can be. */
static uint32_t wild(struct rng *rng, uint32_t usual)
{
    static const uint32_t odd[] = { 0, 1, 1u << 20, UINT32_MAX };
    return rng_below(rng, 6) ? (uint32_t)rng_below(rng, usual) : odd[rng_below(rng, 4)];
}

static void wild_request(struct rng *rng, struct request *r)
{
    static const float odd[] = { 0, -1e30f, 3e38f, NAN, INFINITY };
    for (uint32_t i = 0; i < TEXT_MAX; i++) /* words, digits, marks, and bytes that are no text */
        r->text[i] = rng_below(rng, 8) ? " .?\nab37"[rng_below(rng, 8)] : (char)rng_u64(rng);
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++)
        r->hidden[d] = (float)rng_normal(rng);
    if (rng_below(rng, 5) == 0) {
        r->hidden[rng_below(rng, PREDICT_HIDDEN_DIMS)] = odd[rng_below(rng, COUNT_OF(odd))];
    }
    size_t len = rng_below(rng, 4) ? rng_below(rng, 80) : rng_below(rng, TEXT_MAX + 1);
    r->f = (struct predict_features){
        .tenant = rng_below(rng, 3) ? rng_below(rng, 20) : rng_u64(rng),
        .prefix = rng_below(rng, 3) ? rng_below(rng, 20) : rng_u64(rng),
        .ask = rng_below(rng, 20),
        .group = rng_below(rng, 3) ? rng_below(rng, 20) : rng_u64(rng),
        .prompt_tokens = wild(rng, 4000),
        .output_max = max_u32(wild(rng, 4000), 1),
        .previous_tokens = wild(rng, 500),
        .text = len > 0 ? str_of(r->text, len) : (struct str){ 0 },
        .hidden = rng_below(rng, 8) ? r->hidden : NULL,
        .reported_tokens = wild(rng, 500),
    };
    r->tokens = wild(rng, 1000);
    r->censored = rng_below(rng, 4) == 0;
    r->f.truth_tokens = r->tokens;
}

static void *state_new(const struct predict_policy *row)
{
    void *state = malloc(row->state_size);
    assert_non_null(state);
    row->init(state);
    return state;
}

static struct predict_verdict checked(const struct predict_policy *row, const void *state,
                                      const struct request *r)
{
    struct predict_verdict v;
    double most = r->f.output_max;
    row->decide(state, &r->f, &v);
    bool fine = v.p50 >= 1 && v.p50 <= v.p90 && v.p90 <= most && v.mean >= 1 && v.mean <= most &&
                v.samples >= 0;
    if (!fine) {
        fail_msg("%s: mean %g p50 %g p90 %g samples %g", row->name, v.mean, v.p50, v.p90,
                 v.samples);
    }
    const uint32_t generated[] = { 0, 1, r->tokens / 2, r->f.output_max, UINT32_MAX };
    for (uint32_t i = 0; i < COUNT_OF(generated); i++) {
        double left = predict_remaining(row, state, &r->f, generated[i]);
        if (left >= 1 && left <= fmax(1, most - generated[i])) continue;
        fail_msg("%s: %g left of %g after %u", row->name, left, most, generated[i]);
    }
    return v;
}

static void every_row_stands_what_chance_shows_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < predict_count; i++) {
        const struct predict_policy *row = predict_table[i];
        void *one = state_new(row), *copy = state_new(row), *other = state_new(row);
        struct rng rng;
        rng_seed(&rng, 300 + i);
        for (uint32_t k = 0; k < ENDS; k++) {
            struct request r;
            wild_request(&rng, &r);
            checked(row, one, &r);
            row->observe(one, &r.f, r.tokens, r.censored);
            if (k % 2) row->observe(other, &r.f, r.tokens, r.censored);
            if (k == ENDS / 2) row->merge(one, other);
            if (k == 3 * ENDS / 4) memcpy(copy, one, row->state_size);
            if (k <= 3 * ENDS / 4) continue;
            struct predict_verdict v = checked(row, one, &r);
            row->observe(copy, &r.f, r.tokens, r.censored);
            struct predict_verdict w = checked(row, copy, &r);
            if (v.mean != w.mean || v.p50 != w.p50 || v.p90 != w.p90) fail_msg("%s", row->name);
        }
        assert_memory_equal(one, copy, row->state_size);
        free(one), free(copy), free(other);
    }
}

static struct request plain_request(struct rng *rng, uint32_t tokens)
{
    struct request r;
    for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++)
        r.hidden[d] = (float)rng_normal(rng);
    r.f = (struct predict_features){ .tenant = 1,
                                     .prefix = 2,
                                     .ask = 3,
                                     .group = 4,
                                     .prompt_tokens = 100,
                                     .output_max = 4096,
                                     .previous_tokens = 300,
                                     .text = STR("Tell me a story of the sea."),
                                     .reported_tokens = 300,
                                     .truth_tokens = tokens };
    r.tokens = tokens;
    return r;
}

/* Where every answer has 400 tokens a few dozen ends bring every row within a factor of two, whether
 * or not wild ones came before. noisy_oracle errs on purpose. */
static void few_ends_are_enough(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < predict_count; i++) {
        const struct predict_policy *row = predict_table[i];
        if (str_eq(str_from(row->name), STR("noisy_oracle"))) continue;
        void *s = state_new(row);
        struct rng rng;
        rng_seed(&rng, 5);
        for (uint32_t k = 0; k < 120; k++) {
            struct request r = plain_request(&rng, 400);
            r.f.hidden = r.hidden; /* not before: the request is moved as a whole */
            if (k == 60) r.hidden[3] = NAN;
            row->observe(s, &r.f, r.tokens, false);
            if (k < 40) continue;
            r.hidden[3] = 0;
            struct predict_verdict v = checked(row, s, &r);
            if (v.mean < 200 || v.mean > 800) fail_msg("%s: %g after %u", row->name, v.mean, k);
        }
        free(s);
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
        cmocka_unit_test(every_row_stands_what_chance_shows_it),
        cmocka_unit_test(few_ends_are_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

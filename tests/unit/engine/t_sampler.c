/* t_sampler.c - tests the sampler against a plain reference that sorts everything.
 *
 * The reference follows the definition line by line in double: penalties by counting, a full sort
 * by (logit, id), top-k, softmax, cumulative top-p, min-p, then the inverse distribution function.
 */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "engine/core/sampler.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 97
#define VOCAB_MAX 4096

struct ref {
    double p;
    float logit;
    uint32_t id;
};

static int by_logit(const void *a, const void *b)
{
    const struct ref *x = a, *y = b;
    if (x->logit > y->logit || x->logit < y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint32_t times(const uint32_t *ids, uint32_t from, uint32_t to, uint32_t id)
{
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++)
        n += ids[i] == id;
    return n;
}

static void ref_logits(uint32_t vocab, const struct sampler_params *p,
                       const struct sampler_input *in, float *out)
{
    for (uint32_t id = 0; id < vocab; id++) {
        float l = in->logits[id];
        if (p->repetition_penalty > 0 && times(in->ids, 0, in->count, id)) {
            l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        }
        uint32_t n = times(in->ids, in->prompt_count, in->count, id);
        if (n) l -= p->presence_penalty + p->frequency_penalty * (float)n;
        if (times(in->forbidden, 0, in->forbidden_count, id)) l = -INFINITY;
        out[id] = l;
    }
}

static uint32_t ref_pick(uint32_t vocab, const struct sampler_params *p,
                         const struct sampler_input *in)
{
    static float logit[VOCAB_MAX];
    static struct ref r[VOCAB_MAX];
    ref_logits(vocab, p, in, logit);
    for (uint32_t i = 0; i < vocab; i++)
        r[i] = (struct ref){ 0, logit[i], i };
    qsort(r, vocab, sizeof *r, by_logit);
    if (p->temperature < SAMPLER_GREEDY_BELOW) return r[0].id;

    uint32_t n = p->top_k && p->top_k < vocab ? p->top_k : vocab;
    bool filtered = n < vocab || (p->top_p > 0 && p->top_p < 1) || p->min_p > 0;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        r[i].p = exp(((double)r[i].logit - (double)r[0].logit) / (double)p->temperature);
        sum += r[i].p;
    }
    if (p->top_p > 0 && p->top_p < 1) {
        double reached = 0;
        for (uint32_t i = 0; i < n; i++) {
            reached += r[i].p / sum;
            if (reached >= (double)p->top_p) n = i + 1;
        }
    }
    for (uint32_t i = 1; i < n; i++) {
        if (r[i].p < (double)p->min_p * r[0].p) n = i;
    }
    double u = rng_at_f64(p->seed, in->count), kept = 0, below = 0;
    for (uint32_t i = 0; i < n; i++)
        kept += r[i].p;
    if (!filtered) { /* by id */
        for (uint32_t id = 0; id < vocab; id++) {
            below += exp(((double)logit[id] - (double)r[0].logit) / (double)p->temperature);
            if (below > u * kept) return id;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        below += r[i].p;
        if (below > u * kept) return r[i].id;
    }
    return r[n - 1].id;
}

static void t_like_the_reference(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    struct rng rng;
    rng_seed(&rng, 1);
    assert_int_equal(sampler_new(VOCAB, &s), 0);
    uint32_t differ_from_greedy = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        float logits[VOCAB];
        uint32_t ids[40], forbidden[2] = { (uint32_t)rng_below(&rng, VOCAB), VOCAB + 5 };
        for (uint32_t i = 0; i < VOCAB; i++) {
            /* A coarse grid makes ties common. */
            logits[i] = (float)((double)rng_below(&rng, 40) / 4 - 5);
        }
        for (uint32_t i = 0; i < COUNT_OF(ids); i++)
            ids[i] = (uint32_t)rng_below(&rng, VOCAB);
        uint32_t pick = (uint32_t)rng_below(&rng, 256);
        struct sampler_params p = {
            .temperature = (pick & 3) == 0 ? 0 : (float)(0.2 + 1.5 * rng_f64(&rng)),
            .top_k = pick & 4 ? 1 + (uint32_t)rng_below(&rng, 30) : 0,
            .top_p = pick & 8 ? (float)(0.05 + 0.9 * rng_f64(&rng)) : 1,
            .min_p = pick & 16 ? (float)(0.3 * rng_f64(&rng)) : 0,
            .repetition_penalty = pick & 32 ? 1.3f : 0,
            .presence_penalty = pick & 64 ? 0.7f : 0,
            .frequency_penalty = pick & 128 ? 0.4f : 0,
            .seed = rng_u64(&rng),
        };
        struct sampler_input in = {
            .logits = logits,
            .ids = ids,
            .prompt_count = (uint32_t)rng_below(&rng, 20),
            .count = 20 + (uint32_t)rng_below(&rng, 20),
            .forbidden = forbidden,
            .forbidden_count = round & 1 ? 2 : 0,
        };
        struct sampler_result got;
        assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
        uint32_t want = ref_pick(VOCAB, &p, &in);
        if (got.chosen.id != want) {
            fail_msg("round %u: %u instead of %u", round, got.chosen.id, want);
        }
        p.temperature = 0;
        differ_from_greedy += ref_pick(VOCAB, &p, &in) != want;
    }
    assert_true(differ_from_greedy > 5000); /* many draws differ from greedy */
    sampler_free(s);
}

/* Of flat distributions top-p, top-k or min-p keep nearly all tokens: sorting them gives the same
 * token as popping them one by one. */
static void t_like_the_reference_where_nearly_all_are_kept(void **state)
{
    (void)state;
    static float logits[VOCAB_MAX];
    struct sampler *s = NULL;
    struct rng rng;
    uint32_t far = 0;
    rng_seed(&rng, 2);
    assert_int_equal(sampler_new(VOCAB_MAX, &s), 0);
    for (uint32_t round = 0; round < 300; round++) {
        for (uint32_t i = 0; i < VOCAB_MAX; i++)
            logits[i] = round % 2 ? (float)(4 * rng_f64(&rng) - 2)
                                  : (float)((double)rng_below(&rng, 40) / 20 - 1);
        struct sampler_params p = { .temperature = 2,
                                    .top_p = round % 3 ? (float)(1 - 0.1 * rng_f64(&rng)) : 1,
                                    .top_k = round % 5 ? 0 : VOCAB_MAX - 7,
                                    .min_p = round % 7 ? 0 : 0.01f,
                                    .seed = rng_u64(&rng) };
        struct sampler_input in = { .logits = logits, .prompt_count = round, .count = round };
        struct sampler_result got;
        assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
        uint32_t want = ref_pick(VOCAB_MAX, &p, &in), above = 0;
        if (got.chosen.id != want)
            fail_msg("round %u: %u instead of %u", round, got.chosen.id, want);
        for (uint32_t i = 0; i < VOCAB_MAX; i++)
            above += logits[i] > logits[want];
        far += above > VOCAB_MAX / 4;
    }
    assert_true(far > 50); /* far behind the popped ones */
    sampler_free(s);
}

static void t_draws_follow_the_distribution(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    assert_int_equal(sampler_new(4, &s), 0);
    const float logits[4] = { logf(1), logf(2), logf(3), logf(4) };
    static const struct {
        const char *why;
        struct sampler_params p;
        double share[4];
    } rows[] = {
        { "plain", { .temperature = 1 }, { .1, .2, .3, .4 } },
        { "top_k 2", { .temperature = 1, .top_k = 2 }, { 0, 0, 3. / 7, 4. / 7 } },
        { "top_p .69 needs two", { .temperature = 1, .top_p = .69f }, { 0, 0, 3. / 7, 4. / 7 } },
        { "top_p .71 needs three",
          { .temperature = 1, .top_p = .71f },
          { 0, 2. / 9, 3. / 9, 4. / 9 } },
        { "min_p .6 keeps two", { .temperature = 1, .min_p = .6f }, { 0, 0, 3. / 7, 4. / 7 } },
        { "half the temperature squares",
          { .temperature = .5f },
          { 1. / 30, 4. / 30, 9. / 30, 16. / 30 } },
    };
    enum { DRAWS = 40000 };
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        uint32_t seen[4] = { 0 };
        for (uint32_t i = 0; i < DRAWS; i++) {
            struct sampler_input in = { .logits = logits, .count = i };
            struct sampler_result got;
            assert_int_equal(sampler_pick(s, &rows[k].p, &in, &got), 0);
            seen[got.chosen.id]++;
        }
        for (int id = 0; id < 4; id++) {
            double share = (double)seen[id] / DRAWS, want = rows[k].share[id];
            /* The bound is 4.5 standard deviations; seeds are fixed, so this never flickers. */
            if (fabs(share - want) > 4.5 * sqrt(want * (1 - want) / DRAWS)) {
                fail_msg("%s: token %d drawn %.4f of %.4f", rows[k].why, id, share, want);
            }
        }
    }
    sampler_free(s);
}

static void t_chance_is_a_function_of_seed_and_position(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    assert_int_equal(sampler_new(VOCAB, &s), 0);
    float logits[VOCAB] = { 0 }; /* all equal */
    uint32_t first[32], other = 0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct sampler_params p = { .temperature = 1, .seed = seed };
        for (uint32_t again = 0; again < 2; again++) {
            for (uint32_t at = 32; at-- > 0;) { /* the order of calls does not matter */
                struct sampler_input in = { .logits = logits, .count = at };
                struct sampler_result got;
                assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
                if (seed == 1 && again == 0) first[at] = got.chosen.id;
                if (seed == 1) assert_int_equal(got.chosen.id, first[at]);
                other += got.chosen.id != first[at];
            }
        }
    }
    assert_true(other > 48); /* another seed, other tokens */
    struct sampler_params greedy = { 0 };
    struct sampler_input in = { .logits = logits };
    struct sampler_result got;
    assert_int_equal(sampler_pick(s, &greedy, &in, &got), 0);
    assert_int_equal(got.chosen.id, 0); /* ties: the lowest id */
    sampler_free(s);
}

static void t_logprobs(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    assert_int_equal(sampler_new(4, &s), 0);
    const float logits[4] = { logf(1), logf(2), logf(4), logf(2) };
    struct sampler_params p = { .logprobs = 3, .presence_penalty = 100 };
    const uint32_t ids[1] = { 2 };
    struct sampler_input in = { .logits = logits, .ids = ids, .count = 1 };
    struct sampler_result got;
    assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
    assert_int_equal(got.chosen.id, 1); /* 2 is in the output already and is penalised */
    /* Log-probabilities are the model's own, without penalties. */
    assert_true(fabsf(got.chosen.logprob - logf(2.0f / 9)) < 1e-6f);
    assert_int_equal(got.top_count, 3);
    const uint32_t order[] = { 2, 1, 3 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(got.top[i].id, order[i]);
    assert_true(fabsf(got.top[0].logprob - logf(4.0f / 9)) < 1e-6f);
    sampler_free(s);
}

/* A bias is added before penalties, moves the choice, and yields to masks; log-probabilities are without it. */
static void t_bias(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    assert_int_equal(sampler_new(4, &s), 0);
    const float logits[4] = { logf(1), logf(2), logf(4), logf(2) };
    const struct token_value bias[] = { { 0, 3 }, { 2, -1 } };
    const uint32_t ids[1] = { 0 }, best[] = { 0 };
    struct sampler_params p = { .want_logprob = true };
    struct sampler_input in = { .logits = logits, .bias = bias, .bias_count = 2 };
    struct sampler_result got;
    assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
    assert_int_equal(got.chosen.id, 0);
    assert_true(fabsf(got.chosen.logprob - logf(1.0f / 9)) < 1e-6f);
    /* 3 / 2.5 is more than log 4 - 1 and log 2; 3 / 5 is less than log 2. */
    in.ids = ids;
    in.count = in.prompt_count = 1;
    p.repetition_penalty = 2.5f;
    assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
    assert_int_equal(got.chosen.id, 0);
    p.repetition_penalty = 5;
    assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
    assert_int_equal(got.chosen.id, 1);
    p.repetition_penalty = 1;
    in.forbidden = best;
    in.forbidden_count = 1;
    assert_int_equal(sampler_pick(s, &p, &in, &got), 0);
    assert_int_equal(got.chosen.id, 1);
    sampler_free(s);
}

static void t_odd_logits(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    assert_int_equal(sampler_new(4, &s), 0);
    const float n = NAN, i = INFINITY;
    static const struct {
        const char *why;
        int rc;
        uint32_t id;
    } rows[] = {
        { "NaN is passed over", 0, 2 },
        { "nothing finite", -EDOM, 0 },
        { "infinity wins", 0, 1 },
        { "all but one impossible", 0, 3 },
    };
    const float logits[][4] = {
        { n, -1, 3, 2 }, { n, -i, n, -i }, { 1, i, 5, n }, { -i, -i, -i, 0 }
    };
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        for (int t = 0; t < 4; t++) {
            struct sampler_params p = { .temperature = t & 1 ? 0.01f : 0, .top_k = t & 2 ? 2 : 0 };
            struct sampler_input in = { .logits = logits[k] };
            struct sampler_result got = { 0 };
            int rc = sampler_pick(s, &p, &in, &got);
            if (rc != rows[k].rc || got.chosen.id != rows[k].id) fail_msg("%s", rows[k].why);
        }
    }
    sampler_free(s);
}

/* ---- the ranking against a plain sort, and its cost in moves ---- */

#define RANKED_VOCAB 50000

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit > y->logit || x->logit < y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Draws a logit of one of four kinds; the last kind has awkward bits. */
static float draw(struct rng *rng, uint32_t kind)
{
    static const float odd[] = { 0.0f,   -0.0f,    1e-40f,    -1e-40f, 3e38f,
                                 -3e38f, INFINITY, -INFINITY, NAN };
    switch (kind) {
    case 0:
        return (float)(20 * rng_f64(rng) - 10);
    case 1:
        return (float)rng_below(rng, 5); /* ties */
    case 2:
        return 1.5f;
    default:
        return odd[rng_below(rng, COUNT_OF(odd))];
    }
}

static void t_order_is_that_of_a_sort(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 1, 2, 63, 64, 97, 1000, 5000 };
    struct rng rng;
    rng_seed(&rng, 1);
    for (size_t k = 0; k < COUNT_OF(sizes) * 4; k++) {
        uint32_t size = sizes[k / 4], count = 0;
        float *logit = calloc(size, sizeof *logit);
        struct ranked *sorted = calloc(size, sizeof *sorted);
        struct ranking r;
        assert_int_equal(ranking_init(&r, size), 0);
        for (uint32_t again = 0; again < 2; again++) {
            count = 0;
            for (uint32_t i = 0; i < size; i++) {
                logit[i] = draw(&rng, k % 4);
                if (logit[i] > -INFINITY) sorted[count++] = (struct ranked){ logit[i], i };
            }
            qsort(sorted, count, sizeof *sorted, by_rank);
            assert_int_equal(ranking_begin(&r, logit), count);
            for (uint32_t i = 0; i < count; i++)
                assert_int_equal(ranking_next(&r).id, sorted[i].id);
        }
        ranking_fini(&r);
        free(logit);
        free(sorted);
    }
}

/* Ranks all of a flat distribution, for which a heap alone would take log2(RANKED_VOCAB) moves a
 * token. */
static void t_all_of_it_costs_a_constant_a_token(void **state)
{
    (void)state;
    static float logit[RANKED_VOCAB];
    struct rng rng;
    struct ranking r;
    rng_seed(&rng, 1);
    for (uint32_t i = 0; i < RANKED_VOCAB; i++)
        logit[i] = (float)rng_f64(&rng);
    assert_int_equal(ranking_init(&r, RANKED_VOCAB), 0);
    uint32_t count = ranking_begin(&r, logit);
    uint64_t built = r.moves;
    for (uint32_t i = 0; i < 20; i++)
        ranking_next(&r);
    assert_true(r.moves - built < 20 * 20); /* the first few are popped, not sorted */
    for (uint32_t i = 20; i < count; i++)
        ranking_next(&r);
    print_message("%.2f moves a token\n", (double)r.moves / RANKED_VOCAB);
    assert_true(r.moves <= (uint64_t)RANKING_MOVES_MAX * RANKED_VOCAB);
    ranking_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_like_the_reference),
        cmocka_unit_test(t_like_the_reference_where_nearly_all_are_kept),
        cmocka_unit_test(t_draws_follow_the_distribution),
        cmocka_unit_test(t_chance_is_a_function_of_seed_and_position),
        cmocka_unit_test(t_logprobs),
        cmocka_unit_test(t_bias),
        cmocka_unit_test(t_odd_logits),
        cmocka_unit_test(t_order_is_that_of_a_sort),
        cmocka_unit_test(t_all_of_it_costs_a_constant_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

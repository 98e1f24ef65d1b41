/* t_admit_batch.c - tests batches formed of all waiting sequences: against every possible split,
 * and their bounds. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/admit/admit.h"
#include "tests/unit/unit.h"

#include <float.h>
#include <math.h>

#define CASES 3000
#define SMALL 9 /* sequences, few enough to try all splits */

static const struct perf_coef coef = { .step_s = 0.01,
                                       .prefill_token_s = 1e-4,
                                       .decode_seq_s = 2e-5,
                                       .kv_read_s = 1e-7,
                                       .attend_s = 3e-8 };

/* Plays a batch step by step: prompts in steps of the token budget, then all members decode
 * together. */
static double played_s(const struct admit_pool *pool, const uint32_t *member, uint32_t count)
{
    uint64_t uncached = 0, attended = 0;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct admit_candidate *c = &pool->candidate[member[i]];
        uncached += c->uncached;
        for (uint32_t at = c->tokens - c->uncached; at < c->tokens; at++)
            attended += at + 1;
        longest = max_u32(longest, c->output);
    }
    double seconds = pool->perf.attend_s * (double)attended;
    while (uncached > 0) {
        struct perf_shape step = { .prefill_tokens =
                                       (uint32_t)min_u64(uncached, pool->batch_tokens_max) };
        seconds += perf_step_s(&pool->perf, &step);
        uncached -= step.prefill_tokens;
    }
    for (uint32_t nth = 2; nth <= longest; nth++) {
        struct perf_shape step = { 0 };
        for (uint32_t i = 0; i < count; i++) {
            const struct admit_candidate *c = &pool->candidate[member[i]];
            if (c->output < nth) continue;
            step.decoding_seqs++;
            step.kv_tokens_decoding += c->tokens + nth - 1;
        }
        step.kv_tokens_read = step.kv_tokens_decoding;
        seconds += perf_step_s(&pool->perf, &step);
    }
    return seconds;
}

static bool is_feasible(const struct admit_pool *pool, const uint32_t *member, uint32_t count)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < count; i++)
        pages += pool->candidate[member[i]].pages;
    return count <= pool->seqs_max && (pages <= pool->pages || count == 1);
}

/* Returns the least seconds over all splits of `sorted` into neighbours: bit i of `cuts` is a cut
 * behind i. */
static double least_s(const struct admit_pool *pool, const uint32_t *sorted)
{
    double least = DBL_MAX;
    for (uint32_t cuts = 0; cuts < 1u << (pool->count - 1); cuts++) {
        double seconds = 0;
        uint32_t from = 0;
        for (uint32_t i = 0; i < pool->count; i++) {
            if (i + 1 < pool->count && !(cuts >> i & 1)) continue;
            if (!is_feasible(pool, sorted + from, i + 1 - from)) seconds = INFINITY;
            seconds += played_s(pool, sorted + from, i + 1 - from);
            from = i + 1;
        }
        least = fmin(least, seconds);
    }
    return least;
}

static void sort(const struct admit_pool *pool, uint32_t *ret)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        uint32_t at = i;
        for (; at > 0 && pool->candidate[ret[at - 1]].tokens > pool->candidate[i].tokens; at--)
            ret[at] = ret[at - 1];
        ret[at] = i;
    }
}

static void draw(struct rng *rng, uint32_t count, struct admit_candidate *ret)
{
    bool sliced = rng_below(rng, 2);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t tokens = 1 + (uint32_t)rng_below(rng, 300);
        uint32_t output = sliced ? 16 : 1 + (uint32_t)rng_below(rng, 40);
        ret[i] = (struct admit_candidate){ .tokens = tokens,
                                           .uncached = 1 + (uint32_t)rng_below(rng, tokens),
                                           .output = output,
                                           .pages = (tokens + output + 15) / 16 };
    }
}

static struct admit_pool pool_of(struct rng *rng, const struct admit_candidate *c, uint32_t count)
{
    return (struct admit_pool){ .candidate = c,
                                .count = count,
                                .pages = 10 + (uint32_t)rng_below(rng, 80),
                                .seqs_max = 1 + (uint32_t)rng_below(rng, 6),
                                .batch_tokens_max = 32 + (uint32_t)rng_below(rng, 400),
                                .perf = coef };
}

/* Checks that each batch keeps its bounds, numbers have no gaps, and batches run in order of
 * seconds per member. Returns the seconds of all batches. */
static double check(const struct admit_pool *pool, const uint32_t *batch)
{
    static uint32_t member[ADMIT_POOL_MAX];
    double seconds = 0, last = 0;
    uint32_t seen = 0;
    for (uint32_t b = 0; seen < pool->count; b++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < pool->count; i++)
            if (batch[i] == b) member[count++] = i;
        if (count == 0 || !is_feasible(pool, member, count)) fail_msg("batch %u of %u", b, count);
        double of_batch = played_s(pool, member, count);
        assert_true(of_batch / count >= last * (1 - 1e-9));
        last = of_batch / count;
        seconds += of_batch;
        seen += count;
    }
    return seconds;
}

static void t_least_seconds_of_all_splits(void **state)
{
    (void)state;
    const struct admit_policy *scls = admit_find(STR("scls"));
    struct rng rng;
    rng_seed(&rng, 15);
    uint32_t split = 0, fewer = 0;
    for (uint32_t n = 0; n < CASES; n++) {
        struct admit_candidate c[SMALL];
        uint32_t count = 1 + (uint32_t)rng_below(&rng, SMALL), batch[SMALL], sorted[SMALL];
        draw(&rng, count, c);
        const struct admit_pool pool = pool_of(&rng, c, count);
        scls->batch(&pool, batch);
        sort(&pool, sorted);
        double got = check(&pool, batch), least = least_s(&pool, sorted);
        if (fabs(got - least) > 1e-9 * least) fail_msg("case %u: %g s, least %g s", n, got, least);
        uint32_t batches = 0;
        for (uint32_t i = 0; i < count; i++)
            batches = max_u32(batches, batch[i] + 1);
        split += batches > 1;
        fewer += batches > (count + pool.seqs_max - 1) / pool.seqs_max;
    }
    assert_true(split > CASES / 2 && fewer > CASES / 20); /* memory and outputs bind too */
}

/* The cost of sequences of different lengths does not depend on their order of arrival. */
static void t_order_of_arrival_is_worth_nothing(void **state)
{
    (void)state;
    const struct admit_policy *scls = admit_find(STR("scls"));
    static struct admit_candidate c[ADMIT_POOL_MAX], back[ADMIT_POOL_MAX];
    static uint32_t batch[ADMIT_POOL_MAX];
    struct rng rng;
    rng_seed(&rng, 16);
    for (uint32_t n = 0; n < 20; n++) {
        uint32_t count = n == 0 ? ADMIT_POOL_MAX : 1 + (uint32_t)rng_below(&rng, 400);
        draw(&rng, count, c);
        for (uint32_t i = 0; i < count; i++) {
            c[i].tokens = 300 + i * 7919 % 1031; /* prime and above every count: all different */
            back[count - 1 - i] = c[i];
        }
        struct admit_pool pool = pool_of(&rng, c, count);
        scls->batch(&pool, batch);
        double there = check(&pool, batch);
        pool.candidate = back;
        scls->batch(&pool, batch);
        double and_back = check(&pool, batch);
        assert_true(fabs(there - and_back) <= 1e-9 * there);
    }
}

static void t_examples(void **state)
{
    (void)state;
    const struct admit_policy *scls = admit_find(STR("scls"));
    uint32_t batch[4];
    /* With two places, outputs limited to one token share a batch, not each with a long one. */
    const struct admit_candidate limits[] = {
        { 10, 10, 1, 1 }, { 30, 30, 100, 9 }, { 40, 40, 100, 9 }, { 20, 20, 1, 2 }
    };
    struct admit_pool pool = { limits, 4, 100, 2, 512, coef };
    scls->batch(&pool, batch);
    assert_true(batch[0] == 0 && batch[3] == 0 && batch[1] == 1 && batch[2] == 1);
    /* With three places and equal sequences, the batch of three runs before the batch of one. */
    const struct admit_candidate equal[] = {
        { 10, 10, 8, 2 }, { 10, 10, 8, 2 }, { 10, 10, 8, 2 }, { 10, 10, 8, 2 }
    };
    pool = (struct admit_pool){ equal, 4, 100, 3, 512, coef };
    scls->batch(&pool, batch);
    assert_true(batch[0] == 0 && batch[1] == 0 && batch[2] == 0 && batch[3] == 1);
    /* There is memory for two. */
    pool.pages = 5;
    scls->batch(&pool, batch);
    assert_true(batch[0] == batch[1] && batch[2] == batch[3] && batch[0] != batch[2]);
    /* A sequence larger than the reported memory is a batch of its own. */
    const struct admit_candidate large[] = { { 90, 90, 8, 7 }, { 10, 10, 8, 2 } };
    pool = (struct admit_pool){ large, 2, 5, 3, 512, coef };
    scls->batch(&pool, batch);
    assert_true(batch[0] == 1 && batch[1] == 0);
    /* With unknown speed the splits are the same, in the order of length. */
    pool.candidate = limits, pool.count = 4, pool.pages = 100, pool.seqs_max = 2;
    pool.perf = (struct perf_coef){ .step_s = 0 };
    scls->batch(&pool, batch);
    assert_true(batch[0] == batch[3] && batch[1] == batch[2] && batch[0] == 0);
}

static void t_reserves_the_slice(void **state)
{
    (void)state;
    const struct admit_policy *scls = admit_find(STR("scls"));
    const struct step_session x = { .generated = 40, .slice_left = 88, .output_max = 9000 };
    assert_int_equal(scls->reserve(NULL, &x), 128);
    struct admit_view view = {
        .pages_available = 10, .pages_needed = 4, .pages_growth = 3, .running_growth = 3
    };
    assert_true(scls->decide(NULL, &view));
    view.running_growth++;
    assert_false(scls->decide(NULL, &view));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_least_seconds_of_all_splits),
        cmocka_unit_test(t_order_of_arrival_is_worth_nothing),
        cmocka_unit_test(t_examples),
        cmocka_unit_test(t_reserves_the_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

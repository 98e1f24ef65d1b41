/* t_ranking.c - the ranking against a plain sort, and what it costs in moves. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "engine/core/ranking.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

#define VOCAB 50000

static int by_logit(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit > y->logit || x->logit < y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Kinds of logits, those with awkward bits among them. */
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
            qsort(sorted, count, sizeof *sorted, by_logit);
            assert_int_equal(ranking_begin(&r, logit), count);
            for (uint32_t i = 0; i < count; i++)
                assert_int_equal(ranking_next(&r).id, sorted[i].id);
        }
        ranking_fini(&r);
        free(logit);
        free(sorted);
    }
}

/* All of a flat distribution, which a heap alone would take log2(VOCAB) moves a token for. */
static void t_all_of_it_costs_a_constant_a_token(void **state)
{
    (void)state;
    static float logit[VOCAB];
    struct rng rng;
    struct ranking r;
    rng_seed(&rng, 1);
    for (uint32_t i = 0; i < VOCAB; i++)
        logit[i] = (float)rng_f64(&rng);
    assert_int_equal(ranking_init(&r, VOCAB), 0);
    uint32_t count = ranking_begin(&r, logit);
    uint64_t built = r.moves;
    for (uint32_t i = 0; i < 20; i++)
        ranking_next(&r);
    assert_true(r.moves - built < 20 * 20); /* a few are popped, not sorted */
    for (uint32_t i = 20; i < count; i++)
        ranking_next(&r);
    print_message("%.2f moves a token\n", (double)r.moves / VOCAB);
    assert_true(r.moves <= (uint64_t)RANKING_MOVES_MAX * VOCAB);
    ranking_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_order_is_that_of_a_sort),
        cmocka_unit_test(t_all_of_it_costs_a_constant_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

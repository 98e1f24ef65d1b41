/* t_scale_scene.c - which pool stands for all, what of a fleet is there when, and that more is
 * never later: the middle of the row `work`, on views made by hand and by chance. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/scale/parts/lateness_model.h"
#include "tests/unit/unit.h"

#include <math.h>

#define SECOND ((int64_t)1000000)

static struct scale_pool a_pool(double price_h, uint32_t ready, uint32_t max)
{
    return (struct scale_pool){
        .max = max,
        .ready = ready,
        .available = true,
        .price_h = price_h,
        .lead_s = 100,
        .perf_known = true,
        .perf = { .step_s = 0.011, .prefill_token_s = 7e-5, .decode_seq_s = 0.00012 },
        .seqs_max = 256,
        .step_tokens = 2048
    };
}

static struct scale_view a_view(uint32_t pools)
{
    struct scale_view v = { .pool_count = pools, .ttft_slo_s = 1, .tpot_slo_s = 0.05 };
    for (uint32_t i = 0; i < pools; i++)
        v.pool[i] = a_pool(1 + i, 2, 8);
    v.demand = (struct scale_demand){ .present = true, .arrivals_s = 20 };
    return v;
}

/* The first two steps, and the third where there is a main pool. */
static void build(struct scene *s, const struct scale_view *v)
{
    static const struct scale_config config = SCALE_CONFIG_DEFAULT;
    static struct outlook outlook; /* nothing was counted: the routers' rate stands */
    struct pace pace = { 0 };
    struct lengths l = { 0 };
    lengths_add(&l, 1150, 200, 1);
    lengths_mean(&l);
    pace_observe(&pace, v, SECOND);
    *s = (struct scene){ 0 };
    scene_level(s, &config, v, &outlook);
    scene_pools(s, &l, &pace);
    if (s->main != SCENE_NO_POOL) scene_look(s, 1);
}

static void the_main_pool_is_the_cheapest_that_can_grow(void **state)
{
    (void)state;
    static const struct {
        uint32_t max[3]; /* of pools at 1, 2 and 3 dollars, two ready in each */
        bool known[3];
        uint32_t main;
        const char *why;
    } rows[] = {
        { { 8, 8, 8 }, { true, true, true }, 0, "all can grow" },
        { { 2, 8, 8 }, { true, true, true }, 1, "the cheapest is full" },
        { { 2, 2, 8 }, { true, true, true }, 2, "only the dearest can" },
        { { 2, 2, 2 }, { true, true, true }, 0, "none can: the cheapest" },
        { { 8, 8, 8 }, { false, false, true }, 2, "nobody knows how fast the others are" },
        { { 8, 8, 8 }, { false, false, false }, SCENE_NO_POOL, "none is known" },
    };
    static const uint32_t order[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 1, 2, 0 } };
    static struct scene s;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        for (size_t k = 0; k < COUNT_OF(order); k++) {
            struct scale_view v = a_view(3);
            for (uint32_t p = 0; p < 3; p++) {
                v.pool[p] = a_pool(1 + order[k][p], 2, rows[i].max[order[k][p]]);
                v.pool[p].perf_known = rows[i].known[order[k][p]];
            }
            build(&s, &v);
            uint32_t main = s.main == SCENE_NO_POOL ? SCENE_NO_POOL : order[k][s.main];
            if (main != rows[i].main) fail_msg("%s: %u in order %zu", rows[i].why, main, k);
        }
    }
}

/* A pool of twice the speed counts twice; one that breaks the promise only where all do. */
static void pools_are_counted_in_the_main_one(void **state)
{
    (void)state;
    static struct scene s;
    struct scale_view v = a_view(2);
    v.pool[1].perf =
        (struct perf_coef){ .step_s = 0.0055, .prefill_token_s = 3.5e-5, .decode_seq_s = 0.00006 };
    v.pool[1].price_h = 9;
    build(&s, &v);
    assert_int_equal(s.main, 0);
    assert_true(scene_worth(&s, 1) > 1.9 && scene_worth(&s, 1) < 2.6);
    assert_true(s.promised);
    assert_true(fabs(scene_have(&s) - 2 - 2 * scene_worth(&s, 1)) < 1e-5);
    v.pool[1].perf.step_s = 0.06; /* a step alone is longer than TPOT */
    build(&s, &v);
    assert_true(s.promised && s.rate[1] <= 0 && fabs(scene_have(&s) - 2) < 1e-9);
    v.pool[0].perf.step_s = 0.06;
    build(&s, &v);
    assert_true(!s.promised && s.rate[0] > 0 && s.rate[1] > 0);
}

/* What starts is there when its time has passed: those that are shown by their own, the rest by the
 * mean of the pool, and what comes behind the look not at all. */
static void what_starts_is_there_in_its_time(void **state)
{
    (void)state;
    static struct scene s;
    struct scale_view v = a_view(1);
    const struct scale_instance in[] = { { .id = 1, .left_s = 12 }, { .id = 2, .left_s = 5000 } };
    v.pool[0].starting = 3;
    v.pool[0].left_s = 60;
    v.instance = in;
    v.instance_count = 2;
    build(&s, &v);
    static const double at[] = { 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4 };
    for (size_t k = 0; k < COUNT_OF(at); k++)
        assert_true(fabs((double)s.existing[k] - at[k]) < 1e-5);
    assert_int_equal(s.lead_steps, 20);
    assert_true(fabs(scene_have(&s) - 4) < 1e-5);
}

/* Whatever waits, starts and comes: with more instances no more are late, shares are shares, and
 * what a fleet loses against itself is nothing. */
static void more_is_never_later(void **state)
{
    (void)state;
    static struct scene s;
    static const double lead_s[] = { 0, 10, 100, 900, 1e9 };
    struct rng rng;
    rng_seed(&rng, 8);
    for (uint32_t round = 0; round < 60; round++) {
        struct scale_view v = a_view(1);
        v.pool[0].ready = (uint32_t)rng_below(&rng, 9);
        v.pool[0].starting = (uint32_t)rng_below(&rng, 3);
        v.pool[0].lead_s = lead_s[rng_below(&rng, COUNT_OF(lead_s))];
        v.demand.arrivals_s = rng_f64(&rng) * 60;
        v.demand.in_flight = (uint32_t)rng_below(&rng, 900);
        v.demand.waiting = rng_below(&rng, 2) ? (uint32_t)rng_below(&rng, 400) : 0;
        build(&s, &v);
        assert_true(s.steps <= FLUID_STEPS_MAX);
        for (int from_now = 0; from_now < 2; from_now++) {
            double before = 1;
            for (double n = 0; n < 24; n += 1.5) {
                double late = scene_late(&s, n, from_now);
                if (!(late >= 0 && late <= before + 1e-4))
                    fail_msg("round %u: %g late with %g, %g with fewer", round, late, n, before);
                before = late;
            }
        }
        assert_true(scene_worst_loss(&s, 4, 4) <= 0);
        assert_true(scene_worst_loss(&s, 2, 9) >= 0);
        double now = scene_late_now(&s, 1);
        assert_true(now >= 0 && now <= 1 && scene_late_now(&s, 2) >= now);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_main_pool_is_the_cheapest_that_can_grow),
        cmocka_unit_test(pools_are_counted_in_the_main_one),
        cmocka_unit_test(what_starts_is_there_in_its_time),
        cmocka_unit_test(more_is_never_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

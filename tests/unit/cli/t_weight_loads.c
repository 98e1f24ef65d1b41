/* t_weight_loads.c - what `muster plan load` replays: queues, memories and disks of machines, and what
 * ServerlessLLM's choice is worth. */
#include "base/core/bits.h"
#include "cli/plan/weight_loads.h"
#include "policies/load/load.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define SEEDS 5

static struct weight_loads_work usual(double rate_s)
{
    return (struct weight_loads_work){ .model_bytes = 16e9,
                                       .bytes_s = { 20e9, 5e9, 1e9 },
                                       .start_s = 1,
                                       .machines = 8,
                                       .models = 40,
                                       .in_memory = 3,
                                       .on_disk = 12,
                                       .rate_s = rate_s,
                                       .skew = 2.5,
                                       .loads = 4000 };
}

static struct weight_loads_result run(const struct weight_loads_work *w,
                                      const struct load_policy *row, uint64_t seed)
{
    struct weight_loads_result r;
    assert_int_equal(weight_loads_run(w, row, seed, &r, NULL), 0);
    return r;
}

/* One model on one machine: the first comes from the store, all others from memory. */
static void what_was_loaded_lies_in_memory(void **state)
{
    (void)state;
    struct weight_loads_work w = usual(0.001);
    w.machines = w.models = 1;
    w.loads = 100;
    for (uint32_t i = 0; i < load_count; i++) {
        struct weight_loads_result r = run(&w, load_table[i], 1);
        assert_true(fabs(r.share[LOAD_MEMORY] - 0.99) < 1e-9);
        assert_true(fabs(r.share[LOAD_STORE] - 0.01) < 1e-9);
        assert_true(fabs(r.start_s.p50 - 1.8) < 1e-6 && fabs(r.start_s.mean - 1.952) < 1e-6);
    }
    w.in_memory = 0;
    assert_true(fabs(run(&w, &load_least_loaded, 1).share[LOAD_DISK] - 0.99) < 1e-9);
    w.on_disk = 0;
    assert_true(fabs(run(&w, &load_least_loaded, 1).share[LOAD_STORE] - 1) < 1e-9);
}

/* Loads of one machine wait for each other: an M/D/1 queue has the mean of its formula. */
static void weight_loads_of_a_machine_wait(void **state)
{
    (void)state;
    struct weight_loads_work w = usual(0.9 / 0.8);
    w.machines = w.models = 1;
    w.loads = 100000;
    double own_s = 0.8, rho = 0.9, wait_s = own_s * rho / (2 * (1 - rho)), sum = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        sum += run(&w, &load_serverlessllm, seed).start_s.mean / SEEDS;
    print_message("M/D/1 at 0.9: %.2f s, by formula %.2f s\n", sum, 1 + own_s + wait_s);
    assert_true(fabs(sum / (1 + own_s + wait_s) - 1) < 0.05);
}

static void ready_first_starts_sooner(void **state)
{
    (void)state;
    static const double rates_s[] = { 0.2, 0.5, 1.0 };
    for (size_t r = 0; r < COUNT_OF(rates_s); r++) {
        struct weight_loads_work w = usual(rates_s[r]);
        double mean_s[3][SEEDS];
        static const struct load_policy *const row[3] = { &load_serverlessllm, &load_least_loaded,
                                                          &load_nearest_tier };
        for (uint32_t seed = 0; seed < SEEDS; seed++)
            for (int i = 0; i < 3; i++)
                mean_s[i][seed] = run(&w, row[i], seed + 1).start_s.mean;
        struct stats_mean least = stats_paired(mean_s[1], mean_s[0], SEEDS);
        struct stats_mean nearest = stats_paired(mean_s[2], mean_s[0], SEEDS);
        double ours = stats_mean(mean_s[0], SEEDS).mean;
        print_message("%.1f loads a second: ready in %.2f s; least_loaded later by %.2f +- %.2f, "
                      "nearest_tier by %.2f +- %.2f\n",
                      rates_s[r], ours, least.mean, least.half, nearest.mean, nearest.half);
        assert_true(least.mean - least.half > ours);
        assert_true(nearest.mean > 0.02 * ours);
    }
}

static void equal_seeds_have_equal_answers(void **state)
{
    (void)state;
    struct weight_loads_work w = usual(0.5);
    for (uint32_t i = 0; i < load_count; i++) {
        struct weight_loads_result a = run(&w, load_table[i], 3), b = run(&w, load_table[i], 3);
        assert_memory_equal(&a, &b, sizeof a);
        b = run(&w, load_table[i], 4);
        assert_memory_not_equal(&a, &b, sizeof a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_loaded_lies_in_memory),
        cmocka_unit_test(weight_loads_of_a_machine_wait),
        cmocka_unit_test(ready_first_starts_sooner),
        cmocka_unit_test(equal_seeds_have_equal_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

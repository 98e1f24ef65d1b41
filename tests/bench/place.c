/* place.c - measures how long planners take: the exact solver at 4 types x 64 slices, and each policy
 * that lays 80 layers on 24 devices. Times are this thread's CPU time, without other processes. */
#include "base/core/bits.h"
#include "policies/layers/layers.h"
#include "tests/unit/policies/place_cases.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define RUNS 600u /* half of them of each kind */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void time_solver(void)
{
    static struct solver memory;
    double worst[2] = { 0 }, sum[2] = { 0 };
    uint32_t proven[2] = { 0 }, below[2] = { 0 }, pivots[2] = { 0 };
    struct rng rng;
    rng_seed(&rng, 64);
    for (uint32_t i = 0; i < RUNS; i++) {
        struct solver_problem p;
        struct solver_answer r;
        place_case_big(&rng, i, &p);
        double from = seconds();
        solver_run(&p, SOLVER_NODES_MAX, &memory, &r);
        double took = seconds() - from;
        bool distinct = p.groups == 64;
        worst[distinct] = fmax(worst[distinct], took);
        sum[distinct] += took;
        below[distinct] += took < 1;
        proven[distinct] += r.optimal;
        pivots[distinct] = max_u32(pivots[distinct], r.pivots);
    }
    for (int d = 0; d < 2; d++)
        printf("4 types x 64 slices, %s: mean %.1f ms, worst %.1f ms (at most %u pivots); of %u "
               "%u below a second, %u proven\n",
               d ? "all different" : "16 buckets of 4", 2e3 * sum[d] / RUNS, 1e3 * worst[d],
               pivots[d], RUNS / 2, below[d], proven[d]);
}

static void time_layouts(void)
{
    static struct layers_memory work;
    const struct layers_policy *rows[] = { &layers_gpipe, &layers_pipedream, &layers_hexgen,
                                           &layers_helix };
    struct layers_problem p;
    place_case_helix(&p);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct layers_layout r;
        struct rng rng;
        rng_seed(&rng, 1);
        double from = seconds();
        rows[i]->lay(&p, &work, &rng, &r);
        printf("%-10s %.0f ms for 24 devices\n", rows[i]->name, 1e3 * (seconds() - from));
    }
}

int main(void)
{
    time_solver();
    time_layouts();
    return 0;
}

/* single_type.c - finds the one type that serves the whole workload at least cost.
 *
 * It is the simple alternative to every mix: count = ceil(sum of loads), cheapest type. */
#include "policies/mix/mix.h"

#include <math.h>

#define ROUND 1e-9

static void choose(const struct mix_problem *problem, struct mix_memory *memory,
                   struct mix_verdict *ret)
{
    mix_profile(problem, memory);
    *ret = (struct mix_verdict){ .optimal = true,
                                 .why = "no type alone, of the instances that can be "
                                        "asked for, serves all the work in time" };
    uint32_t best = UINT32_MAX;
    for (uint32_t t = 0; t < problem->type_count; t++) {
        double load = 0;
        for (uint32_t b = 0; b < problem->bucket_count; b++)
            if (problem->bucket[b].rate_s > 0)
                load += memory->rate[b][t] > 0 ? problem->bucket[b].rate_s / memory->rate[b][t]
                                               : (double)INFINITY;
        double need = ceil(load - ROUND);
        if (!(need <= problem->type[t].max)) continue;
        double cost = need * problem->type[t].price_h;
        if (ret->found && cost >= ret->cost_h) continue;
        ret->found = true;
        ret->cost_h = cost;
        if (best != UINT32_MAX) ret->count[best] = 0;
        ret->count[t] = (uint32_t)need;
        best = t;
    }
    if (!ret->found) return;
    ret->served = 1;
    ret->why = "the cheapest type that does it alone";
    for (uint32_t b = 0; b < problem->bucket_count; b++)
        ret->share[b][best] = 1;
}

const struct mix_policy mix_single_type = {
    .name = "single_type",
    .about = "the one type that serves all of it at least cost",
    .source = "baseline of mixes",
    .choose = choose,
};

/* place_single_type.c - the one type that serves all of the workload at least cost.
 *
 * The simple alternative to every mix: count = ceil(sum of loads), cheapest type. */
#include "policies/place_mix.h"
#include "policies/place_rows.h"

#include <math.h>

#define ROUND 1e-9

static void mix(const struct place_mix *problem, struct place_mix_work *work,
                struct place_mix_verdict *ret)
{
    place_mix_profile(problem, work);
    *ret = (struct place_mix_verdict){ .optimal = true,
                                       .why = "no type alone, of the instances that can be "
                                              "asked for, serves all the work in time" };
    uint32_t best = PLACE_NONE;
    for (uint32_t t = 0; t < problem->type_count; t++) {
        double load = 0;
        for (uint32_t b = 0; b < problem->bucket_count; b++)
            if (problem->bucket[b].rate_s > 0)
                load += work->rate[b][t] > 0 ? problem->bucket[b].rate_s / work->rate[b][t]
                                             : (double)INFINITY;
        double need = ceil(load - ROUND);
        if (!(need <= problem->type[t].max)) continue;
        double cost = need * problem->type[t].price_h;
        if (ret->found && cost >= ret->cost_h) continue;
        ret->found = true;
        ret->cost_h = cost;
        if (best != PLACE_NONE) ret->count[best] = 0;
        ret->count[t] = (uint32_t)need;
        best = t;
    }
    if (!ret->found) return;
    ret->served = 1;
    ret->why = "the cheapest type that does it alone";
    for (uint32_t b = 0; b < problem->bucket_count; b++)
        ret->share[b][best] = 1;
}

const struct place_policy place_single_type = {
    .name = "single_type",
    .about = "planner: the one type that serves all of it at least cost",
    .source = "baseline of mixes",
    .mix = mix,
};

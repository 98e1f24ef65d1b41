/* place_melange.c - the cheapest mix of types for a workload in buckets of lengths, exactly.
 *
 *     load(bucket, type) = rate / (SLICES * profiled highest rate of the type under the promise)
 *     min sum price y   s.t.  each slice on one type,  sum of loads on a type <= y
 *
 * Melange (arXiv 2404.14527): buckets of (prompt, output) lengths, slice factor 4. Its integer
 * programme goes to a library there; here to our own exact solver, which also says when the node
 * limit ended the search. The profile comes from the evaluator in place of measurements. */
#include "policies/place_mix.h"
#include "policies/place_rows.h"

#define SLICES 4

static void mix(const struct place_mix *problem, struct place_mix_work *work,
                struct place_mix_verdict *ret)
{
    double fill[PLACE_TYPES_MAX];
    for (uint32_t t = 0; t < problem->type_count; t++)
        fill[t] = 1;
    place_mix_profile(problem, work);
    place_mix_problem(problem, SLICES, 1, fill, work);
    solver_run(&work->problem, problem->nodes_max ? problem->nodes_max : SOLVER_NODES_MAX,
               &work->solver, &work->answer);
    place_mix_verdict_of(problem, work, ret);
}

const struct place_policy place_melange = {
    .name = "melange",
    .about = "planner: the cheapest mix of types for a workload in length buckets, exactly",
    .source = "Melange (arXiv 2404.14527), own solver",
    .mix = mix,
};

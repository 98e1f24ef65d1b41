/* melange.c - finds the exact cheapest mix of types for a workload in buckets of lengths.
 *
 *     load(bucket, type) = rate / (SLICES * profiled highest rate of the type under the SLO)
 *     min sum price y   s.t.  each slice on one type,  sum of loads on a type <= y
 *
 * Melange (arXiv 2404.14527) has buckets of (prompt, output) lengths and a slice factor of 4, and
 * solves the integer programme with a library; here our own exact solver does, which also reports
 * when the node limit ended the search. The profile comes from the evaluator in place of
 * measurements. */
#include "policies/mix/mix.h"

#define SLICES 4

static void choose(const struct mix_problem *problem, struct mix_memory *memory,
                   struct mix_verdict *ret)
{
    double fill[MIX_TYPES_MAX];
    for (uint32_t t = 0; t < problem->type_count; t++)
        fill[t] = 1;
    mix_profile(problem, memory);
    mix_program(problem, SLICES, 1, fill, memory);
    solver_run(&memory->problem, problem->nodes_max ? problem->nodes_max : SOLVER_NODES_MAX,
               &memory->solver, &memory->answer);
    mix_verdict_of(problem, memory, ret);
}

const struct mix_policy mix_melange = {
    .name = "melange",
    .about = "the cheapest mix of types for a workload in length buckets, exactly",
    .source = "Melange (arXiv 2404.14527), own solver",
    .choose = choose,
};

/* fit.h - fits slices into a given number of instances by local search.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure
 *
 * The search is fast and often succeeds, but its failure proves nothing: the solver uses it to find
 * solutions early, and proves by its relaxation.
 */
#pragma once
#include "policies/mix/solver.h"

#define FIT_SLACK 1e-7 /* a type may be overfull by this much: loads are estimates */

/* Moves slices of `on` (a complete assignment) until no type holds more than room[t]: one slice at
 * a time while that helps, then, with `pairs`, two. Returns false if neither helps any more. */
bool fit_slices(const struct solver_problem *p, const uint32_t room[SOLVER_TYPES_MAX], bool pairs,
                uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX]);

/* fit.h - fit slices into a given number of instances by local search.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure
 *
 * Fast and often right, never a proof: the solver uses it to find solutions early and proves with
 * its relaxation.
 */
#pragma once
#include "policies/mix/solver.h"

#define FIT_SLACK 1e-7 /* a type may be overfull by this much: loads are measured, not exact */

/* Moves slices of `on` (a whole assignment) until no type holds more than room[t]. One slice at a
 * time while that helps, then (`pairs`) two; false when neither does. */
bool fit_slices(const struct solver_problem *p, const uint32_t room[SOLVER_TYPES_MAX], bool pairs,
                uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX]);

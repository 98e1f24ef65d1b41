/* prove.h - whether given numbers of instances suffice, and solutions that were found.
 *
 * Layer:   policies (base/core, libm), for place_solver.c
 * Threads: pure; all memory is the caller's struct solver
 */
#pragma once
#include "policies/mix/solver.h"

/* PROVE_FITS: they do, and the solution is taken. PROVE_NEVER: they do not. PROVE_OPEN: `nodes` did
 * not tell. */
enum prove_answer { PROVE_FITS, PROVE_NEVER, PROVE_OPEN };

/* At the counts `point`; leaves all bounds as they were. */
enum prove_answer prove_point(struct solver *s, const double point[SOLVER_TYPES_MAX],
                              uint32_t nodes);

/* Looks for a better solution with the relaxation's instances, rounded up; true when there is one.
 * `pairs`: by double shifts too. */
bool prove_try(struct solver *s, bool pairs);

/* Takes the solution if it is better than the best. */
void prove_take(struct solver *s, uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX]);

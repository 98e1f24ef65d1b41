/* prove.h - whether given numbers of instances suffice, solutions that were found, and the linear
 * relaxation of the solver's problem, solved again after each branch.
 *
 * Layer:   policies (base/core, libm), for solver.c
 * Threads: pure; all memory is the caller's struct solver
 *
 * Variables: x[g][t] slices of group g on type t, y[t] instances, s[t] unused load. Rows:
 *
 *     sum_t x[g][t] = count[g]                           one a group
 *     sum_g load[g][t] x[g][t] - y[t] + s[t] = 0         one a type
 */
#pragma once
#include "policies/mix/solver.h"

#define RELAX_WHOLE 1e-6       /* nearer to a whole number than this is one */
#define RELAX_BOUND_SLACK 1e-7 /* relative: relaxations are sums of floats */

static inline uint32_t relax_x(const struct solver *s, uint32_t g, uint32_t t)
{
    return g * s->p->types + t;
}

static inline uint32_t relax_y(const struct solver *s, uint32_t t)
{
    return s->p->groups * s->p->types + t;
}

/* The type that a slice of the group costs least on; UINT32_MAX when it lies on none. */
uint32_t relax_cheapest_type(const struct solver_problem *p, uint32_t g);

/* Bounds of all variables as the problem has them, and the table of the first basis. */
void relax_init(struct solver *s);

/* What a solution may cost at most to be better than the best found. */
double relax_better(const struct solver *s);

/* Solves within the bounds: s->x. False when no better solution lies there that costs no more than
 * s->cap, and when a limit is reached. Counts a node. */
bool relax_enter(struct solver *s, double *ret_cost);

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

/* prove.h - decides whether given numbers of instances suffice, by the linear relaxation of the
 * solver's problem and by search; records solutions.
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

#define RELAX_WHOLE 1e-6       /* a value this near to a whole number counts as whole */
#define RELAX_BOUND_SLACK 1e-7 /* relative: relaxations are sums of floats */

static inline uint32_t relax_x(const struct solver *s, uint32_t g, uint32_t t)
{
    return g * s->p->types + t;
}

static inline uint32_t relax_y(const struct solver *s, uint32_t t)
{
    return s->p->groups * s->p->types + t;
}

/* Returns the type on which a slice of the group costs least; UINT32_MAX if it can lie on none. */
uint32_t relax_cheapest_type(const struct solver_problem *p, uint32_t g);

/* Sets the bounds of all variables from the problem, and the table of the first basis. */
void relax_init(struct solver *s);

/* Returns the most that a solution may cost to be better than the best found. */
double relax_better(const struct solver *s);

/* Solves the relaxation within the bounds into s->x and counts a node. Returns false if no better
 * solution at a cost of at most s->cap lies there, or if a limit is reached. */
bool relax_enter(struct solver *s, double *ret_cost);

/* Result of a proof. PROVE_FITS: the counts suffice, and the solution is taken. PROVE_NEVER: they
 * do not. PROVE_OPEN: `nodes` nodes did not decide it. */
enum prove_answer { PROVE_FITS, PROVE_NEVER, PROVE_OPEN };

/* Decides whether the counts `point` suffice; leaves all bounds as they were. */
enum prove_answer prove_point(struct solver *s, const double point[SOLVER_TYPES_MAX],
                              uint32_t nodes);

/* Looks for a better solution with the relaxation's counts rounded up; returns true if it finds
 * one. `pairs`: also by double shifts (fit.h). */
bool prove_try(struct solver *s, bool pairs);

/* Takes the solution if it is better than the best found. */
void prove_take(struct solver *s, uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX]);

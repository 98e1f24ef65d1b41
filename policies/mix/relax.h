/* relax.h - the linear relaxation of the solver's problem, solved again after each branch.
 *
 * Layer:   policies (base/core, libm), for place_solver.c and place_prove.c
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

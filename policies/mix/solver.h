/* solver.h - finds the exact cheapest whole numbers of instances for slices of work.
 *
 *     min  sum price[t] y[t]
 *     s.t. every slice lies on one type;  sum of the loads on t <= y[t] <= max[t];  y whole
 *
 * Slices of equal loads form a group and are interchangeable: x[g][t] of them lie on type t. The
 * solver branches and bounds over counts, in rounds with a rising ceiling on cost. The bound is the
 * linear relaxation, solved again after each branch by the dual simplex method with bounded
 * variables from its last basis (prove.h). Where counts are whole and only the slices are not,
 * relaxations take turns with a search over slices (pack.h). The start (each group on its cheapest
 * type, y fractional) needs no first phase. Where all prices are multiples of one amount, a
 * solution must be cheaper by that amount to be better.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure; all memory is the caller's struct solver
 */
#pragma once
#include "policies/mix/pack.h"

#include <stdbool.h>
#include <stdint.h>

#define SOLVER_TYPES_MAX 16
#define SOLVER_GROUPS_MAX 64
#define SOLVER_COUNT_MAX 1000  /* instances of one type */
#define SOLVER_NODES_MAX 36000 /* default limit: below a second at 4 x 64 */
#define SOLVER_NEVER_MAX 1024
#define SOLVER_LATER_MAX 256
#define SOLVER_ROWS_MAX (SOLVER_GROUPS_MAX + SOLVER_TYPES_MAX)
#define SOLVER_COLS_MAX (SOLVER_GROUPS_MAX * (SOLVER_TYPES_MAX - 1) + SOLVER_TYPES_MAX)
#define SOLVER_VARS_MAX (SOLVER_ROWS_MAX + SOLVER_COLS_MAX)

struct solver_problem {
    uint32_t types, groups;
    double price[SOLVER_TYPES_MAX]; /* > 0 */
    uint32_t max[SOLVER_TYPES_MAX]; /* at most SOLVER_COUNT_MAX */
    uint32_t count[SOLVER_GROUPS_MAX];
    double load[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX]; /* of a slice; INFINITY: not on this type */
};

struct solver_answer {
    bool found;
    bool optimal; /* no cheaper one exists (without `found`: none exists at all) */
    uint32_t count[SOLVER_TYPES_MAX];
    uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX]; /* slices of the group on the type */
    double cost;
    double bound; /* no solution is cheaper than this */
    uint32_t nodes;
    uint32_t pivots; /* of all relaxations; they take most of the time */
};

/* Work memory; its initial contents do not matter. */
struct solver {
    const struct solver_problem *p;
    struct solver_answer *best;
    uint32_t rows, cols;
    double a[SOLVER_ROWS_MAX * SOLVER_COLS_MAX]; /* basic + a * nonbasic = rhs; row by row */
    double rhs[SOLVER_ROWS_MAX], value[SOLVER_ROWS_MAX];
    double gain[SOLVER_COLS_MAX]; /* reduced costs */
    double at[SOLVER_COLS_MAX];   /* values of nonbasic variables */
    uint32_t basic[SOLVER_ROWS_MAX], nonbasic[SOLVER_COLS_MAX];
    bool at_high[SOLVER_COLS_MAX];
    double low[SOLVER_VARS_MAX], high[SOLVER_VARS_MAX];
    double x[SOLVER_VARS_MAX]; /* values of all variables after a relaxation */
    double step;               /* by which a better solution must be cheaper */
    uint32_t nodes_max;
    uint32_t pivots; /* since the table was built */
    double cap;      /* ceiling on the cost of solutions in this round */
    uint16_t never[SOLVER_NEVER_MAX][SOLVER_TYPES_MAX]; /* counts proven too few */
    uint16_t later[SOLVER_LATER_MAX][SOLVER_TYPES_MAX]; /* counts left for the end of the round */
    uint32_t nevers, laters;
    struct pack pack;
    bool cut_short; /* a limit was reached: nothing is proven */
};

/* Solves the problem exactly. If nodes_max nodes do not suffice (16 pivots count as one more node),
 * ret is the best solution found, with optimal false. */
void solver_run(const struct solver_problem *problem, uint32_t nodes_max, struct solver *memory,
                struct solver_answer *ret);

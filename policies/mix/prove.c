/* prove.c - decides whether the slices fit fixed counts, and solves the linear relaxation.
 *
 * Relaxations decide quickly where there is much room or far too little, a search over slices
 * (pack.h) where the instances are almost full. They take turns that grow, so that the better one
 * soon gets most of the work. Relaxations branch on the fractional slice that costs most, because
 * its type determines most of the rest. Whole solutions are checked with the loads themselves,
 * never with the table.
 *
 * The relaxation is a dual simplex method with bounded variables that starts from its last basis.
 *
 * Every relaxation differs from the one before by bounds only, so the basis stays dual feasible: a
 * nonbasic variable lies at its low bound when its reduced cost is positive and at its high bound
 * when it is negative. One table is therefore enough for the whole search; it is built anew after
 * PIVOTS_MAX pivots, before rounding errors add up. */

#include "policies/mix/prove.h"

#include "base/core/bits.h"
#include "policies/mix/fit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define FEASIBLE 1e-7  /* a bound may be missed by so much */
#define PIVOT_MIN 1e-7 /* smaller elements are rounding errors */
#define NUDGE 1e-9
#define PIVOTS_MAX 200
#define PIVOTS_A_NODE 16 /* they take as long as the rest of a node */
#define TURNS_MAX 5000   /* pivots of one relaxation */

static uint32_t var_s(const struct solver *s, uint32_t t)
{
    return (s->p->groups + 1) * s->p->types + t;
}

static double *row_of(struct solver *s, uint32_t row)
{
    return s->a + (size_t)row * s->cols;
}

static double load_of(const struct solver_problem *p, uint32_t g, uint32_t t)
{
    return isfinite(p->load[g][t]) ? p->load[g][t] : 0; /* x is fixed at 0 then */
}

uint32_t relax_cheapest_type(const struct solver_problem *p, uint32_t g)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t t = 0; t < p->types; t++) {
        if (!isfinite(p->load[g][t]) || p->max[t] == 0) continue;
        if (best == UINT32_MAX || p->price[t] * p->load[g][t] < p->price[best] * p->load[g][best])
            best = t;
    }
    return best;
}

/* Returns a small cost of each column's own: with equal reduced costs the method could cycle. */
static double nudge(uint32_t col)
{
    return NUDGE * (1 + (double)(col * 2654435761u >> 16) / 65536);
}

/* Builds the table of the first basis: x[g][cheapest] and all y. */
static void build(struct solver *s)
{
    const struct solver_problem *p = s->p;
    uint32_t col = 0;
    for (uint32_t r = 0; r < s->rows; r++) {
        memset(row_of(s, r), 0, s->cols * sizeof *s->a);
        s->rhs[r] = 0;
    }
    for (uint32_t t = 0; t < p->types; t++)
        s->basic[p->groups + t] = relax_y(s, t);
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t k = relax_cheapest_type(p, g);
        if (k == UINT32_MAX) k = 0; /* an empty group */
        double *row_k = row_of(s, p->groups + k);
        s->basic[g] = relax_x(s, g, k);
        s->rhs[g] = p->count[g];
        s->rhs[p->groups + k] += load_of(p, g, k) * p->count[g];
        for (uint32_t t = 0; t < p->types; t++) {
            if (t == k) continue;
            s->nonbasic[col] = relax_x(s, g, t);
            row_of(s, g)[col] = 1;
            row_k[col] += load_of(p, g, k);
            row_of(s, p->groups + t)[col] -= load_of(p, g, t);
            s->gain[col] = p->price[t] * load_of(p, g, t) - p->price[k] * load_of(p, g, k);
            s->gain[col] += nudge(col);
            col++;
        }
    }
    for (uint32_t t = 0; t < p->types; t++) {
        s->nonbasic[col] = var_s(s, t);
        row_of(s, p->groups + t)[col] = -1;
        s->gain[col] = p->price[t] + nudge(col);
        col++;
    }
    s->pivots = 0;
}

static double nonbasic_value(const struct solver *s, uint32_t col)
{
    uint32_t v = s->nonbasic[col];
    return s->at_high[col] ? s->high[v] : s->low[v];
}

/* Puts nonbasic variables at the bounds that their reduced costs require, and computes all values
 * anew. Nearly all nonbasic variables are at zero and add nothing. */
static void settle(struct solver *s)
{
    uint32_t moved[SOLVER_COLS_MAX], count = 0;
    if (s->pivots > PIVOTS_MAX) build(s);
    for (uint32_t c = 0; c < s->cols; c++) {
        s->at_high[c] = s->gain[c] < 0 && isfinite(s->high[s->nonbasic[c]]);
        s->at[c] = nonbasic_value(s, c);
        if (s->at[c] < 0 || s->at[c] > 0) moved[count++] = c;
    }
    for (uint32_t r = 0; r < s->rows; r++) {
        const double *row = row_of(s, r);
        double value = s->rhs[r];
        for (uint32_t k = 0; k < count; k++)
            value -= row[moved[k]] * s->at[moved[k]];
        s->value[r] = value;
    }
}

static double objective(const struct solver *s)
{
    double z = 0;
    uint32_t y0 = relax_y(s, 0);
    for (uint32_t r = 0; r < s->rows; r++)
        if (s->basic[r] >= y0 && s->basic[r] < y0 + s->p->types)
            z += s->p->price[s->basic[r] - y0] * s->value[r];
    for (uint32_t c = 0; c < s->cols; c++)
        if (s->nonbasic[c] >= y0 && s->nonbasic[c] < y0 + s->p->types)
            z += s->p->price[s->nonbasic[c] - y0] * nonbasic_value(s, c);
    return z;
}

/* Returns the row with the variable that misses its bounds most; s->rows if none does. */
static uint32_t leaving_row(const struct solver *s, bool *ret_high)
{
    uint32_t row = s->rows;
    double most = FEASIBLE;
    for (uint32_t r = 0; r < s->rows; r++) {
        double under = s->low[s->basic[r]] - s->value[r];
        double over = s->value[r] - s->high[s->basic[r]];
        if (fmax(under, over) <= most) continue;
        most = fmax(under, over);
        *ret_high = over > under;
        row = r;
    }
    return row;
}

/* Returns the column with the least ratio of reduced cost to pivot; s->cols if none can help. */
static uint32_t entering_col(struct solver *s, uint32_t row, bool to_high)
{
    uint32_t col = s->cols;
    double least = DBL_MAX, size = 0;
    const double *line = row_of(s, row);
    for (uint32_t c = 0; c < s->cols; c++) {
        double a = to_high ? line[c] : -line[c];
        if (s->at_high[c]) a = -a;
        if (a < PIVOT_MIN || s->low[s->nonbasic[c]] >= s->high[s->nonbasic[c]]) continue;
        double ratio = fabs(s->gain[c]) / a;
        if (ratio > least + DBL_EPSILON || (ratio >= least - DBL_EPSILON && a < size)) continue;
        least = ratio;
        size = a;
        col = c;
    }
    return col;
}

static void subtract(double *restrict from, double times, const double *restrict what,
                     uint32_t count)
{
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4) { /* in fours, so that the compiler vectorises */
        from[i] -= times * what[i];
        from[i + 1] -= times * what[i + 1];
        from[i + 2] -= times * what[i + 2];
        from[i + 3] -= times * what[i + 3];
    }
    for (; i < count; i++)
        from[i] -= times * what[i];
}

static void pivot(struct solver *s, uint32_t row, uint32_t col, bool to_high)
{
    double bound = to_high ? s->high[s->basic[row]] : s->low[s->basic[row]];
    double *line = row_of(s, row);
    double p = line[col];
    double move = (s->value[row] - bound) / p;
    double entered = nonbasic_value(s, col) + move;
    for (uint32_t c = 0; c < s->cols; c++)
        line[c] /= p;
    line[col] = 1 / p;
    s->rhs[row] /= p;
    for (uint32_t r = 0; r < s->rows; r++) {
        double *other = row_of(s, r);
        double f = other[col];
        if (r == row || fabs(f) < DBL_EPSILON) continue;
        s->value[r] -= f * move;
        subtract(other, f, line, s->cols);
        other[col] = -f / p;
        s->rhs[r] -= f * s->rhs[row];
    }
    double f = s->gain[col];
    subtract(s->gain, f, line, s->cols);
    s->gain[col] = -f / p;
    uint32_t left = s->basic[row];
    s->basic[row] = s->nonbasic[col];
    s->nonbasic[col] = left;
    s->at_high[col] = to_high;
    s->value[row] = entered;
    s->pivots++;
    s->best->pivots++;
}

double relax_better(const struct solver *s)
{
    if (!s->best->found) return DBL_MAX;
    return s->best->cost - s->step + RELAX_BOUND_SLACK * s->best->cost;
}

/* Solves the relaxation; returns false if no solution below the cutoff lies within the bounds. */
static bool solve(struct solver *s, double *ret_cost)
{
    settle(s);
    for (uint32_t turn = 0;; turn++) {
        double cost = objective(s);
        if (cost > fmin(s->cap, relax_better(s))) return false; /* cost only rises */
        bool to_high = false;
        uint32_t row = leaving_row(s, &to_high);
        if (row == s->rows) {
            *ret_cost = cost;
            break;
        }
        uint32_t col = entering_col(s, row, to_high);
        if (col == s->cols) return false;
        if (turn == TURNS_MAX) {
            s->cut_short = true;
            return false;
        }
        pivot(s, row, col, to_high);
    }
    for (uint32_t r = 0; r < s->rows; r++)
        s->x[s->basic[r]] = s->value[r];
    for (uint32_t c = 0; c < s->cols; c++)
        s->x[s->nonbasic[c]] = nonbasic_value(s, c);
    return true;
}

bool relax_enter(struct solver *s, double *ret_cost)
{
    if (s->best->nodes + s->best->pivots / PIVOTS_A_NODE >= s->nodes_max) s->cut_short = true;
    if (s->cut_short) return false;
    s->best->nodes++;
    return solve(s, ret_cost);
}

void relax_init(struct solver *s)
{
    const struct solver_problem *p = s->p;
    s->rows = p->groups + p->types;
    s->cols = p->groups * (p->types - 1) + p->types;
    for (uint32_t g = 0; g < p->groups; g++)
        for (uint32_t t = 0; t < p->types; t++) {
            s->low[relax_x(s, g, t)] = 0;
            s->high[relax_x(s, g, t)] = isfinite(p->load[g][t]) ? p->count[g] : 0;
        }
    for (uint32_t t = 0; t < p->types; t++) {
        s->low[relax_y(s, t)] = s->low[var_s(s, t)] = 0;
        s->high[relax_y(s, t)] = p->max[t];
        s->high[var_s(s, t)] = (double)INFINITY;
    }
    build(s);
}

#define FIRST_NODES 64 /* of relaxations, before the search over slices has a turn */
#define TURN_GROWS 16  /* and from turn to turn */
#define PAIRS_EVERY 32 /* nodes: a search in pairs costs as much as ten of them */
#define HALF_WHOLE 0.1 /* a slice that is almost whole weighs this part of its cost */

void prove_take(struct solver *s, uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX])
{
    const struct solver_problem *p = s->p;
    uint32_t count[SOLVER_TYPES_MAX] = { 0 };
    double cost = 0;
    for (uint32_t t = 0; t < p->types; t++) {
        double load = 0;
        for (uint32_t g = 0; g < p->groups; g++)
            if (on[g][t]) load += on[g][t] * p->load[g][t];
        double need = ceil(load - FIT_SLACK);
        if (!(need <= p->max[t])) return;
        count[t] = (uint32_t)fmax(need, 0);
        cost += count[t] * p->price[t];
    }
    if (s->best->found && cost >= s->best->cost) return;
    s->best->found = true;
    s->best->cost = cost;
    memcpy(s->best->count, count, sizeof count);
    memcpy(s->best->on, on, sizeof s->best->on);
}

/* Rounds the relaxation's slices to whole ones: the largest fractions are rounded up. */
static void round_slices(const struct solver *s, uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX])
{
    const struct solver_problem *p = s->p;
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t left = p->count[g];
        double part[SOLVER_TYPES_MAX];
        for (uint32_t t = 0; t < p->types; t++) {
            double x = fmax(s->x[relax_x(s, g, t)], 0);
            on[g][t] = (uint16_t)min_u32((uint32_t)floor(x + RELAX_WHOLE), left);
            left -= on[g][t];
            part[t] = isfinite(p->load[g][t]) ? x - on[g][t] : -2;
        }
        for (; left > 0; left--) {
            uint32_t best = 0;
            for (uint32_t t = 1; t < p->types; t++)
                if (part[t] > part[best]) best = t;
            on[g][best]++;
            part[best] -= 1;
        }
    }
}

bool prove_try(struct solver *s, bool pairs)
{
    const struct solver_problem *p = s->p;
    uint32_t room[SOLVER_TYPES_MAX];
    uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX] = { { 0 } };
    double cost = 0;
    for (uint32_t t = 0; t < p->types; t++) {
        room[t] = (uint32_t)fmax(ceil(s->x[relax_y(s, t)] - RELAX_WHOLE), 0);
        cost += room[t] * p->price[t];
    }
    if (cost > relax_better(s)) return false;
    round_slices(s, on);
    if (!fit_slices(p, room, pairs, on)) return false;
    prove_take(s, on);
    return true;
}

/* Returns the fractional slice of the highest cost, weighted by its fraction; UINT32_MAX: all are
 * whole. */
static uint32_t fractional_slice(const struct solver *s)
{
    const struct solver_problem *p = s->p;
    uint32_t var = UINT32_MAX;
    double most = 0;
    for (uint32_t g = 0; g < p->groups; g++)
        for (uint32_t t = 0; t < p->types; t++) {
            double x = s->x[relax_x(s, g, t)], apart = fabs(x - round(x));
            if (apart <= RELAX_WHOLE) continue;
            double weight = (apart + HALF_WHOLE) * p->load[g][t] * p->price[t];
            if (weight <= most) continue;
            most = weight;
            var = relax_x(s, g, t);
        }
    return var;
}

/* Decides by relaxations, with all counts fixed: returns true if the slices fit, and takes the
 * solution. False with no nodes left: undecided. */
static bool prove_fit(struct solver *s, uint32_t *left)
{
    double cost;
    if (*left == 0 || !relax_enter(s, &cost)) return false;
    --*left;
    if (prove_try(s, s->best->nodes % PAIRS_EVERY == 0)) return true;
    uint32_t v = fractional_slice(s);
    if (v == UINT32_MAX) return false; /* whole, but over a bound by a rounding error */
    double x = s->x[v], low = s->low[v], high = s->high[v];
    bool up_first = x - floor(x) > 0.5, fits = false;
    for (int turn = 0; turn < 2 && !fits; turn++) {
        if ((turn == 0) == up_first)
            s->low[v] = ceil(x);
        else
            s->high[v] = floor(x);
        fits = prove_fit(s, left);
        s->low[v] = low;
        s->high[v] = high;
    }
    return fits;
}

/* Returns the steps of the search over slices that take as long as one relaxation. */
static uint64_t steps_a_node(const struct solver *s)
{
    return 500 + (uint64_t)s->rows * s->cols / 2;
}

static enum pack_answer search_fit(struct solver *s, const uint32_t room[SOLVER_TYPES_MAX],
                                   uint32_t nodes)
{
    uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX];
    uint64_t steps, most = min_u32(nodes, s->nodes_max - s->best->nodes) * steps_a_node(s);
    enum pack_answer a = pack_slices(s->p, room, most, &s->pack, on, &steps);
    s->best->nodes += (uint32_t)(steps / steps_a_node(s));
    if (a == PACK_FITS) prove_take(s, on);
    return a;
}

static enum prove_answer take_turns(struct solver *s, const double point[SOLVER_TYPES_MAX],
                                    uint32_t nodes)
{
    uint32_t room[SOLVER_TYPES_MAX];
    for (uint32_t t = 0; t < s->p->types; t++)
        room[t] = (uint32_t)point[t];
    for (uint32_t turn = FIRST_NODES; turn <= nodes; turn *= TURN_GROWS) {
        uint32_t left = turn;
        if (prove_fit(s, &left)) return PROVE_FITS;
        if (s->cut_short) return PROVE_OPEN;
        if (left > 0) return PROVE_NEVER;
        enum pack_answer a = search_fit(s, room, turn);
        if (a != PACK_UNKNOWN) return a == PACK_FITS ? PROVE_FITS : PROVE_NEVER;
    }
    return PROVE_OPEN;
}

enum prove_answer prove_point(struct solver *s, const double point[SOLVER_TYPES_MAX],
                              uint32_t nodes)
{
    double low[SOLVER_TYPES_MAX], high[SOLVER_TYPES_MAX];
    double *at_low = &s->low[relax_y(s, 0)], *at_high = &s->high[relax_y(s, 0)];
    for (uint32_t t = 0; t < s->p->types; t++) {
        low[t] = at_low[t];
        high[t] = at_high[t];
        at_low[t] = at_high[t] = point[t];
    }
    enum prove_answer a = take_turns(s, point, nodes);
    for (uint32_t t = 0; t < s->p->types; t++) {
        at_low[t] = low[t];
        at_high[t] = high[t];
    }
    return a;
}

/* place_solver.c - branch and bound over a bounded dual simplex method.
 *
 * Variables: x[g][t] slices of group g on type t, y[t] instances, s[t] unused load. Rows:
 *
 *     sum_t x[g][t] = count[g]                           one a group
 *     sum_g load[g][t] x[g][t] - y[t] + s[t] = 0         one a type
 *
 * Every relaxation differs from the one before by bounds only, so the basis stays dual feasible: a
 * nonbasic variable lies at its low bound when its reduced cost is positive and at its high bound
 * when it is negative. One table is therefore enough for the whole search; it is built anew after
 * PIVOTS_MAX pivots, before rounding errors add up. Whole solutions are checked with the loads
 * themselves, never with the table. */
#include "policies/place_solver.h"

#include "base/core/bits.h"
#include "policies/place_fit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define WHOLE 1e-6     /* nearer to a whole number than this is one */
#define FEASIBLE 1e-7  /* a bound may be missed by so much */
#define PIVOT_MIN 1e-7 /* smaller elements are rounding errors */
#define NUDGE 1e-9
#define PIVOTS_MAX 200
#define FIRST_NODES 64   /* of a proof at fixed counts, before the search over slices has a turn */
#define TURN_GROWS 8     /* and from turn to turn */
#define PAIRS_EVERY 32   /* nodes of a proof: a search in pairs costs as much as ten of them */
#define TURNS_MAX 5000   /* pivots of one relaxation */
#define PRICE_UNIT 1e-4  /* prices are looked at in hundredths of a cent */
#define BOUND_SLACK 1e-7 /* relative: relaxations are sums of floats */

static uint32_t var_x(const struct solver *s, uint32_t g, uint32_t t)
{
    return g * s->p->types + t;
}

static uint32_t var_y(const struct solver *s, uint32_t t)
{
    return s->p->groups * s->p->types + t;
}

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

static uint32_t cheapest_type(const struct solver_problem *p, uint32_t g)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t t = 0; t < p->types; t++) {
        if (!isfinite(p->load[g][t]) || p->max[t] == 0) continue;
        if (best == UINT32_MAX || p->price[t] * p->load[g][t] < p->price[best] * p->load[g][best])
            best = t;
    }
    return best;
}

/* ---- the linear relaxation ---- */

/* Equal reduced costs would let the method go in circles: each gets a little of its own. */
static double nudge(uint32_t col)
{
    return NUDGE * (1 + (double)(col * 2654435761u >> 16) / 65536);
}

/* The table of the first basis: x[g][cheapest] and all y. */
static void build(struct solver *s)
{
    const struct solver_problem *p = s->p;
    uint32_t col = 0;
    for (uint32_t r = 0; r < s->rows; r++) {
        memset(row_of(s, r), 0, s->cols * sizeof *s->a);
        s->rhs[r] = 0;
    }
    for (uint32_t t = 0; t < p->types; t++)
        s->basic[p->groups + t] = var_y(s, t);
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t k = cheapest_type(p, g);
        if (k == UINT32_MAX) k = 0; /* an empty group */
        double *row_k = row_of(s, p->groups + k);
        s->basic[g] = var_x(s, g, k);
        s->rhs[g] = p->count[g];
        s->rhs[p->groups + k] += load_of(p, g, k) * p->count[g];
        for (uint32_t t = 0; t < p->types; t++) {
            if (t == k) continue;
            s->nonbasic[col] = var_x(s, g, t);
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

/* Puts nonbasic variables at the bounds that their reduced costs ask for; all values anew. */
static void settle(struct solver *s)
{
    if (s->pivots > PIVOTS_MAX) build(s);
    for (uint32_t c = 0; c < s->cols; c++) {
        s->at_high[c] = s->gain[c] < 0 && isfinite(s->high[s->nonbasic[c]]);
        s->at[c] = nonbasic_value(s, c);
    }
    for (uint32_t r = 0; r < s->rows; r++) {
        const double *row = row_of(s, r);
        double value = s->rhs[r];
        for (uint32_t c = 0; c < s->cols; c++)
            value -= row[c] * s->at[c];
        s->value[r] = value;
    }
}

static double objective(const struct solver *s)
{
    double z = 0;
    uint32_t y0 = var_y(s, 0);
    for (uint32_t r = 0; r < s->rows; r++)
        if (s->basic[r] >= y0 && s->basic[r] < y0 + s->p->types)
            z += s->p->price[s->basic[r] - y0] * s->value[r];
    for (uint32_t c = 0; c < s->cols; c++)
        if (s->nonbasic[c] >= y0 && s->nonbasic[c] < y0 + s->p->types)
            z += s->p->price[s->nonbasic[c] - y0] * nonbasic_value(s, c);
    return z;
}

/* The row whose variable misses its bounds most; rows when none does. */
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

/* The column whose reduced cost is used up first; cols when none can help. */
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
    for (uint32_t i = 0; i < count; i++)
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

/* What a solution may cost at most to be worth finding. */
static double cutoff(const struct solver *s)
{
    if (!s->best->found) return DBL_MAX;
    return s->best->cost - s->step + BOUND_SLACK * s->best->cost;
}

/* False when no solution below the cutoff lies within the bounds. */
static bool relax(struct solver *s, double *ret_cost)
{
    settle(s);
    for (uint32_t turn = 0;; turn++) {
        double cost = objective(s);
        if (cost > cutoff(s)) return false; /* it only rises */
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

/* ---- whole solutions ---- */

static void take(struct solver *s, uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX])
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

/* Slices as the relaxation has them, the fractions rounded to the larger parts. */
static void round_slices(const struct solver *s, uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX])
{
    const struct solver_problem *p = s->p;
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t left = p->count[g];
        double part[SOLVER_TYPES_MAX];
        for (uint32_t t = 0; t < p->types; t++) {
            double x = fmax(s->x[var_x(s, g, t)], 0);
            on[g][t] = (uint16_t)min_u32((uint32_t)floor(x + WHOLE), left);
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

static double apart(double x)
{
    return fabs(x - round(x));
}

/* Looks for a solution with the relaxation's instances, rounded up; true when there is one. */
static bool try_fit(struct solver *s, bool pairs)
{
    const struct solver_problem *p = s->p;
    uint32_t room[SOLVER_TYPES_MAX];
    uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX] = { { 0 } };
    double cost = 0;
    for (uint32_t t = 0; t < p->types; t++) {
        room[t] = (uint32_t)fmax(ceil(s->x[var_y(s, t)] - WHOLE), 0);
        cost += room[t] * p->price[t];
    }
    if (cost > cutoff(s)) return false;
    round_slices(s, on);
    if (!fit_slices(p, room, pairs, on)) return false;
    take(s, on);
    return true;
}

/* The fraction of instances that costs most; UINT32_MAX when all are whole. */
static uint32_t fractional_count(const struct solver *s)
{
    uint32_t var = UINT32_MAX;
    double most = 0;
    for (uint32_t t = 0; t < s->p->types; t++) {
        double off = apart(s->x[var_y(s, t)]);
        if (off <= WHOLE || off * s->p->price[t] <= most) continue;
        most = off * s->p->price[t];
        var = var_y(s, t);
    }
    return var;
}

static uint32_t fractional_slice(const struct solver *s)
{
    uint32_t var = UINT32_MAX;
    double most = WHOLE;
    for (uint32_t v = 0; v < var_y(s, 0); v++) {
        if (apart(s->x[v]) <= most) continue;
        most = apart(s->x[v]);
        var = v;
    }
    return var;
}

static bool enter(struct solver *s, double *ret_cost)
{
    if (s->best->nodes >= s->nodes_max) s->cut_short = true;
    if (s->cut_short) return false;
    s->best->nodes++;
    return relax(s, ret_cost);
}

/* With all counts fixed, by relaxations: true when the slices fit, and then the solution is taken.
 * False with no nodes left: they did not tell. */
static bool prove_fit(struct solver *s, uint32_t *left)
{
    double cost;
    if (*left == 0 || !enter(s, &cost)) return false;
    --*left;
    if (try_fit(s, s->best->nodes % PAIRS_EVERY == 0)) return true;
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

/* Steps of the search over slices that take as long as one relaxation. */
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
    if (a == PACK_FITS) take(s, on);
    return a;
}

/* Relaxations tell soon where there is room or far too little, the search where all that is there
 * is almost full: they take turns that grow, so that the better one is soon at work. */
static bool fits_at(struct solver *s, const double point[SOLVER_TYPES_MAX])
{
    uint32_t room[SOLVER_TYPES_MAX];
    for (uint32_t t = 0; t < s->p->types; t++)
        room[t] = (uint32_t)point[t];
    for (uint32_t turn = FIRST_NODES;; turn *= TURN_GROWS) {
        uint32_t left = turn;
        if (prove_fit(s, &left)) return true;
        if (left > 0 || s->cut_short) return false;
        enum pack_answer a = search_fit(s, room, turn);
        if (a != PACK_UNKNOWN) return a == PACK_FITS;
    }
}

static void descend(struct solver *s);

/* All that is within the bounds, less the one point of whole counts: first count lower or higher,
 * or equal and the second lower or higher, and so on. */
static void descend_around(struct solver *s, const double point[SOLVER_TYPES_MAX],
                           const double low[SOLVER_TYPES_MAX], const double high[SOLVER_TYPES_MAX])
{
    uint32_t y0 = var_y(s, 0);
    for (uint32_t t = 0; t < s->p->types; t++) {
        if (point[t] - 1 >= low[t]) {
            s->high[y0 + t] = point[t] - 1;
            descend(s);
            s->high[y0 + t] = high[t];
        }
        if (point[t] + 1 <= high[t]) {
            s->low[y0 + t] = point[t] + 1;
            descend(s);
        }
        s->low[y0 + t] = s->high[y0 + t] = point[t];
    }
}

/* The relaxation's counts are whole: either the slices fit, and nothing within the bounds is
 * cheaper, or this point is left out. */
static void settle_point(struct solver *s)
{
    uint32_t y0 = var_y(s, 0);
    double point[SOLVER_TYPES_MAX], low[SOLVER_TYPES_MAX], high[SOLVER_TYPES_MAX];
    for (uint32_t t = 0; t < s->p->types; t++) {
        point[t] = round(s->x[y0 + t]);
        low[t] = s->low[y0 + t];
        high[t] = s->high[y0 + t];
        s->low[y0 + t] = s->high[y0 + t] = point[t];
    }
    bool fits = fits_at(s, point);
    for (uint32_t t = 0; t < s->p->types; t++) {
        s->low[y0 + t] = low[t];
        s->high[y0 + t] = high[t];
    }
    if (!fits) descend_around(s, point, low, high);
    for (uint32_t t = 0; t < s->p->types; t++) {
        s->low[y0 + t] = low[t];
        s->high[y0 + t] = high[t];
    }
}

/* Recursion: each level takes whole counts away, so that it ends. */
static void descend(struct solver *s)
{
    double cost;
    if (!enter(s, &cost)) return;
    if (s->best->nodes == 1) s->best->bound = cost;
    uint32_t v = fractional_count(s);
    if (try_fit(s, true) && v == UINT32_MAX) return; /* as cheap as the bound */
    if (v == UINT32_MAX) {
        settle_point(s);
        return;
    }
    double x = s->x[v], low = s->low[v], high = s->high[v];
    if (cost > cutoff(s)) return;
    s->low[v] = ceil(x);
    descend(s);
    s->low[v] = low;
    s->high[v] = floor(x);
    descend(s);
    s->high[v] = high;
}

/* ---- start ---- */

/* The amount that all prices are multiples of; 0 when there is none to speak of. */
static double price_step(const struct solver_problem *p)
{
    uint64_t step = 0;
    for (uint32_t t = 0; t < p->types; t++) {
        double units = round(p->price[t] / PRICE_UNIT);
        if (units < 1 || fabs(p->price[t] / PRICE_UNIT - units) > WHOLE) return 0;
        uint64_t a = (uint64_t)units;
        while (a) {
            uint64_t rest = step % a;
            step = a;
            a = rest;
        }
    }
    return (double)step * PRICE_UNIT;
}

static void best_single_type(struct solver *s)
{
    const struct solver_problem *p = s->p;
    for (uint32_t t = 0; t < p->types; t++) {
        uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX] = { { 0 } };
        bool can = true;
        for (uint32_t g = 0; g < p->groups; g++) {
            on[g][t] = (uint16_t)p->count[g];
            can &= isfinite(p->load[g][t]) || p->count[g] == 0;
        }
        if (can) take(s, on);
    }
}

void solver_run(const struct solver_problem *problem, uint32_t nodes_max, struct solver *memory,
                struct solver_answer *ret)
{
    struct solver *s = memory;
    *ret = (struct solver_answer){ 0 };
    s->p = problem;
    s->best = ret;
    s->nodes_max = nodes_max;
    s->cut_short = false;
    s->rows = problem->groups + problem->types;
    s->cols = problem->groups * (problem->types - 1) + problem->types;
    s->step = price_step(problem);
    for (uint32_t g = 0; g < problem->groups; g++) {
        for (uint32_t t = 0; t < problem->types; t++) {
            s->low[var_x(s, g, t)] = 0;
            s->high[var_x(s, g, t)] = isfinite(problem->load[g][t]) ? problem->count[g] : 0;
        }
        if (cheapest_type(problem, g) == UINT32_MAX && problem->count[g] > 0) {
            ret->optimal = true; /* some work fits nowhere */
            return;
        }
    }
    for (uint32_t t = 0; t < problem->types; t++) {
        s->low[var_y(s, t)] = s->low[var_s(s, t)] = 0;
        s->high[var_y(s, t)] = problem->max[t];
        s->high[var_s(s, t)] = (double)INFINITY;
    }
    best_single_type(s);
    build(s);
    descend(s);
    ret->optimal = !s->cut_short;
    if (ret->optimal && ret->found) ret->bound = ret->cost;
}

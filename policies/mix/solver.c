/* solver.c - searches the counts for the cheapest numbers of instances that suffice.
 *
 * The search runs in rounds with a ceiling on cost that rises from the relaxation's bound. Each
 * round is depth first and skips counts above the ceiling, so that little time goes into counts
 * that cost more than the optimum (a depth-first search alone visits all that its first solutions
 * leave). Where the relaxation's counts are whole, prove.h decides whether the slices fit. Counts
 * that are not decided soon are left for the end of the round and then decided in the order of
 * their cost: a cheaper solution may have made them irrelevant. Counts proven too few, and all
 * counts with no more of any type, are not tried again. */
#include "policies/mix/solver.h"

#include "policies/mix/prove.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PRICE_UNIT 1e-4      /* prices are compared in hundredths of a cent */
#define SOON_NODES 64        /* of a proof, before its counts are left for later */
#define ALL_NODES (1u << 28) /* no limit but that of the whole search */
#define GAP_FIRST 0.1  /* first ceiling: so much of the way from the bound to the first solution */
#define GAP_GROWS 1.2  /* from round to round */
#define GAP_LEAST 1e-6 /* of the bound: more than its rounding errors */
#define GAP_MAX 1e3    /* of the bound: beyond it the ceiling is dropped */

/* Returns the fractional count of the highest cost; UINT32_MAX if all are whole. */
static uint32_t fractional_count(const struct solver *s)
{
    uint32_t var = UINT32_MAX;
    double most = 0;
    for (uint32_t t = 0; t < s->p->types; t++) {
        double off = fabs(s->x[relax_y(s, t)] - round(s->x[relax_y(s, t)]));
        if (off <= RELAX_WHOLE || off * s->p->price[t] <= most) continue;
        most = off * s->p->price[t];
        var = relax_y(s, t);
    }
    return var;
}

/* Returns true if the counts are at most some that were proven too few. */
static bool are_too_few(const struct solver *s, const double *count)
{
    for (uint32_t i = 0; i < s->nevers; i++) {
        bool below = true;
        for (uint32_t t = 0; t < s->p->types && below; t++)
            below = count[t] <= s->never[i][t];
        if (below) return true;
    }
    return false;
}

static void remember_too_few(struct solver *s, const double *count)
{
    if (s->nevers == SOLVER_NEVER_MAX) return; /* it will be proven again */
    for (uint32_t t = 0; t < s->p->types; t++)
        s->never[s->nevers][t] = (uint16_t)count[t];
    s->nevers++;
}

/* ---- a round ---- */

/* Asks whether the counts suffice; if `nodes` nodes do not decide it, leaves them for later or cuts
 * the search short. */
static enum prove_answer ask(struct solver *s, const double *point, uint32_t nodes)
{
    enum prove_answer a = prove_point(s, point, nodes);
    if (a == PROVE_NEVER) remember_too_few(s, point);
    if (a != PROVE_OPEN) return a;
    s->cut_short |= nodes > SOON_NODES;
    if (s->cut_short) return a;
    for (uint32_t t = 0; t < s->p->types; t++)
        s->later[s->laters][t] = (uint16_t)point[t];
    s->laters++;
    return a;
}

static void descend(struct solver *s);

/* Searches all counts within the bounds except `point`: first count lower or higher, or equal and
 * the second lower or higher, and so on. */
static void descend_around(struct solver *s, const double point[SOLVER_TYPES_MAX],
                           const double low[SOLVER_TYPES_MAX], const double high[SOLVER_TYPES_MAX])
{
    uint32_t y0 = relax_y(s, 0);
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

/* Settles whole counts of the relaxation: either the slices fit, and nothing within the bounds is
 * cheaper, or the search goes on around this point. */
static void settle_point(struct solver *s)
{
    uint32_t y0 = relax_y(s, 0);
    double point[SOLVER_TYPES_MAX] = { 0 };
    double low[SOLVER_TYPES_MAX], high[SOLVER_TYPES_MAX];
    for (uint32_t t = 0; t < s->p->types; t++) {
        point[t] = round(s->x[y0 + t]);
        low[t] = s->low[y0 + t];
        high[t] = s->high[y0 + t];
    }
    enum prove_answer a = PROVE_NEVER;
    if (!are_too_few(s, point))
        a = ask(s, point, s->laters < SOLVER_LATER_MAX ? SOON_NODES : ALL_NODES);
    if (a != PROVE_FITS) descend_around(s, point, low, high);
    for (uint32_t t = 0; t < s->p->types; t++) {
        s->low[y0 + t] = low[t];
        s->high[y0 + t] = high[t];
    }
}

/* Searches the counts within the bounds. Each level of the recursion excludes whole counts, so that
 * it ends. */
static void descend(struct solver *s)
{
    double cost;
    if (are_too_few(s, &s->high[relax_y(s, 0)]) || !relax_enter(s, &cost)) return;
    uint32_t v = fractional_count(s);
    if (prove_try(s, true) && v == UINT32_MAX) return; /* as cheap as the bound */
    if (v == UINT32_MAX) {
        settle_point(s);
        return;
    }
    double x = s->x[v], low = s->low[v], high = s->high[v];
    if (cost > relax_better(s)) return;
    s->low[v] = ceil(x);
    descend(s);
    s->low[v] = low;
    s->high[v] = floor(x);
    descend(s);
    s->high[v] = high;
}

/* Takes the cheapest of the counts left for later. */
static void take_later(struct solver *s, double ret[SOLVER_TYPES_MAX])
{
    uint32_t at = 0;
    double least = DBL_MAX;
    for (uint32_t i = 0; i < s->laters; i++) {
        double cost = 0;
        for (uint32_t t = 0; t < s->p->types; t++)
            cost += s->later[i][t] * s->p->price[t];
        if (cost >= least) continue;
        least = cost;
        at = i;
    }
    for (uint32_t t = 0; t < s->p->types; t++)
        ret[t] = s->later[at][t];
    memcpy(s->later[at], s->later[--s->laters], sizeof s->later[at]);
}

static void ask_later(struct solver *s)
{
    while (s->laters > 0 && !s->cut_short) {
        double point[SOLVER_TYPES_MAX], cost = 0;
        take_later(s, point);
        for (uint32_t t = 0; t < s->p->types; t++)
            cost += point[t] * s->p->price[t];
        if (cost <= relax_better(s) && !are_too_few(s, point)) ask(s, point, ALL_NODES);
    }
}

static void search(struct solver *s)
{
    double bound;
    s->cap = DBL_MAX;
    s->nevers = s->laters = 0;
    if (!relax_enter(s, &bound)) return;
    s->best->bound = bound;
    prove_try(s, true);
    double first = s->best->found ? s->best->cost - bound : bound;
    double gap = fmax(s->step, fmax(first * GAP_FIRST, bound * GAP_LEAST));
    for (;; gap *= GAP_GROWS) {
        s->cap = gap > bound * GAP_MAX ? DBL_MAX : bound + gap;
        double reached = fmin(s->cap, relax_better(s));
        descend(s);
        ask_later(s);
        if (s->cut_short || s->cap >= DBL_MAX || relax_better(s) <= reached) return;
    }
}

/* ---- start ---- */

/* Returns the largest amount of which all prices are multiples; 0 if they are not whole units. */
static double price_step(const struct solver_problem *p)
{
    uint64_t step = 0;
    for (uint32_t t = 0; t < p->types; t++) {
        double units = round(p->price[t] / PRICE_UNIT);
        if (units < 1 || fabs(p->price[t] / PRICE_UNIT - units) > RELAX_WHOLE) return 0;
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
        if (can) prove_take(s, on);
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
    s->step = price_step(problem);
    for (uint32_t g = 0; g < problem->groups; g++)
        if (relax_cheapest_type(problem, g) == UINT32_MAX && problem->count[g] > 0) {
            ret->optimal = true; /* some work fits no type */
            return;
        }
    best_single_type(s);
    relax_init(s);
    search(s);
    ret->optimal = !s->cut_short;
    if (ret->optimal && ret->found) ret->bound = ret->cost;
}

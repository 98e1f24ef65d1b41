/* prove.c - with all counts fixed, do the slices fit?
 *
 * Relaxations tell soon where there is room or far too little, a search over slices (place_pack.h)
 * where all that is there is almost full: they take turns that grow, so that the better one is soon
 * at work. Relaxations branch on the slice that costs most and is not whole: where it lies decides
 * over most of the rest. Whole solutions are checked with the loads themselves, never with the
 * table. */
#include "policies/mix/prove.h"

#include "base/core/bits.h"
#include "policies/mix/fit.h"
#include "policies/mix/relax.h"

#include <math.h>
#include <string.h>

#define FIRST_NODES 64 /* of relaxations, before the search over slices has a turn */
#define TURN_GROWS 16  /* and from turn to turn */
#define PAIRS_EVERY 32 /* nodes: a search in pairs costs as much as ten of them */
#define HALF_WHOLE 0.1 /* a slice that is almost whole counts with this part of its cost */

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

/* Slices as the relaxation has them, the fractions rounded to the larger parts. */
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

/* The slice that is not whole and costs most, the fraction weighed in; UINT32_MAX: all are. */
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

/* With all counts fixed, by relaxations: true when the slices fit, and then the solution is taken.
 * False with no nodes left: they did not tell. */
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

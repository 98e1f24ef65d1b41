/* pack.c - searches depth first over slices, with weighted sums over all types as bounds.
 *
 * Every assignment that fits satisfies, for any weights w >= 0 of the types,
 *
 *     sum over slices of w[its type] load[its type]  <=  W = sum w[t] room[t]
 *
 * The left side is least when each slice lies where w load is least. The difference to W is the
 * spare; a slice elsewhere takes from it, and the regret of a choice is the amount it takes. With
 * weights for which the spare is least, most choices regret more than the spare, and few are left
 * to try. Those weights solve a small concave problem: the spare falls when an overfull type weighs
 * more (multiplicative weights). Other weights nearby bound further.
 *
 * Slices are tried in the order of the regret of their second choice, the largest first; equal
 * slices are tried in one order only. */
#include "policies/mix/pack.h"

#include "base/core/bits.h"
#include "policies/mix/fit.h"
#include "policies/mix/solver.h"

#include <math.h>
#include <string.h>

_Static_assert(PACK_TYPES_MAX == SOLVER_TYPES_MAX, "the same types");

#define ROUNDS 3000
#define STEP 0.5  /* of the first round, in utilisation */
#define TILT 0.15 /* of the other weights: one type is this much heavier or lighter */

/* Puts each slice on the type that w prefers: fills the loads and returns the sum of w load. */
static double prefer(const struct solver_problem *p, const uint32_t *room,
                     const double w[SOLVER_TYPES_MAX], double load[SOLVER_TYPES_MAX])
{
    double sum = 0;
    for (uint32_t t = 0; t < p->types; t++)
        load[t] = 0;
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t t = 0; t < p->types; t++) {
            if (room[t] == 0 || !isfinite(p->load[g][t])) continue;
            if (best == UINT32_MAX || w[t] * p->load[g][t] < w[best] * p->load[g][best]) best = t;
        }
        if (best == UINT32_MAX) continue;
        load[best] += p->count[g] * p->load[g][best];
        sum += p->count[g] * w[best] * p->load[g][best];
    }
    return sum;
}

/* Finds weights with sum w room = 1 for which the sum of the least w loads is largest, and returns
 * that sum. */
static double weigh(const struct solver_problem *p, const uint32_t *room,
                    double w[SOLVER_TYPES_MAX])
{
    double share[SOLVER_TYPES_MAX] = { 0 }, at[SOLVER_TYPES_MAX] = { 0 }, most = -1, sum = 0;
    for (uint32_t t = 0; t < p->types; t++)
        sum += room[t] * p->price[t];
    for (uint32_t t = 0; t < p->types; t++)
        share[t] = room[t] * p->price[t] / sum;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        double load[SOLVER_TYPES_MAX];
        for (uint32_t t = 0; t < p->types; t++)
            at[t] = room[t] ? share[t] / room[t] : 0;
        double h = prefer(p, room, at, load);
        if (h > most) {
            most = h;
            memcpy(w, at, sizeof at);
        }
        double eta = STEP / (1 + round * 0.05), all = 0;
        for (uint32_t t = 0; t < p->types; t++) {
            if (room[t] == 0) continue;
            share[t] *= exp(eta * fmin(load[t] / room[t] - 1, 4));
            all += share[t];
        }
        for (uint32_t t = 0; t < p->types; t++)
            share[t] /= all;
    }
    return most;
}

/* ---- the slices ---- */

static bool may_lie(const struct solver_problem *p, const uint32_t *room, uint32_t g, uint32_t t)
{
    return room[t] > 0 && isfinite(p->load[g][t]) && p->load[g][t] <= room[t] + FIT_SLACK;
}

/* Sets the weights of the sums: the first is the tightest; each other one weighs one type more, or
 * less. */
static void make_cuts(const struct solver_problem *p, const uint32_t *room, const double *w,
                      struct pack *m)
{
    memset(m->weight, 0, sizeof m->weight);
    memcpy(m->weight[0], w, p->types * sizeof *w);
    m->cuts = 1;
    for (uint32_t t = 0; t < p->types && m->cuts + 2 <= PACK_CUTS_MAX; t++) {
        if (room[t] == 0) continue;
        for (int side = 0; side < 2; side++) {
            double *cut = m->weight[m->cuts++];
            memcpy(cut, w, p->types * sizeof *w);
            cut[t] *= side ? 1 + TILT : 1 / (1 + TILT);
        }
    }
}

/* Lists the choices of a slice of group g, the largest regret last; returns false if it can lie
 * nowhere. */
static bool make_choices(const struct solver_problem *p, const uint32_t *room, uint32_t g,
                         struct pack *m, struct pack_slice *s)
{
    double least[PACK_CUTS_MAX];
    *s = (struct pack_slice){ .group = g };
    for (uint32_t k = 0; k < m->cuts; k++)
        least[k] = (double)INFINITY;
    for (uint32_t t = 0; t < p->types; t++) {
        if (!may_lie(p, room, g, t)) continue;
        for (uint32_t k = 0; k < m->cuts; k++)
            least[k] = fmin(least[k], m->weight[k][t] * p->load[g][t]);
    }
    for (uint32_t k = 0; k < m->cuts; k++)
        m->spare[0][k] -= p->count[g] * least[k];
    for (uint32_t t = 0; t < p->types; t++) {
        if (!may_lie(p, room, g, t)) continue;
        struct pack_choice c = { .type = t, .load = p->load[g][t] };
        for (uint32_t k = 0; k < m->cuts; k++)
            c.regret[k] = m->weight[k][t] * c.load - least[k];
        uint32_t at = s->choices++;
        for (; at > 0 && s->choice[at - 1].regret[0] > c.regret[0]; at--)
            s->choice[at] = s->choice[at - 1];
        s->choice[at] = c;
    }
    return s->choices > 0;
}

/* Drops the choices that regret more than the spare. */
static void drop_choices(struct pack *m)
{
    for (uint32_t i = 0; i < m->slices; i++) {
        struct pack_slice *s = &m->slice[i];
        uint32_t kept = 0;
        for (uint32_t c = 0; c < s->choices; c++) {
            bool possible = true;
            for (uint32_t k = 0; k < m->cuts; k++)
                possible &= s->choice[c].regret[k] <= m->spare[0][k];
            if (possible) s->choice[kept++] = s->choice[c];
        }
        s->choices = kept;
        s->second = kept > 1 ? s->choice[1].regret[0] : (double)INFINITY;
    }
}

static bool goes_before(const struct pack_slice *a, const struct pack_slice *b)
{
    if (a->second > b->second || a->second < b->second) return a->second > b->second;
    return a->group < b->group;
}

static bool make_slices(const struct solver_problem *p, const uint32_t *room, struct pack *m)
{
    double w[SOLVER_TYPES_MAX] = { 0 };
    if (weigh(p, room, w) > 1 + FIT_SLACK) return false;
    make_cuts(p, room, w, m);
    for (uint32_t k = 0; k < m->cuts; k++) {
        m->spare[0][k] = 0;
        for (uint32_t t = 0; t < p->types; t++)
            m->spare[0][k] += m->weight[k][t] * (room[t] + FIT_SLACK);
    }
    m->slices = 0;
    for (uint32_t g = 0; g < p->groups; g++) {
        if (p->count[g] == 0) continue;
        struct pack_slice *s = &m->slice[m->slices];
        if (!make_choices(p, room, g, m, s)) return false;
        for (uint32_t n = 1; n < p->count[g]; n++)
            s[n] = s[0];
        m->slices += p->count[g];
    }
    drop_choices(m);
    for (uint32_t i = 1; i < m->slices; i++) /* insertion sort: few slices, in groups */
        for (uint32_t k = i; k > 0 && goes_before(&m->slice[k], &m->slice[k - 1]); k--) {
            struct pack_slice s = m->slice[k];
            m->slice[k] = m->slice[k - 1];
            m->slice[k - 1] = s;
        }
    for (uint32_t t = 0; t < p->types; t++)
        m->room[t] = room[t] + FIT_SLACK;
    return true;
}

/* ---- the search ---- */

/* Puts the slice at `depth` on the type of its choice, if sums and room allow. */
static bool put(struct pack *m, uint32_t depth)
{
    const struct pack_choice *c = &m->slice[depth].choice[m->at[depth]];
    if (c->load > m->room[c->type]) return false;
    bool possible = true;
    for (uint32_t k = 0; k < m->cuts; k++) {
        m->spare[depth + 1][k] = m->spare[depth][k] - c->regret[k];
        possible &= m->spare[depth + 1][k] >= 0;
    }
    if (possible) m->room[c->type] -= c->load;
    return possible;
}

static uint32_t first_choice(const struct pack *m, uint32_t depth)
{
    bool alike = depth > 0 && m->slice[depth].group == m->slice[depth - 1].group;
    return alike ? m->at[depth - 1] : 0;
}

enum pack_answer pack_slices(const struct solver_problem *p, const uint32_t *room,
                             uint64_t steps_max, struct pack *memory,
                             uint16_t (*on)[PACK_TYPES_MAX], uint64_t *ret_steps)
{
    struct pack *m = memory;
    uint64_t total = 0;
    *ret_steps = 0;
    for (uint32_t g = 0; g < p->groups; g++)
        total += p->count[g];
    if (total > PACK_SLICES_MAX) return PACK_UNKNOWN;
    if (!make_slices(p, room, m)) return PACK_NEVER;
    uint32_t depth = 0;
    m->at[0] = 0;
    while (depth < m->slices) {
        if (m->at[depth] == m->slice[depth].choices) { /* back up */
            if (depth == 0) return PACK_NEVER;
            depth--;
            const struct pack_choice *c = &m->slice[depth].choice[m->at[depth]++];
            m->room[c->type] += c->load;
            continue;
        }
        if (++*ret_steps > steps_max) return PACK_UNKNOWN;
        if (!put(m, depth)) {
            m->at[depth]++;
            continue;
        }
        depth++;
        if (depth < m->slices) m->at[depth] = first_choice(m, depth);
    }
    memset(on, 0, p->groups * sizeof *on);
    for (uint32_t i = 0; i < m->slices; i++)
        on[m->slice[i].group][m->slice[i].choice[m->at[i]].type]++;
    return PACK_FITS;
}

/* place_joint_mix.c - count x type x provider x spot in one choice, under promise and budget.
 *
 * Every (type, provider, purchase) is a column of the same programme as melange's. What differs:
 *
 *     spot      counts with the share of time that it is there, 1 - u, u = hazard * start-up; its
 *               price carries the start-ups that its losses cost, price * (1 + u). Where u is more
 *               than the promise allows it is left out
 *     together  loads of different buckets do not simply add up on one instance. After solving, each
 *               type is asked for its rate with the mean lengths that it would get; a type that falls
 *               short counts for less and the programme is solved again
 *     budget    where the mix costs more than the budget, the largest share of the work that fits
 */
#include "policies/place_joint.h"

#include <math.h>

#define SLICES 4
#define NODES_MAX 2000 /* of each solving; there may be dozens */
#define ROUNDS 4       /* of solving again */
#define BISECTIONS 8   /* of the share that a budget allows: one part in 256 */
#define AVAILABILITY 0.99
#define REACT_S 30.0
#define HOUR_S 3600.0
#define BUDGET_ROUND 1e-9 /* relative: 3 x 3.43 is a little more than 10.29 in binary */

static double missing(const struct place_type *t)
{
    return t->spot ? t->hazard_h * (t->lead_s + REACT_S) / HOUR_S : 0;
}

bool place_joint_relies_on(const struct place_type *type, double availability)
{
    return missing(type) <= 1 - availability;
}

/* Below 1: how far type t falls short of what is put on it. */
static double strength(const struct place_mix *m, const struct place_mix_work *work, uint32_t t)
{
    struct place_bucket all = { 0 };
    double load = 0;
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        if (work->problem.count[b] == 0 || work->answer.on[b][t] == 0) continue;
        double rate = m->bucket[b].rate_s * work->answer.on[b][t] / work->problem.count[b];
        all.prompt_tokens += rate * m->bucket[b].prompt_tokens;
        all.output_tokens += rate * m->bucket[b].output_tokens;
        all.rate_s += rate;
        load += rate / work->rate[b][t];
    }
    if (all.rate_s <= 0 || load <= 0) return 1;
    all.prompt_tokens /= all.rate_s;
    all.output_tokens /= all.rate_s;
    struct place_score score;
    m->eval(m->ctx, t, &all, &score);
    return fmin(1, score.rate_s * load / all.rate_s); /* against what the loads promise */
}

static void solve(const struct place_mix *m, const struct place_mix *priced, double scale,
                  struct place_mix_work *work)
{
    double fill[PLACE_TYPES_MAX];
    for (uint32_t t = 0; t < m->type_count; t++)
        fill[t] = 1 - missing(&m->type[t]);
    for (uint32_t round = 0;; round++) {
        place_mix_problem(priced, SLICES, scale, fill, work);
        solver_run(&work->problem, m->nodes_max ? m->nodes_max : NODES_MAX, &work->solver,
                   &work->answer);
        if (!work->answer.found || round == ROUNDS) return;
        bool weak = false;
        for (uint32_t t = 0; t < m->type_count; t++) {
            if (work->answer.count[t] == 0) continue;
            double can = (1 - missing(&m->type[t])) * strength(m, work, t);
            if (can >= fill[t] - 1e-3) continue;
            fill[t] = can;
            weak = true;
        }
        if (!weak) return;
    }
}

/* At the true prices, not those that carry start-ups. */
static bool is_within_budget(const struct place_mix *m, const struct place_mix_work *work)
{
    double cost = 0;
    for (uint32_t t = 0; t < m->type_count; t++)
        cost += work->answer.count[t] * m->type[t].price_h;
    return cost <= m->budget_h * (1 + BUDGET_ROUND);
}

void place_joint_mix(const struct place_mix *problem, struct place_mix_work *work,
                     struct place_mix_verdict *ret)
{
    struct place_mix priced = *problem;
    for (uint32_t t = 0; t < priced.type_count; t++) {
        struct place_type *type = &priced.type[t];
        if (!place_joint_relies_on(type, AVAILABILITY)) type->max = 0;
        /* In whole cents, upwards: the solver then knows how much cheaper the next mix can be. */
        type->price_h = ceil(type->price_h * (1 + missing(type)) * 100 - 1e-6) / 100;
    }
    place_mix_profile(&priced, work);
    solve(problem, &priced, 1, work);
    double served = work->answer.found ? 1 : 0;
    bool short_of_money =
        problem->budget_h > 0 && work->answer.found && !is_within_budget(problem, work);
    if (short_of_money) {
        double low = 0, high = 1;
        for (int i = 0; i < BISECTIONS; i++) {
            double mid = (low + high) / 2;
            solve(problem, &priced, mid, work);
            if (work->answer.found && is_within_budget(problem, work))
                low = mid;
            else
                high = mid;
        }
        served = low;
        solve(problem, &priced, low, work);
    }
    place_mix_verdict_of(problem, work, ret);
    if (!ret->found) return;
    ret->served = served;
    if (short_of_money) ret->why = "the budget allows no more than a share of the work";
}

/* joint.c - chooses counts, types, providers and spot together, within the SLO and the budget.
 *
 * Every (type, provider, purchase) is a column of melange's integer programme. Four things differ:
 *
 *     spot      a spot instance counts with the share of time in which it is there, 1 - u with
 *               u = hazard * start-up; its price includes the start-ups after losses,
 *               price * (1 + u). It is left out where u exceeds MIX_MISSING_MAX
 *     together  loads of different buckets do not simply add up on one instance. After solving, each
 *               type is evaluated at the mean lengths that it would get; a type that falls short
 *               counts for less, and the programme is solved again
 *     slices    a bucket is cut into enough slices that all together have SLICES_ALL: with a few buckets a slice would
 *               else be the work of many instances, and types could not be mixed
 *     budget    a mix above the budget is cut to the largest share of the work that fits
 */
#include "base/core/bits.h"
#include "policies/mix/mix.h"
#include "policies/place/place.h"

#include <math.h>

#define SLICES 4 /* of a bucket, at least */
#define SLICES_ALL 64
#define NODES_MAX 2000    /* of each solution; there may be dozens */
#define ROUNDS 4          /* of solving again */
#define BISECTIONS 8      /* of the share that a budget allows: one part in 256 */
#define BUDGET_ROUND 1e-9 /* relative: 3 x 3.43 is a little more than 10.29 in binary */

static double missing(const struct mix_type *t)
{
    return t->spot ? t->hazard_h * hazard_gap_h(t->lead_s) : 0;
}

static bool is_reliable(const struct mix_type *type)
{
    return missing(type) <= MIX_MISSING_MAX;
}

static uint32_t slices_of(const struct mix_problem *m)
{
    return max_u32(SLICES, SLICES_ALL / max_u32(m->bucket_count, 1));
}

/* Returns the share of its assigned load that type t can serve, at most 1. */
static double strength(const struct mix_problem *m, const struct mix_memory *memory, uint32_t t)
{
    struct mix_bucket all = { 0 };
    double load = 0;
    for (uint32_t b = 0; b < m->bucket_count; b++) {
        if (memory->problem.count[b] == 0 || memory->answer.on[b][t] == 0) continue;
        double rate = m->bucket[b].rate_s * memory->answer.on[b][t] / memory->problem.count[b];
        all.prompt_tokens += rate * m->bucket[b].prompt_tokens;
        all.output_tokens += rate * m->bucket[b].output_tokens;
        all.rate_s += rate;
        load += rate / memory->rate[b][t];
    }
    if (all.rate_s <= 0 || load <= 0) return 1;
    all.prompt_tokens /= all.rate_s;
    all.output_tokens /= all.rate_s;
    struct mix_score score;
    m->eval(m->ctx, t, &all, &score);
    return fmin(1, score.rate_s * load / all.rate_s); /* against the rate that the loads assume */
}

static void solve(const struct mix_problem *m, const struct mix_problem *priced, double scale,
                  struct mix_memory *memory)
{
    double fill[MIX_TYPES_MAX];
    for (uint32_t t = 0; t < m->type_count; t++)
        fill[t] = 1 - missing(&m->type[t]);
    for (uint32_t round = 0;; round++) {
        mix_program(priced, slices_of(priced), scale, fill, memory);
        solver_run(&memory->problem, m->nodes_max ? m->nodes_max : NODES_MAX, &memory->solver,
                   &memory->answer);
        if (!memory->answer.found || round == ROUNDS) return;
        bool weak = false;
        for (uint32_t t = 0; t < m->type_count; t++) {
            if (memory->answer.count[t] == 0) continue;
            double can = (1 - missing(&m->type[t])) * strength(m, memory, t);
            if (can >= fill[t] - 1e-3) continue;
            fill[t] = can;
            weak = true;
        }
        if (!weak) return;
    }
}

/* Returns true if the mix fits the budget at the true prices, without the start-ups. */
static bool is_within_budget(const struct mix_problem *m, const struct mix_memory *memory)
{
    double cost = 0;
    for (uint32_t t = 0; t < m->type_count; t++)
        cost += memory->answer.count[t] * m->type[t].price_h;
    return cost <= m->budget_h * (1 + BUDGET_ROUND);
}

static void choose(const struct mix_problem *problem, struct mix_memory *memory,
                   struct mix_verdict *ret)
{
    struct mix_problem priced = *problem;
    for (uint32_t t = 0; t < priced.type_count; t++) {
        struct mix_type *type = &priced.type[t];
        if (!is_reliable(type)) type->max = 0;
        /* Rounded up to whole cents: the solver then knows by how much a cheaper mix is cheaper. */
        type->price_h = ceil(type->price_h * (1 + missing(type)) * 100 - 1e-6) / 100;
    }
    mix_profile(&priced, memory);
    solve(problem, &priced, 1, memory);
    double served = memory->answer.found ? 1 : 0;
    bool short_of_money =
        problem->budget_h > 0 && memory->answer.found && !is_within_budget(problem, memory);
    if (short_of_money) {
        double low = 0, high = 1;
        for (int i = 0; i < BISECTIONS; i++) {
            double mid = (low + high) / 2;
            solve(problem, &priced, mid, memory);
            if (memory->answer.found && is_within_budget(problem, memory))
                low = mid;
            else
                high = mid;
        }
        served = low;
        solve(problem, &priced, low, memory);
    }
    mix_verdict_of(problem, memory, ret);
    if (!ret->found) return;
    ret->served = served;
    if (short_of_money) ret->why = "the budget allows no more than a share of the work";
}

const struct mix_policy mix_joint = {
    .name = "joint",
    .about = "count, type, provider and spot in one choice, within the SLO and the budget",
    .source = "ours, on Melange's integer programme",
    .choose = choose,
};

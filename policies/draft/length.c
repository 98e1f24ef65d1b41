/* length.c - learns how often guesses come true, and says how many tokens of each are worth computing.
 *
 * Every guess is compared, also those that were not computed: the first tokens that come say as much
 * about it. A sequence that guesses badly therefore costs nothing and is tried again once it guesses
 * well.
 *
 * A further token costs what a prompt's token costs at least: while the lengths of steps differ little the
 * step-time model cannot tell the price of a decoding sequence from that of the step, and may find it free.
 *
 * Greedy by gain for a second: the gains of one sequence fall from token to token, so taking the best one
 * until none raises E / T finds the largest E / T. */
#include "base/core/bits.h"
#include "policies/draft/draft.h"

#include <math.h>

#define FADE 0.98f      /* of a class's counts, a comparison */
#define PRIOR_RATE 0.5f /* before anything was compared */
#define PRIOR_WEIGHT 2.0f
#define OWN_WEIGHT 4.0f /* comparisons of a sequence that weigh as much as all sequences */

static uint32_t class_of(uint32_t match)
{
    static const uint32_t most[DRAFT_CLASSES - 1] = { 1, 2, 4, 8, 16 };
    uint32_t k = 0;
    while (k < COUNT_OF(most) && match > most[k])
        k++;
    return k;
}

static void count_one(struct draft_rates *rates, uint32_t match, bool equal)
{
    uint32_t k = class_of(match);
    rates->compared[k] = rates->compared[k] * FADE + 1;
    rates->equal[k] = rates->equal[k] * FADE + (float)equal;
}

void draft_rates_observe(struct draft_rates *rates, uint32_t match, uint32_t equal, bool missed)
{
    for (uint32_t i = 0; i < equal; i++)
        count_one(rates, match + i, true);
    if (missed) count_one(rates, match + equal, false);
}

double draft_rate(const struct draft_rates *own, const struct draft_rates *all, uint32_t match)
{
    uint32_t k = class_of(match);
    float base = (all->equal[k] + PRIOR_RATE * PRIOR_WEIGHT) / (all->compared[k] + PRIOR_WEIGHT);
    return (double)((own->equal[k] + base * OWN_WEIGHT) / (own->compared[k] + OWN_WEIGHT));
}

uint32_t draft_allot(struct draft_place *place, uint32_t count, const struct draft_rates *all,
                     const struct draft_step *step)
{
    double token_s = fmax(step->perf.decode_seq_s, step->perf.prefill_token_s);
    double tokens = count, seconds = perf_step_s(&step->perf, &step->shape);
    for (uint32_t i = 0; i < count; i++)
        place[i].take = 0, place[i].reach = 1;
    for (uint32_t taken = 0; taken < step->most; taken++) {
        struct draft_place *best = NULL;
        double best_gain = 0, best_s = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct draft_place *p = &place[i];
            if (p->take == p->guessed) continue;
            double gain = p->reach * draft_rate(p->own, all, p->match + p->take);
            double more_s = token_s + step->perf.attend_s * (p->context + p->take);
            if (best && gain * best_s <= best_gain * more_s) continue;
            best = p, best_gain = gain, best_s = more_s;
        }
        bool worth = best_gain * seconds > tokens * best_s;
        if (!best || best_gain < DRAFT_RATE_MIN) return taken;
        if (!worth && taken >= step->least) return taken;
        best->take++;
        best->reach = best_gain;
        tokens += best_gain;
        seconds += best_s;
    }
    return step->most;
}

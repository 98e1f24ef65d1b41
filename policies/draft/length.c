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
 * until none raises E / T finds the largest E / T. A draft model's passes cost something whatever they compute, so
 * a token that raises E / T by itself may lower it, and several may raise it that alone would not: draft_ask goes
 * pass by pass.
 *
 * A draft model's guess that is not asked for is not compared either, and nothing is learned of it. Now and then it
 * is asked for all the same: one token more than is worth it, to learn the rates of longer guesses; and a few of
 * one sequence where nothing was worth it, which also tells the step-time model what tokens cost. */
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

/* ---- what a draft model is asked for ---- */

/* Seconds of one more token of a place: to guess it in the draft model's pass, but for what the pass costs
 * whatever it computes, and to verify it. Tokens that the draft model has to compute first cost once what the
 * sequence's output pays for to its end. */
static double asked_s(const struct draft_place *p, const struct draft_ask *ask)
{
    const struct perf_coef *verify = &ask->step.perf, *model = &ask->model;
    double context = p->context + p->take;
    double s = fmax(verify->decode_seq_s, verify->prefill_token_s) + verify->attend_s * context +
               model->decode_seq_s + model->kv_read_s * context;
    if (p->take > 0) return s;
    double lacks = p->lacks;
    return s + lacks * (model->prefill_token_s + model->attend_s * context / 2) / p->left;
}

/* Takes a token of each place for which the next pass is worth its own part of the seconds. Returns their
 * number, and adds to the step's tokens and seconds. */
static uint32_t add_pass(struct draft_place *place, uint32_t count, uint32_t pass, uint32_t most,
                         const struct draft_rates *all, const struct draft_ask *ask, double *tokens,
                         double *seconds)
{
    uint32_t taken = 0;
    double more = 0, more_s = ask->model.step_s;
    for (uint32_t i = 0; i < count && taken < most; i++) {
        struct draft_place *p = &place[i];
        if (p->take < pass || p->take == p->guessed) continue;
        double gain = p->reach * draft_rate(p->own, all, p->match + p->take);
        double own_s = asked_s(p, ask);
        if (gain < DRAFT_RATE_MIN || gain * *seconds <= *tokens * own_s) continue;
        p->take++;
        p->reach = gain;
        more += gain;
        more_s += own_s;
        taken++;
    }
    *tokens += more;
    *seconds += more_s;
    return taken;
}

/* Tries one pass after the other, and keeps as many as give the largest E / T. */
uint32_t draft_ask(struct draft_place *place, uint32_t count, const struct draft_rates *all,
                   const struct draft_ask *ask)
{
    double tokens = count, seconds = perf_step_s(&ask->step.perf, &ask->step.shape);
    double best = seconds > 0 ? tokens / seconds : 0; /* without an estimate nothing is asked for */
    uint32_t passes = 0, left = seconds > 0 ? ask->step.most : 0, sum = 0;
    for (uint32_t i = 0; i < count; i++)
        place[i].take = 0, place[i].reach = 1;
    for (uint32_t pass = 0; pass < DRAFT_TOKENS_MAX && left > 0; pass++) {
        uint32_t n = add_pass(place, count, pass, left, all, ask, &tokens, &seconds);
        if (n == 0) break;
        left -= n;
        if (tokens / seconds <= best) continue;
        best = tokens / seconds;
        passes = pass + 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        place[i].take = min_u32(place[i].take, passes);
        sum += place[i].take;
    }
    for (uint32_t i = 0; i < count && ask->longer; i++) {
        struct draft_place *p = &place[i];
        bool last = p->take > 0 && p->take == passes && p->take < p->guessed;
        if (last && sum < ask->step.most) p->take++, sum++;
    }
    return sum;
}

uint32_t draft_probe(struct draft_place *place, uint32_t count, uint32_t lacks_max)
{
    struct draft_place *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct draft_place *p = &place[i];
        p->take = 0, p->reach = 1;
        if (p->guessed == 0 || p->lacks > lacks_max) continue;
        if (!best || p->lacks < best->lacks) best = p;
    }
    if (!best) return 0;
    best->take = min_u32(best->guessed, DRAFT_PROBE_TOKENS);
    return best->take;
}

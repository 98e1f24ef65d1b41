/* load_correction.c - computes the load correction, the error budget and the estimate by Little's law. */
#include "policies/scale/parts/load_correction.h"

#include <math.h>
#include <string.h>

#define LOAD_CORRECTION_GAIN 5e-4 /* ten times the misses expected for a minute: 7 % heavier */
#define MORE_LEAST (-0.15)        /* closer than MORE_MOST: too light requests break SLOs */
#define MORE_MOST 1.0             /* misses with twice the fleet have another cause */
#define MISSES_MIN 5.0            /* fewer within the readings tell little */
#define ENDED_MIN 20.0            /* requests within the readings */

static void forget(struct load_correction *b)
{
    memset(b->ended, 0, sizeof b->ended);
    memset(b->missed, 0, sizeof b->missed);
    memset(b->expected, 0, sizeof b->expected);
}

void load_correction_observe(struct load_correction *b, const struct load_correction_reading *r)
{
    uint32_t at = b->readings++ % LOAD_CORRECTION_READINGS;
    b->ended[at] = r->ended;
    b->missed[at] = r->missed;
    b->expected[at] = (float)(r->expected_share * r->ended);
    if (r->unsettled) forget(b);
    if (r->unsettled || !r->judge) return;
    double ended = 0, missed = 0, expected = 0;
    for (uint32_t i = 0; i < LOAD_CORRECTION_READINGS; i++) {
        ended += b->ended[i];
        missed += b->missed[i];
        expected += (double)b->expected[i];
    }
    if (ended < ENDED_MIN) return;
    double least = fmax(r->allowed_share * ended, MISSES_MIN);
    double step = LOAD_CORRECTION_GAIN * log(fmax(missed, least) / fmax(expected, least));
    b->more = fmin(fmax(b->more + step, MORE_LEAST), MORE_MOST);
}

double load_correction_factor(const struct load_correction *b)
{
    return 1 + b->more;
}

/* The error budget: saves misses and says how fast they may be spent. */

#define ERROR_BUDGET_S 3600.0 /* saved or owed at most: older hours were of another load */
#define COUNTED 0.97          /* of the allowed misses: some late requests have not ended yet */

void error_budget_observe(struct error_budget *a, uint32_t ended, uint32_t missed, double level,
                          double allowed)
{
    double most = allowed * level * ERROR_BUDGET_S;
    a->saved += COUNTED * allowed * ended - missed;
    a->saved = fmin(fmax(a->saved, -most), most);
}

double error_budget_parts(double budget, double allowed)
{
    double parts = allowed > 0 ? 1 + budget / allowed : 1;
    return fmin(parts, ERROR_BUDGET_PARTS_MAX);
}

/* Little's law, over sums that fade. */

#define TRUST 30.0 /* sessions that weigh as much as the prediction */

void littles_law_observe(struct littles_law *s, const struct scale_load *load,
                         const struct littles_law_reading *r)
{
    bool reset = !s->known || r->arrived < s->arrived || r->ended < s->ended;
    double passed = reset ? 0 : (double)(r->arrived - s->arrived + r->ended - s->ended) / 2;
    s->known = true;
    s->arrived = r->arrived;
    s->ended = r->ended;
    if (reset || r->backlog || r->ready <= 0 || r->dt_s <= 0 || r->dt_s > SESSIONS_GAP_S) return;
    double each = passed / r->dt_s / r->ready;
    double keep = exp(-r->dt_s / SESSIONS_MEMORY_S);
    s->held_s = s->held_s * keep + r->running * r->dt_s;
    s->passed_s =
        s->passed_s * keep + passed * scale_load_step_s(load, r->running / r->ready, each);
    s->seen_s = s->seen_s * keep + r->dt_s;
}

double littles_law_factor(const struct littles_law *s, double predicted)
{
    if (s->seen_s <= 0 || s->passed_s <= 0) return 1;
    double told = s->held_s / s->passed_s / fmax(predicted, 1);
    double count = s->held_s / s->seen_s, weight = count / (count + TRUST);
    return fmin(fmax(1 + weight * (told - 1), 1), SESSIONS_FACTOR_MAX);
}

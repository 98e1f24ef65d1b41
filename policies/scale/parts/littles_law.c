/* littles_law.c - Little's law over fading sums. */
#include "policies/scale/parts/littles_law.h"

#include <math.h>

#define TRUST 30.0 /* sessions: so many weigh as much as the prediction */

void sessions_observe(struct sessions *s, const struct scale_load *load,
                      const struct sessions_reading *r)
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

double sessions_factor(const struct sessions *s, double predicted)
{
    if (s->seen_s <= 0 || s->passed_s <= 0) return 1;
    double told = s->held_s / s->passed_s / fmax(predicted, 1);
    double count = s->held_s / s->seen_s, weight = count / (count + TRUST);
    return fmin(fmax(1 + weight * (told - 1), 1), SESSIONS_FACTOR_MAX);
}

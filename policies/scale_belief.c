/* scale_belief.c - a factor driven by the logarithm of counted over expected misses. */
#include "policies/scale_belief.h"

#include <math.h>
#include <string.h>

#define BELIEF_GAIN 5e-4
#define BELIEF_COUNTS_MIN 5.0 /* misses: fewer tell little */
#define BELIEF_LEAST (-0.15)
#define BELIEF_MOST 1.0
#define BELIEF_COUNT_MIN 20 /* ended requests within BELIEF_S */

static void forget(struct belief *b)
{
    memset(b->ended, 0, sizeof b->ended);
    memset(b->missed, 0, sizeof b->missed);
    memset(b->expected, 0, sizeof b->expected);
}

void belief_observe(struct belief *b, const struct belief_reading *r)
{
    uint32_t at = b->readings++ % BELIEF_S;
    b->ended[at] = r->ended;
    b->missed[at] = r->missed;
    b->expected[at] = (float)(r->expected_share * r->ended);
    if (r->unsettled) forget(b);
    if (r->unsettled || !r->judge) return;
    double ended = 0, missed = 0, expected = 0;
    for (uint32_t i = 0; i < BELIEF_S; i++) {
        ended += b->ended[i];
        missed += b->missed[i];
        expected += (double)b->expected[i];
    }
    if (ended < BELIEF_COUNT_MIN) return;
    double least = fmax(r->allowed_share * ended, BELIEF_COUNTS_MIN);
    double step = BELIEF_GAIN * log(fmax(missed, least) / fmax(expected, least));
    b->more = fmin(fmax(b->more + step, BELIEF_LEAST), BELIEF_MOST);
}

double belief_factor(const struct belief *b)
{
    return 1 + b->more;
}

/* load_correction.c - a factor driven by the logarithm of counted over expected misses. */
#include "policies/scale/parts/load_correction.h"

#include <math.h>
#include <string.h>

#define BELIEF_GAIN 5e-4   /* ten times the misses expected for a minute: 7 % heavier */
#define MORE_LEAST (-0.15) /* closer than MORE_MOST: who believes requests light breaks promises */
#define MORE_MOST 1.0      /* who misses with twice the fleet does so for another reason */
#define MISSES_MIN 5.0     /* fewer within the readings tell little */
#define ENDED_MIN 20.0     /* requests within the readings */

static void forget(struct belief *b)
{
    memset(b->ended, 0, sizeof b->ended);
    memset(b->missed, 0, sizeof b->missed);
    memset(b->expected, 0, sizeof b->expected);
}

void belief_observe(struct belief *b, const struct belief_reading *r)
{
    uint32_t at = b->readings++ % BELIEF_READINGS;
    b->ended[at] = r->ended;
    b->missed[at] = r->missed;
    b->expected[at] = (float)(r->expected_share * r->ended);
    if (r->unsettled) forget(b);
    if (r->unsettled || !r->judge) return;
    double ended = 0, missed = 0, expected = 0;
    for (uint32_t i = 0; i < BELIEF_READINGS; i++) {
        ended += b->ended[i];
        missed += b->missed[i];
        expected += (double)b->expected[i];
    }
    if (ended < ENDED_MIN) return;
    double least = fmax(r->allowed_share * ended, MISSES_MIN);
    double step = BELIEF_GAIN * log(fmax(missed, least) / fmax(expected, least));
    b->more = fmin(fmax(b->more + step, MORE_LEAST), MORE_MOST);
}

double belief_factor(const struct belief *b)
{
    return 1 + b->more;
}

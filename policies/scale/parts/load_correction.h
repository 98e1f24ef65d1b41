/* load_correction.h - how much heavier requests are than the model of the fleet says, told by misses.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * The model says which share of requests misses the promise with the fleet there is; the routers
 * count how many did. Over the last BELIEF_READINGS seconds of one and the same fleet, with m
 * missed where e were expected, the work of a request is corrected by a factor f,
 *
 *     f += BELIEF_GAIN log(max(m, p) / max(e, p))       each second,   0.85 <= f <= 2
 *
 * so that it comes to rest where the model's misses are those that are counted: lateness grows
 * about exponentially with load, therefore the logarithm. p are the misses that the promise allows,
 * and a few at least: how wrong the model is below that does not matter, and a fleet that is late
 * for one in ten thousand where it expected none must not be believed slower hour by hour.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define BELIEF_READINGS 60 /* a second each */

struct belief {
    uint32_t readings;
    uint32_t ended[BELIEF_READINGS], missed[BELIEF_READINGS]; /* by reading, rings */
    float expected[BELIEF_READINGS];                          /* misses */
    double more;                                              /* f - 1 */
};

/* About a second: requests that ended in it, those of them that missed the promise, the share that
 * the model expected to, corrected by belief_factor, and the share that may. */
struct belief_reading {
    uint32_t ended, missed;
    double expected_share, allowed_share;
    bool unsettled; /* another fleet or a backlog: what was seen so far says nothing of this one */
    bool judge;     /* false: help for expected misses is on its way, nothing is learned */
};
void belief_observe(struct belief *b, const struct belief_reading *r);

/* f; 1 at first. */
double belief_factor(const struct belief *b);

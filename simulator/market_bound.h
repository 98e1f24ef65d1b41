/* market_bound.h - what a service needs of a market, and what one who knew its future would pay for it.
 *
 * Layer:   simulator (base/core)
 * Threads: a need is read-only once it is made
 *
 * Need.  Requests a second by day and week: a sinusoid with its peak in the afternoon, less at the weekend, times slow
 *   noise (an autoregression of hours; assumed: nothing published gives a year). Between the moments of the list it is
 *   linear.
 * Clairvoyant.  It knows the year, begins with any fleet, and keeps the need at every moment at which the market can. Its
 *   cost is the larger of two estimates, in steps of MARKET_NEED_STEP_S:
 *
 *     whole    dynamic programming over the capacity that is ready. Holding it costs the cheapest whole numbers of
 *              instances, of what can be had then or could be held from before, that give it; more of it costs start-ups
 *              at their cheapest; less costs nothing. Instances may be exchanged for others for nothing, so that lost
 *              zones cost no start-up. Rounding is in its favour. No fleet that keeps the need costs less: a bound
 *     layers   the need in MARKET_LAYERS layers. Each has a place at a time (a type in a zone, spot or on demand) or,
 *              where it is not needed, none; every change of place pays a start-up, begun in time. Instances may be
 *              fractions. It is the cheapest such plan; no bound: whole instances cost more (half an instance on the mean,
 *              a fortieth at 20 instances), while layers that might trade places would save a start-up now and then
 *
 *   Neither leaves out a moment. A service that promises 99.5 % of the time may: so much less, and more where it leaves
 *   out the dearest, a clairvoyant with the same promise would pay.
 */
#pragma once
#include "simulator/market.h"

#define MARKET_NEED_STEP_S 300
#define MARKET_LAYERS 40
#define MARKET_UNITS 400 /* of capacity at the highest need */

struct market_need {
    float *rate_s; /* requests a second at each step */
    uint32_t count;
    double most_s;
};

/* Draws a need with so many requests a second at its usual peak. False: no memory. */
bool market_need_init(struct market_need *ret, uint64_t seed, uint32_t days, double peak_s);
void market_need_fini(struct market_need *n);
double market_need_at(const struct market_need *n, double at_s);

/* Names the pools that may be bought, by their requests a second (0: not this one), spot or on demand alone. */
struct market_choice {
    double rate_s[MARKET_POOLS];
    bool no_spot;
};

/* Return the dollars of the two estimates. */
double market_whole_cost(const struct market *m, const struct market_need *n,
                         const struct market_choice *may);
double market_layers_cost(const struct market *m, const struct market_need *n,
                          const struct market_choice *may);

/* Returns the dollars that a clairvoyant pays for the need: the larger of both. */
double market_clairvoyant(const struct market *m, const struct market_need *n,
                          const struct market_choice *may);

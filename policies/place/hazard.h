/* hazard.h - what is learned of a zone's spot capacity: how often it goes, when it is back.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure; the state is plain bytes
 *
 * Losses while we hold instances in a zone are a Poisson process of rate hazard, repairs one of
 * rate repair. Both rates have a gamma prior (one event within HAZARD_PRIOR_H hours of holding, one
 * within REPAIR_PRIOR_H hours of absence), so that after `losses` in `up_h` hours
 *
 *     hazard = (1 + losses) / (HAZARD_PRIOR_H + up_h)        posterior means
 *     repair = (1 + repairs) / (REPAIR_PRIOR_H + down_h)
 *     up(t)  = A + (s - A) exp(-(hazard + repair) t),  A = repair / (hazard + repair)
 *
 * up(t) is the chance that there is capacity t hours after it was seen in state s (1 or 0). An
 * absence is seen only when somebody asks: it is taken to end halfway between the last refusal and
 * the first success.
 */
#pragma once
#include "policies/place/place.h"

#define HAZARD_PRIOR_H 8.0 /* a middle zone of the public spot traces: 5 to 11 h between drops */
#define REPAIR_PRIOR_H 1.0
#define HAZARD_REACT_S 30.0 /* until a loss is seen, decided on and the provider has answered */

/* Hours from a loss until another instance serves in its place. */
static inline double hazard_gap_h(double lead_s)
{
    return (lead_s + HAZARD_REACT_S) / 3600;
}

struct hazard {
    uint32_t lost, refused, ready; /* the offer's counters as seen last */
    bool down;                     /* the last that was seen of it */
    float losses, repairs;
    double up_h, down_h;
    int64_t since_us; /* of the absence under way; 0: none */
    int64_t seen_us;  /* when the state was seen last; 0: never */
};

/* Takes in what the view says at now_us, dt_h hours after it was asked last. */
void hazard_observe(struct hazard *h, const struct place_offer *offer, double dt_h, int64_t now_us);

double hazard_rate_h(const struct hazard *h); /* losses an hour */

/* The chance that there is capacity now. */
double hazard_up(const struct hazard *h, int64_t now_us);

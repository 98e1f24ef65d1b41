/* bound.h - the fleet that knows what will come: a bound, not a policy.
 *
 * Layer: policies (base/core)
 * Rules: the future comes through this pointer alone, which only the simulator can make; no view
 *        holds it and no policy of scale_table takes it
 *
 *     need(t) = ceil(arrivals a second around t / what one instance serves), with the lengths
 *               that really come, using the whole SLO and no margin
 *     want(t) = the most needed within [t, t + lead]: launched exactly so early that it is ready
 *
 * It pays start-up like everybody else, and so keeps an instance over a gap that is shorter than a
 * new launch would take.
 */
#pragma once
#include "policies/scale/scale.h"

#define SCALE_BOUND_NAME "clairvoyant"
#define SCALE_BOUND_ABOUT "knows what will come and pays start-up: a bound, only in the simulator"
#define SCALE_BOUND_SOURCE "bound"

/* Requests in order of time, with their true lengths. */
struct scale_future {
    const int64_t *at_us;
    const uint32_t *prompt_tokens, *output_tokens;
    uint32_t count;
};

/* Instances of `pool` that the requests within half_s on both sides of t_us keep busy. */
double scale_bound_need(const struct scale_future *f, const struct scale_pool *pool,
                        double ttft_slo_s, double tpot_slo_s, int64_t t_us, double half_s);

/* need[k] is of the k-th second; fills gaps shorter than lead_s, then looks lead_s ahead. In
 * place. */
void scale_bound_plan(uint16_t *need, uint32_t seconds, double lead_s);

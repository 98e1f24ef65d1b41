/* bound.h - plans the least fleet from requests known in advance: a bound, not a policy.
 *
 * Layer: policies (base/core)
 * Rules: the future is in struct scale_future alone, which only the simulator can fill; no view
 *        holds it and no policy of scale_table takes it
 *
 *     need(t) = ceil(arrivals a second around t / requests a second of one instance), with the true
 *               lengths, using the whole SLO and no margin
 *     want(t) = the most needed within [t, t + lead]: each instance is launched just early enough
 *
 * It pays start-up as every policy does, and so keeps an instance over a gap that is shorter than a
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

/* Returns the instances of `pool`, not rounded, that serve the requests arriving within half_s before
 * or after t_us; HUGE_VAL when one instance alone misses the SLO. */
double scale_bound_need(const struct scale_future *f, const struct scale_pool *pool,
                        double ttft_slo_s, double tpot_slo_s, int64_t t_us, double half_s);

/* Turns need[k], the instances needed in the k-th second, into the instances to want, in place: fills
 * gaps shorter than lead_s, then raises each second to the most needed within lead_s after it. */
void scale_bound_plan(uint16_t *need, uint32_t seconds, double lead_s);

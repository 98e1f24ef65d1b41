/* plan_place.h - where the instances of a pool stand among its offers, as its placement row says.
 *
 * Layer:   controller/core (policies, base/core)
 * Threads: pure
 * Rules:   the row is asked once a decision with the real target ; where only a price is wanted, on a
 *          copy of its state
 */
#pragma once
#include "controller/core/plan.h"

/* True when the offer is in no back-off and its price, where there is a budget, is known. */
bool plan_offer_usable(const struct plan_view *view, const struct plan_service *service,
                       uint32_t offer, int64_t now_us);

/* The question for the row: the pool's offers, and what of ours stands at each. */
void plan_place_view(const struct plan_view *view, uint32_t service, uint32_t pool, uint32_t target,
                     int64_t now_us, struct place_view *ret);

/* The offer that one more instance would come from, or PLAN_NONE; changes no state. */
uint32_t plan_place_offer(const struct plan_view *view, uint32_t service, uint32_t pool,
                          const void *state, int64_t now_us, const struct rng *rng);

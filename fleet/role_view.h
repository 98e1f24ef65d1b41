/* role_view.h - the view of role policies: the demand, and speeds lent to instances without one.
 *
 * Layer:   fleet (policies/role, base/perf)
 * Threads: pure
 */
#pragma once
#include "policies/role/role.h"
#include "policies/scale/view.h"

/* Prompts less what caches held, outputs as predicted: the lengths that routers expect to come. */
struct role_demand role_demand_of(const struct scale_demand *d);

/* An instance that has computed nothing yet does not know its speed: it is taken for as fast as
 * another instance of its offer, or as the offer's prior says. `offer` is parallel to `instance`,
 * UINT32_MAX for an unknown one; `prior` has offer_count places, NULL where there is none, and is
 * overwritten. */
void role_lend_speeds(struct role_instance *instance, const uint32_t *offer, uint32_t count,
                      const struct perf_coef **prior, uint32_t offer_count);

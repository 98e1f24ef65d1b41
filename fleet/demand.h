/* demand.h - the demand for a service as its routers report it, and as policies see it.
 *
 * Layer:   fleet (policies, base/wire, base/perf)
 * Threads: pure functions over the caller's structs
 * Rules:   (1) absent is not zero: a router that is silent for longer than DEMAND_FRESH_US adds
 *              nothing, and a demand to which no router adds is not present
 *          (2) quantiles cannot be added: the worst router's counts
 *          (3) a router's counters begin at zero with each boot; what it counted before it was
 *              first heard is not counted
 */
#pragma once
#include "base/wire/sync.h"
#include "policies/role/role.h"
#include "policies/scale/view.h"

#define DEMAND_FRESH_US ((int64_t)3000000) /* six syncs */
#define DEMAND_COUNT_MIN 10 /* responses in a window before their P90 means anything */

/* One service through one router. */
struct demand_seen {
    struct service_demand last; /* without its strings */
    bool present;
    int64_t arrived_us;  /* when its arrivals last rose */
    double cached_share; /* of prompt tokens, decayed mean */
};

/* What routers have counted for a service since they were first heard. */
struct demand_counted {
    uint64_t arrivals, met, missed;
};

/* Takes a report; same_boot: the router has not started again since the last. */
void demand_heard(struct demand_seen *d, struct demand_counted *counted,
                  const struct service_demand *report, bool same_boot, int64_t now_us);

/* What one router last reported for the service, and when it was last heard. */
struct demand_source {
    const struct demand_seen *seen;
    int64_t heard_us;
};

static inline bool demand_is_fresh(int64_t heard_us, int64_t now_us)
{
    return now_us - heard_us <= DEMAND_FRESH_US;
}

/* The demand over all routers. `waiting`: requests that engines have accepted and do not compute
 * yet. Returns true when no source is stale. */
bool demand_merge(const struct demand_source *source, uint32_t count,
                  const struct demand_counted *counted, uint32_t waiting, int64_t now_us,
                  struct scale_demand *ret);

/* The view of role policies: the demand, and speeds lent to instances without one.
 *
 * Threads: pure
 */

/* Prompts less what caches held, outputs as predicted: the lengths that routers expect to come. */
struct role_demand role_demand_of(const struct scale_demand *d);

/* An instance that has computed nothing yet does not know its speed: it is taken for as fast as
 * another instance of its offer, or as the offer's prior says. `offer` is parallel to `instance`,
 * UINT32_MAX for an unknown one; `prior` has offer_count places, NULL where there is none, and is
 * overwritten. */
void role_lend_speeds(struct role_instance *instance, const uint32_t *offer, uint32_t count,
                      const struct perf_coef **prior, uint32_t offer_count);

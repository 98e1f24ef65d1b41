/* demand.h - merges the demand that routers report for a service into the demand that policies see.
 *
 * Layer:   fleet (policies, base/wire, base/perf)
 * Threads: pure functions over the caller's structs
 * Rules:   (1) absent is not zero: a router that is silent for longer than DEMAND_FRESH_US adds
 *              nothing, and a demand to which no router adds is not present
 *          (2) quantiles cannot be added: the worst router's value is used
 *          (3) a router's counters begin at zero with each boot; requests that it counted before its
 *              first report are left out
 */
#pragma once
#include "base/wire/sync.h"
#include "policies/role/role.h"
#include "policies/scale/view.h"

#define DEMAND_FRESH_US ((int64_t)3000000) /* six syncs */
#define DEMAND_COUNT_MIN 10 /* responses in a window before their P90 means anything */

/* The demand for one service through one router. */
struct demand_seen {
    struct service_demand last; /* without its strings */
    bool present;
    int64_t arrived_us;  /* last report with new arrivals or held requests */
    double cached_share; /* cached part of prompt tokens, decayed mean */
};

/* Requests that routers have counted for a service since their first reports. */
struct demand_counted {
    uint64_t arrivals, met, missed;
    /* Of outputs, and of prompts less what was cached; whoever takes them clears it. */
    uint64_t tokens;
};

/* Takes in a router's report. same_boot: the router has not restarted since its last one. */
void demand_heard(struct demand_seen *d, struct demand_counted *counted,
                  const struct service_demand *report, bool same_boot, int64_t now_us);

/* One router's last report for the service, and when the router was last heard. */
struct demand_source {
    const struct demand_seen *seen;
    int64_t heard_us;
};

static inline bool demand_is_fresh(int64_t heard_us, int64_t now_us)
{
    return now_us - heard_us <= DEMAND_FRESH_US;
}

/* Sums the demand over all routers into *ret. `waiting`: requests that engines have accepted and do
 * not compute yet. Returns true when no source is stale. */
bool demand_merge(const struct demand_source *source, uint32_t count,
                  const struct demand_counted *counted, uint32_t waiting, int64_t now_us,
                  struct scale_demand *ret);

/* Role policies see the demand, and a speed for each instance, lent where it has none.
 *
 * Threads: pure
 */

/* Returns the lengths of the requests that routers expect: prompt tokens not in a cache, and
 * predicted output tokens. */
struct role_demand role_demand_of(const struct scale_demand *d);

/* Lends a speed to each instance that has computed nothing yet and so does not know its own: the
 * speed of another instance of its offer, or else the offer's prior. `offer` is parallel to
 * `instance`, UINT32_MAX for an unknown one; `prior` has offer_count places, NULL where there is none,
 * and is overwritten. */
void role_lend_speeds(struct role_instance *instance, const uint32_t *offer, uint32_t count,
                      const struct perf_coef **prior, uint32_t offer_count);

/* control_metrics.h - lists the controller's metrics in one table.
 *
 * Layer: controller (base/io)
 */
#pragma once
#include "base/io/metrics.h"

enum control_metric {
    CONTROL_M_INSTANCES,
    CONTROL_M_TARGET,
    CONTROL_M_COST_PER_HOUR,
    CONTROL_M_COST_TOTAL,
    CONTROL_M_ACTIONS,
    CONTROL_M_CALLS,
    CONTROL_M_CALLS_DEFERRED,
    CONTROL_M_CALLS_UNDER_WAY,
    CONTROL_M_LISTING_AGE,
    CONTROL_M_LOST,
    CONTROL_M_DECISIONS,
    CONTROL_M_REPORTS,
    CONTROL_M_SYNCS,
    CONTROL_M_ROUTERS,
    CONTROL_M_TENANTS,
    CONTROL_M_ADOPTED,
    CONTROL_M_DUPLICATES,
    CONTROL_M_STORE_FAILURES,
    CONTROL_M_LIST_FAILURES,
    CONTROL_M_BOUNDS,
    CONTROL_M_REFUSED,
    CONTROL_M_STREAMS,
    CONTROL_M_WATTS,
    CONTROL_M_BREAKER,
    CONTROL_M_TICK_SECONDS,
    CONTROL_M_HTTP_CONNECTIONS,
    CONTROL_M_HTTP_REFUSED,
    CONTROL_M_HTTP_CUT,
    CONTROL_M_SIGNED,
    CONTROL_M_HTTP_CLOSED,
    CONTROL_M_LOG_LOST,
    CONTROL_M_ROLES,
    CONTROL_M_ROLE_CHANGES,
    CONTROL_M_DATE_STEPS,
    CONTROL_M_LATE,
    CONTROL_M_UNREADABLE,
    CONTROL_M_LEADER,
    CONTROL_M_EPOCH,
    CONTROL_M_TERMS,
    CONTROL_M_STORE_REACHED,
    CONTROL_M_COUNT
};
extern const struct metric_desc control_metric_table[CONTROL_M_COUNT];

/* Sets the gauges that describe the fleet to 0: this process does not lead it any more. */
void control_metrics_rest(struct metrics *m);

/* control_metrics.h - the controller's metrics, one row each.
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
    CONTROL_M_TICK_SECONDS,
    CONTROL_M_HTTP_CONNECTIONS,
    CONTROL_M_HTTP_REFUSED,
    CONTROL_M_HTTP_CUT,
    CONTROL_M_LOG_LOST,
    CONTROL_M_ROLES,
    CONTROL_M_ROLE_CHANGES,
    CONTROL_M_COUNT
};
extern const struct metric_desc control_metric_table[CONTROL_M_COUNT];

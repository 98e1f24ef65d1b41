/* control_metrics.c - what the controller counts. */
#include "controller/control_metrics.h"

#include "base/core/bits.h"

static const double tick_bounds[] = { 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3 };

// clang-format off
const struct metric_desc control_metric_table[CONTROL_M_COUNT] = {
    [CONTROL_M_INSTANCES] = { .name = "muster_controller_instances", .type = METRIC_GAUGE,
        .help = "Instances by service, pool and phase.", .labels = { "service", "pool", "phase" },
        .series_max = 512 },
    [CONTROL_M_TARGET] = { .name = "muster_controller_target_instances", .type = METRIC_GAUGE,
        .help = "Instances that the last decision aims at.", .labels = { "service", "pool" },
        .series_max = 128 },
    [CONTROL_M_COST_PER_HOUR] = { .name = "muster_controller_cost_per_hour_dollars",
        .type = METRIC_GAUGE, .unit = "dollars",
        .help = "Price of everything that may be billed now.", .labels = { "service" } },
    [CONTROL_M_COST_TOTAL] = { .name = "muster_controller_cost_dollars", .type = METRIC_GAUGE,
        .unit = "dollars", .help = "Cost since the store was made." },
    [CONTROL_M_ACTIONS] = { .name = "muster_controller_actions_total", .type = METRIC_COUNTER,
        .help = "Actions of decisions.", .labels = { "act" } },
    [CONTROL_M_CALLS] = { .name = "muster_controller_cloud_calls_total", .type = METRIC_COUNTER,
        .help = "Calls to providers by their result.", .labels = { "provider", "call", "result" },
        .series_max = 128 },
    [CONTROL_M_DECISIONS] = { .name = "muster_controller_decisions_total", .type = METRIC_COUNTER,
        .help = "Decisions recorded." },
    [CONTROL_M_REPORTS] = { .name = "muster_controller_agent_reports_total",
        .type = METRIC_COUNTER, .help = "Reports of agents.", .labels = { "result" } },
    [CONTROL_M_SYNCS] = { .name = "muster_controller_router_syncs_total", .type = METRIC_COUNTER,
        .help = "Syncs of routers." },
    [CONTROL_M_ROUTERS] = { .name = "muster_controller_routers", .type = METRIC_GAUGE,
        .help = "Routers known, fresh and silent.", .labels = { "state" } },
    [CONTROL_M_TENANTS] = { .name = "muster_controller_tenants", .type = METRIC_GAUGE,
        .help = "Tenants." },
    [CONTROL_M_ADOPTED] = { .name = "muster_controller_adopted_total", .type = METRIC_COUNTER,
        .help = "Instances found without an intent and adopted." },
    [CONTROL_M_DUPLICATES] = { .name = "muster_controller_duplicates_total",
        .type = METRIC_COUNTER, .help = "Second instances under one intent, removed." },
    [CONTROL_M_STORE_FAILURES] = { .name = "muster_controller_store_failures_total",
        .type = METRIC_COUNTER, .help = "Records that could not be written." },
    [CONTROL_M_LIST_FAILURES] = { .name = "muster_controller_list_failures_total",
        .type = METRIC_COUNTER, .help = "Listings that failed.", .labels = { "provider" } },
    [CONTROL_M_BOUNDS] = { .name = "muster_controller_bounds_reached_total",
        .type = METRIC_COUNTER, .help = "Times a named bound was reached.", .labels = { "bound" } },
    [CONTROL_M_REFUSED] = { .name = "muster_controller_requests_refused_total",
        .type = METRIC_COUNTER, .help = "API requests refused.", .labels = { "reason" } },
    [CONTROL_M_STREAMS] = { .name = "muster_controller_streams", .type = METRIC_GAUGE,
        .help = "Open event streams." },
    [CONTROL_M_TICK_SECONDS] = { .name = "muster_controller_tick_seconds",
        .type = METRIC_HISTOGRAM, .unit = "seconds", .help = "Observe, plan and act, once.",
        .buckets = tick_bounds, .bucket_count = COUNT_OF(tick_bounds) },
};
// clang-format on

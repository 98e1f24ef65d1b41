/* metrics.c - the table. Buckets follow vLLM's for TTFT and end-to-end time, with finer steps below
 * 10 ms for TPOT, where small models live. */
#include "router/metrics.h"

#include "base/core/bits.h"

static const double ttft_s[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                 0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160 };
static const double tpot_s[] = { 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01,
                                 0.015,  0.02,  0.025, 0.03,  0.04,  0.05,  0.075,  0.1,
                                 0.15,   0.2,   0.3,   0.5,   1,     2.5 };
static const double e2e_s[] = { 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                10,   15,  20,  30,  40,  50, 60,  120, 240, 480 };
static const double decision_s[] = { 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4,
                                     2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2 };

#define BUCKETS(list) .buckets = list, .bucket_count = COUNT_OF(list)

// clang-format off
const struct metric_desc router_metric_table[RM_COUNT] = {
    [RM_REQUESTS] = { .name = "muster_router_requests_total", .type = METRIC_COUNTER,
        .labels = { "outcome" }, .help = "Requests by how they ended." },
    [RM_RETRIES] = { .name = "muster_router_retries_total", .type = METRIC_COUNTER,
        .labels = { "failure" }, .help = "Attempts that failed, by kind of failure." },
    [RM_HELD] = { .name = "muster_router_held_requests", .type = METRIC_GAUGE, .unit = "requests",
        .help = "Requests that wait for an instance now." },
    [RM_IN_FLIGHT] = { .name = "muster_router_in_flight_requests", .type = METRIC_GAUGE,
        .unit = "requests", .help = "Requests sent to engines and not ended." },
    [RM_ENDPOINTS] = { .name = "muster_router_endpoints", .type = METRIC_GAUGE,
        .unit = "endpoints", .help = "Endpoints that take requests now." },
    [RM_HOLD_SECONDS] = { .name = "muster_router_hold_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(e2e_s), .help = "Time that held requests waited." },
    [RM_TTFT] = { .name = "muster_router_time_to_first_token_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(ttft_s), .help = "From arrival to the first token." },
    [RM_TPOT] = { .name = "muster_router_time_per_output_token_seconds", .unit = "seconds",
        .type = METRIC_HISTOGRAM, BUCKETS(tpot_s),
        .help = "Mean time of a token after the first, by request." },
    [RM_E2E] = { .name = "muster_router_request_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(e2e_s), .help = "From arrival to the end." },
    [RM_DECISION_SECONDS] = { .name = "muster_router_decision_seconds", .type = METRIC_HISTOGRAM,
        .unit = "seconds", BUCKETS(decision_s), .help = "Time one routing decision took." },
    [RM_PROMPT_TOKENS] = { .name = "muster_router_prompt_tokens_total", .type = METRIC_COUNTER,
        .unit = "tokens", .help = "Prompt tokens of requests that were answered." },
    [RM_CACHED_TOKENS] = { .name = "muster_router_cached_tokens_total", .type = METRIC_COUNTER,
        .unit = "tokens", .help = "Of those, found in an engine's cache." },
    [RM_EXPECTED_TOKENS] = { .name = "muster_router_expected_cached_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER, .help = "Of those, expected to be cached by the prefix index." },
    [RM_GENERATED_TOKENS] = { .name = "muster_router_generated_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER, .help = "Tokens generated for clients." },
    [RM_TTFT_ERROR] = { .name = "muster_router_ttft_error_seconds_total", .type = METRIC_COUNTER,
        .unit = "seconds", .help = "Absolute difference of predicted and measured TTFT, summed." },
    [RM_LENGTH_COVERED] = { .name = "muster_router_length_predictions_total",
        .type = METRIC_COUNTER, .labels = { "within_p90" },
        .help = "Finished answers, by whether they stayed within the predicted P90." },
    [RM_QUESTION_TOKENS] = { .name = "muster_router_question_tokens_total", .unit = "tokens",
        .type = METRIC_COUNTER,
        .help = "Tokens read and written to ask models how long answers will be." },
    [RM_INDEX_BYTES] = { .name = "muster_router_index_bytes", .type = METRIC_GAUGE,
        .unit = "bytes", .help = "Memory that the prefix index holds." },
    [RM_INDEX_BLOCKS] = { .name = "muster_router_index_blocks", .type = METRIC_GAUGE,
        .unit = "blocks", .help = "Blocks that the prefix index knows." },
    [RM_INDEX_BLOCKS_MAX] = { .name = "muster_router_index_blocks_max", .type = METRIC_GAUGE,
        .unit = "blocks", .help = "Blocks that it has room for." },
    [RM_INDEX_EVICTED] = { .name = "muster_router_index_evicted_blocks", .type = METRIC_GAUGE,
        .unit = "blocks", .help = "Blocks forgotten at the index's bound since the start." },
    [RM_SYNC_AGE] = { .name = "muster_router_sync_age_seconds", .type = METRIC_GAUGE,
        .unit = "seconds", .help = "Age of the controller's last word; -1 before the first." },
    [RM_RATE_LIMITED] = { .name = "muster_router_rate_limited_total", .type = METRIC_COUNTER,
        .help = "Requests refused by their tenant's limits." },
    [RM_POLICY] = { .name = "muster_router_policy_info", .type = METRIC_GAUGE,
        .labels = { "kind", "row" }, .series_max = 64,
        .help = "1, labelled with the row of each kind that decides; 0 for one that did before." },
    [RM_HTTP_CONNECTIONS] = { .name = "muster_router_http_connections", .type = METRIC_GAUGE,
        .help = "Client connections that are open." },
    [RM_HTTP_REFUSED] = { .name = "muster_router_http_refused_total", .type = METRIC_COUNTER,
        .labels = { "reason" },
        .help = "Requests and connections that never came to a handler: malformed, too large, late." },
    [RM_HTTP_CUT] = { .name = "muster_router_http_cut_total", .type = METRIC_COUNTER,
        .labels = { "reason" }, .help = "Replies that did not come to their end." },
    [RM_LOG_LOST] = { .name = "muster_router_log_lost_lines", .type = METRIC_GAUGE,
        .unit = "lines", .help = "Log lines that could not be written since the start." },
};
// clang-format on

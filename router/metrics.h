/* metrics.h - the router's own metrics: one table, ids in its order.
 *
 * Layer:   router (base/io)
 * Threads: any (base/io/metrics.h)
 */
#pragma once
#include "base/io/metrics.h"

enum router_metric {
    RM_REQUESTS,
    RM_RETRIES,
    RM_CONTINUED,
    RM_HANDOVERS,
    RM_FETCHES,
    RM_MOVES,
    RM_MOVES_DROPPED,
    RM_HELD,
    RM_IN_FLIGHT,
    RM_ENDPOINTS,
    RM_HOLD_SECONDS,
    RM_TTFT,
    RM_TPOT,
    RM_E2E,
    RM_DECISION_SECONDS,
    RM_PROMPT_TOKENS,
    RM_CACHED_TOKENS,
    RM_EXPECTED_TOKENS,
    RM_GENERATED_TOKENS,
    RM_TTFT_ERROR,
    RM_LENGTH_COVERED,
    RM_QUESTION_TOKENS,
    RM_INDEX_BYTES,
    RM_INDEX_BLOCKS,
    RM_INDEX_BLOCKS_MAX,
    RM_INDEX_EVICTED,
    RM_SYNC_AGE,
    RM_RATE_LIMITED,
    RM_POLICY,
    RM_HTTP_CONNECTIONS,
    RM_HTTP_REFUSED,
    RM_HTTP_CUT,
    RM_HTTP_REQUESTS,
    RM_HTTP_RECEIVED,
    RM_HTTP_SENT,
    RM_HTTP_HELD,
    RM_UPSTREAM_CONNECTIONS,
    RM_UPSTREAM_CONNECTS,
    RM_UPSTREAM_REUSED,
    RM_UPSTREAM_STALE,
    RM_UPSTREAM_REFUSED,
    RM_LOOP_TURNS,
    RM_LOOP_POSTS_REFUSED,
    RM_LOG_LOST,
    RM_COUNT
};

extern const struct metric_desc router_metric_table[RM_COUNT];

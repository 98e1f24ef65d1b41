/* metrics.h - names the metrics that an agent exports for an engine of another kind.
 *
 * Layer:   agent (base/io)
 * Threads: as struct metrics
 */
#pragma once
#include "base/io/metrics.h"

enum agent_metric {
    AM_ENGINE_READY,
    AM_RUNNING,
    AM_WAITING,
    AM_KV_TOKENS,
    AM_KV_TOKENS_MAX,
    AM_REQUESTS,
    AM_PROMPT_TOKENS,
    AM_CACHED_TOKENS,
    AM_GENERATED_TOKENS,
    AM_RESTARTS,
    AM_FOLLOWERS,
    AM_KV_CONNECTED,
    AM_KV_BLOCKS,
    AM_KV_KEYS,
    AM_KV_MESSAGES,
    AM_KV_GAPS,
    AM_KV_MALFORMED,
    AM_KV_SKIPPED,
    AM_SIGNED,
    AM_LOG_LOST,
    AM_COUNT
};

extern const struct metric_desc agent_metric_table[AM_COUNT];

/* metrics.c - the table of an agent's metrics.
 *
 * Totals of an engine are gauges here: they are the engine's own counters, which begin again with it. */
#include "agent/metrics.h"

#define GAUGE(meter_name, of, text)                                                            \
    {                                                                                          \
        .name = "muster_agent_" meter_name, .type = METRIC_GAUGE, .unit = (of), .help = (text) \
    }
#define ENGINE(meter_name, of, text)                                                            \
    {                                                                                           \
        .name = "muster_agent_" meter_name, .type = METRIC_GAUGE, .unit = (of), .help = (text), \
        .labels = {                                                                             \
            "kind"                                                                              \
        }                                                                                       \
    }

// clang-format off
const struct metric_desc agent_metric_table[AM_COUNT] = {
    [AM_ENGINE_READY] = ENGINE("engine_ready", NULL, "1 while the engine takes requests, by its kind."),
    [AM_RUNNING] = ENGINE("engine_running_requests", "requests", "Requests that the engine computes."),
    [AM_WAITING] = ENGINE("engine_waiting_requests", "requests", "Requests that the engine queues."),
    [AM_KV_TOKENS] = ENGINE("engine_kv_tokens", "tokens", "Tokens that its running requests hold in KV memory."),
    [AM_KV_TOKENS_MAX] = ENGINE("engine_kv_tokens_max", "tokens", "Tokens that its KV memory has room for; 0: it does not say."),
    [AM_REQUESTS] = ENGINE("engine_requests", "requests", "Requests finished since the engine started."),
    [AM_PROMPT_TOKENS] = ENGINE("engine_prompt_tokens", "tokens", "Prompt tokens since then."),
    [AM_CACHED_TOKENS] = ENGINE("engine_cached_tokens", "tokens", "Of those, found in its cache."),
    [AM_GENERATED_TOKENS] = ENGINE("engine_generated_tokens", "tokens", "Tokens generated since then."),
    [AM_RESTARTS] = GAUGE("engine_restarts", NULL, "Engines started after the first."),
    [AM_FOLLOWERS] = GAUGE("followers", NULL, "Routers that follow the engine's load and cache."),
    [AM_KV_CONNECTED] = GAUGE("kv_connected", NULL, "1 while KV events of the engine come."),
    [AM_KV_BLOCKS] = GAUGE("kv_blocks", "blocks", "Blocks of the engine that are known."),
    [AM_KV_KEYS] = GAUGE("kv_keys", "blocks", "Blocks of ours that they cover, as routers are told."),
    [AM_KV_MESSAGES] = GAUGE("kv_messages", NULL, "Messages with KV events taken."),
    [AM_KV_GAPS] = GAUGE("kv_gaps", NULL, "Gaps in their numbers."),
    [AM_KV_MALFORMED] = GAUGE("kv_malformed", NULL, "Messages that could not be read; each drops what was known."),
    [AM_KV_SKIPPED] = { .name = "muster_agent_kv_skipped_blocks", .type = METRIC_GAUGE, .unit = "blocks",
                        .help = "Blocks that were left out: `orphan` on an unknown one, `unsupported` of adapters, "
                                "images or other memory, `full` at the bound.",
                        .labels = { "reason" } },
    [AM_SIGNED] = { .name = "muster_agent_signed_requests_total", .type = METRIC_COUNTER,
                    .help = "Requests that a part signed, by what became of them, as for the router.",
                    .labels = { "verdict" } },
    [AM_LOG_LOST] = GAUGE("log_lost_lines", "lines", "Log lines dropped because nothing took them."),
};
// clang-format on

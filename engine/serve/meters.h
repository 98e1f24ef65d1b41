/* meters.h - the engine's metrics: one table, handles made at start.
 *
 * Layer:   engine/serve (base/io/metrics.h)
 * Threads: meters_* from any thread (the metrics are atomic)
 */
#pragma once
#include "base/io/metrics.h"
#include "engine/core/scheduler.h"

enum meter {
    METER_TTFT,
    METER_ITL,
    METER_TPOT,
    METER_E2E,
    METER_QUEUE,
    METER_PREFILL,
    METER_DECODE,
    METER_PROMPT_LENGTH,
    METER_OUTPUT_LENGTH,
    METER_STEP,
    METER_STEP_TOKENS,
    METER_PROMPT_TOKENS,
    METER_GENERATED_TOKENS,
    METER_PREFIX_QUERIES,
    METER_PREFIX_HITS,
    METER_PREEMPTIONS,
    METER_PARKED,
    METER_PAGES_COPIED,
    METER_SWAPS,
    METER_SWAPPED,
    METER_EVICTIONS,
    METER_KV_PULLS,
    METER_KV_PULLED,
    METER_KV_SENT,
    METER_FINISHED,
    METER_REFUSED,
    METER_TEXT_BYTES,
    METER_TEXT_REFUSED,
    METER_TEXT_SECONDS,
    METER_HTTP_REQUESTS,
    METER_HTTP_CONNECTIONS,
    METER_HTTP_REFUSED,
    METER_HTTP_CUT,
    METER_SIGNED,
    METER_HTTP_CLOSED,
    METER_LOG_LOST,
    METER_RUNNING,
    METER_WAITING,
    METER_PAUSED,
    METER_OWED,
    METER_KV_USAGE,
    METER_KV_PAGES,
    METER_PERF,
    METER_PERF_SAMPLES,
    METER_PERF_RATIO,
    METER_STALLS,
    METER_STALLED,
    METER_THROTTLED,
    METER_CLOCK,
    METER_INFO,
    METER_POLICY,
    METER_COUNT
};

extern const struct metric_desc meter_table[METER_COUNT];

struct meters {
    struct metrics *metrics;
    struct metric_series *finished[SESSION_END_COUNT];
    struct metric_series *pages[3];   /* free, held, cached */
    struct metric_series *swapped[2]; /* out, in */
    struct metric_series *perf[5];    /* a b c d e */
};

int meters_init(struct meters *m, struct err *err);
void meters_fini(struct meters *m);

static inline struct metric_series *meter_of(const struct meters *m, enum meter which)
{
    return metric_of(m->metrics, which);
}

/* What the scheduler has counted since `before`, and its gauges. */
void meters_counts(struct meters *m, const struct sched_counts *before,
                   const struct sched_counts *now);

/* Times of a session that has ended; first_us and last_us are of its tokens, 0 for none. */
void meters_ended(struct meters *m, const struct session *session, int64_t last_us);

/* Says which row of a kind decides here; NULL: none, and nothing is said. */
void meters_policy(struct meters *m, const char *kind, const char *row);

void meters_http(struct meters *m, struct str path, int status);

/* The names that vLLM's dashboards, scalers and endpoint pickers read. */
int meters_render_vllm(const struct meters *m, struct str model, struct buf *out);

/* metrics.h - keeps the engine's metrics, one table with handles made at start, and the step log.
 *
 * Layer:   engine/serve (base/io/metrics.h)
 * Threads: engine_metrics_* from any thread (the metrics are atomic)
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/io/metrics.h"
#include "base/perf/perf.h"
#include "engine/core/scheduler.h"
#include "engine/serve/drafter.h"

#include <stdio.h>

enum engine_metric {
    EM_TTFT,
    EM_ITL,
    EM_TPOT,
    EM_E2E,
    EM_QUEUE,
    EM_PREFILL,
    EM_DECODE,
    EM_PROMPT_LENGTH,
    EM_OUTPUT_LENGTH,
    EM_STEP,
    EM_STEP_PREDICTED,
    EM_STEP_TOKENS,
    EM_PROMPT_TOKENS,
    EM_GENERATED_TOKENS,
    EM_DRAFTED,
    EM_ACCEPTED,
    EM_DRAFT_GUESSED,
    EM_DRAFT_COMPUTED,
    EM_DRAFT_SECONDS,
    EM_DRAFT_KV_BYTES,
    EM_DRAFT_KV_PAGES,
    EM_PREFIX_QUERIES,
    EM_PREFIX_HITS,
    EM_PREEMPTIONS,
    EM_PARKED,
    EM_SWAPS,
    EM_SWAPPED,
    EM_EVICTIONS,
    EM_KV_FETCHES,
    EM_KV_FETCHED,
    EM_KV_SENT,
    EM_FINISHED,
    EM_REFUSED,
    EM_EMBEDDED,
    EM_ADAPTERS,
    EM_ADAPTER_BYTES,
    EM_ADAPTER_REQUESTS,
    EM_TEXT_BYTES,
    EM_TEXT_REFUSED,
    EM_TEXT_SECONDS,
    EM_HTTP_REQUESTS,
    EM_HTTP_CONNECTIONS,
    EM_HTTP_REFUSED,
    EM_HTTP_CUT,
    EM_SIGNED,
    EM_HTTP_CLOSED,
    EM_TRACE_SPANS,
    EM_TRACE_EXPORTS,
    EM_TRACE_REQUESTS,
    EM_TRACE_IGNORED,
    EM_LOG_LOST,
    EM_RUNNING,
    EM_WAITING,
    EM_PAUSED,
    EM_OWED,
    EM_KV_USAGE,
    EM_KV_PAGES,
    EM_PERF,
    EM_PERF_SAMPLES,
    EM_PERF_RATIO,
    EM_STALLS,
    EM_STALLED,
    EM_THROTTLED,
    EM_CLOCK,
    EM_SLEEPING,
    EM_INFO,
    EM_POLICY,
    EM_COUNT
};

extern const struct metric_desc engine_metric_table[EM_COUNT];

struct engine_metrics {
    struct metrics *metrics;
    struct metric_series *finished[SESSION_END_COUNT];
    struct metric_series *pages[3];       /* free, held, cached */
    struct metric_series *draft_pages[2]; /* free, held */
    struct metric_series *swapped[2];     /* out, in */
    struct metric_series *perf[5];        /* a b c d e */
};

int engine_metrics_init(struct engine_metrics *m, struct err *err);
void engine_metrics_fini(struct engine_metrics *m);

static inline struct metric_series *engine_metric(const struct engine_metrics *m,
                                                  enum engine_metric which)
{
    return metric_of(m->metrics, which);
}

/* Adds what the scheduler has counted since `before`, and sets its gauges. */
void engine_metrics_counts(struct engine_metrics *m, const struct sched_counts *before,
                           const struct sched_counts *now);

/* Adds what the draft model has done since `before`, and sets its gauges. */
void engine_metrics_drafter(struct engine_metrics *m, const struct drafter_counts *before,
                            const struct drafter_counts *now);

/* Observes lengths and times of a session that has ended; last_us is the time of its last token. */
void engine_metrics_ended(struct engine_metrics *m, const struct session *session, int64_t last_us);

/* Names the policy of a kind that decides here; NULL: none, and no metric is set. */
void engine_metrics_policy(struct engine_metrics *m, const char *kind, const char *row);

/* Counts a request of an adapter. */
void engine_metrics_adapter(struct engine_metrics *m, struct str name);

void engine_metrics_http(struct engine_metrics *m, struct str path, int status);

/* Renders metrics under the names that vLLM's dashboards, scalers and endpoint pickers read. */
int engine_metrics_render_vllm(const struct engine_metrics *m, struct str model, struct buf *out);

/* The step log has the shape and seconds of every step as a line of CSV, to fit performance models.
 *
 * Threads:  the device thread
 * Rules:    (1) at most STEP_LOG_LINES; later steps are not written, and a log line says so once
 *           (2) a disk that fails ends the log, never the engine
 *
 *     prefill_tokens,prefill_chunks,decoding_seqs,kv_tokens_read,kv_tokens_decoding,seconds
 */

#define STEP_LOG_LINES 1000000

struct step_log {
    FILE *file; /* NULL: off */
    uint32_t lines;
};

/* An empty path: off. The file is overwritten. */
int step_log_open(struct step_log *log, struct str path, struct err *err);
void step_log_add(struct step_log *log, const struct perf_shape *shape, double seconds);
void step_log_close(struct step_log *log);

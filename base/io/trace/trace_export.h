/* trace_export.h - sends spans to a collector in batches, as OTLP/JSON over HTTP.
 *
 * Layer:   base/io (fetch, loop)
 * Threads: trace_export_offer from any thread, under the exporter's lock; the calls and timers are the
 *          loop's. The loop is one that carries no traffic, where there is such a loop
 * Bounds:  queue_max spans and TRACE_QUEUE_BYTES_MAX wait; more are dropped and counted. One call at a time,
 *          of batch_max spans and TRACE_BODY_BYTES_MAX
 * Again:   429, 502, 503, 504 and a server that cannot be reached: the same batch after Retry-After, or
 *          after a back-off with jitter, at most TRACE_TRIES_MAX times. Every other status is final
 * Source:  OpenTelemetry Protocol 1.8, OTLP/HTTP
 *
 *     offer ─► queue ─► batch ─► POST ─► taken | part of it refused | refused
 *                         ▲        │
 *                         └─ wait ─┘
 */
#pragma once
#include "base/io/fetch.h"
#include "base/io/metrics.h"
#include "base/io/trace/trace_settings.h"

#define TRACE_QUEUE_BYTES_MAX ((size_t)32 << 20)
#define TRACE_BODY_BYTES_MAX ((size_t)4 << 20) /* what collectors take by default is 20 MiB */
#define TRACE_REPLY_BYTES_MAX ((size_t)64 << 10)
#define TRACE_TRIES_MAX 6
#define TRACE_BACK_OFF_US 1000000
#define TRACE_BACK_OFF_US_MAX 32000000
#define TRACE_RETRY_AFTER_S_MAX 300

/* Counters with one label. */
struct trace_export_meters {
    struct metrics *metrics;
    uint32_t spans;   /* result: exported, refused, queue_full, undelivered */
    uint32_t exports; /* result: ok, partial, again, refused */
};

struct trace_export_config {
    const struct trace_settings *settings; /* outlives the exporter */
    struct str resource; /* JSON of opentelemetry.proto.resource.v1.Resource; copied */
    struct str scope_version;
    uint32_t queue_max, batch_max;
    int64_t delay_us;
    struct name_book *names;
    const char *const *environ; /* of proxies */
    struct trace_export_meters meters;
    uint64_t seed; /* of the jitter */
};

struct trace_export;
int trace_export_new(struct loop *loop, const struct trace_export_config *config,
                     struct trace_export **ret, struct err *err);

/* Drops what was not sent, and counts it. */
void trace_export_free(struct trace_export *e);
CLEANUP_FREEP(trace_export, struct trace_export)

/* Takes `count` spans as otlp_span.h writes them. False: they were dropped. Any thread. */
bool trace_export_offer(struct trace_export *e, struct str spans, uint32_t count);

/* Turns the loop until all is sent, at most `us`. The loop's thread, when nothing else runs it. */
void trace_export_flush(struct trace_export *e, int64_t us);

/* Reads a Retry-After: seconds, or a date of RFC 9110. Returns seconds from now, at most
 * TRACE_RETRY_AFTER_S_MAX; 0: none, or malformed. */
int64_t trace_retry_after_s(struct str text, int64_t wall_us);

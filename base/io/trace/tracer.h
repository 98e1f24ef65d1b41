/* tracer.h - decides which requests of a role are traced, and hands their spans to the exporter.
 *
 * Layer:    base/io (trace_export, http1)
 * Threads:  any, but for tracer_open and tracer_close, which are the exporter's loop's
 * Lifetime: opened before the threads that trace, closed after them
 * Bounds:   spans_max spans a second: a request is promised its spans when it begins, and is not traced
 *           where they are not left
 * Cost:     without an endpoint there is no tracer, and a request costs one look at its headers
 */
#pragma once
#include "base/core/otlp_span.h"
#include "base/core/trace_context.h"
#include "base/io/http/http1.h"
#include "base/io/trace/trace_export.h"

#define TRACE_FLUSH_US 5000000 /* at the end of a role */

/* Counters with one label. */
struct tracer_meters {
    struct metrics *metrics;
    uint32_t spans, exports; /* as trace_export_meters */
    uint32_t requests;       /* decision: sampled, late, capped */
};

struct tracer_config {
    const struct trace_section *section;
    const char *role;    /* "muster-router" */
    struct str instance; /* service.instance.id; empty: host and process */
    struct loop *loop;
    struct name_book *names;
    const char *const *environ;
    struct tracer_meters meters;
};

struct tracer;

/* *ret is NULL when there are no traces. */
int tracer_open(const struct tracer_config *config, struct tracer **ret, struct err *err);

/* Sends what waits, for at most TRACE_FLUSH_US, by turning the loop: once loop_run has returned, and while all that
 * hangs on the loop still lives. NULL: nothing. */
void tracer_flush(struct tracer *t);
void tracer_close(struct tracer *t); /* what was not sent is counted as undelivered */

/* ---- what a request brings, and takes on ---- */

/* A context to pass on. */
struct trace_passed {
    struct trace_context context;
    char state[TRACE_STATE_BYTES_MAX + 1]; /* "": none */
};

enum trace_headers {
    TRACE_NONE,       /* there is no traceparent */
    TRACE_VALID,      /* *ret is filled */
    TRACE_BAD_PARENT, /* there is one that is malformed, or there are two */
    TRACE_BAD_STATE,  /* *ret is filled, without a state: that was malformed */
};

/* Reads the headers of a request. */
enum trace_headers trace_headers_read(const struct http_request *req, struct trace_passed *ret);

/* Makes the headers of a call. Their values point into *text and *passed. Returns how many. */
#define TRACE_HEADER_COUNT 2
struct trace_headers_text {
    char parent[TRACE_PARENT_BYTES + 1];
};
uint32_t trace_headers_make(const struct trace_passed *passed, struct trace_headers_text *text,
                            struct http_header ret[TRACE_HEADER_COUNT]);

/* ---- decisions ---- */

/* Decides as a request begins; `spans` are promised to it if the result is true. `parent` NULL: none. */
bool tracer_takes(struct tracer *t, const struct trace_context *parent,
                  const uint8_t trace_id[TRACE_ID_BYTES], uint32_t spans, int64_t now_us);

/* Returns true if requests that tracer_takes left out may be taken at their end. */
bool tracer_has_late(const struct tracer *t);

/* Decides at a request's end. `first_us`: how long its first token took, or the request where none came. */
bool tracer_takes_late(struct tracer *t, bool failed, int64_t first_us, uint32_t spans,
                       int64_t now_us);

/* Sends spans. `promised`: as many as tracer_takes was told. */
void tracer_offer(struct tracer *t, const struct buf *spans, uint32_t count, uint32_t promised);

/* otlp_span.h - writes spans as OTLP/JSON, the protobuf JSON mapping of opentelemetry.proto.trace.v1.
 *
 * Layer:  base/core (libc)
 * Source: OpenTelemetry Protocol 1.8: ids are hex, 64-bit integers are strings, enums are numbers
 * Order:  otlp_open, attributes, otlp_event with its attributes, ..., otlp_close. Check w.out->rc once
 *
 *     struct otlp_writer w;
 *     otlp_writer_init(&w, &out);
 *     otlp_open(&w, &span);
 *     otlp_str(&w, "muster.instance", STR("i-1"));
 *     otlp_event(&w, "retry", at_us);
 *     otlp_close(&w);
 */
#pragma once
#include "base/core/json.h"
#include "base/core/trace_context.h"

enum otlp_kind { OTLP_INTERNAL = 1, OTLP_SERVER = 2, OTLP_CLIENT = 3 };

struct otlp_span {
    const uint8_t *trace_id, *span_id;
    const uint8_t *parent_id; /* NULL: the trace begins with it */
    struct str state;         /* tracestate; empty: none */
    struct str name;
    enum otlp_kind kind;
    int64_t start_us, end_us; /* dates */
    const char *problem;      /* the span failed, and why; NULL: it did not */
    uint32_t events_dropped;
};

struct otlp_writer {
    struct json_writer w;
    uint32_t spans;
    bool in_events, in_event;
};

void otlp_writer_init(struct otlp_writer *w, struct buf *out);

/* Opens a span; commas between spans are the writer's. */
void otlp_open(struct otlp_writer *w, const struct otlp_span *s);
void otlp_event(struct otlp_writer *w, const char *name, int64_t at_us);
void otlp_close(struct otlp_writer *w);

/* Attributes of the span, or of the event that was opened last. */
void otlp_str(struct otlp_writer *w, const char *key, struct str value);
void otlp_int(struct otlp_writer *w, const char *key, int64_t value);
void otlp_f64(struct otlp_writer *w, const char *key, double value);
void otlp_bool(struct otlp_writer *w, const char *key, bool value);
void otlp_strs(struct otlp_writer *w, const char *key, struct str only); /* a list of one */

/* Writes one element of an attribute list, for resources. */
void otlp_put_str(struct json_writer *w, struct str key, struct str value);

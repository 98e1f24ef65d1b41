/* otlp_span.c - writes one span after the other into a buffer, separated by commas.
 *
 * The attributes come before the events, so that both lists can be written as they are told, without a copy
 * of either. */
#include "base/core/otlp_span.h"

#include <inttypes.h>
#include <stdio.h>

#define NANO_DIGITS 32
#define STATUS_ERROR 2

void otlp_writer_init(struct otlp_writer *w, struct buf *out)
{
    *w = (struct otlp_writer){ .spans = 0 };
    json_writer_init(&w->w, out);
}

static void put_hex(struct json_writer *w, const char *name, const uint8_t *id, size_t bytes)
{
    char text[TRACE_ID_HEX + 1];
    trace_hex(id, bytes, text);
    json_kv_text(w, name, text);
}

static void put_nanos(struct json_writer *w, const char *name, int64_t us)
{
    char text[NANO_DIGITS];
    snprintf(text, sizeof text, "%" PRId64, us * 1000);
    json_kv_text(w, name, text);
}

void otlp_open(struct otlp_writer *o, const struct otlp_span *s)
{
    struct json_writer *w = &o->w;
    if (o->spans++ > 0) buf_byte(w->out, ',');
    struct buf *out = w->out;
    json_writer_init(w, out);
    json_object(w);
    put_hex(w, "traceId", s->trace_id, TRACE_ID_BYTES);
    put_hex(w, "spanId", s->span_id, SPAN_ID_BYTES);
    if (s->parent_id) put_hex(w, "parentSpanId", s->parent_id, SPAN_ID_BYTES);
    if (s->state.len > 0) json_kv_str(w, "traceState", s->state);
    json_kv_str(w, "name", s->name);
    json_kv_i64(w, "kind", s->kind);
    put_nanos(w, "startTimeUnixNano", s->start_us);
    put_nanos(w, "endTimeUnixNano", s->end_us);
    if (s->events_dropped > 0) json_kv_u64(w, "droppedEventsCount", s->events_dropped);
    if (s->problem) {
        json_key(w, "status");
        json_object(w);
        json_kv_i64(w, "code", STATUS_ERROR);
        json_kv_text(w, "message", s->problem);
        json_object_end(w);
    }
    json_key(w, "attributes");
    json_array(w);
    o->in_events = o->in_event = false;
}

static void event_close(struct otlp_writer *o)
{
    if (!o->in_event) return;
    json_array_end(&o->w);
    json_object_end(&o->w);
    o->in_event = false;
}

void otlp_event(struct otlp_writer *o, const char *name, int64_t at_us)
{
    struct json_writer *w = &o->w;
    event_close(o);
    if (!o->in_events) {
        json_array_end(w);
        json_key(w, "events");
        json_array(w);
    }
    o->in_events = o->in_event = true;
    json_object(w);
    put_nanos(w, "timeUnixNano", at_us);
    json_kv_text(w, "name", name);
    json_key(w, "attributes");
    json_array(w);
}

void otlp_close(struct otlp_writer *o)
{
    event_close(o);
    json_array_end(&o->w);
    json_object_end(&o->w);
}

/* ---- attributes ---- */

static void attribute(struct json_writer *w, struct str key)
{
    json_object(w);
    json_kv_str(w, "key", key);
    json_key(w, "value");
    json_object(w);
}

static void attribute_end(struct json_writer *w)
{
    json_object_end(w);
    json_object_end(w);
}

void otlp_put_str(struct json_writer *w, struct str key, struct str value)
{
    attribute(w, key);
    json_kv_str(w, "stringValue", value);
    attribute_end(w);
}

void otlp_str(struct otlp_writer *o, const char *key, struct str value)
{
    otlp_put_str(&o->w, str_from(key), value);
}

void otlp_int(struct otlp_writer *o, const char *key, int64_t value)
{
    char text[NANO_DIGITS];
    snprintf(text, sizeof text, "%" PRId64, value);
    attribute(&o->w, str_from(key));
    json_kv_text(&o->w, "intValue", text);
    attribute_end(&o->w);
}

void otlp_f64(struct otlp_writer *o, const char *key, double value)
{
    attribute(&o->w, str_from(key));
    json_kv_f64(&o->w, "doubleValue", value);
    attribute_end(&o->w);
}

void otlp_bool(struct otlp_writer *o, const char *key, bool value)
{
    attribute(&o->w, str_from(key));
    json_kv_bool(&o->w, "boolValue", value);
    attribute_end(&o->w);
}

void otlp_strs(struct otlp_writer *o, const char *key, struct str only)
{
    struct json_writer *w = &o->w;
    attribute(w, str_from(key));
    json_key(w, "arrayValue");
    json_object(w);
    json_key(w, "values");
    json_array(w);
    json_object(w);
    json_kv_str(w, "stringValue", only);
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
    attribute_end(w);
}

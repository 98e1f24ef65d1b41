/* tracer.c - opens the exporter, names the resource, and keeps to the bound of spans a second. */
#include "base/io/trace/tracer.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_BYTES 256

enum decision { SAMPLED, LATE, CAPPED, DECISION_COUNT };
static const char *const decision_names[DECISION_COUNT] = { "sampled", "late", "capped" };

struct tracer {
    struct arena arena; /* of the settings */
    struct trace_settings settings;
    struct trace_sampler sampler;
    int64_t slow_us;
    bool failed;
    struct trace_export *exporter;
    struct metric_series *decisions[DECISION_COUNT];
    struct lock lock; /* the next */
    struct trace_budget budget;
};

/* ---- headers ---- */

/* Returns the values of all headers of that name. */
static uint32_t find_headers(const struct http_request *req, struct str name,
                             struct str ret[HTTP_HEADERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < req->header_count; i++)
        if (req->headers[i].name.len == name.len && str_eq_nocase(req->headers[i].name, name))
            ret[count++] = req->headers[i].value;
    return count;
}

enum trace_headers trace_headers_read(const struct http_request *req, struct trace_passed *ret)
{
    struct str value[HTTP_HEADERS_MAX];
    uint32_t count = find_headers(req, STR("traceparent"), value);
    if (count == 0) return TRACE_NONE;
    if (count > 1 || trace_parent_read(value[0], &ret->context) < 0) return TRACE_BAD_PARENT;
    ret->state[0] = '\0';
    count = find_headers(req, STR("tracestate"), value);
    if (count == 0 || trace_state_join(value, count, ret->state) == 0) return TRACE_VALID;
    ret->state[0] = '\0';
    return TRACE_BAD_STATE;
}

uint32_t trace_headers_make(const struct trace_passed *passed, struct trace_headers_text *text,
                            struct http_header ret[TRACE_HEADER_COUNT])
{
    trace_parent_print(&passed->context, text->parent);
    ret[0] = (struct http_header){ STR("traceparent"), str_of(text->parent, TRACE_PARENT_BYTES) };
    if (!passed->state[0]) return 1;
    ret[1] = (struct http_header){ STR("tracestate"), str_from(passed->state) };
    return 2;
}

/* ---- decisions ---- */

static void count(struct tracer *t, enum decision what)
{
    if (t->decisions[what]) metric_inc(t->decisions[what]);
}

static bool afford(struct tracer *t, enum decision what, uint32_t spans, int64_t now_us)
{
    lock_take(&t->lock);
    bool may = trace_budget_take(&t->budget, spans, now_us);
    lock_drop(&t->lock);
    count(t, may ? what : CAPPED);
    return may;
}

bool tracer_takes(struct tracer *t, const struct trace_context *parent,
                  const uint8_t trace_id[TRACE_ID_BYTES], uint32_t spans, int64_t now_us)
{
    return trace_sampler_takes(&t->sampler, parent, trace_id) && afford(t, SAMPLED, spans, now_us);
}

bool tracer_has_late(const struct tracer *t)
{
    return t->failed || t->slow_us > 0;
}

bool tracer_takes_late(struct tracer *t, bool failed, int64_t first_us, uint32_t spans,
                       int64_t now_us)
{
    bool slow = t->slow_us > 0 && first_us >= t->slow_us;
    return (slow || (t->failed && failed)) && afford(t, LATE, spans, now_us);
}

void tracer_offer(struct tracer *t, const struct buf *spans, uint32_t number, uint32_t promised)
{
    if (number > promised) {
        lock_take(&t->lock);
        trace_budget_owe(&t->budget, number - promised);
        lock_drop(&t->lock);
    }
    if (spans->rc == 0) trace_export_offer(t->exporter, buf_view(spans), number);
}

/* ---- life ---- */

static void put_int(struct json_writer *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    json_object(w);
    json_kv_text(w, "key", key);
    json_key(w, "value");
    json_object(w);
    json_kv_text(w, "intValue", text);
    json_object_end(w);
    json_object_end(w);
}

/* Writes what the spans of this process have in common. What OTEL_RESOURCE_ATTRIBUTES says of the same name
 * comes before ours. */
static void put_resource(const struct tracer *t, const struct tracer_config *config,
                         struct buf *out)
{
    const struct trace_settings *s = &t->settings;
    char host[HOST_BYTES] = "", made[HOST_BYTES + 16];
    if (gethostname(host, sizeof host - 1) < 0) host[0] = '\0';
    snprintf(made, sizeof made, "%s:%d", host, (int)getpid());
    const struct trace_pair ours[] = {
        { STR("service.instance.id"), config->instance.len ? config->instance : str_from(made) },
        { STR("service.version"), STR(MUSTER_VERSION) },
        { STR("host.name"), str_from(host) },
        { STR("telemetry.sdk.name"), STR("muster") },
        { STR("telemetry.sdk.language"), STR("c") },
        { STR("telemetry.sdk.version"), STR(MUSTER_VERSION) },
    };
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "attributes");
    json_array(&w);
    otlp_put_str(&w, STR("service.name"), s->service_name);
    for (uint32_t i = 0; i < s->resource_count; i++)
        otlp_put_str(&w, s->resource[i].name, s->resource[i].value);
    for (size_t i = 0; i < COUNT_OF(ours); i++) {
        bool said = ours[i].value.len == 0;
        for (uint32_t k = 0; k < s->resource_count; k++)
            said |= str_eq(s->resource[k].name, ours[i].name);
        if (!said) otlp_put_str(&w, ours[i].name, ours[i].value);
    }
    put_int(&w, "process.pid", getpid());
    json_array_end(&w);
    json_object_end(&w);
}

static int open_exporter(struct tracer *t, const struct tracer_config *config, struct err *err)
{
    const struct trace_section *s = config->section;
    CLEANUP(buf_fini) struct buf resource = { 0 };
    put_resource(t, config, &resource);
    if (resource.rc < 0) return err_set(err, resource.rc, "no memory for a tracer");
    const struct trace_export_config c = {
        .settings = &t->settings,
        .resource = buf_view(&resource),
        .scope_version = STR(MUSTER_VERSION),
        .queue_max = (uint32_t)s->queue,
        .batch_max = (uint32_t)min_i64(s->batch, s->queue),
        .delay_us = s->delay_us,
        .names = config->names,
        .environ = config->environ,
        .meters = { config->meters.metrics, config->meters.spans, config->meters.exports },
        .seed = (uint64_t)clock_wall_us() ^ (uint64_t)getpid(),
    };
    return trace_export_new(config->loop, &c, &t->exporter, err);
}

int tracer_open(const struct tracer_config *config, struct tracer **ret, struct err *err)
{
    struct tracer *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for a tracer");
    const struct trace_section *s = config->section;
    arena_init(&t->arena, TRACE_SETTINGS_BYTES_MAX);
    lock_init(&t->lock);
    t->slow_us = s->slow_us;
    t->failed = s->failed;
    t->budget.per_s = (double)s->spans_max;
    struct trace_settings *made = &t->settings;
    int rc = trace_settings_read(s, config->role, config->environ, &t->arena, made, err);
    if (rc == 0 && made->on) rc = trace_sampler_make(made->sampler, made->ratio, &t->sampler, err);
    if (rc == 0 && made->on) rc = open_exporter(t, config, err);
    if (rc < 0 || !made->on) {
        tracer_close(t);
        *ret = NULL;
        return rc;
    }
    for (int i = 0; i < DECISION_COUNT && config->meters.metrics; i++) {
        struct str label = str_from(decision_names[i]);
        t->decisions[i] = metric_series(config->meters.metrics, config->meters.requests, &label);
    }
    log_event(LOG_INFO, "tracing", "url=%.*s sampler=%.*s ratio=%g spans_max=%d",
              STR_ARG(made->url), STR_ARG(made->sampler), t->sampler.ratio, (int)s->spans_max);
    *ret = t;
    return 0;
}

void tracer_flush(struct tracer *t)
{
    if (t) trace_export_flush(t->exporter, TRACE_FLUSH_US);
}

void tracer_close(struct tracer *t)
{
    if (!t) return;
    trace_export_free(t->exporter);
    lock_fini(&t->lock);
    arena_fini(&t->arena);
    free(t);
}

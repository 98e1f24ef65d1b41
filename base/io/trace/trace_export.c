/* trace_export.c - gathers spans, posts them one batch at a time, and reads what the collector says.
 *
 * Spans lie in the queue as they are sent, so that a batch is a copy of bytes. A batch is made when batch_max
 * spans wait, or when the oldest has waited for delay_us. While a batch is tried again nothing else is sent:
 * a collector that asks for rest gets it, and the queue takes what comes meanwhile, up to its bound. */
#include "base/io/trace/trace_export.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/list.h"
#include "base/core/rng.h"
#include "base/io/date.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"

#include <stdio.h>
#include <stdlib.h>

#define SCHEMA_URL "https://opentelemetry.io/schemas/1.41.0"
#define SCOPE_NAME "muster"
#define LOG_EVERY_US 60000000
#define FLUSH_TURN_US 50000

enum result { EXPORTED, REFUSED, QUEUE_FULL, UNDELIVERED, RESULT_COUNT };
static const char *const result_names[RESULT_COUNT] = { "exported", "refused", "queue_full",
                                                        "undelivered" };
enum call_result { CALL_OK, CALL_PARTIAL, CALL_AGAIN, CALL_REFUSED, CALL_RESULT_COUNT };
static const char *const call_names[CALL_RESULT_COUNT] = { "ok", "partial", "again", "refused" };

struct item {
    struct list node;
    uint32_t spans;
    size_t len;
    char text[];
};

struct trace_export {
    struct loop *loop;
    struct fetch *fetch;
    const struct trace_settings *settings;
    struct fetch_tls tls;
    uint32_t queue_max, batch_max;
    int64_t delay_us;
    struct buf head; /* of every body, up to the first span */
    struct metric_series *spans[RESULT_COUNT], *exports[CALL_RESULT_COUNT];

    struct lock lock; /* the next five */
    struct list queue;
    uint32_t queued;
    size_t queued_bytes;
    bool posted; /* the loop is told, or waits for the timer */
    bool hurried;

    /* the loop's */
    struct loop_timer timer;
    struct fetch_call *call;
    struct buf body; /* of the batch that is under way or waits for its next try */
    uint32_t batch;  /* its spans; 0: none */
    uint32_t tries;
    bool flushing;
    struct rng rng;
    struct log_limit limit;
};

static void count_spans(struct trace_export *e, enum result what, uint32_t spans)
{
    if (e->spans[what]) metric_add(e->spans[what], spans);
}

static void count_call(struct trace_export *e, enum call_result what)
{
    if (e->exports[what]) metric_inc(e->exports[what]);
}

static void say(struct trace_export *e, const char *event, const char *why)
{
    uint64_t skipped;
    if (log_pass(&e->limit, loop_now_us(e->loop), LOG_EVERY_US, &skipped))
        log_event(LOG_WARN, event, "url=%.*s why=%s skipped=%lu", STR_ARG(e->settings->url), why,
                  (unsigned long)skipped);
}

/* ---- batches ---- */

static void send_batch(struct trace_export *e);

static void timer_set(struct trace_export *e, int64_t at_us)
{
    /* Without memory for a timer the next span that is offered wakes the loop. */
    if (loop_timer_set(e->loop, &e->timer, at_us) == 0) return;
    lock_take(&e->lock);
    e->posted = e->hurried = false;
    lock_drop(&e->lock);
}

/* Moves spans from the queue into the body. */
static void make_batch(struct trace_export *e)
{
    buf_clear(&e->body);
    buf_str(&e->body, buf_view(&e->head));
    lock_take(&e->lock);
    while (!list_empty(&e->queue)) {
        struct item *item = CONTAINER_OF(e->queue.next, struct item, node);
        bool full = e->batch > 0 && (e->batch + item->spans > e->batch_max ||
                                     e->body.len + item->len > TRACE_BODY_BYTES_MAX);
        if (full) break;
        if (e->batch > 0) buf_byte(&e->body, ',');
        buf_str(&e->body, str_of(item->text, item->len));
        e->batch += item->spans;
        e->queued -= item->spans;
        e->queued_bytes -= item->len;
        list_remove(&item->node);
        free(item);
    }
    lock_drop(&e->lock);
    buf_text(&e->body, "]}]}]}");
    e->tries = 0;
    if (e->body.rc == 0) return;
    count_spans(e, UNDELIVERED, e->batch);
    e->batch = 0;
}

/* Sends the next batch, or waits until there is one. */
static void go_on(struct trace_export *e)
{
    lock_take(&e->lock);
    bool full = e->queued >= e->batch_max || (e->flushing && e->queued > 0);
    bool any = e->queued > 0;
    e->posted = any;
    e->hurried = full;
    lock_drop(&e->lock);
    if (full) {
        make_batch(e);
        send_batch(e);
    } else if (any) {
        timer_set(e, loop_now_us(e->loop) + e->delay_us);
    }
}

static void batch_over(struct trace_export *e)
{
    e->batch = 0;
    go_on(e);
}

/* ---- replies ---- */

int64_t trace_retry_after_s(struct str text, int64_t wall_us)
{
    uint64_t seconds;
    int64_t date_us;
    struct str trimmed = str_trim(text);
    if (trimmed.len == 0) return 0;
    if (str_to_u64(trimmed, &seconds) == 0)
        return (int64_t)min_u64(seconds, TRACE_RETRY_AFTER_S_MAX);
    if (date_parse_http(trimmed, &date_us) < 0) return 0;
    return min_i64(max_i64(date_us / 1000000 - wall_us / 1000000, 0), TRACE_RETRY_AFTER_S_MAX);
}

static void refused(struct trace_export *e, const char *why)
{
    count_call(e, CALL_REFUSED);
    count_spans(e, UNDELIVERED, e->batch);
    say(e, "trace_export_refused", why);
    batch_over(e);
}

static void try_again(struct trace_export *e, int64_t after_s, const char *why)
{
    if (++e->tries >= TRACE_TRIES_MAX) {
        refused(e, why);
        return;
    }
    int64_t wait_us = min_i64((int64_t)TRACE_BACK_OFF_US << (e->tries - 1), TRACE_BACK_OFF_US_MAX);
    wait_us = (int64_t)((double)wait_us * (0.5 + rng_f64(&e->rng)));
    if (after_s > 0) wait_us = after_s * 1000000;
    count_call(e, CALL_AGAIN);
    say(e, "trace_export_again", why);
    timer_set(e, loop_now_us(e->loop) + wait_us);
}

/* Reads a whole success: the collector may have refused some of the spans. */
static void taken(struct trace_export *e, struct str body)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint64_t rejected = 0;
    /* A 64-bit integer is a string in the mapping, and a number of some collectors. */
    if (json_path_text(body, "partialSuccess.rejectedSpans", &text) == 0)
        (void)str_to_u64(buf_view(&text), &rejected);
    else
        (void)json_path_u64(body, "partialSuccess.rejectedSpans", &rejected);
    uint32_t lost = (uint32_t)min_u64(rejected, e->batch);
    count_spans(e, REFUSED, lost);
    count_spans(e, EXPORTED, e->batch - lost);
    count_call(e, lost > 0 ? CALL_PARTIAL : CALL_OK);
    buf_clear(&text);
    bool says = json_path_text(body, "partialSuccess.errorMessage", &text) == 0 && text.len > 0;
    if (lost > 0 || says) say(e, "trace_spans_refused", says ? text.data : "it does not say");
    batch_over(e);
}

static void on_end(void *arg, const struct fetch_reply *reply)
{
    struct trace_export *e = arg;
    char why[FETCH_PROBLEM_BYTES];
    struct str after = fetch_header(e->call, "retry-after");
    int64_t after_s = trace_retry_after_s(after, clock_wall_us());
    e->call = NULL;
    if (reply->end == FETCH_CANCELLED) return;
    if (reply->end != FETCH_OK) {
        try_again(e, 0, reply->problem);
        return;
    }
    snprintf(why, sizeof why, "status %d: %.*s", reply->status, (int)min_size(reply->body.len, 200),
             reply->body.data ? reply->body.data : "");
    int s = reply->status;
    if (s >= 200 && s < 300)
        taken(e, reply->body);
    else if (s == 429 || s == 502 || s == 503 || s == 504)
        try_again(e, after_s, why);
    else
        refused(e, why);
}

static void send_batch(struct trace_export *e)
{
    struct fetch_header header[TRACE_HEADERS_MAX];
    struct err err = { "" };
    const struct trace_settings *s = e->settings;
    if (e->batch == 0) {
        go_on(e);
        return;
    }
    for (uint32_t i = 0; i < s->header_count; i++)
        header[i] = (struct fetch_header){ s->header[i].name, s->header[i].value };
    const struct fetch_request req = {
        .method = STR("POST"),
        .url = s->url,
        .headers = header,
        .header_count = s->header_count,
        .body = buf_view(&e->body),
        .content_type = STR("application/json"),
        .tls = &e->tls,
        .body_bytes_max = TRACE_REPLY_BYTES_MAX,
        .deadline_us = loop_now_us(e->loop) + s->timeout_us,
        .on_end = on_end,
        .arg = e,
    };
    int rc = fetch_start(e->fetch, &req, &e->call, &err);
    if (rc < 0) try_again(e, 0, err_text(&err, rc));
}

/* The time of a batch has come, or of its next try. */
static void on_timer(void *arg)
{
    struct trace_export *e = arg;
    if (e->call) return;
    if (e->batch == 0) make_batch(e);
    send_batch(e);
}

/* ---- offers ---- */

static void wake(void *arg)
{
    struct trace_export *e = arg;
    if (e->call) return;
    if (e->batch == 0)
        go_on(e);
    else if (!loop_timer_is_set(&e->timer)) /* there was no memory for the timer of its next try */
        send_batch(e);
}

bool trace_export_offer(struct trace_export *e, struct str spans, uint32_t count)
{
    struct item *item = FAULT("trace.item") ? NULL : malloc(sizeof *item + spans.len);
    if (item) {
        *item = (struct item){ .spans = count, .len = spans.len };
        memcpy(item->text, spans.data, spans.len);
    }
    lock_take(&e->lock);
    bool room = item && e->queued + count <= e->queue_max &&
                e->queued_bytes + spans.len <= TRACE_QUEUE_BYTES_MAX;
    if (room) {
        list_push_back(&e->queue, &item->node);
        e->queued += count;
        e->queued_bytes += spans.len;
    }
    /* The first span sets the timer, and a whole batch does not wait for it. A refused post is made up for
     * by the next span. */
    bool hurry = e->queued >= e->batch_max && !e->hurried;
    if (room && (!e->posted || hurry) && loop_post(e->loop, wake, e) == 0) {
        e->posted = true;
        e->hurried |= hurry;
    }
    lock_drop(&e->lock);
    if (room) return true;
    free(item);
    count_spans(e, QUEUE_FULL, count);
    return false;
}

static bool is_empty(struct trace_export *e)
{
    lock_take(&e->lock);
    bool empty = e->queued == 0;
    lock_drop(&e->lock);
    return empty && e->batch == 0;
}

void trace_export_flush(struct trace_export *e, int64_t us)
{
    int64_t until_us = clock_mono_us() + us;
    e->flushing = true;
    wake(e);
    while (!is_empty(e) && clock_mono_us() < until_us)
        if (loop_turn(e->loop, FLUSH_TURN_US) < 0) break;
    e->flushing = false;
}

/* ---- life ---- */

static void meters_make(struct trace_export *e, const struct trace_export_meters *m)
{
    if (!m->metrics) return;
    for (int i = 0; i < RESULT_COUNT; i++) {
        struct str label = str_from(result_names[i]);
        e->spans[i] = metric_series(m->metrics, m->spans, &label);
    }
    for (int i = 0; i < CALL_RESULT_COUNT; i++) {
        struct str label = str_from(call_names[i]);
        e->exports[i] = metric_series(m->metrics, m->exports, &label);
    }
}

int trace_export_new(struct loop *loop, const struct trace_export_config *config,
                     struct trace_export **ret, struct err *err)
{
    struct trace_export *e = calloc(1, sizeof *e);
    if (!e) return err_set(err, -ENOMEM, "no memory for an exporter of traces");
    e->loop = loop;
    e->settings = config->settings;
    e->queue_max = config->queue_max;
    e->batch_max = config->batch_max;
    e->delay_us = config->delay_us;
    e->tls.ca_file = config->settings->ca;
    e->timer = (struct loop_timer){ .fn = on_timer, .arg = e };
    lock_init(&e->lock);
    list_init(&e->queue);
    rng_seed(&e->rng, config->seed);
    buf_init(&e->body, 2 * TRACE_BODY_BYTES_MAX);
    meters_make(e, &config->meters);
    struct json_writer w;
    buf_text(&e->head, "{\"resourceSpans\":[{\"resource\":");
    buf_str(&e->head, config->resource);
    buf_text(&e->head, ",\"schemaUrl\":\"" SCHEMA_URL "\",\"scopeSpans\":[{\"scope\":");
    json_writer_init(&w, &e->head);
    json_object(&w);
    json_kv_text(&w, "name", SCOPE_NAME);
    json_kv_str(&w, "version", config->scope_version);
    json_object_end(&w);
    buf_text(&e->head, ",\"spans\":[");
    const struct fetch_config calls = {
        .running_max = 1, .waiting_max = 1, .environ = config->environ, .names = config->names
    };
    int rc = e->head.rc < 0 ? err_set(err, e->head.rc, "no memory for an exporter of traces")
                            : fetch_new(loop, &calls, &e->fetch, err);
    if (rc < 0) {
        trace_export_free(e);
        return rc;
    }
    *ret = e;
    return 0;
}

void trace_export_free(struct trace_export *e)
{
    if (!e) return;
    loop_timer_clear(e->loop, &e->timer);
    fetch_free(e->fetch);
    count_spans(e, UNDELIVERED, e->batch + e->queued);
    LIST_EACH_SAFE (&e->queue, node)
        free(CONTAINER_OF(node, struct item, node));
    lock_fini(&e->lock);
    buf_fini(&e->body);
    buf_fini(&e->head);
    free(e);
}

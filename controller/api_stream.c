/* api_stream.c - sends the status and new decisions to consoles that watch, as server-sent events.
 *
 * A stream that does not take its events in time loses some: the next status is whole again, and decisions have ids.
 */
#include "base/core/own.h"
#include "controller/api_call.h"

#include <stdlib.h>

struct stream {
    struct list node;
    struct api *api;
    struct http_exchange *x;
    uint64_t told; /* last decision that was sent */
};

void api_streams_end(struct api *a)
{
    LIST_EACH_SAFE (&a->streams, node) {
        struct stream *s = CONTAINER_OF(node, struct stream, node);
        struct http_exchange *x = s->x;
        list_remove(&s->node);
        a->stream_count--;
        free(s);
        (void)http_stream_end(x);
    }
}

static void stream_drop(struct stream *s)
{
    list_remove(&s->node);
    s->api->stream_count--;
    free(s);
}

static void on_stream_abort(void *arg, enum http_abort why)
{
    (void)why;
    stream_drop(arg);
}

/* Sends a frame, or leaves it out when it does not fit: the next status is whole again, and decisions
 * have ids, so that a client sees the gap and asks. */
static void stream_send(struct stream *s, const char *event, struct str json)
{
    if (http_stream_full(s->x)) return;
    CLEANUP(buf_fini) struct buf frame = { 0 };
    buf_printf(&frame, "event: %s\ndata: ", event);
    buf_str(&frame, json);
    buf_text(&frame, "\n\n");
    if (frame.rc == 0) (void)http_stream_write(s->x, frame.data, frame.len);
}

static void tell_decisions(struct stream *s)
{
    struct control *c = s->api->control;
    uint64_t last = control_decision_last(c);
    for (; s->told < last && last - s->told <= API_DECISIONS_MAX; s->told++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        if (control_decision(c, s->told + 1, &text, NULL) == 0)
            stream_send(s, "decision", buf_view(&text));
    }
    s->told = last;
}

void api_broadcast(struct api *a)
{
    if (list_empty(&a->streams)) return;
    CLEANUP(buf_fini) struct buf status = { 0 };
    buf_init(&status, CALL_VIEW_BYTES_MAX);
    if (control_view(a->control, CONTROL_STATUS, api_now(a), &status) < 0) return;
    LIST_EACH_SAFE (&a->streams, node) {
        struct stream *s = CONTAINER_OF(node, struct stream, node);
        stream_send(s, "status", buf_view(&status));
        tell_decisions(s);
    }
}

void call_open_stream(struct call *k)
{
    struct api *a = k->api;
    if (a->stream_count == API_STREAMS_MAX) {
        call_refuse(k, 503, "full", "too many event streams are open");
        return;
    }
    struct stream *s = calloc(1, sizeof *s);
    http_reply_header(k->x, "cache-control", STR("no-store"));
    if (!s || http_stream_begin(k->x, 200, STR("text/event-stream")) < 0) {
        free(s);
        call_refuse(k, 503, "full", "no memory for the stream");
        return;
    }
    s->api = a;
    s->x = k->x;
    s->told = control_decision_last(a->control);
    list_push_back(&a->streams, &s->node);
    a->stream_count++;
    http_exchange_watch(k->x, on_stream_abort, NULL, s);
    if (control_view(a->control, CONTROL_STATUS, api_now(a), &a->out) == 0)
        stream_send(s, "status", buf_view(&a->out));
}

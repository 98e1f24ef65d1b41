/* answer.c - OpenAI's shapes onto the client's connection.
 *
 * A streamed answer begins with its first text; until then nothing has been promised and the
 * request may still go elsewhere. A whole answer is gathered and sent at its end.
 */
#include "router/byte_loop.h"

#include <math.h>
#include <stdio.h>

void answer_cors(struct byte_loop *b, struct http_exchange *x)
{
    struct str origin = http_request_header(http_exchange_request(x), "origin");
    for (size_t i = 0; i < b->config->cors_origins.count && origin.len > 0; i++) {
        if (!str_eq(origin, b->config->cors_origins.items[i])) continue;
        http_reply_header(x, "access-control-allow-origin", origin);
        http_reply_header(x, "vary", STR("origin"));
        http_reply_header(x, "access-control-expose-headers",
                          STR("x-request-id, x-muster-instance, x-muster-predicted-p50, "
                              "x-muster-predicted-p90, retry-after"));
        return;
    }
}

static void reply_headers(struct request *r)
{
    char number[32];
    http_reply_header(r->x, "x-request-id", str_from(r->id));
    if (r->target.instance[0]) {
        http_reply_header(r->x, "x-muster-instance", str_from(r->target.instance));
    }
    if (r->target.length_p90 > 0) {
        snprintf(number, sizeof number, "%.0f", r->target.length_p50);
        http_reply_header(r->x, "x-muster-predicted-p50", str_from(number));
        snprintf(number, sizeof number, "%.0f", r->target.length_p90);
        http_reply_header(r->x, "x-muster-predicted-p90", str_from(number));
    }
    answer_cors(r->home, r->x);
}

/* The client is gone or its connection cannot be written: as if it had left. */
static void lost(struct request *r)
{
    r->x = NULL;
    if (r->call) signed_call_cancel(r->call);
    r->call = NULL;
    r->outcome.cut = true;
    request_over(r);
}

static void pause_engine(struct request *r)
{
    if (r->paused || !r->call) return;
    r->paused = true;
    signed_call_pause(r->call);
}

/* Sends what is rendered. What the client has no room for stays in r->out, the engine is paused,
 * and answer_drained goes on; at most one slice of the engine's bytes gathers meanwhile. */
static void write_out(struct request *r)
{
    int rc = r->out.rc;
    if (rc == 0 && r->out.len > 0) rc = http_stream_write(r->x, r->out.data, r->out.len);
    if (rc == -EAGAIN) {
        pause_engine(r);
        return;
    }
    if (rc < 0) {
        http_exchange_abort(r->x);
        lost(r);
        return;
    }
    buf_clear(&r->out);
    if (http_stream_full(r->x)) pause_engine(r);
}

/* The stream's end, once everything before it was taken. */
static void end_stream(struct request *r)
{
    struct http_exchange *x = r->x;
    if (!x || r->out.len > 0) return;
    r->x = NULL;
    http_stream_end(x);
    request_over(r);
}

void answer_drained(struct request *r)
{
    if (!r->x) return;
    write_out(r);
    if (r->x && r->ending) {
        end_stream(r);
    } else if (r->x && r->paused && r->out.len == 0 && !http_stream_full(r->x)) {
        r->paused = false;
        r->silence.heard_us = loop_now_us(r->home->loop); /* nothing could come meanwhile */
        if (r->call) signed_call_resume(r->call);
    }
}

static bool begin(struct request *r)
{
    if (r->began) return true;
    reply_headers(r);
    if (http_stream_begin(r->x, 200, STR("text/event-stream")) < 0) {
        http_exchange_abort(r->x);
        lost(r);
        return false;
    }
    r->began = true;
    if (r->reply.surface == OPENAI_CHAT) openai_chunk_role(&r->reply, &r->out);
    return true;
}

void answer_text(struct request *r, struct str text)
{
    if (!r->x && !r->is_question) return;
    if (!r->api.stream) {
        buf_str(&r->answer, text);
        return;
    }
    if (!begin(r)) return;
    openai_chunk_text(&r->reply, text, &r->out);
    write_out(r);
}

void answer_finish(struct request *r)
{
    if (!r->x) return;
    if (!r->api.stream) {
        struct http_exchange *x = r->x;
        openai_reply_whole(&r->reply, buf_view(&r->answer), r->finish, &r->usage, &r->out);
        if (r->answer.rc < 0 || r->out.rc < 0) { /* a part is not the whole */
            r->outcome.ok = r->outcome.cut = false;
            openai_error_set(&r->problem, 0, OPENAI_UPSTREAM, NULL,
                             "The answer is larger than the router can send whole; stream it.");
            answer_problem(r, 1);
            request_over(r);
            return;
        }
        reply_headers(r);
        r->x = NULL;
        http_reply(x, 200, STR("application/json"), buf_view(&r->out));
        request_over(r);
        return;
    }
    if (!begin(r)) return;
    openai_chunk_finish(&r->reply, r->finish, &r->out);
    if (r->api.include_usage) openai_chunk_usage(&r->reply, &r->usage, &r->out);
    openai_chunk_done(&r->out);
    r->ending = true;
    write_out(r);
    end_stream(r);
}

void answer_problem(struct request *r, double retry_after_s)
{
    if (!r->x) return;
    struct http_exchange *x = r->x;
    if (r->began) {
        /* The client must not take a part for the whole: an error event, then no [DONE]. */
        if (r->problem.status == 0) {
            openai_error_set(&r->problem, 0, OPENAI_UPSTREAM, NULL, "The engine failed.");
        }
        openai_chunk_error(&r->problem, &r->out);
        r->x = NULL;
        /* A client that has no room for the error sees a broken connection, not an end. */
        if (r->out.rc < 0 || http_stream_write(x, r->out.data, r->out.len) < 0) {
            http_exchange_abort(x);
        } else {
            http_stream_end(x);
        }
        return;
    }
    buf_clear(&r->out);
    openai_error_render(&r->problem, &r->out);
    if (r->problem.status == 429 || r->problem.status == 503) {
        char seconds[32];
        snprintf(seconds, sizeof seconds, "%.0f", retry_after_s < 1 ? 1 : ceil(retry_after_s));
        http_reply_header(x, "retry-after", str_from(seconds));
    }
    reply_headers(r);
    r->x = NULL;
    http_reply(x, r->problem.status, STR("application/json"), buf_view(&r->out));
}

void answer_relay(struct request *r, int status, struct str content_type, struct str body)
{
    if (!r->x) return;
    struct http_exchange *x = r->x;
    reply_headers(r);
    r->x = NULL;
    http_reply(x, status, content_type, body);
}

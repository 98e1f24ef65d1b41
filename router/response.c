/* response.c - writes the response shapes of OpenAI's APIs, or of Anthropic's, to the client's connection.
 *
 * A streamed response begins with its first text; until then nothing has been promised and the
 * request may still go elsewhere. One that is held for long begins with comments, which promise nothing
 * but the status: what refuses it then is an event. A whole response is gathered and sent at its end.
 */
#include "base/core/json.h"
#include "base/core/own.h"
#include "router/byte_loop.h"
#include "router/fan.h"

#include <math.h>
#include <stdio.h>

void response_cors(struct byte_loop *b, struct http_exchange *x)
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
    const struct request *first = r->client.fan ? r->client.fan->output[0].r : r;
    http_reply_header(r->client.x, "x-request-id", str_from(first->id));
    if (r->client.target.instance[0]) {
        http_reply_header(r->client.x, "x-muster-instance", str_from(r->client.target.instance));
    }
    if (r->client.target.length_p90 > 0) {
        snprintf(number, sizeof number, "%.0f", r->client.target.length_p50);
        http_reply_header(r->client.x, "x-muster-predicted-p50", str_from(number));
        snprintf(number, sizeof number, "%.0f", r->client.target.length_p90);
        http_reply_header(r->client.x, "x-muster-predicted-p90", str_from(number));
    }
    response_cors(r->home, r->client.x);
}

/* Ends a request whose connection cannot be written, as if its client had left. */
static void lost(struct request *r)
{
    if (r->client.fan) fan_drop(r);
    r->client.x = NULL;
    if (r->client.call) signed_call_cancel(r->client.call);
    r->client.call = NULL;
    r->client.outcome.cut = true;
    request_over(r);
}

static void pause_engine(struct request *r)
{
    if (r->client.paused || !r->client.call) return;
    r->client.paused = true;
    signed_call_pause(r->client.call);
}

/* Sends the rendered bytes. Those that the client has no room for stay in r->client.out, the engine is
 * paused, and response_drained goes on; at most one slice of the engine's bytes gathers meanwhile. */
static void write_out(struct request *r)
{
    int rc = r->client.out.rc;
    if (rc == 0 && r->client.out.len > 0)
        rc = http_stream_write(r->client.x, r->client.out.data, r->client.out.len);
    if (rc == -EAGAIN) {
        pause_engine(r);
        return;
    }
    if (rc < 0) {
        http_exchange_abort(r->client.x);
        lost(r);
        return;
    }
    if (r->client.out.len > 0) r->client.written_us = loop_now_us(r->home->loop);
    buf_clear(&r->client.out);
    if (http_stream_full(r->client.x)) pause_engine(r);
}

/* Keeps a stream alive that has said nothing for a while. A full one says enough. */
static void on_ping(void *arg)
{
    struct request *r = arg;
    const int64_t ping_us = r->home->config->ping_us, now_us = loop_now_us(r->home->loop);
    int64_t quiet_from = r->client.written_us;
    if (!r->client.x || r->client.ending) return;
    if (now_us - quiet_from >= ping_us) {
        quiet_from = now_us;
        if (r->client.out.len == 0 && !http_stream_full(r->client.x)) {
            if (r->client.style == REPLY_ANTHROPIC)
                anthropic_ping(&r->client.out);
            else
                sse_comment(&r->client.out, STR("ping"));
            write_out(r);
        }
    }
    /* Without memory for it the stream goes on without pings. */
    if (r->client.x) (void)loop_timer_set(r->home->loop, &r->client.ping, quiet_from + ping_us);
}

/* Begins the pings of a stream, with its head; of several outputs the timer of that one serves all. */
static void begin_pings(struct request *r)
{
    r->client.ping.fn = on_ping;
    r->client.ping.arg = r;
    r->client.written_us = loop_now_us(r->home->loop);
    (void)loop_timer_set(r->home->loop, &r->client.ping,
                         r->client.written_us + r->home->config->ping_us);
}

static void say_end(struct request *r, const struct usage *usage)
{
    r->client.said_end = true;
    if (r->client.style != REPLY_OPENAI) {
        openai_message_end(&r->client.message, r->client.finish, r->client.stopped, usage);
        return;
    }
    if (r->client.api.include_usage) openai_chunk_usage(&r->client.reply, usage, &r->client.out);
    openai_chunk_done(&r->client.out);
}

/* Ends the stream once everything before its end is sent. */
static void end_stream(struct request *r)
{
    struct http_exchange *x = r->client.x;
    if (!x || r->client.out.len > 0) return;
    const bool last = !r->client.fan || fan_is_last(r);
    if (last && !r->client.said_end) { /* behind the ends of all outputs */
        say_end(r, &r->client.fan->usage);
        write_out(r);
        if (!r->client.x || r->client.out.len > 0) return;
    }
    r->client.x = NULL;
    if (last) http_stream_end(x);
    request_over(r);
}

void response_drained(struct request *r)
{
    if (!r->client.x) return;
    write_out(r);
    if (r->client.x && r->client.ending) {
        end_stream(r);
    } else if (r->client.x && r->client.paused && r->client.out.len == 0 &&
               !http_stream_full(r->client.x)) {
        r->client.paused = false;
        r->client.silence.heard_us = loop_now_us(r->home->loop); /* nothing could come meanwhile */
        if (r->client.call) signed_call_resume(r->client.call);
    }
}

bool response_has_begun(const struct request *r)
{
    return r->client.fan ? r->client.fan->headed : r->client.headed;
}

/* Sends the head of the client's response, once. */
static bool begin_head(struct request *r)
{
    if (response_has_begun(r)) return true;
    reply_headers(r);
    if (http_stream_begin(r->client.x, 200, STR("text/event-stream")) < 0) {
        http_exchange_abort(r->client.x);
        lost(r);
        return false;
    }
    r->client.headed = true;
    if (r->client.fan) r->client.fan->headed = true;
    begin_pings(r);
    return true;
}

static bool begin(struct request *r)
{
    if (r->client.began) return true;
    if (!begin_head(r)) return false;
    r->client.began = true;
    if (r->client.style != REPLY_OPENAI) {
        const struct usage usage = { .prompt_tokens = r->client.prompt_tokens };
        openai_message_start(&r->client.message, &usage);
        return true;
    }
    if (r->client.reply.surface == OPENAI_CHAT) openai_chunk_role(&r->client.reply, &r->client.out);
    if (r->client.logprobs.rows.len > 0) /* an echo, with the entry of its first token */
        openai_chunk_logprobs(&r->client.reply, buf_view(&r->client.output),
                              openai_logprobs_take(&r->client.logprobs), &r->client.out);
    else if (r->client.output.len > 0)
        openai_chunk_text(&r->client.reply, buf_view(&r->client.output), &r->client.out);
    buf_fini(&r->client.output);
    if (openai_text_form_make(&r->client.reply, &r->client.form) < 0) {
        http_exchange_abort(r->client.x);
        lost(r);
        return false;
    }
    return true;
}

void response_waiting(struct request *r, double eta_s)
{
    char text[64] = "waiting for an instance";
    if (!r->client.x || !r->client.api.stream || r->client.ending) return;
    if (r->client.fan && r->client.fan_index > 0) return; /* the first one tells for all */
    if (r->client.out.len > 0 || !begin_head(r) || http_stream_full(r->client.x)) return;
    if (eta_s > 0)
        snprintf(text, sizeof text, "waiting for an instance, about %.0f s", ceil(eta_s));
    sse_comment(&r->client.out, str_from(text));
    write_out(r);
}

/* ---- an output that is parsed ---- */

static bool is_parsed(const struct request *r)
{
    return r->client.turn.parses && engine_traits[r->client.target.kind].takes_ids;
}

static void on_part(void *arg, const struct dialogue_event *e)
{
    struct request *r = arg;
    struct openai_message *m = &r->client.message;
    if (!r->client.x || (r->client.api.stream && !begin(r))) return;
    switch (e->part) {
    case DIALOGUE_CONTENT:
        openai_message_text(m, e->text);
        break;
    case DIALOGUE_REASONING:
        openai_message_reasoning(m, e->text);
        break;
    case DIALOGUE_CALL:
        openai_message_call(m, e->index, e->text);
        break;
    case DIALOGUE_ARGUMENTS:
        openai_message_arguments(m, e->index, e->text);
        break;
    case DIALOGUE_CALL_END:
    case DIALOGUE_PART_COUNT:
        break;
    }
}

void response_forget(struct request *r)
{
    const struct turn *t = &r->client.turn;
    const struct dialogue_setup setup = {
        .dialects = t->dialects,
        .tool = t->tools.name,
        .tool_count = t->tools.count,
        .thinking = t->thinking,
        .event = on_part,
        .arg = r,
    };
    dialogue_fini(&r->client.parser);
    openai_message_fini(&r->client.message);
    dialogue_init(&r->client.parser, &setup);
    reasoning_fini(&r->client.reasoning);
    reasoning_init(&r->client.reasoning, t);
    openai_message_init(&r->client.message, &r->client.reply,
                        r->client.api.stream ? &r->client.out : NULL);
}

/* Parses more of the output, or its end. False: memory is short, and the client was cut off. */
static bool parse(struct request *r, struct str text, bool ends)
{
    struct dialogue_parser *p = &r->client.parser;
    int rc = ends ? dialogue_end(p) : dialogue_push(p, text);
    if (rc == 0) rc = ends ? reasoning_end(&r->client.reasoning) : r->client.reasoning.parser.rc;
    r->client.usage.reasoning_tokens = r->client.reasoning.tokens;
    r->client.reply.called = r->client.message.call_count > 0;
    if (rc == 0) rc = openai_message_rc(&r->client.message);
    if (rc == 0 || !r->client.x) return r->client.x != NULL;
    http_exchange_abort(r->client.x);
    lost(r);
    return false;
}

static void put_member(struct request *r, const char *name, struct str json)
{
    if (json.len > 0) openai_chunk_member(&r->client.reply, name, json, &r->client.out);
}

int response_delta(struct request *r, const struct openai_delta *delta)
{
    if (!r->client.x || !begin(r)) return 0;
    if (r->client.style != REPLY_OPENAI) {
        int rc = openai_message_delta(&r->client.message, delta->reasoning, delta->tool_calls);
        if (rc < 0) return rc;
    } else {
        put_member(r, "reasoning_content", delta->reasoning);
        put_member(r, "tool_calls", delta->tool_calls);
    }
    write_out(r);
    return 0;
}

/* Gives the parser more of the output; what was said of its tokens goes out at once. */
static void parsed_text(struct request *r, struct str text, struct str logprobs)
{
    const bool stream = r->client.api.stream;
    if (stream && logprobs.len > 0) {
        if (!r->client.x || !begin(r)) return;
        openai_chunk_logprobs(&r->client.reply, (struct str){ 0 }, logprobs, &r->client.out);
    }
    if (parse(r, text, false) && stream && r->client.out.len > 0) write_out(r);
}

struct openai_choice response_choice(struct request *r, const struct buf *text)
{
    if (is_parsed(r)) return openai_message_choice(&r->client.message);
    return (struct openai_choice){ .text = buf_view(text) };
}

void response_text(struct request *r, struct str text, struct str logprobs)
{
    if (!r->client.x && !r->is_question) return;
    if (is_parsed(r)) {
        parsed_text(r, text, logprobs);
        return;
    }
    if (!r->client.api.stream) {
        buf_str(&r->client.output, text);
        return;
    }
    if (!begin(r)) return;
    if (r->client.style != REPLY_OPENAI)
        openai_message_text(&r->client.message, text);
    else if (logprobs.len > 0)
        openai_chunk_logprobs(&r->client.reply, text, logprobs, &r->client.out);
    else
        openai_text_form_put(&r->client.form, text, &r->client.out);
    write_out(r);
}

/* Renders a whole response; 0: other outputs of the client's request are open. */
static int render_whole(struct request *r)
{
    if (r->client.fan) return fan_keep(r, &r->client.out);
    struct openai_choice choice = response_choice(r, &r->client.output);
    choice.logprobs = openai_logprobs_take(&r->client.logprobs);
    choice.prompt_logprobs = buf_view(&r->client.logprobs.prompt_json);
    choice.finish = r->client.finish;
    choice.stopped = r->client.stopped;
    if (r->client.output.rc < 0) return r->client.output.rc;
    if (r->client.logprobs.json.rc < 0) return r->client.logprobs.json.rc;
    int rc = openai_reply_whole(&r->client.reply, &choice, 1, &r->client.usage, &r->client.out);
    return rc < 0 ? rc : 1;
}

static void finish_whole(struct request *r)
{
    struct http_exchange *x = r->client.x;
    int rc = render_whole(r);
    if (rc < 0) { /* a part must not go out as the whole */
        r->client.outcome.ok = r->client.outcome.cut = false;
        openai_error_set(&r->client.problem, 0, OPENAI_UPSTREAM, NULL,
                         "The response is larger than the router can send whole; stream it.");
        response_problem(r, 1);
        request_over(r);
        return;
    }
    if (rc > 0) reply_headers(r);
    r->client.x = NULL;
    if (rc > 0) http_reply(x, 200, STR("application/json"), buf_view(&r->client.out));
    request_over(r);
}

void response_finish(struct request *r)
{
    if (!r->client.x) return;
    if (is_parsed(r) && !parse(r, (struct str){ 0 }, true)) return;
    if (r->client.fan) fan_count(r);
    if (!r->client.api.stream) {
        finish_whole(r);
        return;
    }
    if (!begin(r)) return;
    if (r->client.style == REPLY_OPENAI)
        openai_chunk_finish(&r->client.reply, r->client.finish, &r->client.out);
    if (!r->client.fan) say_end(r, &r->client.usage);
    r->client.ending = true;
    write_out(r);
    end_stream(r);
}

void response_problem(struct request *r, double retry_after_s)
{
    if (!r->client.x) return;
    struct http_exchange *x = r->client.x;
    if (r->client.fan) fan_drop(r);
    if (response_has_begun(r)) {
        /* The client must not take a part for the whole: an error event, then no [DONE]. */
        if (r->client.problem.status == 0) {
            openai_error_set(&r->client.problem, 0, OPENAI_UPSTREAM, NULL, "The engine failed.");
        }
        openai_message_error(&r->client.message, &r->client.problem, &r->client.out);
        r->client.x = NULL;
        /* A client that has no room for the error sees a broken connection, not an end. */
        if (r->client.out.rc < 0 ||
            http_stream_write(x, r->client.out.data, r->client.out.len) < 0) {
            http_exchange_abort(x);
        } else {
            http_stream_end(x);
        }
        return;
    }
    buf_clear(&r->client.out);
    reply_error(r->client.style, &r->client.problem, &r->client.out);
    if (r->client.problem.status == 429 || r->client.problem.status == 503) {
        char seconds[32];
        snprintf(seconds, sizeof seconds, "%.0f", retry_after_s < 1 ? 1 : ceil(retry_after_s));
        http_reply_header(x, "retry-after", str_from(seconds));
    }
    reply_headers(r);
    r->client.x = NULL;
    http_reply(x, r->client.problem.status, STR("application/json"), buf_view(&r->client.out));
}

int response_whole(struct request *r, struct str text, const struct openai_delta *delta)
{
    CLEANUP(buf_fini) struct buf reasoning = { 0 };
    struct str quoted = delta->reasoning;
    int rc = 0;
    if (quoted.len > 0) rc = json_unescape(str_of(quoted.data + 1, quoted.len - 2), &reasoning);
    const struct openai_choice choice = { .text = text,
                                          .reasoning = buf_view(&reasoning),
                                          .tool_calls = delta->tool_calls,
                                          .finish = delta->finish };
    buf_clear(&r->client.out);
    if (rc == 0)
        rc = openai_reply_whole(&r->client.reply, &choice, 1, &r->client.usage, &r->client.out);
    return rc;
}

void response_relay(struct request *r, int status, struct str content_type, struct str body)
{
    if (!r->client.x) return;
    struct http_exchange *x = r->client.x;
    if (r->client.fan) fan_drop(r);
    reply_headers(r);
    r->client.x = NULL;
    http_reply(x, status, content_type, body);
}

/* upstream.c - one leg at an engine: token ids and frames with ours, the client's JSON with others.
 *
 * A failed leg says nothing to the client: the decision thread sends the request elsewhere or
 * refuses it. At an engine of ours an answer goes on from where it stopped (legs.c); what another
 * engine began to stream cannot be taken back.
 */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "router/byte_loop.h"
#include "router/prompt.h"

#define BEAT_MS_MAX 60000 /* what an engine may name */

/* ---- silence ---------------------------------------------------------------------------------- */

static struct silence_config silence_config(const struct byte_loop *b)
{
    const struct router_config *c = b->config;
    return (struct silence_config){ c->engine_head_us, c->engine_gap_us, c->other_first_us,
                                    c->other_gap_us };
}

static void silence_timer(struct request *r)
{
    if (r->silence.look_us == INT64_MAX) {
        loop_timer_clear(r->home->loop, &r->silence_timer);
    } else {
        /* Without memory for it the request's deadline is left. */
        (void)loop_timer_set(r->home->loop, &r->silence_timer, r->silence.look_us);
    }
}

static void attempt_failed(struct request *r, enum retry_failure failure);

static void on_silence(void *arg)
{
    struct request *r = arg;
    const struct silence_config c = silence_config(r->home);
    int64_t now_us = loop_now_us(r->home->loop);
    if (r->over || !r->call) return;
    if (r->paused) silence_heard(&r->silence, &c, now_us);
    if (!silence_look(&r->silence, &c, now_us)) {
        silence_timer(r);
        return;
    }
    log_event(LOG_WARN, "engine_silent", "id=%s instance=%s seconds=%.1f head=%d", r->id,
              r->target.instance, (double)(now_us - r->silence.heard_us) * 1e-6,
              r->silence.has_head);
    attempt_failed(r, RETRY_SILENT);
}

static void hear(struct request *r, const struct http_response *head)
{
    const struct silence_config c = silence_config(r->home);
    int64_t now_us = loop_now_us(r->home->loop);
    uint64_t ms = 0;
    if (head) {
        struct str beat = http_response_header(head, GENERATE_BEAT_HEADER);
        if (str_to_u64(beat, &ms) < 0 || ms > BEAT_MS_MAX) ms = 0;
        silence_head(&r->silence, &c, (int64_t)ms * 1000, now_us);
    } else {
        bool first = !r->silence.has_bytes;
        silence_heard(&r->silence, &c, now_us);
        if (!first) return; /* the look moves itself */
    }
    silence_timer(r);
}

/* ---- ends of a leg ----------------------------------------------------------------------------- */

static void attempt_failed(struct request *r, enum retry_failure failure)
{
    if (r->call) signed_call_cancel(r->call);
    r->call = NULL;
    loop_timer_clear(r->home->loop, &r->silence_timer);
    request_failed(r, failure);
}

/* The answer is complete: hand it over and let go. */
static void attempt_done(struct request *r)
{
    r->call = NULL;
    r->outcome.ok = r->finish == FINISH_STOP || r->finish == FINISH_LENGTH;
    r->outcome.cut = r->finish == FINISH_LENGTH;
    if (r->first_us == 0) request_tokens(r, 0); /* an answer without text has its end as TTFT */
    if (r->x) {
        answer_finish(r);
    } else {
        request_over(r);
    }
}

static int on_frame(void *arg, struct str line)
{
    struct request *r = arg;
    struct generate_frame frame;
    struct err err = { 0 };
    if (r->over) return -ECANCELED; /* an earlier line of this slice found the client gone */
    if (line.len == 0) return 0;
    arena_reset(&r->frame_arena);
    int rc = generate_frame_decode(line, &r->frame_arena, &frame, &err);
    if (rc < 0) {
        log_event(LOG_WARN, "frame_malformed", "id=%s instance=%s error=%s", r->id,
                  r->target.instance, err.text);
        return rc;
    }
    leg_frame(r, &frame);
    if (frame.text.len > 0) answer_text(r, frame.text);
    if (frame.finish != FINISH_NONE) r->finish = frame.finish;
    if (frame.error.len > 0) {
        openai_error_set(&r->problem, 0, OPENAI_UPSTREAM, NULL, STR_FMT, STR_ARG(frame.error));
    }
    return 0;
}

static int on_event(void *arg, struct str data)
{
    struct request *r = arg;
    if (r->over) return -ECANCELED;
    if (str_eq(data, SSE_DONE)) return 0;
    struct openai_delta delta;
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = openai_delta_parse(data, &text, &delta, NULL);
    if (rc < 0 || delta.has_error) return -EPROTO;
    if (delta.has_usage) r->usage = delta.usage;
    if (delta.has_text) {
        request_tokens(r, 1);
        r->usage.generated_tokens += !delta.has_usage;
        answer_text(r, buf_view(&text));
    } else if (delta.finish != FINISH_NONE) {
        request_tokens(r, 0); /* the end token has no text, but took its time */
    }
    if (delta.finish != FINISH_NONE) r->finish = delta.finish;
    return 0;
}

static void on_head(void *arg, const struct http_response *head)
{
    struct request *r = arg;
    r->upstream_status = head->status;
    hear(r, head);
}

static void on_data(void *arg, struct str data)
{
    struct request *r = arg;
    int rc;
    hear(r, NULL);
    if (r->upstream_status != 200) {
        buf_str(&r->refusal, data);
        return;
    }
    if (r->target.kind == ENGINE_MUSTER) {
        rc = line_reader_feed(&r->lines, data, on_frame, r);
    } else if (r->api.stream) {
        rc = sse_reader_feed(&r->events, data, on_event, r);
    } else {
        rc = buf_str(&r->answer, data);
    }
    if (rc < 0 && !r->over) attempt_failed(r, RETRY_ERROR);
}

void upstream_deadline(void *request)
{
    struct request *r = request;
    if (r->over || r->ending || generate_at_text(r)) return;
    if (r->call) signed_call_cancel(r->call);
    r->call = NULL;
    openai_error_set(&r->problem, 0, OPENAI_DEADLINE, NULL, "The request's deadline passed.");
    answer_problem(r, 1);
    request_over(r);
}

/* Status other than 200: the engine is full, refuses the request itself, or is in trouble. */
static void on_refusal(struct request *r)
{
    int status = r->upstream_status;
    if (status == 429 || status == 503) {
        attempt_failed(r, RETRY_OVERLOADED);
    } else if (status >= 400 && status < 500 && r->refusal.rc == 0 && status != 401 &&
               r->leg_from == 0) {
        /* The request's own fault: the engine's words go to the client. */
        struct str words = str_trim(buf_view(&r->refusal));
        openai_error_set(&r->problem, 0, OPENAI_INVALID, NULL,
                         "The engine refused the request with status %d.", status);
        r->problem.status = status;
        if (str_starts(words, STR("{"))) {
            answer_relay(r, status, STR("application/json"), words);
        } else {
            answer_problem(r, 1);
        }
        request_over(r);
    } else {
        log_event(LOG_WARN, "engine_error", "id=%s instance=%s status=%d", r->id,
                  r->target.instance, status);
        attempt_failed(r, RETRY_ERROR);
    }
}

/* A whole reply of another engine goes to the client as it is. */
static void on_whole(struct request *r)
{
    struct openai_delta delta;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (openai_delta_parse(buf_view(&r->answer), &text, &delta, NULL) < 0 || delta.has_error) {
        attempt_failed(r, RETRY_ERROR);
        return;
    }
    if (delta.has_usage) r->usage = delta.usage;
    r->finish = delta.finish;
    r->outcome.ok = true;
    r->outcome.cut = r->finish == FINISH_LENGTH;
    request_tokens(r, r->usage.generated_tokens);
    answer_relay(r, 200, STR("application/json"), buf_view(&r->answer));
    request_over(r);
}

static void on_end(void *arg, enum http_end why)
{
    struct request *r = arg;
    if (why == HTTP_END_TLS)
        log_event(LOG_WARN, "engine_tls_failed", "id=%s instance=%s error=%s", r->id,
                  r->target.instance, signed_call_problem(r->call));
    r->call = NULL;
    loop_timer_clear(r->home->loop, &r->silence_timer);
    switch (why) {
    case HTTP_END_OK:
        if (r->upstream_status != 200) {
            on_refusal(r);
        } else if (r->target.kind != ENGINE_MUSTER && !r->api.stream) {
            on_whole(r);
        } else if (r->finish == FINISH_LENGTH && r->leg_hands) {
            r->finish = FINISH_NONE;
            request_prefilled(r);
        } else if (r->finish == FINISH_STOP || r->finish == FINISH_LENGTH) {
            attempt_done(r);
        } else {
            /* FINISH_ERROR or FINISH_ABORT, or an end without one: the engine gave up. */
            attempt_failed(r, r->finish == FINISH_NONE ? RETRY_DIED : RETRY_ERROR);
        }
        break;
    case HTTP_END_TLS:
    case HTTP_END_CONNECT_FAILED:
    case HTTP_END_UNTRUSTED: /* somebody else sits at its port */
        attempt_failed(r, RETRY_UNREACHABLE);
        break;
    case HTTP_END_NAME:
    case HTTP_END_LOCAL:
        attempt_failed(r, RETRY_LOCAL);
        break;
    case HTTP_END_RESET_BEFORE_HEAD:
    case HTTP_END_RESET_AFTER_HEAD:
        attempt_failed(r, RETRY_DIED);
        break;
    case HTTP_END_TIMEOUT: /* the call has no deadline of its own: request.deadline ends it */
    case HTTP_END_MALFORMED:
    case HTTP_END_CANCELLED:
    case HTTP_END_COUNT:
        attempt_failed(r, RETRY_ERROR);
        break;
    }
}

void upstream_start(struct request *r)
{
    struct byte_loop *b = r->home;
    bool ours = r->target.kind == ENGINE_MUSTER;
    CLEANUP(buf_fini) struct buf body = { 0 };
    int rc = leg_begin(r);
    if (rc != 0) {
        if (rc < 0) request_failed(r, RETRY_ERROR);
        if (rc > 0) attempt_done(r);
        return;
    }
    if (r->is_question && !ours) { /* another engine would get the client's own request */
        request_over(r);
        return;
    }
    if (ours && r->bundle != r->target.bundle) {
        bool large = r->body.len > TEXT_INLINE_BYTES;
        rc = large ? -E2BIG : prompt_tokenize(r, r->target.bundle, r->target.context_tokens);
        if (rc == -E2BIG) {
            r->problem = (struct openai_error){ 0 };
            generate_retokenise(r);
            return;
        }
    }
    if (ours && rc == 0) rc = prompt_check_context(r, r->target.context_tokens);
    if (rc < 0) {
        answer_problem(r, 1);
        request_over(r);
        return;
    }
    if (ours && leg_body(r, &body) < 0) {
        request_failed(r, RETRY_ERROR);
        return;
    }
    struct http_header header[2] = { { STR("content-type"), STR("application/json") },
                                     { STR("x-request-id"), str_from(r->id) } };
    struct str path = ours                            ? STR("/internal/generate")
                      : r->api.surface == OPENAI_CHAT ? STR("/v1/chat/completions")
                                                      : STR("/v1/completions");
    struct http_call_request call = {
        .host = str_from(r->target.host),
        .port = r->target.port,
        .tls = r->target.tls,
        .path = path,
        .headers = header,
        .header_count = COUNT_OF(header),
        .body = ours ? buf_view(&body) : r->body,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = r,
    };
    struct fleet_id id = { 0 };
    if (ours) fleet_id_engine(b->link, r->target.instance, &id);
    r->call = signed_call_start(b->signer, &call, &id.as, true, NULL);
    if (!r->call) {
        request_failed(r, RETRY_LOCAL);
        return;
    }
    const struct silence_config limits = silence_config(b);
    silence_begin(&r->silence, &limits, ours, r->api.stream, loop_now_us(b->loop));
    r->silence_timer.fn = on_silence;
    r->silence_timer.arg = r;
    silence_timer(r);
}

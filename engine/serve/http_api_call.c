/* http_api_call.c - serves one generating request, from its checked form to its last byte.
 *
 *     call_start ── device_submit ──► accepted ──► tokens ... ──► ended
 *          │              ▲              │            │
 *          └─ kv_fetch ───┘              │            └─ the client left: device_abort, then ended
 *             (or the client left)       │
 *          refused: 429, 400 ◄───────────┘   (also an accepted one that was displaced in the queue)
 *
 * A call that names a peer to ask for K and V is submitted when that fetch has ended, successful or
 * not: the prefix cache then holds the pages that came, and the rest is computed.
 *
 * The head of a stream is sent when the device has accepted the request, not before: until then an
 * error still has its own status. If a request is displaced after its head was sent, its last frame
 * or event says so. While the client's socket is full the job's mail is left unread; the device
 * sees that and pauses the session, so a slow reader costs pages, not memory.
 */
#include "engine/serve/http_api_call.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/wire/sse.h"
#include "engine/serve/http_api_embed.h"
#include "engine/serve/http_api_fan.h"

#include <stdio.h>
#include <stdlib.h>

/* Tells the request's trace how it ended. `mail` NULL: the client left before the device had it. */
static void trace_over(struct call *c, const struct job_mail *mail)
{
    if (!c->trace) return;
    bool completes = c->form->beats || c->reply.surface == OPENAI_COMPLETION;
    const struct call_trace_facts facts = {
        .id = str_from(c->id.text),
        .model = c->adapter ? adapter_entry_name(c->adapter) : c->api->config.model_name,
        .operation = completes ? STR("text_completion") : STR("chat"),
        .prompt_tokens = c->prompt_tokens,
        .begun_tokens = c->begun_tokens,
        .max_tokens = c->max_tokens,
        .arrival_us = c->arrival_us,
    };
    call_trace_over(c->trace, &facts, mail, loop_now_us(c->api->loop));
    c->trace = NULL;
}

static void call_free(struct call *c)
{
    struct http_api *api = c->api;
    if (c->fan) call_fan_forget(c);
    trace_over(c, NULL);
    loop_timer_clear(api->loop, &c->ping);
    list_remove(&c->link);
    api->call_count--;
    job_free(c->job);
    adapters_drop(api->config.adapters, c->adapter);
    turn_output_free(c->turn);
    openai_message_fini(&c->plain);
    buf_fini(&c->text);
    buf_fini(&c->repeated);
    openai_logprobs_fini(&c->logprobs);
    free(c);
}

/* Lets go of the exchange, which was answered or is broken. */
static void leave(struct call *c)
{
    if (c->fan)
        call_fan_leave(c);
    else
        c->x = NULL;
}

/* Sends what the form has written to api->out. A client that cannot be written to is gone. */
static void send_out(struct call *c)
{
    struct http_api *api = c->api;
    if (!c->x || api->out.len == 0) return;
    if (api->out.rc == 0 && http_stream_write(c->x, api->out.data, api->out.len) == 0) {
        c->written_us = loop_now_us(api->loop);
    } else {
        http_exchange_abort(c->x);
        leave(c);
        device_abort(api->device, c->job);
    }
    buf_clear(&api->out);
}

static void on_ping(void *arg)
{
    struct call *c = arg;
    struct http_api *api = c->api;
    int64_t quiet_from = c->written_us, now_us = loop_now_us(api->loop);
    if (!c->x) return;
    if (now_us - quiet_from >= api->config.ping_us) {
        /* Set for a full stream too: with a timer in the past the loop would never wait. */
        quiet_from = now_us;
        if (!http_stream_full(c->x)) {
            buf_clear(&api->out);
            if (c->reply.style == REPLY_ANTHROPIC)
                anthropic_ping(&api->out);
            else
                sse_comment(&api->out, STR("ping"));
            send_out(c);
        }
    }
    if (c->x) loop_timer_set(api->loop, &c->ping, quiet_from + api->config.ping_us);
}

void call_beat(struct call *c)
{
    struct http_api *api = c->api;
    if (!c->form->beats || !c->begun || !c->x || http_stream_full(c->x)) return;
    if (loop_now_us(api->loop) - c->written_us < GENERATE_BEAT_US / 2) return;
    buf_clear(&api->out);
    buf_byte(&api->out, '\n');
    send_out(c);
}

/* Sends the first bytes of a call's output. */
static void begin_output(struct call *c)
{
    struct http_api *api = c->api;
    c->written_us = loop_now_us(api->loop);
    if (c->form->begin) c->form->begin(c);
    send_out(c);
    c->ping.fn = on_ping;
    c->ping.arg = c;
    if (c->x && c->form->pings) {
        loop_timer_set(api->loop, &c->ping, c->written_us + api->config.ping_us);
    }
}

static void begin_stream(struct call *c)
{
    struct http_api *api = c->api;
    c->begun = true;
    if (c->fan && !call_fan_begin(c->fan)) {
        begin_output(c);
        return;
    }
    if (c->form->beats) http_reply_header(c->x, GENERATE_BEAT_HEADER, STR(GENERATE_BEAT_MS));
    if (call_trace_is_sampled(c->trace)) http_reply_header(c->x, GENERATE_TRACED_HEADER, STR("1"));
    http_reply_header(c->x, "cache-control", STR("no-cache"));
    /* Tells reverse proxies of nginx's kind not to buffer the stream. */
    http_reply_header(c->x, "x-accel-buffering", STR("no"));
    http_api_count(api, c->x, 200);
    if (http_stream_begin(c->x, 200, str_from(c->form->content_type)) < 0) {
        http_exchange_abort(c->x);
        leave(c);
        device_abort(api->device, c->job);
        return;
    }
    begin_output(c);
}

/* Returns true if a byte of the response was sent. */
static bool has_begun(const struct call *c)
{
    return c->fan ? c->fan->begun : c->begun;
}

static void refuse(struct call *c, const struct job_mail *mail)
{
    enum openai_problem problem = OPENAI_INTERNAL;
    const char *param = NULL;
    if (mail->refused == -EAGAIN) {
        problem = OPENAI_OVERLOADED;
    } else if (mail->refused == -ENOMEM) {
        problem = OPENAI_UNAVAILABLE;
    } else if (mail->refused == -E2BIG) {
        problem = OPENAI_CONTEXT_LENGTH;
        param = "messages";
    } else if (mail->refused == -EINVAL) { /* an output begun elsewhere that its grammar forbids */
        problem = OPENAI_INVALID;
        param = "grammar";
    }
    http_api_refuse(c->api, c->x, problem, param, "%s", mail->error);
    leave(c);
}

/* Replies with an error status if the session failed and no stream has begun. Returns true if it
 * did. */
static bool end_as_error(struct call *c, const struct job_mail *mail)
{
    if (c->form->stream && has_begun(c)) return false;
    switch (mail->end) {
    case SESSION_END_DEADLINE:
        http_api_refuse(c->api, c->x, OPENAI_DEADLINE, NULL,
                        "the request was not done within its time (%u tokens generated)",
                        mail->generated);
        break;
    case SESSION_END_ERROR:
        http_api_refuse(c->api, c->x, OPENAI_INTERNAL, NULL, "%s", mail->error);
        break;
    case SESSION_END_ABORT:
        http_api_refuse(c->api, c->x, OPENAI_UNAVAILABLE, NULL, "the engine is shutting down");
        break;
    case SESSION_END_NONE:
    case SESSION_END_STOP:
    case SESSION_END_LENGTH:
    case SESSION_END_DISPLACED: /* a reply that has not begun was refused */
    case SESSION_END_COUNT:
        return false;
    }
    leave(c);
    return true;
}

/* Lets go of a client because the device has stalled. A stream is cut, as if the engine had died,
 * if its reader can go on elsewhere; other clients get an error. The job stays until the device
 * gives it back, which may be never. */
void call_let_go(struct call *c)
{
    struct http_api *api = c->api;
    struct job_mail mail = { .end = SESSION_END_ERROR };
    if (!c->x || c->fetch) return;
    snprintf(mail.error, sizeof mail.error, STALLED_TEXT, (double)api->stalled_us * 1e-6);
    if (!has_begun(c) || !c->form->stream) {
        http_api_refuse(api, c->x, OPENAI_UNAVAILABLE, NULL, "%s", mail.error);
    } else if (c->form->beats) {
        http_exchange_abort(c->x);
    } else {
        buf_clear(&api->out);
        c->form->end(c, &mail);
        send_out(c);
        if (c->x) http_stream_end(c->x);
    }
    leave(c);
    device_abort(api->device, c->job);
}

static void end_call(struct call *c, const struct job_mail *mail)
{
    bool whole = mail->end == SESSION_END_STOP || mail->end == SESSION_END_LENGTH;
    if (c->fan) call_fan_count(c, mail);
    if (c->x && mail->refused && !has_begun(c)) refuse(c, mail);
    if (c->x && !end_as_error(c, mail)) {
        c->form->end(c, mail);
        if (c->form->stream) send_out(c);
        if (c->x && c->form->stream && (!whole || call_fan_is_last(c))) {
            http_stream_end(c->x);
            leave(c);
        }
    }
    log_event(LOG_DEBUG, "request_ended",
              "id=%s end=%s prompt=%u cached=%u generated=%u trace_id=%s", c->id.text,
              mail->refused ? "refused" : session_end_name(mail->end), c->prompt_tokens,
              mail->cached_tokens, mail->generated, call_trace_text(c->trace));
    trace_over(c, mail);
    call_free(c);
}

void call_pump(struct call *c)
{
    struct http_api *api = c->api;
    struct job_mail *mail = &api->mail;
    while (!c->x || !c->form->stream || !c->begun || !http_stream_full(c->x)) {
        if (!device_take_mail(api->device, c->job, mail)) return;
        buf_clear(&api->out);
        bool brings = mail->id_count > 0 || mail->text.len > 0 || mail->scores.len > 0;
        bool run = mail->accepted || brings;
        if (c->x && run && !mail->refused && !c->begun && c->form->stream) begin_stream(c);
        bool whole = mail->ended && !mail->refused; /* without a token, where none is asked for */
        if (mail->id_count > 0 || whole) call_fan_go_on(c);
        if (c->x && brings) {
            c->form->tokens(c, mail);
            if (c->form->stream) send_out(c);
        }
        if (mail->ended) {
            end_call(c, mail);
            return;
        }
    }
}

void call_mail(void *http_api, struct job *job)
{
    (void)http_api;
    if (job->ask.spec.embedding)
        embed_mail(job);
    else
        call_pump(job->ask.owner);
}

void call_cancel(struct call *c)
{
    c->x = NULL;
    if (c->submitted)
        device_abort(c->api->device, c->job);
    else
        call_free(c);
}

void call_left(struct call *c, enum http_abort why)
{
    c->x = NULL;
    log_event(LOG_DEBUG, "client_left", "id=%s slow=%d trace_id=%s", c->id.text,
              why == HTTP_ABORT_SLOW_READER, call_trace_text(c->trace));
    if (!c->submitted) { /* the device does not have it yet */
        if (c->fetch) kv_fetch_cancel(c->fetch);
        call_free(c);
        return;
    }
    device_abort(c->api->device, c->job);
    call_pump(c); /* takes mail left by a slow reader, or the job would stay paused */
}

static void on_abort(void *arg, enum http_abort why)
{
    call_left(arg, why);
}

static void on_drain(void *arg)
{
    call_pump(arg);
}

/* ---- start --------------------------------------------------------------------------------------- */

struct block_key http_api_salt(const struct http_api *api, const struct adapter *adapter,
                               struct str tenant)
{
    struct str digest = adapter ? str_from(adapter->digest) : (struct str){ 0 };
    return block_salt(api->key_seed, str_from(api->digest), digest, tenant);
}

static struct job *make_job(struct http_api *api, const struct http_request *req,
                            const struct call_ask *ask)
{
    struct job *job = job_new();
    if (!job) return NULL;
    struct job_ask *a = &job->ask;
    struct sampling settled = *ask->sampling;
    const struct sampling *s = &settled;
    sampling_settle(&settled, &api->info->model->sampling);
    uint32_t room = api->info->context_max - (uint32_t)ask->ids->count;
    a->number = ++api->numbered;
    a->id_count = (uint32_t)ask->ids->count;
    a->ids = TAKE(ask->ids->data);
    *ask->ids = (struct ids){ 0 };
    a->spec = (struct output_spec){
        .sampling = { .temperature = (float)s->temperature,
                      .top_k = s->top_k,
                      .top_p = (float)s->top_p,
                      .min_p = (float)s->min_p,
                      .repetition_penalty = (float)s->repetition_penalty,
                      .presence_penalty = (float)s->presence_penalty,
                      .frequency_penalty = (float)s->frequency_penalty,
                      .seed = s->has_seed ? s->seed
                                          : hash64(&a->number, sizeof a->number, api->config.seed),
                      .logprobs = max_u32(ask->top_logprobs, ask->prompt_top),
                      .want_logprob = ask->logprobs || ask->scores_prompt },
        .prompt_tokens = ask->prompt_tokens,
        .prompt_only = ask->prompt_only,
        .min_tokens = ask->min_tokens,
        .limit = ask->limit,
        .ignore_eos = ask->ignore_eos,
        .adapter = ask->adapter ? adapter_entry_adapter(ask->adapter) : NULL,
    };
    a->score_from = ask->score_from;
    a->output_max = ask->max_tokens ? min_u32(ask->max_tokens, room) : room;
    a->goes_on = ask->goes_on;
    a->salt = http_api_salt(api, a->spec.adapter, ask->tenant);
    a->tenant = ask->tenant.len > 0 ? hash64(ask->tenant.data, ask->tenant.len, 0) : 0;
    a->arrival_us = req->received_us;
    a->deadline_us = req->received_us + api->config.request_us_max;
    if (ask->deadline_us) a->deadline_us = min_i64(a->deadline_us, ask->deadline_us);
    a->predicted_p50 = ask->predicted_p50;
    a->predicted_p90 = ask->predicted_p90;
    a->predicted_mean = ask->predicted_mean;
    a->has_rank = ask->has_rank;
    a->rank = ask->rank;
    a->group = ask->group;
    a->weight = ask->weight;
    a->marks = ask->marks;
    if (ask->grammar && *ask->grammar) {
        const char kind = (char)(ask->grammar_spec->kind | (ask->marks ? 0x40 : 0));
        struct sha256_run *run = sha256_begin();
        sha256_more(run, &kind, 1);
        sha256_more(run, ask->grammar_spec->text.data, ask->grammar_spec->text.len);
        sha256_end(run, a->grammar_key);
        a->grammar = TAKE(*ask->grammar);
    }
    if (job_set_stop(job, ask->stop, ask->stop_count) == 0 &&
        job_set_bias(job, ask->bias, ask->bias_count) == 0)
        return job;
    job_free(job);
    return NULL;
}

struct usage call_usage(const struct call *c, const struct job_mail *mail)
{
    return (struct usage){
        .prompt_tokens = c->prompt_tokens,
        .cached_tokens = min_u32(mail->cached_tokens, c->prompt_tokens),
        .generated_tokens = mail->generated,
        .reasoning_tokens = c->turn ? c->turn->reasoning.tokens : 0,
    };
}

bool call_refused(struct http_api *api, struct http_exchange *x, uint32_t calls, bool entered)
{
    if (api->stalled) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, STALLED_TEXT,
                        (double)api->stalled_us * 1e-6);
    } else if (api->state == HTTP_API_DRAINING && !entered) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "draining: no new requests are taken");
    } else if (api->sleep > SLEEP_SETTLING || (api->sleep == SLEEP_SETTLING && !entered)) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, SLEEPING_TEXT);
    } else if (api->call_count + calls > api->config.requests_max) {
        metric_inc(engine_metric(api->metrics, EM_REFUSED));
        http_api_refuse(api, x, OPENAI_OVERLOADED, NULL, "%u requests are in the engine already",
                        api->call_count);
    } else {
        return false;
    }
    return true;
}

/* Returns true if the prompt does not fit, after refusing it. */
static bool too_long(struct http_api *api, struct http_exchange *x, const struct call_ask *ask)
{
    if (ask->ids->count < api->info->context_max) return false;
    http_api_refuse(
        api, x, OPENAI_CONTEXT_LENGTH, "messages",
        "the prompt has %zu tokens, but the context of this model is %u tokens and one is "
        "needed to answer",
        ask->ids->count, api->info->context_max);
    return true;
}

void call_submit(struct call *c)
{
    c->submitted = true;
    device_submit(c->api->device, c->job);
}

static void on_fetched(void *arg, uint32_t tokens, uint32_t pulled)
{
    struct call *c = arg;
    (void)tokens, (void)pulled; /* the prefix cache knows */
    c->fetch = NULL;
    call_submit(c);
}

/* Starts the KV fetch of a call. Returns false if there is none: no peer is named, the request has an
 * adapter, too many fetches are under way, or memory is short. */
static bool fetch_first(struct call *c, const struct call_ask *ask)
{
    if (ask->kv_host.len == 0 || ask->adapter) return false;
    const struct job_ask *a = &c->job->ask;
    const struct kv_fetch_ask fetch = {
        .ids = a->ids,
        .id_count = a->id_count,
        .key_seed = c->api->key_seed,
        .tenant = ask->tenant,
        .salt = a->salt,
        .host = ask->kv_host,
        .port = ask->kv_port,
        .ticket = ask->kv_ticket,
        .key = ask->kv_key,
        .tls = ask->kv_tls,
        .deadline_us = a->deadline_us,
        .on_end = on_fetched,
        .arg = c,
    };
    return kv_fetch_start(c->api->fetches, &fetch, &c->fetch) == 0;
}

/* Prepares what is written of log-probabilities; a router gets them as they are. */
static void set_logprobs(struct call *c, const struct call_ask *ask)
{
    const struct openai_request r = { .surface = ask->reply.surface,
                                      .logprobs = ask->logprobs && !c->form->beats,
                                      .top_logprobs = ask->top_logprobs,
                                      .scores_prompt = ask->scores_prompt,
                                      .prompt_top = ask->prompt_top,
                                      .echo = ask->echoes,
                                      .ignore_eos = ask->ignore_eos };
    const struct openai_tokens tokens = { c->api->info->model->vocab, vocab_bytes, detok_heard,
                                          vocab_is_end };
    openai_logprobs_reset(&c->logprobs, &r, &tokens, BUF_BYTES_MAX);
    if (ask->score_from == 0 || c->form->beats) return;
    int rc = openai_logprobs_prompt(&c->logprobs, c->job->ask.ids, ask->prompt_tokens, ask->echo);
    if (rc < 0) c->text.rc = rc; /* sticks until its end */
}

struct call *call_new(struct http_api *api, struct http_exchange *x, const struct call_ask *ask)
{
    struct call *c = calloc(1, sizeof *c);
    struct job *job = c ? make_job(api, http_exchange_request(x), ask) : NULL;
    if (!job) {
        turn_output_free(ask->turn);
        free(c);
        return NULL;
    }
    c->api = api;
    c->x = x;
    c->form = ask->form;
    c->job = job;
    c->id = *ask->id;
    c->reply = ask->reply;
    c->adapter = adapters_share(api->config.adapters, ask->adapter);
    if (c->adapter) engine_metrics_adapter(api->metrics, adapter_entry_name(c->adapter));
    c->reply.id = str_from(c->id.text);
    buf_str(&c->text, ask->echo); /* an error sticks until its end */
    set_logprobs(c, ask);
    if (buf_str(&c->repeated, ask->reply.repeated) < 0) c->text.rc = c->repeated.rc;
    c->reply.repeated = buf_view(&c->repeated);
    c->turn = ask->turn;
    openai_message_init(c->turn ? &c->turn->message : &c->plain, &c->reply,
                        c->form->stream ? &api->out : NULL);
    c->prompt_tokens = ask->prompt_tokens;
    c->begun_tokens = job->ask.id_count - ask->prompt_tokens;
    c->max_tokens = ask->max_tokens;
    c->arrival_us = job->ask.arrival_us;
    c->trace = call_trace_begin(api->config.tracer, http_exchange_request(x), &api->rng,
                                api->metrics->metrics, loop_now_us(api->loop));
    job->ask.owner = c;
    list_push_back(&api->calls, &c->link);
    api->call_count++;
    return c;
}

void call_start(struct http_api *api, struct http_exchange *x, const struct call_ask *ask)
{
    http_reply_header(x, "x-request-id", str_from(ask->id->text));
    if (call_refused(api, x, 1, ask->entered) || too_long(api, x, ask)) {
        turn_output_free(ask->turn);
        return;
    }
    struct call *c = call_new(api, x, ask);
    if (!c) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
        return;
    }
    http_exchange_watch(x, on_abort, on_drain, c);
    if (!fetch_first(c, ask)) call_submit(c);
}

void calls_free(struct http_api *api)
{
    LIST_EACH_SAFE (&api->calls, node) {
        call_free(CONTAINER_OF(node, struct call, link));
    }
}

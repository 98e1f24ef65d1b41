/* request_trace.c - turns the steps of a request into spans.
 *
 * Nothing is written before the end, so that a request which turns out slow or failed can still be kept, and
 * one that is not kept costs no more than a few stores. Times are those of the byte loop's turns, as all
 * times of the router. Attribute names are those of OpenTelemetry's semantic conventions 1.41.0 where it has
 * one (docs/tracing.md). */
#include "router/request_trace.h"

#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/wire/generate.h"
#include "router/byte_loop.h"

#include <stdio.h>

#define SPANS_BYTES_MAX ((size_t)256 << 10)

static int64_t now_us(const struct request *r)
{
    return loop_now_us(r->home->loop);
}

/* ---- the client's context ---- */

static void count_ignored(struct request *r, const char *header)
{
    struct str label = str_from(header);
    metric_inc(metric_series(r->home->metrics, RM_TRACE_IGNORED, &label));
}

/* Returns the client's context in the request's arena; NULL: there is none. */
static struct trace_passed *read_client(struct request *r, const struct http_request *req)
{
    struct trace_passed given;
    enum trace_headers found = trace_headers_read(req, &given);
    if (found == TRACE_NONE) return NULL;
    if (found == TRACE_BAD_PARENT) count_ignored(r, "traceparent");
    if (found == TRACE_BAD_PARENT) return NULL;
    if (found == TRACE_BAD_STATE) count_ignored(r, "tracestate");
    struct trace_passed *kept = arena_alloc(&r->client.arena, sizeof *kept);
    if (kept) *kept = given;
    return kept;
}

static void begin_record(struct request *r, const struct trace_passed *client,
                         const struct trace_passed *own, bool sampled)
{
    struct request_trace *t = r->client.trace;
    t->passed = *own;
    t->passed.context.sampled = t->sampled = sampled;
    t->has_parent = client != NULL;
    if (client) memcpy(t->parent_id, client->context.span_id, SPAN_ID_BYTES);
    memcpy(t->root_id, own->context.span_id, SPAN_ID_BYTES);
    t->to_date_us = clock_wall_us() - clock_mono_us();
    r->traced = true;
    r->sampled = sampled;
    trace_hex(own->context.trace_id, TRACE_ID_BYTES, r->trace_id);
}

void request_trace_begin(struct request *r, const struct http_request *req)
{
    struct byte_loop *b = r->home;
    struct trace_passed *client = read_client(r, req);
    r->client.passed = client;
    if (!b->tracer) return;
    struct trace_passed own = { .state = "" };
    if (client)
        own = *client;
    else
        trace_id_draw(&b->rng, own.context.trace_id);
    bool sampled = tracer_takes(b->tracer, client ? &client->context : NULL, own.context.trace_id,
                                TRACE_REQUEST_SPANS, now_us(r));
    if (sampled || tracer_has_late(b->tracer)) r->client.trace = pool_take(&b->traces);
    if (r->client.trace) {
        span_id_draw(&b->rng, own.context.span_id);
        begin_record(r, client, &own, sampled);
        r->client.passed = &r->client.trace->passed;
        return;
    }
    /* Engines are told that it is not sampled, so that they do not decide anew. */
    if (!client) {
        span_id_draw(&b->rng, own.context.span_id);
        r->client.passed = client = arena_alloc(&r->client.arena, sizeof *client);
        if (client) *client = own;
    }
    if (client) client->context.sampled = false;
}

const char *request_trace_text(const struct request *r)
{
    return r->sampled ? r->trace_id : "-";
}

/* ---- legs ---- */

void request_trace_asked(struct request *r)
{
    struct request_trace *t = r->client.trace;
    if (!t) return;
    t->now = t->leg_count < TRACE_LEGS_MAX ? &t->leg[t->leg_count++] : NULL;
    t->legs_left_out += !t->now;
    if (!t->now) return;
    *t->now = (struct trace_leg){ .asked_us = now_us(r) };
    span_id_draw(&r->home->rng, t->now->route_id);
    span_id_draw(&r->home->rng, t->now->attempt_id);
}

void request_trace_told(struct request *r, const struct route_told *told)
{
    struct request_trace *t = r->client.trace;
    if (!t || !t->now) return;
    struct trace_leg *leg = t->now;
    const struct target *to = &r->client.target;
    leg->told = *told;
    leg->told_us = now_us(r);
    leg->port = to->port;
    leg->kind = to->kind;
    leg->length_p50 = to->length_p50;
    leg->length_p90 = to->length_p90;
    leg->length_mean = to->length_mean;
    leg->hit_tokens = to->hit_tokens;
    leg->generated_from = leg_generated(r);
    memcpy(leg->instance, to->instance, sizeof leg->instance);
    memcpy(leg->host, to->host, sizeof leg->host);
    memcpy(leg->kv_from, to->kv_instance, sizeof leg->kv_from);
}

uint32_t request_trace_call(struct request *r, struct trace_headers_text *text,
                            struct http_header ret[TRACE_HEADER_COUNT])
{
    struct request_trace *t = r->client.trace;
    if (!r->client.passed || r->is_question) return 0;
    if (t) memcpy(t->passed.context.span_id, t->root_id, SPAN_ID_BYTES);
    if (t && t->now) {
        t->now->sent_us = now_us(r);
        memcpy(t->passed.context.span_id, t->now->attempt_id, SPAN_ID_BYTES);
    }
    return trace_headers_make(r->client.passed, text, ret);
}

void request_trace_head(struct request *r, const struct http_response *head)
{
    struct request_trace *t = r->client.trace;
    if (!t || !t->now) return;
    t->now->engine_tells = http_response_header(head, GENERATE_TRACED_HEADER).len > 0;
}

void request_trace_tokens(struct request *r, uint32_t count)
{
    struct request_trace *t = r->client.trace;
    if (!t || !t->now) return;
    if (t->now->first_us == 0) t->now->first_us = now_us(r);
    t->now->last_us = now_us(r);
    t->now->generated += count;
}

void request_trace_leg_over(struct request *r, const char *how, bool failed)
{
    struct request_trace *t = r->client.trace;
    if (!t || !t->now) return;
    t->now->ended_us = now_us(r);
    t->now->end = how;
    t->now->failed = failed;
    t->now = NULL;
}

void request_trace_moved(struct request *r)
{
    const struct route_told told = { .estimate_s = -1, .runner_up_s = -1 };
    request_trace_leg_over(r, "migrated", false);
    request_trace_asked(r);
    request_trace_told(r, &told);
}

/* ---- spans ---- */

static struct otlp_span span_of(const struct request_trace *t, const uint8_t *id,
                                const uint8_t *parent_id, int64_t start_us, int64_t end_us)
{
    return (struct otlp_span){ .trace_id = t->passed.context.trace_id,
                               .span_id = id,
                               .parent_id = parent_id,
                               .state = str_from(t->passed.state),
                               .kind = OTLP_INTERNAL,
                               .start_us = start_us + t->to_date_us,
                               .end_us = max_i64(end_us, start_us) + t->to_date_us };
}

static void put_lengths(struct otlp_writer *w, const struct trace_leg *leg)
{
    if (leg->length_p90 <= 0) return;
    otlp_f64(w, "muster.predicted.output_tokens.p50", leg->length_p50);
    otlp_f64(w, "muster.predicted.output_tokens.p90", leg->length_p90);
    otlp_f64(w, "muster.predicted.output_tokens.mean", leg->length_mean);
}

static void put_route(struct request *r, const struct trace_leg *leg, struct otlp_writer *w)
{
    const struct request_trace *t = r->client.trace;
    const struct route_told *told = &leg->told;
    int64_t end_us = leg->told_us > 0 ? leg->told_us : leg->ended_us;
    struct otlp_span s = span_of(t, leg->route_id, t->root_id, leg->asked_us, end_us);
    s.name = STR("route");
    if (leg->told_us == 0) s.problem = "no instance took the request";
    otlp_open(w, &s);
    if (told->policy) {
        otlp_str(w, "muster.route.policy", str_from(told->policy));
        otlp_int(w, "muster.route.candidates", told->candidates);
        otlp_int(w, "muster.route.decision", (int64_t)told->decision);
        if (told->estimate_s >= 0) otlp_f64(w, "muster.route.estimate_s", told->estimate_s);
        if (told->runner_up_s >= 0) otlp_f64(w, "muster.route.runner_up_s", told->runner_up_s);
    }
    /* It may have been held before an earlier leg too. */
    bool held = told->held_us >= leg->asked_us && told->held_us < leg->told_us;
    otlp_f64(w, "muster.route.held_s", held ? (double)(leg->told_us - told->held_us) * 1e-6 : 0);
    if (leg->told_us > 0) {
        otlp_str(w, "muster.instance", str_from(leg->instance));
        otlp_int(w, "muster.predicted.hit_tokens", leg->hit_tokens);
        put_lengths(w, leg);
    }
    if (leg->kv_from[0]) otlp_str(w, "muster.kv.from", str_from(leg->kv_from));
    otlp_close(w);
}

/* Writes what the stream of an engine without spans of its own showed. */
static void put_observed(struct request *r, const struct trace_leg *leg, struct otlp_writer *w)
{
    const struct request_trace *t = r->client.trace;
    if (leg->engine_tells && !leg->failed) return;
    if (leg->first_us == 0 || !r->client.api.stream) return; /* a whole reply shows its end alone */
    uint8_t id[SPAN_ID_BYTES];
    span_id_draw(&r->home->rng, id);
    struct otlp_span s = span_of(t, id, leg->attempt_id, leg->sent_us, leg->first_us);
    s.name = STR("queue_prefill");
    otlp_open(w, &s);
    otlp_str(w, "muster.observed_by", STR("router"));
    otlp_close(w);
    span_id_draw(&r->home->rng, id);
    s = span_of(t, id, leg->attempt_id, leg->first_us, leg->last_us);
    s.name = STR("decode");
    otlp_open(w, &s);
    otlp_str(w, "muster.observed_by", STR("router"));
    otlp_int(w, "gen_ai.usage.output_tokens", leg->generated);
    otlp_close(w);
}

static void put_attempt(struct request *r, const struct trace_leg *leg, uint32_t number,
                        struct otlp_writer *w)
{
    const struct request_trace *t = r->client.trace;
    if (leg->sent_us == 0) return;
    struct otlp_span s = span_of(t, leg->attempt_id, t->root_id, leg->sent_us, leg->ended_us);
    s.name = STR("attempt");
    s.kind = OTLP_CLIENT;
    if (leg->failed) s.problem = leg->end;
    otlp_open(w, &s);
    otlp_str(w, "server.address", str_from(leg->host));
    otlp_int(w, "server.port", leg->port);
    otlp_str(w, "muster.instance", str_from(leg->instance));
    otlp_str(w, "muster.engine.kind", str_from(engine_kind_names[leg->kind]));
    otlp_int(w, "muster.attempt", number);
    otlp_str(w, "muster.attempt.end", str_from(leg->end));
    if (leg->failed) otlp_str(w, "error.type", str_from(leg->end));
    otlp_int(w, "muster.output_tokens.before", leg->generated_from);
    if (leg->first_us > 0) otlp_event(w, "first_token", leg->first_us + t->to_date_us);
    otlp_close(w);
    put_observed(r, leg, w);
}

/* Writes how the request ended; a status of 0 is a client that left. */
static void put_outcome(const struct request *r, struct otlp_writer *w)
{
    const struct client_stream *c = &r->client;
    const struct outcome *o = &c->outcome;
    int status = o->ok || c->began ? 200 : c->problem.status;
    char text[16];
    snprintf(text, sizeof text, "%d", c->problem.status);
    if (status > 0) otlp_int(w, "http.response.status_code", status);
    if (!o->ok && c->problem.status == 0)
        otlp_str(w, "error.type", STR("client_left"));
    else if (!o->ok)
        otlp_str(w, "error.type", str_from(text));
    if (o->ok && c->finish != FINISH_NONE)
        otlp_strs(w, "gen_ai.response.finish_reasons", str_from(finish_names[c->finish]));
    if (c->usage.prompt_tokens > 0) {
        otlp_int(w, "gen_ai.usage.input_tokens", (int64_t)c->usage.prompt_tokens);
        otlp_int(w, "gen_ai.usage.output_tokens", (int64_t)c->usage.generated_tokens);
        if (c->cached_known)
            otlp_int(w, "gen_ai.usage.cache_read.input_tokens", (int64_t)c->usage.cached_tokens);
    }
    if (c->first_us > 0) otlp_f64(w, "muster.ttft_s", (double)(c->first_us - c->arrived_us) * 1e-6);
}

static void put_events(const struct request *r, struct otlp_writer *w)
{
    const struct request_trace *t = r->client.trace;
    for (uint32_t i = 0; i < t->leg_count; i++) {
        const struct trace_leg *leg = &t->leg[i];
        if (!leg->failed || leg->told_us == 0) continue;
        bool again = i + 1 < t->leg_count && t->leg[i + 1].told_us > 0;
        otlp_event(w, again ? "retry" : "attempt_failed", leg->ended_us + t->to_date_us);
        otlp_str(w, "muster.instance", str_from(leg->instance));
        otlp_str(w, "error.type", str_from(leg->end));
        otlp_int(w, "muster.output_tokens.before", leg->generated_from + leg->generated);
    }
}

static void put_request(struct request *r, struct otlp_writer *w)
{
    const struct request_trace *t = r->client.trace;
    const struct client_stream *c = &r->client;
    const struct openai_request *api = &c->api;
    CLEANUP(buf_fini) struct buf name = { 0 };
    static const struct {
        struct str operation, path;
    } surfaces[] = {
        [OPENAI_CHAT] = { STR("chat"), STR("/v1/chat/completions") },
        [OPENAI_COMPLETION] = { STR("text_completion"), STR("/v1/completions") },
        [OPENAI_EMBED] = { STR("embeddings"), STR("/v1/embeddings") },
        [OPENAI_SCORE] = { STR("embeddings"), STR("/v1/score") },
        [OPENAI_RERANK] = { STR("embeddings"), STR("/v1/rerank") },
    };
    struct str operation = surfaces[api->surface].operation;
    /* A name that no service has is the client's own: in a span's name it would make one of its own. */
    buf_printf(&name, STR_FMT "%s" STR_FMT, STR_ARG(operation), c->reply.model.len > 0 ? " " : "",
               STR_ARG(c->reply.model));
    struct otlp_span s =
        span_of(t, t->root_id, t->has_parent ? t->parent_id : NULL, c->arrived_us, now_us(r));
    bool ours = !c->outcome.ok && (c->problem.status == 0 || c->problem.status >= 500);
    s.name = name.rc == 0 ? buf_view(&name) : operation;
    s.kind = OTLP_SERVER;
    if (ours) s.problem = c->problem.status == 0 ? "the client left" : c->problem.message;
    otlp_open(w, &s);
    otlp_str(w, "gen_ai.operation.name", operation);
    otlp_str(w, "gen_ai.provider.name", STR("muster"));
    if (api->model.len > 0) otlp_str(w, "gen_ai.request.model", api->model);
    if (c->reply.model.len > 0) otlp_str(w, "gen_ai.response.model", c->reply.model);
    if (api->max_tokens > 0) otlp_int(w, "gen_ai.request.max_tokens", api->max_tokens);
    otlp_f64(w, "gen_ai.request.temperature", api->sampling.temperature);
    otlp_f64(w, "gen_ai.request.top_p", api->sampling.top_p);
    otlp_str(w, "http.request.method", STR("POST"));
    otlp_str(w, "url.path", surfaces[api->surface].path);
    otlp_str(w, "muster.request.id", str_from(r->id));
    otlp_bool(w, "muster.stream", api->stream);
    if (r->mail.arrival.tenant_name[0])
        otlp_str(w, "muster.tenant", str_from(r->mail.arrival.tenant_name));
    otlp_int(w, "muster.attempts", t->leg_count + t->legs_left_out);
    put_outcome(r, w);
    put_events(r, w);
    otlp_close(w);
}

static bool is_kept(struct request *r)
{
    const struct request_trace *t = r->client.trace;
    const struct client_stream *c = &r->client;
    if (t->sampled) return true;
    bool failed = !c->outcome.ok && c->problem.status >= 500;
    int64_t first_us = c->first_us > 0 ? c->first_us : now_us(r);
    uint32_t spans = TRACE_REQUEST_SPANS + 4 * (t->leg_count > 1 ? t->leg_count - 1 : 0);
    return tracer_takes_late(r->home->tracer, failed, first_us - c->arrived_us, spans, now_us(r));
}

void request_trace_over(struct request *r)
{
    struct request_trace *t = r->client.trace;
    if (!t) return;
    if (t->now) {
        const struct outcome *o = &r->client.outcome;
        const char *how = o->ok ? "ok" : r->client.problem.status ? "failed" : "client_left";
        request_trace_leg_over(r, how, !o->ok && r->client.problem.status >= 500);
    }
    if (!is_kept(r)) return;
    CLEANUP(buf_fini) struct buf out = { .max = SPANS_BYTES_MAX };
    struct otlp_writer w;
    otlp_writer_init(&w, &out);
    put_request(r, &w);
    for (uint32_t i = 0; i < t->leg_count; i++) {
        put_route(r, &t->leg[i], &w);
        put_attempt(r, &t->leg[i], i + 1, &w);
    }
    r->client.outcome.traced = true;
    tracer_offer(r->home->tracer, &out, w.spans, TRACE_REQUEST_SPANS);
}

void request_trace_release(struct request *r)
{
    if (r->client.trace) pool_give(&r->home->traces, r->client.trace);
    r->client.trace = NULL;
    r->client.passed = NULL;
}

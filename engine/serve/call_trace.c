/* call_trace.c - decides as the router did, and turns a session's times into spans.
 *
 * A request that comes from a router has its decision: the engine does not keep it late, because the router
 * then tells of the engine what it saw (router/request_trace.c). A direct client's request may be kept late
 * here too. */
#include "engine/serve/call_trace.h"

#include "base/core/own.h"
#include "base/io/loop/clock.h"

#include <stdlib.h>

#define SPANS_BYTES_MAX ((size_t)64 << 10)

struct call_trace {
    struct tracer *tracer;
    struct trace_passed passed; /* its span is this engine's */
    uint8_t parent_id[SPAN_ID_BYTES], part_id[3][SPAN_ID_BYTES];
    bool has_parent, sampled;
    char text[TRACE_ID_HEX + 1];
};

struct call_trace *call_trace_begin(struct tracer *t, const struct http_request *req,
                                    struct rng *rng, struct metrics *metrics, int64_t now_us)
{
    struct trace_passed passed = { .state = "" };
    if (!t) return NULL;
    enum trace_headers found = trace_headers_read(req, &passed);
    bool has_parent = found == TRACE_VALID || found == TRACE_BAD_STATE;
    if (found == TRACE_BAD_PARENT || found == TRACE_BAD_STATE) {
        struct str label = found == TRACE_BAD_PARENT ? STR("traceparent") : STR("tracestate");
        metric_inc(metric_series(metrics, EM_TRACE_IGNORED, &label));
    }
    if (!has_parent) trace_id_draw(rng, passed.context.trace_id);
    bool sampled = tracer_takes(t, has_parent ? &passed.context : NULL, passed.context.trace_id,
                                TRACE_CALL_SPANS, now_us);
    if (!sampled && (has_parent || !tracer_has_late(t))) return NULL;
    struct call_trace *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->tracer = t;
    c->has_parent = has_parent;
    c->sampled = sampled;
    memcpy(c->parent_id, passed.context.span_id, SPAN_ID_BYTES);
    c->passed = passed;
    span_id_draw(rng, c->passed.context.span_id);
    for (size_t i = 0; i < COUNT_OF(c->part_id); i++)
        span_id_draw(rng, c->part_id[i]);
    trace_hex(passed.context.trace_id, TRACE_ID_BYTES, c->text);
    return c;
}

bool call_trace_is_sampled(const struct call_trace *c)
{
    return c && c->sampled;
}

const char *call_trace_text(const struct call_trace *c)
{
    return call_trace_is_sampled(c) ? c->text : "-";
}

/* ---- spans ---- */

static const char *problem_of(const struct job_mail *mail)
{
    if (!mail) return session_end_name(SESSION_END_ABORT);
    if (mail->refused) return "refused";
    bool well = mail->end == SESSION_END_STOP || mail->end == SESSION_END_LENGTH;
    return well ? NULL : session_end_name(mail->end);
}

static void put_part(const struct call_trace *c, struct otlp_writer *w, uint32_t part,
                     const char *name, int64_t start_us, int64_t end_us)
{
    const struct otlp_span s = { .trace_id = c->passed.context.trace_id,
                                 .span_id = c->part_id[part],
                                 .parent_id = c->passed.context.span_id,
                                 .state = str_from(c->passed.state),
                                 .name = str_from(name),
                                 .kind = OTLP_INTERNAL,
                                 .start_us = start_us,
                                 .end_us = max_i64(start_us, end_us) };
    otlp_open(w, &s);
}

/* The parts that the session came to. `to_date_us` is added to the monotonic clock. */
static void put_parts(const struct call_trace *c, const struct call_trace_facts *f,
                      const struct job_times *t, uint32_t cached, uint32_t generated,
                      int64_t now_us, int64_t to_date_us, struct otlp_writer *w)
{
    int64_t admitted_us = t->admitted_us > 0 ? t->admitted_us : now_us;
    put_part(c, w, 0, "queue", f->arrival_us + to_date_us, admitted_us + to_date_us);
    otlp_close(w);
    if (t->admitted_us == 0) return;
    int64_t first_us = t->first_us > 0 ? t->first_us : now_us;
    put_part(c, w, 1, "prefill", admitted_us + to_date_us, first_us + to_date_us);
    otlp_int(w, "gen_ai.usage.input_tokens", f->prompt_tokens);
    otlp_int(w, "gen_ai.usage.cache_read.input_tokens", cached);
    otlp_close(w);
    if (t->first_us == 0) return;
    put_part(c, w, 2, "decode", first_us + to_date_us, t->last_us + to_date_us);
    otlp_int(w, "gen_ai.usage.output_tokens", generated);
    otlp_int(w, "muster.preemptions", t->preemptions);
    otlp_close(w);
}

static void put_generate(const struct call_trace *c, const struct call_trace_facts *f,
                         const struct job_mail *mail, int64_t now_us, int64_t to_date_us,
                         struct otlp_writer *w)
{
    const char *problem = problem_of(mail);
    const struct otlp_span s = { .trace_id = c->passed.context.trace_id,
                                 .span_id = c->passed.context.span_id,
                                 .parent_id = c->has_parent ? c->parent_id : NULL,
                                 .state = str_from(c->passed.state),
                                 .name = STR("generate"),
                                 .kind = OTLP_SERVER,
                                 .start_us = f->arrival_us + to_date_us,
                                 .end_us = now_us + to_date_us,
                                 .problem = problem };
    otlp_open(w, &s);
    otlp_str(w, "gen_ai.operation.name", f->operation);
    otlp_str(w, "gen_ai.provider.name", STR("muster"));
    otlp_str(w, "gen_ai.request.model", f->model);
    otlp_str(w, "gen_ai.response.model", f->model);
    if (f->max_tokens > 0) otlp_int(w, "gen_ai.request.max_tokens", f->max_tokens);
    otlp_str(w, "muster.request.id", f->id);
    if (f->begun_tokens > 0) otlp_int(w, "muster.output_tokens.before", f->begun_tokens);
    otlp_int(w, "gen_ai.usage.input_tokens", f->prompt_tokens);
    if (mail) {
        otlp_int(w, "gen_ai.usage.output_tokens", mail->generated);
        otlp_int(w, "gen_ai.usage.cache_read.input_tokens",
                 min_u32(mail->cached_tokens, f->prompt_tokens));
    }
    if (problem) {
        otlp_str(w, "error.type", str_from(problem));
    } else {
        otlp_strs(w, "gen_ai.response.finish_reasons",
                  mail->end == SESSION_END_STOP ? STR("stop") : STR("length"));
    }
    otlp_close(w);
}

static bool is_kept(struct call_trace *c, const struct call_trace_facts *f,
                    const struct job_mail *mail, int64_t now_us)
{
    if (c->sampled) return true;
    bool failed = mail && (mail->end == SESSION_END_ERROR || mail->refused == -ENOMEM);
    int64_t first_us = mail && mail->times.first_us > 0 ? mail->times.first_us : now_us;
    return tracer_takes_late(c->tracer, failed, first_us - f->arrival_us, TRACE_CALL_SPANS, now_us);
}

void call_trace_over(struct call_trace *c, const struct call_trace_facts *f,
                     const struct job_mail *mail, int64_t now_us)
{
    if (!c) return;
    if (is_kept(c, f, mail, now_us)) {
        CLEANUP(buf_fini) struct buf out = { .max = SPANS_BYTES_MAX };
        const struct job_times none = { .admitted_us = 0 };
        struct otlp_writer w;
        int64_t to_date_us = clock_wall_us() - clock_mono_us();
        otlp_writer_init(&w, &out);
        put_generate(c, f, mail, now_us, to_date_us, &w);
        put_parts(c, f, mail ? &mail->times : &none,
                  mail ? min_u32(mail->cached_tokens, f->prompt_tokens) : 0,
                  mail ? mail->generated : 0, now_us, to_date_us, &w);
        tracer_offer(c->tracer, &out, w.spans, TRACE_CALL_SPANS);
    }
    free(c);
}

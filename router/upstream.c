/* upstream.c - sends a request to an engine, and on to the next one: token ids and frames with
 * engines of ours, the client's JSON with others.
 *
 * A leg is one call to one engine. Its output is kept as ids behind the prompt's, so that the next leg
 * goes on from there: after a failure, a handoff, a slice or a migration. An engine primes its
 * detokeniser and its stop strings with those ids, so text goes on where it stopped. Counts and times
 * are those of the whole output, cache hits those of the first leg.
 *
 * A failed leg says nothing to the client: the decision thread sends the request elsewhere or
 * refuses it. At an engine of ours an output goes on from where it stopped; text that another
 * engine began to stream cannot be taken back.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/grammar/matcher.h"
#include "base/io/log.h"
#include "base/text/detok.h"
#include "base/wire/openai_forward.h"
#include "router/byte_loop.h"
#include "router/fan.h"
#include "router/generate.h"

#include <stdio.h>

/* ---- the body of a leg, and the output so far ---- */

#define WHOLE_BYTES_MAX ((size_t)64 << 20) /* of a response that is sent whole */
#define REFUSAL_BYTES_MAX ((size_t)64 << 10)
#define EVENT_BYTES_MAX ((size_t)1 << 20)
#define BODY_KEEP_BYTES ((size_t)64 << 10) /* of a byte loop, from call to call */

uint32_t leg_generated(const struct request *r)
{
    return (uint32_t)r->client.ids.count - r->client.prompt_tokens;
}

/* Returns the tokens that the output may still have. */
static uint32_t left(const struct request *r)
{
    uint32_t prompt = r->client.prompt_tokens, generated = leg_generated(r);
    uint32_t context =
        r->client.target.context_tokens ? r->client.target.context_tokens : OPENAI_TOKENS_MAX;
    uint32_t most = context > prompt ? context - prompt : 1;
    if (r->client.api.max_tokens > 0) most = min_u32(most, r->client.api.max_tokens);
    return most > generated ? most - generated : 0;
}

/* Returns the grammar of the output: the client's, or of its tools. */
static struct grammar_spec grammar_of(const struct request *r)
{
    struct str tag = r->client.turn.tag;
    return tag.len > 0 ? (struct grammar_spec){ GRAMMAR_TAGS, tag } : r->client.api.grammar;
}

/* Returns true if nothing may follow the output in its grammar: follows the grammar through all ids. */
static bool grammar_is_over(const struct request *r)
{
    CLEANUP(grammar_freep) struct grammar *g = NULL;
    CLEANUP(automaton_freep) struct automaton *m = NULL;
    const struct client_stream *c = &r->client;
    struct matcher t = { 0 };
    const struct grammar_spec spec = grammar_of(r);
    if (spec.kind == GRAMMAR_NONE) return false;
    if (grammar_compile(&spec, &g, NULL) < 0) return false;
    if (automaton_new(g, NULL, &m) < 0) return false;
    g = NULL;
    int rc = matcher_init(&t, m);
    for (uint32_t i = c->prompt_tokens; i < c->ids.count && rc == 0; i++)
        rc = matcher_advance(&t, vocab_bytes(c->bundle->bundle.vocab, c->ids.data[i]));
    bool over = rc == 0 && matcher_is_over(&t);
    matcher_fini(&t);
    return over;
}

/* Returns true if the output is complete: its engine died between the last token and the final frame.
 * Text that the engine held back, an incomplete character or the beginning of a stop string, is lost
 * with it. `broken`: it died; an engine that lives says itself that a grammar is over. */
static bool is_complete(struct request *r, bool broken)
{
    if (leg_generated(r) == 0) return false;
    const uint32_t *ends, last = r->client.ids.data[r->client.ids.count - 1];
    bool ended = false;
    for (size_t n = vocab_ends(r->client.bundle->bundle.vocab, &ends); n > 0; n--)
        ended = ended || (!r->client.api.ignore_eos && last == ends[n - 1]);
    if (ended || (broken && grammar_is_over(r))) {
        r->client.finish = FINISH_STOP;
        return true;
    }
    r->client.finish = left(r) == 0 ? FINISH_LENGTH : FINISH_NONE;
    return r->client.finish != FINISH_NONE;
}

static bool is_ours(const struct request *r)
{
    return engine_traits[r->client.target.kind].takes_ids;
}

/* Returns true if the call has ids and brings frames; else it has the client's JSON and brings a whole reply
 * or events, as with engines of others, and with ours for vectors of texts. */
static bool takes_ids(const struct request *r)
{
    return is_ours(r) && !openai_wants_vectors(r->client.api.surface);
}

static void reset_logprobs(struct request *r)
{
    const struct openai_tokens tokens = { NULL, vocab_bytes, detok_heard, vocab_is_end };
    openai_logprobs_reset(&r->client.logprobs, &r->client.api, &tokens, WHOLE_BYTES_MAX);
}

/* Returns true if the request asks for the log-probabilities of the prompt, and the engine brings them. */
static bool scores_prompt(const struct request *r)
{
    const struct openai_request *api = &r->client.api;
    return ((api->echo && api->logprobs) || api->scores_prompt) && takes_ids(r);
}

/* Resets the request as if it had just come, but for its seed: every attempt generates alike. */
static void forget(struct request *r)
{
    r->client.ids.count = r->client.prompt_tokens;
    r->client.ids_lost = false;
    buf_fini(&r->client.output);
    buf_init(&r->client.output, WHOLE_BYTES_MAX);
    if (takes_ids(r)) buf_str(&r->client.output, r->client.echo); /* others echo themselves */
    response_forget(r);
    r->client.usage = (struct usage){ 0 };
    reset_logprobs(r);
    r->client.scored = 0; /* leg_body begins with them: only then are the ids known */
    r->client.logprob_sum = 0;
    if (!r->client.began) r->client.first_us = 0;
}

int leg_begin(struct request *r)
{
    bool same = takes_ids(r) && r->client.target.bundle == r->client.bundle;
    line_reader_fini(&r->client.lines);
    sse_reader_fini(&r->client.events);
    buf_fini(&r->client.refusal);
    line_reader_init(&r->client.lines, GENERATE_FRAME_BYTES_MAX);
    sse_reader_init(&r->client.events, EVENT_BYTES_MAX);
    buf_init(&r->client.refusal, REFUSAL_BYTES_MAX);
    r->client.finish = FINISH_NONE;
    r->client.upstream_status = 0;
    r->client.paused = r->client.leg_prefills = false;
    r->client.leg_slice = 0;
    if (!r->client.api.sampling.has_seed) {
        r->client.api.sampling.has_seed = true;
        r->client.api.sampling.seed =
            rng_u64(&r->home->rng) >> 11; /* exact in JSON of any reader */
    }
    bool some = leg_generated(r) > 0 || r->client.scored > 1;
    bool goes_on = some && same && !r->client.ids_lost;
    if (!goes_on && some && r->client.began) return -ESTALE;
    if (!goes_on) forget(r);
    if (goes_on && r->client.broken) metric_inc(metric_of(r->home->metrics, RM_CONTINUED));
    bool broken = r->client.broken;
    r->client.broken = false;
    r->client.leg_from = leg_generated(r);
    r->client.usage.generated_tokens = r->client.leg_from;
    return is_complete(r, broken);
}

static uint32_t still(double predicted, uint32_t generated)
{
    uint32_t tokens = (uint32_t)predicted;
    if (tokens == 0 || generated == 0) return tokens;
    return tokens > generated ? tokens - generated : 1;
}

/* Returns the request's group, hashed with the tenant's salt: groups of two tenants are never the same,
 * whatever their names. */
static uint64_t request_group(const struct request *r)
{
    struct str name = r->client.api.group;
    return name.len > 0
               ? hash64(name.data, name.len, hash64(r->client.salt.data, r->client.salt.len, 0)) | 1
               : 0;
}

/* Returns how many tokens this leg asks for, and sets leg_prefills or leg_slice where it ends early. */
static uint32_t leg_tokens(struct request *r)
{
    const struct target *t = &r->client.target;
    struct client_stream *c = &r->client;
    uint32_t most = max_u32(left(r), 1);
    c->leg_prefills = t->pd_handoff && !r->is_question && most > 1;
    if (c->leg_prefills) return 1;
    if (t->slice_tokens > 0 && t->slice_tokens < most && !r->is_question)
        c->leg_slice = t->slice_tokens;
    return c->leg_slice > 0 ? c->leg_slice : most;
}

/* Returns true if the output is one of several, of which the likeliest are sent. */
static bool picks_best(const struct request *r)
{
    return r->client.api.best_of > r->client.api.n;
}

/* Returns the first token of the prompt whose log-probability the leg brings; 0: it brings none. */
static uint32_t score_from(const struct request *r)
{
    return scores_prompt(r) && r->client.scored < r->client.prompt_tokens ? r->client.scored : 0;
}

/* Begins the log-probabilities with the prompt's first token. */
static int begin_scores(struct request *r)
{
    r->client.logprobs.tokens.vocab = r->client.bundle->bundle.vocab;
    if (!scores_prompt(r) || r->client.scored > 0) return 0;
    r->client.scored = 1;
    return openai_logprobs_prompt(&r->client.logprobs, r->client.ids.data, r->client.prompt_tokens,
                                  r->client.echo);
}

int leg_body(struct request *r, struct buf *out)
{
    int rc = begin_scores(r);
    if (rc < 0) return rc;
    const struct target *t = &r->client.target;
    uint32_t generated = leg_generated(r), most = leg_tokens(r);
    int64_t left_us = r->client.deadline_us - loop_now_us(r->home->loop);
    struct fleet_ticket ticket = { 0 };
    bool reads = t->kv_port > 0 && fleet_ticket_make(r->home->link, t->kv_instance, t->kv_host,
                                                     t->kv_port, t->instance, r->client.salt,
                                                     loop_now_us(r->home->loop), &ticket);
    struct generate_request g = {
        .id = str_from(r->id),
        .ids = r->client.ids.data,
        .id_count = (uint32_t)r->client.ids.count,
        .prompt_tokens = r->client.prompt_tokens,
        .sampling = r->client.api.sampling,
        .logit_bias = r->client.api.logit_bias,
        .bias_count = r->client.api.bias_count,
        .logprobs = r->client.logprobs.wanted || picks_best(r),
        .top_logprobs = r->client.logprobs.top,
        .prompt_logprobs_from = score_from(r),
        .prompt_only = r->client.api.prompt_only,
        .grammar = grammar_of(r),
        .marks = r->client.turn.marks,
        .think_max =
            r->client.turn.parses && r->client.turn.dialects.think ? r->client.api.think_max : 0,
        .max_tokens = most,
        .min_tokens = r->client.api.min_tokens,
        .stop = r->client.api.stop,
        .stop_count = r->client.api.stop_count,
        .ignore_eos = r->client.api.ignore_eos,
        .tenant = r->client.salt,
        .adapter = r->client.adapter,
        .deadline_ms = (uint32_t)max_i64(left_us / 1000, 1),
        .predicted_p50 = still(t->length_p50, generated),
        .predicted_p90 = still(t->length_p90, generated),
        .predicted_mean = still(t->length_mean, generated),
        .has_rank = t->has_rank,
        .rank = t->rank,
        .group = request_group(r),
        .weight = t->weight,
        .goes_on = r->client.leg_prefills || r->client.leg_slice > 0,
        .kv_host = str_from(reads ? t->kv_host : ""),
        .kv_port = reads ? t->kv_port : 0,
        .kv_ticket = str_from(ticket.text),
        .kv_key = str_from(ticket.key),
        .kv_tls = t->kv_tls,
    };
    return generate_encode(&g, out);
}

void leg_frame(struct request *r, const struct generate_frame *frame)
{
    bool first = r->client.leg_from == 0;
    for (uint32_t i = 0; i < frame->id_count && !r->client.ids_lost; i++)
        r->client.ids_lost = ids_push(&r->client.ids, frame->ids[i]) < 0;
    if (frame->id_count > 0) {
        /* Counted as they come, for clients that leave before the engine's own count. */
        r->client.usage.prompt_tokens = r->client.prompt_tokens;
        r->client.usage.generated_tokens += frame->id_count;
        request_tokens(r, frame->id_count);
    }
    /* Its error ends the request with the text (response.c). */
    reasoning_take(&r->client.reasoning, frame->ids, frame->id_count);
    if (!frame->has_usage) return;
    if (first) r->client.cached_known = true;
    if (first) r->client.usage = frame->usage;
    r->client.usage.generated_tokens = r->client.leg_from + frame->usage.generated_tokens;
}

#define BEAT_MS_MAX 60000 /* the longest that an engine may name */

/* ---- silence ---------------------------------------------------------------------------------- */

static struct silence_config silence_config(const struct byte_loop *b)
{
    const struct router_config *c = b->config;
    return (struct silence_config){ c->engine_head_us, c->engine_gap_us, c->other_first_us,
                                    c->other_gap_us };
}

static void silence_timer(struct request *r)
{
    if (r->client.silence.look_us == INT64_MAX) {
        loop_timer_clear(r->home->loop, &r->client.silence_timer);
    } else {
        /* Without memory for it only the request's deadline is left. */
        (void)loop_timer_set(r->home->loop, &r->client.silence_timer, r->client.silence.look_us);
    }
}

static void attempt_failed(struct request *r, enum retry_failure failure);

static void on_silence(void *arg)
{
    struct request *r = arg;
    const struct silence_config c = silence_config(r->home);
    int64_t now_us = loop_now_us(r->home->loop);
    if (r->client.over || !r->client.call) return;
    if (r->client.paused) silence_heard(&r->client.silence, &c, now_us);
    if (!silence_look(&r->client.silence, &c, now_us)) {
        silence_timer(r);
        return;
    }
    log_event(LOG_WARN, "engine_silent", "id=%s instance=%s seconds=%.1f head=%d trace_id=%s",
              r->id, r->client.target.instance,
              (double)(now_us - r->client.silence.heard_us) * 1e-6, r->client.silence.has_head,
              request_trace_text(r));
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
        silence_head(&r->client.silence, &c, (int64_t)ms * 1000, now_us);
    } else {
        bool first = !r->client.silence.has_bytes;
        silence_heard(&r->client.silence, &c, now_us);
        if (!first) return; /* the look moves itself */
    }
    silence_timer(r);
}

/* ---- ends of a leg ----------------------------------------------------------------------------- */

static void attempt_failed(struct request *r, enum retry_failure failure)
{
    if (r->client.call) signed_call_cancel(r->client.call);
    r->client.call = NULL;
    loop_timer_clear(r->home->loop, &r->client.silence_timer);
    request_failed(r, failure);
}

/* Ends the response of a complete output. */
static void attempt_done(struct request *r)
{
    r->client.call = NULL;
    r->client.outcome.ok = r->client.finish == FINISH_STOP || r->client.finish == FINISH_LENGTH;
    r->client.outcome.cut = r->client.finish == FINISH_LENGTH;
    if (r->client.first_us == 0)
        request_tokens(r, 0);        /* an output without text has its end as TTFT */
    if (r->client.fan) fan_go_on(r); /* an output without a token */
    if (r->client.x) {
        response_finish(r);
    } else {
        request_over(r);
    }
}

/* Keeps the log-probabilities of a frame; *ret are those to stream with its text. -EPROTO: the engine did
 * not send what was asked for. */
static int take_logprobs(struct request *r, const struct generate_frame *frame, struct str *ret)
{
    struct openai_logprobs *l = &r->client.logprobs;
    const uint32_t scores = frame->prompt_logprob_count / (1 + l->top);
    if (frame->id_count + frame->prompt_logprob_count == 0) return 0;
    if (scores > r->client.prompt_tokens - r->client.scored) return -EPROTO;
    if (picks_best(r) && frame->id_count > 0) {
        if (frame->logprob_count < frame->id_count) return -EPROTO;
        const uint32_t stride = frame->logprob_count / frame->id_count;
        for (uint32_t i = 0; i < frame->id_count; i++)
            r->client.logprob_sum += (double)frame->logprobs[i * stride].value;
    }
    if (!l->wanted) return 0;
    int rc = openai_logprobs_add(l, frame->prompt_logprobs, frame->prompt_logprob_count, scores);
    if (rc < 0) return rc;
    r->client.scored += scores;
    rc = openai_logprobs_add(l, frame->logprobs, frame->logprob_count, frame->id_count);
    if (rc < 0 || !r->client.api.stream) return rc;
    *ret = openai_logprobs_take(l);
    return l->json.rc;
}

static int on_frame(void *arg, struct str line)
{
    struct request *r = arg;
    struct generate_frame frame;
    struct err err = { 0 };
    if (r->client.over) return -ECANCELED; /* an earlier line of this slice found the client gone */
    if (line.len == 0) return 0;
    struct arena *arena = &r->home->frame;
    arena_reset(arena);
    int rc = generate_frame_decode(line, arena, &frame, &err);
    if (rc < 0) {
        log_event(LOG_WARN, "frame_malformed", "id=%s instance=%s error=%s trace_id=%s", r->id,
                  r->client.target.instance, err.text, request_trace_text(r));
        return rc;
    }
    if (frame.finish == FINISH_REFUSED) { /* as if it had never been taken */
        r->client.finish = FINISH_REFUSED;
        return 0;
    }
    struct str logprobs = { 0 };
    rc = take_logprobs(r, &frame, &logprobs);
    if (rc < 0) return rc;
    leg_frame(r, &frame);
    if (frame.id_count > 0 && r->client.fan) fan_go_on(r);
    if (frame.text.len > 0 || logprobs.len > 0) response_text(r, frame.text, logprobs);
    if (frame.finish != FINISH_NONE) r->client.finish = frame.finish;
    for (uint32_t i = 0; i < r->client.api.stop_count; i++)
        if (str_eq(frame.stopped, r->client.api.stop[i])) r->client.stopped = r->client.api.stop[i];
    if (frame.error.len > 0) {
        openai_error_set(&r->client.problem, 0, OPENAI_UPSTREAM, NULL, STR_FMT,
                         STR_ARG(frame.error));
    }
    return 0;
}

static int on_event(void *arg, struct str data)
{
    struct request *r = arg;
    if (r->client.over) return -ECANCELED;
    if (str_eq(data, SSE_DONE)) return 0;
    struct openai_delta delta;
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = openai_delta_parse(data, &text, &delta, NULL);
    if (rc < 0 || delta.has_error) return -EPROTO;
    if (delta.has_usage) r->client.usage = delta.usage;
    r->client.cached_known |= delta.has_cached;
    if (r->client.fan && (delta.has_text || delta.reasoning.len + delta.tool_calls.len > 0))
        fan_go_on(r);
    if (delta.has_text) {
        request_tokens(r, 1);
        r->client.usage.generated_tokens += !delta.has_usage;
        response_text(r, buf_view(&text),
                      r->client.api.logprobs ? delta.logprobs : (struct str){ 0 });
    } else if (delta.reasoning.len > 0 || delta.tool_calls.len > 0) {
        request_tokens(r, 1);
        r->client.usage.generated_tokens += !delta.has_usage;
        rc = response_delta(r, &delta);
        if (rc < 0) return rc;
    } else if (delta.finish != FINISH_NONE) {
        request_tokens(r, 0); /* the end token has no text, but took its time */
    }
    if (delta.finish != FINISH_NONE) r->client.finish = delta.finish;
    r->client.reply.called |= delta.called;
    return 0;
}

static void on_head(void *arg, const struct http_response *head)
{
    struct request *r = arg;
    r->client.upstream_status = head->status;
    request_trace_head(r, head);
    hear(r, head);
}

static void on_data(void *arg, struct str data)
{
    struct request *r = arg;
    int rc;
    hear(r, NULL);
    if (r->client.upstream_status != 200) {
        buf_str(&r->client.refusal, data);
        return;
    }
    if (takes_ids(r)) {
        rc = line_reader_feed(&r->client.lines, data, on_frame, r);
    } else if (r->client.api.stream) {
        rc = sse_reader_feed(&r->client.events, data, on_event, r);
    } else {
        rc = buf_str(&r->client.output, data);
    }
    if (rc < 0 && !r->client.over) attempt_failed(r, RETRY_ERROR);
}

void upstream_deadline(void *request)
{
    struct request *r = request;
    if (r->client.over || r->client.ending || generate_at_text(r)) return;
    if (r->client.call) signed_call_cancel(r->client.call);
    r->client.call = NULL;
    openai_error_set(&r->client.problem, 0, OPENAI_DEADLINE, NULL,
                     "The request's deadline passed.");
    response_problem(r, 1);
    request_over(r);
}

/* Takes the sentence of another server's error object, where there is one. */
static void say_its_words(struct request *r, struct str words)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct openai_delta delta;
    if (openai_delta_parse(words, &text, &delta, NULL) < 0 || !delta.has_error) return;
    if (text.len > 0)
        snprintf(r->client.problem.message, sizeof r->client.problem.message, "%s", text.data);
}

/* Handles a status other than 200: the engine is full, refuses the request itself, or is in trouble. */
static void on_refusal(struct request *r)
{
    int status = r->client.upstream_status;
    if (status == 429 || status == 503) {
        attempt_failed(r, RETRY_OVERLOADED);
    } else if (status >= 400 && status < 500 && r->client.refusal.rc == 0 && status != 401 &&
               r->client.leg_from == 0) {
        /* The request's own fault: the engine's message goes to the client. */
        struct str words = str_trim(buf_view(&r->client.refusal));
        openai_error_set(&r->client.problem, 0, OPENAI_INVALID, NULL,
                         "The engine refused the request with status %d.", status);
        r->client.problem.status = status;
        if (r->client.style == REPLY_ANTHROPIC || response_has_begun(r)) {
            say_its_words(r, words);
            response_problem(r, 1);
        } else if (str_starts(words, STR("{"))) {
            response_relay(r, status, STR("application/json"), words);
        } else {
            response_problem(r, 1);
        }
        request_over(r);
    } else {
        log_event(LOG_WARN, "engine_error", "id=%s instance=%s status=%d trace_id=%s", r->id,
                  r->client.target.instance, status, request_trace_text(r));
        attempt_failed(r, status == 500 && !takes_ids(r) ? RETRY_BROKEN : RETRY_ERROR);
    }
}

/* Takes one of several outputs from another engine's whole reply. */
static void on_whole_output(struct request *r, struct str text, const struct openai_delta *delta)
{
    if (delta->finish == FINISH_NONE) {
        attempt_failed(r, RETRY_BROKEN);
    } else if (fan_take(r, text, delta) < 0) {
        attempt_failed(r, RETRY_LOCAL);
    } else {
        attempt_done(r);
    }
}

/* Relays a whole reply of another engine to the client: as it is, or in Anthropic's form. */
static void on_whole(struct request *r)
{
    struct openai_delta delta;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (openai_delta_parse(buf_view(&r->client.output), &text, &delta, NULL) < 0 ||
        delta.has_error) {
        attempt_failed(r, RETRY_ERROR);
        return;
    }
    if (delta.has_usage) r->client.usage = delta.usage;
    r->client.cached_known = delta.has_cached;
    r->client.finish = delta.finish;
    if (r->client.fan) {
        request_tokens(r, r->client.usage.generated_tokens);
        on_whole_output(r, buf_view(&text), &delta);
        return;
    }
    r->client.outcome.ok = true;
    r->client.outcome.cut = r->client.finish == FINISH_LENGTH;
    request_tokens(r, r->client.usage.generated_tokens);
    if (r->client.style == REPLY_OPENAI) {
        response_relay(r, 200, STR("application/json"), buf_view(&r->client.output));
    } else if (response_whole(r, buf_view(&text), &delta) == 0) {
        response_relay(r, 200, STR("application/json"), buf_view(&r->client.out));
    } else {
        r->client.outcome.ok = r->client.outcome.cut = false;
        openai_error_set(&r->client.problem, 0, OPENAI_UPSTREAM, NULL,
                         "The engine's answer could not be read.");
        response_problem(r, 1);
    }
    request_over(r);
}

/* Returns true if the engine stopped for the slice alone: its own limits would end the leg earlier. */
static bool is_slice_over(const struct request *r)
{
    return r->client.leg_slice > 0 && r->client.finish == FINISH_LENGTH &&
           r->client.usage.generated_tokens == r->client.leg_from + r->client.leg_slice;
}

static void slice_over(struct request *r)
{
    r->client.finish = FINISH_NONE;
    if (r->client.ids_lost) {
        attempt_failed(r, RETRY_LOCAL);
    } else {
        request_sliced(r);
    }
}

static void on_end(void *arg, enum http_end why)
{
    struct request *r = arg;
    if (why == HTTP_END_TLS)
        log_event(LOG_WARN, "engine_tls_failed", "id=%s instance=%s error=%s trace_id=%s", r->id,
                  r->client.target.instance, signed_call_problem(r->client.call),
                  request_trace_text(r));
    r->client.call = NULL;
    loop_timer_clear(r->home->loop, &r->client.silence_timer);
    switch (why) {
    case HTTP_END_OK:
        if (r->client.upstream_status != 200) {
            on_refusal(r);
        } else if (!takes_ids(r) && !r->client.api.stream) {
            on_whole(r);
        } else if (r->client.finish == FINISH_LENGTH && r->client.leg_prefills) {
            r->client.finish = FINISH_NONE;
            request_prefilled(r);
        } else if (is_slice_over(r)) {
            slice_over(r);
        } else if (r->client.finish == FINISH_STOP || r->client.finish == FINISH_LENGTH) {
            attempt_done(r);
        } else {
            /* FINISH_ERROR or FINISH_ABORT, or an end without one: the engine gave up. */
            attempt_failed(r, r->client.finish == FINISH_NONE      ? RETRY_DIED
                              : r->client.finish == FINISH_REFUSED ? RETRY_OVERLOADED
                              : takes_ids(r)                       ? RETRY_ERROR
                                                                   : RETRY_BROKEN);
        }
        break;
    case HTTP_END_TLS:
    case HTTP_END_CONNECT_FAILED:
    case HTTP_END_UNTRUSTED: /* another process listens at its port */
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

/* Makes the ids and the body of a call to an engine of ours. False when the leg ends here, or waits
 * for a text worker. */
static bool make_body(struct request *r, struct buf *body)
{
    struct client_stream *c = &r->client;
    int rc = 0;
    if (c->bundle != c->target.bundle) {
        bool large = c->body.len > TEXT_INLINE_BYTES;
        rc = large ? -E2BIG : prompt_tokenize(r, c->target.bundle, c->target.context_tokens);
    }
    if (rc == -E2BIG) {
        c->problem = (struct openai_error){ 0 };
        generate_retokenise(r);
        return false;
    }
    if (rc == 0) rc = prompt_check_context(r, c->target.context_tokens);
    if (rc < 0) {
        response_problem(r, 1);
        request_over(r);
        return false;
    }
    if (leg_body(r, body) == 0) return true;
    request_failed(r, RETRY_ERROR);
    return false;
}

/* Makes the body of a call to an engine of another kind out of the client's. */
static int forward_body(const struct request *r, struct buf *out)
{
    const struct client_stream *c = &r->client;
    const struct engine_traits *traits = &engine_traits[c->target.kind];
    const struct openai_prompt prompt = { c->api.prompt, c->api.prompt_ids,
                                          c->api.prompt_id_count };
    const struct openai_forward f = {
        .model = str_from(c->target.model),
        .cache_salt = traits->salts ? c->salt : (struct str){ 0 },
        .stream = c->api.stream,
        .kind = c->target.kind,
        .grammar = c->api.grammar,
        .grammar_key = c->api.grammar_key,
        .one_output = c->fan != NULL,
        .prompt = c->fan && c->api.prompts ? &prompt : NULL,
        .has_seed = c->api.sampling.has_seed,
        .seed = c->api.sampling.seed,
    };
    return openai_forward(c->body, &f, out);
}

/* Refuses a request whose grammar the chosen engine cannot follow: without it the output would be one
 * that the client did not ask for. */
static void refuse_grammar(struct request *r)
{
    struct client_stream *c = &r->client;
    openai_error_set(
        &c->problem, 0, OPENAI_UNSUPPORTED, c->api.grammar_key,
        "%s asks for a grammar (%s), which the engine of this model, %s, does not take.",
        c->api.grammar_key, grammar_kind_names[c->api.grammar.kind],
        engine_traits[c->target.kind].about);
    response_problem(r, 1);
    request_over(r);
}

/* Refuses a request for the best of several outputs: engines of other kinds do not say how likely a token is unless
 * the client asks. */
static void refuse_best(struct request *r)
{
    struct client_stream *c = &r->client;
    openai_error_set(&c->problem, 0, OPENAI_UNSUPPORTED, "best_of",
                     "best_of above n is not served by the engine of this model, %s: send n alone.",
                     engine_traits[c->target.kind].about);
    response_problem(r, 1);
    request_over(r);
}

/* Refuses prompt_logprobs at an engine that does not know them. */
static void refuse_scores(struct request *r)
{
    struct client_stream *c = &r->client;
    openai_error_set(&c->problem, 0, OPENAI_UNSUPPORTED, "prompt_logprobs",
                     "prompt_logprobs are not served by the engine of this model, %s.",
                     engine_traits[c->target.kind].about);
    response_problem(r, 1);
    request_over(r);
}

static struct str path_of(const struct request *r)
{
    static const struct str paths[] = { [OPENAI_CHAT] = STR("/v1/chat/completions"),
                                        [OPENAI_COMPLETION] = STR("/v1/completions"),
                                        [OPENAI_EMBED] = STR("/v1/embeddings"),
                                        [OPENAI_SCORE] = STR("/v1/score"),
                                        [OPENAI_RERANK] = STR("/v1/rerank") };
    return takes_ids(r) ? STR("/internal/generate") : paths[r->client.api.surface];
}

static void call_engine(struct request *r, struct str body)
{
    struct byte_loop *b = r->home;
    struct client_stream *c = &r->client;
    struct trace_headers_text trace;
    struct http_header header[2 + TRACE_HEADER_COUNT] = {
        { STR("content-type"), STR("application/json") }, { STR("x-request-id"), str_from(r->id) }
    };
    uint32_t traced = request_trace_call(r, &trace, header + 2);
    struct http_call_request call = {
        .host = str_from(c->target.host),
        .port = c->target.port,
        .tls = c->target.tls,
        .path = path_of(r),
        .headers = header,
        .header_count = 2 + traced,
        .body = body,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = r,
    };
    struct fleet_id id = { 0 };
    if (is_ours(r)) fleet_id_engine(b->link, c->target.instance, &id);
    c->call = signed_call_start(b->signer, &call, &id.as, true, NULL);
    if (!c->call) {
        request_failed(r, RETRY_LOCAL);
        return;
    }
    const struct silence_config limits = silence_config(b);
    silence_begin(&c->silence, &limits, takes_ids(r), c->api.stream, loop_now_us(b->loop));
    c->silence_timer.fn = on_silence;
    c->silence_timer.arg = r;
    silence_timer(r);
}

void upstream_start(struct request *r)
{
    bool ours = takes_ids(r);
    struct buf *body = &r->home->body; /* free again after the call, which copies it */
    buf_clear(body);
    int rc = leg_begin(r);
    if (rc < 0) {
        request_failed(r, RETRY_ERROR);
    } else if (rc > 0) {
        attempt_done(r);
    } else if (!ours && r->is_question) { /* the engine would get the client's own request */
        request_over(r);
    } else if (!ours && picks_best(r)) {
        refuse_best(r);
    } else if (!ours && r->client.api.scores_prompt &&
               !engine_traits[r->client.target.kind].scores_prompt) {
        refuse_scores(r);
    } else if (!ours) {
        rc = forward_body(r, body);
        if (rc == 0)
            call_engine(r, buf_view(body));
        else if (rc == -ENOTSUP)
            refuse_grammar(r);
        else
            request_failed(r, RETRY_LOCAL);
    } else if (make_body(r, body)) {
        call_engine(r, buf_view(body));
    }
    if (body->cap > BODY_KEEP_BYTES) buf_fini(body);
}

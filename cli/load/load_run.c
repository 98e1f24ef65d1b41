/* load_run.c - run one timer for the next due request, one call a request and an SSE reader a call; then report.
 *
 * A stream is read line by line; only `data:` lines count. The first chunk that carries text is
 * the first token; for a reply without text its end counts as that. Percentiles are exact, by
 * sorting; concordance covers all pairs of the first PAIRS_FROM requests with a prediction.
 */

#include "cli/load/load_run.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/http/http_client.h"
#include "base/io/loop/clock.h"
#include "base/io/net/tls.h"
#include "cli/target.h"

#include <math.h>
#include <stdlib.h>

#define LINE_BYTES_MAX ((size_t)1 << 20)

struct flight {
    struct load_run *run;
    uint32_t index;
    struct http_call *call;
    struct buf line; /* the received part of a line */
    int64_t text_us; /* of the last chunk with text */
    int64_t last_us; /* of the last chunk with text or finish_reason: an end token has no text */
    bool finished;   /* a finish_reason came */
};

struct load_run {
    struct loop *loop;
    struct tls *tls; /* NULL: plain HTTP */
    struct http_client *client;
    struct load_config config;
    struct load_sample *sample;
    struct flight *flight;
    struct loop_timer next;
    int64_t started_us;
    uint32_t sent, ended;
    float *itl_s;
    size_t itl_count;
};

const char *load_outcome_name(enum load_outcome outcome)
{
    static const char *const name[LOAD_OUTCOME_COUNT] = {
        [LOAD_PENDING] = "pending",         [LOAD_OK] = "ok",   [LOAD_REFUSED] = "refused",
        [LOAD_UNREACHABLE] = "unreachable", [LOAD_CUT] = "cut", [LOAD_TIMED_OUT] = "timed_out",
        [LOAD_BAD_REPLY] = "bad_reply",
    };
    must(outcome < LOAD_OUTCOME_COUNT);
    return name[outcome];
}

static void on_due(void *arg);

int load_run_new(struct loop *l, const struct load_config *config, struct load_run **ret,
                 struct err *err)
{
    if (config->count == 0 || config->count > LOAD_REQUESTS_MAX) {
        return err_set(err, -EINVAL, "load: %u requests, want 1..%u", config->count,
                       LOAD_REQUESTS_MAX);
    }
    CLEANUP(load_run_freep) struct load_run *run = calloc(1, sizeof *run);
    if (!run) return err_set(err, -ENOMEM, "load: no memory");
    run->loop = l;
    run->config = *config;
    run->next = (struct loop_timer){ .fn = on_due, .arg = run };
    run->sample = calloc(config->count, sizeof *run->sample);
    run->flight = calloc(config->count, sizeof *run->flight);
    run->itl_s = malloc(LOAD_ITL_MAX * sizeof *run->itl_s);
    if (!run->sample || !run->flight || !run->itl_s) {
        return err_set(err, -ENOMEM, "load: no memory for %u requests", config->count);
    }
    const struct tls_files files = { .ca = config->ca };
    int rc = config->tls ? tls_client_new(&files, &run->tls, err) : 0;
    if (rc < 0) return rc;
    struct http_client_config client = { .connections_max = LOAD_REQUESTS_MAX, .tls = run->tls };
    rc = http_client_new(l, &client, &run->client, err);
    if (rc < 0) return rc;
    *ret = TAKE(run);
    return 0;
}

void load_run_free(struct load_run *run)
{
    if (!run) return;
    loop_timer_clear(run->loop, &run->next);
    for (uint32_t i = 0; run->flight && i < run->sent; i++) {
        if (run->flight[i].call) http_call_cancel(run->flight[i].call);
        buf_fini(&run->flight[i].line);
    }
    http_client_free(run->client);
    tls_free(run->tls);
    free(run->sample);
    free(run->flight);
    free(run->itl_s);
    free(run);
}

static void end(struct flight *f, enum load_outcome outcome)
{
    struct load_run *run = f->run;
    struct load_sample *s = &run->sample[f->index];
    if (s->outcome != LOAD_PENDING) return;
    s->outcome = outcome;
    s->e2e_us = loop_now_us(run->loop) - run->started_us - s->due_us;
    if (outcome == LOAD_OK && f->last_us > 0) {
        s->e2e_us = f->last_us - run->started_us - s->due_us;
    }
    if (outcome == LOAD_OK && s->ttft_us == 0) s->ttft_us = s->e2e_us;
    run->ended++;
    buf_fini(&f->line);
    if (run->config.on_end) run->config.on_end(run->config.arg, f->index, s);
}

static void on_text(struct flight *f)
{
    struct load_run *run = f->run;
    struct load_sample *s = &run->sample[f->index];
    int64_t now_us = loop_now_us(run->loop);
    if (s->ttft_us == 0) {
        s->ttft_us = max_i64(now_us - run->started_us - s->due_us, 1);
    } else if (run->itl_count < LOAD_ITL_MAX) {
        run->itl_s[run->itl_count++] = (float)((double)(now_us - f->text_us) * 1e-6);
    }
    f->text_us = f->last_us = now_us;
}

/* Returns true if the delta's {"content": text} has text. */
static bool delta_has_text(struct json_reader *r)
{
    bool text = false;
    if (json_next(r) != JSON_OBJECT) return false;
    while (json_next(r) == JSON_KEY) {
        if (!json_key_is(r, "content")) {
            json_skip(r);
            continue;
        }
        if (json_next(r) == JSON_STRING) text = r->raw.len > 0;
    }
    return text;
}

static void read_choices(struct flight *f, struct json_reader *r)
{
    if (json_next(r) != JSON_ARRAY) return;
    while (json_next(r) == JSON_OBJECT) {
        while (json_next(r) == JSON_KEY) {
            if (json_key_is(r, "delta")) {
                if (delta_has_text(r)) on_text(f);
            } else if (json_key_is(r, "finish_reason")) {
                if (json_next(r) == JSON_STRING) {
                    f->finished = true;
                    f->last_us = loop_now_us(f->run->loop);
                    f->run->sample[f->index].cut_by_limit = str_eq(r->raw, STR("length"));
                }
            } else {
                json_skip(r);
            }
        }
    }
}

static void read_usage(struct load_sample *s, struct json_reader *r)
{
    uint64_t v = 0;
    if (json_next(r) != JSON_OBJECT) return; /* null in all chunks but the last */
    while (json_next(r) == JSON_KEY) {
        uint32_t *at = json_key_is(r, "prompt_tokens")       ? &s->prompt_tokens
                       : json_key_is(r, "completion_tokens") ? &s->output_tokens
                                                             : NULL;
        if (at) {
            json_next(r);
            if (json_u64(r, &v) == 0 && v <= UINT32_MAX) *at = (uint32_t)v;
        } else if (json_key_is(r, "prompt_tokens_details")) {
            if (json_next(r) != JSON_OBJECT) continue;
            while (json_next(r) == JSON_KEY) {
                bool cached = json_key_is(r, "cached_tokens");
                json_next(r);
                if (cached && json_u64(r, &v) == 0 && v <= UINT32_MAX) {
                    s->cached_tokens = (uint32_t)v;
                }
            }
        } else {
            json_skip(r);
        }
    }
}

/* Reads one chunk of the stream; an error object in it ends the request. */
static void read_chunk(struct flight *f, struct str json)
{
    struct json_reader r;
    json_reader_init(&r, json);
    if (json_next(&r) != JSON_OBJECT) {
        end(f, LOAD_BAD_REPLY);
        return;
    }
    while (json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "choices")) {
            read_choices(f, &r);
        } else if (json_key_is(&r, "usage")) {
            read_usage(&f->run->sample[f->index], &r);
        } else if (json_key_is(&r, "error")) {
            end(f, LOAD_CUT);
            return;
        } else {
            json_skip(&r);
        }
    }
    if (r.token != JSON_OBJECT_END) end(f, LOAD_BAD_REPLY);
}

static void on_data(void *arg, struct str data)
{
    struct flight *f = arg;
    if (f->run->sample[f->index].status != 200) return;
    while (data.len > 0 && f->run->sample[f->index].outcome == LOAD_PENDING) {
        size_t before = data.len;
        struct str part = str_cut(&data, '\n');
        bool whole = part.len < before;
        if (buf_str(&f->line, part) < 0) {
            end(f, LOAD_BAD_REPLY);
            return;
        }
        if (!whole) return;
        struct str line = buf_view(&f->line);
        if (str_starts(line, STR("data: ")) && !str_eq(line, STR("data: [DONE]"))) {
            read_chunk(f, str_of(line.data + 6, line.len - 6));
        }
        buf_clear(&f->line);
    }
}

static double header_f64(const struct http_response *head, const char *name)
{
    double v;
    return str_to_f64(http_response_header(head, name), &v) == 0 ? v : 0;
}

static void on_head(void *arg, const struct http_response *head)
{
    struct flight *f = arg;
    struct load_sample *s = &f->run->sample[f->index];
    s->status = head->status;
    s->predicted_p50 = header_f64(head, "x-muster-predicted-p50");
    s->predicted_p90 = header_f64(head, "x-muster-predicted-p90");
    struct str instance = http_response_header(head, "x-muster-instance");
    size_t len = min_size(instance.len, LOAD_INSTANCE_MAX - 1);
    if (len > 0) memcpy(s->instance, instance.data, len);
}

static void on_end(void *arg, enum http_end why)
{
    struct flight *f = arg;
    f->call = NULL;
    int status = f->run->sample[f->index].status;
    enum load_outcome outcome = LOAD_CUT;
    if (why == HTTP_END_OK) {
        outcome = status != 200 ? LOAD_REFUSED : f->finished ? LOAD_OK : LOAD_CUT;
    } else if (why == HTTP_END_CONNECT_FAILED || why == HTTP_END_NAME || why == HTTP_END_TLS ||
               why == HTTP_END_LOCAL) {
        outcome = LOAD_UNREACHABLE;
    } else if (why == HTTP_END_TIMEOUT) {
        outcome = LOAD_TIMED_OUT;
    } else if (why == HTTP_END_MALFORMED) {
        outcome = LOAD_BAD_REPLY;
    }
    end(f, outcome);
}

static int body_of(struct load_run *run, uint32_t index, struct buf *body)
{
    CLEANUP(buf_fini) struct buf message = { 0 };
    int rc = run->config.message(run->config.arg, index, &message);
    if (rc < 0) return rc;
    struct json_writer w;
    json_writer_init(&w, body);
    json_object(&w);
    json_kv_str(&w, "model", run->config.model);
    json_key(&w, "messages");
    json_array(&w);
    json_object(&w);
    json_kv_text(&w, "role", "user");
    json_kv_str(&w, "content", buf_view(&message));
    json_object_end(&w);
    json_array_end(&w);
    json_kv_u64(&w, "max_tokens", run->config.max_tokens);
    json_kv_f64(&w, "temperature", run->config.temperature);
    json_kv_u64(&w, "seed", index);
    target_put_stream(&w);
    json_object_end(&w);
    return body->rc;
}

static void send_one(struct load_run *run, uint32_t index)
{
    struct flight *f = &run->flight[index];
    *f = (struct flight){ .run = run, .index = index, .line = { .max = LINE_BYTES_MAX } };
    CLEANUP(buf_fini) struct buf body = { 0 };
    if (body_of(run, index, &body) < 0) {
        end(f, LOAD_BAD_REPLY);
        return;
    }
    struct http_call_request call = {
        .host = run->config.host,
        .port = run->config.port,
        .tls = run->config.tls,
        .path = STR("/v1/chat/completions"),
        .bearer = run->config.api_key,
        .body = buf_view(&body),
        .json = true,
        .deadline_us = loop_now_us(run->loop) + run->config.timeout_us,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = f,
    };
    f->call = http_call_start(run->client, &call, NULL);
    if (!f->call) end(f, LOAD_UNREACHABLE);
}

static void on_due(void *arg)
{
    struct load_run *run = arg;
    int64_t now_us = loop_now_us(run->loop) - run->started_us;
    while (run->sent < run->config.count && run->sample[run->sent].due_us <= now_us) {
        send_one(run, run->sent++);
    }
    if (run->sent < run->config.count) {
        int rc =
            loop_timer_set(run->loop, &run->next, run->started_us + run->sample[run->sent].due_us);
        must(rc == 0); /* its place in the heap is kept from load_run_start on */
    }
}

int load_run_start(struct load_run *run, struct err *err)
{
    for (uint32_t i = 0; i < run->config.count; i++) {
        run->sample[i].due_us = run->config.due_us(run->config.arg, i);
    }
    run->started_us = clock_mono_us(); /* the loop may not have turned for a while */
    int rc = loop_timer_set(run->loop, &run->next, run->started_us + run->sample[0].due_us);
    return rc < 0 ? err_set(err, rc, "load: cannot set a timer") : 0;
}

bool load_run_done(const struct load_run *run)
{
    return run->ended == run->config.count;
}

uint32_t load_run_sent(const struct load_run *run)
{
    return run->sent;
}

uint32_t load_run_ended(const struct load_run *run)
{
    return run->ended;
}

int64_t load_run_started_us(const struct load_run *run)
{
    return run->started_us;
}

const struct load_sample *load_run_samples(const struct load_run *run, uint32_t *ret_count)
{
    *ret_count = run->config.count;
    return run->sample;
}

const float *load_run_itl_s(const struct load_run *run, size_t *ret_count)
{
    *ret_count = run->itl_count;
    return run->itl_s;
}

#define PAIRS_FROM 2000 /* concordance compares the pairs among at most this many first requests */

static double tpot_s(const struct load_sample *s)
{
    return (double)(s->e2e_us - s->ttft_us) * 1e-6 / (double)(s->output_tokens - 1);
}

/* Returns true if the request met the SLO. A request of one token has no TPOT to miss. */
static bool meets(const struct load_sample *s, struct load_slo slo)
{
    if (s->outcome != LOAD_OK || (double)s->ttft_us * 1e-6 > slo.ttft_s) return false;
    return s->output_tokens < 2 || tpot_s(s) <= slo.tpot_s;
}

/* Judges the predictions: the share of pairs of requests in the right order (a tie of predictions is half
 * right) and the share of lengths within P90. */
static void judge_predictions(const struct load_sample *const *s, uint32_t count,
                              struct load_report *r)
{
    double pairs = 0, right = 0, covered = 0;
    for (uint32_t i = 0; i < count; i++) {
        covered += (double)s[i]->output_tokens <= s[i]->predicted_p90;
        for (uint32_t j = 0; j < i && i < PAIRS_FROM; j++) {
            if (s[i]->output_tokens == s[j]->output_tokens) continue;
            pairs += 1;
            double guess = s[i]->predicted_p50 - s[j]->predicted_p50;
            bool longer = s[i]->output_tokens > s[j]->output_tokens;
            right += guess == 0 ? 0.5 : (guess > 0) == longer ? 1 : 0;
        }
    }
    r->concordance = pairs > 0 ? right / pairs : -1;
    r->p90_coverage = count > 0 ? covered / (double)count : -1;
}

struct scratch {
    double *ttft, *tpot, *e2e;
    const struct load_sample **predicted;
    uint32_t ttft_count, tpot_count, predicted_count;
};

static void add_sample(struct load_report *r, struct scratch *t, const struct load_sample *s)
{
    r->sent++;
    r->duration_s = (double)max_i64((int64_t)(r->duration_s * 1e6), s->due_us + s->e2e_us) * 1e-6;
    r->attainment += meets(s, r->slo);
    r->prompt_tokens += s->prompt_tokens;
    r->cached_tokens += s->cached_tokens;
    r->output_tokens += s->output_tokens;
    if (s->outcome != LOAD_OK) {
        r->failed++;
        r->failed_by[s->outcome]++;
        return;
    }
    r->ok++;
    t->ttft[t->ttft_count] = (double)s->ttft_us * 1e-6;
    t->e2e[t->ttft_count++] = (double)s->e2e_us * 1e-6;
    if (s->output_tokens > 1) t->tpot[t->tpot_count++] = tpot_s(s);
    if (s->predicted_p90 > 0 && !s->cut_by_limit) t->predicted[t->predicted_count++] = s;
}

int load_report_make(const struct load_sample *sample, uint32_t count,
                     bool (*include)(void *arg, uint32_t index), void *arg, const float *itl_s,
                     size_t itl_count, struct load_slo slo, struct load_report *ret)
{
    struct load_report r = { .slo = slo };
    struct scratch t = { .ttft = malloc(count * sizeof *t.ttft),
                         .tpot = malloc(count * sizeof *t.tpot),
                         .e2e = malloc(count * sizeof *t.e2e),
                         .predicted = malloc(count * sizeof *t.predicted) };
    double *gap = malloc((itl_count + 1) * sizeof *gap);
    int rc = t.ttft && t.tpot && t.e2e && t.predicted && gap ? 0 : -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        if (!include || include(arg, i)) add_sample(&r, &t, &sample[i]);
    }
    if (rc == 0) {
        for (size_t i = 0; i < itl_count; i++)
            gap[i] = (double)itl_s[i];
        r.itl_s = stats_quantiles(gap, (uint32_t)itl_count);
        r.ttft_s = stats_quantiles(t.ttft, t.ttft_count);
        r.e2e_s = stats_quantiles(t.e2e, t.ttft_count);
        r.tpot_s = stats_quantiles(t.tpot, t.tpot_count);
        judge_predictions(t.predicted, t.predicted_count, &r);
        r.goodput_rps = r.duration_s > 0 ? r.attainment / r.duration_s : 0;
        if (r.sent > 0) r.attainment /= (double)r.sent;
        *ret = r;
    }
    free(t.ttft);
    free(t.tpot);
    free(t.e2e);
    free(t.predicted);
    free(gap);
    return rc;
}

void load_requests_json(struct json_writer *w, const struct load_report *r)
{
    json_key(w, "requests");
    json_object(w);
    json_kv_u64(w, "sent", r->sent);
    json_kv_u64(w, "ok", r->ok);
    json_kv_u64(w, "failed", r->failed);
    json_object_end(w);
}

void load_tokens_json(struct json_writer *w, const struct load_report *r)
{
    json_key(w, "tokens");
    json_object(w);
    json_kv_u64(w, "prompt", r->prompt_tokens);
    json_kv_u64(w, "cached", r->cached_tokens);
    json_kv_u64(w, "generated", r->output_tokens);
    json_object_end(w);
}

void load_slo_json(struct json_writer *w, const struct load_report *r)
{
    json_key(w, "slo");
    json_object(w);
    json_kv_f64(w, "ttft_s", r->slo.ttft_s);
    json_kv_f64(w, "tpot_s", r->slo.tpot_s);
    json_kv_f64(w, "attainment", r->attainment);
    json_object_end(w);
}

void load_report_json(const struct load_report *r, struct json_writer *w)
{
    json_object(w);
    load_requests_json(w, r);
    json_key(w, "failures");
    json_object(w);
    for (enum load_outcome o = LOAD_REFUSED; o < LOAD_OUTCOME_COUNT; o++) {
        json_kv_u64(w, load_outcome_name(o), r->failed_by[o]);
    }
    json_object_end(w);
    load_tokens_json(w, r);
    stats_quantiles_json(w, "ttft_s", &r->ttft_s);
    stats_quantiles_json(w, "tpot_s", &r->tpot_s);
    stats_quantiles_json(w, "itl_s", &r->itl_s);
    stats_quantiles_json(w, "e2e_s", &r->e2e_s);
    load_slo_json(w, r);
    json_kv_f64(w, "goodput_rps", r->goodput_rps);
    json_kv_f64(w, "duration_s", r->duration_s);
    json_key(w, "length_prediction");
    json_object(w);
    if (r->concordance >= 0) json_kv_f64(w, "concordance", r->concordance);
    if (r->p90_coverage >= 0) json_kv_f64(w, "p90_coverage", r->p90_coverage);
    json_object_end(w);
    json_object_end(w);
}

static void row(struct buf *out, const char *name, const struct stats_quantiles *q)
{
    if (isnan(q->mean)) return;
    buf_printf(out, "%-6s %9.1f %9.1f %9.1f %9.1f\n", name, 1e3 * q->mean, 1e3 * q->p50,
               1e3 * q->p90, 1e3 * q->p99);
}

int load_report_table(const struct load_report *r, struct buf *out)
{
    buf_printf(out, "requests  %u sent, %u ok, %u failed", r->sent, r->ok, r->failed);
    for (enum load_outcome o = LOAD_REFUSED; o < LOAD_OUTCOME_COUNT; o++) {
        if (r->failed_by[o]) buf_printf(out, ", %u %s", r->failed_by[o], load_outcome_name(o));
    }
    buf_printf(out, "\ntokens    %llu prompt (%.1f %% cached), %llu generated\n",
               (unsigned long long)r->prompt_tokens,
               r->prompt_tokens ? 100.0 * (double)r->cached_tokens / (double)r->prompt_tokens : 0,
               (unsigned long long)r->output_tokens);
    buf_printf(out, "goodput   %.2f requests/s within TTFT %.0f ms and TPOT %.0f ms: %.1f %%\n",
               r->goodput_rps, 1e3 * r->slo.ttft_s, 1e3 * r->slo.tpot_s, 100 * r->attainment);
    if (r->concordance >= 0) {
        buf_printf(out, "lengths   %.2f of pairs ordered rightly, %.2f within P90\n",
                   r->concordance, r->p90_coverage);
    }
    buf_printf(out, "%-6s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90", "p99");
    row(out, "TTFT", &r->ttft_s);
    row(out, "TPOT", &r->tpot_s);
    row(out, "ITL", &r->itl_s);
    row(out, "e2e", &r->e2e_s);
    return out->rc;
}

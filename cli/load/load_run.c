/* load_run.c - one timer for the next due request, one call a request, an SSE reader a call.
 *
 * A stream is read line by line; only `data:` lines count. The first chunk that carries text is
 * the first token; an answer without text has its end as its first token.
 */
#include "cli/load/load_run.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/http/http_client.h"
#include "base/io/loop/clock.h"
#include "base/io/net/tls.h"
#include "cli/target.h"

#include <stdlib.h>

#define LINE_BYTES_MAX ((size_t)1 << 20)

struct flight {
    struct load_run *run;
    uint32_t index;
    struct http_call *call;
    struct buf line; /* the part of a line that has come */
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

/* {"content": text} of a delta. */
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

/* One chunk of the stream; an error object in it ends the request. */
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

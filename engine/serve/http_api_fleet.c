/* http_api_fleet.c - requests of routers and agents: generate by ids, info, tokenizer, drain, reset.
 *
 * The router has tokenised and chained the keys; the engine chains them again from the ids, so a
 * wrong key costs the router a misprediction and never gives anybody another's tokens.
 */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/wire/report.h"
#include "engine/serve/http_api_call.h"

#include <stdlib.h>

/* ---- /internal/generate ------------------------------------------------------------------------- */

static struct usage usage_of(const struct call *c, const struct job_mail *mail)
{
    return (struct usage){
        .prompt_tokens = c->prompt_tokens,
        .cached_tokens = min_u32(mail->cached_tokens, c->prompt_tokens),
        .generated_tokens = mail->generated,
    };
}

static void frame_tokens(struct call *c, const struct job_mail *mail)
{
    struct generate_frame frame = {
        .ids = mail->ids,
        .id_count = mail->id_count,
        .text = buf_view(&mail->text),
        .has_usage = !c->told_usage,
        .usage = usage_of(c, mail),
    };
    c->told_usage = true;
    generate_frame_encode(&frame, &c->api->out);
}

static void frame_end(struct call *c, const struct job_mail *mail)
{
    static const enum finish finishes[SESSION_END_COUNT] = {
        [SESSION_END_STOP] = FINISH_STOP,      [SESSION_END_LENGTH] = FINISH_LENGTH,
        [SESSION_END_ABORT] = FINISH_ABORT,    [SESSION_END_ERROR] = FINISH_ERROR,
        [SESSION_END_DEADLINE] = FINISH_ABORT,
    };
    const char *error = mail->end == SESSION_END_DEADLINE ? "the request's time was up"
                        : mail->end == SESSION_END_ABORT  ? "the request was cancelled"
                                                          : mail->error;
    bool failed = finishes[mail->end] == FINISH_ABORT || finishes[mail->end] == FINISH_ERROR;
    struct generate_frame frame = {
        .finish = finishes[mail->end],
        .has_usage = true,
        .usage = usage_of(c, mail),
        .error = failed ? str_from(error) : (struct str){ 0 },
    };
    generate_frame_encode(&frame, &c->api->out);
}

static const struct call_form frame_form = {
    .content_type = "application/x-ndjson",
    .stream = true,
    .beats = true,
    .tokens = frame_tokens,
    .end = frame_end,
};

void handle_generate(struct http_api *api, struct http_exchange *x)
{
    const struct http_request *req = http_exchange_request(x);
    struct generate_request r;
    struct err err = { "" };
    struct request_id id = { "" };
    CLEANUP(ids_fini) struct ids ids = { 0 };
    int rc = generate_decode(req->body, &api->arena, &r, &err);
    for (uint32_t i = 0; rc >= 0 && i < r.id_count; i++) {
        if (r.ids[i] >= api->info->model->vocab_size) {
            rc = err_set(&err, -EINVAL, "token id %u: the vocabulary has %u tokens", r.ids[i],
                         api->info->model->vocab_size);
        } else if (ids_push(&ids, r.ids[i]) < 0) {
            rc = err_set(&err, -EINVAL, "%u ids are too many", r.id_count);
        }
    }
    if (rc < 0) {
        /* A router of another release goes to another engine: its client did nothing wrong. */
        enum openai_problem problem = rc == -EPROTO ? OPENAI_UNAVAILABLE : OPENAI_INVALID;
        http_api_refuse(api, x, problem, NULL, "%s", err_text(&err, rc));
        return;
    }
    memcpy(id.text, r.id.data, min_size(r.id.len, REQUEST_ID_BYTES_MAX));
    const struct call_ask ask = {
        .form = &frame_form,
        .ids = &ids,
        .prompt_tokens = r.prompt_tokens,
        .sampling = &r.sampling,
        .max_tokens = r.max_tokens,
        .min_tokens = r.min_tokens,
        .stop = r.stop,
        .stop_count = r.stop_count,
        .ignore_eos = r.ignore_eos,
        .tenant = r.tenant,
        .goes_on = r.goes_on,
        .kv_host = r.kv_host,
        .kv_port = (uint16_t)r.kv_port,
        .kv_ticket = r.kv_ticket,
        .kv_key = r.kv_key,
        .kv_tls = r.kv_tls,
        .deadline_us = r.deadline_ms ? req->received_us + (int64_t)r.deadline_ms * 1000 : 0,
        .predicted_p50 = r.predicted_p50,
        .predicted_p90 = r.predicted_p90,
        .predicted_mean = r.predicted_mean,
        .has_rank = r.has_rank,
        .rank = r.rank,
        .group = r.group,
        .weight = r.weight,
        .id = &id,
    };
    call_start(api, x, &ask);
}

/* ---- /internal/info, /internal/tokenizer --------------------------------------------------------- */

void handle_info(struct http_api *api, struct http_exchange *x)
{
    struct device_stats s = { 0 };
    device_stats_get(api->device, &s);
    struct engine_report r = {
        .host = api->config.host_shown,
        .port = http_api_port(api),
        .kind = ENGINE_MUSTER,
        .health = api->stalled ? ENGINE_FAILING
                  : api->info  ? ENGINE_READY
                               : ENGINE_LOADING,
        .stalled_s = api->stalled ? (double)api->stalled_us * 1e-6 : 0,
        .model = api->config.model_name,
        .digest = str_from(api->digest),
        .numerics = api->info ? str_from(api->info->model->numerics) : (struct str){ 0 },
        .boot = api->boot,
        .page_tokens = api->info ? api->info->page_tokens : 0,
        .context_tokens = api->info ? api->info->context_max : 0,
        .step_tokens = api->info ? api->info->step_tokens : 0,
        .kv_token_bytes = api->info ? (uint32_t)api->info->model->kv_bytes_per_token : 0,
        .running = s.counts.running,
        .running_max = api->config.seqs_max,
        .waiting = s.counts.waiting,
        .pages_total = api->info ? api->info->pages : 0,
        .pages_free = s.pages_free,
        .pages_cached = s.pages_cached,
        .has_perf = s.perf.samples > 0,
        .perf = s.perf,
        .has_owed = api->info != NULL,
        .owed = { .prompt_tokens = s.prefill_owed },
        .requests_total = s.counts.submitted,
        .prompt_tokens_total = s.counts.prompt_tokens,
        .cached_tokens_total = s.counts.hit_tokens,
        .generated_tokens_total = s.counts.generated_tokens,
    };
    r.clock = s.clock;
    if (api->info) {
        r.cores = api->info->cores;
        r.hardware = str_from(api->info->hardware ? api->info->hardware->name : "");
        r.has_work = r.has_spec = true;
        r.work = s.work;
        r.spec = executor_spec(api->info->model);
    }
    engine_report_encode(&r, &api->out);
    http_api_reply(api, x, 200, buf_view(&api->out));
}

void handle_tokenizer(struct http_api *api, struct http_exchange *x)
{
    struct str wanted = http_request_header(http_exchange_request(x), "if-match");
    if (wanted.data && !str_eq(wanted, str_from(api->digest))) {
        buf_printf(&api->out, "{\"digest\":\"%s\"}", api->digest);
        http_api_reply(api, x, 412, buf_view(&api->out));
        return;
    }
    http_api_count(api, x, 200);
    http_reply_header(x, "etag", str_from(api->digest));
    http_reply_header(x, BUNDLE_WEIGHTS_HEADER, str_from(api->info->model->digest));
    http_reply(x, 200, STR("application/octet-stream"), buf_view(&api->bundle));
}

/* ---- /internal/clock ----------------------------------------------------------------------------- */

void handle_clock(struct http_api *api, struct http_exchange *x)
{
    struct engine_clock c;
    struct err err = { "" };
    int rc = engine_clock_decode(http_exchange_request(x)->body, &api->arena, &c, &err);
    if (rc < 0) {
        http_api_refuse(api, x, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
        return;
    }
    device_clock_set(api->device, c.clock);
    log_event(LOG_INFO, "clock_set", "clock=%g", c.clock);
    engine_clock_encode(&c, &api->out);
    http_api_reply(api, x, 200, buf_view(&api->out));
}

/* ---- /internal/drain and undrain, /reset_prefix_cache -------------------------------------------------------- */

void handle_drain(struct http_api *api, struct http_exchange *x)
{
    if (api->state != HTTP_API_DRAINING) {
        api->state = HTTP_API_DRAINING;
        log_event(LOG_INFO, "drain_asked", "in_flight=%u", api->call_count);
    }
    buf_printf(&api->out, "{\"in_flight\":%u}", api->call_count);
    http_api_reply(api, x, 200, buf_view(&api->out));
}

/* Takes back what /internal/drain asked for; a process that was told to end goes on ending. */
void handle_undrain(struct http_api *api, struct http_exchange *x)
{
    if (api->leaving) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "the engine is ending");
        return;
    }
    if (api->state == HTTP_API_DRAINING) {
        api->state = api->info ? HTTP_API_READY : HTTP_API_LOADING;
        log_event(LOG_INFO, "undrain_asked", "in_flight=%u", api->call_count);
    }
    buf_printf(&api->out, "{\"in_flight\":%u}", api->call_count);
    http_api_reply(api, x, 200, buf_view(&api->out));
}

struct reset {
    struct device_call call;
    struct http_api *api;
    struct http_exchange *x; /* NULL: the client has left */
};

static void reset_run(struct device_call *call, struct executor *x)
{
    (void)call;
    kv_index_clear(sched_index(executor_sched(x)));
}

static void reset_done(struct device_call *call)
{
    struct reset *r = call->arg;
    if (r->x) http_api_reply(r->api, r->x, 200, STR("{}"));
    free(r);
}

static void reset_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct reset *)arg)->x = NULL;
}

void handle_reset_cache(struct http_api *api, struct http_exchange *x)
{
    struct reset *r = calloc(1, sizeof *r);
    if (!r) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory");
        return;
    }
    *r = (struct reset){ .call = { .fn = reset_run, .done = reset_done, .arg = r }, api, x };
    http_exchange_watch(x, reset_left, NULL, r);
    device_call(api->device, &r->call);
}

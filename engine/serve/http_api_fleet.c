/* http_api_fleet.c - serves routers and agents: generate, info, tokenizer, drain, reset, events.
 *
 * The router has tokenised and chained the keys; the engine chains them again from the ids, so a
 * wrong key costs the router a misprediction and never gives a request the tokens of another.
 */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/wire/events.h"
#include "base/wire/report.h"
#include "engine/serve/http_api_call.h"
#include "engine/serve/http_api_generate.h"

#include <stdlib.h>

/* ---- /internal/generate ------------------------------------------------------------------------- */

#define FRAME_SCORES 128 /* tokens of a frame that brings scores */

/* Writes the log-probabilities of the prompt's tokens. */
static void frame_scores(struct call *c, const struct job_mail *mail)
{
    const struct token_value *v = (const struct token_value *)(const void *)mail->scores.data;
    const uint32_t count = (uint32_t)(mail->scores.len / sizeof *v);
    const uint32_t most = FRAME_SCORES * (1 + c->job->ask.spec.sampling.logprobs);
    for (uint32_t i = 0; i < count; i += most) {
        const struct generate_frame frame = { .prompt_logprobs = v + i,
                                              .prompt_logprob_count = min_u32(most, count - i) };
        generate_frame_encode(&frame, &c->api->out);
    }
}

static void frame_tokens(struct call *c, const struct job_mail *mail)
{
    frame_scores(c, mail);
    if (mail->id_count == 0 && mail->text.len == 0) return;
    struct generate_frame frame = {
        .ids = mail->ids,
        .id_count = mail->id_count,
        .text = buf_view(&mail->text),
        .logprobs = (const struct token_value *)(const void *)mail->values.data,
        .logprob_count = (uint32_t)(mail->values.len / sizeof(struct token_value)),
        .has_usage = !c->told_usage,
        .usage = call_usage(c, mail),
    };
    c->told_usage = true;
    generate_frame_encode(&frame, &c->api->out);
}

static void frame_end(struct call *c, const struct job_mail *mail)
{
    static const enum finish finishes[SESSION_END_COUNT] = {
        [SESSION_END_STOP] = FINISH_STOP,      [SESSION_END_LENGTH] = FINISH_LENGTH,
        [SESSION_END_ABORT] = FINISH_ABORT,    [SESSION_END_ERROR] = FINISH_ERROR,
        [SESSION_END_DEADLINE] = FINISH_ABORT, [SESSION_END_DISPLACED] = FINISH_REFUSED,
    };
    const char *error = mail->end == SESSION_END_DEADLINE ? "the request's time was up"
                        : mail->end == SESSION_END_ABORT  ? "the request was cancelled"
                                                          : mail->error;
    bool failed = mail->end != SESSION_END_STOP && mail->end != SESSION_END_LENGTH;
    struct generate_frame frame = {
        .finish = finishes[mail->end],
        .has_usage = true,
        .usage = call_usage(c, mail),
        .stopped = mail->stopped,
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

int generate_check_bias(const struct http_api *api, const struct token_value *bias, uint32_t count,
                        struct err *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (bias[i].id >= api->info->model->vocab_size)
            return err_set(err, -EINVAL, "logit_bias: token id %u: the vocabulary has %u tokens",
                           bias[i].id, api->info->model->vocab_size);
    return 0;
}

int generate_ids(const struct http_api *api, const struct generate_request *r, struct ids *ret,
                 struct err *err)
{
    int rc = model_task_generates(api->info->model->task, api->config.model_name, err);
    if (rc == 0) rc = generate_check_bias(api, r->logit_bias, r->bias_count, err);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < r->id_count; i++) {
        if (r->ids[i] >= api->info->model->vocab_size)
            return err_set(err, -EINVAL, "token id %u: the vocabulary has %u tokens", r->ids[i],
                           api->info->model->vocab_size);
        if (ids_push(ret, r->ids[i]) < 0)
            return err_set(err, -EINVAL, "%u ids are too many", r->id_count);
    }
    return 0;
}

void handle_generate(struct http_api *api, struct http_exchange *x)
{
    struct generate_request r;
    struct err err = { "" };
    CLEANUP(ids_fini) struct ids ids = { 0 };
    int rc = generate_decode(http_exchange_request(x)->body, &api->arena, &r, &err);
    if (rc >= 0 && r.grammar.kind != GRAMMAR_NONE) {
        generate_with_grammar(api, x);
        return;
    }
    if (rc >= 0) rc = generate_ids(api, &r, &ids, &err);
    if (rc < 0) {
        /* A router of another release tries another engine then: its client did nothing wrong. */
        enum openai_problem problem = rc == -EPROTO ? OPENAI_UNAVAILABLE : OPENAI_INVALID;
        http_api_refuse(api, x, problem, NULL, "%s", err_text(&err, rc));
        return;
    }
    generate_start(api, x, &r, &ids, NULL, false);
}

void generate_start(struct http_api *api, struct http_exchange *x, const struct generate_request *r,
                    struct ids *ids, struct grammar **grammar, bool entered)
{
    const struct http_request *req = http_exchange_request(x);
    struct request_id id = { "" };
    memcpy(id.text, r->id.data, min_size(r->id.len, REQUEST_ID_BYTES_MAX));
    struct adapter_entry *adapter =
        r->adapter.len > 0 ? adapters_hold_digest(api->config.adapters, r->adapter) : NULL;
    if (r->adapter.len > 0 &&
        !adapter) { /* unloaded since the router heard of it: it goes elsewhere */
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL,
                        "no adapter with the digest " STR_FMT " is here", STR_ARG(r->adapter));
        return;
    }
    struct reasoning_limit limit;
    struct err err = { "" };
    int rc = reasoning_limit_make(&api->dialogue, api->info->model->vocab, r->think_max, ids->data,
                                  r->prompt_tokens, &limit, &err);
    if (rc < 0) {
        if (adapter) adapters_drop(api->config.adapters, adapter);
        http_api_refuse(api, x, rc == -ENOTSUP ? OPENAI_UNSUPPORTED : OPENAI_UNAVAILABLE, NULL,
                        "%s", err_text(&err, rc));
        return;
    }
    const struct call_ask ask = {
        .adapter = adapter,
        .limit = limit,
        .form = &frame_form,
        .ids = ids,
        .grammar = grammar,
        .grammar_spec = &r->grammar,
        .marks = r->marks,
        .entered = entered,
        .prompt_tokens = r->prompt_tokens,
        .sampling = &r->sampling,
        .bias = r->logit_bias,
        .bias_count = r->bias_count,
        .logprobs = r->logprobs,
        .top_logprobs = r->top_logprobs,
        .score_from = r->prompt_logprobs_from,
        .prompt_only = r->prompt_only,
        .max_tokens = r->max_tokens,
        .min_tokens = r->min_tokens,
        .stop = r->stop,
        .stop_count = r->stop_count,
        .ignore_eos = r->ignore_eos,
        .tenant = r->tenant,
        .goes_on = r->goes_on,
        .kv_host = r->kv_host,
        .kv_port = (uint16_t)r->kv_port,
        .kv_ticket = r->kv_ticket,
        .kv_key = r->kv_key,
        .kv_tls = r->kv_tls,
        .deadline_us = r->deadline_ms ? req->received_us + (int64_t)r->deadline_ms * 1000 : 0,
        .predicted_p50 = r->predicted_p50,
        .predicted_p90 = r->predicted_p90,
        .predicted_mean = r->predicted_mean,
        .has_rank = r->has_rank,
        .rank = r->rank,
        .group = r->group,
        .weight = r->weight,
        .id = &id,
    };
    call_start(api, x, &ask);
    adapters_drop(api->config.adapters, adapter);
}

/* ---- /internal/info, /internal/tokenizer --------------------------------------------------------- */

void handle_info(struct http_api *api, struct http_exchange *x)
{
    struct device_stats s = { 0 };
    struct adapter_seen seen[ADAPTERS_MAX];
    struct wire_adapter adapters[ADAPTERS_MAX];
    uint64_t bytes;
    const uint32_t adapter_count = adapters_list(api->config.adapters, seen, &bytes);
    for (uint32_t i = 0; i < adapter_count; i++)
        adapters[i] = (struct wire_adapter){ str_from(seen[i].name), str_from(seen[i].digest) };
    device_stats_get(api->device, &s);
    struct engine_report r = {
        .adapters = adapters,
        .adapter_count = adapter_count,
        .host = api->config.host_shown,
        .port = http_api_port(api),
        .kind = ENGINE_MUSTER,
        .health = api->stalled                             ? ENGINE_FAILING
                  : api->info && api->sleep == SLEEP_AWAKE ? ENGINE_READY
                                                           : ENGINE_LOADING,
        .stalled_s = api->stalled ? (double)api->stalled_us * 1e-6 : 0,
        .model = api->config.model_name,
        .digest = str_from(api->digest),
        .numerics = api->info ? str_from(api->info->model->numerics) : (struct str){ 0 },
        .boot = api->boot,
        .page_tokens = api->info ? api->info->page_tokens : 0,
        .context_tokens = api->info ? api->info->context_max : 0,
        .step_tokens = api->info ? api->info->step_tokens : 0,
        .task = api->info ? api->info->model->task : MODEL_GENERATE,
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
        r.spec = speed_spec(api->info->model);
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

/* Takes back /internal/drain; a process that was told to end goes on ending. */
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

/* Watchers are streams of block events to routers.
 *
 *     hello -> (boot or place unknown: snapshot) -> add, drop, ...
 *
 * A watcher that is behind the ring, or new, asks the device for a snapshot: the names at one
 * moment between two steps. Events go on from that moment's number, so nothing is lost or sent
 * twice. For a watcher that does not read nothing is buffered: it falls behind and gets a snapshot
 * when it reads again.
 */

#define WATCHERS_MAX 64       /* routers of one engine */
#define COPY_EVENTS 64        /* fetched at once */
#define LOAD_AGAIN_US 2000000 /* an unchanged load is sent again, unless it is none */

struct watcher {
    struct list link;
    struct http_api *api;
    struct http_exchange *x; /* NULL: has left while a snapshot was on its way */
    uint64_t seq;            /* sent so far */
    bool needs_snapshot, snapshot_asked;
    struct device_call call;
    struct block_key *keys; /* of the snapshot */
    uint32_t key_count;
    uint64_t snapshot_seq;

    bool wants_load;
    struct loop_timer load_timer;
    struct block_event load; /* sent last */
    int64_t load_us;
};

static void watcher_free(struct watcher *w)
{
    if (list_linked(&w->link)) list_remove(&w->link);
    loop_timer_clear(w->api->loop, &w->load_timer);
    free(w->keys);
    free(w);
}

/* Ends the stream from our side and frees the watcher; if a snapshot is on its way, its return
 * does. */
static void drop(struct watcher *w)
{
    if (w->x) http_exchange_abort(w->x);
    w->x = NULL;
    if (!w->snapshot_asked) watcher_free(w);
}

static bool say(struct watcher *w)
{
    struct buf *out = &w->api->out;
    bool sent = out->rc == 0 && http_stream_write(w->x, out->data, out->len) == 0;
    buf_clear(out);
    if (!sent) drop(w);
    return sent;
}

static void snapshot_run(struct device_call *call, struct executor *x)
{
    struct watcher *w = call->arg;
    struct kv_index *index = sched_index(executor_sched(x));
    uint32_t cursor = 0, max = index->pool->total * index->granules;
    w->key_count = 0;
    w->keys = calloc(max, sizeof *w->keys);
    w->snapshot_seq = index->event_seq;
    if (!w->keys) return; /* noticed in snapshot_done */
    for (struct kv_event ev; kv_index_next(index, &cursor, &ev);) {
        memcpy(w->keys + w->key_count, ev.key, ev.key_count * sizeof *w->keys);
        w->key_count += ev.key_count;
    }
}

static void pump(struct watcher *w);

static void snapshot_done(struct device_call *call)
{
    struct watcher *w = call->arg;
    struct http_api *api = w->api;
    w->snapshot_asked = false;
    if (!w->x || !w->keys) {
        drop(w);
        return;
    }
    buf_clear(&api->out);
    uint32_t at = 0;
    do {
        uint32_t count = min_u32(w->key_count - at, EVENT_KEYS_MAX);
        struct block_event ev = {
            .kind = EVENT_SNAPSHOT,
            .seq = w->snapshot_seq,
            .keys = w->keys + at,
            .key_count = count,
            .more = at + count < w->key_count,
        };
        block_event_encode(&ev, &api->out);
        at += count;
    } while (at < w->key_count);
    free(w->keys);
    w->keys = NULL;
    w->seq = w->snapshot_seq;
    w->needs_snapshot = false;
    if (say(w)) pump(w);
}

static void ask_snapshot(struct watcher *w)
{
    if (w->snapshot_asked) return;
    w->snapshot_asked = true;
    w->call = (struct device_call){ .fn = snapshot_run, .done = snapshot_done, .arg = w };
    device_call(w->api->device, &w->call);
}

static void pump(struct watcher *w)
{
    struct kv_event ev[COPY_EVENTS];
    struct http_api *api = w->api;
    while (w->x && !w->needs_snapshot && !http_stream_full(w->x)) {
        int n = device_blocks(api->device, w->seq, ev, COPY_EVENTS);
        if (n == 0) return;
        if (n < 0) w->needs_snapshot = true;
        buf_clear(&api->out);
        for (int i = 0; i < n; i++) {
            struct block_event out = {
                .kind = ev[i].add ? EVENT_ADD : EVENT_DROP,
                .seq = ev[i].seq,
                .keys = ev[i].key,
                .key_count = ev[i].key_count,
            };
            block_event_encode(&out, &api->out);
            w->seq = ev[i].seq;
        }
        if (n > 0 && !say(w)) return;
    }
    if (w->x && w->needs_snapshot && !http_stream_full(w->x)) ask_snapshot(w);
}

static bool load_is_same(const struct block_event *a, const struct block_event *b)
{
    return a->running == b->running && a->waiting == b->waiting &&
           a->prefill_tokens == b->prefill_tokens && a->kv_tokens == b->kv_tokens &&
           a->head_pages == b->head_pages && a->uncached_total == b->uncached_total;
}

/* Sends the load that all routers together give this engine, for a router that is not the only
 * one. */
static void on_load_timer(void *arg)
{
    struct watcher *w = arg;
    struct http_api *api = w->api;
    int64_t now_us = loop_now_us(api->loop);
    if (!w->x) return; /* only its snapshot keeps it */
    loop_timer_set(api->loop, &w->load_timer, now_us + (int64_t)EVENT_LOAD_MS * 1000);
    struct device_stats s;
    device_stats_get(api->device, &s);
    const struct block_event ev = {
        .kind = EVENT_LOAD,
        .seq = w->seq,
        .running = s.counts.running,
        .waiting = s.counts.waiting,
        .prefill_tokens = s.prefill_owed,
        .kv_tokens = (uint64_t)s.pages_held * api->info->page_tokens,
        .head_pages = s.head_pages,
        .uncached_total = s.counts.query_tokens - s.counts.hit_tokens,
    };
    bool idle = ev.running + ev.waiting == 0;
    bool old = now_us - w->load_us >= LOAD_AGAIN_US;
    if (w->needs_snapshot || http_stream_full(w->x) ||
        (load_is_same(&ev, &w->load) && (idle || !old)))
        return;
    w->load = ev;
    w->load_us = now_us;
    buf_clear(&api->out);
    block_event_encode(&ev, &api->out);
    say(w);
}

static void on_left(void *arg, enum http_abort why)
{
    struct watcher *w = arg;
    (void)why;
    w->x = NULL;
    drop(w);
}

static void on_drain(void *arg)
{
    pump(arg);
}

void blocks_changed(void *http_api)
{
    struct http_api *api = http_api;
    LIST_EACH_SAFE (&api->watchers, node)
        pump(CONTAINER_OF(node, struct watcher, link));
}

void blocks_end_all(struct http_api *api)
{
    LIST_EACH_SAFE (&api->watchers, node) {
        struct watcher *w = CONTAINER_OF(node, struct watcher, link);
        if (w->x) http_stream_end(w->x);
        w->x = NULL;
        drop(w);
    }
}

void blocks_free(struct http_api *api)
{
    LIST_EACH_SAFE (&api->watchers, node)
        watcher_free(CONTAINER_OF(node, struct watcher, link));
}

static bool hello(struct watcher *w)
{
    struct http_api *api = w->api;
    struct device_stats s;
    device_stats_get(api->device, &s);
    char check[BLOCK_KEY_HEX + 1];
    struct str none = { 0 };
    block_key_hex(block_salt(api->key_seed, str_from(api->digest), none, none), check);
    struct block_event ev = {
        .kind = EVENT_HELLO,
        .seq = s.event_seq,
        .boot = api->boot,
        .block_tokens = BLOCK_TOKENS,
        .page_tokens = api->info->page_tokens,
        .digest = str_from(api->digest),
        .salt_check = str_from(check),
    };
    buf_clear(&api->out);
    block_event_encode(&ev, &api->out);
    return say(w);
}

/* Reads the place up to which the reader has events: from=SEQ counts only with this process's boot
 * id. */
static bool read_place(const struct http_api *api, struct str query, uint64_t *ret)
{
    CLEANUP(buf_fini) struct buf boot = { 0 }, from = { 0 };
    uint8_t bytes[8];
    if (http_query_value(query, "boot", &boot) < 0 || http_query_value(query, "from", &from) < 0) {
        return false;
    }
    if (hex_to(buf_view(&boot), bytes, sizeof bytes) < 0) return false;
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        value = value << 8 | bytes[i];
    return value == api->boot && str_to_u64(buf_view(&from), ret) == 0;
}

static bool asks_load(struct str query)
{
    CLEANUP(buf_fini) struct buf value = { 0 };
    return http_query_value(query, "load", &value) == 0 && str_eq(buf_view(&value), STR("1"));
}

void handle_events(struct http_api *api, struct http_exchange *x)
{
    uint32_t count = 0;
    LIST_EACH (&api->watchers, node)
        count++;
    struct watcher *w = count < WATCHERS_MAX ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "%u readers of block events already",
                        count);
        return;
    }
    w->api = api;
    w->x = x;
    w->needs_snapshot = !read_place(api, http_exchange_request(x)->query, &w->seq);
    w->wants_load = asks_load(http_exchange_request(x)->query);
    w->load_timer = (struct loop_timer){ .fn = on_load_timer, .arg = w };
    list_push_back(&api->watchers, &w->link);
    http_exchange_watch(x, on_left, on_drain, w);
    http_api_count(api, x, 200);
    if (http_stream_begin(x, 200, STR("application/x-ndjson")) < 0) {
        drop(w);
        return;
    }
    if (!hello(w)) return;
    if (w->wants_load)
        loop_timer_set(api->loop, &w->load_timer,
                       loop_now_us(api->loop) + (int64_t)EVENT_LOAD_MS * 1000);
    pump(w);
}

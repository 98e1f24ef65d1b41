/* http_api.c - runs the engine's HTTP listener: routes, guard, health, device progress, drain.
 *
 * The listener is up before the model is loaded, so that /health can say 503 loading: an agent
 * could not tell a refused connection from a crash.
 *
 * Templates and tokenising of bodies above TEXT_INLINE_BYTES run on text workers, of smaller ones on
 * this thread: a prompt of 2,000 tokens takes about a millisecond. Behind a router the engine gets ids
 * and does neither.
 */
#include "base/core/bits.h"
#include "base/io/http/http_browser.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/notify.h"
#include "engine/model/model_sampling.h"
#include "engine/serve/http_api_call.h"
#include "engine/serve/http_api_embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define JSON_TYPE STR("application/json")
#define OPEN_BODY_BYTES_MAX 4096 /* on routes open to all, which read no body */

enum guard {
    GUARD_NONE,    /* open to all */
    GUARD_KEY,     /* an API key or the secret, when there is one; else no page of another site */
    GUARD_FLEET,   /* the secret and never an API key; with neither, peers on this machine */
    GUARD_METRICS, /* as GUARD_KEY, or a metrics key; without any, peers on this machine */
};

struct route {
    const char *method, *path;
    enum guard guard;
    bool needs_model;
    void (*handle)(struct http_api *api, struct http_exchange *x);
};

static void health(struct http_api *api, struct http_exchange *x);
static void render_metrics(struct http_api *api, struct http_exchange *x);
static void version(struct http_api *api, struct http_exchange *x);

// clang-format off
static const struct route routes[] = {
    { "POST", "/v1/chat/completions", GUARD_KEY,   true,  handle_chat },
    { "POST", "/v1/completions",      GUARD_KEY,   true,  handle_completions },
    { "POST", "/v1/messages",         GUARD_KEY,   true,  handle_messages },
    { "POST", "/v1/responses",        GUARD_KEY,   true,  handle_responses },
    { "POST", "/v1/messages/count_tokens", GUARD_KEY, true, handle_count_tokens },
    { "POST", "/v1/embeddings",       GUARD_KEY,   true,  handle_vectors },
    { "POST", "/v1/score",            GUARD_KEY,   true,  handle_vectors },
    { "POST", "/v1/rerank",           GUARD_KEY,   true,  handle_vectors },
    { "POST", "/score",               GUARD_KEY,   true,  handle_vectors },
    { "POST", "/rerank",              GUARD_KEY,   true,  handle_vectors },
    { "POST", "/v2/rerank",           GUARD_KEY,   true,  handle_vectors },
    { "GET",  "/v1/models",           GUARD_KEY,   false, handle_models },
    { "POST", "/tokenize",            GUARD_KEY,   true,  handle_tokenize },
    { "POST", "/detokenize",          GUARD_KEY,   true,  handle_detokenize },
    { "POST", "/apply-template",      GUARD_KEY,   true,  handle_apply_template },
    { "POST", "/reset_prefix_cache",  GUARD_FLEET,   true,  handle_reset_cache },
    { "POST", "/v1/load_lora_adapter",   GUARD_FLEET, true,  handle_lora_load },
    { "POST", "/v1/unload_lora_adapter", GUARD_FLEET, true,  handle_lora_unload },
    { "POST", "/sleep",               GUARD_FLEET, true,  handle_sleep },
    { "POST", "/wake_up",             GUARD_FLEET, true,  handle_wake_up },
    { "GET",  "/is_sleeping",         GUARD_FLEET, true,  handle_is_sleeping },
    { "GET",  "/health",              GUARD_NONE,  false, health },
    { "GET",  "/metrics",             GUARD_METRICS, false, render_metrics },
    { "GET",  "/version",             GUARD_KEY,   false, version },
    { "POST", "/internal/generate",   GUARD_FLEET, true,  handle_generate },
    { "GET",  "/internal/info",       GUARD_FLEET, false, handle_info },
    { "GET",  "/internal/events",     GUARD_FLEET, true,  handle_events },
    { "GET",  "/internal/tokenizer",  GUARD_FLEET, true,  handle_tokenizer },
    { "POST", "/internal/drain",      GUARD_FLEET, false, handle_drain },
    { "POST", "/internal/undrain",    GUARD_FLEET, false, handle_undrain },
    { "POST", "/internal/kv/read",    GUARD_FLEET, true,  handle_kv_read },
    { "POST", "/internal/kv/pull",    GUARD_FLEET, true,  handle_kv_fetch },
    { "POST", "/internal/clock",      GUARD_FLEET, false, handle_clock },
};
// clang-format on

/* ---- replies ---------------------------------------------------------------------------------- */

void http_api_count(struct http_api *api, const struct http_exchange *x, int status)
{
    struct str path = http_exchange_request(x)->path;
    bool known = false;
    for (size_t i = 0; i < COUNT_OF(routes); i++)
        known |= str_eq(path, str_from(routes[i].path));
    /* All unknown paths share one label, or strangers could make up labels. */
    engine_metrics_http(api->metrics, known ? path : STR("unknown"), status);
}

void http_api_reply(struct http_api *api, struct http_exchange *x, int status, struct str body)
{
    http_api_count(api, x, status);
    http_reply(x, status, JSON_TYPE, body);
}

void http_api_reply_error(struct http_api *api, struct http_exchange *x,
                          const struct openai_error *e)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    reply_error(reply_style_of(http_exchange_request(x)->path), e, &body);
    if (e->status == 429 || e->status == 503) {
        http_reply_header(x, "retry-after", STR(RETRY_AFTER_S));
    }
    if (e->status == 401) http_reply_header(x, "www-authenticate", STR("Bearer"));
    http_api_reply(api, x, e->status, buf_view(&body));
}

void http_api_refuse(struct http_api *api, struct http_exchange *x, enum openai_problem problem,
                     const char *param, const char *format, ...)
{
    char sentence[ERR_TEXT_MAX];
    struct openai_error e;
    va_list ap;
    va_start(ap, format);
    vsnprintf(sentence, sizeof sentence, format, ap);
    va_end(ap);
    openai_error_set(&e, 0, problem, param, "%s", sentence);
    http_api_reply_error(api, x, &e);
}

static bool id_is_fine(struct str id)
{
    if (id.len == 0 || id.len > REQUEST_ID_BYTES_MAX) return false;
    for (size_t i = 0; i < id.len; i++) {
        char c = id.data[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '_' || c == '.' || c == ':';
        if (!plain) return false;
    }
    return true;
}

void http_api_request_id(struct http_api *api, const struct http_exchange *x,
                         struct request_id *ret)
{
    struct str given = http_request_header(http_exchange_request(x), "x-request-id");
    memset(ret, 0, sizeof *ret);
    if (id_is_fine(given)) {
        memcpy(ret->text, given.data, given.len);
    } else {
        snprintf(ret->text, sizeof ret->text, "%016lx%08lx", (unsigned long)api->boot,
                 (unsigned long)++api->numbered);
    }
}

/* ---- the guard ---------------------------------------------------------------------------------- */

static void refuse_browser(struct http_api *api, struct http_exchange *x, enum browser_fault fault)
{
    enum openai_problem problem = fault == BROWSER_TYPE ? OPENAI_CONTENT_TYPE : OPENAI_FORBIDDEN;
    http_api_refuse(api, x, problem, NULL, "%s", browser_fault_info(fault)->sentence);
}

/* Lets a request without a credential pass, unless a browser may have sent it for another site. */
static bool pass_open(struct http_api *api, struct http_exchange *x)
{
    const struct http_names names = { .own = str_from(api->config.host),
                                      .port = http_server_port(api->server),
                                      .hosts = api->config.hosts,
                                      .host_count = api->config.host_count };
    enum browser_fault fault = browser_check(&names, http_exchange_request(x));
    if (fault == BROWSER_OK) return true;
    refuse_browser(api, x, fault);
    return false;
}

/* Returns true if the signer may use the route: a ticket opens the one route that it is for. */
static bool part_may(const struct http_request *req)
{
    return !str_starts(auth_gate_id(req), STR("ticket/")) ||
           str_eq(req->path, STR("/internal/kv/read"));
}

static bool is_fleet(const struct http_exchange *x, const struct auth_note *note)
{
    if (note->who == AUTH_PERSON) return true;
    return note->who == AUTH_PART && part_may(http_exchange_request(x));
}

/* Guards the fleet's own routes, which never open to a client's key. Without a secret they are open
 * to peers on this machine, and with API keys alone they are closed. */
static bool pass_fleet(struct http_api *api, struct http_exchange *x, const struct auth_note *note)
{
    const struct http_api_config *c = &api->config;
    const struct http_request *req = http_exchange_request(x);
    if (http_request_header(req, "origin").data) {
        refuse_browser(api, x, BROWSER_ORIGIN);
        return false;
    }
    if (is_fleet(x, note)) return true;
    if (!credentials_held(c->held) && c->keys->count == 0 && browser_peer_is_local(req))
        return pass_open(api, x);
    http_api_refuse(api, x, OPENAI_UNAUTHENTICATED, NULL, "this path is for the fleet's own parts");
    return false;
}

/* Returns true if the request may go on; else it was refused. */
static bool pass(struct http_api *api, struct http_exchange *x, enum guard guard,
                 const struct auth_note *note)
{
    const struct http_api_config *c = &api->config;
    if (note->who == AUTH_ASKED_AGAIN) {
        http_api_refuse(api, x, OPENAI_UNAUTHENTICATED, NULL,
                        "sign for the epoch and the time of this reply");
        return false;
    }
    if (guard == GUARD_NONE) return true;
    if (guard == GUARD_FLEET) return pass_fleet(api, x, note);
    if (!credentials_held(c->held) && c->keys->count == 0) return pass_open(api, x);
    const struct http_request *req = http_exchange_request(x);
    struct str key = auth_key(req);
    if (guard == GUARD_METRICS && key.len == 0 && note->who == AUTH_NOBODY &&
        browser_peer_is_local(req))
        return pass_open(api, x);
    bool known = is_fleet(x, note) || key_file_has(c->keys, key);
    if (guard == GUARD_METRICS) known |= key_file_has(c->metrics_keys, key);
    if (!known)
        http_api_refuse(api, x, OPENAI_UNAUTHENTICATED, NULL,
                        "a valid key is needed: send the header authorization: Bearer KEY");
    return known;
}

/* ---- small handlers ------------------------------------------------------------------------------ */

static void health(struct http_api *api, struct http_exchange *x)
{
    if (api->stalled) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, STALLED_TEXT,
                        (double)api->stalled_us * 1e-6);
    } else if (api->sleep != SLEEP_AWAKE) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, SLEEPING_TEXT);
    } else if (api->state == HTTP_API_READY) {
        http_api_reply(api, x, 200, STR("{\"status\":\"ok\"}"));
    } else if (api->state == HTTP_API_DRAINING) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "draining: no new requests are taken");
    } else {
        http_api_refuse(api, x, OPENAI_LOADING, NULL, "loading the model");
    }
}

static void render_metrics(struct http_api *api, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf compat = { 0 }, body = { 0 };
    buf_init(&body, METRICS_TEXT_BYTES_MAX);
    metric_set(engine_metric(api->metrics, EM_LOG_LOST), (double)log_lost());
    enum metrics_format format = METRICS_CLASSIC; /* vLLM's names too */
    int rc = http_query_value(http_exchange_request(x)->query, "compat", &compat);
    if (rc == 0 && str_eq(buf_view(&compat), STR("vllm"))) {
        rc = engine_metrics_render_vllm(api->metrics, api->config.model_name, &body);
    } else if (rc == 0) {
        http_api_refuse(api, x, OPENAI_INVALID, "compat", "compat=%s: only vllm is known",
                        compat.data);
        return;
    } else {
        format = metrics_format_of(http_request_header(http_exchange_request(x), "accept"));
        rc = metrics_render(api->metrics->metrics, format, &body);
    }
    if (rc < 0) {
        http_api_refuse(api, x, OPENAI_INTERNAL, NULL, "metrics: %s", err_text(NULL, rc));
        return;
    }
    http_api_count(api, x, 200);
    http_reply(x, 200, str_from(metrics_content_types[format]), buf_view(&body));
}

static void version(struct http_api *api, struct http_exchange *x)
{
    http_api_reply(api, x, 200, STR("{\"version\":\"" MUSTER_VERSION "\"}"));
}

/* ---- from a request to its handler ----------------------------------------------------------------- */

static const struct route *find_route(const struct http_request *req, bool *ret_path_known)
{
    *ret_path_known = false;
    bool head = str_eq(req->method, STR("HEAD"));
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        if (!str_eq(req->path, str_from(routes[i].path))) continue;
        *ret_path_known = true;
        struct str method = str_from(routes[i].method);
        if (str_eq(req->method, method) || (head && str_eq(method, STR("GET")))) return &routes[i];
    }
    return NULL;
}

static void on_head(void *ctx, struct http_exchange *x)
{
    struct http_api *api = ctx;
    const struct http_request *req = http_exchange_request(x);
    struct http_api_note *note = http_exchange_note(x);
    _Static_assert(sizeof *note <= HTTP_NOTE_BYTES, "a note holds it");
    auth_gate_head(&api->gate, x, &note->auth, loop_now_us(api->loop));
    bool path_known;
    const struct route *route = find_route(req, &path_known);
    if (!route && !path_known) {
        http_api_refuse(api, x, OPENAI_URL_NOT_FOUND, NULL, "nothing is served at " STR_FMT,
                        STR_ARG(req->path));
    } else if (!route) {
        http_api_refuse(api, x, OPENAI_METHOD_NOT_ALLOWED, NULL,
                        STR_FMT " cannot be used with " STR_FMT, STR_ARG(req->path),
                        STR_ARG(req->method));
    } else if (!pass(api, x, route->guard, &note->auth)) {
        return; /* it was refused */
    } else if (route->needs_model && !api->info) {
        http_api_refuse(api, x, OPENAI_LOADING, NULL, "the model is being loaded; try again soon");
    } else {
        note->route = route;
        if (route->guard == GUARD_NONE) http_exchange_body_max(x, OPEN_BODY_BYTES_MAX);
    }
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct http_api *api = ctx;
    const struct http_api_note *note = http_exchange_note(x);
    if (!auth_gate_body(&note->auth, http_exchange_request(x))) {
        http_api_refuse(api, x, OPENAI_UNAUTHENTICATED, NULL, "the body is not what was signed");
        return;
    }
    arena_reset(&api->arena);
    buf_clear(&api->out);
    note->route->handle(api, x);
}

static void on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct http_api *api = ctx;
    const struct http_api_note *note = http_exchange_note(x);
    auth_gate_reply(&api->gate, x, &note->auth, status, body, loop_now_us(api->loop));
}

/* Renders the refusal of a request that is too broken for any handler, in the shape of other
 * errors. */
static struct str render_refusal(void *ctx, const struct http_fault_info *why, struct buf *body)
{
    struct http_api *api = ctx;
    struct openai_error e;
    enum openai_problem problem = why->status == 413   ? OPENAI_TOO_LARGE
                                  : why->status == 408 ? OPENAI_DEADLINE
                                  : why->status >= 500 ? OPENAI_UNAVAILABLE
                                                       : OPENAI_INVALID;
    openai_error_set(&e, 0, problem, NULL, "%s", why->sentence);
    openai_error_render(&e, body);
    engine_metrics_http(api->metrics, STR("unknown"), why->status);
    return JSON_TYPE;
}

/* ---- the model is loaded, or not ------------------------------------------------------------- */

/* Makes the tokenizer bundle, and one digest of weights and tokenizer: equal digests mean equal
 * tokens and equal prompts, also where a template was given on the command line. */
static int make_bundle(struct http_api *api, struct err *err)
{
    const struct model_info *m = api->info->model;
    struct str source =
        api->config.chat_template.len ? api->config.chat_template : m->template_source;
    if (source.len > 0) {
        int rc = chat_template_compile(source, &api->chat_template, err);
        if (rc < 0) return err_prefix(err, rc, "the chat template");
    }
    char bundle_digest[SHA256_HEX + 1];
    buf_init(&api->bundle, BUNDLE_BYTES_MAX);
    const struct bundle_names names = { api->config.tool_call_parser,
                                        api->config.reasoning_parser };
    int rc = bundle_dialogue(m->vocab, api->chat_template, &names, &api->dialogue, err);
    if (rc < 0) return rc;
    rc =
        bundle_encode_named(m->vocab, api->chat_template, &names, &api->bundle, bundle_digest, err);
    if (rc < 0) return err_prefix(err, rc, "the tokenizer bundle");
    bundle_identity(str_from(m->digest), bundle_digest, api->digest);
    return 0;
}

static void on_failed(void *arg, const char *sentence)
{
    struct http_api *api = arg;
    api->on_failed(api->on_failed_arg, sentence);
}

static const char *weights_text(const struct model_info *m)
{
    return !m->weights_mapped ? "own" : m->weights_found ? "mapped" : "packed";
}

/* Settles what embeddings are made of. */
static int choose_pooling(struct http_api *api, struct err *err)
{
    const struct model_info *m = api->info->model;
    if (api->config.pooling == POOLING_MODEL) api->config.pooling = m->pooling;
    if (api->config.pooling != POOLING_CLS || m->task != MODEL_GENERATE) return 0;
    return err_set(err, -EINVAL,
                   "--pooling cls: the first token of a text does not see the others in a decoder, "
                   "as '" STR_FMT "' is one; take last or mean",
                   STR_ARG(m->architecture));
}

static void on_ready(void *arg, const struct device_info *info)
{
    struct http_api *api = arg;
    struct err err = { "" };
    api->info = info;
    int rc = choose_pooling(api, &err);
    if (rc == 0) rc = make_bundle(api, &err);
    if (rc < 0) {
        api->info = NULL;
        on_failed(api, err_text(&err, rc));
        return;
    }
    lora_ready(api);
    kv_fetches_set_device(api->fetches, api->device, info, str_from(api->digest));
    if (api->state == HTTP_API_LOADING) api->state = HTTP_API_READY;
    const struct str labels[] = { api->config.model_name, str_from(api->digest),
                                  str_from(info->model->numerics), STR(MUSTER_VERSION) };
    metric_set(metric_series(api->metrics->metrics, EM_INFO, labels), 1);
    if (info->model->cache_trouble[0])
        log_event(LOG_WARN, "weight_cache_unused", "error=%s", info->model->cache_trouble);
    if (info->draft_kv_bytes > 0)
        log_event(LOG_INFO, "draft_model", "kv_mib=%.1f", (double)info->draft_kv_bytes / 1048576);
    char sampling[MODEL_SAMPLING_TEXT];
    model_sampling_text(&info->model->sampling, sampling);
    log_event(
        LOG_INFO, "engine_ready",
        "model=%.*s architecture=%.*s task=%s port=%u digest=%.12s context=%u pages=%u kv_mib=%.1f "
        "kv=%s kernels=%.*s weights=%s sampling=%s load_s=%.3f",
        STR_ARG(api->config.model_name), STR_ARG(info->model->architecture),
        model_task_names[info->model->task], http_api_port(api), api->digest, info->context_max,
        info->pages, (double)info->kv_bytes / 1048576, kv_type_name(info->kv.type),
        STR_ARG(info->model->kernels), weights_text(info->model), sampling, info->load_s);
    notify_ready("the model is loaded");
}

bool http_api_is_stalled(const struct http_api *api)
{
    return api->stalled;
}

struct device_events http_api_device_events(struct http_api *api)
{
    return (struct device_events){
        .on_ready = on_ready,
        .on_failed = on_failed,
        .on_mail = call_mail,
        .on_blocks = blocks_changed,
        .arg = api,
    };
}

void http_api_set_device(struct http_api *api, struct device *device)
{
    api->device = device;
}

void http_api_on_failed(struct http_api *api, void (*fn)(void *arg, const char *sentence),
                        void *arg)
{
    api->on_failed = fn;
    api->on_failed_arg = arg;
}

/* ---- the device's progress ------------------------------------------------------------------- */

/* A turn each second checks that the device thread makes progress, and tells streams so.
 *
 * The loop replies whatever the device does, so a reply of the loop proves nothing. Streams to
 * routers therefore carry an empty line at each turn in which the device is well and the stream is
 * silent: a router can tell a request that waits in a long queue from one in an engine that hangs.
 * An engine that has stalled sends none, says so in /health and /internal/info, and lets go of its
 * clients, so that their requests can go on elsewhere while it is still being killed.
 *
 * A turn that came late (the process was stopped, the loop was busy) proves nothing about the
 * device: the time before it is excused.
 */
#define LATE_US 1000000

static void begin_stall(struct http_api *api, int64_t stalled_us)
{
    api->stalled = true;
    metric_inc(engine_metric(api->metrics, EM_STALLS));
    log_event(LOG_ERROR, "device_stalled", "seconds=%.1f in_flight=%u", (double)stalled_us * 1e-6,
              api->call_count);
}

/* Tells every call whether the device is well. Called at each turn: calls may have come since, from
 * a KV fetch that has ended. */
static void tell_calls(struct http_api *api)
{
    LIST_EACH_SAFE (&api->calls, node) {
        struct call *c = CONTAINER_OF(node, struct call, link);
        if (api->stalled) {
            call_let_go(c);
        } else {
            call_beat(c);
        }
    }
    if (api->stalled) embeds_let_go(api);
}

static void on_turn(void *arg)
{
    struct http_api *api = arg;
    int64_t now_us = loop_now_us(api->loop);
    if (now_us - api->pulse_due_us > LATE_US) api->pulse_excused_us = now_us;
    /* Without a model there is no work to stall over, and what sleep and waking take is no stall. */
    if (api->sleep == SLEEP_FALLING || api->sleep == SLEEP_WAKING) api->pulse_excused_us = now_us;
    int64_t stalled_us =
        api->info ? pulse_stalled_us(device_pulse(api->device), api->pulse_excused_us, now_us) : 0;
    api->stalled_us = stalled_us;
    metric_set(engine_metric(api->metrics, EM_STALLED), (double)stalled_us * 1e-6);
    if (stalled_us > 0 && !api->stalled) begin_stall(api, stalled_us);
    if (stalled_us == 0 && api->stalled) {
        api->stalled = false;
        log_event(LOG_WARN, "device_goes_on", "in_flight=%u", api->call_count);
    }
    tell_calls(api);
    api->pulse_due_us = now_us + GENERATE_BEAT_US;
    loop_timer_set(api->loop, &api->pulse_turn, api->pulse_due_us);
}

static int start_pulse(struct http_api *api)
{
    api->pulse_turn = (struct loop_timer){ .fn = on_turn, .arg = api };
    api->pulse_due_us = loop_now_us(api->loop) + GENERATE_BEAT_US;
    return loop_timer_set(api->loop, &api->pulse_turn, api->pulse_due_us);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

int http_api_new(struct loop *loop, const struct http_api_config *config,
                 struct engine_metrics *metrics, struct http_api **ret, struct err *err)
{
    CLEANUP(http_api_freep) struct http_api *api = calloc(1, sizeof *api);
    if (!api) return -ENOMEM;
    api->config = *config;
    api->loop = loop;
    api->metrics = metrics;
    api->key_seed = config->held->block_seed;
    api->created_s = clock_wall_us() / 1000000;
    list_init(&api->calls);
    list_init(&api->embeds);
    list_init(&api->watchers);
    list_init(&api->kv_reads);
    list_init(&api->kv_asks);
    list_init(&api->lora_loads);
    arena_init(&api->arena, HTTP_API_ARENA_BYTES_MAX);
    if (getrandom(&api->boot, sizeof api->boot, 0) != sizeof api->boot) return -EIO;
    rng_seed(&api->rng, api->boot);
    static const char *const ids[] = { "engine/", "ticket/", NULL };
    auth_gate_init(&api->gate, config->held, ids, api->boot, loop_now_us(loop));
    auth_gate_meters(&api->gate, metrics->metrics, EM_SIGNED);
    int rc = prompts_init(api, err);
    if (rc < 0) return rc;
    const struct kv_fetches_config fetches = { loop, metrics, config->held, config->call };
    rc = kv_fetches_new(&fetches, &api->fetches, err);
    if (rc < 0) return rc;
    const struct http_server_config server = {
        .host = config->host,
        .port = config->port,
        .limits = { .connections_max = config->connections_max,
                    .connections_address_max = config->connections_address_max },
        .tls = config->serve,
        .on_head = on_head,
        .on_request = on_request,
        .on_reply = on_reply,
        .render_refusal = render_refusal,
        .ctx = api,
    };
    rc = http_server_new(loop, &server, &api->server, err);
    if (rc < 0) return rc;
    const struct http_server_meters heard = { api->metrics->metrics, EM_HTTP_CONNECTIONS,
                                              EM_HTTP_REFUSED, EM_HTTP_CUT, EM_HTTP_CLOSED };
    http_server_meters_set(api->server, &heard);
    rc = start_pulse(api);
    if (rc < 0) return rc;
    *ret = TAKE(api);
    return 0;
}

void http_api_close(struct http_api *api)
{
    loop_timer_clear(api->loop, &api->pulse_turn);
    if (api->texts) text_pool_stop(api->texts); /* workers read bodies that the server holds */
    http_server_free(api->server);
    api->server = NULL;
    kv_fetches_close(api->fetches);
}

void http_api_free(struct http_api *api)
{
    if (!api) return;
    http_api_close(api);
    prompts_free(api);
    lora_free(api);
    calls_free(api);
    embeds_free(api);
    blocks_free(api);
    kv_free(api);
    sleep_free(api);
    chat_template_free(api->chat_template);
    auth_gate_fini(&api->gate);
    job_mail_fini(&api->mail);
    buf_fini(&api->bundle);
    buf_fini(&api->out);
    arena_fini(&api->arena);
    free(api);
}

uint16_t http_api_port(const struct http_api *api)
{
    return http_server_port(api->server);
}

void http_api_drain(struct http_api *api, void (*on_empty)(void *arg), void *arg)
{
    api->state = HTTP_API_DRAINING;
    api->leaving = true;
    blocks_end_all(api);
    http_server_drain(api->server, on_empty, arg);
}

uint32_t http_api_in_flight(const struct http_api *api)
{
    return api->call_count;
}

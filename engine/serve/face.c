/* face.c - routes, guard, health and the life of the listener.
 *
 * The listener is up before the model is loaded, so that /health can say 503 loading instead of a
 * refused connection, which an agent could not tell from a crash.
 *
 * Templates and tokenising of bodies above TEXT_INLINE_BYTES run on text workers, of smaller ones on
 * this thread: a prompt of 2,000 tokens takes about a millisecond. Behind a router the engine gets ids
 * and does neither.
 */
#include "base/core/bits.h"
#include "base/io/clock.h"
#include "base/io/http_browser.h"
#include "base/io/log.h"
#include "engine/serve/face_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define JSON_TYPE STR("application/json")
#define OPEN_BODY_BYTES_MAX 4096 /* where anybody may ask, there is nothing to say */

enum guard {
    GUARD_NONE,  /* anybody */
    GUARD_KEY,   /* an API key or the secret, when there is one; else no page of another site */
    GUARD_FLEET, /* the secret and never an API key; with neither, who is on this machine */
};

struct route {
    const char *method, *path;
    enum guard guard;
    bool needs_model;
    void (*handle)(struct face *f, struct http_exchange *x);
};

static void health(struct face *f, struct http_exchange *x);
static void render_metrics(struct face *f, struct http_exchange *x);
static void version(struct face *f, struct http_exchange *x);

// clang-format off
static const struct route routes[] = {
    { "POST", "/v1/chat/completions", GUARD_KEY,   true,  face_chat },
    { "POST", "/v1/completions",      GUARD_KEY,   true,  face_completions },
    { "GET",  "/v1/models",           GUARD_KEY,   false, face_models },
    { "POST", "/tokenize",            GUARD_KEY,   true,  face_tokenize },
    { "POST", "/detokenize",          GUARD_KEY,   true,  face_detokenize },
    { "POST", "/reset_prefix_cache",  GUARD_FLEET,   true,  face_reset_cache },
    { "GET",  "/health",              GUARD_NONE,  false, health },
    { "GET",  "/metrics",             GUARD_KEY,   false, render_metrics },
    { "GET",  "/version",             GUARD_KEY,   false, version },
    { "POST", "/internal/generate",   GUARD_FLEET, true,  face_generate },
    { "GET",  "/internal/info",       GUARD_FLEET, false, face_info },
    { "GET",  "/internal/events",     GUARD_FLEET, true,  face_events },
    { "GET",  "/internal/tokenizer",  GUARD_FLEET, true,  face_tokenizer },
    { "POST", "/internal/drain",      GUARD_FLEET, false, face_internal_drain },
    { "POST", "/internal/undrain",    GUARD_FLEET, false, face_internal_undrain },
    { "POST", "/internal/kv/read",    GUARD_FLEET, true,  face_kv_read },
    { "POST", "/internal/kv/pull",    GUARD_FLEET, true,  face_kv_pull },
    { "POST", "/internal/clock",      GUARD_FLEET, false, face_clock },
};
// clang-format on

/* ---- replies ---------------------------------------------------------------------------------- */

void face_count(struct face *f, const struct http_exchange *x, int status)
{
    struct str path = http_exchange_request(x)->path;
    bool known = false;
    for (size_t i = 0; i < COUNT_OF(routes); i++)
        known |= str_eq(path, str_from(routes[i].path));
    /* Paths that strangers make up are one label. */
    meters_http(f->meters, known ? path : STR("unknown"), status);
}

void face_reply(struct face *f, struct http_exchange *x, int status, struct str body)
{
    face_count(f, x, status);
    http_reply(x, status, JSON_TYPE, body);
}

void face_reply_error(struct face *f, struct http_exchange *x, const struct openai_error *e)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    openai_error_render(e, &body);
    if (e->status == 429 || e->status == 503) {
        http_reply_header(x, "retry-after", STR(RETRY_AFTER_S));
    }
    if (e->status == 401) http_reply_header(x, "www-authenticate", STR("Bearer"));
    face_reply(f, x, e->status, buf_view(&body));
}

void face_refuse(struct face *f, struct http_exchange *x, enum openai_problem problem,
                 const char *param, const char *format, ...)
{
    char sentence[ERR_TEXT_MAX];
    struct openai_error e;
    va_list ap;
    va_start(ap, format);
    vsnprintf(sentence, sizeof sentence, format, ap);
    va_end(ap);
    openai_error_set(&e, 0, problem, param, "%s", sentence);
    face_reply_error(f, x, &e);
}

static bool id_is_fine(struct str id)
{
    if (id.len == 0 || id.len > FACE_ID_BYTES_MAX) return false;
    for (size_t i = 0; i < id.len; i++) {
        char c = id.data[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '_' || c == '.' || c == ':';
        if (!plain) return false;
    }
    return true;
}

void face_request_id(struct face *f, const struct http_exchange *x, struct face_id *ret)
{
    struct str given = http_request_header(http_exchange_request(x), "x-request-id");
    memset(ret, 0, sizeof *ret);
    if (id_is_fine(given)) {
        memcpy(ret->text, given.data, given.len);
    } else {
        snprintf(ret->text, sizeof ret->text, "%016lx%08lx", (unsigned long)f->boot,
                 (unsigned long)++f->numbered);
    }
}

/* ---- the guard ---------------------------------------------------------------------------------- */

/* Equal time whatever differs, the length included: digests are compared. */
static bool same_secret(struct str a, struct str b)
{
    uint8_t da[SHA256_BYTES], db[SHA256_BYTES];
    sha256(a.data, a.len, da);
    sha256(b.data, b.len, db);
    return equal_constant_time(da, db, sizeof da);
}

static void refuse_browser(struct face *f, struct http_exchange *x, enum browser_fault fault)
{
    enum openai_problem problem = fault == BROWSER_TYPE ? OPENAI_CONTENT_TYPE : OPENAI_FORBIDDEN;
    face_refuse(f, x, problem, NULL, "%s", browser_fault_info(fault)->sentence);
}

/* Where nothing is asked for, a browser must not be able to ask for somebody else. */
static bool pass_open(struct face *f, struct http_exchange *x)
{
    const struct http_names names = { .own = str_from(f->config.host),
                                      .port = http_server_port(f->server),
                                      .hosts = f->config.hosts,
                                      .host_count = f->config.host_count };
    enum browser_fault fault = browser_check(&names, http_exchange_request(x));
    if (fault == BROWSER_OK) return true;
    refuse_browser(f, x, fault);
    return false;
}

/* A ticket opens the one route that it is for. */
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

/* The fleet's own routes never open to a client's key: with nothing of the fleet's they are for who
 * is on this machine, and with API keys alone for nobody. */
static bool pass_fleet(struct face *f, struct http_exchange *x, const struct auth_note *note)
{
    const struct face_config *c = &f->config;
    const struct http_request *req = http_exchange_request(x);
    if (http_request_header(req, "origin").data) {
        refuse_browser(f, x, BROWSER_ORIGIN);
        return false;
    }
    if (is_fleet(x, note)) return true;
    if (!credentials_held(c->held) && c->key_count == 0 && browser_peer_is_local(req))
        return pass_open(f, x);
    face_refuse(f, x, OPENAI_UNAUTHENTICATED, NULL, "this path is for the fleet's own parts");
    return false;
}

/* True when the request may go on; else it is answered. */
static bool pass(struct face *f, struct http_exchange *x, enum guard guard,
                 const struct auth_note *note)
{
    const struct face_config *c = &f->config;
    if (note->who == AUTH_ASKED_AGAIN) {
        face_refuse(f, x, OPENAI_UNAUTHENTICATED, NULL,
                    "sign for the epoch and the time of this reply");
        return false;
    }
    if (guard == GUARD_NONE) return true;
    if (guard == GUARD_FLEET) return pass_fleet(f, x, note);
    if (!credentials_held(c->held) && c->key_count == 0) return pass_open(f, x);
    struct str key = auth_bearer(http_exchange_request(x));
    bool known = is_fleet(x, note);
    for (size_t i = 0; i < c->key_count; i++)
        known |= same_secret(key, c->keys[i]);
    if (!known)
        face_refuse(f, x, OPENAI_UNAUTHENTICATED, NULL,
                    "a valid key is needed: send the header authorization: Bearer KEY");
    return known;
}

/* ---- small handlers ------------------------------------------------------------------------------ */

static void health(struct face *f, struct http_exchange *x)
{
    if (f->stalled) {
        face_refuse(f, x, OPENAI_UNAVAILABLE, NULL, STALLED_TEXT, (double)f->stalled_us * 1e-6);
    } else if (f->state == FACE_READY) {
        face_reply(f, x, 200, STR("{\"status\":\"ok\"}"));
    } else if (f->state == FACE_DRAINING) {
        face_refuse(f, x, OPENAI_UNAVAILABLE, NULL, "draining: no new requests are taken");
    } else {
        face_refuse(f, x, OPENAI_LOADING, NULL, "loading the model");
    }
}

static void render_metrics(struct face *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf compat = { 0 }, body = { 0 };
    buf_init(&body, METRICS_TEXT_BYTES_MAX);
    metric_set(meter_of(f->meters, METER_LOG_LOST), (double)log_lost());
    int rc = http_query_value(http_exchange_request(x)->query, "compat", &compat);
    if (rc == 0 && str_eq(buf_view(&compat), STR("vllm"))) {
        rc = meters_render_vllm(f->meters, f->config.model_name, &body);
    } else if (rc == 0) {
        face_refuse(f, x, OPENAI_INVALID, "compat", "compat=%s: only vllm is known", compat.data);
        return;
    } else {
        rc = metrics_render(f->meters->metrics, &body);
    }
    if (rc < 0) {
        face_refuse(f, x, OPENAI_INTERNAL, NULL, "metrics: %s", err_text(NULL, rc));
        return;
    }
    face_count(f, x, 200);
    http_reply(x, 200, STR(METRICS_CONTENT_TYPE), buf_view(&body));
}

static void version(struct face *f, struct http_exchange *x)
{
    face_reply(f, x, 200, STR("{\"version\":\"" MUSTER_VERSION "\"}"));
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
    struct face *f = ctx;
    const struct http_request *req = http_exchange_request(x);
    struct face_note *note = http_exchange_note(x);
    _Static_assert(sizeof *note <= HTTP_NOTE_BYTES, "a note holds it");
    auth_gate_head(&f->gate, x, &note->auth, loop_now_us(f->loop));
    bool path_known;
    const struct route *route = find_route(req, &path_known);
    if (!route && !path_known) {
        face_refuse(f, x, OPENAI_URL_NOT_FOUND, NULL, "nothing is served at " STR_FMT,
                    STR_ARG(req->path));
    } else if (!route) {
        face_refuse(f, x, OPENAI_METHOD_NOT_ALLOWED, NULL, STR_FMT " cannot be used with " STR_FMT,
                    STR_ARG(req->path), STR_ARG(req->method));
    } else if (!pass(f, x, route->guard, &note->auth)) {
        return; /* answered */
    } else if (route->needs_model && !f->info) {
        face_refuse(f, x, OPENAI_LOADING, NULL, "the model is being loaded; try again soon");
    } else {
        note->route = route;
        if (route->guard == GUARD_NONE) http_exchange_body_max(x, OPEN_BODY_BYTES_MAX);
    }
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct face *f = ctx;
    const struct face_note *note = http_exchange_note(x);
    if (!auth_gate_body(&note->auth, http_exchange_request(x))) {
        face_refuse(f, x, OPENAI_UNAUTHENTICATED, NULL, "the body is not what was signed");
        return;
    }
    arena_reset(&f->arena);
    buf_clear(&f->out);
    note->route->handle(f, x);
}

static void on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct face *f = ctx;
    const struct face_note *note = http_exchange_note(x);
    auth_gate_reply(&f->gate, x, &note->auth, status, body, loop_now_us(f->loop));
}

/* A request so broken that no handler saw it, in the same shape as any other error. */
static struct str render_refusal(void *ctx, const struct http_fault_info *why, struct buf *body)
{
    struct face *f = ctx;
    struct openai_error e;
    enum openai_problem problem = why->status == 413   ? OPENAI_TOO_LARGE
                                  : why->status == 408 ? OPENAI_DEADLINE
                                  : why->status >= 500 ? OPENAI_UNAVAILABLE
                                                       : OPENAI_INVALID;
    openai_error_set(&e, 0, problem, NULL, "%s", why->sentence);
    openai_error_render(&e, body);
    meters_http(f->meters, STR("unknown"), why->status);
    return JSON_TYPE;
}

/* ---- the model has come, or not ---------------------------------------------------------------------- */

/* Weights and tokenizer under one digest: equal digests mean equal tokens and equal prompts, also
 * where a template was given on the command line. */
static int make_bundle(struct face *f, struct err *err)
{
    const struct model_info *m = f->info->model;
    struct str source = f->config.chat_template.len ? f->config.chat_template : m->template_source;
    if (source.len > 0) {
        int rc = chat_template_compile(source, &f->chat_template, err);
        if (rc < 0) return err_prefix(err, rc, "the chat template");
    }
    char bundle_digest[SHA256_HEX + 1];
    buf_init(&f->bundle, BUNDLE_BYTES_MAX);
    int rc = bundle_encode(m->vocab, f->chat_template, &f->bundle, bundle_digest, err);
    if (rc < 0) return err_prefix(err, rc, "the tokenizer bundle");
    bundle_identity(str_from(m->digest), bundle_digest, f->digest);
    return 0;
}

static void on_failed(void *arg, const char *sentence)
{
    struct face *f = arg;
    f->on_failed(f->on_failed_arg, sentence);
}

static void on_ready(void *arg, const struct device_info *info)
{
    struct face *f = arg;
    struct err err = { "" };
    f->info = info;
    int rc = make_bundle(f, &err);
    if (rc < 0) {
        f->info = NULL;
        on_failed(f, err_text(&err, rc));
        return;
    }
    kv_pulls_set_device(f->pulls, f->device, info, str_from(f->digest));
    if (f->state == FACE_LOADING) f->state = FACE_READY;
    const struct str labels[] = { f->config.model_name, str_from(f->digest),
                                  str_from(info->model->numerics), STR(MUSTER_VERSION) };
    metric_set(metric_series(f->meters->metrics, METER_INFO, labels), 1);
    log_event(LOG_INFO, "engine_ready",
              "model=%.*s architecture=%.*s port=%u digest=%.12s context=%u pages=%u kv_mib=%.1f "
              "kernels=%.*s "
              "load_s=%.3f",
              STR_ARG(f->config.model_name), STR_ARG(info->model->architecture), face_port(f),
              f->digest, info->context_max, info->pages, (double)info->kv_bytes / 1048576,
              STR_ARG(info->model->kernels), info->load_s);
}

struct device_events face_device_events(struct face *f)
{
    return (struct device_events){
        .on_ready = on_ready,
        .on_failed = on_failed,
        .on_mail = call_mail,
        .on_blocks = blocks_changed,
        .arg = f,
    };
}

void face_set_device(struct face *f, struct device *device)
{
    f->device = device;
}

void face_on_failed(struct face *f, void (*fn)(void *arg, const char *sentence), void *arg)
{
    f->on_failed = fn;
    f->on_failed_arg = arg;
}

/* ---- life ------------------------------------------------------------------------------------------------ */

int face_new(struct loop *loop, const struct face_config *config, struct meters *meters,
             struct face **ret, struct err *err)
{
    CLEANUP(face_freep) struct face *f = calloc(1, sizeof *f);
    if (!f) return -ENOMEM;
    f->config = *config;
    f->loop = loop;
    f->meters = meters;
    f->key_seed = config->held->block_seed;
    f->created_s = clock_wall_us() / 1000000;
    list_init(&f->calls);
    list_init(&f->watchers);
    list_init(&f->kv_reads);
    list_init(&f->kv_asks);
    arena_init(&f->arena, FACE_ARENA_BYTES_MAX);
    if (getrandom(&f->boot, sizeof f->boot, 0) != sizeof f->boot) return -EIO;
    static const char *const ids[] = { "engine/", "ticket/", NULL };
    auth_gate_init(&f->gate, config->held, ids, f->boot, loop_now_us(loop));
    auth_gate_meters(&f->gate, meters->metrics, METER_SIGNED);
    int rc = prompts_init(f, err);
    if (rc < 0) return rc;
    const struct kv_pulls_config pulls = { loop, meters, config->held, config->call };
    rc = kv_pulls_new(&pulls, &f->pulls, err);
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
        .ctx = f,
    };
    rc = http_server_new(loop, &server, &f->server, err);
    if (rc < 0) return rc;
    const struct http_server_meters heard = { f->meters->metrics, METER_HTTP_CONNECTIONS,
                                              METER_HTTP_REFUSED, METER_HTTP_CUT,
                                              METER_HTTP_CLOSED };
    http_server_meters_set(f->server, &heard);
    rc = face_pulse_start(f);
    if (rc < 0) return rc;
    *ret = TAKE(f);
    return 0;
}

void face_close(struct face *f)
{
    loop_timer_clear(f->loop, &f->pulse_turn);
    if (f->texts) text_pool_stop(f->texts); /* they read what the server holds */
    http_server_free(f->server);
    f->server = NULL;
    kv_pulls_close(f->pulls);
}

void face_free(struct face *f)
{
    if (!f) return;
    face_close(f);
    prompts_free(f);
    calls_free(f);
    blocks_free(f);
    kv_free(f);
    chat_template_free(f->chat_template);
    auth_gate_fini(&f->gate);
    job_mail_fini(&f->mail);
    buf_fini(&f->bundle);
    buf_fini(&f->out);
    arena_fini(&f->arena);
    free(f);
}

uint16_t face_port(const struct face *f)
{
    return http_server_port(f->server);
}

void face_drain(struct face *f, void (*on_empty)(void *arg), void *arg)
{
    f->state = FACE_DRAINING;
    f->leaving = true;
    blocks_end_all(f);
    http_server_drain(f->server, on_empty, arg);
}

uint32_t face_in_flight(const struct face *f)
{
    return f->call_count;
}

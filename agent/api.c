/* api.c - a small HTTP API beside an engine of another kind.
 *
 * A follower is a router's stream of events: hello, a snapshot of the keys, then changes as the ring of
 * the view has them, and the load each EVENT_LOAD_MS where it changed. A follower that is behind the ring
 * gets a snapshot again. The load is as old as the last look at the engine.
 *
 * The prompts that wait in an engine of another kind are not known, only how many; a waiting one counts
 * as long as the mean of those before it.
 */
#include "agent/api.h"

#include "agent/metrics.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/auth_gate.h"
#include "base/io/http/http_browser.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/wire/openai.h"

#include <stdlib.h>
#include <sys/random.h>

#define JSON_TYPE STR("application/json")
#define COPY_CHANGES 64
#define CONNECTIONS_MAX 256
#define BODY_BYTES_MAX 4096              /* no path reads one */
#define LOAD_AGAIN_US 2000000            /* an unchanged load is sent again, unless it is none */
#define OUT_KEEP_BYTES ((size_t)1 << 20) /* of a snapshot, from reply to reply */
#define STREAM_UNSENT_MAX ((size_t)1 << 20)
#define SNAPSHOT_BYTES_MAX ((size_t)256 << 20) /* KV_VIEW_BLOCKS_MAX keys as JSON take 80 MiB */

enum guard { GUARD_NONE, GUARD_METRICS, GUARD_FLEET };

struct agent_api {
    struct agent_api_config config;
    struct http_server *server;
    struct auth_gate gate;
    struct metrics *metrics;
    uint64_t epoch;
    const struct tokenizer_source *tokenizer;
    const struct kv_view *view;
    struct list followers;
    uint32_t follower_count;
    struct buf out;
};

struct follower {
    struct list link;
    struct agent_api *api;
    struct http_exchange *x;
    uint64_t seq; /* sent so far */
    bool needs_snapshot, wants_load;
    struct loop_timer load_timer;
    struct block_event load; /* sent last */
    int64_t load_us;
};

struct note {
    struct auth_note auth;
    const struct route *route;
};

struct route {
    const char *path;
    enum guard guard;
    void (*handle)(struct agent_api *a, struct http_exchange *x);
};

static void refuse(struct http_exchange *x, enum openai_problem problem, const char *sentence)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct openai_error e;
    openai_error_set(&e, 0, problem, NULL, "%s", sentence);
    openai_error_render(&e, &body);
    if (e.status == 503) http_reply_header(x, "retry-after", STR("1"));
    http_reply(x, e.status, JSON_TYPE, buf_view(&body));
}

/* ---- state of the engine ---- */

static void handle_health(struct agent_api *a, struct http_exchange *x)
{
    (void)a;
    http_reply(x, 200, JSON_TYPE, STR("{\"status\":\"ok\"}"));
}

static void handle_info(struct agent_api *a, struct http_exchange *x)
{
    struct engine_report r;
    if (!a->config.report(a->config.arg, &r)) {
        refuse(x, OPENAI_LOADING, "the engine has not been seen yet");
        return;
    }
    if (engine_report_encode(&r, &a->out) < 0)
        refuse(x, OPENAI_INTERNAL, "no memory");
    else
        http_reply(x, 200, JSON_TYPE, buf_view(&a->out));
}

static void handle_tokenizer(struct agent_api *a, struct http_exchange *x)
{
    struct str wanted = http_request_header(http_exchange_request(x), "if-match");
    if (!a->tokenizer) {
        refuse(x, OPENAI_LOADING, "this engine's tokenizer is not known");
        return;
    }
    if (wanted.data && !str_eq(wanted, str_from(a->tokenizer->digest))) {
        buf_printf(&a->out, "{\"digest\":\"%s\"}", a->tokenizer->digest);
        http_reply(x, 412, JSON_TYPE, buf_view(&a->out));
        return;
    }
    http_reply_header(x, "etag", str_from(a->tokenizer->digest));
    http_reply_header(x, BUNDLE_WEIGHTS_HEADER, str_from(a->tokenizer->weights));
    http_reply(x, 200, STR("application/octet-stream"), buf_view(&a->tokenizer->bundle));
}

static void handle_metrics(struct agent_api *a, struct http_exchange *x)
{
    a->config.meter(a->config.arg, a->metrics);
    metric_set(metric_of(a->metrics, AM_FOLLOWERS), a->follower_count);
    metric_set(metric_of(a->metrics, AM_LOG_LOST), (double)log_lost());
    enum metrics_format format =
        metrics_format_of(http_request_header(http_exchange_request(x), "accept"));
    if (metrics_render(a->metrics, format, &a->out) < 0)
        refuse(x, OPENAI_INTERNAL, "no memory");
    else
        http_reply(x, 200, str_from(metrics_content_types[format]), buf_view(&a->out));
}

/* ---- followers ---- */

static void follower_free(struct follower *f)
{
    if (list_linked(&f->link)) list_remove(&f->link);
    f->api->follower_count--;
    loop_timer_clear(f->api->config.loop, &f->load_timer);
    free(f);
}

static void drop(struct follower *f)
{
    http_exchange_abort(f->x);
    follower_free(f);
}

/* Sends what `out` holds; false: the follower is gone. */
static bool say(struct follower *f)
{
    struct buf *out = &f->api->out;
    bool sent = out->rc == 0 && http_stream_write(f->x, out->data, out->len) == 0;
    buf_clear(out);
    if (!sent) drop(f);
    return sent;
}

/* Returns false where the follower is gone, or has no room: it then goes on when it has. */
static bool say_event(struct follower *f, const struct block_event *ev)
{
    buf_clear(&f->api->out);
    block_event_encode(ev, &f->api->out);
    return say(f);
}

/* Sends all keys, in as many lines as needed. They are rendered whole before the first is sent, because
 * the view must not change between them. */
static bool send_snapshot(struct follower *f)
{
    struct agent_api *a = f->api;
    struct block_key keys[EVENT_KEYS_MAX];
    size_t cursor = 0;
    bool more = true;
    buf_clear(&a->out);
    struct block_event ev = { .kind = EVENT_SNAPSHOT, .keys = keys };
    ev.seq = a->view ? kv_view_seq(a->view) : 0;
    while (more) {
        ev.key_count = 0;
        while (ev.key_count < EVENT_KEYS_MAX &&
               (more = a->view && kv_view_next(a->view, &cursor, &keys[ev.key_count])))
            ev.key_count++;
        ev.more = more;
        block_event_encode(&ev, &a->out);
    }
    f->seq = ev.seq;
    f->needs_snapshot = false;
    bool sent = say(f);
    if (a->out.cap > OUT_KEEP_BYTES) buf_fini(&a->out);
    return sent;
}

static bool send_changes(struct follower *f, const struct kv_change *change, int count)
{
    struct agent_api *a = f->api;
    buf_clear(&a->out);
    for (int i = 0; i < count; i++) {
        const struct block_event ev = { .kind = change[i].add ? EVENT_ADD : EVENT_DROP,
                                        .seq = ++f->seq,
                                        .keys = &change[i].key,
                                        .key_count = 1 };
        block_event_encode(&ev, &a->out);
    }
    return say(f);
}

static void pump(struct follower *f)
{
    struct kv_change change[COPY_CHANGES];
    struct agent_api *a = f->api;
    while (!http_stream_full(f->x)) {
        int n = f->needs_snapshot ? -ENOENT
                : a->view         ? kv_view_since(a->view, f->seq, change, COPY_CHANGES)
                                  : 0;
        if (n == 0) return;
        if (!(n < 0 ? send_snapshot(f) : send_changes(f, change, n))) return;
    }
}

/* Estimates the prompt tokens that wait: as many as the requests before had, less what was cached. */
static uint64_t waiting_tokens(const struct engine_report *r)
{
    uint64_t computed = r->prompt_tokens_total - r->cached_tokens_total;
    uint64_t begun = r->requests_total + r->running;
    return begun > 0 ? computed / begun * r->waiting : 0;
}

static bool load_is_same(const struct block_event *a, const struct block_event *b)
{
    return a->running == b->running && a->waiting == b->waiting && a->kv_tokens == b->kv_tokens &&
           a->uncached_total == b->uncached_total;
}

static void on_load_timer(void *arg)
{
    struct follower *f = arg;
    struct loop *loop = f->api->config.loop;
    struct engine_report r;
    int64_t now_us = loop_now_us(loop);
    (void)loop_timer_set(loop, &f->load_timer, now_us + EVENT_LOAD_MS * INT64_C(1000));
    if (f->needs_snapshot || http_stream_full(f->x)) return;
    if (!f->api->config.report(f->api->config.arg, &r)) return;
    const struct block_event ev = {
        .kind = EVENT_LOAD,
        .seq = f->seq,
        .running = r.running,
        .waiting = r.waiting,
        .prefill_tokens = waiting_tokens(&r),
        .kv_tokens = (uint64_t)(r.pages_total - r.pages_free) * r.page_tokens,
        .uncached_total = r.prompt_tokens_total - r.cached_tokens_total,
    };
    bool idle = ev.running + ev.waiting == 0, old = now_us - f->load_us >= LOAD_AGAIN_US;
    if (load_is_same(&ev, &f->load) && (idle || !old)) return;
    f->load = ev;
    f->load_us = now_us;
    (void)say_event(f, &ev);
}

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    follower_free(arg);
}

static void on_drain(void *arg)
{
    pump(arg);
}

static bool hello(struct follower *f, const struct engine_report *r)
{
    const struct agent_api *a = f->api;
    char check[BLOCK_KEY_HEX + 1];
    struct str none = { 0 };
    struct str digest = str_from(a->tokenizer ? a->tokenizer->digest : "");
    block_key_hex(block_salt(a->config.held->block_seed, digest, none, none), check);
    const struct block_event ev = { .kind = EVENT_HELLO,
                                    .seq = a->view ? kv_view_seq(a->view) : 0,
                                    .boot = r->boot,
                                    .block_tokens = BLOCK_TOKENS,
                                    .page_tokens = BLOCK_TOKENS,
                                    .digest = digest,
                                    .salt_check = str_from(check) };
    return say_event(f, &ev);
}

static bool asks_load(struct str query)
{
    CLEANUP(buf_fini) struct buf value = { 0 };
    return http_query_value(query, "load", &value) == 0 && str_eq(buf_view(&value), STR("1"));
}

/* A reader's place (`from`) is not taken up: it gets a snapshot, which is what the view holds anyway. */
static void handle_events(struct agent_api *a, struct http_exchange *x)
{
    struct engine_report r;
    if (!a->config.report(a->config.arg, &r)) {
        refuse(x, OPENAI_LOADING, "the engine has not been seen yet");
        return;
    }
    struct follower *f = a->follower_count < AGENT_FOLLOWERS_MAX ? calloc(1, sizeof *f) : NULL;
    if (!f) {
        refuse(x, OPENAI_UNAVAILABLE, "as many routers follow this engine as may");
        return;
    }
    *f = (struct follower){ .api = a, .x = x, .needs_snapshot = true };
    f->wants_load = asks_load(http_exchange_request(x)->query);
    f->load_timer = (struct loop_timer){ .fn = on_load_timer, .arg = f };
    list_push_back(&a->followers, &f->link);
    a->follower_count++;
    http_exchange_watch(x, on_left, on_drain, f);
    if (http_stream_begin(x, 200, STR("application/x-ndjson")) < 0) {
        drop(f);
        return;
    }
    if (!hello(f, &r)) return;
    if (f->wants_load)
        (void)loop_timer_set(a->config.loop, &f->load_timer, loop_now_us(a->config.loop));
    pump(f);
}

void agent_api_changed(struct agent_api *a)
{
    LIST_EACH_SAFE (&a->followers, node)
        pump(CONTAINER_OF(node, struct follower, link));
}

void agent_api_end_streams(struct agent_api *a)
{
    LIST_EACH_SAFE (&a->followers, node) {
        struct follower *f = CONTAINER_OF(node, struct follower, link);
        http_stream_end(f->x);
        follower_free(f);
    }
}

void agent_api_set(struct agent_api *a, const struct tokenizer_source *tokenizer,
                   const struct kv_view *view)
{
    a->tokenizer = tokenizer;
    a->view = view;
    agent_api_end_streams(a);
}

/* ---- from a request to its handler ---- */

static const struct route routes[] = {
    { "/health", GUARD_NONE, handle_health },
    { "/metrics", GUARD_METRICS, handle_metrics },
    { "/internal/info", GUARD_FLEET, handle_info },
    { "/internal/events", GUARD_FLEET, handle_events },
    { "/internal/tokenizer", GUARD_FLEET, handle_tokenizer },
};

static bool pass(struct agent_api *a, struct http_exchange *x, enum guard guard,
                 const struct auth_note *note)
{
    const struct http_request *req = http_exchange_request(x);
    const struct http_names names = { .own = str_from(a->config.host), .port = agent_api_port(a) };
    struct str key = auth_bearer(req);
    if (note->who == AUTH_ASKED_AGAIN) {
        refuse(x, OPENAI_UNAUTHENTICATED, "sign for the epoch and the time of this reply");
        return false;
    }
    if (http_request_header(req, "origin").data) {
        refuse(x, OPENAI_FORBIDDEN, "pages of browsers have nothing to do here");
        return false;
    }
    if (note->who == AUTH_PERSON || note->who == AUTH_PART) return true;
    bool scrapes = guard == GUARD_METRICS && key.len == 0 && note->who == AUTH_NOBODY;
    if ((scrapes || !credentials_held(a->config.held)) && browser_peer_is_local(req) &&
        browser_check(&names, req) == BROWSER_OK)
        return true;
    if (guard == GUARD_METRICS && key_file_has(a->config.scrapers, key)) return true;
    refuse(x, OPENAI_UNAUTHENTICATED, "this path is for the fleet's own parts");
    return false;
}

static const struct route *find_route(struct str path)
{
    for (size_t i = 0; i < COUNT_OF(routes); i++)
        if (str_eq(path, str_from(routes[i].path))) return &routes[i];
    return NULL;
}

static void on_head(void *ctx, struct http_exchange *x)
{
    struct agent_api *a = ctx;
    const struct http_request *req = http_exchange_request(x);
    struct note *note = http_exchange_note(x);
    _Static_assert(sizeof *note <= HTTP_NOTE_BYTES, "a note holds it");
    auth_gate_head(&a->gate, x, &note->auth, loop_now_us(a->config.loop));
    const struct route *route = find_route(req->path);
    if (!route)
        refuse(x, OPENAI_URL_NOT_FOUND, "nothing is served at this path");
    else if (!str_eq(req->method, STR("GET")) && !str_eq(req->method, STR("HEAD")))
        refuse(x, OPENAI_METHOD_NOT_ALLOWED, "only GET is served");
    else if (route->guard == GUARD_NONE || pass(a, x, route->guard, &note->auth))
        note->route = route;
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct agent_api *a = ctx;
    const struct note *note = http_exchange_note(x);
    if (!auth_gate_body(&note->auth, http_exchange_request(x))) {
        refuse(x, OPENAI_UNAUTHENTICATED, "the body is not what was signed");
        return;
    }
    buf_clear(&a->out);
    note->route->handle(a, x);
}

static void on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct agent_api *a = ctx;
    const struct note *note = http_exchange_note(x);
    auth_gate_reply(&a->gate, x, &note->auth, status, body, loop_now_us(a->config.loop));
}

/* ---- life ---- */

CLEANUP_FREEP(agent_api, struct agent_api)

static int listen_at(struct agent_api *a, uint16_t port, struct err *err)
{
    const struct http_server_config server = {
        .host = a->config.host,
        .port = port,
        .limits = { .connections_max = CONNECTIONS_MAX,
                    .body_bytes_max = BODY_BYTES_MAX,
                    .unsent_bytes_max = STREAM_UNSENT_MAX },
        .tls = a->config.tls,
        .on_head = on_head,
        .on_request = on_request,
        .on_reply = on_reply,
        .ctx = a,
    };
    return http_server_new(a->config.loop, &server, &a->server, err);
}

int agent_api_new(const struct agent_api_config *config, struct agent_api **ret, struct err *err)
{
    static const char *const ids[] = { "engine/", NULL };
    CLEANUP(agent_api_freep) struct agent_api *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, -ENOMEM, "no memory");
    a->config = *config;
    list_init(&a->followers);
    buf_init(&a->out, SNAPSHOT_BYTES_MAX);
    if (getrandom(&a->epoch, sizeof a->epoch, 0) != sizeof a->epoch)
        return err_set(err, -EIO, "the system gives no random bytes");
    auth_gate_init(&a->gate, config->held, ids, a->epoch, loop_now_us(config->loop));
    int rc = metrics_new(agent_metric_table, AM_COUNT, NULL, 0, &a->metrics, err);
    if (rc < 0) return rc;
    auth_gate_meters(&a->gate, a->metrics, AM_SIGNED);
    rc = config->port ? listen_at(a, config->port, err) : -EADDRINUSE;
    for (uint32_t i = 0; !config->port && rc == -EADDRINUSE && i < AGENT_PORT_COUNT; i++)
        rc = listen_at(a, (uint16_t)(AGENT_PORT_FIRST + i), err);
    if (rc < 0) return err_prefix(err, rc, "the agent's port");
    *ret = TAKE(a);
    return 0;
}

void agent_api_free(struct agent_api *a)
{
    if (!a) return;
    LIST_EACH_SAFE (&a->followers, node)
        drop(CONTAINER_OF(node, struct follower, link));
    http_server_free(a->server);
    auth_gate_fini(&a->gate);
    metrics_free(a->metrics);
    buf_fini(&a->out);
    free(a);
}

uint16_t agent_api_port(const struct agent_api *a)
{
    return http_server_port(a->server);
}

uint32_t agent_api_followers(const struct agent_api *a)
{
    return a->follower_count;
}

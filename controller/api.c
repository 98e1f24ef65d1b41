/* api.c - serves the controller's HTTP API: guard, what is shown, event streams, routes.
 *
 * A call passes three steps. on_head checks who calls and whether the path exists, so that the body of a
 * stranger is never read, nor that of a request to a controller that stands by. on_request finds the route
 * again and runs its handler. The handler ends the call with exactly one of call_answer, call_refuse,
 * call_refuse_rc and call_done, or keeps it open as an event stream. */
#include "base/core/bits.h"
#include "base/io/http/http_browser.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/descriptors.h"
#include "base/wire/sync.h"
#include "controller/api_call.h"
#include "controller/control_metrics.h"
#include "controller/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define API_VIEW_BYTES_MAX ((size_t)16 << 20) /* a thousand instances are under 2 MiB */
#define OPEN_BODY_BYTES_MAX 4096              /* of a path that is open to anybody */
#define CONNECTIONS_MAX 2000
#define CONNECTIONS_SHARE 50 /* hundredths of the descriptors; clouds and children get the rest */
#define STREAM_UNSENT_MAX ((size_t)1 << 20)

enum guard {
    GUARD_NONE,   /* /health */
    GUARD_SCRAPE, /* as GUARD_READ, or a scraper's key */
    GUARD_READ,   /* a person's credential, beyond loopback or where it is required */
    GUARD_WRITE,  /* the same, always: other users of this machine reach loopback too */
    GUARD_AGENT,  /* the agent of an instance, under any Host; never a web page */
    GUARD_ROUTER, /* a router, likewise */
};

/* Returns true if this process leads, at this moment. */
static bool leads(const struct api *a)
{
    return a->control && (!a->config.leads || a->config.leads(a->config.arg));
}

static struct str leader_of(const struct api *a)
{
    return a->config.leader ? a->config.leader(a->config.arg) : (struct str){ 0 };
}

/* ---- replies ---- */

void call_answer(struct call *k, int status, const struct buf *body)
{
    if (body->rc < 0) {
        http_reply(k->x, 500, STR("application/json"),
                   STR("{\"error\":{\"code\":500,\"message\":\"the answer does not fit\"}}"));
        return;
    }
    http_reply_header(k->x, "cache-control", STR("no-store"));
    http_reply(k->x, status, STR("application/json"), buf_view(body));
}

static void count_refusal(struct call *k, const char *reason)
{
    struct str label = str_from(reason);
    if (k->api->metrics) metric_inc(metric_series(k->api->metrics, CONTROL_M_REFUSED, &label));
}

static void put_error(struct json_writer *w, int status, const char *reason, const char *message)
{
    json_key(w, "error");
    json_object(w);
    json_kv_i64(w, "code", status);
    json_kv_text(w, "reason", reason);
    json_kv_text(w, "message", message);
    json_object_end(w);
}

void call_refuse(struct call *k, int status, const char *reason, const char *message)
{
    struct api *a = k->api;
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    uint64_t skipped;
    count_refusal(k, reason);
    if (log_pass(&a->refused_limit, loop_now_us(a->loop), 1000000, &skipped))
        log_event(LOG_WARN, "refused", "path=%.*s peer=%.*s status=%d reason=%s skipped=%llu",
                  STR_ARG(k->req->path), STR_ARG(k->req->peer), status, message,
                  (unsigned long long)skipped);
    json_writer_init(&w, &body);
    json_object(&w);
    put_error(&w, status, reason, message);
    json_object_end(&w);
    call_answer(k, status, &body);
}

/* Names the leader, in the form of struct standby_reply. Not logged: each part of the fleet comes here after the
 * leader has changed. */
static void refuse_standby(struct call *k)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    char message[256];
    struct json_writer w;
    struct str leader = leader_of(k->api);
    if (!k->api->config.leads) {
        call_refuse(k, 503, "starting", "the controller is starting");
        return;
    }
    if (leader.len > 0)
        snprintf(message, sizeof message, "this controller stands by; " STR_FMT " leads",
                 STR_ARG(leader));
    else
        snprintf(message, sizeof message,
                 "this controller stands by, and knows of none that leads");
    count_refusal(k, "standby");
    http_reply_header(k->x, "retry-after", STR("1"));
    json_writer_init(&w, &body);
    json_object(&w);
    put_error(&w, 503, "standby", message);
    json_kv_str(&w, "leader", leader);
    if (leader.len == 0) json_kv_u64(&w, "lease_ms", k->api->config.lease_ms);
    json_object_end(&w);
    call_answer(k, 503, &body);
}

void call_refuse_rc(struct call *k, int rc, const struct err *err)
{
    static const struct {
        int rc, status;
        const char *reason;
    } rows[] = {
        { -ENOENT, 404, "not_found" },
        { -EEXIST, 409, "exists" },
        { -EINVAL, 400, "invalid" },
        { -ERANGE, 400, "range" },
        { -ENOSPC, 503, "full" },
        { -ESTALE, 409, "stale" },
        { -E2BIG, 400, "large" },
        /* of the store; nothing was changed, but for -EREMOTEIO, which leaves it open */
        { -EKEYREVOKED, 503, "standby" },
        { -EREMOTEIO, 503, "unsure" },
        { -ETIMEDOUT, 503, "store_away" },
        { -ENETDOWN, 503, "store_away" },
        { -ECONNREFUSED, 503, "store_away" },
        { -ECONNRESET, 503, "store_away" },
        { -EHOSTUNREACH, 503, "store_away" },
        { -EBUSY, 503, "store_away" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].rc == rc) {
            call_refuse(k, rows[i].status, rows[i].reason, err_text(err, rc));
            return;
        }
    call_refuse(k, 500, "failed", err_text(err, rc));
}

void call_done(struct call *k)
{
    buf_text(&k->api->out, "{\"ok\":true}");
    call_answer(k, 200, &k->api->out);
}

void call_tell_urgent(struct api *a)
{
    if (control_is_urgent(a->control)) a->config.on_urgent(a->config.arg);
}

/* ---- access ---- */

/* Returns true if the guard admits a part of the fleet with this id. An agent may only report. */
static bool part_may(enum guard guard, struct str id)
{
    if (guard == GUARD_AGENT) return str_starts(id, STR("agent/"));
    if (guard == GUARD_ROUTER) return str_eq(id, STR("router"));
    return str_eq(id, STR("cli"));
}

static const char *find_token(const struct api *a, struct str text, enum token_role *ret)
{
    return a->control ? control_token_find(a->control, text, ret)
                      : tokens_find(&a->tokens, text, ret);
}

const char *call_by(const struct call *k, char ret_by[BY_BYTES])
{
    const struct auth_note *note = http_exchange_note(k->x);
    enum token_role role = TOKEN_READ;
    const char *token = find_token(k->api, auth_bearer(k->req), &role);
    if (note->who == AUTH_PERSON) {
        snprintf(ret_by, BY_BYTES, "the fleet's secret");
        return token_role_names[TOKEN_ADMIN];
    }
    if (note->who == AUTH_PART && part_may(GUARD_WRITE, auth_gate_id(k->req))) {
        snprintf(ret_by, BY_BYTES, "a command");
        return token_role_names[TOKEN_ADMIN];
    }
    snprintf(ret_by, BY_BYTES, token ? "token %s" : "nobody", token);
    if (token) return token_role_names[role];
    return k->api->config.require_secret ? "none" : token_role_names[TOKEN_READ];
}

static bool may(const struct call *k, enum guard guard)
{
    const struct auth_note *note = http_exchange_note(k->x);
    enum token_role role;
    if (note->who == AUTH_PERSON) return true;
    if (guard == GUARD_SCRAPE && key_file_has(k->api->config.scrapers, auth_bearer(k->req)))
        return true;
    if (note->who == AUTH_NOBODY && guard <= GUARD_WRITE &&
        find_token(k->api, auth_bearer(k->req), &role))
        return role == TOKEN_ADMIN || guard <= GUARD_READ;
    return note->who == AUTH_PART && part_may(guard, auth_gate_id(k->req));
}

static enum browser_fault page_fault(const struct call *k, enum guard guard)
{
    const struct api *a = k->api;
    const struct http_names names = { .own = str_from(a->config.host),
                                      .port = http_server_port(a->server),
                                      .hosts = a->config.hosts,
                                      .host_count = a->config.host_count };
    if (guard < GUARD_AGENT) return browser_check_site(&names, k->req);
    return http_request_header(k->req, "origin").data ? BROWSER_ORIGIN : BROWSER_OK;
}

static bool refuse_401(struct call *k, const char *reason, const char *sentence)
{
    http_reply_header(k->x, "www-authenticate", STR("Bearer"));
    call_refuse(k, 401, reason, sentence);
    return false;
}

static bool pass(struct call *k, enum guard guard, bool always)
{
    const struct api *a = k->api;
    const struct auth_note *note = http_exchange_note(k->x);
    enum browser_fault fault = page_fault(k, guard);
    if (fault != BROWSER_OK) {
        const struct browser_fault_info *why = browser_fault_info(fault);
        call_refuse(k, why->status, why->name, why->sentence);
        return false;
    }
    if (note->who == AUTH_ASKED_AGAIN)
        return refuse_401(k, "signature", "sign for the epoch and the time of this reply");
    if (guard == GUARD_NONE) return true;
    if ((guard >= GUARD_WRITE || a->config.require_secret) && !may(k, guard))
        return refuse_401(
            k, "secret",
            "send the fleet's secret, or a token that may do this: authorization: Bearer TOKEN");
    if (always ? a->metrics != NULL : leads(a)) return true;
    refuse_standby(k);
    return false;
}

static bool is_agent_of(struct call *k, struct str instance)
{
    const struct auth_note *note = http_exchange_note(k->x);
    struct str id = auth_gate_id(k->req), skip = STR("agent/");
    if (note->who != AUTH_PART) return true; /* a person, or an agent of an older release */
    if (str_eq(str_of(id.data + skip.len, id.len - skip.len), instance)) return true;
    call_refuse(k, 403, "instance", "an agent speaks for its own instance");
    return false;
}

/* ---- agents and routers ---- */

static void agents_report(struct call *k)
{
    struct agent_report r;
    struct agent_reply reply;
    struct err err = { 0 };
    int rc = agent_report_decode(k->req->body, &k->api->arena, &r, &err);
    if (rc < 0) {
        call_refuse(k, 400, "invalid", err_text(&err, rc));
        return;
    }
    if (!is_agent_of(k, r.intent.len ? r.intent : r.instance)) return;
    control_report(k->api->control, &r, api_now(k->api), &reply);
    agent_reply_encode(&reply, &k->api->out);
    call_answer(k, 200, &k->api->out);
    call_tell_urgent(k->api);
}

static void routers_sync(struct call *k)
{
    struct router_sync s;
    struct router_rules rules;
    struct err err = { 0 };
    int rc = router_sync_decode(k->req->body, &k->api->arena, &s, &err);
    if (rc == 0)
        rc = control_sync(k->api->control, &s, api_now(k->api), &k->api->arena, &rules, &err);
    if (rc < 0) {
        call_refuse_rc(k, rc, &err);
        return;
    }
    router_rules_encode(&rules, &k->api->out);
    call_answer(k, 200, &k->api->out);
    call_tell_urgent(k->api);
}

/* ---- looking ---- */

static void show_view(struct call *k)
{
    control_view(k->api->control, (enum control_view)k->arg, api_now(k->api), &k->api->out);
    call_answer(k, 200, &k->api->out);
}

/* Reads a number from the query; `fallback` when it is absent. -EINVAL. */
static int query_number(struct call *k, const char *name, uint64_t fallback, uint64_t *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = http_query_value(k->req->query, name, &text);
    *ret = fallback;
    if (rc == -ENOENT) return 0;
    return rc < 0 ? rc : str_to_u64(buf_view(&text), ret);
}

/* Returns the bound on a list that the caller asks for; 0: the reply is sent. */
static uint32_t query_limit(struct call *k, uint64_t fallback, uint32_t max)
{
    uint64_t limit;
    if (query_number(k, "limit", fallback, &limit) == 0 && limit > 0)
        return (uint32_t)min_u64(limit, max);
    call_refuse(k, 400, "invalid", "limit is a whole number above 0");
    return 0;
}

static void list_events(struct call *k)
{
    CLEANUP(buf_fini) struct buf about = { 0 };
    uint32_t limit = query_limit(k, API_EVENTS_DEFAULT, API_EVENTS_MAX);
    if (limit == 0) return;
    (void)http_query_value(k->req->query, "about", &about); /* absent: all */
    control_events(k->api->control, buf_view(&about), limit, &k->api->out);
    call_answer(k, 200, &k->api->out);
}

static void whoami(struct call *k)
{
    char by[BY_BYTES];
    struct json_writer w;
    const char *role = call_by(k, by);
    json_writer_init(&w, &k->api->out);
    json_object(&w);
    json_kv_text(&w, "who", by);
    json_kv_text(&w, "role", role);
    json_kv_i64(&w, "now_us", clock_wall_us());
    json_kv_text(&w, "version", MUSTER_VERSION);
    json_object_end(&w);
    call_answer(k, 200, &k->api->out);
}

static void list_decisions(struct call *k)
{
    uint64_t from, limit;
    if (query_number(k, "from", 1, &from) < 0 || query_number(k, "limit", 100, &limit) < 0) {
        call_refuse(k, 400, "invalid", "from and limit are whole numbers");
        return;
    }
    if (limit > API_DECISIONS_MAX) limit = API_DECISIONS_MAX;
    /* Without `from`: the newest. */
    uint64_t last = control_decision_last(k->api->control);
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (http_query_value(k->req->query, "from", &text) == -ENOENT && last > limit)
        from = last - limit + 1;
    struct err err = { 0 };
    int rc = control_decisions(k->api->control, from, limit, &k->api->out, &err);
    if (rc < 0)
        call_refuse_rc(k, rc, &err);
    else
        call_answer(k, 200, &k->api->out);
}

static void show_decision(struct call *k)
{
    uint64_t id;
    struct err err = { 0 };
    int rc = str_to_u64(k->part, &id);
    if (rc < 0) {
        call_refuse(k, 400, "invalid", "a decision's id is a whole number");
        return;
    }
    rc = control_decision(k->api->control, id, &k->api->out, &err);
    if (rc < 0)
        call_refuse_rc(k, rc, &err);
    else
        call_answer(k, 200, &k->api->out);
}

static void show_targets(struct call *k)
{
    control_targets(k->api->control, &k->api->out);
    call_answer(k, 200, &k->api->out);
}

static void show_metrics(struct call *k)
{
    struct metrics *m = k->api->metrics;
    metric_set(metric_of(m, CONTROL_M_STREAMS), k->api->stream_count);
    enum metrics_format format = metrics_format_of(http_request_header(k->req, "accept"));
    if (metrics_render(m, format, &k->api->out) < 0) {
        call_refuse(k, 500, "failed", "the metrics do not fit");
        return;
    }
    http_reply(k->x, 200, str_from(metrics_content_types[format]), buf_view(&k->api->out));
}

static void health(struct call *k)
{
    struct api *a = k->api;
    if (!leads(a) && a->config.leads) { /* healthy: it takes over when it has to */
        struct json_writer w;
        json_writer_init(&w, &a->out);
        json_object(&w);
        json_kv_text(&w, "status", "standby");
        json_kv_str(&w, "leader", leader_of(a));
        json_object_end(&w);
        call_answer(k, 200, &a->out);
        return;
    }
    /* Degraded is not unhealthy: after a restart by a probe the same records would be there again. */
    bool ready = a->control && control_has_observed(a->control);
    bool degraded = ready && control_is_degraded(k->api->control);
    buf_printf(&k->api->out, "{\"status\":\"%s\"}",
               degraded ? "degraded"
               : ready  ? "ok"
                        : "observing");
    call_answer(k, ready ? 200 : 503, &k->api->out);
}

/* Sends a browser to the leader's console. */
static bool lead_on(struct call *k)
{
    CLEANUP(buf_fini) struct buf url = { 0 };
    struct str leader = leader_of(k->api);
    if (leads(k->api) || !k->api->config.leads) return false;
    if (leader.len == 0) {
        refuse_standby(k);
        return true;
    }
    buf_printf(&url, "%s" STR_FMT "/", str_starts(leader, STR("https://")) ? "" : "http://",
               STR_ARG(leader));
    if (url.rc == 0) http_reply_header(k->x, "location", buf_view(&url));
    http_reply_header(k->x, "cache-control", STR("no-store"));
    http_reply(k->x, 307, STR("text/plain"), STR("another controller leads\n"));
    return true;
}

static void console(struct call *k)
{
    if (lead_on(k)) return;
    http_reply_header(k->x, "content-security-policy",
                      STR("default-src 'none'; style-src 'unsafe-inline'; "
                          "script-src 'unsafe-inline'; connect-src *; img-src data:; "
                          "frame-ancestors 'none'"));
    http_reply(k->x, 200, STR("text/html; charset=utf-8"), console_page());
}

/* ---- event streams ---- */

struct stream {
    struct list node;
    struct api *api;
    struct http_exchange *x;
    uint64_t told; /* last decision that was sent */
};

/* Ends all streams: their clients come again, and find the leader. */
static void streams_end(struct api *a)
{
    LIST_EACH_SAFE (&a->streams, node) {
        struct stream *s = CONTAINER_OF(node, struct stream, node);
        struct http_exchange *x = s->x;
        list_remove(&s->node);
        a->stream_count--;
        free(s);
        (void)http_stream_end(x);
    }
}

static void stream_drop(struct stream *s)
{
    list_remove(&s->node);
    s->api->stream_count--;
    free(s);
}

static void on_stream_abort(void *arg, enum http_abort why)
{
    (void)why;
    stream_drop(arg);
}

/* Sends a frame, or leaves it out when it does not fit: the next status is whole again, and decisions
 * have ids, so that a client sees the gap and asks. */
static void stream_send(struct stream *s, const char *event, struct str json)
{
    if (http_stream_full(s->x)) return;
    CLEANUP(buf_fini) struct buf frame = { 0 };
    buf_printf(&frame, "event: %s\ndata: ", event);
    buf_str(&frame, json);
    buf_text(&frame, "\n\n");
    if (frame.rc == 0) (void)http_stream_write(s->x, frame.data, frame.len);
}

static void tell_decisions(struct stream *s)
{
    struct control *c = s->api->control;
    uint64_t last = control_decision_last(c);
    for (; s->told < last && last - s->told <= API_DECISIONS_MAX; s->told++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        if (control_decision(c, s->told + 1, &text, NULL) == 0)
            stream_send(s, "decision", buf_view(&text));
    }
    s->told = last;
}

void api_broadcast(struct api *a)
{
    if (list_empty(&a->streams)) return;
    CLEANUP(buf_fini) struct buf status = { 0 };
    buf_init(&status, API_VIEW_BYTES_MAX);
    if (control_view(a->control, CONTROL_STATUS, api_now(a), &status) < 0) return;
    LIST_EACH_SAFE (&a->streams, node) {
        struct stream *s = CONTAINER_OF(node, struct stream, node);
        stream_send(s, "status", buf_view(&status));
        tell_decisions(s);
    }
}

static void open_stream(struct call *k)
{
    struct api *a = k->api;
    if (a->stream_count == API_STREAMS_MAX) {
        call_refuse(k, 503, "full", "too many event streams are open");
        return;
    }
    struct stream *s = calloc(1, sizeof *s);
    http_reply_header(k->x, "cache-control", STR("no-store"));
    if (!s || http_stream_begin(k->x, 200, STR("text/event-stream")) < 0) {
        free(s);
        call_refuse(k, 503, "full", "no memory for the stream");
        return;
    }
    s->api = a;
    s->x = k->x;
    s->told = control_decision_last(a->control);
    list_push_back(&a->streams, &s->node);
    a->stream_count++;
    http_exchange_watch(k->x, on_stream_abort, NULL, s);
    if (control_view(a->control, CONTROL_STATUS, api_now(a), &a->out) == 0)
        stream_send(s, "status", buf_view(&a->out));
}

/* ---- routes ---- */

struct route {
    const char *method, *path; /* one '*' stands for one part of the path */
    enum guard guard;
    void (*fn)(struct call *k);
    int arg;
};

// clang-format off
static const struct route routes[] = {
    { "GET",    "/health",                    GUARD_NONE,  health,         0 },
    { "POST",   "/api/v1/agents/report",      GUARD_AGENT, agents_report,  0 },
    { "POST",   "/api/v1/routers/sync",       GUARD_ROUTER, routers_sync,   0 },
    { "GET",    "/api/v1/status",             GUARD_READ,  show_view,      CONTROL_STATUS },
    { "GET",    "/api/v1/services",           GUARD_READ,  show_view,      CONTROL_SERVICES },
    { "GET",    "/api/v1/pools",              GUARD_READ,  show_view,      CONTROL_POOLS },
    { "GET",    "/api/v1/instances",          GUARD_READ,  show_view,      CONTROL_INSTANCES },
    { "GET",    "/api/v1/intents",            GUARD_READ,  show_view,      CONTROL_INTENTS },
    { "GET",    "/api/v1/offers",             GUARD_READ,  show_view,      CONTROL_OFFERS },
    { "GET",    "/api/v1/history",            GUARD_READ,  show_view,      CONTROL_HISTORY },
    { "GET",    "/api/v1/cost",               GUARD_READ,  show_view,      CONTROL_COST },
    { "GET",    "/api/v1/tenants",            GUARD_READ,  show_view,      CONTROL_TENANTS },
    { "POST",   "/api/v1/tenants",            GUARD_WRITE, order_add_tenant,     0 },
    { "DELETE", "/api/v1/tenants/*",          GUARD_WRITE, order_remove_tenant,  0 },
    { "GET",    "/api/v1/tokens",             GUARD_WRITE, show_view,      CONTROL_TOKENS },
    { "POST",   "/api/v1/tokens",             GUARD_WRITE, order_add_token,      0 },
    { "DELETE", "/api/v1/tokens/*",           GUARD_WRITE, order_remove_token,   0 },
    { "POST",   "/api/v1/keys/open",          GUARD_WRITE, order_open_keys,      0 },
    { "POST",   "/api/v1/quarantine/clear",   GUARD_WRITE, order_clear_quarantine, 0 },
    { "GET",    "/api/v1/events",             GUARD_READ,  list_events,    0 },
    { "GET",    "/api/v1/whoami",             GUARD_READ,  whoami,         0 },
    { "POST",   "/api/v1/drain",              GUARD_WRITE, order_drain,          0 },
    { "GET",    "/api/v1/config",             GUARD_READ,  order_show_config,    0 },
    { "POST",   "/api/v1/config",             GUARD_WRITE, order_apply_config,   0 },
    { "GET",    "/api/v1/gc",                 GUARD_READ,  order_gc,             0 },
    { "POST",   "/api/v1/gc",                 GUARD_WRITE, order_gc,             1 },
    { "GET",    "/api/v1/decisions",          GUARD_READ,  list_decisions, 0 },
    { "GET",    "/api/v1/decisions/*",        GUARD_READ,  show_decision,  0 },
    { "POST",   "/api/v1/services/*/pause",   GUARD_WRITE, order_pause,  1 },
    { "POST",   "/api/v1/services/*/resume",  GUARD_WRITE, order_pause,  0 },
    { "POST",   "/api/v1/services/*/scale",   GUARD_WRITE, order_scale,  0 },
    { "GET",    "/api/v1/stream",             GUARD_READ,  open_stream,    0 },
    { "GET",    "/api/v1/targets",            GUARD_SCRAPE, show_targets,  0 },
    { "GET",    "/metrics",                   GUARD_SCRAPE, show_metrics,  0 },
    { "GET",    "/",                          GUARD_NONE,  console,        0 },
};
// clang-format on

/* Returns true if a controller that stands by serves the path, too. */
static bool is_always(const struct route *r)
{
    return r->guard == GUARD_NONE || r->fn == show_metrics;
}

static bool path_matches(const char *pattern, struct str path, struct str *ret_part)
{
    struct str want = str_from(pattern);
    size_t star = str_find(want, STR("*"));
    if (star == SIZE_MAX) return str_eq(want, path);
    struct str before = str_of(want.data, star);
    struct str after = str_of(want.data + star + 1, want.len - star - 1);
    if (path.len <= before.len + after.len) return false;
    if (!str_starts(path, before) || !str_ends(path, after)) return false;
    struct str part = str_of(path.data + star, path.len - before.len - after.len);
    if (str_find(part, STR("/")) != SIZE_MAX) return false;
    *ret_part = part;
    return true;
}

static const struct route *find_route(const struct http_request *req, struct str *ret_part,
                                      bool *ret_known)
{
    *ret_known = false;
    bool head = str_eq(req->method, STR("HEAD"));
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        if (!path_matches(routes[i].path, req->path, ret_part)) continue;
        *ret_known = true;
        struct str method = str_from(routes[i].method);
        bool like_get = head && str_eq(method, STR("GET")) && routes[i].fn != open_stream;
        if (str_eq(req->method, method) || like_get) return &routes[i];
    }
    return NULL;
}

/* Takes the percent signs out of the part of the path that is a name: it may have blanks and slashes. */
static int decode_part(struct call *k)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (str_find(k->part, STR("%")) == SIZE_MAX) return 0;
    int rc = http_percent_decode(k->part, &text);
    if (rc < 0) return rc;
    k->part = arena_str(&k->api->arena, buf_view(&text));
    return k->part.data ? 0 : -ENOMEM;
}

/* Checks the caller and the path on the head, so that a stranger's body is never read. */
static void on_head(void *ctx, struct http_exchange *x)
{
    struct api *a = ctx;
    struct call k = { .api = a, .x = x, .req = http_exchange_request(x) };
    buf_clear(&a->out);
    auth_gate_head(&a->gate, x, http_exchange_note(x), loop_now_us(a->loop));
    bool known;
    const struct route *route = find_route(k.req, &k.part, &known);
    if (!route) {
        if (!pass(&k, GUARD_NONE, false)) return;
        if (known)
            call_refuse(&k, 405, "method", "this cannot be done with that path");
        else
            call_refuse(&k, 404, "not_found", "nothing is served at this path");
        return;
    }
    if (pass(&k, route->guard, is_always(route)) && route->guard == GUARD_NONE)
        http_exchange_body_max(x, OPEN_BODY_BYTES_MAX);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct api *a = ctx;
    loop_assert_owner(a->loop);
    struct call k = { .api = a, .x = x, .req = http_exchange_request(x) };
    arena_reset(&a->arena);
    buf_clear(&a->out);
    if (!auth_gate_body(http_exchange_note(x), k.req)) {
        call_refuse(&k, 401, "signature", "the body is not what was signed");
        return;
    }
    bool known;
    const struct route *route = find_route(k.req, &k.part, &known);
    k.arg = route->arg; /* on_head has found it */
    if (decode_part(&k) < 0)
        call_refuse(&k, 400, "path", "the name in the path cannot be decoded");
    else if (is_always(route) || leads(a))
        route->fn(&k);
    else
        refuse_standby(&k); /* the term ended while the body came */
}

static void on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct api *a = ctx;
    auth_gate_reply(&a->gate, x, http_exchange_note(x), status, body, loop_now_us(a->loop));
}

static struct str render_refusal(void *ctx, const struct http_fault_info *why, struct buf *body)
{
    (void)ctx;
    buf_printf(body, "{\"error\":{\"code\":%d,\"reason\":\"%s\",\"message\":\"%s\"}}", why->status,
               why->name, why->sentence);
    return STR("application/json");
}

/* ---- life ---- */

static void use_metrics(struct api *a, struct metrics *m);

int api_new(struct loop *loop, const struct api_config *config, struct api **ret, struct err *err)
{
    CLEANUP(api_freep) struct api *a = calloc(1, sizeof *a);
    must(a);
    a->loop = loop;
    a->config = *config;
    list_init(&a->streams);
    arena_init(&a->arena, 2 * SYNC_BYTES_MAX);
    buf_init(&a->out, API_VIEW_BYTES_MAX);
    static const char *const ids[] = { "agent/", "router", "cli", NULL };
    uint64_t epoch;
    if (getrandom(&epoch, sizeof epoch, 0) != sizeof epoch)
        return err_set(err, -EIO, "the system gives no random bytes");
    auth_gate_init(&a->gate, config->held, ids, epoch, loop_now_us(loop));
    struct http_server_config server = {
        .host = config->host,
        .port = config->port,
        .limits = { .body_bytes_max = BODY_BYTES_MAX,
                    .unsent_bytes_max = STREAM_UNSENT_MAX,
                    .connections_max = descriptors_share(CONNECTIONS_SHARE, 1, CONNECTIONS_MAX) },
        .tls = config->tls,
        .on_head = on_head,
        .on_request = on_request,
        .on_reply = on_reply,
        .render_refusal = render_refusal,
        .ctx = a,
    };
    int rc = http_server_new(loop, &server, &a->server, err);
    if (rc < 0) return rc;
    if (config->metrics) use_metrics(a, config->metrics);
    *ret = TAKE(a);
    return 0;
}

void api_free(struct api *a)
{
    if (!a) return;
    http_server_free(a->server); /* ends the streams: each is dropped by its on_abort */
    auth_gate_fini(&a->gate);
    arena_fini(&a->arena);
    buf_fini(&a->out);
    free(a);
}

uint16_t api_port(const struct api *a)
{
    return http_server_port(a->server);
}

static void use_metrics(struct api *a, struct metrics *m)
{
    a->metrics = m;
    auth_gate_meters(&a->gate, m, CONTROL_M_SIGNED);
    const struct http_server_meters meters = { m, CONTROL_M_HTTP_CONNECTIONS,
                                               CONTROL_M_HTTP_REFUSED, CONTROL_M_HTTP_CUT,
                                               CONTROL_M_HTTP_CLOSED };
    http_server_meters_set(a->server, &meters);
}

void api_attach(struct api *a, struct control *control)
{
    if (!control) streams_end(a);
    a->control = control;
    if (control && !a->metrics) use_metrics(a, control_metrics(control));
}

void api_tokens(struct api *a, const struct tokens *tokens)
{
    a->tokens = *tokens;
}

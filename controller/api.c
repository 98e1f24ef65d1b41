/* api.c - serves the controller's HTTP API: routes, and what is shown.
 *
 * A call passes three steps. on_head checks who calls and whether the path exists, so that the body of a
 * stranger is never read, nor that of a request to a controller that stands by. on_request finds the route
 * again and runs its handler. The handler ends the call with exactly one of call_answer, call_refuse,
 * call_refuse_rc and call_done, or keeps it open as an event stream. */
#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "base/io/net/descriptors.h"
#include "base/wire/sync.h"
#include "controller/api_call.h"
#include "controller/metrics.h"
#include "controller/orders.h"

#include <stdlib.h>
#include <sys/random.h>

#define OPEN_BODY_BYTES_MAX 4096 /* of a path that is open to anybody */
#define CONNECTIONS_MAX 2000
#define CONNECTIONS_SHARE 50 /* hundredths of the descriptors; clouds and children get the rest */
#define STREAM_UNSENT_MAX ((size_t)1 << 20)

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
    if (!call_is_agent_of(k, r.intent.len ? r.intent : r.instance)) return;
    control_report(k->api->control, &r, api_now(k->api), &reply);
    control_seeds(k->api->control, &r, api_now(k->api), &k->api->arena, &reply);
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
    if (!api_leads(a) && a->config.leads) { /* healthy: it takes over when it has to */
        struct json_writer w;
        json_writer_init(&w, &a->out);
        json_object(&w);
        json_kv_text(&w, "status", "standby");
        json_kv_str(&w, "leader", api_leader(a));
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

/* Sends the caller to the same on the leader. Returns false if we lead. */
static bool lead_on(struct call *k, const char *path)
{
    CLEANUP(buf_fini) struct buf url = { 0 };
    struct str leader = api_leader(k->api);
    if (api_leads(k->api) || !k->api->config.leads) return false;
    if (leader.len == 0) {
        call_refuse_standby(k);
        return true;
    }
    buf_printf(&url, "%s" STR_FMT "%s", str_starts(leader, STR("https://")) ? "" : "http://",
               STR_ARG(leader), path);
    if (url.rc == 0) http_reply_header(k->x, "location", buf_view(&url));
    http_reply_header(k->x, "cache-control", STR("no-store"));
    http_reply(k->x, 307, STR("text/plain"), STR("another controller leads\n"));
    return true;
}

/* For scalers that ask any controller for what the leader alone knows. Go's HTTP client, and so KEDA, keeps its key
 * over the redirect where the leader's name is below the name that was asked for: a headless Service and a Pod of
 * it. */
static void show_leader_metrics(struct call *k)
{
    if (!lead_on(k, "/metrics")) show_metrics(k);
}

static void console(struct call *k)
{
    if (lead_on(k, "/")) return;
    http_reply_header(k->x, "content-security-policy",
                      STR("default-src 'none'; style-src 'unsafe-inline'; "
                          "script-src 'unsafe-inline'; connect-src *; img-src data:; "
                          "frame-ancestors 'none'"));
    http_reply(k->x, 200, STR("text/html; charset=utf-8"), console_page());
}

/* ---- routes ---- */

struct route {
    const char *method, *path; /* one '*' stands for one part of the path */
    enum call_guard guard;
    void (*fn)(struct call *k);
    int arg;
};

// clang-format off
static const struct route routes[] = {
    { "GET",    "/health",                    GUARD_NONE,  health,         0 },
    { "POST",   "/api/v1/agents/report",      GUARD_AGENT, agents_report,  0 },
    { "POST",   "/api/v1/agents/join",        GUARD_JOIN,  agents_join,    0 },
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
    { "GET",    "/api/v1/stream",             GUARD_READ,  call_open_stream, 0 },
    { "GET",    "/api/v1/targets",            GUARD_SCRAPE, show_targets,  0 },
    { "GET",    "/metrics",                   GUARD_SCRAPE, show_metrics,  0 },
    { "GET",    "/metrics/leader",            GUARD_SCRAPE, show_leader_metrics, 0 },
    { "GET",    "/",                          GUARD_NONE,  console,        0 },
};
// clang-format on

/* Returns true if a controller that stands by serves the path, too. */
static bool is_always(const struct route *r)
{
    return r->guard == GUARD_NONE || r->fn == show_metrics || r->fn == show_leader_metrics;
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
        bool like_get = head && str_eq(method, STR("GET")) && routes[i].fn != call_open_stream;
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
        if (!call_pass(&k, GUARD_NONE, false)) return;
        if (known)
            call_refuse(&k, 405, "method", "this cannot be done with that path");
        else
            call_refuse(&k, 404, "not_found", "nothing is served at this path");
        return;
    }
    bool is_open = route->guard == GUARD_NONE || route->guard == GUARD_JOIN;
    if (call_pass(&k, route->guard, is_always(route)) && is_open)
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
    else if (is_always(route) || api_leads(a))
        route->fn(&k);
    else
        call_refuse_standby(&k); /* the term ended while the body came */
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
    buf_init(&a->out, CALL_VIEW_BYTES_MAX);
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
    if (!control) api_streams_end(a);
    a->control = control;
    if (control && !a->metrics) use_metrics(a, control_metrics(control));
}

void api_tokens(struct api *a, const struct tokens *tokens)
{
    a->tokens = *tokens;
}

/* api.c - from a request to its handler: routes, reports, views and small answers. */
#include "base/core/bits.h"
#include "base/io/descriptors.h"
#include "controller/api_part.h"
#include "controller/console/console.h"
#include "controller/control_metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define OPEN_BODY_BYTES_MAX 4096         /* where anybody may ask, there is nothing to say */
#define BODY_BYTES_MAX ((size_t)8 << 20) /* a sync of a thousand endpoints is under 1 MiB */
#define CONNECTIONS_MAX 2000
#define CONNECTIONS_SHARE \
    50 /* hundredths of the descriptors; the rest is for clouds and children */
#define STREAM_UNSENT_MAX ((size_t)1 << 20)

/* ---- agents and routers ---- */

static void agents_report(struct call *k)
{
    struct agent_report r;
    struct agent_reply reply;
    struct err err = { 0 };
    int rc = agent_report_decode(k->req->body, &k->api->arena, &r, &err);
    if (rc < 0) {
        api_refuse(k, 400, "invalid", err_text(&err, rc));
        return;
    }
    if (!api_is_agent_of(k, r.intent.len ? r.intent : r.instance)) return;
    control_report(k->api->control, &r, api_now(k->api), &reply);
    agent_reply_encode(&reply, &k->api->out);
    api_answer(k, 200, &k->api->out);
    api_tell_urgent(k->api);
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
        api_refuse_rc(k, rc, &err);
        return;
    }
    router_rules_encode(&rules, &k->api->out);
    api_answer(k, 200, &k->api->out);
    api_tell_urgent(k->api);
}

/* ---- looking ---- */

static void show_view(struct call *k)
{
    control_view(k->api->control, (enum control_view)k->arg, api_now(k->api), &k->api->out);
    api_answer(k, 200, &k->api->out);
}

/* A number of the query; `fallback` when it is absent. -EINVAL. */
static int query_number(struct call *k, const char *name, uint64_t fallback, uint64_t *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = http_query_value(k->req->query, name, &text);
    *ret = fallback;
    if (rc == -ENOENT) return 0;
    return rc < 0 ? rc : str_to_u64(buf_view(&text), ret);
}

static void list_decisions(struct call *k)
{
    uint64_t from, limit;
    if (query_number(k, "from", 1, &from) < 0 || query_number(k, "limit", 100, &limit) < 0) {
        api_refuse(k, 400, "invalid", "from and limit are whole numbers");
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
        api_refuse_rc(k, rc, &err);
    else
        api_answer(k, 200, &k->api->out);
}

static void show_decision(struct call *k)
{
    uint64_t id;
    struct err err = { 0 };
    int rc = str_to_u64(k->part, &id);
    if (rc < 0) {
        api_refuse(k, 400, "invalid", "a decision's id is a whole number");
        return;
    }
    rc = control_decision(k->api->control, id, &k->api->out, &err);
    if (rc < 0)
        api_refuse_rc(k, rc, &err);
    else
        api_answer(k, 200, &k->api->out);
}

static void show_metrics(struct call *k)
{
    struct metrics *m = control_metrics(k->api->control);
    metric_set(metric_of(m, CONTROL_M_STREAMS), k->api->stream_count);
    if (metrics_render(m, &k->api->out) < 0) {
        api_refuse(k, 500, "failed", "the metrics do not fit");
        return;
    }
    http_reply(k->x, 200, STR(METRICS_CONTENT_TYPE), buf_view(&k->api->out));
}

static void health(struct call *k)
{
    /* Degraded is not unhealthy: a probe that restarted us would find the same records again. */
    bool ready = k->api->control && control_has_observed(k->api->control);
    bool degraded = ready && control_is_degraded(k->api->control);
    buf_printf(&k->api->out, "{\"status\":\"%s\"}",
               degraded ? "degraded"
               : ready  ? "ok"
                        : "observing");
    api_answer(k, ready ? 200 : 503, &k->api->out);
}

static void console(struct call *k)
{
    http_reply_header(k->x, "content-security-policy",
                      STR("default-src 'none'; style-src 'unsafe-inline'; "
                          "script-src 'unsafe-inline'; connect-src *; img-src data:; "
                          "frame-ancestors 'none'"));
    http_reply(k->x, 200, STR("text/html; charset=utf-8"), console_page());
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
    { "GET",    "/api/v1/cost",               GUARD_READ,  show_view,      CONTROL_COST },
    { "GET",    "/api/v1/tenants",            GUARD_READ,  show_view,      CONTROL_TENANTS },
    { "POST",   "/api/v1/tenants",            GUARD_WRITE, api_add_tenant,     0 },
    { "DELETE", "/api/v1/tenants/*",          GUARD_WRITE, api_remove_tenant,  0 },
    { "GET",    "/api/v1/tokens",             GUARD_WRITE, show_view,      CONTROL_TOKENS },
    { "POST",   "/api/v1/tokens",             GUARD_WRITE, api_add_token,      0 },
    { "DELETE", "/api/v1/tokens/*",           GUARD_WRITE, api_remove_token,   0 },
    { "POST",   "/api/v1/keys/open",          GUARD_WRITE, api_open_keys,      0 },
    { "POST",   "/api/v1/quarantine/clear",   GUARD_WRITE, api_clear_quarantine, 0 },
    { "GET",    "/api/v1/decisions",          GUARD_READ,  list_decisions, 0 },
    { "GET",    "/api/v1/decisions/*",        GUARD_READ,  show_decision,  0 },
    { "POST",   "/api/v1/services/*/pause",   GUARD_WRITE, api_pause_service,  1 },
    { "POST",   "/api/v1/services/*/resume",  GUARD_WRITE, api_pause_service,  0 },
    { "POST",   "/api/v1/services/*/scale",   GUARD_WRITE, api_scale_service,  0 },
    { "GET",    "/api/v1/stream",             GUARD_READ,  api_open_stream,    0 },
    { "GET",    "/metrics",                   GUARD_READ,  show_metrics,   0 },
    { "GET",    "/",                          GUARD_NONE,  console,        0 },
};
// clang-format on

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
    if (str_find(part, STR("/")) != SIZE_MAX || str_find(part, STR("%")) != SIZE_MAX) return false;
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
        bool like_get = head && str_eq(method, STR("GET")) && routes[i].fn != api_open_stream;
        if (str_eq(req->method, method) || like_get) return &routes[i];
    }
    return NULL;
}

/* Who calls and what: decided on the head, so that a stranger's body is never read. */
static void on_head(void *ctx, struct http_exchange *x)
{
    struct api *a = ctx;
    struct call k = { .api = a, .x = x, .req = http_exchange_request(x) };
    buf_clear(&a->out);
    auth_gate_head(&a->gate, x, http_exchange_note(x), loop_now_us(a->loop));
    bool known;
    const struct route *route = find_route(k.req, &k.part, &known);
    if (!route) {
        if (!api_pass(&k, GUARD_NONE)) return;
        if (known)
            api_refuse(&k, 405, "method", "this cannot be done with that path");
        else
            api_refuse(&k, 404, "not_found", "nothing is served at this path");
        return;
    }
    if (api_pass(&k, route->guard) && route->guard == GUARD_NONE)
        http_exchange_body_max(x, OPEN_BODY_BYTES_MAX);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct api *a = ctx;
    struct call k = { .api = a, .x = x, .req = http_exchange_request(x) };
    arena_reset(&a->arena);
    buf_clear(&a->out);
    if (!auth_gate_body(http_exchange_note(x), k.req)) {
        api_refuse(&k, 401, "signature", "the body is not what was signed");
        return;
    }
    bool known;
    const struct route *route = find_route(k.req, &k.part, &known);
    k.arg = route->arg; /* on_head has found it */
    route->fn(&k);
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

void api_attach(struct api *a, struct control *control)
{
    a->control = control;
    auth_gate_meters(&a->gate, control_metrics(control), CONTROL_M_SIGNED);
    const struct http_server_meters meters = { control_metrics(control), CONTROL_M_HTTP_CONNECTIONS,
                                               CONTROL_M_HTTP_REFUSED, CONTROL_M_HTTP_CUT,
                                               CONTROL_M_HTTP_CLOSED };
    http_server_meters_set(a->server, &meters);
}

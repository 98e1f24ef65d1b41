/* api.c - from a request to its handler: routes, guard, small answers, streams. */
#include "controller/api.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/list.h"
#include "base/io/addr.h"
#include "base/io/clock.h"
#include "base/io/log.h"
#include "base/wire/field.h"
#include "controller/config.h"
#include "controller/console/console.h"
#include "controller/control_metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_BYTES_MAX ((size_t)8 << 20)  /* a sync of a thousand endpoints is under 1 MiB */
#define VIEW_BYTES_MAX ((size_t)16 << 20) /* a thousand instances are under 2 MiB */
#define STREAM_UNSENT_MAX ((size_t)1 << 20)

struct api {
    struct loop *loop;
    struct api_config config;
    struct http_server *server;
    struct control *control;
    struct arena arena; /* of one request */
    struct buf out;     /* of one answer */
    struct list streams;
    uint32_t stream_count;
    struct log_limit refused_limit;
};

struct stream {
    struct list node;
    struct api *api;
    struct http_exchange *x;
    uint64_t told; /* last decision it has heard of */
};

enum guard {
    GUARD_NONE, /* /health */
    GUARD_READ,
    GUARD_WRITE,
    GUARD_FLEET, /* agents and routers: the secret always, and never a web page */
};

struct call {
    struct api *api;
    struct http_exchange *x;
    const struct http_request *req;
    struct str part; /* what stood at '*' in the path */
    int arg;         /* of the route */
};

/* ---- answers ---- */

static void answer(struct call *k, int status, const struct buf *body)
{
    if (body->rc < 0) {
        http_reply(k->x, 500, STR("application/json"),
                   STR("{\"error\":{\"code\":500,\"message\":\"the answer does not fit\"}}"));
        return;
    }
    http_reply_header(k->x, "cache-control", STR("no-store"));
    http_reply(k->x, status, STR("application/json"), buf_view(body));
}

static void refuse(struct call *k, int status, const char *reason, const char *message)
{
    struct api *a = k->api;
    if (a->control) {
        struct str label = str_from(reason);
        metric_inc(metric_series(control_metrics(a->control), CONTROL_M_REFUSED, &label));
    }
    uint64_t skipped;
    if (log_pass(&a->refused_limit, loop_now_us(a->loop), 1000000, &skipped))
        log_event(LOG_WARN, "refused", "path=%.*s peer=%.*s status=%d reason=%s skipped=%llu",
                  STR_ARG(k->req->path), STR_ARG(k->req->peer), status, message,
                  (unsigned long long)skipped);
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_key(&w, "error");
    json_object(&w);
    json_kv_i64(&w, "code", status);
    json_kv_text(&w, "reason", reason);
    json_kv_text(&w, "message", message);
    json_object_end(&w);
    json_object_end(&w);
    answer(k, status, &body);
}

/* An errno of the control as a status. */
static void refuse_rc(struct call *k, int rc, const struct err *err)
{
    static const struct {
        int rc, status;
        const char *reason;
    } rows[] = {
        { -ENOENT, 404, "not_found" }, { -EEXIST, 409, "exists" }, { -EINVAL, 400, "invalid" },
        { -ERANGE, 400, "range" },     { -ENOSPC, 503, "full" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].rc == rc) {
            refuse(k, rows[i].status, rows[i].reason, err_text(err, rc));
            return;
        }
    refuse(k, 500, "failed", err_text(err, rc));
}

static void done(struct call *k)
{
    buf_text(&k->api->out, "{\"ok\":true}");
    answer(k, 200, &k->api->out);
}

static void tell_urgent(struct api *a)
{
    if (control_is_urgent(a->control)) a->config.on_urgent(a->config.arg);
}

/* ---- agents and routers ---- */

static void agents_report(struct call *k)
{
    struct agent_report r;
    struct agent_reply reply;
    struct err err = { 0 };
    int rc = agent_report_decode(k->req->body, &k->api->arena, &r, &err);
    if (rc < 0) {
        refuse(k, 400, "invalid", err_text(&err, rc));
        return;
    }
    control_report(k->api->control, &r, clock_wall_us(), &reply);
    agent_reply_encode(&reply, &k->api->out);
    answer(k, 200, &k->api->out);
    tell_urgent(k->api);
}

static void routers_sync(struct call *k)
{
    struct router_sync s;
    struct router_rules rules;
    struct err err = { 0 };
    int rc = router_sync_decode(k->req->body, &k->api->arena, &s, &err);
    if (rc == 0)
        rc = control_sync(k->api->control, &s, clock_wall_us(), &k->api->arena, &rules, &err);
    if (rc < 0) {
        refuse_rc(k, rc, &err);
        return;
    }
    router_rules_encode(&rules, &k->api->out);
    answer(k, 200, &k->api->out);
    tell_urgent(k->api);
}

/* ---- looking ---- */

static void show_view(struct call *k)
{
    control_view(k->api->control, (enum control_view)k->arg, clock_wall_us(), &k->api->out);
    answer(k, 200, &k->api->out);
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
        refuse(k, 400, "invalid", "from and limit are whole numbers");
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
        refuse_rc(k, rc, &err);
    else
        answer(k, 200, &k->api->out);
}

static void show_decision(struct call *k)
{
    uint64_t id;
    struct err err = { 0 };
    int rc = str_to_u64(k->part, &id);
    if (rc < 0) {
        refuse(k, 400, "invalid", "a decision's id is a whole number");
        return;
    }
    rc = control_decision(k->api->control, id, &k->api->out, &err);
    if (rc < 0)
        refuse_rc(k, rc, &err);
    else
        answer(k, 200, &k->api->out);
}

static void show_metrics(struct call *k)
{
    struct metrics *m = control_metrics(k->api->control);
    metric_set(metric_of(m, CONTROL_M_STREAMS), k->api->stream_count);
    if (metrics_render(m, &k->api->out) < 0) {
        refuse(k, 500, "failed", "the metrics do not fit");
        return;
    }
    http_reply(k->x, 200, STR(METRICS_CONTENT_TYPE), buf_view(&k->api->out));
}

static void health(struct call *k)
{
    bool ready = k->api->control && control_has_observed(k->api->control);
    buf_printf(&k->api->out, "{\"status\":\"%s\"}", ready ? "ok" : "observing");
    answer(k, ready ? 200 : 503, &k->api->out);
}

static void console(struct call *k)
{
    http_reply_header(k->x, "content-security-policy",
                      STR("default-src 'none'; style-src 'unsafe-inline'; "
                          "script-src 'unsafe-inline'; connect-src *; img-src data:; "
                          "frame-ancestors 'none'"));
    http_reply(k->x, 200, STR("text/html; charset=utf-8"), console_page());
}

/* ---- acting ---- */

static void pause_service(struct call *k)
{
    struct err err = { 0 };
    int rc = control_pause(k->api->control, k->part, k->arg, &err);
    if (rc < 0) {
        refuse_rc(k, rc, &err);
        return;
    }
    done(k);
    tell_urgent(k->api);
}

struct scale_order {
    struct str pool;
    int64_t count;
    bool has_count; /* false: null, back to the policy */
};

/* {"pool": name, "count": number or null}. Read by hand: null means something here. */
static int read_order(struct call *k, struct scale_order *ret, struct buf *pool, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, k->req->body);
    bool has_key = false;
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the order");
    while (json_next(&r) == JSON_KEY) {
        int rc = 0;
        if (json_key_is(&r, "pool")) {
            json_next(&r);
            buf_clear(pool);
            rc = json_text(&r, pool);
        } else if (json_key_is(&r, "count")) {
            has_key = true;
            ret->has_count = json_next(&r) != JSON_NULL;
            if (ret->has_count) rc = json_i64(&r, &ret->count);
        } else {
            return err_set(err, -EINVAL, "unknown member '" STR_FMT "'; known: pool, count",
                           STR_ARG(r.raw));
        }
        if (rc < 0) return json_fail(&r, err, "the order");
    }
    if (r.token != JSON_OBJECT_END || json_next(&r) != JSON_END)
        return json_fail(&r, err, "the order");
    if (pool->len == 0 || !has_key)
        return err_set(err, -EINVAL, "want {\"pool\": NAME, \"count\": NUMBER or null}");
    if (ret->has_count && (ret->count < 0 || ret->count > CONTROL_COUNT_MAX))
        return err_set(err, -ERANGE, "count: want 0 to %d, or null", CONTROL_COUNT_MAX);
    ret->pool = buf_view(pool);
    return 0;
}

static void scale_service(struct call *k)
{
    struct scale_order order = { 0 };
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf pool = { 0 };
    int rc = read_order(k, &order, &pool, &err);
    if (rc == 0)
        rc = control_scale(k->api->control, k->part, order.pool,
                           order.has_count ? (int32_t)order.count : -1, &err);
    if (rc < 0) {
        refuse_rc(k, rc, &err);
        return;
    }
    done(k);
    tell_urgent(k->api);
}

struct tenant_order {
    struct str name;
    struct tenant_limits limits;
};

static const struct field tenant_fields[] = {
    FIELD(struct tenant_order, name, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD_AS("requests_per_min", struct tenant_order, limits.requests_per_min, FIELD_U32),
    FIELD_AS("tokens_per_min", struct tenant_order, limits.tokens_per_min, FIELD_U32),
    FIELD_AS("concurrency", struct tenant_order, limits.concurrency, FIELD_U32),
};
static const struct field_set tenant_set = FIELD_SET(struct tenant_order, tenant_fields);

static void add_tenant(struct call *k)
{
    struct tenant_order t = { 0 };
    struct err err = { 0 };
    char key[TENANT_KEY_BYTES];
    int rc = fields_decode(&tenant_set, k->req->body, &k->api->arena, &t, "the tenant", &err);
    if (rc == 0)
        rc = control_tenant_add(k->api->control, t.name, &t.limits, clock_wall_us(), key, &err);
    if (rc < 0) {
        refuse_rc(k, rc, &err);
        return;
    }
    struct json_writer w;
    json_writer_init(&w, &k->api->out);
    json_object(&w);
    json_kv_str(&w, "tenant", t.name);
    json_kv_text(&w, "key", key);
    json_kv_text(&w, "note", "the key is shown this once");
    json_object_end(&w);
    explicit_bzero(key, sizeof key);
    answer(k, 201, &k->api->out);
}

static void remove_tenant(struct call *k)
{
    struct err err = { 0 };
    int rc = control_tenant_remove(k->api->control, k->part, &err);
    if (rc < 0)
        refuse_rc(k, rc, &err);
    else
        done(k);
}

/* ---- streams ---- */

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

/* A frame that does not fit is left out: the next status says it all again, and decisions have
 * ids, so that a client sees the gap and asks. */
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
    buf_init(&status, VIEW_BYTES_MAX);
    if (control_view(a->control, CONTROL_STATUS, clock_wall_us(), &status) < 0) return;
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
        refuse(k, 503, "full", "too many event streams are open");
        return;
    }
    struct stream *s = calloc(1, sizeof *s);
    http_reply_header(k->x, "cache-control", STR("no-store"));
    if (!s || http_stream_begin(k->x, 200, STR("text/event-stream")) < 0) {
        free(s);
        refuse(k, 503, "full", "no memory for the stream");
        return;
    }
    s->api = a;
    s->x = k->x;
    s->told = control_decision_last(a->control);
    list_push_back(&a->streams, &s->node);
    a->stream_count++;
    http_exchange_watch(k->x, on_stream_abort, NULL, s);
    if (control_view(a->control, CONTROL_STATUS, clock_wall_us(), &a->out) == 0)
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
    { "POST",   "/api/v1/agents/report",      GUARD_FLEET, agents_report,  0 },
    { "POST",   "/api/v1/routers/sync",       GUARD_FLEET, routers_sync,   0 },
    { "GET",    "/api/v1/status",             GUARD_READ,  show_view,      CONTROL_STATUS },
    { "GET",    "/api/v1/services",           GUARD_READ,  show_view,      CONTROL_SERVICES },
    { "GET",    "/api/v1/pools",              GUARD_READ,  show_view,      CONTROL_POOLS },
    { "GET",    "/api/v1/instances",          GUARD_READ,  show_view,      CONTROL_INSTANCES },
    { "GET",    "/api/v1/intents",            GUARD_READ,  show_view,      CONTROL_INTENTS },
    { "GET",    "/api/v1/offers",             GUARD_READ,  show_view,      CONTROL_OFFERS },
    { "GET",    "/api/v1/cost",               GUARD_READ,  show_view,      CONTROL_COST },
    { "GET",    "/api/v1/tenants",            GUARD_READ,  show_view,      CONTROL_TENANTS },
    { "POST",   "/api/v1/tenants",            GUARD_WRITE, add_tenant,     0 },
    { "DELETE", "/api/v1/tenants/*",          GUARD_WRITE, remove_tenant,  0 },
    { "GET",    "/api/v1/decisions",          GUARD_READ,  list_decisions, 0 },
    { "GET",    "/api/v1/decisions/*",        GUARD_READ,  show_decision,  0 },
    { "POST",   "/api/v1/services/*/pause",   GUARD_WRITE, pause_service,  1 },
    { "POST",   "/api/v1/services/*/resume",  GUARD_WRITE, pause_service,  0 },
    { "POST",   "/api/v1/services/*/scale",   GUARD_WRITE, scale_service,  0 },
    { "GET",    "/api/v1/stream",             GUARD_READ,  open_stream,    0 },
    { "GET",    "/metrics",                   GUARD_READ,  show_metrics,   0 },
    { "GET",    "/",                          GUARD_READ,  console,        0 },
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
        bool like_get = head && str_eq(method, STR("GET")) && routes[i].fn != open_stream;
        if (str_eq(req->method, method) || like_get) return &routes[i];
    }
    return NULL;
}

/* ---- guard ---- */

/* "name:port" or "[v6]:port", the port being ours (or left out, behind a forwarder). */
static bool host_is_ours(const struct api *a, struct str host)
{
    char port[8];
    snprintf(port, sizeof port, ":%u", api_port(a));
    if (str_ends(host, str_from(port))) host.len -= strlen(port);
    if (str_starts(host, STR("[")) && str_ends(host, STR("]")))
        host = str_of(host.data + 1, host.len - 2);
    static const char *const always[] = { "localhost", "127.0.0.1", "::1" };
    for (size_t i = 0; i < COUNT_OF(always); i++)
        if (str_eq_nocase(host, str_from(always[i]))) return true;
    if (str_eq_nocase(host, str_from(a->config.host))) return true;
    for (size_t i = 0; i < a->config.host_count; i++)
        if (str_eq_nocase(host, a->config.hosts[i])) return true;
    return false;
}

static bool origin_is_ours(const struct api *a, struct str origin)
{
    static const char *const schemes[] = { "http://", "https://" };
    for (size_t i = 0; i < COUNT_OF(schemes); i++) {
        struct str s = str_from(schemes[i]);
        if (str_starts(origin, s))
            return host_is_ours(a, str_of(origin.data + s.len, origin.len - s.len));
    }
    return false; /* "null" is a page from nowhere */
}

/* Digests are compared, so that neither content nor length shows in the time. */
static bool has_secret(const struct api *a, const struct http_request *req)
{
    struct str given = http_request_header(req, "authorization");
    if (given.len < 7 || !str_eq_nocase(str_of(given.data, 7), STR("bearer "))) return false;
    given = str_trim(str_of(given.data + 7, given.len - 7));
    uint8_t mine[SHA256_BYTES], theirs[SHA256_BYTES];
    sha256(a->config.secret.data, a->config.secret.len, mine);
    sha256(given.data, given.len, theirs);
    return equal_constant_time(mine, theirs, sizeof mine);
}

/* True when the call may go on; else it is answered. */
static bool pass(struct call *k, enum guard guard)
{
    const struct api *a = k->api;
    struct str origin = http_request_header(k->req, "origin");
    if (!host_is_ours(a, k->req->host)) {
        refuse(k, 403, "host", "this name is not ours; see controller.hosts");
        return false;
    }
    if (origin.data && (guard == GUARD_FLEET || !origin_is_ours(a, origin))) {
        refuse(k, 403, "origin", "not for pages of another origin");
        return false;
    }
    if (guard == GUARD_NONE) return true;
    if ((guard == GUARD_FLEET || a->config.require_secret) && !has_secret(a, k->req)) {
        http_reply_header(k->x, "www-authenticate", STR("Bearer"));
        refuse(k, 401, "secret", "send the fleet's secret: authorization: Bearer SECRET");
        return false;
    }
    if (!a->control) {
        refuse(k, 503, "starting", "the controller is starting");
        return false;
    }
    return true;
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct api *a = ctx;
    struct call k = { .api = a, .x = x, .req = http_exchange_request(x) };
    arena_reset(&a->arena);
    buf_clear(&a->out);
    bool known;
    const struct route *route = find_route(k.req, &k.part, &known);
    if (!route) {
        if (!pass(&k, GUARD_NONE)) return;
        if (known)
            refuse(&k, 405, "method", "this cannot be done with that path");
        else
            refuse(&k, 404, "not_found", "nothing is served at this path");
        return;
    }
    k.arg = route->arg;
    if (pass(&k, route->guard)) route->fn(&k);
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
    buf_init(&a->out, VIEW_BYTES_MAX);
    struct http_server_config server = {
        .host = config->host,
        .port = config->port,
        .limits = { .body_bytes_max = BODY_BYTES_MAX,
                    .unsent_bytes_max = STREAM_UNSENT_MAX,
                    .connections_max = 2000 },
        .on_request = on_request,
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
}

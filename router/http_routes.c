/* http_routes.c - lists every path of the router in one table, with its access rule.
 *
 * Authorisation is decided on the head, before a byte of the body is read: a path that is not in
 * the table is refused like a wrong key. A client's key is looked up once more when the body is
 * there, because it may have been revoked meanwhile.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http_browser.h"
#include "base/io/loop/clock.h"
#include "base/io/net/conn.h"
#include "base/wire/order.h"
#include "router/byte_loop.h"
#include "router/decide.h"

#include <stdio.h>
#include <stdlib.h>

enum access {
    ACCESS_OPEN,    /* health: anybody */
    ACCESS_CLIENT,  /* an API key where keys are required, or the fleet's secret */
    ACCESS_METRICS, /* a token, a scraper's key, the secret; this machine; or no keys needed */
    ACCESS_FLEET,   /* the fleet's secret, a command's signature, an admin's token */
    ACCESS_AGENT,   /* an agent's signature */
};

#define OPEN_BODY_BYTES_MAX 4096 /* of a path that is open to anybody */

/* The exchange's note, which on_head fills. */
struct passed {
    bool fleet; /* the fleet's secret was there, or a command's signature */
    bool agent; /* an agent's signature */
    struct auth_note auth;
};

struct asked {
    struct byte_loop *b;
    struct http_exchange *x;
    const struct http_request *req;
    struct passed *passed;
    const struct snapshot *snapshot;
    const struct tenant_name *tenant; /* NULL: anonymous */
};

static const struct str json_type = { "application/json", 16 };

static void reply_problem(struct asked *a, enum openai_problem problem, const char *message)
{
    struct openai_error e = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    openai_error_set(&e, 0, problem, NULL, "%s", message);
    reply_error(reply_style_of(a->req->path), &e, &body);
    response_cors(a->b, a->x);
    http_reply(a->x, e.status, json_type, buf_view(&body));
}

static void on_chat(struct asked *a)
{
    generate_begin(a->b, a->x, OPENAI_CHAT, REPLY_OPENAI, a->snapshot, a->tenant);
}

static void on_messages(struct asked *a)
{
    generate_begin(a->b, a->x, OPENAI_CHAT, REPLY_ANTHROPIC, a->snapshot, a->tenant);
}

static void on_responses(struct asked *a)
{
    generate_begin(a->b, a->x, OPENAI_CHAT, REPLY_RESPONSES, a->snapshot, a->tenant);
}

static void on_completion(struct asked *a)
{
    generate_begin(a->b, a->x, OPENAI_COMPLETION, REPLY_OPENAI, a->snapshot, a->tenant);
}

static void on_vectors(struct asked *a)
{
    generate_begin(a->b, a->x, openai_vectors_surface(a->req->path), REPLY_OPENAI, a->snapshot,
                   a->tenant);
}

static void on_models(struct asked *a)
{
    const struct snapshot *f = a->snapshot;
    CLEANUP(buf_fini) struct buf body = { 0 };
    const uint32_t count = f->model_count + f->adapter_count;
    struct openai_model *models = calloc((size_t)count + 1, sizeof *models);
    if (!models) {
        reply_problem(a, OPENAI_UNAVAILABLE, "No memory for the list.");
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct snapshot_adapter *adapter =
            i < f->model_count ? NULL : &f->adapter[i - f->model_count];
        const struct snapshot_model *m =
            adapter ? snapshot_model_of(f, adapter->service) : &f->model[i];
        models[i] = (struct openai_model){ .id = str_from(adapter ? adapter->name : m->name),
                                           .parent = str_from(adapter && m ? m->name : ""),
                                           .created_s = clock_wall_us() / 1000000,
                                           .context_tokens = m ? m->context_tokens : 0 };
        if (models[i].context_tokens > 0) models[i].task = model_task_names[m->task];
    }
    openai_models_render(models, count, &body);
    free(models);
    response_cors(a->b, a->x);
    http_reply(a->x, 200, json_type, buf_view(&body));
}

static void on_health(struct asked *a)
{
    response_cors(a->b, a->x);
    http_reply(a->x, 200, json_type, STR("{\"status\":\"ok\"}"));
}

/* A router that has not heard from the controller knows neither keys nor models: it would refuse what
 * another one serves. Once it has, it stays ready, because it goes on without the controller. */
static void on_ready(struct asked *a)
{
    if (a->snapshot->informed)
        http_reply(a->x, 200, json_type, STR("{\"status\":\"ok\"}"));
    else
        reply_problem(a, OPENAI_UNAVAILABLE, "The controller has not replied yet.");
}

static void on_version(struct asked *a)
{
    http_reply(a->x, 200, json_type, STR("{\"version\":\"" MUSTER_VERSION "\"}"));
}

static void on_metrics(struct asked *a)
{
    CLEANUP(buf_fini) struct buf body = { .max = METRICS_TEXT_BYTES_MAX };
    enum metrics_format format = metrics_format_of(http_request_header(a->req, "accept"));
    if (metrics_render(a->b->metrics, format, &body) < 0)
        reply_problem(a, OPENAI_INTERNAL, "The metrics do not fit.");
    else
        http_reply(a->x, 200, str_from(metrics_content_types[format]), buf_view(&body));
}

static void on_tokenize(struct asked *a)
{
    tokens_begin(a->b, a->x, TOKEN_ASK_TOKENIZE, a->snapshot, a->tenant);
}

static void on_count_tokens(struct asked *a)
{
    tokens_begin(a->b, a->x, TOKEN_ASK_COUNT, a->snapshot, a->tenant);
}

static void on_apply_template(struct asked *a)
{
    tokens_begin(a->b, a->x, TOKEN_ASK_TEMPLATE, a->snapshot, a->tenant);
}

static void on_detokenize(struct asked *a)
{
    tokens_begin(a->b, a->x, TOKEN_ASK_DETOKENIZE, a->snapshot, a->tenant);
}

/* Sets the routing policy. */
static void on_route(struct asked *a)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct err err = { 0 };
    struct str name;
    arena_init(&arena, ORDER_BYTES_MAX);
    if (route_order_decode(a->req->body, &arena, &name, &err) < 0) {
        reply_problem(a, OPENAI_INVALID, err.text);
    } else if (!route_find(name)) {
        reply_problem(a, OPENAI_INVALID, "There is no such routing policy.");
    } else {
        decide_route_ask(a->b->decide, route_find(name));
        http_reply(a->x, 200, json_type, STR("{}"));
    }
}

static void on_quarantine(struct asked *a)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    if (quarantine_board_render(&a->b->decide->quarantine, loop_now_us(a->b->loop), &body) < 0) {
        reply_problem(a, OPENAI_INTERNAL, "out of memory");
        return;
    }
    http_reply(a->x, 200, json_type, buf_view(&body));
}

/* Shows what became of a request. */
static void on_ended(struct asked *a)
{
    CLEANUP(buf_fini) struct buf body = { 0 }, id = { 0 };
    int rc = http_query_value(a->req->query, "id", &id);
    if (rc == 0) rc = ended_render(&a->b->decide->ended, buf_view(&id), &body);
    if (rc == -ENOENT)
        reply_problem(a, OPENAI_URL_NOT_FOUND, "No request of this id has ended here of late.");
    else if (rc < 0)
        reply_problem(a, OPENAI_INVALID, "want ?id=ID");
    else
        http_reply(a->x, 200, json_type, buf_view(&body));
}

static void on_quarantine_clear(struct asked *a)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct err err = { 0 };
    uint64_t fingerprint;
    arena_init(&arena, ORDER_BYTES_MAX);
    if (quarantine_order_decode(a->req->body, &arena, &fingerprint, &err) < 0) {
        reply_problem(a, OPENAI_INVALID, err.text);
    } else if (decide_quarantine_clear(a->b->decide, fingerprint) < 0) {
        reply_problem(a, OPENAI_OVERLOADED, "Too many orders at once; try again shortly.");
    } else {
        http_reply(a->x, 200, json_type, STR("{}"));
    }
}

/* Turns the connection of an agent into its instance's tunnel. */
static void on_tunnel(struct asked *a)
{
    const struct str id = auth_gate_id(a->req), skip = STR(FLEET_AGENT);
    char name[DISPATCH_NAME_MAX];
    struct conn conn;
    if (!http_upgrade_asked(a->req, STR(TUNNEL_PROTOCOL))) {
        reply_problem(a, OPENAI_INVALID, "Want an upgrade to " TUNNEL_PROTOCOL ".");
        return;
    }
    struct str instance = str_of(id.data + skip.len, id.len - skip.len);
    if (tunnels_is_full(a->b->tunnels, instance)) {
        reply_problem(a, OPENAI_UNAVAILABLE, "No more tunnels are taken: router.tunnels_max.");
        return;
    }
    memcpy(name, instance.data, instance.len); /* the request goes with the connection */
    instance.data = name;
    if (http_upgrade(a->x, STR(TUNNEL_PROTOCOL), &conn) < 0)
        http_exchange_abort(a->x);
    else if (tunnels_take(a->b->tunnels, instance, &conn) < 0)
        conn_close(&conn); /* another took the place: the agent comes again */
}

// clang-format off
static const struct path {
    struct str method, path;
    enum access access;
    void (*fn)(struct asked *a);
} paths[] = {
    { STR("POST"),  STR("/v1/chat/completions"),   ACCESS_CLIENT,  on_chat },
    { STR("POST"),  STR("/v1/completions"),        ACCESS_CLIENT,  on_completion },
    { STR("POST"),  STR("/v1/messages"),           ACCESS_CLIENT,  on_messages },
    { STR("POST"),  STR("/v1/responses"),          ACCESS_CLIENT,  on_responses },
    { STR("POST"),  STR("/v1/messages/count_tokens"), ACCESS_CLIENT, on_count_tokens },
    { STR("POST"),  STR("/v1/embeddings"),         ACCESS_CLIENT,  on_vectors },
    { STR("POST"),  STR("/v1/score"),              ACCESS_CLIENT,  on_vectors },
    { STR("POST"),  STR("/v1/rerank"),             ACCESS_CLIENT,  on_vectors },
    { STR("POST"),  STR("/score"),                 ACCESS_CLIENT,  on_vectors },
    { STR("POST"),  STR("/rerank"),                ACCESS_CLIENT,  on_vectors },
    { STR("POST"),  STR("/v2/rerank"),             ACCESS_CLIENT,  on_vectors },
    { STR("GET"),   STR("/v1/models"),             ACCESS_CLIENT,  on_models },
    { STR("POST"),  STR("/tokenize"),              ACCESS_CLIENT,  on_tokenize },
    { STR("POST"),  STR("/detokenize"),            ACCESS_CLIENT,  on_detokenize },
    { STR("POST"),  STR("/apply-template"),        ACCESS_CLIENT,  on_apply_template },
    { STR("GET"),   STR("/health"),                ACCESS_OPEN,    on_health },
    { STR("GET"),   STR("/ready"),                 ACCESS_OPEN,    on_ready },
    { STR("GET"),   STR("/version"),               ACCESS_CLIENT,  on_version },
    { STR("GET"),   STR("/metrics"),               ACCESS_METRICS, on_metrics },
    { STR("GET"),   STR(TUNNELS_PATH),             ACCESS_AGENT,   on_tunnel },
    { STR("POST"),  STR("/admin/route"),           ACCESS_FLEET,   on_route },
    { STR("GET"),   STR("/admin/quarantine"),      ACCESS_FLEET,   on_quarantine },
    { STR("GET"),   STR("/admin/requests"),        ACCESS_FLEET,   on_ended },
    { STR("POST"),  STR("/admin/quarantine/clear"), ACCESS_FLEET,   on_quarantine_clear },
};
// clang-format on

/* Returns the credential of a request; no data: none. A client library that was given an empty key
 * sends the scheme alone, which counts as none. */
static struct str presented(const struct http_request *req)
{
    struct str value = str_trim(http_request_header(req, "authorization")), rest = value;
    if (!value.len) value = rest = str_trim(http_request_header(req, "x-api-key"));
    struct str scheme = str_cut(&rest, ' ');
    if (!str_eq_nocase(scheme, STR("bearer"))) return value.len ? value : (struct str){ 0 };
    rest = str_trim(rest);
    return rest.len ? rest : (struct str){ 0 };
}

static bool refuse_key(struct asked *a, const char *sentence)
{
    reply_problem(a, OPENAI_UNAUTHENTICATED, sentence);
    return false;
}

static struct http_names names_of(const struct byte_loop *b)
{
    return (struct http_names){ .own = str_from(b->host),
                                .port = http_server_port(b->server),
                                .hosts = b->config->hosts.items,
                                .host_count = b->config->hosts.count,
                                .origins = b->config->cors_origins.items,
                                .origin_count = b->config->cors_origins.count };
}

static bool is_agent(const struct asked *a)
{
    return a->passed->auth.who == AUTH_PART && str_starts(auth_gate_id(a->req), STR(FLEET_AGENT));
}

/* Returns true for an admin's token and for a command signed for this router: a command's id names the
 * router it goes to, so that its signature means nothing to another one. */
static bool is_fleet(const struct asked *a)
{
    const struct http_names names = names_of(a->b);
    struct str id = auth_gate_id(a->req), skip = STR("cli/");
    if (a->passed->auth.who == AUTH_PERSON) return true;
    return a->passed->auth.who == AUTH_PART && str_starts(id, skip) &&
           browser_host_is_ours(&names, str_of(id.data + skip.len, id.len - skip.len));
}

/* Admits a request without a key. A foreign page must not be able to send one through its reader's
 * browser. */
static bool pass_open(struct asked *a)
{
    const struct http_names names = names_of(a->b);
    enum browser_fault fault = browser_check(&names, a->req);
    if (fault == BROWSER_OK) return true;
    reply_problem(a, fault == BROWSER_TYPE ? OPENAI_CONTENT_TYPE : OPENAI_FORBIDDEN,
                  browser_fault_info(fault)->sentence);
    return false;
}

static enum keys_need need_of(const struct asked *a)
{
    return a->b->loopback ? a->snapshot->keys : KEYS_REQUIRED;
}

static bool pass_without_key(struct asked *a, bool is_metrics)
{
    enum keys_need need = need_of(a);
    if (need == KEYS_NONE) return pass_open(a);
    if (is_metrics && browser_peer_is_local(a->req)) return pass_open(a);
    if (need == KEYS_REQUIRED)
        return refuse_key(a, "An API key is needed: send 'Authorization: Bearer KEY'.");
    reply_problem(a, OPENAI_UNAVAILABLE,
                  "The controller has not said yet whether API keys are needed.");
    return false;
}

/* Returns true if the caller may use the path; else the reply is sent. Where no keys are needed, an
 * unknown key counts as none: client libraries insist on sending a placeholder. */
static bool authorise(struct asked *a, enum access access)
{
    if (access == ACCESS_OPEN) return true;
    if (access == ACCESS_AGENT)
        return a->passed->agent || refuse_key(a, "This path is for the fleet's own agents.");
    if (a->passed->fleet) return true;
    struct str given = presented(a->req);
    bool is_admin = false;
    if (access != ACCESS_CLIENT && tenant_keys_token(a->snapshot->tenants, given, &is_admin) &&
        (is_admin || access == ACCESS_METRICS))
        return true;
    if (access == ACCESS_METRICS && key_file_has(&a->b->link->scrapers, given)) return true;
    if (access == ACCESS_FLEET) return refuse_key(a, "This path is for the fleet's own parts.");
    if (!given.data) return pass_without_key(a, access == ACCESS_METRICS);
    const struct tenant_name *tenant = tenant_keys_find(a->snapshot->tenants, given);
    if (!tenant && need_of(a) == KEYS_NONE) return pass_open(a);
    if (!tenant) return refuse_key(a, "The API key is not known.");
    if (access == ACCESS_METRICS) {
        reply_problem(a, OPENAI_FORBIDDEN, "An API key does not open this path.");
        return false;
    }
    a->tenant = tenant;
    return true;
}

static void on_preflight(struct asked *a)
{
    response_cors(a->b, a->x);
    http_reply_header(a->x, "access-control-allow-methods", STR("GET, POST"));
    http_reply_header(
        a->x, "access-control-allow-headers",
        STR("authorization, content-type, x-request-id, x-api-key, anthropic-version"));
    http_reply_header(a->x, "access-control-max-age", STR("600"));
    http_reply(a->x, 204, (struct str){ 0 }, (struct str){ 0 });
}

/* Returns the path if it exists and the caller may use it; NULL: the reply is sent. */
static const struct path *admit(struct asked *a)
{
    if (str_eq(a->req->method, STR("OPTIONS"))) {
        on_preflight(a);
        return NULL;
    }
    bool known = false;
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        if (!str_eq(a->req->path, paths[i].path)) continue;
        known = true;
        if (!str_eq(a->req->method, paths[i].method)) continue;
        return authorise(a, paths[i].access) ? &paths[i] : NULL;
    }
    if (!authorise(a, ACCESS_CLIENT)) return NULL;
    reply_problem(a, known ? OPENAI_METHOD_NOT_ALLOWED : OPENAI_URL_NOT_FOUND,
                  known ? "The path exists, the method does not." : "There is no such path.");
    return NULL;
}

static struct asked asked_of(struct byte_loop *b, struct http_exchange *x,
                             const struct snapshot *snapshot)
{
    _Static_assert(sizeof(struct passed) <= HTTP_NOTE_BYTES, "a note holds it");
    return (struct asked){ .b = b,
                           .x = x,
                           .req = http_exchange_request(x),
                           .passed = http_exchange_note(x),
                           .snapshot = snapshot };
}

void http_routes_on_head(void *ctx, struct http_exchange *x)
{
    struct byte_loop *b = ctx;
    struct snapshot *snapshot = snapshot_get(b->board);
    struct asked a = asked_of(b, x, snapshot);
    auth_gate_head(&b->link->gate, x, &a.passed->auth, loop_now_us(b->loop));
    a.passed->fleet = is_fleet(&a);
    a.passed->agent = is_agent(&a);
    const struct path *path = admit(&a);
    if (path && path->access == ACCESS_OPEN) http_exchange_body_max(x, OPEN_BODY_BYTES_MAX);
    snapshot_unref(b->board, snapshot);
}

void http_routes_on_request(void *ctx, struct http_exchange *x)
{
    struct byte_loop *b = ctx;
    struct snapshot *snapshot = snapshot_get(b->board);
    struct asked a = asked_of(b, x, snapshot);
    if (!auth_gate_body(&a.passed->auth, a.req)) {
        refuse_key(&a, "The body is not what was signed.");
        snapshot_unref(b->board, snapshot);
        return;
    }
    const struct path *path = admit(&a);
    if (path) path->fn(&a);
    snapshot_unref(b->board, snapshot);
}

void http_routes_on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct byte_loop *b = ctx;
    const struct passed *passed = http_exchange_note(x);
    auth_gate_reply(&b->link->gate, x, &passed->auth, status, body, loop_now_us(b->loop));
}

struct str http_routes_render_refusal(void *ctx, const struct http_fault_info *why,
                                      struct buf *body)
{
    (void)ctx;
    struct openai_error e = { .status = why->status,
                              .type = "invalid_request_error",
                              .code = why->name };
    snprintf(e.message, sizeof e.message, "%s", why->sentence);
    openai_error_render(&e, body);
    return json_type;
}

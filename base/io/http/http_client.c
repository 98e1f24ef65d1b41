/* http_client.c - makes the client; checks, writes out and starts calls.
 *
 * Nothing happens inside http_call_start but the start of a connection: the rest comes from a
 * task at the end of the turn, so that no callback meets a caller that does not have its call
 * yet. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/http/http_call.h"
#include "base/io/tunnel/tunnel.h"

#include <stdlib.h>

#define CONNECT_US 2000000
#define IDLE_US 30000000
#define IDLE_PER_HOST_MAX 64
#define CONNECTIONS_MAX 10000
#define HEAD_BYTES_MAX 32768

static const char *const end_texts[HTTP_END_COUNT] = {
    [HTTP_END_OK] = "the reply is whole",
    [HTTP_END_CONNECT_FAILED] = "no connection could be made",
    [HTTP_END_NAME] = "the host's name could not be resolved",
    [HTTP_END_TLS] = "no TLS connection could be made",
    [HTTP_END_LOCAL] = "no descriptor, port or memory is left here for a connection",
    [HTTP_END_RESET_BEFORE_HEAD] = "the connection was lost before the reply began",
    [HTTP_END_RESET_AFTER_HEAD] = "the connection was lost in the middle of the reply",
    [HTTP_END_TIMEOUT] = "the deadline passed",
    [HTTP_END_MALFORMED] = "the reply is not well-formed HTTP/1.1",
    [HTTP_END_UNTRUSTED] = "the reply does not prove that it is the peer's",
    [HTTP_END_CANCELLED] = "the call was cancelled",
};

const char *http_end_text(enum http_end end)
{
    return end_texts[end];
}

/* ---- the client ---- */

int http_client_new(struct loop *l, const struct http_client_config *config,
                    struct http_client **ret, struct err *err)
{
    struct http_client *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "HTTP client: out of memory");
    int rc = resolver_new(l, config ? config->names : NULL, &c->resolver, err);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->loop = l;
    if (config) c->config = *config;
    struct http_client_config *f = &c->config;
    if (f->connect_us == 0) f->connect_us = CONNECT_US;
    if (f->idle_us == 0) f->idle_us = IDLE_US;
    if (f->idle_per_host_max == 0) f->idle_per_host_max = IDLE_PER_HOST_MAX;
    if (f->connections_max == 0) f->connections_max = CONNECTIONS_MAX;
    if (f->head_bytes_max == 0) f->head_bytes_max = HEAD_BYTES_MAX;
    c->head_limits =
        (struct http1_limits){ f->head_bytes_max, f->head_bytes_max, HTTP_HEADERS_MAX };
    map_init(&c->upstreams, sizeof(struct upstream_key), sizeof(struct upstream *),
             f->connections_max, MAP_FOREIGN);
    list_init(&c->links);
    list_init(&c->idle);
    list_init(&c->calls);
    *ret = c;
    return 0;
}

void http_client_free(struct http_client *c)
{
    if (!c) return;
    c->freeing = true;
    LIST_EACH_SAFE (&c->calls, node) {
        struct http_call *call = CONTAINER_OF(node, struct http_call, node);
        call_end(call, HTTP_END_CANCELLED);
        call_free(call);
    }
    LIST_EACH_SAFE (&c->links, node)
        link_free(CONTAINER_OF(node, struct http_link, node));
    map_fini(&c->upstreams);
    resolver_free(c->resolver);
    free(c);
}

void http_client_counts_get(const struct http_client *c, struct http_client_counts *ret)
{
    const uint64_t *from = (const uint64_t *)&c->counts;
    uint64_t *to = (uint64_t *)ret;
    for (size_t i = 0; i < sizeof *ret / sizeof *to; i++)
        to[i] = count_get(&from[i]);
    resolver_counts_get(c->resolver, &ret->names);
}

/* ---- starting a call ---- */

static int check_headers(const struct http_call_request *req, struct err *err)
{
    static const char *const ours[] = { "host", "content-length", "connection", "transfer-encoding",
                                        "expect" };
    for (size_t i = 0; i < req->header_count; i++) {
        const struct http_header *h = &req->headers[i];
        if (!http_header_valid(h->name, h->value))
            return err_set(err, -EINVAL, "header %zu (\"" STR_FMT "\") holds a byte it may not", i,
                           STR_ARG(h->name));
        for (size_t k = 0; k < COUNT_OF(ours); k++)
            if (str_eq_nocase(h->name, str_from(ours[k])))
                return err_set(err, -EINVAL, "the client writes the %s header itself", ours[k]);
    }
    if (!http_header_valid(STR("authorization"), req->bearer))
        return err_set(err, -EINVAL, "the bearer token holds a byte it may not");
    return 0;
}

static struct str method_of(const struct http_call_request *req)
{
    if (req->method.len > 0) return req->method;
    return req->body.len > 0 ? STR("POST") : STR("GET");
}

static int check_request(const struct http_call_request *req, struct err *err)
{
    if (!http_header_valid(method_of(req), (struct str){ 0 }))
        return err_set(err, -EINVAL, "\"" STR_FMT "\" is not a method", STR_ARG(req->method));
    if (!http_target_valid(req->path))
        return err_set(err, -EINVAL,
                       "\"" STR_FMT "\" is not a path: it starts with / and is "
                       "percent-encoded",
                       STR_ARG(req->path));
    if (!http_header_valid(STR("host"), req->host) || req->host.len == 0)
        return err_set(err, -EINVAL, "the host is missing or holds a byte it may not");
    return check_headers(req, err);
}

static void write_header(struct buf *out, struct str name, struct str prefix, struct str value)
{
    buf_str(out, name);
    buf_str(out, STR(": "));
    buf_str(out, prefix);
    buf_str(out, value);
    buf_str(out, STR("\r\n"));
}

#define HEAD_BYTES 512 /* room for the heads of most requests */

static int write_request(struct buf *out, const struct http_call_request *req)
{
    if (buf_reserve(out, req->body.len + HEAD_BYTES) < 0) return out->rc;
    struct str method = method_of(req);
    /* A server behind a tunnel listens on its own machine, and may check that it was meant. */
    const struct str host = tunnel_is_host(req->host) ? STR("127.0.0.1") : req->host;
    bool bare_v6 = host.data[0] != '[' && memchr(host.data, ':', host.len);
    buf_str(out, method);
    buf_byte(out, ' ');
    buf_str(out, req->path);
    buf_str(out, STR(" HTTP/1.1\r\nhost: "));
    buf_text(out, bare_v6 ? "[" : "");
    buf_str(out, host);
    buf_printf(out, "%s:%u\r\n", bare_v6 ? "]" : "", req->port);
    if (req->upgrade.len > 0)
        buf_printf(out, "connection: upgrade\r\nupgrade: " STR_FMT "\r\n", STR_ARG(req->upgrade));
    const struct str none = STR("");
    for (size_t i = 0; i < req->header_count; i++)
        write_header(out, req->headers[i].name, none, req->headers[i].value);
    if (req->bearer.len > 0) write_header(out, STR("authorization"), STR("Bearer "), req->bearer);
    if (req->json) write_header(out, STR("content-type"), none, STR("application/json"));
    /* RFC 9110 8.6: a method that gives a body a meaning says so even when it is empty. */
    if (req->body.len > 0 || str_eq(method, STR("POST")) || str_eq(method, STR("PUT")))
        buf_printf(out, "content-length: %zu\r\n", req->body.len);
    buf_str(out, STR("\r\n"));
    return buf_str(out, req->body);
}

static void on_task(void *arg)
{
    struct http_call *call = arg;
    if (call->ended) {
        call_free(call);
    } else if (!call->begun) {
        call_begin(call);
    } else if (call->link && !call->link->connecting) {
        struct http_link *l = call->link;
        call_go_on(call); /* what a pause left behind */
        link_update(l);
    }
}

static void on_deadline(void *arg)
{
    call_end(arg, HTTP_END_TIMEOUT);
}

static struct http_call *call_new(struct http_client *c, const struct http_call_request *req)
{
    struct http_call *call = FAULT("http.call") ? NULL : calloc(1, sizeof *call);
    if (!call) return NULL;
    call->client = c;
    call->to_head = str_eq(req->method, STR("HEAD"));
    call->on_head = req->on_head;
    call->on_data = req->on_data;
    call->on_end = req->on_end;
    call->upgrade = req->upgrade;
    call->on_upgrade = req->on_upgrade;
    call->arg = req->arg;
    call->deadline = (struct loop_timer){ .fn = on_deadline, .arg = call };
    call->task = (struct loop_task){ .fn = on_task, .arg = call };
    list_push_back(&c->calls, &call->node);
    if (((req->tls || tunnel_is_host(req->host)) && buf_str(&call->host, req->host) < 0) ||
        write_request(&call->request, req) < 0 ||
        (req->deadline_us > 0 && loop_timer_set(c->loop, &call->deadline, req->deadline_us) < 0)) {
        call_free(call);
        return NULL;
    }
    return call;
}

struct http_call *http_call_start(struct http_client *c, const struct http_call_request *req,
                                  struct err *err)
{
    must(req->on_end);
    must(!req->upgrade.len == !req->on_upgrade);
    if (c->freeing) {
        err_set(err, -ECANCELED, "the HTTP client is being freed");
        return NULL;
    }
    if (check_request(req, err) < 0) return NULL;
    if (tunnel_is_host(req->host) && (req->tls || !c->config.dial)) {
        err_set(err, -EINVAL,
                req->tls ? "a tunnel has TLS beneath it, not within"
                         : "this client has no tunnels");
        return NULL;
    }
    if (req->tls && !c->config.tls) {
        err_set(err, -EINVAL, "this client has no TLS");
        return NULL;
    }
    struct http_call *call = call_new(c, req);
    if (!call) {
        err_set(err, -ENOMEM, "HTTP call: out of memory");
        return NULL;
    }
    if (call_find(call, req->host, req->port, err) < 0) {
        call_free(call);
        return NULL;
    }
    count_add(&c->counts.calls, 1);
    loop_defer(c->loop, &call->task);
    return call;
}

/* ---- steering a call ---- */

void http_call_cancel(struct http_call *call)
{
    if (call->ended) return;
    call->ended = true;
    call_detach(call, false);
    call_forget_name(call);
    loop_timer_clear(call->client->loop, &call->deadline);
    loop_defer(call->client->loop, &call->task);
    count_add(&call->client->counts.ended[HTTP_END_CANCELLED], 1);
}

const char *http_call_problem(const struct http_call *call)
{
    return call->problem ? call->problem : "";
}

void http_call_pause(struct http_call *call)
{
    if (call->ended || call->paused) return;
    call->paused = true;
    if (call->begun && call->link) link_update(call->link);
}

void http_call_resume(struct http_call *call)
{
    if (call->ended || !call->paused) return;
    call->paused = false;
    if (call->begun) loop_defer(call->client->loop, &call->task);
}

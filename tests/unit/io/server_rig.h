/* server_rig.h - runs a server on a loop of its own and records what its handler has seen.
 *
 * The handler replies to every path with the request's own content, except /wait and /stream: those
 * are kept in `held` for the test to reply to. */
#pragma once
#include "base/io/http/http_server.h"
#include "tests/unit/io/raw_peer.h"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    uint16_t port;
    int requests;
    struct http_exchange *held; /* of /wait and /stream */
    int aborts, drains, emptied;
    enum http_abort why;
};

static inline void on_abort(void *arg, enum http_abort why)
{
    struct fixture *f = arg;
    f->held = NULL;
    f->aborts++;
    f->why = why;
}

static inline void on_drain(void *arg)
{
    struct fixture *f = arg;
    f->drains++;
}

static inline void on_empty(void *arg)
{
    struct fixture *f = arg;
    f->emptied++;
}

/* Keeps /wait and /stream for the test; replies to all others with their own content. */
static inline void on_request(void *ctx, struct http_exchange *x)
{
    struct fixture *f = ctx;
    const struct http_request *req = http_exchange_request(x);
    f->requests++;
    if (str_eq(req->path, STR("/wait")) || str_eq(req->path, STR("/stream"))) {
        f->held = x;
        http_exchange_watch(x, on_abort, on_drain, f);
        if (str_eq(req->path, STR("/stream")) && http_stream_begin(x, 200, STR("text/plain")) < 0) {
            http_exchange_abort(x);
            f->held = NULL;
        }
        return;
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    buf_printf(&out, "<" STR_FMT " " STR_FMT " " STR_FMT ">", STR_ARG(req->method),
               STR_ARG(req->path), STR_ARG(req->body));
    if (out.rc < 0) {
        http_exchange_abort(x);
        return;
    }
    http_reply(x, 200, STR("text/plain"), buf_view(&out));
}

static inline struct fixture start(struct http_server_config config)
{
    struct fixture f = { 0 };
    struct err err = { 0 };
    assert_int_equal(loop_new(&f.loop, &err), 0);
    if (!config.host) config.host = "127.0.0.1";
    if (!config.on_request) config.on_request = on_request;
    if (http_server_new(f.loop, &config, &f.server, &err) < 0) fail_msg("%s", err.text);
    f.port = http_server_port(f.server);
    return f;
}

/* The handler's context is the fixture, so it must be at its final address. */
static inline struct fixture *begin(struct http_limits limits)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct http_server_config config = { .limits = limits, .ctx = f };
    *f = start(config);
    return f;
}

static inline void end(struct fixture *f)
{
    http_server_free(f->server);
    loop_free(f->loop);
    free(f);
}

static inline struct http_server_counts counts(const struct fixture *f)
{
    struct http_server_counts c;
    http_server_counts_get(f->server, &c);
    return c;
}

#define HOST "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

/* Checks for exactly one reply, of that status, then the end; the handler saw no request. */
static inline void assert_refused(struct fixture *f, struct peer *p, const char *status,
                                  const char *why)
{
    char line[16];
    snprintf(line, sizeof line, "HTTP/1.1 %s ", status);
    PEER_UNTIL(f->loop, p, p->closed);
    if (peer_count(p, "\r\ndate: ") != 1 || !str_starts(buf_view(&p->got), str_from(line)) ||
        !peer_has(p, "\r\nconnection: close\r\n") || f->requests != 0)
        fail_msg("%s: expected one %s and no request, got %d requests and:\n%s", why, status,
                 f->requests, p->got.data ? p->got.data : "");
}

/* t_tunnel.c - tests whole tunnels between real sockets, and HTTP over a tunnel that HTTP has begun. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http_client.h"
#include "base/io/http/http_server.h"
#include "base/io/tunnel/tunnel.h"
#include "tests/unit/io/raw_peer.h"

/* ---- tunnels between sockets ---- */

#define SERVED 256

/* A server that replies "pong" to each "ping", or with MANY bytes to a "M", or closes at a "Q". */
struct served {
    struct loop_watch watch;
    struct world *world;
    struct buf out;
    size_t pos;
    bool open;
};

struct world {
    struct loop *loop;
    struct tunnel *router, *agent;
    struct loop_watch listener;
    struct served served[SERVED];
    uint32_t count, gone;
    uint16_t port;
    int lost;
    char why[128];
};

#define MANY ((size_t)3 << 20)

static void served_update(struct served *s)
{
    uint32_t events = EPOLLIN | (s->pos < s->out.len ? EPOLLOUT : 0);
    loop_watch_mod(s->world->loop, &s->watch, events);
}

static void on_served(void *arg, uint32_t events)
{
    (void)events;
    struct served *s = arg;
    char in[4096];
    ssize_t n = recv(s->watch.fd, in, sizeof in, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN) || (n > 0 && in[0] == 'Q')) {
        loop_watch_del(s->world->loop, &s->watch);
        close(s->watch.fd);
        s->open = false;
        s->world->gone++;
        return;
    }
    if (n > 0 && in[0] == 'M')
        for (size_t i = 0; i < MANY; i++)
            buf_byte(&s->out, (char)('a' + i % 26));
    if (n > 0 && in[0] == 'p') buf_text(&s->out, "pong");
    n = send(s->watch.fd, s->out.data + s->pos, s->out.len - s->pos, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) s->pos += (size_t)n;
    served_update(s);
}

static void on_accept(void *arg, uint32_t events)
{
    (void)events;
    struct world *w = arg;
    int fd = accept4(w->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    must(w->count < SERVED);
    struct served *s = &w->served[w->count++];
    *s = (struct served){ .world = w, .open = true };
    s->watch = (struct loop_watch){ .fd = fd, .fn = on_served, .arg = s };
    assert_int_equal(loop_watch_add(w->loop, &s->watch, EPOLLIN), 0);
}

static bool on_dial(void *arg, uint16_t port, struct tunnel_target *ret)
{
    const struct world *w = arg;
    if (port != 8200 && port != 1) return false;
    return addr_from_literal(&ret->addr, STR("127.0.0.1"), port == 1 ? 1 : w->port) == 0;
}

static void on_lost(void *arg, const char *why)
{
    struct world *w = arg;
    w->lost++;
    snprintf(w->why, sizeof w->why, "%s", why);
}

static struct tunnel *tunnel_over(struct world *w, int fd, bool opens, int64_t ping_us,
                                  int64_t silence_us)
{
    struct tunnel *l = NULL;
    struct conn conn;
    struct err err = { 0 };
    const struct tunnel_config config = { .loop = w->loop,
                                          .opens = opens,
                                          .streams_max = SERVED,
                                          .ping_us = ping_us,
                                          .silence_us = silence_us,
                                          .on_dial = on_dial,
                                          .on_lost = on_lost,
                                          .arg = w };
    conn_init(&conn, fd, 131072, BUF_BYTES_MAX);
    assert_int_equal(tunnel_new(&config, &conn, &l, &err), 0);
    return l;
}

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof *w);
    int fd[2];
    assert_int_equal(loop_new(&w->loop, NULL), 0);
    w->listener = (struct loop_watch){ .fd = peer_listen(&w->port), .fn = on_accept, .arg = w };
    assert_int_equal(loop_watch_add(w->loop, &w->listener, EPOLLIN), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    w->router = tunnel_over(w, fd[0], true, 0, 0);
    w->agent = tunnel_over(w, fd[1], false, 0, 0);
    return w;
}

static void world_free(struct world *w)
{
    tunnel_free(w->router);
    tunnel_free(w->agent);
    close(w->listener.fd);
    for (uint32_t i = 0; i < w->count; i++) {
        if (w->served[i].open) close(w->served[i].watch.fd);
        buf_fini(&w->served[i].out);
    }
    loop_free(w->loop);
    free(w);
}

static struct peer open_stream(struct world *w, uint16_t port)
{
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    assert_int_equal(tunnel_open(w->router, port, fd[1]), 0);
    return (struct peer){ .fd = fd[0] };
}

#define READS(w, p, cond) PEER_UNTIL((w)->loop, p, cond)

static void test_streams_reach_sockets(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct peer p[200];
    for (size_t i = 0; i < COUNT_OF(p); i++)
        p[i] = open_stream(w, 8200);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        READS(w, &p[i], p[i].got.len == 1);
        assert_int_equal(p[i].got.data[0], TUNNEL_READY);
        assert_int_equal(send(p[i].fd, "ping", 4, 0), 4);
    }
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        READS(w, &p[i], p[i].got.len == 5);
        assert_string_equal(p[i].got.data, "+pong");
    }
    assert_int_equal(tunnel_streams(w->router), 200);
    /* The server's end comes, and the client's close reaches the server. */
    assert_int_equal(send(p[0].fd, "Q", 1, 0), 1);
    READS(w, &p[0], p[0].closed);
    peer_close(&p[0]);
    for (size_t i = 1; i < COUNT_OF(p); i++)
        peer_close(&p[i]);
    while (w->gone < 200 || tunnel_streams(w->router) + tunnel_streams(w->agent) > 0)
        loop_turn(w->loop, 1000);
    world_free(w);
}

/* A port that may not be reached, and one at which nothing listens: closed without the byte. */
static void test_refused(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct peer p = open_stream(w, 22), q = open_stream(w, 1);
    READS(w, &p, p.closed);
    READS(w, &q, q.closed);
    assert_int_equal(p.got.len + q.got.len, 0);
    struct tunnel_counts counts;
    tunnel_counts_get(w->router, &counts);
    assert_int_equal(counts.reset[TUNNEL_RESET_REFUSED], 2);
    peer_close(&p);
    peer_close(&q);
    world_free(w);
}

/* One client does not read megabytes; another gets its own meanwhile. Then the first reads all, in order. */
static void test_slow_reader(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct peer slow = open_stream(w, 8200), p = open_stream(w, 8200);
    READS(w, &slow, slow.got.len == 1);
    READS(w, &p, p.got.len == 1);
    assert_int_equal(send(slow.fd, "M", 1, 0), 1);
    for (int i = 0; i < 100; i++)
        loop_turn(w->loop, 1000);
    for (size_t i = 1; i <= 50; i++) {
        assert_int_equal(send(p.fd, "ping", 4, 0), 4);
        READS(w, &p, p.got.len == 1 + 4 * i);
    }
    struct tunnel_counts counts;
    tunnel_counts_get(w->agent, &counts);
    assert_true(counts.bytes_out < TUNNEL_WINDOW + (1 << 20)); /* and a socket pair's buffer */
    READS(w, &slow, slow.got.len == 1 + MANY);
    for (size_t i = 0; i < MANY; i++)
        if (slow.got.data[1 + i] != (char)('a' + i % 26)) fail_msg("byte %zu is wrong", i);
    peer_close(&slow);
    peer_close(&p);
    world_free(w);
}

/* A tunnel that ends closes the sockets of both sides; a stream cannot be opened any more. */
static void test_lost(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct peer p = open_stream(w, 8200);
    READS(w, &p, p.got.len == 1);
    tunnel_free(w->agent);
    w->agent = NULL;
    READS(w, &p, p.closed);
    while (w->gone == 0 || w->lost == 0)
        loop_turn(w->loop, 1000);
    assert_int_equal(w->lost, 1);
    assert_string_equal(w->why, "the peer has closed the connection");
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(tunnel_open(w->router, 8200, fd[1]), -EPIPE);
    close(fd[0]);
    peer_close(&p);
    world_free(w);
}

/* A peer that is there replies to pings and is kept; one that is not is lost. */
static void test_silence(void **state)
{
    (void)state;
    struct world *w = world_new();
    int fd[2], dead[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, dead), 0);
    struct tunnel *kept = tunnel_over(w, fd[0], true, 50000, 0),
                  *peer = tunnel_over(w, fd[1], false, 0, 0);
    struct tunnel_counts counts = { 0 };
    while (counts.bytes_in < (uint64_t)3 * TUNNEL_FRAME_BYTES) { /* three PONGs */
        loop_turn(w->loop, 10000);
        tunnel_counts_get(kept, &counts);
    }
    assert_int_equal(w->lost, 0);
    tunnel_free(kept);
    tunnel_free(peer);
    struct tunnel *lone = tunnel_over(w, dead[0], true, 1000, 2000);
    while (w->lost == 0)
        loop_turn(w->loop, 10000);
    assert_string_equal(w->why, "the peer is silent");
    tunnel_free(lone);
    close(dead[1]);
    world_free(w);
}

/* ---- HTTP over a tunnel that HTTP has begun ---- */

struct web { /* an engine, and a router with the port that agents dial, on one loop */
    struct world *world;
    struct http_server *engine, *router;
    struct http_client *client;
    uint32_t upgraded, refused, ended;
    enum http_end end;
    int status;
    struct buf body;
};

static void take_upgraded(struct web *w, struct conn *conn, bool opens)
{
    struct tunnel **at = opens ? &w->world->router : &w->world->agent;
    const struct tunnel_config config = { .loop = w->world->loop,
                                          .opens = opens,
                                          .streams_max = 2,
                                          .on_dial = on_dial,
                                          .on_lost = on_lost,
                                          .arg = w->world };
    tunnel_free(*at);
    assert_int_equal(tunnel_new(&config, conn, at, NULL), 0);
    w->upgraded++;
}

static void on_router_request(void *ctx, struct http_exchange *x)
{
    struct web *w = ctx;
    struct conn conn;
    if (!http_upgrade_asked(http_exchange_request(x), STR(TUNNEL_PROTOCOL))) {
        w->refused++;
        http_reply(x, 426, STR("text/plain"), STR("a tunnel\n"));
        return;
    }
    assert_int_equal(http_upgrade(x, STR(TUNNEL_PROTOCOL), &conn), 0);
    take_upgraded(w, &conn, true);
}

static void on_engine_request(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    const struct http_request *req = http_exchange_request(x);
    CLEANUP(buf_fini) struct buf out = { 0 };
    buf_printf(&out, STR_FMT " " STR_FMT " %zu", STR_ARG(req->host), STR_ARG(req->path),
               req->body.len);
    http_reply(x, 200, STR("text/plain"), buf_view(&out));
}

static void on_upgrade(void *arg, struct conn *conn)
{
    take_upgraded(arg, conn, false);
}

static int dial(void *arg, struct str host, uint16_t port)
{
    struct web *w = arg;
    int fd[2];
    if (!str_eq(host, STR("tunnel:i-1"))) return -EHOSTUNREACH;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    int rc = tunnel_open(w->world->router, port, fd[1]);
    if (rc < 0) close(fd[0]);
    return rc < 0 ? rc : fd[0];
}

static void on_web_head(void *arg, const struct http_response *head)
{
    ((struct web *)arg)->status = head->status;
}

static void on_web_data(void *arg, struct str data)
{
    buf_str(&((struct web *)arg)->body, data);
}

static void on_web_end(void *arg, enum http_end end)
{
    struct web *w = arg;
    w->end = end;
    w->ended++;
}

static struct http_server *serve(struct web *w, http_request_fn *fn)
{
    struct http_server *s = NULL;
    const struct http_server_config config = { .host = "127.0.0.1", .on_request = fn, .ctx = w };
    assert_int_equal(http_server_new(w->world->loop, &config, &s, NULL), 0);
    return s;
}

static void ask(struct web *w, struct http_call_request req)
{
    w->ended = 0;
    w->status = 0;
    buf_clear(&w->body);
    req.on_head = on_web_head;
    req.on_data = on_web_data;
    req.on_end = on_web_end;
    req.arg = w;
    assert_non_null(http_call_start(w->client, &req, NULL));
    while (!w->ended)
        loop_turn(w->world->loop, 10000);
}

static void test_http(void **state)
{
    (void)state;
    struct web w = { .world = world_new() };
    struct http_client_config config = { .dial = dial, .dial_arg = &w };
    assert_int_equal(http_client_new(w.world->loop, &config, &w.client, NULL), 0);
    w.engine = serve(&w, on_engine_request);
    w.router = serve(&w, on_router_request);
    struct http_call_request up = { .host = STR("127.0.0.1"),
                                    .port = http_server_port(w.router),
                                    .path = STR("/internal/tunnel"),
                                    .upgrade = STR("another/1"),
                                    .on_upgrade = on_upgrade };
    ask(&w, up);
    assert_int_equal(w.status, 426);
    up.upgrade = STR(TUNNEL_PROTOCOL);
    ask(&w, up);
    assert_int_equal(w.status, 101);
    assert_int_equal(w.end, HTTP_END_OK);
    assert_int_equal(w.upgraded, 2); /* both ends */

    w.world->port = http_server_port(w.engine);
    char *body = calloc(1, 1000000);
    struct http_call_request get = { .host = STR("tunnel:i-1"), .port = 8200, .path = STR("/a") };
    for (int i = 0; i < 3; i++) { /* the second and third on the same stream */
        get.body = str_of(body, i == 1 ? 1000000 : 0);
        ask(&w, get);
        assert_int_equal(w.end, HTTP_END_OK);
        assert_string_equal(w.body.data,
                            i == 1 ? "127.0.0.1:8200 /a 1000000" : "127.0.0.1:8200 /a 0");
    }
    free(body);
    assert_int_equal(tunnel_streams(w.world->router), 1);
    struct http_client_counts counts;
    http_client_counts_get(w.client, &counts);
    assert_int_equal(counts.reused, 3); /* and the upgrade, after the refused one */

    static const struct {
        const char *host;
        uint16_t port;
        enum http_end end;
        const char *why;
    } rows[] = {
        { "tunnel:i-1", 22, HTTP_END_CONNECT_FAILED, "a port that may not be reached" },
        { "tunnel:i-1", 1, HTTP_END_CONNECT_FAILED, "a port at which nothing listens" },
        { "tunnel:i-2", 8200, HTTP_END_CONNECT_FAILED, "an instance without a tunnel" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        get.host = str_from(rows[i].host);
        get.port = rows[i].port;
        ask(&w, get);
        if (w.end != rows[i].end) fail_msg("%s: %s", rows[i].why, http_end_text(w.end));
    }
    get.tls = true;
    struct err err = { 0 };
    get.on_end = on_web_end;
    assert_null(http_call_start(w.client, &get, &err));
    assert_string_equal(err.text, "a tunnel has TLS beneath it, not within");
    http_client_free(w.client);
    http_server_free(w.engine);
    http_server_free(w.router);
    buf_fini(&w.body);
    world_free(w.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_reach_sockets),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_http),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

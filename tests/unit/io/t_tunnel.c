/* t_tunnel.c - tests tunnels: frames cut anywhere, frames that no honest peer sends, credit, streams that stand
 * still, and whole tunnels between real sockets. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http_client.h"
#include "base/io/http/http_server.h"
#include "base/io/tunnel/tunnel.h"
#include "tests/unit/io/raw_peer.h"

/* ---- two cores, each the other's peer ---- */

#define STREAMS_MAX 8

struct end {
    struct tunnel_core core;
    struct buf out, log;
    size_t sent;
    struct tunnel_stream stream[64];
    uint32_t count; /* of streams accepted */
    uint32_t credits;
    uint64_t got[64];                /* bytes of each stream */
    bool refuses, keeps_all;         /* keeps_all: consumes nothing */
    struct tunnel_stream *greedy[4]; /* send what they may, whenever they may */
    char order[64];                  /* of the greedy ones' turns */
};

static uint32_t at(const struct end *e, const struct tunnel_stream *s)
{
    return (uint32_t)(s - e->stream);
}

static struct tunnel_stream *on_open(void *arg, uint16_t port, enum tunnel_reset *ret_why)
{
    struct end *e = arg;
    buf_printf(&e->log, "open %u;", port);
    *ret_why = TUNNEL_RESET_REFUSED;
    return e->refuses ? NULL : &e->stream[e->count++];
}

static void on_data(void *arg, struct tunnel_stream *s, struct str data)
{
    struct end *e = arg;
    /* Pieces are told as one: where they are cut is not the peer's doing. */
    for (size_t i = 0; i < data.len && e->log.len < 4096; i++)
        buf_printf(&e->log, "%u%c;", at(e, s), data.data[i]);
    e->got[at(e, s)] += data.len;
    if (!e->keeps_all) tunnel_core_consumed(&e->core, s, data.len);
}

static size_t send_all(struct end *e, struct tunnel_stream *s, char byte, size_t most)
{
    size_t room, all = 0;
    char *to;
    while (all < most && (to = tunnel_core_data_begin(&e->core, s, &room))) {
        size_t n = min_size(room, most - all);
        memset(to, byte, n);
        tunnel_core_data_end(&e->core, s, n);
        all += n;
    }
    return all;
}

static void on_credit(void *arg, struct tunnel_stream *s)
{
    struct end *e = arg;
    size_t room;
    e->credits++;
    for (size_t i = 0; i < COUNT_OF(e->greedy); i++) {
        if (e->greedy[i] != s || !tunnel_core_data_begin(&e->core, s, &room)) continue;
        tunnel_core_data_end(&e->core, s, room);
        size_t len = strlen(e->order);
        if (len + 1 < sizeof e->order) e->order[len] = (char)('a' + i);
        (void)tunnel_core_data_begin(&e->core, s, &room); /* wants more */
        tunnel_core_data_end(&e->core, s, 0);
    }
}

static void on_end(void *arg, struct tunnel_stream *s)
{
    struct end *e = arg;
    buf_printf(&e->log, "end %u;", at(e, s));
}

static void on_reset(void *arg, struct tunnel_stream *s, enum tunnel_reset why)
{
    struct end *e = arg;
    assert_true(s->id == 0);
    buf_printf(&e->log, "reset %u %u;", at(e, s), why);
}

static const struct tunnel_events logs = { on_open, on_data, on_credit, on_end, on_reset };

static void end_init(struct end *e, bool opens)
{
    *e = (struct end){ 0 };
    tunnel_core_init(&e->core, &logs, e, opens, STREAMS_MAX, &e->out, &e->sent);
}

static void end_fini(struct end *e)
{
    tunnel_core_fini(&e->core);
    buf_fini(&e->out);
    buf_fini(&e->log);
}

/* Takes what `from` has to send to `to`, in pieces of `step` bytes. */
static int carry(struct end *from, struct end *to, size_t step)
{
    int rc = 0;
    CLEANUP(buf_fini) struct buf way = from->out;
    from->out = (struct buf){ 0 };
    from->sent = 0;
    for (size_t pos = 0; rc == 0 && pos < way.len; pos += step)
        rc = tunnel_core_feed(&to->core, str_of(way.data + pos, min_size(step, way.len - pos)));
    return rc;
}

static void both(struct end *a, struct end *b, size_t step)
{
    while (a->out.len + b->out.len > 0) {
        assert_int_equal(carry(a, b, step), 0);
        assert_int_equal(carry(b, a, step), 0);
    }
}

static struct tunnel_stream *open_one(struct end *a, struct end *b)
{
    struct tunnel_stream *s = &a->stream[a->count++];
    assert_int_equal(tunnel_core_open(&a->core, s, 8200), 0);
    both(a, b, 1000);
    tunnel_core_accept(&b->core, &b->stream[b->count - 1]);
    both(a, b, 1000);
    assert_true(s->accepted);
    return s;
}

/* The same exchange with every cut of the bytes: both ends must see the same. */
static void test_every_cut(void **state)
{
    (void)state;
    for (size_t step = 1; step <= 41; step++) {
        struct end a, b;
        end_init(&a, true);
        end_init(&b, false);
        struct tunnel_stream *s = &a.stream[0], *t = &a.stream[1];
        assert_int_equal(tunnel_core_open(&a.core, s, 8200), 0);
        assert_int_equal(tunnel_core_open(&a.core, t, 8100), 0);
        both(&a, &b, step);
        assert_int_equal(send_all(&a, s, 'x', 3), 0); /* not accepted yet */
        tunnel_core_accept(&b.core, &b.stream[0]);
        tunnel_core_accept(&b.core, &b.stream[1]);
        both(&a, &b, step);
        assert_int_equal(send_all(&a, s, 'x', 3), 3);
        assert_int_equal(send_all(&a, t, 'y', 2), 2);
        tunnel_core_end(&a.core, s);
        tunnel_core_ping(&a.core);
        both(&a, &b, step);
        assert_false(a.core.pinged);
        assert_int_equal(send_all(&b, &b.stream[0], 'z', 2), 2);
        tunnel_core_end(&b.core, &b.stream[0]);
        tunnel_core_reset(&b.core, &b.stream[1], TUNNEL_RESET_CUT);
        assert_int_equal(send_all(&a, t, 'y', 9), 9); /* under way when it is reset: skipped */
        both(&a, &b, step);
        assert_string_equal(b.log.data, "open 8200;open 8100;0x;0x;0x;1y;1y;end 0;");
        assert_string_equal(a.log.data, "0z;0z;end 0;reset 1 0;");
        assert_int_equal(a.core.streams.count, 0);
        assert_int_equal(b.core.streams.count, 0);
        end_fini(&a);
        end_fini(&b);
    }
}

static void put(struct buf *out, uint8_t kind, uint32_t number, uint64_t id)
{
    buf_u32(out, kind);
    buf_u32(out, number);
    buf_u32(out, (uint32_t)id);
    buf_u32(out, (uint32_t)(id >> 32));
}

/* What no honest peer sends fails the tunnel, with a sentence. Stream 1 is open and accepted. */
static void test_false_frames(void **state)
{
    (void)state;
    static const struct {
        uint8_t kind, kind2;
        uint32_t number, number2;
        uint64_t id;
        bool to_opener;
        const char *why;
    } rows[] = {
        { .kind = 0, .id = 1, .why = "no kind" },
        { .kind = TUNNEL_KIND_END, .id = 1, .why = "a kind that is not there" },
        { .kind = 'G', .number = 0x20545445, .why = "HTTP" },
        { .kind = TUNNEL_OPEN, .id = 1, .why = "an id again" },
        { .kind = TUNNEL_OPEN, .id = 2, .number = 65536, .why = "no port" },
        { .kind = TUNNEL_OPEN, .id = 9, .to_opener = true, .why = "the wrong end opens" },
        { .kind = TUNNEL_ACCEPT, .id = 1, .why = "the wrong end accepts" },
        { .kind = TUNNEL_ACCEPT, .id = 1, .to_opener = true, .why = "accepted twice" },
        { .kind = TUNNEL_DATA, .id = 7, .number = 1, .why = "a stream that nobody opened" },
        { .kind = TUNNEL_DATA, .id = 0, .number = 1, .why = "no stream" },
        { .kind = TUNNEL_DATA, .id = 1, .number = 0, .why = "no data" },
        { .kind = TUNNEL_DATA, .id = 1, .number = TUNNEL_DATA_MAX + 1, .why = "too long" },
        { .kind = TUNNEL_END, .kind2 = TUNNEL_END, .id = 1, .why = "ended twice" },
        { .kind = TUNNEL_END,
          .kind2 = TUNNEL_DATA,
          .number2 = 1,
          .id = 1,
          .why = "data after the end" },
        { .kind = TUNNEL_WINDOW_MORE, .id = 1, .number = 1, .why = "more room than there is" },
        { .kind = TUNNEL_WINDOW_MORE, .id = 1, .number = 0, .why = "no room" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct end a, b;
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        end_init(&a, true);
        end_init(&b, false);
        open_one(&a, &b);
        put(&bytes, rows[i].kind, rows[i].number, rows[i].id);
        if (rows[i].kind2) put(&bytes, rows[i].kind2, rows[i].number2, rows[i].id);
        struct end *to = rows[i].to_opener ? &a : &b;
        if (tunnel_core_feed(&to->core, buf_view(&bytes)) != -EPROTO)
            fail_msg("%s: was taken", rows[i].why);
        assert_non_null(to->core.why);
        /* Nothing is taken any more, and nothing is sent. */
        size_t before = to->out.len;
        assert_int_equal(tunnel_core_feed(&to->core, buf_view(&bytes)), -EPROTO);
        tunnel_core_ping(&to->core);
        assert_int_equal(to->out.len, before);
        end_fini(&a);
        end_fini(&b);
    }
}

/* More than the window fails; at most the window is sent; half of it consumed is granted again. */
static void test_credit(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    struct tunnel_stream *s = open_one(&a, &b);
    b.keeps_all = true;
    size_t sent = 0, n;
    while ((n = send_all(&a, s, 'x', SIZE_MAX)) > 0) {
        sent += n;
        both(&a, &b, 70000);
        tunnel_core_sent(&a.core);
    }
    assert_int_equal(sent, TUNNEL_WINDOW);
    assert_int_equal(b.got[0], TUNNEL_WINDOW);
    uint32_t before = a.credits;
    tunnel_core_consumed(&b.core, &b.stream[0], TUNNEL_WINDOW / 2 - 1);
    both(&a, &b, 70000);
    assert_int_equal(a.credits, before); /* not worth a frame yet */
    tunnel_core_consumed(&b.core, &b.stream[0], 1);
    both(&a, &b, 70000);
    assert_int_equal(a.credits, before + 1);
    assert_int_equal(s->may_send, TUNNEL_WINDOW / 2);
    /* A peer that sends on regardless. */
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    s->may_send = TUNNEL_WINDOW;
    for (uint32_t left = TUNNEL_WINDOW; left > 0; left -= TUNNEL_DATA_MAX)
        send_all(&a, s, 'x', TUNNEL_DATA_MAX);
    assert_int_equal(carry(&a, &b, 70000), -EPROTO);
    end_fini(&a);
    end_fini(&b);
}

/* A stream that nobody reads keeps its window's worth, and the other goes on for many windows. */
static void test_stalled_stream(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    struct tunnel_stream *s = open_one(&a, &b);
    b.keeps_all = true;
    for (int i = 0; i < 9; i++) {
        send_all(&a, s, 'x', SIZE_MAX);
        both(&a, &b, 4096);
    }
    assert_int_equal(b.got[0], TUNNEL_WINDOW);
    struct tunnel_stream *t = open_one(&a, &b);
    b.keeps_all = false;
    size_t sent = 0;
    for (int i = 0; i < 40; i++) {
        sent += send_all(&a, t, 'y', 100000);
        both(&a, &b, 4096);
    }
    assert_int_equal(sent, 4000000);
    assert_int_equal(b.got[1], 4000000);
    assert_int_equal(b.got[0], TUNNEL_WINDOW);
    end_fini(&a);
    end_fini(&b);
}

/* While the connection is full, data waits where it is; then the streams go on in turn. */
static void test_turns(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    struct tunnel_stream *filler[2] = { open_one(&a, &b), open_one(&a, &b) };
    for (size_t i = 0; i < 3; i++)
        a.greedy[i] = open_one(&a, &b);
    memset(a.order, 0, sizeof a.order);
    while (send_all(&a, filler[0], 'f', SIZE_MAX) + send_all(&a, filler[1], 'f', SIZE_MAX) > 0) {
    }
    assert_true(tunnel_core_unsent(&a.core) >= TUNNEL_OUT_BYTES);
    assert_true(tunnel_core_unsent(&a.core) < TUNNEL_OUT_BYTES + TUNNEL_DATA_MAX + 64);
    size_t room;
    for (size_t i = 0; i < 3; i++)
        assert_null(tunnel_core_data_begin(&a.core, a.greedy[i], &room));
    for (int i = 0; i < 9; i++) { /* each time there is room for one */
        a.sent = a.out.len - TUNNEL_OUT_BYTES + 1;
        tunnel_core_sent(&a.core);
    }
    assert_string_equal(a.order, "abcabcabc");
    end_fini(&a);
    end_fini(&b);
}

static void test_bounds(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    for (int i = 0; i < STREAMS_MAX; i++)
        open_one(&a, &b);
    assert_int_equal(tunnel_core_open(&a.core, &a.stream[20], 1), -ENOSPC);
    /* One that the acceptor has no room for, and one that it refuses. */
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    put(&bytes, TUNNEL_OPEN, 1, 100);
    assert_int_equal(tunnel_core_feed(&b.core, buf_view(&bytes)), 0);
    uint8_t *reply = (uint8_t *)b.out.data;
    assert_int_equal(b.out.len, TUNNEL_FRAME_BYTES);
    assert_int_equal(reply[0], TUNNEL_RESET);
    assert_int_equal(reply[4], TUNNEL_RESET_FULL);
    buf_clear(&b.out);
    tunnel_core_reset(&a.core, &a.stream[0], TUNNEL_RESET_CUT);
    b.refuses = true;
    both(&a, &b, 7);
    assert_string_equal(b.log.data + b.log.len - 10, "reset 0 0;");
    end_fini(&a);
    end_fini(&b);

    end_init(&a, true);
    end_init(&b, false);
    b.refuses = true;
    assert_int_equal(tunnel_core_open(&a.core, &a.stream[0], 22), 0);
    both(&a, &b, 7);
    assert_string_equal(b.log.data, "open 22;");
    assert_string_equal(a.log.data, "reset 0 1;");
    end_fini(&a);

    /* A peer that asks and never reads is given up at a bound. */
    buf_clear(&bytes);
    put(&bytes, TUNNEL_PING, 7, 0);
    int rc = 0;
    for (int i = 0; rc == 0 && i < 1000000; i++)
        rc = tunnel_core_feed(&b.core, buf_view(&bytes));
    assert_int_equal(rc, -E2BIG);
    assert_true(b.out.len <= TUNNEL_OUT_BYTES_MAX);
    end_fini(&b);
}

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
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_false_frames),
        cmocka_unit_test(test_credit),
        cmocka_unit_test(test_stalled_stream),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_streams_reach_sockets),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_http),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

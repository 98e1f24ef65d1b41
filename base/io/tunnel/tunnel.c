/* tunnel.c - moves bytes between a tunnel's connection and the sockets of its streams.
 *
 * A socket is read only when its stream may send, straight into the tunnel's send buffer. What comes for a socket
 * is given to it once after each read of the tunnel, so that many small frames cost one send.
 *
 * An object may be on the stack of its callers: what ends is freed in the tunnel's task, at the end of the turn. */
#include "base/io/tunnel/tunnel.h"

#include "base/core/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_AT_ONCE 262144 /* of the tunnel in a turn */
#define READ_BYTES 65536
#define TURNS_AT_ONCE 4 /* of streams that wait for room, in a turn of the loop */

struct pipe { /* a stream and its socket */
    struct tunnel *tunnel;
    struct list node;  /* of tunnel->pipes, or of tunnel->gone */
    struct list dirty; /* of tunnel->dirty */
    struct tunnel_stream stream;
    struct conn conn; /* `in` is not used */
    struct loop_watch watch;
    bool opening; /* opener: until it is accepted; acceptor: until connected, handshake included */
    bool shaking; /* in the TLS handshake */
    bool held_up; /* it could not send: on_credit reads on */
    bool read_ended; /* the socket's end was passed on */
    /* The peer's end has come; it was passed on, after all that was to be written. */
    bool ends, shut;
    bool gone;
};

struct tunnel {
    struct tunnel_config config;
    struct conn conn;
    struct tunnel_core core;
    struct loop_watch watch;
    struct loop_task task;
    struct loop_timer timer;
    struct list pipes, gone, dirty;
    size_t held; /* unsent bytes of all pipes */
    int64_t heard_us;
    bool lost;
    char why[TLS_PROBLEM_BYTES];
    struct tunnel_counts counts;
};

static void touch(struct tunnel *l)
{
    loop_defer(l->config.loop, &l->task);
}

static void lose(struct tunnel *l, const char *why)
{
    if (l->lost) return;
    l->lost = true;
    snprintf(l->why, sizeof l->why, "%s", why);
    loop_watch_del(l->config.loop, &l->watch);
    touch(l);
}

/* ---- sockets ---- */

static void pipe_free(struct pipe *p)
{
    struct tunnel *l = p->tunnel;
    loop_watch_del(l->config.loop, &p->watch);
    if (list_linked(&p->dirty)) list_remove(&p->dirty);
    l->held -= conn_unsent(&p->conn);
    conn_close(&p->conn);
    list_remove(&p->node);
    free(p);
}

static void free_pipes(struct list *pipes)
{
    LIST_EACH_SAFE (pipes, node)
        pipe_free(CONTAINER_OF(node, struct pipe, node));
}

static void pipe_close(struct pipe *p)
{
    if (p->gone) return;
    p->gone = true;
    loop_watch_del(p->tunnel->config.loop, &p->watch);
    conn_hang_up(&p->conn);
    list_remove(&p->node);
    list_push_back(&p->tunnel->gone, &p->node);
    touch(p->tunnel);
}

static void pipe_cut(struct pipe *p, enum tunnel_reset why)
{
    if (p->gone) return;
    if (p->stream.id) p->tunnel->counts.reset[why]++;
    tunnel_core_reset(&p->tunnel->core, &p->stream, why);
    pipe_close(p);
}

static void pipe_update(struct pipe *p)
{
    struct tunnel *l = p->tunnel;
    if (p->gone) return;
    bool connects = p->opening && !l->config.opens;
    bool reads = connects ? p->shaking : !p->opening && !p->read_ended && !p->held_up;
    bool writes = conn_unsent(&p->conn) > 0 || (connects && !p->shaking);
    if (reads && conn_read_waits_to_write(&p->conn)) {
        reads = false;
        writes = true;
    }
    uint32_t events = (reads ? EPOLLIN | EPOLLRDHUP : 0) | (writes ? EPOLLOUT : 0);
    int rc = 0;
    if (events == 0 && !p->opening) /* a hang-up would be reported again and again */
        loop_watch_del(l->config.loop, &p->watch);
    else if (p->watch.added)
        rc = loop_watch_mod(l->config.loop, &p->watch, events);
    else
        rc = loop_watch_add(l->config.loop, &p->watch, events);
    if (rc < 0) pipe_cut(p, TUNNEL_RESET_FULL);
}

/* Writes what the stream brought, and closes the socket when both directions have ended. */
static void pipe_write(struct pipe *p)
{
    struct tunnel *l = p->tunnel;
    if (p->gone || (p->opening && !l->config.opens)) return;
    size_t before = conn_unsent(&p->conn);
    int rc = before > 0 ? conn_flush(&p->conn) : 0;
    size_t taken = before - conn_unsent(&p->conn);
    l->held -= taken;
    tunnel_core_consumed(&l->core, &p->stream, taken);
    if (rc < 0 && rc != -EAGAIN) {
        pipe_cut(p, TUNNEL_RESET_CUT);
        return;
    }
    if (rc == 0 && p->ends && p->read_ended) {
        pipe_close(p);
        return;
    }
    if (rc == 0 && p->ends && !p->shut) {
        p->shut = true;
        conn_end(&p->conn);
    }
    if (rc == 0) conn_trim(&p->conn);
    pipe_update(p);
}

/* Passes on the end of what the socket sends. A pair's other end ends only by closing whole: then nobody reads
 * the stream any more. */
static void pipe_ended(struct pipe *p)
{
    if (p->tunnel->config.opens) {
        pipe_cut(p, TUNNEL_RESET_CUT);
        return;
    }
    p->read_ended = true;
    tunnel_core_end(&p->tunnel->core, &p->stream);
    pipe_write(p); /* the last direction to end closes */
}

static void pipe_read(struct pipe *p)
{
    struct tunnel_core *core = &p->tunnel->core;
    size_t room;
    char *to = NULL;
    while (!p->gone && !p->read_ended && (to = tunnel_core_data_begin(core, &p->stream, &room))) {
        ssize_t count = conn_receive(&p->conn, to, room);
        tunnel_core_data_end(core, &p->stream, count > 0 ? (size_t)count : 0);
        if (count == 0) {
            pipe_ended(p);
            return;
        }
        if (count < 0 && count != -EAGAIN) {
            pipe_cut(p, TUNNEL_RESET_CUT);
            return;
        }
        if (count < 0 || ((size_t)count < room && !conn_pending(&p->conn))) break;
    }
    p->held_up = !to;
    pipe_update(p);
}

static void pipe_connected(struct pipe *p)
{
    p->opening = p->shaking = false;
    tunnel_core_accept(&p->tunnel->core, &p->stream);
    pipe_write(p);
    pipe_read(p);
}

static void pipe_shake(struct pipe *p)
{
    int rc = conn_handshake(&p->conn);
    if (rc == 0)
        pipe_connected(p);
    else if (rc != -EAGAIN)
        pipe_cut(p, TUNNEL_RESET_REFUSED);
    else
        pipe_update(p);
}

static void pipe_connect(struct pipe *p)
{
    int problem = 0;
    socklen_t len = sizeof problem;
    if (getsockopt(p->conn.fd, SOL_SOCKET, SO_ERROR, &problem, &len) < 0) problem = errno;
    if (problem != 0) {
        pipe_cut(p, TUNNEL_RESET_REFUSED);
    } else if (p->conn.tls) {
        p->shaking = true;
        pipe_shake(p);
    } else {
        pipe_connected(p);
    }
}

static void on_pipe_event(void *arg, uint32_t events)
{
    struct pipe *p = arg;
    touch(p->tunnel);
    if (p->opening && p->tunnel->config.opens) { /* it does not wait any longer */
        pipe_cut(p, TUNNEL_RESET_CUT);
    } else if (p->shaking) {
        pipe_shake(p);
    } else if (p->opening) {
        pipe_connect(p);
    } else {
        if (events & EPOLLOUT) pipe_write(p);
        if (!p->gone && (events & ~(uint32_t)EPOLLOUT || conn_read_waits_to_write(&p->conn)))
            pipe_read(p);
    }
}

static struct pipe *pipe_new(struct tunnel *l, int fd)
{
    struct pipe *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->tunnel = l;
    p->opening = true;
    /* Twice: bytes that were sent are moved out only when they are the larger part. */
    conn_init(&p->conn, fd, CONN_KEEP_BYTES, (size_t)2 * TUNNEL_WINDOW);
    p->watch = (struct loop_watch){ .fd = fd, .fn = on_pipe_event, .arg = p };
    list_push_back(&l->pipes, &p->node);
    l->counts.opened++;
    return p;
}

/* ---- streams ---- */

static struct pipe *pipe_of(struct tunnel_stream *s)
{
    return CONTAINER_OF(s, struct pipe, stream);
}

static void mark_dirty(struct pipe *p)
{
    if (!list_linked(&p->dirty)) list_push_back(&p->tunnel->dirty, &p->dirty);
}

static struct tunnel_stream *on_open(void *arg, uint16_t port, enum tunnel_reset *ret_why)
{
    struct tunnel *l = arg;
    struct tunnel_target to = { 0 };
    *ret_why = TUNNEL_RESET_REFUSED;
    if (!l->config.on_dial || !l->config.on_dial(l->config.arg, port, &to)) return NULL;
    int fd = conn_connect(&to.addr);
    struct pipe *p = fd < 0 ? NULL : pipe_new(l, fd);
    if (!p) {
        if (fd >= 0) close(fd);
        return NULL;
    }
    int rc = to.tls ? tls_connect(to.tls, fd, to.host, &p->conn.tls) : 0;
    if (rc == 0) rc = loop_watch_add(l->config.loop, &p->watch, EPOLLOUT);
    if (rc == 0) return &p->stream;
    pipe_close(p);
    *ret_why = TUNNEL_RESET_FULL;
    return NULL;
}

static void on_data(void *arg, struct tunnel_stream *s, struct str data)
{
    struct tunnel *l = arg;
    struct pipe *p = pipe_of(s);
    if (l->held + data.len > TUNNEL_HELD_BYTES_MAX || buf_str(&p->conn.out, data) < 0) {
        pipe_cut(p, TUNNEL_RESET_FULL);
        return;
    }
    l->held += data.len;
    mark_dirty(p);
}

static void on_credit(void *arg, struct tunnel_stream *s)
{
    (void)arg;
    struct pipe *p = pipe_of(s);
    const char ready = TUNNEL_READY;
    if (!p->opening) {
        if (p->held_up) pipe_read(p);
    } else if (send(p->conn.fd, &ready, 1, MSG_NOSIGNAL) == 1) {
        p->opening = false;
        pipe_update(p);
    } else {
        pipe_cut(p, TUNNEL_RESET_CUT);
    }
}

static void on_end(void *arg, struct tunnel_stream *s)
{
    (void)arg;
    pipe_of(s)->ends = true;
    mark_dirty(pipe_of(s));
}

static void on_reset(void *arg, struct tunnel_stream *s, enum tunnel_reset why)
{
    struct tunnel *l = arg;
    l->counts.reset[why]++;
    pipe_close(pipe_of(s));
}

static const struct tunnel_events events_of_core = { on_open, on_data, on_credit, on_end,
                                                     on_reset };

/* ---- the connection ---- */

static void write_dirty(struct tunnel *l)
{
    struct list *node;
    while ((node = list_pop_front(&l->dirty)))
        pipe_write(CONTAINER_OF(node, struct pipe, dirty));
}

static void read_tunnel(struct tunnel *l)
{
    size_t taken = 0;
    while (!l->lost && taken < READ_AT_ONCE) {
        ssize_t count = conn_read(&l->conn, READ_BYTES);
        if (count == -EAGAIN) break;
        if (count <= 0) {
            lose(l, count == 0 ? "the peer has closed the connection" : strerror((int)-count));
            break;
        }
        taken += (size_t)count;
        l->counts.bytes_in += (uint64_t)count;
        l->heard_us = loop_now_us(l->config.loop);
        if (tunnel_core_feed(&l->core, buf_view(&l->conn.in)) < 0) lose(l, l->core.why);
        buf_clear(&l->conn.in);
        if (!l->conn.tls && count < CONN_READ_MIN) break;
    }
    write_dirty(l);
}

static void write_tunnel(struct tunnel *l)
{
    for (int turn = 0; !l->lost && turn < TURNS_AT_ONCE; turn++) {
        uint64_t before = l->conn.sent;
        int rc = conn_flush(&l->conn);
        l->counts.bytes_out += l->conn.sent - before;
        if (rc < 0 && rc != -EAGAIN) {
            lose(l, strerror(-rc));
            return;
        }
        if (list_empty(&l->core.waiting) || conn_unsent(&l->conn) > TUNNEL_OUT_BYTES / 2) break;
        tunnel_core_sent(&l->core);
    }
    if (conn_unsent(&l->conn) == 0) conn_trim(&l->conn);
}

static void on_event(void *arg, uint32_t events)
{
    struct tunnel *l = arg;
    touch(l);
    if (events & ~(uint32_t)EPOLLOUT || conn_read_waits_to_write(&l->conn)) read_tunnel(l);
}

/* Sends what has gathered in this turn, and frees what has ended. */
static void on_task(void *arg)
{
    struct tunnel *l = arg;
    if (!l->lost && conn_pending(&l->conn)) read_tunnel(l);
    write_tunnel(l);
    if (l->core.rc < 0) lose(l, l->core.why);
    free_pipes(&l->gone);
    if (l->lost) {
        free_pipes(&l->pipes);
        l->config.on_lost(l->config.arg, l->why);
        return;
    }
    if (conn_pending(&l->conn)) touch(l);
    uint32_t events = EPOLLIN | EPOLLRDHUP;
    if (conn_unsent(&l->conn) > 0) events |= EPOLLOUT;
    if (loop_watch_mod(l->config.loop, &l->watch, events) < 0)
        lose(l, "its events cannot be watched");
}

static void on_timer(void *arg)
{
    struct tunnel *l = arg;
    int64_t now_us = loop_now_us(l->config.loop), quiet_us = now_us - l->heard_us;
    if (l->lost) return;
    if (quiet_us >= l->config.silence_us) {
        lose(l, "the peer is silent");
        return;
    }
    if (quiet_us >= l->config.ping_us && !l->core.pinged) tunnel_core_ping(&l->core);
    touch(l);
    if (loop_timer_set(l->config.loop, &l->timer, now_us + l->config.ping_us) < 0)
        lose(l, "its clock cannot be set");
}

int tunnel_new(const struct tunnel_config *config, struct conn *conn, struct tunnel **ret,
               struct err *err)
{
    struct tunnel *l = calloc(1, sizeof *l);
    if (!l) return err_set(err, -ENOMEM, "no memory for a tunnel");
    l->config = *config;
    if (l->config.ping_us == 0) l->config.ping_us = TUNNEL_PING_US;
    if (l->config.silence_us == 0) l->config.silence_us = TUNNEL_SILENCE_US;
    list_init(&l->pipes);
    list_init(&l->gone);
    list_init(&l->dirty);
    l->conn = *conn;
    l->heard_us = loop_now_us(config->loop);
    l->watch = (struct loop_watch){ .fd = conn->fd, .fn = on_event, .arg = l };
    l->task = (struct loop_task){ .fn = on_task, .arg = l };
    l->timer = (struct loop_timer){ .fn = on_timer, .arg = l };
    int rc = loop_watch_add(config->loop, &l->watch, EPOLLIN | EPOLLRDHUP);
    if (rc == 0) rc = loop_timer_set(config->loop, &l->timer, l->heard_us + l->config.ping_us);
    if (rc < 0) {
        loop_watch_del(config->loop, &l->watch);
        free(l);
        return err_set(err, rc, "no memory for a tunnel");
    }
    *conn = (struct conn){ .fd = -1 };
    tunnel_core_init(&l->core, &events_of_core, l, config->opens, config->streams_max, &l->conn.out,
                     &l->conn.out_pos);
    if (l->conn.in.len > 0) { /* frames that came with the last bytes of before */
        if (tunnel_core_feed(&l->core, buf_view(&l->conn.in)) < 0) lose(l, l->core.why);
        buf_clear(&l->conn.in);
    }
    touch(l);
    *ret = l;
    return 0;
}

void tunnel_free(struct tunnel *l)
{
    if (!l) return;
    free_pipes(&l->pipes);
    free_pipes(&l->gone);
    loop_watch_del(l->config.loop, &l->watch);
    loop_timer_clear(l->config.loop, &l->timer);
    loop_defer_clear(l->config.loop, &l->task);
    tunnel_core_fini(&l->core);
    conn_close(&l->conn);
    free(l);
}

int tunnel_open(struct tunnel *l, uint16_t port, int fd_owned)
{
    struct pipe *p = l->lost ? NULL : pipe_new(l, fd_owned);
    if (!p) {
        close(fd_owned);
        return l->lost ? -EPIPE : -ENOMEM;
    }
    int rc = loop_watch_add(l->config.loop, &p->watch, 0);
    if (rc == 0) rc = tunnel_core_open(&l->core, &p->stream, port);
    if (rc < 0) pipe_close(p);
    touch(l);
    return rc;
}

uint32_t tunnel_streams(const struct tunnel *l)
{
    return (uint32_t)l->core.streams.count;
}

void tunnel_counts_get(const struct tunnel *l, struct tunnel_counts *ret)
{
    *ret = l->counts;
}

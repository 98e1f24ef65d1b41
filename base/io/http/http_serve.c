/* http_serve.c - reads requests from connections, and keeps every deadline of a connection.
 *
 * A request lives in the connection's receive buffer: head, then body, then the bytes that the client
 * pipelined. A chunked body is moved together in place. So nothing is copied and the handler sees
 * one piece. Nothing is read while an exchange is open: that bounds pipelining by one read, and
 * TCP holds the client back.
 *
 * All sending, going on to the next request and freeing happen in one task at the end of the
 * turn. So replies written in a turn leave in one send, http_reply never recurses into the next
 * handler, and no object is freed while a caller uses it. */
#include "base/io/http/http_serve.h"

#include "base/core/bits.h"
#include "base/core/fault.h"

#include <stdlib.h>
#include <unistd.h>

#define READ_AT_ONCE 262144    /* of one connection in a turn, so that the others get theirs */
#define PIPELINE_BYTES 65536   /* room behind a request for what came with its last read */
#define LINGER_US 2000000      /* for the client to read our last answer before the close; */
#define LINGER_MAX_US 10000000 /* while it goes on sending, at most so long */
#define DRAIN_FRESH_US 1000000 /* for a connection that has not asked anything yet */

static void advance(struct http_exchange *x);

/* ---- stages ---- */

void serve_enter(struct http_exchange *x, enum serve_stage stage)
{
    if (list_linked(&x->node)) list_remove(&x->node);
    list_push_back(&x->server->stage[stage], &x->node);
    x->stage = stage;
    x->since_us = loop_now_us(x->server->loop);
}

/* ---- leaving ---- */

void serve_touch(struct http_exchange *x)
{
    loop_defer(x->server->loop, &x->task);
}

static void kill_conn(struct http_exchange *x)
{
    serve_enter(x, SERVE_DEAD);
    loop_watch_del(x->server->loop, &x->watch);
    loop_timer_clear(x->server->loop, &x->timer);
    serve_touch(x);
}

void serve_abort(struct http_exchange *x, enum http_abort why)
{
    if (x->stage == SERVE_DEAD) return;
    bool open = x->stage == SERVE_OPEN || x->stage == SERVE_CHECK;
    if (open || x->stage == SERVE_SENDING) server_cut(x->server, why);
    kill_conn(x);
    void (*fn)(void *, enum http_abort) = open ? x->on_abort : NULL;
    if (fn) fn(x->arg, why);
}

void serve_hand_over(struct http_exchange *x, struct conn *ret)
{
    must(!x->pinned);
    kill_conn(x);
    buf_consume(&x->conn.in, x->body_pos); /* what came behind the request is the new protocol's */
    *ret = x->conn;
    conn_init(&x->conn, -1, 0, 0);
    held_count(x);
}

void serve_free(struct http_exchange *x)
{
    struct http_server *s = x->server;
    loop_watch_del(s->loop, &x->watch);
    loop_timer_clear(s->loop, &x->timer);
    loop_defer_clear(s->loop, &x->task);
    conn_close(&x->conn);
    held_count(x);
    s->dooming_bytes -= x->doomed_bytes;
    buf_fini(&x->headers);
    list_remove(&x->node);
    struct addr from = x->from;
    free(x);
    server_conn_gone(s, &from);
}

void serve_refuse(struct http_exchange *x, enum http_fault fault)
{
    reply_refusal(x, fault);
    serve_enter(x, SERVE_SENDING);
    x->keep_alive = false;
    buf_fini(&x->conn.in); /* its bytes cannot be trusted to start a request */
    held_count(x);
    serve_touch(x);
}

static void start_linger(struct http_exchange *x)
{
    if (x->peer_closed) {
        kill_conn(x);
        return;
    }
    /* Closing with unread input would send a reset, which may overtake our answer. */
    conn_end(&x->conn);
    serve_enter(x, SERVE_LINGER);
    x->deadline_us = loop_now_us(x->server->loop) + LINGER_US;
    x->linger_until_us = loop_now_us(x->server->loop) + LINGER_MAX_US;
}

static void read_linger(struct http_exchange *x)
{
    char rest[READ_AT_ONCE / 16];
    ssize_t count = recv(x->conn.fd, rest, sizeof rest, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) kill_conn(x);
    if (count > 0) /* the rest of a refused body: the client reads our answer after sending it */
        x->deadline_us = min_i64(loop_now_us(x->server->loop) + LINGER_US, x->linger_until_us);
}

/* ---- requests ---- */

static void open_exchange(struct http_exchange *x)
{
    struct http_server *s = x->server;
    enum http_fault fault;
    if (x->parsed_at != x->conn.in.data) {
        /* The buffer grew under the body and moved. The same bytes parse the same way. */
        int rc = http1_request_parse(str_of(x->conn.in.data, x->head_len), &s->head_limits,
                                     &x->request, &fault);
        must(rc == 0);
    }
    x->request.body = str_of(x->conn.in.data + x->head_len, x->body_len);
    x->request.peer = str_from(x->peer);
    x->request.received_us = loop_now_us(s->loop);
    x->keep_alive = x->request.keep_alive;
    serve_enter(x, SERVE_OPEN);
    x->deadline_us = 0;
    count_add(&s->counts.requests, 1);
    s->config.on_request(s->config.ctx, x);
    if (x->stage == SERVE_OPEN && x->peer_closed) serve_abort(x, HTTP_ABORT_CLIENT_LEFT);
}

static void take_body(struct http_exchange *x)
{
    size_t bytes_max = x->body_max;
    while (!x->body.done && x->body_pos < x->conn.in.len) {
        enum http_fault fault;
        struct str data;
        size_t used;
        struct str in = str_of(x->conn.in.data + x->body_pos, x->conn.in.len - x->body_pos);
        if (http1_body_next(&x->body, in, &used, &data, &fault) < 0) {
            serve_refuse(x, fault);
            return;
        }
        /* `left` is what the current chunk still announces: refused before it is sent. */
        if (x->body_len + data.len > bytes_max ||
            x->body.left > bytes_max - x->body_len - data.len) {
            serve_refuse(x, HTTP_FAULT_BODY_LONG);
            return;
        }
        char *to = x->conn.in.data + x->head_len + x->body_len;
        if (data.len && data.data != to) memmove(to, data.data, data.len);
        x->body_len += data.len;
        x->body_pos += used;
    }
    if (x->body.done) {
        open_exchange(x);
    } else {
        /* All bytes were used: the framing of chunks gives its room back. */
        x->conn.in.len = x->body_pos = x->head_len + x->body_len;
    }
}

/* Returns true if the whole body came with the head, so that the next request's first byte is known. */
static bool body_is_here(const struct http_exchange *x)
{
    const struct http_request *req = &x->request;
    if (req->body_kind == HTTP_BODY_NONE) return true;
    return req->body_kind == HTTP_BODY_COUNTED && x->conn.in.len - x->head_len >= req->body_length;
}

/* Lets the handler look at the head. Returns false when it has answered. */
static bool check_head(struct http_exchange *x)
{
    struct http_server *s = x->server;
    memset(x->note, 0, sizeof x->note);
    x->body_max = s->limits.body_bytes_max;
    if (!s->config.on_head) return true;
    bool here = body_is_here(x);
    x->request.peer = str_from(x->peer);
    x->request.received_us = loop_now_us(s->loop);
    x->keep_alive = x->request.keep_alive && here;
    x->body_pos = x->head_len + (here ? (size_t)x->request.body_length : 0);
    serve_enter(x, SERVE_CHECK);
    s->config.on_head(s->config.ctx, x);
    if (x->stage == SERVE_CHECK) return true;
    count_add(&s->counts.head_replies, 1);
    if (!x->keep_alive) {
        buf_fini(&x->conn.in); /* no request is read from here any more */
        held_count(x);
    }
    return false;
}

static void begin_body(struct http_exchange *x)
{
    struct http_server *s = x->server;
    struct http_request *req = &x->request;
    if (req->body_kind == HTTP_BODY_COUNTED && req->body_length > x->body_max) {
        serve_refuse(x, HTTP_FAULT_BODY_LONG);
        return;
    }
    http1_body_init(&x->body, req->body_kind, req->body_length, true);
    x->body_len = 0;
    x->body_pos = x->head_len;
    serve_enter(x, SERVE_BODY);
    x->deadline_us = loop_now_us(s->loop) + s->limits.body_us;
    if (req->expect_continue && !x->body.done && x->conn.in.len == x->head_len) {
        buf_text(&x->conn.out, "HTTP/1.1 100 Continue\r\n\r\n");
        serve_touch(x);
    }
    take_body(x);
}

static void read_head(struct http_exchange *x)
{
    const struct http1_limits *limits = &x->server->head_limits;
    enum http_fault fault;
    int rc = http1_scan(&x->scan, buf_view(&x->conn.in), limits, &x->head_len, &fault);
    if (rc == -EAGAIN) return;
    if (rc == 0)
        rc = http1_request_parse(str_of(x->conn.in.data, x->head_len), limits, &x->request, &fault);
    if (rc < 0) {
        serve_refuse(x, fault);
        return;
    }
    x->parsed_at = x->conn.in.data;
    if (check_head(x)) begin_body(x);
}

/* Advances the request as far as the received bytes allow. */
static void advance(struct http_exchange *x)
{
    if (x->stage == SERVE_IDLE && x->conn.in.len > 0) {
        serve_enter(x, SERVE_HEAD);
        x->deadline_us = loop_now_us(x->server->loop) + x->server->limits.head_us;
    }
    if (x->stage == SERVE_HEAD)
        read_head(x);
    else if (x->stage == SERVE_BODY)
        take_body(x);
}

static void next_request(struct http_exchange *x)
{
    buf_consume(&x->conn.in, x->body_pos);
    conn_trim(&x->conn);
    held_count(x);
    x->scan = (struct http1_scan){ 0 };
    x->body_pos = x->body_len = x->head_len = 0;
    x->streaming = x->chunked = x->was_full = x->input_waits = false;
    x->unsent_since_us = 0;
    buf_clear(&x->headers);
    serve_enter(x, SERVE_IDLE);
    x->deadline_us = loop_now_us(x->server->loop) + x->server->limits.idle_us;
    advance(x);
}

/* ---- events ---- */

static bool is_reading(const struct http_exchange *x)
{
    return x->stage == SERVE_IDLE || x->stage == SERVE_HEAD || x->stage == SERVE_BODY;
}

/* Returns how many bytes to ask for: of a counted body exactly the missing ones. */
static size_t read_want(const struct http_exchange *x)
{
    if (x->stage == SERVE_BODY && x->body.kind == HTTP_BODY_COUNTED) return (size_t)x->body.left;
    return PIPELINE_BYTES;
}

static void read_request(struct http_exchange *x)
{
    struct http_server *s = x->server;
    size_t taken = 0;
    while (is_reading(x) && taken < READ_AT_ONCE) {
        ssize_t count = conn_read(&x->conn, read_want(x));
        if (count == -EAGAIN) return;
        held_count(x);
        if (count > 0) count_add(&s->counts.bytes_in, (uint64_t)count);
        bool fits = count != -ENOMEM && held_fits(x);
        if (!is_reading(x)) return; /* held_fits has refused this very request */
        if (!fits) {
            serve_refuse(x, HTTP_FAULT_MEMORY);
            return;
        }
        if (count <= 0) { /* the end, or a reset; a request that is cut short is dropped */
            kill_conn(x);
            return;
        }
        taken += (size_t)count;
        advance(x);
    }
}

static void begin_idle(struct http_exchange *x)
{
    struct http_server *s = x->server;
    serve_enter(x, SERVE_IDLE);
    x->deadline_us = loop_now_us(s->loop) + (s->draining ? DRAIN_FRESH_US : s->limits.idle_us);
}

static void shake_failed(struct http_exchange *x, int rc)
{
    if (rc == -EPROTONOSUPPORT) { /* the peer speaks plain HTTP and is refused in it */
        conn_drop_tls(&x->conn);
        serve_refuse(x, HTTP_FAULT_PLAIN);
    } else {
        server_refused(x->server, HTTP_FAULT_TLS);
        kill_conn(x);
    }
}

static void shake(struct http_exchange *x)
{
    int rc = conn_handshake(&x->conn);
    if (rc == -EAGAIN) return;
    if (rc < 0) {
        shake_failed(x, rc);
        return;
    }
    begin_idle(x);
    read_request(x);
}

static void on_event(void *arg, uint32_t events)
{
    struct http_exchange *x = arg;
    serve_touch(x);
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) x->peer_closed = true;
    if (events & (EPOLLHUP | EPOLLERR)) {
        serve_abort(x, HTTP_ABORT_CLIENT_LEFT);
    } else if (x->stage == SERVE_SHAKE) {
        shake(x);
    } else if (x->stage == SERVE_LINGER) {
        read_linger(x);
    } else if (is_reading(x)) {
        if (events & (EPOLLIN | EPOLLRDHUP) || conn_read_waits_to_write(&x->conn)) read_request(x);
    } else if (x->stage == SERVE_OPEN && x->peer_closed) {
        serve_abort(x, HTTP_ABORT_CLIENT_LEFT);
    } else if (events & EPOLLIN) {
        x->input_waits = true; /* a pipelined request: its turn comes */
    }
}

/* Returns the events to be woken for. While an exchange is open and its client is quiet nothing changes
 * here, so that a request costs no epoll_ctl. */
static uint32_t wanted_events(const struct http_exchange *x)
{
    bool reads = x->stage == SERVE_SHAKE || is_reading(x);
    if (reads && conn_read_waits_to_write(&x->conn)) return EPOLLOUT;
    uint32_t events = conn_unsent(&x->conn) > 0 ? (uint32_t)EPOLLOUT : 0;
    if (reads || x->stage == SERVE_LINGER) return events | EPOLLIN | EPOLLRDHUP;
    if (x->peer_closed) return events;
    return events | EPOLLRDHUP | (x->input_waits ? 0 : (uint32_t)EPOLLIN);
}

/* ---- the task at the end of a turn ---- */

/* Sets the mark that the client must reach within unsent_us: all bytes that are unsent now, but at most
 * unsent_bytes_max or a quarter of them, whichever is more. A reader that trickles one byte at a time
 * does not move the mark, and one that takes 256 KiB of 35 MB does not get there. */
static void mark_unsent(struct http_exchange *x)
{
    struct http_server *s = x->server;
    size_t unsent = conn_unsent(&x->conn);
    if (unsent == 0) {
        x->mark_us = x->unsent_since_us = 0;
    } else if (x->mark_us == 0 || x->conn.sent >= x->mark) {
        size_t part = max_size(s->limits.unsent_bytes_max, unsent / 4);
        x->mark = x->conn.sent + min_size(unsent, part);
        x->mark_us = loop_now_us(s->loop) + s->limits.unsent_us;
    }
    if (unsent > 0 && x->unsent_since_us == 0) x->unsent_since_us = loop_now_us(s->loop);
    x->deadline_us = x->mark_us;
}

static void call_drain(struct http_exchange *x)
{
    if (x->stage != SERVE_OPEN || !x->was_full) return;
    if (conn_unsent(&x->conn) > x->server->limits.unsent_bytes_max / 2) return;
    x->was_full = false;
    if (x->on_drain) x->on_drain(x->arg);
}

static void send_some(struct http_exchange *x)
{
    uint64_t before = x->conn.sent;
    int rc = conn_unsent(&x->conn) > 0 ? conn_flush(&x->conn) : 0;
    count_add(&x->server->counts.bytes_out, x->conn.sent - before);
    if (rc < 0 && rc != -EAGAIN) {
        serve_abort(x, HTTP_ABORT_CLIENT_LEFT);
        return;
    }
    if (rc == 0) conn_trim(&x->conn); /* a stream whose reader was slow for a while */
    if (rc == 0 && x->stage == SERVE_SENDING) {
        if (x->keep_alive && !x->server->draining)
            next_request(x);
        else
            start_linger(x);
    }
}

/* Sets the timer to the deadline. A timer that fires earlier is left alone: it looks at deadline_us when
 * it does. */
static int arm(struct http_exchange *x)
{
    if (x->deadline_us == 0) return 0;
    if (loop_timer_is_set(&x->timer) && x->timer.node.key <= x->deadline_us) return 0;
    return loop_timer_set(x->server->loop, &x->timer, x->deadline_us);
}

static void on_task(void *arg)
{
    struct http_exchange *x = arg;
    if (x->doomed_bytes > 0) serve_abort(x, HTTP_ABORT_MEMORY);
    if (x->stage == SERVE_DEAD) {
        if (!x->pinned) serve_free(x);
        return;
    }
    send_some(x);
    call_drain(x);
    if (is_reading(x) && conn_pending(&x->conn)) {
        read_request(x);
        if (conn_pending(&x->conn)) serve_touch(x);
    }
    bool grew = held_count(x);
    /* The exchange was written to again, or is dead: the next turn's task sends, or frees, first. */
    if (list_linked(&x->task.node)) return;
    if (x->stage == SERVE_OPEN || x->stage == SERVE_SENDING) mark_unsent(x);
    if (grew) (void)held_fits(x);
    if (arm(x) < 0 || loop_watch_mod(x->server->loop, &x->watch, wanted_events(x)) < 0)
        serve_abort(x, HTTP_ABORT_SERVER);
}

static void on_timer(void *arg)
{
    struct http_exchange *x = arg;
    serve_touch(x); /* arms it again where the deadline has moved */
    if (x->deadline_us == 0 || loop_now_us(x->server->loop) < x->deadline_us) return;
    switch (x->stage) {
    case SERVE_IDLE:
        server_closed(x->server, &x->server->counts.idle_closed, "idle");
        kill_conn(x);
        break;
    case SERVE_SHAKE:
        shake_failed(x, -ETIMEDOUT);
        break;
    case SERVE_HEAD:
        serve_refuse(x, HTTP_FAULT_HEAD_LATE);
        break;
    case SERVE_BODY:
        serve_refuse(x, HTTP_FAULT_BODY_LATE);
        break;
    case SERVE_OPEN:
    case SERVE_SENDING:
        serve_abort(x, HTTP_ABORT_SLOW_READER);
        break;
    case SERVE_CHECK: /* never in between turns */
    case SERVE_LINGER:
    case SERVE_DEAD:
        kill_conn(x);
        break;
    }
}

/* Returns the connection that has been longest in a stage without a whole request. Time decides and not
 * the stage: a connection just accepted is idle too, and must not go before a head that never ends. */
static struct http_exchange *longest_without_request(struct http_server *s)
{
    static const enum serve_stage stages[] = { SERVE_IDLE, SERVE_LINGER, SERVE_SHAKE, SERVE_HEAD };
    struct http_exchange *longest = NULL;
    for (size_t i = 0; i < COUNT_OF(stages); i++) {
        struct list *l = &s->stage[stages[i]];
        if (list_empty(l)) continue;
        struct http_exchange *x = CONTAINER_OF(l->next, struct http_exchange, node);
        if (!longest || x->since_us < longest->since_us) longest = x;
    }
    return longest;
}

bool serve_make_room(struct http_server *s)
{
    struct http_exchange *x = longest_without_request(s);
    if (!x) return false;
    if (x->stage == SERVE_HEAD) {
        reply_refusal(x, HTTP_FAULT_HEAD_LATE);
        (void)conn_flush(&x->conn);
    }
    server_closed(s, &s->counts.room_closed, "room");
    serve_free(x);
    return true;
}

void serve_drain(struct http_exchange *x)
{
    if (x->stage != SERVE_IDLE) return;
    if (x->request.method.data) { /* it has been served */
        kill_conn(x);
        return;
    }
    x->deadline_us = loop_now_us(x->server->loop) + DRAIN_FRESH_US;
    serve_touch(x);
}

struct http_exchange *serve_new(struct http_server *s, int fd, const struct addr *peer)
{
    struct http_exchange *x = FAULT("http.connection") ? NULL : calloc(1, sizeof *x);
    if (!x) return NULL;
    x->server = s;
    x->from = *peer;
    conn_init(&x->conn, fd, s->limits.head_bytes_max + s->limits.body_bytes_max + PIPELINE_BYTES,
              BUF_BYTES_MAX);
    x->watch = (struct loop_watch){ .fd = fd, .fn = on_event, .arg = x };
    x->timer = (struct loop_timer){ .fn = on_timer, .arg = x };
    x->task = (struct loop_task){ .fn = on_task, .arg = x };
    const struct http_server_config *c = &s->config;
    x->deadline_us = loop_now_us(s->loop) + (c->tls ? s->limits.head_us : s->limits.idle_us);
    addr_text(peer, x->peer);
    if (c->tls && tls_accept(c->tls, fd, &x->conn.tls) < 0) {
        free(x);
        return NULL;
    }
    if (arm(x) < 0 || loop_watch_add(s->loop, &x->watch, EPOLLIN | EPOLLRDHUP) < 0) {
        loop_timer_clear(s->loop, &x->timer);
        conn_drop_tls(&x->conn);
        free(x);
        return NULL;
    }
    serve_enter(x, c->tls ? SERVE_SHAKE : SERVE_IDLE);
    return x;
}

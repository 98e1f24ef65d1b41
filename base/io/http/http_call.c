/* http_call.c - runs one call: sends its request, reads its reply, and ends it once.
 *
 * Bytes of the reply are handed over as slices of the receive buffer and dropped right after, so
 * a stream of any length needs no more memory than one read. */
#include "base/io/http/http_call.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/io/tunnel/tunnel.h"

#include <stdlib.h>

#define READ_AT_ONCE 262144 /* of one connection in a turn, so that the others get theirs */
#define READ_BYTES 65536
#define INTERIMS_MAX 8 /* 1xx replies before the real one */

void call_free(struct http_call *call)
{
    struct loop *loop = call->client->loop;
    call_forget_name(call);
    loop_timer_clear(loop, &call->deadline);
    loop_defer_clear(loop, &call->task);
    buf_fini(&call->request);
    buf_fini(&call->host);
    free(call->problem);
    list_remove(&call->node);
    free(call);
}

void call_detach(struct http_call *call, bool reusable)
{
    struct http_link *l = TAKE(call->link);
    if (!l) return;
    if (reusable)
        link_give_back(l);
    else
        link_close(l);
}

/* Returns true if the connection can serve again. Both sides must be at the end of this exchange: all was
 * sent, and nothing came behind the reply. */
static bool is_reusable(const struct http_call *call, enum http_end end)
{
    const struct http_link *l = call->link;
    return l && end == HTTP_END_OK && call->response.keep_alive && !l->send_failed &&
           conn_unsent(&l->conn) == 0 && l->conn.in.len == 0 && !conn_pending(&l->conn);
}

void call_end(struct http_call *call, enum http_end end)
{
    if (call->ended) return;
    call->ended = true;
    call_detach(call, is_reusable(call, end));
    call_forget_name(call);
    loop_timer_clear(call->client->loop, &call->deadline);
    loop_defer(call->client->loop, &call->task); /* frees */
    count_add(&call->client->counts.ended[end], 1);
    call->on_end(call->arg, end);
}

/* ---- the request ---- */

void call_begin(struct http_call *call)
{
    call->begun = true;
    if (call->finding) return;
    struct http_link *l = call->link;
    if (!l) {
        call_connect_failed(call, call->connect_rc);
        return;
    }
    l->call = call;
    if (!l->connecting) call_connected(call);
    /* call->link: the call may have ended meanwhile */
    if (call->link) link_update(call->link);
}

void call_connected(struct http_call *call)
{
    struct http_link *l = call->link;
    if (!l->reused) { /* a fresh connection is never retried: no copy to keep */
        buf_fini(&l->conn.out);
        l->conn.out = call->request;
        call->request = (struct buf){ 0 };
    } else if (buf_str(&l->conn.out, buf_view(&call->request)) < 0) {
        call_end(call, HTTP_END_RESET_BEFORE_HEAD);
        return;
    }
    link_send(l);
}

static void call_connect(struct http_call *call)
{
    call->connect_rc = link_connect(call->client, &call->to, buf_view(&call->host), &call->link);
}

static void take_link(struct http_call *call)
{
    call->link = link_take_idle(call->client, &call->to);
    if (!call->link) call_connect(call);
    if (call->link) call->link->call = call;
}

void call_forget_name(struct http_call *call)
{
    call->finding = false;
    resolver_leave(call->client->resolver, &call->name);
    loop_timer_clear(call->client->loop, &call->name_timer);
}

/* Takes the resolver's answer. If the call's task has not run yet, the task begins the call. */
static void on_name(void *arg, int rc, const struct addr *found)
{
    struct http_call *call = arg;
    uint16_t port = call->to.addr.port;
    call->finding = false;
    loop_timer_clear(call->client->loop, &call->name_timer);
    call->connect_rc = rc;
    if (rc == 0) {
        call->to.addr = *found;
        call->to.addr.port = port;
        take_link(call);
    }
    if (call->begun) call_begin(call);
}

static void on_name_late(void *arg)
{
    struct http_call *call = arg;
    call_forget_name(call);
    call_end(call, HTTP_END_NAME);
}

int call_find(struct http_call *call, struct str host, uint16_t port, struct err *err)
{
    struct http_client *c = call->client;
    if (call->host
            .len) { /* a tunnel, or a certificate is for one host, so its connections are too */
        uint8_t digest[SHA256_BYTES];
        sha256(host.data, host.len, digest);
        memcpy(call->to.host, digest, sizeof call->to.host);
    }
    if (tunnel_is_host(host)) {
        call->to.addr.port = port;
        take_link(call);
        return 0;
    }
    if (addr_from_literal(&call->to.addr, host, port) == 0) {
        take_link(call);
        return 0;
    }
    call->name = (struct resolver_use){ .fn = on_name, .arg = call };
    call->name_timer = (struct loop_timer){ .fn = on_name_late, .arg = call };
    call->connect_rc = resolver_ask(c->resolver, host, &call->name, &call->to.addr);
    call->to.addr.port = port;
    if (call->connect_rc == -EINVAL)
        return err_set(err, -EINVAL, "\"" STR_FMT "\" is not a host name", STR_ARG(host));
    if (call->connect_rc == -EINPROGRESS) {
        call->finding = true;
        return loop_timer_set(c->loop, &call->name_timer,
                              loop_now_us(c->loop) + c->config.connect_us);
    }
    if (call->connect_rc == 0) take_link(call);
    return 0;
}

/* Returns true if this side ran short: of descriptors, local ports, memory or timers. */
static bool is_local(int rc)
{
    static const int ours[] = { EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, EADDRNOTAVAIL, EAGAIN };
    for (size_t i = 0; i < COUNT_OF(ours); i++)
        if (rc == -ours[i]) return true;
    return false;
}

void call_connect_failed(struct http_call *call, int rc)
{
    if (rc == -ENOENT) {
        call_end(call, HTTP_END_NAME);
    } else if (is_local(rc)) {
        call_end(call, HTTP_END_LOCAL);
    } else {
        resolver_doubt(call->client->resolver, &call->name);
        call_end(call, call->retried ? HTTP_END_RESET_BEFORE_HEAD : HTTP_END_CONNECT_FAILED);
    }
}

void call_tls_failed(struct http_call *call, const char *problem)
{
    call->problem = strdup(problem);
    call_end(call, HTTP_END_TLS);
}

static bool is_stale(const struct http_call *call)
{
    const struct http_link *l = call->link;
    return l->reused && !call->retried && !call->got_bytes &&
           loop_now_us(call->client->loop) - l->begun_us < HTTP_STALE_US;
}

static void retry_fresh(struct http_call *call)
{
    struct http_client *c = call->client;
    count_add(&c->counts.stale_retried, 1);
    call_detach(call, false);
    call->retried = true;
    call_connect(call);
    call_begin(call);
}

/* ---- the reply ---- */

/* Ends a call after its connection has ended, cleanly (0) or not (negative). After a failed send the
 * kernel has reported the reset already and calls the rest clean. */
static void reply_cut(struct http_call *call, ssize_t how)
{
    if (!call->head_seen && is_stale(call))
        retry_fresh(call);
    else if (!call->head_seen && (how == -EPROTO || how == -ENOKEY)) /* of TLS */
        call_tls_failed(call, tls_problem(call->link->conn.tls));
    else if (!call->head_seen)
        call_end(call, HTTP_END_RESET_BEFORE_HEAD);
    else if (call->body.kind == HTTP_BODY_UNTIL_END && how == 0 && !call->link->send_failed)
        call_end(call, HTTP_END_OK);
    else
        call_end(call, HTTP_END_RESET_AFTER_HEAD);
}

/* Ends the call with its connection handed to the protocol that was asked for. */
static void hand_over(struct http_call *call, size_t head_len)
{
    struct http_link *l = call->link;
    struct http_response *resp = &call->response;
    call->head_seen = true;
    resp->keep_alive = false;
    if (call->on_head) call->on_head(call->arg, resp);
    if (call->ended) return;
    if (!str_eq(http_response_header(resp, "upgrade"), call->upgrade)) {
        call_end(call, HTTP_END_MALFORMED);
        return;
    }
    buf_consume(&l->conn.in, head_len);
    struct conn conn = l->conn;
    loop_watch_del(call->client->loop, &l->watch);
    conn_init(&l->conn, -1, 0, 0);
    call->on_upgrade(call->arg, &conn);
    conn_close(&conn);
    call_end(call, HTTP_END_OK);
}

/* Reads the head. Returns false when it is not whole yet, or the call has ended. */
static bool read_head(struct http_call *call)
{
    struct buf *in = &call->link->conn.in;
    const struct http1_limits *limits = &call->client->head_limits;
    enum http_fault fault;
    size_t len = 0;
    int rc = http1_scan(&call->scan, buf_view(in), limits, &len, &fault);
    if (rc == -EAGAIN) return false;
    struct http_response *resp = &call->response;
    if (rc == 0)
        rc = http1_response_parse(str_of(in->data, len), limits, call->to_head, resp, &fault);
    if (rc == 0 && resp->status == 101 && call->upgrade.len > 0) {
        hand_over(call, len);
        return false;
    }
    if (rc == 0 && resp->status < 200) {
        call->scan = (struct http1_scan){ 0 };
        buf_consume(in, len);
        /* 101 would hand the connection to a protocol that was not asked for. */
        if (resp->status != 101 && ++call->interims <= INTERIMS_MAX) return true;
        rc = -EINVAL;
    }
    if (rc < 0) {
        call_end(call, HTTP_END_MALFORMED);
        return false;
    }
    call->head_seen = true;
    http1_body_init(&call->body, resp->body_kind, resp->body_length, false);
    if (call->on_head) call->on_head(call->arg, resp); /* points into `in` */
    if (!call->ended) buf_consume(in, len);
    return !call->ended;
}

/* Hands over the received body; keeps the bytes that a pause or a partial chunk head leaves. */
static void read_body(struct http_call *call)
{
    struct buf *in = &call->link->conn.in;
    size_t pos = 0;
    while (!call->ended && !call->paused && !call->body.done && pos < in->len) {
        enum http_fault fault;
        struct str data;
        size_t used;
        int rc = http1_body_next(&call->body, str_of(in->data + pos, in->len - pos), &used, &data,
                                 &fault);
        if (rc < 0) {
            call_end(call, HTTP_END_MALFORMED);
            return;
        }
        pos += used;
        if (data.len > 0 && call->on_data) call->on_data(call->arg, data);
    }
    if (!call->ended) buf_consume(in, pos);
}

void call_go_on(struct http_call *call)
{
    while (!call->ended && !call->head_seen)
        if (!read_head(call)) return;
    if (call->ended) return;
    read_body(call);
    if (!call->ended && !call->paused && call->body.done) call_end(call, HTTP_END_OK);
}

void call_readable(struct http_call *call)
{
    size_t taken = 0;
    while (!call->ended && !call->paused && taken < READ_AT_ONCE) {
        ssize_t count = conn_read(&call->link->conn, READ_BYTES);
        if (count == -EAGAIN) return;
        if (count <= 0) {
            reply_cut(call, count);
            return;
        }
        taken += (size_t)count;
        if (!call->got_bytes) buf_fini(&call->request);
        call->got_bytes = true;
        call_go_on(call);
        /* Less than was asked for: nothing is left, and the next event says when more has come. */
        if (!call->ended && !call->link->conn.tls && count < CONN_READ_MIN) return;
    }
}

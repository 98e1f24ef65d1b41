/* http_reply.c - writes replies: heads, whole replies, chunked streams, refusals.
 *
 * Everything is appended to the connection's send buffer and leaves at the end of the turn. Each
 * http_stream_write is a chunk of its own: clients that wrongly take a chunk for an event still
 * work. */
#include "base/core/bits.h"
#include "base/io/http/http_serve.h"
#include "base/io/loop/clock.h"

#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#define CHUNK_FRAME_MAX 24 /* 16 hex digits, two line ends, and some */

/* The ways to mark the end of a body. */
enum framing { COUNTED, CHUNKED, UNTIL_END, BODYLESS };

/* ---- heads ---- */

static struct str date_line(struct http_server *s)
{
    static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    int64_t now_s = clock_wall_us() / 1000000;
    if (now_s != s->date_s || s->date[0] == 0) {
        time_t t = now_s;
        struct tm tm = { 0 };
        gmtime_r(&t, &tm);
        /* Names of our own: strftime would follow the locale. */
        snprintf(s->date, sizeof s->date, "date: %s, %02u %s %04u %02u:%02u:%02u GMT\r\n",
                 days[tm.tm_wday % 7], (unsigned)tm.tm_mday % 100, months[tm.tm_mon % 12],
                 (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
                 (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
        s->date_s = now_s;
    }
    return str_from(s->date);
}

static void put_number(struct buf *out, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    buf_append(out, digits + at, sizeof digits - at);
}

static void put_head(struct http_server *s, struct buf *out, int status, struct str content_type,
                     enum framing framing, size_t length)
{
    must(status >= 200 && status <= 599);
    buf_str(out, STR("HTTP/1.1 "));
    put_number(out, (uint64_t)status);
    buf_byte(out, ' ');
    buf_text(out, http_status_text(status));
    buf_str(out, STR("\r\n"));
    buf_str(out, date_line(s));
    if (content_type.len > 0) {
        must(http_header_valid(STR("content-type"), content_type));
        buf_str(out, STR("content-type: "));
        buf_str(out, content_type);
        buf_str(out, STR("\r\n"));
    }
    if (framing == COUNTED) {
        buf_str(out, STR("content-length: "));
        put_number(out, length);
        buf_str(out, STR("\r\n"));
    }
    if (framing == CHUNKED) buf_str(out, STR("transfer-encoding: chunked\r\n"));
}

/* The head of the reply to x's request, blank line included. */
static void put_reply_head(struct http_exchange *x, int status, struct str content_type,
                           enum framing framing, size_t length)
{
    struct buf *out = &x->conn.out;
    put_head(x->server, out, status, content_type, framing, length);
    if (x->server->draining || framing == UNTIL_END) x->keep_alive = false;
    if (!x->keep_alive)
        buf_str(out, STR("connection: close\r\n"));
    else if (x->request.minor == 0)
        buf_str(out, STR("connection: keep-alive\r\n"));
    buf_str(out, buf_view(&x->headers));
    buf_str(out, STR("\r\n"));
}

static bool may_reply(const struct http_exchange *x)
{
    return (x->stage == SERVE_OPEN && !x->streaming) || x->stage == SERVE_CHECK;
}

int http_reply_header(struct http_exchange *x, const char *name, struct str value)
{
    static const char *const ours[] = { "content-type", "content-length", "transfer-encoding",
                                        "connection", "date" };
    must(may_reply(x));
    struct str n = str_from(name);
    for (size_t i = 0; i < COUNT_OF(ours); i++)
        if (str_eq_nocase(n, str_from(ours[i]))) return -EINVAL;
    if (!http_header_valid(n, value)) return -EINVAL;
    buf_str(&x->headers, n);
    buf_str(&x->headers, STR(": "));
    buf_str(&x->headers, value);
    return buf_str(&x->headers, STR("\r\n"));
}

/* ---- the exchange ---- */

const struct http_request *http_exchange_request(const struct http_exchange *x)
{
    return &x->request;
}

void *http_exchange_note(struct http_exchange *x)
{
    return x->note;
}

void http_exchange_body_max(struct http_exchange *x, size_t bytes)
{
    must(x->stage == SERVE_CHECK);
    x->body_max = min_size(x->body_max, bytes);
}

void http_exchange_watch(struct http_exchange *x, void (*on_abort)(void *arg, enum http_abort why),
                         void (*on_drain)(void *arg), void *arg)
{
    must(x->stage == SERVE_OPEN);
    x->on_abort = on_abort;
    x->on_drain = on_drain;
    x->arg = arg;
}

void http_exchange_pin(struct http_exchange *x)
{
    must(x->stage == SERVE_OPEN && !x->pinned);
    x->pinned = true;
}

void http_exchange_unpin(struct http_exchange *x)
{
    must(x->pinned);
    x->pinned = false;
    if (x->stage == SERVE_DEAD) serve_touch(x);
}

static void forget_caller(struct http_exchange *x)
{
    x->on_abort = NULL;
    x->on_drain = NULL;
    x->arg = NULL;
}

void http_exchange_abort(struct http_exchange *x)
{
    must(x->stage == SERVE_OPEN || x->stage == SERVE_CHECK);
    forget_caller(x);
    uint64_t before = x->conn.sent;
    (void)conn_flush(&x->conn); /* the client gets the bytes written so far, if they go out */
    count_add(&x->server->counts.bytes_out, x->conn.sent - before);
    if (x->streaming && !x->chunked) {
        /* A plain close would look like the end of the body: only a reset says "cut". */
        struct linger hard = { .l_onoff = 1, .l_linger = 0 };
        (void)setsockopt(x->conn.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    serve_abort(x, HTTP_ABORT_SERVER);
}

/* Ends the exchange for its caller; the rest of the reply goes out without it. */
static int end_exchange(struct http_exchange *x)
{
    int rc = x->conn.out.rc;
    forget_caller(x);
    if (rc < 0)
        serve_abort(x, HTTP_ABORT_SERVER);
    else
        serve_enter(x, SERVE_SENDING);
    serve_touch(x);
    return rc;
}

int http_reply(struct http_exchange *x, int status, struct str content_type, struct str body)
{
    must(may_reply(x));
    struct http_server *s = x->server;
    bool bodyless = status == 204 || status == 304;
    bool sent = !bodyless && !str_eq(x->request.method, STR("HEAD"));
    if (sent && !held_reply_fits(x->server, body.len)) {
        x->keep_alive = false;
        reply_refusal(x, HTTP_FAULT_MEMORY);
        (void)end_exchange(x);
        return -ENOMEM;
    }
    const struct str told = bodyless ? (struct str){ 0 } : body;
    if (s->config.on_reply) s->config.on_reply(s->config.ctx, x, status, &told);
    put_reply_head(x, status, content_type, bodyless ? BODYLESS : COUNTED, body.len);
    if (x->headers.rc < 0) x->conn.out.rc = x->headers.rc;
    if (sent) buf_str(&x->conn.out, body);
    return end_exchange(x);
}

/* ---- another protocol ---- */

bool http_upgrade_asked(const struct http_request *req, struct str protocol)
{
    struct str options = http_request_header(req, "connection");
    if (req->minor == 0 || !str_eq(req->method, STR("GET"))) return false;
    if (!str_eq(str_trim(http_request_header(req, "upgrade")), protocol)) return false;
    while (options.len > 0)
        if (str_eq_nocase(str_trim(str_cut(&options, ',')), STR("upgrade"))) return true;
    return false;
}

int http_upgrade(struct http_exchange *x, struct str protocol, struct conn *ret)
{
    must(x->stage == SERVE_OPEN && !x->streaming);
    struct http_server *s = x->server;
    struct buf *out = &x->conn.out;
    size_t before = out->len;
    if (s->config.on_reply) s->config.on_reply(s->config.ctx, x, 101, NULL);
    buf_str(out, STR("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: "));
    buf_str(out, protocol);
    buf_str(out, STR("\r\n"));
    buf_str(out, buf_view(&x->headers));
    buf_str(out, STR("\r\n"));
    if (out->rc < 0 || x->headers.rc < 0) {
        out->len = before;
        out->rc = 0;
        return -ENOMEM;
    }
    forget_caller(x);
    serve_hand_over(x, ret);
    return 0;
}

/* ---- streams ---- */

int http_stream_begin(struct http_exchange *x, int status, struct str content_type)
{
    must(x->stage == SERVE_OPEN && !x->streaming && status != 204 && status != 304);
    struct http_server *s = x->server;
    struct buf *out = &x->conn.out;
    size_t before = out->len;
    if (s->config.on_reply) s->config.on_reply(s->config.ctx, x, status, NULL);
    bool chunked = x->request.minor > 0;
    put_reply_head(x, status, content_type, chunked ? CHUNKED : UNTIL_END, 0);
    if (out->rc < 0 || x->headers.rc < 0) {
        out->len = before;
        out->rc = 0;
        return -ENOMEM;
    }
    x->streaming = true;
    x->chunked = chunked;
    serve_touch(x);
    return 0;
}

bool http_stream_full(const struct http_exchange *x)
{
    return conn_unsent(&x->conn) >= x->server->limits.unsent_bytes_max;
}

static void put_chunk(struct buf *out, const void *data, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char size[18];
    size_t at = sizeof size;
    size[--at] = '\n';
    size[--at] = '\r';
    for (size_t n = len; n > 0; n /= 16)
        size[--at] = digits[n % 16];
    buf_append(out, size + at, sizeof size - at);
    buf_append(out, data, len);
    buf_str(out, STR("\r\n"));
}

int http_stream_write(struct http_exchange *x, const void *data, size_t len)
{
    must(x->stage == SERVE_OPEN && x->streaming);
    if (len == 0 || str_eq(x->request.method, STR("HEAD"))) return 0;
    struct buf *out = &x->conn.out;
    if (http_stream_full(x)) {
        x->was_full = true;
        return -EAGAIN;
    }
    if (buf_reserve(out, len + CHUNK_FRAME_MAX) < 0) {
        out->rc = 0; /* nothing was appended: the stream is as it was */
        return -ENOMEM;
    }
    if (x->chunked)
        put_chunk(out, data, len);
    else
        buf_append(out, data, len);
    if (http_stream_full(x)) x->was_full = true;
    serve_touch(x);
    return 0;
}

int http_stream_end(struct http_exchange *x)
{
    must(x->stage == SERVE_OPEN && x->streaming);
    if (x->chunked && !str_eq(x->request.method, STR("HEAD")))
        buf_str(&x->conn.out, STR("0\r\n\r\n"));
    return end_exchange(x);
}

/* ---- refusals ---- */

void refusal_render(struct http_server *s, enum http_fault fault, struct buf *out)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct http_fault_info *why = http_fault_info(fault);
    struct str type = STR("text/plain");
    if (s->config.render_refusal)
        type = s->config.render_refusal(s->config.ctx, why, &body);
    else
        buf_printf(&body, "%s\n", why->sentence);
    put_head(s, out, why->status, type, COUNTED, body.len);
    if (why->status == 503) buf_str(out, STR("retry-after: 1\r\n"));
    buf_str(out, STR("connection: close\r\n\r\n"));
    buf_str(out, buf_view(&body));
}

void reply_refusal(struct http_exchange *x, enum http_fault fault)
{
    server_refused(x->server, fault);
    refusal_render(x->server, fault, &x->conn.out);
}

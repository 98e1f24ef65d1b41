/* t_http_server.c - tests the server against sockets that send exact bytes, its checks of browsers,
 * and its bounds for addresses. */
#include "base/core/bits.h"
#include "base/io/http/http_browser.h"
#include "base/io/http/http_peers.h"
#include "tests/unit/io/server_rig.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* ---- requests over raw sockets ---- */

/* ---- ambiguous requests ---- */

#define SMUGGLED GET("/smuggled")

/* clang-format off */
static const struct { const char *why; struct str raw; const char *status; } smuggling_rows[] = {
    { "CL.TE", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG" SMUGGLED), "400" },
    { "TE.CL", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n" SMUGGLED "\r\n0\r\n\r\n"), "400" },
    { "TE.TE, a coding that one side does not see", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "CL.CL", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" SMUGGLED), "400" },
    { "equal lengths twice", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx" SMUGGLED), "400" },
    { "a list of lengths", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 1,1\r\n\r\nx" SMUGGLED), "400" },
    { "a signed length", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\nx" SMUGGLED), "400" },
    { "a blank before the colon of the length", STR("POST / HTTP/1.1\r\n" HOST "Content-Length : 39\r\n\r\n" SMUGGLED), "400" },
    { "a blank before the colon of the coding", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "a folded coding", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "a coding hidden behind a fold", STR("POST / HTTP/1.1\r\n" HOST "X: y\r\n Transfer-Encoding: chunked\r\n\r\n" SMUGGLED), "400" },
    { "a vertical tab before the coding", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\x0b" "chunked\r\n\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "identity", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx" SMUGGLED), "400" },
    { "chunked in 1.0", STR("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "bare LF between headers", STR("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n" SMUGGLED), "400" },
    { "all bare LF", STR("GET / HTTP/1.1\nHost: a\n\n" SMUGGLED), "400" },
    { "bare CR in a value", STR("GET / HTTP/1.1\r\n" HOST "X: a\rContent-Length: 39\r\n\r\n" SMUGGLED), "400" },
    { "CR LF LF as the end", STR("GET / HTTP/1.1\r\n" HOST "\n" SMUGGLED), "400" },
    { "NUL in a value", STR("GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n" SMUGGLED), "400" },
    { "two hosts", STR("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" SMUGGLED), "400" },
    { "no host", STR("GET / HTTP/1.1\r\n\r\n" SMUGGLED), "400" },
    { "absolute form against Host", STR("GET http://b/ HTTP/1.1\r\n" HOST "\r\n" SMUGGLED), "400" },
    { "HTTP/1.9", STR("GET / HTTP/1.9\r\n" HOST "\r\n" SMUGGLED), "505" },
    { "HTTP/2.0", STR("GET / HTTP/2.0\r\n" HOST "\r\n" SMUGGLED), "505" },
    { "HTTP/0.9", STR("GET /\r\n" SMUGGLED), "400" },
    { "an empty line first", STR("\r\n" SMUGGLED), "400" },
    { "a chunk extension", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1;a\r\nx\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "a bare LF in an extension", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2;\nxx\r\n4c\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "a trailer", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 39\r\n\r\n" SMUGGLED), "400" },
    { "a chunk that is longer than it says", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "a chunk size with 0x", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "a chunk size that wraps", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx\r\n0\r\n\r\n" SMUGGLED), "400" },
    { "a chunk beyond the bound, announced", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nffffff\r\nx"), "413" },
    { "a length beyond the bound", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999\r\n\r\nx"), "413" },
    { "another expectation", STR("POST / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\nContent-Length: 1\r\n\r\nx" SMUGGLED), "417" },
    { "a bad percent sign", STR("GET /%g HTTP/1.1\r\n" HOST "\r\n" SMUGGLED), "400" },
};

/* clang-format on */

static void ambiguous_requests_get_one_refusal_and_a_closed_connection(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .body_bytes_max = 1 << 20 });
    for (size_t i = 0; i < COUNT_OF(smuggling_rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, smuggling_rows[i].raw);
        assert_refused(f, &p, smuggling_rows[i].status, smuggling_rows[i].why);
        assert_false(p.reset); /* a reset could have overtaken the reply */
        peer_close(&p);
    }
    uint64_t refused = 0;
    struct http_server_counts c = counts(f);
    for (int i = 0; i < HTTP_FAULT_COUNT; i++)
        refused += c.refused[i];
    assert_int_equal(refused, COUNT_OF(smuggling_rows));
    end(f);
}

/* A good first request is served; an ambiguous second one is refused and ends the connection. */
static void an_ambiguous_request_behind_a_good_one_is_refused_in_order(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/1") "GET / HTTP/1.1\nHost: a\n\n" GET("/2")));
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_int_equal(peer_count(&p, "HTTP/1.1 "), 2);
    assert_true(peer_has(&p, "<GET /1 >HTTP/1.1 400 "));
    assert_int_equal(f->requests, 1);
    peer_close(&p);
    end(f);
}

/* ---- good requests ---- */

static void requests_are_served_however_they_are_cut(void **state)
{
    (void)state;
    static const struct {
        struct str raw;
        const char *reply;
    } rows[] = {
        { STR(GET("/a")), "<GET /a >" },
        { STR("POST /b HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello"), "<POST /b hello>" },
        { STR("POST /c HTTP/1.1\r\n" HOST
              "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n02\r\nlo\r\n0\r\n\r\n"),
          "<POST /c hello>" },
        { STR("GET http://A/d?q HTTP/1.1\r\n" HOST "\r\n"), "<GET /d >" },
    };
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    for (size_t step = 1; step < 200; step = step * 3 + 1) {
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            buf_clear(&p.got);
            for (size_t at = 0; at < rows[i].raw.len; at += step) {
                size_t len = min_size(step, rows[i].raw.len - at);
                peer_send(f->loop, &p, str_of(rows[i].raw.data + at, len));
                loop_turn(f->loop, 0);
            }
            PEER_UNTIL(f->loop, &p, peer_has(&p, rows[i].reply));
            assert_int_equal(peer_count(&p, "HTTP/1.1 200 OK\r\n"), 1);
            assert_false(peer_has(&p, "connection: close"));
        }
    }
    assert_int_equal(counts(f).accepted, 1); /* one connection for all requests */
    peer_close(&p);
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

static void pipelined_requests_are_answered_one_at_a_time_in_order(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/1") GET("/wait") GET("/3")));
    PEER_UNTIL(f->loop, &p, f->held != NULL);
    peer_send(f->loop, &p, STR(GET("/4"))); /* arrives while the first is open */
    for (int i = 0; i < 5; i++)
        loop_turn(f->loop, 1000);
    assert_int_equal(f->requests, 2);
    http_reply(f->held, 200, STR("text/plain"), STR("<2>"));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /4 >"));
    struct str got = buf_view(&p.got);
    size_t at[4] = { str_find(got, STR("<GET /1 >")), str_find(got, STR("<2>")),
                     str_find(got, STR("<GET /3 >")), str_find(got, STR("<GET /4 >")) };
    assert_true(at[0] < at[1] && at[1] < at[2] && at[2] < at[3]);
    peer_close(&p);
    end(f);
}

static void a_body_of_megabytes_arrives_whole(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .body_bytes_max = 3 << 20 });
    CLEANUP(buf_fini) struct buf raw = { 0 };
    size_t len = 3 << 20;
    for (int chunked = 0; chunked <= 1; chunked++) {
        buf_clear(&raw);
        buf_text(&raw, "POST /wait HTTP/1.1\r\n" HOST);
        if (!chunked) buf_printf(&raw, "Content-Length: %zu\r\n\r\n", len);
        if (chunked) buf_text(&raw, "Transfer-Encoding: chunked\r\n\r\n");
        for (size_t i = 0; i < len;) {
            size_t piece = chunked ? min_size(1 + i % 9973, len - i) : len;
            if (chunked) buf_printf(&raw, "%zx\r\n", piece);
            for (size_t k = 0; k < piece; k++, i++)
                buf_byte(&raw, (char)('a' + i % 23));
            if (chunked) buf_text(&raw, "\r\n");
        }
        if (chunked) buf_text(&raw, "0\r\n\r\n");
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, buf_view(&raw));
        TURN_UNTIL(f->loop, f->held != NULL);
        const struct http_request *req = http_exchange_request(f->held);
        assert_int_equal(req->body.len, len);
        for (size_t i = 0; i < len; i++)
            if (req->body.data[i] != (char)('a' + i % 23)) fail_msg("byte %zu differs", i);
        assert_true(str_eq(req->path, STR("/wait"))); /* the head moved with the buffer */
        http_reply(f->held, 200, STR("text/plain"), STR("ok"));
        f->held = NULL;
        PEER_UNTIL(f->loop, &p, peer_has(&p, "\r\n\r\nok"));
        /* The large body's memory is freed although the connection stays. */
        assert_true(counts(f).held_bytes < 100000);
        peer_close(&p);
    }
    end(f);
}

/* Each body byte takes six on the wire: the framing must not count against the buffer. */
static void a_body_in_chunks_of_one_byte_arrives_whole(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .body_bytes_max = 100000 });
    CLEANUP(buf_fini) struct buf raw = { 0 };
    buf_text(&raw, "POST /wait HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 100000; i++)
        buf_text(&raw, "1\r\nx\r\n");
    buf_text(&raw, "0\r\n\r\n");
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, buf_view(&raw));
    PEER_UNTIL(f->loop, &p, f->held || p.closed);
    assert_non_null(f->held);
    assert_int_equal(http_exchange_request(f->held)->body.len, 100000);
    peer_close(&p);
    end(f);
}

static void expect_100_is_answered_before_the_body(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p,
              STR("POST /x HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "HTTP/1.1 100 Continue\r\n\r\n"));
    assert_int_equal(f->requests, 0);
    peer_send(f->loop, &p, STR("hi"));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<POST /x hi>"));
    peer_close(&p);
    end(f);
}

static void head_gets_the_length_and_no_body(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("HEAD /x HTTP/1.1\r\n" HOST "\r\n" GET("/y")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /y >"));
    assert_true(peer_has(&p, "content-length: 10\r\n\r\nHTTP/1.1 200"));
    peer_close(&p);
    end(f);
}

static void http_1_0_is_closed_unless_kept_alive(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("GET /k HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /k >"));
    assert_true(peer_has(&p, "\r\nconnection: keep-alive\r\n"));
    peer_send(f->loop, &p, STR("GET /c HTTP/1.0\r\n\r\n"));
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_true(peer_has(&p, "<GET /c >"));
    assert_true(peer_has(&p, "\r\nconnection: close\r\n"));
    peer_close(&p);
    end(f);
}

static void reply_headers_cannot_break_the_head(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    assert_int_equal(http_reply_header(f->held, "x-id", STR("a\r\nx: y")), -EINVAL);
    assert_int_equal(http_reply_header(f->held, "x id", STR("a")), -EINVAL);
    assert_int_equal(http_reply_header(f->held, "Content-Length", STR("0")), -EINVAL);
    assert_int_equal(http_reply_header(f->held, "Connection", STR("close")), -EINVAL);
    assert_int_equal(http_reply_header(f->held, "x-id", STR("7")), 0);
    http_reply(f->held, 204, STR(""), STR(""));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "\r\n\r\n"));
    assert_true(peer_has(&p, "HTTP/1.1 204 No Content\r\ndate: "));
    assert_true(peer_has(&p, "\r\nx-id: 7\r\n"));
    assert_false(peer_has(&p, "content-length"));
    peer_close(&p);
    end(f);
}

/* ---- what a handler may do before a request's body has come: reply, bound the body, leave a note
 * ---- */

static int heads;

/* Replies to /refused at once, allows /small ten bytes of body, and leaves a note on all others. */
static void on_head(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    const struct http_request *req = http_exchange_request(x);
    uint8_t *note = http_exchange_note(x);
    heads++;
    assert_int_equal(req->body.len, 0);
    assert_true(str_starts(req->peer, STR("127.0.0.1:")));
    assert_int_equal(note[0], 0); /* nothing of an earlier request */
    assert_int_equal(note[HTTP_NOTE_BYTES - 1], 0);
    if (str_eq(req->path, STR("/refused"))) {
        http_reply_header(x, "www-authenticate", STR("Bearer"));
        http_reply(x, 401, STR("text/plain"), STR("<no>"));
        return;
    }
    if (str_eq(req->path, STR("/cut"))) {
        http_exchange_abort(x);
        return;
    }
    if (str_eq(req->path, STR("/small"))) http_exchange_body_max(x, 10);
    if (str_eq(req->path, STR("/large"))) http_exchange_body_max(x, SIZE_MAX);
    memset(note, 7, HTTP_NOTE_BYTES);
}

static void on_noted(void *ctx, struct http_exchange *x)
{
    const uint8_t *note = http_exchange_note(x);
    assert_int_equal(note[0], 7);
    assert_int_equal(note[HTTP_NOTE_BYTES - 1], 7);
    on_request(ctx, x);
}

static struct fixture *begin_with_heads(void)
{
    struct fixture *f = calloc(1, sizeof *f);
    heads = 0;
    *f = start((struct http_server_config){ .limits = { .body_bytes_max = 4 << 20 },
                                            .on_head = on_head,
                                            .on_request = on_noted,
                                            .ctx = f });
    return f;
}

#define REFUSED "POST /refused HTTP/1.1\r\n" HOST

/* The reply comes before any byte of the body; what follows is no request. */
static void a_refused_head_is_answered_before_its_body(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct str raw;
    } rows[] = {
        { "counted", STR(REFUSED "Content-Length: 999999\r\n\r\n") },
        { "counted, some of it there", STR(REFUSED "Content-Length: 999999\r\n\r\n" GET("/a")) },
        { "chunked", STR(REFUSED "Transfer-Encoding: chunked\r\n\r\n") },
        { "chunked and whole",
          STR(REFUSED "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET("/a")) },
        { "waiting to be told", STR(REFUSED "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n") },
        { "longer than any body may be", STR(REFUSED "Content-Length: 999999999\r\n\r\n") },
    };
    struct fixture *f = begin_with_heads();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, rows[i].raw);
        assert_refused(f, &p, "401", rows[i].why);
        assert_false(p.reset);
        assert_false(peer_has(&p, "100 Continue"));
        assert_true(peer_has(&p, "www-authenticate: Bearer\r\n"));
        assert_true(str_ends(buf_view(&p.got), STR("<no>")));
        peer_close(&p);
    }
    assert_int_equal(counts(f).head_replies, COUNT_OF(rows));
    assert_int_equal(heads, COUNT_OF(rows));
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

/* A refused request whose body has arrived keeps its connection: the next request is read where it
 * is. */
static void a_refused_head_with_its_whole_body_keeps_the_connection(void **state)
{
    (void)state;
    struct fixture *f = begin_with_heads();
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(REFUSED "Content-Length: 5\r\n\r\nhello" REFUSED "\r\n" GET("/a")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /a >"));
    assert_int_equal(peer_count(&p, "HTTP/1.1 401 "), 2);
    assert_false(peer_has(&p, "connection: close"));
    assert_int_equal(f->requests, 1);
    peer_close(&p);
    end(f);
}

/* Megabytes under way are read and dropped, so that no reset overtakes the reply, and none are
 * held. */
static void a_client_that_goes_on_sending_sees_the_answer(void **state)
{
    (void)state;
    struct fixture *f = begin_with_heads();
    struct peer p = peer_connect(f->port);
    CLEANUP(buf_fini) struct buf raw = { 0 };
    buf_text(&raw, REFUSED "Content-Length: 3000000\r\n\r\n");
    size_t head = raw.len;
    buf_reserve(&raw, 3000000);
    memset(raw.data + head, 'x', 3000000);
    raw.len += 3000000;
    for (size_t at = 0; at < raw.len; at += 100000) {
        peer_send(f->loop, &p, str_of(raw.data + at, min_size(100000, raw.len - at)));
        assert_true(counts(f).held_bytes < 500000);
    }
    shutdown(p.fd, SHUT_WR);
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_false(p.reset);
    assert_int_equal(peer_count(&p, "HTTP/1.1 401 "), 1);
    assert_int_equal(f->requests, 0);
    peer_close(&p);
    end(f);
}

static void a_head_may_lower_the_bound_of_its_body_only(void **state)
{
    (void)state;
    static const struct {
        struct str raw;
        const char *status;
    } rows[] = {
        { STR("POST /small HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n"), "413" },
        { STR("POST /small HTTP/1.1\r\n" HOST
              "Transfer-Encoding: chunked\r\n\r\n6\r\nsixsix\r\n5\r\n"),
          "413" },
        { STR("POST /large HTTP/1.1\r\n" HOST "Content-Length: 4194305\r\n\r\n"), "413" },
    };
    struct fixture *f = begin_with_heads();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, rows[i].raw);
        assert_refused(f, &p, rows[i].status, rows[i].status);
        peer_close(&p);
    }
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p,
              STR("POST /small HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n0123456789"
                  "POST /a HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n0123456789a"));
    PEER_UNTIL(f->loop, &p,
               peer_has(&p, "<POST /a 0123456789a>")); /* the bound was for one request */
    assert_true(peer_has(&p, "<POST /small 0123456789>"));
    peer_close(&p);
    end(f);
}

static void a_head_may_be_cut(void **state)
{
    (void)state;
    struct fixture *f = begin_with_heads();
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("POST /cut HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n"));
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_int_equal(p.got.len, 0);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_SERVER], 1);
    peer_close(&p);
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    end(f);
}

static int http_server_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ambiguous_requests_get_one_refusal_and_a_closed_connection),
        cmocka_unit_test(an_ambiguous_request_behind_a_good_one_is_refused_in_order),
        cmocka_unit_test(requests_are_served_however_they_are_cut),
        cmocka_unit_test(pipelined_requests_are_answered_one_at_a_time_in_order),
        cmocka_unit_test(a_body_of_megabytes_arrives_whole),
        cmocka_unit_test(a_body_in_chunks_of_one_byte_arrives_whole),
        cmocka_unit_test(expect_100_is_answered_before_the_body),
        cmocka_unit_test(head_gets_the_length_and_no_body),
        cmocka_unit_test(http_1_0_is_closed_unless_kept_alive),
        cmocka_unit_test(reply_headers_cannot_break_the_head),
        cmocka_unit_test(a_refused_head_is_answered_before_its_body),
        cmocka_unit_test(a_refused_head_with_its_whole_body_keeps_the_connection),
        cmocka_unit_test(a_client_that_goes_on_sending_sees_the_answer),
        cmocka_unit_test(a_head_may_lower_the_bound_of_its_body_only),
        cmocka_unit_test(a_head_may_be_cut),
    };
    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}

/* ---- pages of other sites, rebound names, plain requests, and local peers ---- */

struct row {
    const char *method, *host, *origin, *type;
    enum browser_fault want;
    const char *why;
};

static void add(struct http_request *req, const char *name, const char *value)
{
    if (!value) return;
    req->headers[req->header_count++] = (struct http_header){ str_from(name), str_from(value) };
}

static struct http_request request(const struct row *r)
{
    struct http_request req = { .method = str_from(r->method), .host = str_from(r->host) };
    add(&req, "origin", r->origin);
    add(&req, "content-type", r->type);
    return req;
}

#define JSON "application/json"

static void pages_of_other_sites_are_refused(void **state)
{
    (void)state;
    static const struct str hosts[] = { { "fleet.example", 13 }, { "tunnel.example:9000", 19 } };
    static const struct str origins[] = { { "http://console.example:8090", 27 } };
    const struct http_names names = { STR("10.1.2.3"), 8080, hosts, 2, origins, 1 };
    static const struct row rows[] = {
        { "GET", "localhost:8080", NULL, NULL, BROWSER_OK, "loopback" },
        { "GET", "LocalHost:8080", NULL, NULL, BROWSER_OK, "case" },
        { "GET", "127.0.0.1", NULL, NULL, BROWSER_OK, "behind a forwarder" },
        { "GET", "[::1]:8080", NULL, NULL, BROWSER_OK, "IPv6" },
        { "GET", "[::1]", NULL, NULL, BROWSER_OK, "IPv6 without a port" },
        { "GET", "10.1.2.3:8080", NULL, NULL, BROWSER_OK, "our own address" },
        { "GET", "fleet.example", NULL, NULL, BROWSER_OK, "a further name" },
        { "GET", "fleet.example:8080", NULL, NULL, BROWSER_OK, "with our port" },
        { "GET", "tunnel.example:9000", NULL, NULL, BROWSER_OK, "a name with a port of its own" },
        { "GET", "evil.example:8080", NULL, NULL, BROWSER_HOST, "a rebound name" },
        { "GET", "localhost:8081", NULL, NULL, BROWSER_HOST, "another port" },
        { "GET", "localhost.evil.example", NULL, NULL, BROWSER_HOST, "begins like ours" },
        { "GET", "fleet.example.", NULL, NULL, BROWSER_HOST, "a dot more" },
        { "GET", "", NULL, NULL, BROWSER_HOST, "none" },
        { "GET", ":8080", NULL, NULL, BROWSER_HOST, "a port alone" },
        { "GET", "localhost:80800", NULL, NULL, BROWSER_HOST, "no port of ours" },
        { "GET", "localhost:x", NULL, NULL, BROWSER_HOST, "no port at all" },
        { "POST", "localhost:8080", NULL, JSON, BROWSER_OK, "a program" },
        { "POST", "localhost:8080", NULL, "Application/JSON; charset=utf-8", BROWSER_OK, "more" },
        { "POST", "localhost:8080", NULL, NULL, BROWSER_TYPE, "no type" },
        { "POST", "localhost:8080", NULL, "text/plain", BROWSER_TYPE, "needs no preflight" },
        { "POST", "localhost:8080", NULL, "application/jsonx", BROWSER_TYPE, "nearly" },
        { "POST", "localhost:8080", NULL, "text/plain;application/json", BROWSER_TYPE, "hidden" },
        { "DELETE", "localhost:8080", NULL, "text/plain", BROWSER_TYPE, "whatever is no GET" },
        { "POST", "localhost:8080", "http://localhost:8080", JSON, BROWSER_OK, "our own page" },
        { "POST", "localhost:8080", "http://127.0.0.1:8080", JSON, BROWSER_OK, "by another name" },
        { "POST", "fleet.example", "https://fleet.example", JSON, BROWSER_OK, "a TLS forwarder" },
        { "POST", "localhost:8080", "http://console.example:8090", JSON, BROWSER_OK, "listed" },
        { "POST", "localhost:8080", "http://localhost", JSON, BROWSER_ORIGIN, "port 80" },
        { "POST", "localhost:8080", "https://localhost", JSON, BROWSER_ORIGIN, "port 443" },
        { "POST", "localhost:8080", "http://localhost:3000", JSON, BROWSER_ORIGIN, "another port" },
        { "POST", "localhost:8080", "http://evil.example", JSON, BROWSER_ORIGIN, "a stranger" },
        { "POST", "localhost:8080", "http://localhost:8080.evil.example", JSON, BROWSER_ORIGIN,
          "begins like ours" },
        { "POST", "localhost:8080", "http://console.example", JSON, BROWSER_ORIGIN, "not listed" },
        { "POST", "localhost:8080", "null", JSON, BROWSER_ORIGIN, "from nowhere" },
        { "POST", "localhost:8080", "", JSON, BROWSER_ORIGIN, "empty" },
        { "POST", "localhost:8080", "ftp://localhost:8080", JSON, BROWSER_ORIGIN, "a scheme" },
        { "POST", "evil.example", "http://evil.example", JSON, BROWSER_HOST, "all of one name" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_request req = request(&rows[i]);
        enum browser_fault got = browser_check(&names, &req);
        if (got != rows[i].want) fail_msg("%s: %s", rows[i].why, browser_fault_info(got)->name);
    }
}

/* Port 80 is ours when we listen there; then the page's origin may leave it out. */
static void the_port_of_a_scheme_is_a_port(void **state)
{
    (void)state;
    const struct http_names names = { .own = STR("127.0.0.1"), .port = 80 };
    const struct row ours = { "GET", "127.0.0.1", "http://localhost", NULL, BROWSER_OK, "" };
    const struct row other = { "GET", "127.0.0.1", "http://localhost:8080", NULL, BROWSER_OK, "" };
    struct http_request req = request(&ours);
    assert_int_equal(browser_check(&names, &req), BROWSER_OK);
    req = request(&other);
    assert_int_equal(browser_check(&names, &req), BROWSER_ORIGIN);
}

static void who_is_local(void **state)
{
    (void)state;
    static const struct {
        const char *peer, *header;
        bool want;
    } rows[] = {
        { "127.0.0.1:4711", NULL, true },      { "[::1]:4711", NULL, true },
        { "127.8.0.1:4711", NULL, true },      { "10.0.0.1:4711", NULL, false },
        { "[::2]:4711", NULL, false },         { "1270.0.0.1:1", NULL, false },
        { "127.0.0.1:1", "forwarded", false }, { "127.0.0.1:1", "X-Forwarded-For", false },
        { "127.0.0.1:1", "Via", false },       { "127.0.0.1:1", "X-Real-IP", false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_request req = { .peer = str_from(rows[i].peer) };
        add(&req, rows[i].header ? rows[i].header : "accept", "1.2.3.4");
        if (browser_peer_is_local(&req) != rows[i].want)
            fail_msg("%s %s", rows[i].peer, rows[i].header ? rows[i].header : "");
    }
}

/* ---- how addresses are counted, and the bound of each ---- */

static struct addr at(const char *text)
{
    struct addr a;
    if (addr_from_literal(&a, str_from(text), 4711) < 0) fail_msg("%s", text);
    return a;
}

static int enter(struct http_peers *p, const char *text)
{
    struct addr a = at(text);
    return http_peers_enter(p, &a);
}

static void leave(struct http_peers *p, const char *text)
{
    struct addr a = at(text);
    http_peers_leave(p, &a);
}

static void each_address_has_its_own_bound(void **state)
{
    (void)state;
    struct http_peers p;
    http_peers_init(&p, 100, 2, 4);
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(enter(&p, "192.0.2.1"), -EDQUOT);
    assert_int_equal(enter(&p, "192.0.2.2"), 0);
    leave(&p, "192.0.2.1");
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(p.count.count, 2);
    leave(&p, "192.0.2.1");
    leave(&p, "192.0.2.1");
    leave(&p, "192.0.2.2");
    assert_int_equal(p.count.count, 0); /* an address that has left takes no memory */
    http_peers_fini(&p);
}

static void an_ipv6_network_of_64_bits_counts_as_one(void **state)
{
    (void)state;
    struct http_peers p;
    http_peers_init(&p, 100, 2, 4);
    assert_int_equal(enter(&p, "2001:db8:0:1::1"), 0);
    assert_int_equal(enter(&p, "2001:db8:0:1:ffff::2"), 0);
    assert_int_equal(enter(&p, "2001:db8:0:1::3"), -EDQUOT);
    assert_int_equal(enter(&p, "2001:db8:0:2::1"), 0);
    http_peers_fini(&p);
}

static void loopback_and_proxies_have_a_bound_of_their_own(void **state)
{
    (void)state;
    static const char *const trusted[] = { "127.0.0.1", "::1", "10.9.8.7", "198.51.100.7" };
    struct http_peers p;
    http_peers_init(&p, 100, 1, 3);
    p.proxy_count = 2;
    assert_int_equal(http_net_parse(&p.proxies[0], STR("10.0.0.0/8"), NULL), 0);
    assert_int_equal(http_net_parse(&p.proxies[1], STR("198.51.100.7"), NULL), 0);
    for (size_t i = 0; i < COUNT_OF(trusted); i++) {
        for (int n = 0; n < 3; n++)
            assert_int_equal(enter(&p, trusted[i]), 0);
        assert_int_equal(enter(&p, trusted[i]), -EDQUOT);
    }
    assert_int_equal(enter(&p, "198.51.100.8"), 0);
    assert_int_equal(enter(&p, "198.51.100.8"), -EDQUOT);
    http_peers_fini(&p);
}

static void a_full_table_is_an_answer(void **state)
{
    (void)state;
    struct http_peers p;
    http_peers_init(&p, 1, 1, 1);
    assert_int_equal(enter(&p, "192.0.2.1"), 0);
    assert_int_equal(enter(&p, "192.0.2.2"), -ENOMEM);
    http_peers_fini(&p);
}

static void networks_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *net, *address;
        bool has;
    } rows[] = {
        { "0.0.0.0/0", "203.0.113.9", true },
        { "0.0.0.0/0", "2001:db8::1", false },
        { "203.0.113.128/25", "203.0.113.128", true },
        { "203.0.113.128/25", "203.0.113.127", false },
        { "203.0.112.0/23", "203.0.113.9", true },
        { "203.0.112.0/23", "203.0.114.9", false },
        { "203.0.113.9", "203.0.113.9", true },
        { "203.0.113.9/32", "203.0.113.8", false },
        { "fd00::/8", "fdff::1", true },
        { "fd00::/8", "fc00::1", false },
        { "::1", "::1", true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_net n;
        struct addr a = at(rows[i].address);
        assert_int_equal(http_net_parse(&n, str_from(rows[i].net), NULL), 0);
        if (http_net_has(&n, &a) != rows[i].has) fail_msg("%s, %s", rows[i].net, rows[i].address);
    }
    static const char *const bad[] = { "",           "/8",       "10.0.0.0/", "10.0.0.0/33",
                                       "fd00::/129", "10.0.0/8", "a.example", "10.0.0.0/-1" };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct http_net n;
        struct err err = { 0 };
        if (http_net_parse(&n, str_from(bad[i]), &err) != -EINVAL) fail_msg("'%s'", bad[i]);
        assert_true(strlen(err.text) > 0);
    }
}

static int http_browser_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_other_sites_are_refused),
        cmocka_unit_test(the_port_of_a_scheme_is_a_port),
        cmocka_unit_test(who_is_local),
        cmocka_unit_test(each_address_has_its_own_bound),
        cmocka_unit_test(an_ipv6_network_of_64_bits_counts_as_one),
        cmocka_unit_test(loopback_and_proxies_have_a_bound_of_their_own),
        cmocka_unit_test(a_full_table_is_an_answer),
        cmocka_unit_test(networks_are_read_strictly),
    };
    return cmocka_run_group_tests_name("http_browser", tests, NULL, NULL);
}

int main(void)
{
    return http_server_tests() + http_browser_tests();
}

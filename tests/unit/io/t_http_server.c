/* t_http_server.c - the server against raw sockets that say exactly what they like. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/http_server.h"
#include "tests/unit/io/raw_peer.h"

#include <sys/resource.h>

struct fixture {
    struct loop *loop;
    struct http_server *server;
    uint16_t port;
    int requests;
    struct http_exchange *held; /* of /wait and /stream */
    int aborts, drains, emptied;
    enum http_abort why;
};

static void on_abort(void *arg, enum http_abort why)
{
    struct fixture *f = arg;
    f->held = NULL;
    f->aborts++;
    f->why = why;
}

static void on_drain(void *arg)
{
    struct fixture *f = arg;
    f->drains++;
}

static void on_empty(void *arg)
{
    struct fixture *f = arg;
    f->emptied++;
}

/* /wait and /stream are answered by the test; all else says what it was. */
static void on_request(void *ctx, struct http_exchange *x)
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

static struct fixture start(struct http_server_config config)
{
    struct fixture f = { 0 };
    struct err err = { 0 };
    assert_int_equal(loop_new(&f.loop, &err), 0);
    if (!config.host) config.host = "127.0.0.1";
    config.on_request = on_request;
    if (http_server_new(f.loop, &config, &f.server, &err) < 0) fail_msg("%s", err.text);
    f.port = http_server_port(f.server);
    return f;
}

/* The handler's context is the fixture, which has moved to the caller by now. */
static struct fixture *begin(struct http_limits limits)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct http_server_config config = { .limits = limits, .ctx = f };
    *f = start(config);
    return f;
}

static void end(struct fixture *f)
{
    http_server_free(f->server);
    loop_free(f->loop);
    free(f);
}

static struct http_server_counts counts(const struct fixture *f)
{
    struct http_server_counts c;
    http_server_counts_get(f->server, &c);
    return c;
}

#define HOST "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

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

/* Exactly one answer, of that status, then the end; the handler saw nothing. */
static void assert_refused(struct fixture *f, struct peer *p, const char *status, const char *why)
{
    char line[16];
    snprintf(line, sizeof line, "HTTP/1.1 %s ", status);
    PEER_UNTIL(f->loop, p, p->closed);
    if (peer_count(p, "\r\ndate: ") != 1 || !str_starts(buf_view(&p->got), str_from(line)) ||
        !peer_has(p, "\r\nconnection: close\r\n") || f->requests != 0)
        fail_msg("%s: expected one %s and no request, got %d requests and:\n%s", why, status,
                 f->requests, p->got.data ? p->got.data : "");
}

static void ambiguous_requests_get_one_refusal_and_a_closed_connection(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .body_bytes_max = 1 << 20 });
    for (size_t i = 0; i < COUNT_OF(smuggling_rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, smuggling_rows[i].raw);
        assert_refused(f, &p, smuggling_rows[i].status, smuggling_rows[i].why);
        assert_false(p.reset); /* a reset could have overtaken the answer */
        peer_close(&p);
    }
    uint64_t refused = 0;
    struct http_server_counts c = counts(f);
    for (int i = 0; i < HTTP_FAULT_COUNT; i++)
        refused += c.refused[i];
    assert_int_equal(refused, COUNT_OF(smuggling_rows));
    end(f);
}

/* A first request that is fine is served; the second, which is not, gets the last word. */
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

/* ---- requests that are fine ---- */

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
    assert_int_equal(counts(f).accepted, 1); /* one connection for all of them */
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
    peer_send(f->loop, &p, STR(GET("/4"))); /* arrives while one is open */
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
        /* the memory of the large body is given back although the connection stays */
        assert_true(counts(f).held_bytes < 100000);
        peer_close(&p);
    }
    end(f);
}

/* Six bytes on the wire for one of body: the framing must not count against the buffer. */
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

/* ---- streams ---- */

static void a_stream_is_chunked_and_the_connection_goes_on(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/stream")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "\r\ntransfer-encoding: chunked\r\n\r\n"));
    assert_int_equal(http_stream_write(f->held, "hello", 5), 0);
    assert_int_equal(http_stream_write(f->held, "", 0), 0); /* an empty chunk would end it */
    assert_int_equal(http_stream_write(f->held, "0123456789abcdefg", 17), 0);
    PEER_UNTIL(f->loop, &p, peer_has(&p, "\r\n\r\n5\r\nhello\r\n11\r\n0123456789abcdefg\r\n"));
    assert_int_equal(http_stream_end(f->held), 0);
    peer_send(f->loop, &p, STR(GET("/next")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /next >"));
    assert_true(peer_has(&p, "\r\n0\r\n\r\nHTTP/1.1 200"));
    assert_int_equal(f->aborts, 0);
    peer_close(&p);
    end(f);
}

static void a_stream_to_http_1_0_ends_with_the_connection(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    TURN_UNTIL(f->loop, f->held != NULL);
    http_stream_write(f->held, "hello", 5);
    http_stream_end(f->held);
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_true(str_ends(buf_view(&p.got), STR("\r\nconnection: close\r\n\r\nhello")));
    assert_false(peer_has(&p, "chunked"));
    peer_close(&p);
    end(f);
}

static void an_aborted_stream_never_looks_complete(void **state)
{
    (void)state;
    static const char *const requests[] = { GET("/stream"), "GET /stream HTTP/1.0\r\n\r\n" };
    struct fixture *f = begin((struct http_limits){ 0 });
    for (int i = 0; i < 2; i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, str_from(requests[i]));
        TURN_UNTIL(f->loop, f->held != NULL);
        http_stream_write(f->held, "hello", 5);
        http_exchange_abort(f->held);
        f->held = NULL;
        PEER_UNTIL(f->loop, &p, p.closed);
        if (i == 0)
            assert_true(str_ends(buf_view(&p.got), STR("5\r\nhello\r\n"))); /* no last chunk */
        else
            assert_true(p.reset); /* a clean end would be the end of the body */
        peer_close(&p);
    }
    assert_int_equal(f->aborts, 0); /* not told what it did itself */
    end(f);
}

/* Small kernel buffers, so that few bytes fill them. */
static struct peer peer_that_does_not_read(struct fixture *f)
{
    struct peer p = { .fd = socket(AF_INET, SOCK_STREAM, 0) };
    int small = 4096;
    setsockopt(p.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(f->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(connect(p.fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(p.fd, F_SETFL, O_NONBLOCK);
    peer_send(f->loop, &p, STR(GET("/stream")));
    TURN_UNTIL(f->loop, f->held != NULL);
    return p;
}

/* Writes lines until the server says that it is full; returns the bytes that it took. */
static size_t fill(struct fixture *f, size_t *line)
{
    size_t taken = 0;
    for (int quiet = 0; quiet < 5; loop_turn(f->loop, 1000)) {
        char text[1001];
        while (f->held) {
            snprintf(text, sizeof text, "%0999zu\n", *line);
            int rc = http_stream_write(f->held, text, 1000);
            if (rc == -EAGAIN) break;
            assert_int_equal(rc, 0);
            ++*line;
            taken += 1000;
            quiet = 0;
        }
        quiet++; /* several turns without room: the kernel is full too */
    }
    return taken;
}

static void a_stream_that_is_not_read_is_bounded_and_drains(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .unsent_bytes_max = 50000 });
    struct peer p = peer_that_does_not_read(f);
    size_t line = 0;
    size_t taken = fill(f, &line);
    assert_true(http_stream_full(f->held));
    assert_true(taken - counts(f).bytes_out < 50000 + 2000); /* the bound and one write */
    assert_int_equal(http_stream_write(f->held, "x", 1), -EAGAIN);
    f->drains = 0; /* the kernel's buffers took some while they filled */

    PEER_UNTIL(f->loop, &p, f->drains == 1);
    assert_false(http_stream_full(f->held));
    assert_int_equal(http_stream_write(f->held, "end", 3), 0);
    http_stream_end(f->held);
    PEER_UNTIL(f->loop, &p, peer_has(&p, "\r\n0\r\n\r\n"));
    for (size_t i = 0; i < line; i++) { /* every line, once, in order */
        char text[32];
        snprintf(text, sizeof text, "%020zu\n", i);
        if (peer_count(&p, text) != 1) fail_msg("line %zu", i);
        if (i > 20) i += line / 20; /* a sample: the search is slow */
    }
    assert_int_equal(peer_count(&p, "\r\n3e8\r\n"), line);
    peer_close(&p);
    end(f);
}

static void a_reader_that_takes_nothing_is_dropped(void **state)
{
    (void)state;
    struct fixture *f =
        begin((struct http_limits){ .unsent_bytes_max = 50000, .unsent_us = 50000 });
    struct peer p = peer_that_does_not_read(f);
    size_t line = 0;
    fill(f, &line);
    TURN_UNTIL(f->loop, f->aborts == 1);
    assert_int_equal(f->why, HTTP_ABORT_SLOW_READER);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_SLOW_READER], 1);
    peer_close(&p);
    end(f);
}

static void a_reader_that_trickles_is_dropped_as_well(void **state)
{
    (void)state;
    struct fixture *f =
        begin((struct http_limits){ .unsent_bytes_max = 400000, .unsent_us = 100000 });
    struct peer p = peer_that_does_not_read(f);
    size_t line = 0;
    fill(f, &line);
    char few[512];
    int64_t until = clock_mono_us() + PEER_WAIT_US;
    while (f->aborts == 0 && clock_mono_us() < until) {
        (void)!recv(p.fd, few, sizeof few, MSG_DONTWAIT); /* progress, of a kind */
        loop_turn(f->loop, 1000);
    }
    assert_int_equal(f->why, HTTP_ABORT_SLOW_READER);
    assert_int_equal(f->aborts, 1);
    peer_close(&p);
    end(f);
}

/* ---- clients that leave ---- */

static void a_client_that_leaves_is_noticed_at_once(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    for (int how = 0; how < 3; how++) {
        for (int streaming = 0; streaming <= 1; streaming++) {
            struct peer p = peer_connect(f->port);
            peer_send(f->loop, &p, streaming ? STR(GET("/stream")) : STR(GET("/wait")));
            TURN_UNTIL(f->loop, f->held != NULL);
            loop_turn(f->loop, 0);
            f->aborts = 0;
            if (how == 0) peer_close(&p);
            if (how == 1) peer_reset(&p);
            if (how == 2) shutdown(p.fd, SHUT_WR); /* half-closed */
            int64_t from = clock_mono_us();
            TURN_UNTIL(f->loop, f->aborts == 1);
            assert_true(clock_mono_us() - from < 1000000);
            assert_int_equal(f->why, HTTP_ABORT_CLIENT_LEFT);
            peer_close(&p);
        }
    }
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_CLIENT_LEFT], 6);
    end(f);
}

/* Pipelined bytes that nobody reads must not hide the end of the stream behind them. */
static void a_client_that_leaves_behind_pipelined_bytes_is_noticed(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    peer_send(f->loop, &p, STR(GET("/later")));
    for (int i = 0; i < 3; i++)
        loop_turn(f->loop, 1000);
    peer_close(&p);
    TURN_UNTIL(f->loop, f->aborts == 1);
    assert_int_equal(f->requests, 1);
    end(f);
}

static void a_client_that_left_before_its_request_was_read_is_noticed(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    (void)!send(p.fd, GET("/wait"), strlen(GET("/wait")), 0);
    shutdown(p.fd, SHUT_WR);
    TURN_UNTIL(f->loop, f->aborts == 1);
    assert_int_equal(f->requests, 1);
    peer_close(&p);
    end(f);
}

static void a_half_closed_client_gets_what_is_answered_at_once(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    (void)!send(p.fd, GET("/1") GET("/2"), strlen(GET("/1") GET("/2")), 0);
    shutdown(p.fd, SHUT_WR);
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_true(peer_has(&p, "<GET /1 >") && peer_has(&p, "<GET /2 >"));
    assert_false(p.reset);
    peer_close(&p);
    end(f);
}

static void a_request_that_is_cut_short_reaches_nobody(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhi"));
    loop_turn(f->loop, 1000);
    shutdown(p.fd, SHUT_WR);
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_int_equal(p.got.len, 0);
    assert_int_equal(f->requests, 0);
    peer_close(&p);
    end(f);
}

/* ---- deadlines and bounds ---- */

static void deadlines_are_absolute(void **state)
{
    (void)state;
    static const struct {
        const char *start;
        struct http_limits limits; /* the other deadline is long */
        enum http_fault fault;
    } rows[] = {
        { "GET / HTTP/1.1\r\n", { .head_us = 50000 }, HTTP_FAULT_HEAD_LATE },
        { "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999\r\n\r\n",
          { .body_us = 50000 },
          HTTP_FAULT_BODY_LATE },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture *f = begin(rows[i].limits);
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, str_from(rows[i].start));
        int64_t from = clock_mono_us();
        while (!p.closed && clock_mono_us() - from < PEER_WAIT_US) {
            if (p.got.len == 0) (void)!send(p.fd, "x", 1, MSG_NOSIGNAL); /* never quite silent */
            loop_turn(f->loop, 2000);
            peer_read(&p);
        }
        assert_true(str_starts(buf_view(&p.got), STR("HTTP/1.1 408 ")));
        assert_int_equal(peer_count(&p, "HTTP/1.1"), 1);
        assert_int_equal(counts(f).refused[rows[i].fault], 1);
        assert_int_equal(f->requests, 0);
        peer_close(&p);
        end(f);
    }
}

static void idle_connections_are_closed_without_a_word(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .idle_us = 30000 });
    struct peer fresh = peer_connect(f->port);
    struct peer used = peer_connect(f->port);
    peer_send(f->loop, &used, STR(GET("/a")));
    PEER_UNTIL(f->loop, &used, used.closed);
    PEER_UNTIL(f->loop, &fresh, fresh.closed);
    assert_int_equal(fresh.got.len, 0);
    assert_true(str_ends(buf_view(&used.got), STR("<GET /a >")));
    assert_int_equal(counts(f).idle_closed, 2);
    peer_close(&fresh);
    peer_close(&used);
    end(f);
}

/* An exchange that is open has no idle deadline: a held request may wait long. */
static void an_open_exchange_outlives_the_idle_time(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .idle_us = 20000, .head_us = 20000 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    int64_t until = clock_mono_us() + 60000;
    TURN_UNTIL(f->loop, clock_mono_us() > until);
    assert_int_equal(f->aborts, 0);
    http_reply(f->held, 200, STR("text/plain"), STR("late"));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "late"));
    peer_close(&p);
    end(f);
}

static void heads_and_bodies_beyond_their_bounds_are_named(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){
        .line_bytes_max = 100, .head_bytes_max = 1000, .headers_max = 4, .body_bytes_max = 10 });
    CLEANUP(buf_fini) struct buf long_line = { 0 }, long_head = { 0 };
    buf_text(&long_line, "GET /");
    for (int i = 0; i < 200; i++)
        buf_byte(&long_line, 'a');
    buf_text(&long_head, "GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 1000; i++)
        buf_byte(&long_head, 'a');
    const struct {
        struct str raw;
        const char *status;
    } rows[] = {
        { buf_view(&long_line), "414" },
        { buf_view(&long_head), "431" },
        { STR("GET / HTTP/1.1\r\n" HOST "a:\r\nb:\r\nc:\r\nd:\r\n\r\n"), "431" },
        { STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n"), "413" },
        { STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n6\r\nsixsix\r\n5\r\n"),
          "413" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, rows[i].raw);
        assert_refused(f, &p, rows[i].status, rows[i].status);
        peer_close(&p);
    }
    end(f);
}

static void connections_beyond_the_bound_get_503(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .connections_max = 2 });
    struct peer p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = peer_connect(f->port);
        loop_turn(f->loop, 1000);
    }
    PEER_UNTIL(f->loop, &p[2], p[2].closed);
    assert_true(str_starts(buf_view(&p[2].got), STR("HTTP/1.1 503 ")));
    assert_true(peer_has(&p[2], "\r\nretry-after: 1\r\n"));
    assert_int_equal(counts(f).refused[HTTP_FAULT_CONNECTIONS], 1);
    peer_close(&p[0]);
    TURN_UNTIL(f->loop, counts(f).connections == 1);
    struct peer again = peer_connect(f->port);
    peer_send(f->loop, &again, STR(GET("/a")));
    PEER_UNTIL(f->loop, &again, peer_has(&again, "<GET /a >"));
    peer_close(&again);
    peer_close(&p[1]);
    peer_close(&p[2]);
    end(f);
}

static void request_memory_over_all_connections_is_bounded(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = 200000 });
    CLEANUP(buf_fini) struct buf raw = { 0 };
    buf_text(&raw, "POST / HTTP/1.1\r\n" HOST "Content-Length: 150000\r\n\r\n");
    for (int i = 0; i < 100000; i++)
        buf_byte(&raw, 'x');
    struct peer p[2] = { peer_connect(f->port), peer_connect(f->port) };
    peer_send(f->loop, &p[0], buf_view(&raw)); /* holds its part and stops */
    for (int i = 0; i < 10; i++)
        loop_turn(f->loop, 1000);
    (void)!send(p[1].fd, raw.data, raw.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    PEER_UNTIL(f->loop, &p[1], p[1].got.len > 0);
    assert_true(str_starts(buf_view(&p[1].got), STR("HTTP/1.1 503 ")));
    assert_int_equal(counts(f).refused[HTTP_FAULT_MEMORY], 1);
    peer_close(&p[0]);
    peer_close(&p[1]);
    TURN_UNTIL(f->loop, counts(f).held_bytes == 0);
    end(f);
}

static struct str render(void *ctx, const struct http_fault_info *why, struct buf *body)
{
    assert_non_null(ctx);
    buf_printf(body, "{\"code\":\"%s\"}", why->name);
    return STR("application/json");
}

static void refusals_are_rendered_by_the_role(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    *f = start((struct http_server_config){ .ctx = f, .render_refusal = render });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("GET / HTTP/1.1\r\n\r\n"));
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_true(peer_has(&p, "\r\ncontent-type: application/json\r\ncontent-length: 23\r\n"));
    assert_true(str_ends(buf_view(&p.got), STR("\r\n\r\n{\"code\":\"host_missing\"}")));
    peer_close(&p);
    end(f);
}

/* ---- listening ---- */

static void addresses_that_cannot_be_listened_on_are_explained(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct err err = { 0 };
    struct http_server *s = NULL;
    struct http_server_config config = { .host = "127.0.0.1",
                                         .port = f->port,
                                         .on_request = on_request };
    assert_int_equal(http_server_new(f->loop, &config, &s, &err), -EADDRINUSE);
    assert_true(strstr(err.text, "127.0.0.1:") != NULL);
    config = (struct http_server_config){ .host = "no such host", .on_request = on_request };
    assert_int_equal(http_server_new(f->loop, &config, &s, &err), -EINVAL);
    assert_true(strstr(err.text, "no such host") != NULL);
    assert_null(s);
    end(f);
}

static void ipv6_is_served(void **state)
{
    (void)state;
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    bool has_v6 = probe >= 0 && bind(probe, (struct sockaddr *)&to, sizeof to) == 0;
    if (probe >= 0) close(probe);
    if (!has_v6) {
        print_message("skipped: this machine has no IPv6 loopback\n");
        skip();
    }
    struct fixture *f = calloc(1, sizeof *f);
    *f = start((struct http_server_config){ .host = "[::1]", .ctx = f });
    to.sin6_port = htons(f->port);
    struct peer p = { .fd = socket(AF_INET6, SOCK_STREAM, 0) };
    assert_int_equal(connect(p.fd, (struct sockaddr *)&to, sizeof to), 0);
    peer_send(f->loop, &p, STR("GET /wait HTTP/1.1\r\nHost: [::1]:1\r\n\r\n"));
    TURN_UNTIL(f->loop, f->held != NULL);
    assert_true(str_starts(http_exchange_request(f->held)->peer, STR("[::1]:")));
    peer_close(&p);
    end(f);
}

static void servers_share_a_port_when_asked(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    *f = start((struct http_server_config){ .ctx = f, .reuse_port = true });
    struct err err = { 0 };
    CLEANUP(http_server_freep) struct http_server *second = NULL;
    struct http_server_config config = {
        .host = "127.0.0.1", .port = f->port, .ctx = f, .on_request = on_request, .reuse_port = true
    };
    assert_int_equal(http_server_new(f->loop, &config, &second, &err), 0);
    struct peer p[16];
    for (int i = 0; i < 16; i++) {
        p[i] = peer_connect(f->port);
        peer_send(f->loop, &p[i], STR(GET("/a")));
        PEER_UNTIL(f->loop, &p[i], peer_has(&p[i], "<GET /a >"));
        peer_close(&p[i]);
    }
    struct http_server_counts c;
    http_server_counts_get(second, &c);
    assert_int_equal(c.requests + counts(f).requests, 16);
    http_server_free(TAKE(second));
    end(f);
}

/* ---- draining ---- */

static void a_drain_finishes_what_is_open_and_closes_the_rest(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer idle = peer_connect(f->port);
    struct peer busy = peer_connect(f->port);
    struct peer late = peer_connect(f->port); /* asks after the drain has begun */
    peer_send(f->loop, &idle, STR(GET("/a")));
    PEER_UNTIL(f->loop, &idle, peer_has(&idle, "<GET /a >"));
    peer_send(f->loop, &busy, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    struct peer queued = peer_connect(f->port); /* nobody has accepted it yet */
    http_server_drain(f->server, on_empty, f);
    assert_int_equal(f->emptied, 0);
    peer_send(f->loop, &queued, STR(GET("/queued")));
    PEER_UNTIL(f->loop, &queued, queued.closed);
    assert_true(peer_has(&queued, "<GET /queued >"));
    peer_close(&queued);

    PEER_UNTIL(f->loop, &idle, idle.closed);
    peer_send(f->loop, &late, STR(GET("/late")));
    PEER_UNTIL(f->loop, &late, late.closed);
    assert_true(peer_has(&late, "<GET /late >"));
    assert_true(peer_has(&late, "\r\nconnection: close\r\n"));
    assert_int_equal(f->emptied, 0);
    http_reply(f->held, 200, STR("text/plain"), STR("done"));
    PEER_UNTIL(f->loop, &busy, busy.closed);
    assert_true(peer_has(&busy, "\r\nconnection: close\r\n") && peer_has(&busy, "done"));
    peer_close(&busy);
    peer_close(&late);
    peer_close(&idle);
    TURN_UNTIL(f->loop, f->emptied == 1);

    struct peer refused = { .fd = socket(AF_INET, SOCK_STREAM, 0) };
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(f->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(connect(refused.fd, (struct sockaddr *)&to, sizeof to), -1);
    assert_int_equal(errno, ECONNREFUSED);
    peer_close(&refused);
    end(f);
}

static void freeing_the_server_tells_open_exchanges(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/stream")));
    TURN_UNTIL(f->loop, f->held != NULL);
    http_server_free(TAKE(f->server));
    assert_int_equal(f->aborts, 1);
    assert_int_equal(f->why, HTTP_ABORT_SERVER);
    peer_close(&p);
    end(f);
}

/* ---- when memory or the kernel fails ---- */

/* The n-th failure point fails, for every n until one is not reached: a request is then answered
 * whole or its connection is closed, and the server goes on. */
static void any_single_failure_costs_at_most_its_connection(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct str raw = STR("POST /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello"
                         "GET /stream HTTP/1.1\r\n" HOST "\r\n");
    bool reached = true;
    int n = 0;
    while (reached) {
        n++;
        struct peer p = peer_connect(f->port);
        (void)!send(p.fd, raw.data, raw.len, MSG_NOSIGNAL);
        buf_reserve(&p.got, 65536); /* the test's own memory does not fail */
        fault_arm(NULL, (uint64_t)n);
        int64_t until = clock_mono_us() + PEER_WAIT_US;
        while (!f->held && !p.closed && clock_mono_us() < until) {
            loop_turn(f->loop, 1000);
            peer_read(&p);
        }
        reached = fault_hits() >= (uint64_t)n;
        fault_disarm();
        assert_true(f->held || p.closed);
        if (f->held) {
            int rc = http_stream_write(f->held, "data", 4);
            assert_true(rc == 0);
            http_stream_end(f->held);
            f->held = NULL;
            PEER_UNTIL(f->loop, &p, peer_has(&p, "data\r\n0\r\n\r\n"));
        }
        peer_close(&p);
        TURN_UNTIL(f->loop, counts(f).connections == 0);
        if (n > 1000) fail_msg("the faults never end");
    }
    assert_true(n > 5); /* there were points to fail */
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

static void set_descriptors(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* First the spare descriptor is given up to turn a client away, which can then try again elsewhere
 * instead of waiting in the queue; without even that the listener rests instead of spinning. */
static void running_out_of_descriptors_is_survived(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    set_descriptors((rlim_t)p.fd + 1); /* given out lowest first: all up to it are taken */
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_int_equal(counts(f).accept_failed, 1);
    set_descriptors(before.rlim_cur);
    peer_close(&p);

    p = peer_connect(f->port);
    set_descriptors(0);
    TURN_UNTIL(f->loop, counts(f).accept_failed == 2);
    struct loop_counts from, to;
    loop_counts_get(f->loop, &from);
    loop_turn(f->loop, 20000); /* nothing wakes it, although a client waits */
    loop_counts_get(f->loop, &to);
    assert_int_equal(to.turns - from.turns, 1);
    set_descriptors(before.rlim_cur);
    peer_send(f->loop, &p, STR(GET("/a")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /a >"));
    peer_close(&p);
    end(f);
}

/* ---- memory over time ---- */

static void thousands_of_requests_leave_nothing_behind(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    for (int round = 0; round < 20; round++) {
        struct peer p = peer_connect(f->port);
        for (int i = 0; i < 50; i++) {
            buf_clear(&p.got);
            peer_send(f->loop, &p, STR(GET("/1") GET("/2")));
            PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /2 >"));
        }
        peer_close(&p);
    }
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(f->requests, 2000);
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

int main(void)
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
        cmocka_unit_test(a_stream_is_chunked_and_the_connection_goes_on),
        cmocka_unit_test(a_stream_to_http_1_0_ends_with_the_connection),
        cmocka_unit_test(an_aborted_stream_never_looks_complete),
        cmocka_unit_test(a_stream_that_is_not_read_is_bounded_and_drains),
        cmocka_unit_test(a_reader_that_takes_nothing_is_dropped),
        cmocka_unit_test(a_reader_that_trickles_is_dropped_as_well),
        cmocka_unit_test(a_client_that_leaves_is_noticed_at_once),
        cmocka_unit_test(a_client_that_leaves_behind_pipelined_bytes_is_noticed),
        cmocka_unit_test(a_client_that_left_before_its_request_was_read_is_noticed),
        cmocka_unit_test(a_half_closed_client_gets_what_is_answered_at_once),
        cmocka_unit_test(a_request_that_is_cut_short_reaches_nobody),
        cmocka_unit_test(deadlines_are_absolute),
        cmocka_unit_test(idle_connections_are_closed_without_a_word),
        cmocka_unit_test(an_open_exchange_outlives_the_idle_time),
        cmocka_unit_test(heads_and_bodies_beyond_their_bounds_are_named),
        cmocka_unit_test(connections_beyond_the_bound_get_503),
        cmocka_unit_test(request_memory_over_all_connections_is_bounded),
        cmocka_unit_test(refusals_are_rendered_by_the_role),
        cmocka_unit_test(addresses_that_cannot_be_listened_on_are_explained),
        cmocka_unit_test(ipv6_is_served),
        cmocka_unit_test(servers_share_a_port_when_asked),
        cmocka_unit_test(a_drain_finishes_what_is_open_and_closes_the_rest),
        cmocka_unit_test(freeing_the_server_tells_open_exchanges),
        cmocka_unit_test(any_single_failure_costs_at_most_its_connection),
        cmocka_unit_test(running_out_of_descriptors_is_survived),
        cmocka_unit_test(thousands_of_requests_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

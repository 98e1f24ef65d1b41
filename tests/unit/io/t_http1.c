/* t_http1.c - tests which heads of requests and replies the parser accepts and refuses, whole and
 * byte by byte. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/own.h"
#include "base/io/http/http1.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <sys/types.h>

static inline void assert_str(struct str got, const char *expected)
{
    if (!str_eq(got, str_from(expected)))
        fail_msg("got \"" STR_FMT "\", expected \"%s\"", STR_ARG(got), expected);
}

/* Returns `count` bytes of filler between two texts. */
static inline struct str padded(struct buf *b, const char *before, size_t count, const char *after)
{
    buf_clear(b);
    buf_text(b, before);
    for (size_t i = 0; i < count; i++)
        buf_byte(b, 'a');
    buf_text(b, after);
    return buf_view(b);
}

static const struct http1_limits limits = { 256, 1024, 8 };

/* Reads as a server does: scans, then parses; `step` bytes arrive at a time. Returns 0, -EAGAIN
 * when the head is not whole, or -EINVAL with the fault. */
static int read_request(struct str in, size_t step, struct http_request *ret,
                        enum http_fault *ret_fault)
{
    struct http1_scan scan = { 0 };
    size_t len = 0;
    int rc = -EAGAIN;
    for (size_t have = 0; rc == -EAGAIN && have < in.len;) {
        have = min_size(have + step, in.len);
        rc = http1_scan(&scan, str_of(in.data, have), &limits, &len, ret_fault);
    }
    if (rc < 0) return rc;
    return http1_request_parse(str_of(in.data, len), &limits, ret, ret_fault);
}

#define H "Host: a\r\n"
#define END "\r\n"

struct request_row {
    const char *why;
    struct str raw;
    enum http_fault fault; /* NONE: accepted */
};

/* clang-format off */
static const struct request_row request_rows[] = {
    { "the smallest", STR("GET / HTTP/1.1\r\n" H END), HTTP_FAULT_NONE },
    { "1.0 needs no Host", STR("GET / HTTP/1.0\r\n\r\n"), HTTP_FAULT_NONE },
    { "an unknown method is the handler's", STR("PURGE / HTTP/1.1\r\n" H END), HTTP_FAULT_NONE },
    { "obs-text in a value", STR("GET / HTTP/1.1\r\n" H "x: \xc3\xa9\r\n" END), HTTP_FAULT_NONE },
    { "a tab in a value", STR("GET / HTTP/1.1\r\n" H "x: a\tb\r\n" END), HTTP_FAULT_NONE },
    { "an empty value", STR("GET / HTTP/1.1\r\n" H "x:\r\n" END), HTTP_FAULT_NONE },
    { "absolute form, same host", STR("GET http://A/x HTTP/1.1\r\n" H END), HTTP_FAULT_NONE },
    { "IPv6 host", STR("GET / HTTP/1.1\r\nHost: [::1]:80\r\n" END), HTTP_FAULT_NONE },
    { "asterisk for OPTIONS", STR("OPTIONS * HTTP/1.1\r\n" H END), HTTP_FAULT_NONE },
    { "CHUNKED in capitals", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: CHUNKED\r\n" END), HTTP_FAULT_NONE },
    { "100-continue", STR("POST / HTTP/1.1\r\n" H "Expect: 100-Continue\r\nContent-Length: 1\r\n" END), HTTP_FAULT_NONE },
    { "1.0 with an expectation: it did not know them", STR("POST / HTTP/1.0\r\nExpect: x\r\n" END), HTTP_FAULT_NONE },

    { "an empty line first", STR("\r\nGET / HTTP/1.1\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "HTTP/0.9", STR("GET /\r\n\r\n"), HTTP_FAULT_REQUEST_LINE },
    { "two blanks", STR("GET  / HTTP/1.1\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "a tab for a blank", STR("GET\t/ HTTP/1.1\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "a blank at the end", STR("GET / HTTP/1.1 \r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "a blank in the target", STR("GET /a b HTTP/1.1\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "a lower-case version", STR("GET / http/1.1\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "no method", STR(" / HTTP/1.1\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "a method that is no token", STR("G(T / HTTP/1.1\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "three digits of version", STR("GET / HTTP/1.10\r\n" H END), HTTP_FAULT_REQUEST_LINE },
    { "1.9", STR("GET / HTTP/1.9\r\n" H END), HTTP_FAULT_VERSION },
    { "2.0", STR("GET / HTTP/2.0\r\n" H END), HTTP_FAULT_VERSION },
    { "the preface of HTTP/2", STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HTTP_FAULT_VERSION },
    { "0.9 spelled out", STR("GET / HTTP/0.9\r\n" H END), HTTP_FAULT_VERSION },

    { "bare LF after the request line", STR("GET / HTTP/1.1\n" H END), HTTP_FAULT_BARE_LF },
    { "bare LF after a header", STR("GET / HTTP/1.1\r\nHost: a\n" END), HTTP_FAULT_BARE_LF },
    { "bare LF for the blank line", STR("GET / HTTP/1.1\r\n" H "\n"), HTTP_FAULT_BARE_LF },
    { "LF in a value", STR("GET / HTTP/1.1\r\n" H "x: a\nContent-Length: 5\r\n" END), HTTP_FAULT_BARE_LF },
    { "bare CR in a value", STR("GET / HTTP/1.1\r\n" H "x: a\rb\r\n" END), HTTP_FAULT_BARE_CR },
    { "CR CR LF", STR("GET / HTTP/1.1\r\n" H "x: a\r\r\n" END), HTTP_FAULT_BARE_CR },
    { "bare CR in the request line", STR("GET /\rHTTP/1.1\r\n" H END), HTTP_FAULT_BARE_CR },
    { "NUL in a value", STR("GET / HTTP/1.1\r\n" H "x: a\0b\r\n" END), HTTP_FAULT_CONTROL_BYTE },
    { "NUL in a name", STR("GET / HTTP/1.1\r\n" H "x\0: a\r\n" END), HTTP_FAULT_CONTROL_BYTE },
    { "NUL in the target", STR("GET /\0 HTTP/1.1\r\n" H END), HTTP_FAULT_CONTROL_BYTE },
    { "escape in a value", STR("GET / HTTP/1.1\r\n" H "x: \x1b[31m\r\n" END), HTTP_FAULT_CONTROL_BYTE },
    { "DEL in a value", STR("GET / HTTP/1.1\r\n" H "x: \x7f\r\n" END), HTTP_FAULT_CONTROL_BYTE },
    { "vertical tab before a value", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding:\x0b" "chunked\r\n" END), HTTP_FAULT_CONTROL_BYTE },
    { "a folded line", STR("GET / HTTP/1.1\r\n" H "x: a\r\n b\r\n" END), HTTP_FAULT_FOLD },
    { "a folded coding", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\tchunked\r\n" END), HTTP_FAULT_FOLD },
    { "a blank before the first header", STR("GET / HTTP/1.1\r\n " H END), HTTP_FAULT_FOLD },

    { "a blank before the colon", STR("POST / HTTP/1.1\r\n" H "Content-Length : 5\r\n" END), HTTP_FAULT_HEADER_NAME },
    { "a tab before the colon", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding\t: chunked\r\n" END), HTTP_FAULT_HEADER_NAME },
    { "no colon", STR("GET / HTTP/1.1\r\n" H "x\r\n" END), HTTP_FAULT_HEADER_NAME },
    { "no name", STR("GET / HTTP/1.1\r\n" H ": x\r\n" END), HTTP_FAULT_HEADER_NAME },
    { "a name with a high byte", STR("GET / HTTP/1.1\r\n" H "x\xff: a\r\n" END), HTTP_FAULT_HEADER_NAME },

    { "no Host", STR("GET / HTTP/1.1\r\n\r\n"), HTTP_FAULT_HOST_MISSING },
    { "two Hosts", STR("GET / HTTP/1.1\r\n" H "hOsT: b\r\n" END), HTTP_FAULT_HOST_REPEATED },
    { "two equal Hosts", STR("GET / HTTP/1.1\r\n" H H END), HTTP_FAULT_HOST_REPEATED },
    { "an empty Host", STR("GET / HTTP/1.1\r\nHost:\r\n" END), HTTP_FAULT_HOST_BAD },
    { "a list of hosts", STR("GET / HTTP/1.1\r\nHost: a, b\r\n" END), HTTP_FAULT_HOST_BAD },
    { "a host with a path", STR("GET / HTTP/1.1\r\nHost: a/b\r\n" END), HTTP_FAULT_HOST_BAD },
    { "a host with a user", STR("GET / HTTP/1.1\r\nHost: u@a\r\n" END), HTTP_FAULT_HOST_BAD },
    { "a port of letters", STR("GET / HTTP/1.1\r\nHost: a:b\r\n" END), HTTP_FAULT_HOST_BAD },
    { "a port out of range", STR("GET / HTTP/1.1\r\nHost: a:65536\r\n" END), HTTP_FAULT_HOST_BAD },
    { "an empty port", STR("GET / HTTP/1.1\r\nHost: a:\r\n" END), HTTP_FAULT_HOST_BAD },
    { "IPv6 without its bracket", STR("GET / HTTP/1.1\r\nHost: [::1\r\n" END), HTTP_FAULT_HOST_BAD },
    { "bytes behind the bracket", STR("GET / HTTP/1.1\r\nHost: [::1]x\r\n" END), HTTP_FAULT_HOST_BAD },
    { "empty brackets", STR("GET / HTTP/1.1\r\nHost: []\r\n" END), HTTP_FAULT_HOST_BAD },
    { "absolute form, another host", STR("GET http://b/ HTTP/1.1\r\n" H END), HTTP_FAULT_HOST_DIFFERS },
    { "absolute form, another port", STR("GET http://a:81/ HTTP/1.1\r\n" H END), HTTP_FAULT_HOST_DIFFERS },
    { "absolute form with a user", STR("GET http://u@a/ HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "absolute form without a host", STR("GET http:///x HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "another scheme", STR("GET ftp://a/ HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "authority form", STR("CONNECT a:443 HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "asterisk for GET", STR("GET * HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "a relative path", STR("GET a/b HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "a fragment", STR("GET /a#b HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "a backslash", STR("GET /a\\b HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "a high byte in the path", STR("GET /\xc3\xa9 HTTP/1.1\r\n" H END), HTTP_FAULT_TARGET },
    { "half a percent sign", STR("GET /%2 HTTP/1.1\r\n" H END), HTTP_FAULT_PERCENT },
    { "a percent sign before no digits", STR("GET /%zz HTTP/1.1\r\n" H END), HTTP_FAULT_PERCENT },
    { "percent NUL", STR("GET /a%00b HTTP/1.1\r\n" H END), HTTP_FAULT_PERCENT },
    { "a bad percent sign in the query", STR("GET /?a=% HTTP/1.1\r\n" H END), HTTP_FAULT_PERCENT },

    { "two lengths", STR("POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 6\r\n" END), HTTP_FAULT_LENGTH_REPEATED },
    { "two equal lengths", STR("POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 5\r\n" END), HTTP_FAULT_LENGTH_REPEATED },
    { "a list of lengths", STR("POST / HTTP/1.1\r\n" H "Content-Length: 5, 5\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "a signed length", STR("POST / HTTP/1.1\r\n" H "Content-Length: +5\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "a negative length", STR("POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "a hexadecimal length", STR("POST / HTTP/1.1\r\n" H "Content-Length: 0x5\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "an empty length", STR("POST / HTTP/1.1\r\n" H "Content-Length:\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "a quoted length", STR("POST / HTTP/1.1\r\n" H "Content-Length: \"5\"\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "a length with an inner blank", STR("POST / HTTP/1.1\r\n" H "Content-Length: 1 2\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "a length beyond 64 bits", STR("POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551616\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "length, then coding", STR("POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" END), HTTP_FAULT_LENGTH_AND_CODING },
    { "coding, then length", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n" END), HTTP_FAULT_LENGTH_AND_CODING },
    { "a tab before the length", STR("POST / HTTP/1.1\r\n" H "Content-Length:\t5\r\n" END), HTTP_FAULT_LENGTH_BAD },
    { "a tab before the coding", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding:\tchunked\r\n" END), HTTP_FAULT_CODING },
    { "a tab behind the host", STR("GET / HTTP/1.1\r\nHost: a\t\r\n" END), HTTP_FAULT_HOST_BAD },
    { "a body of an old GET", STR("GET / HTTP/1.0\r\nContent-Length: 5\r\n" END), HTTP_FAULT_BODY_OLD },
    { "no body of an old GET", STR("GET / HTTP/1.0\r\nContent-Length: 0\r\n" END), HTTP_FAULT_NONE },
    { "a body of an old POST", STR("POST / HTTP/1.0\r\nContent-Length: 5\r\n" END), HTTP_FAULT_NONE },
    { "two codings", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" END), HTTP_FAULT_CODING },
    { "identity", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n" END), HTTP_FAULT_CODING },
    { "gzip, chunked", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n" END), HTTP_FAULT_CODING },
    { "chunked, identity", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n" END), HTTP_FAULT_CODING },
    { "xchunked", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n" END), HTTP_FAULT_CODING },
    { "chunked with a parameter", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked;x=1\r\n" END), HTTP_FAULT_CODING },
    { "quoted chunked", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: \"chunked\"\r\n" END), HTTP_FAULT_CODING },
    { "a comma before chunked", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: ,chunked\r\n" END), HTTP_FAULT_CODING },
    { "an empty coding", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n" END), HTTP_FAULT_CODING },
    { "a no-break space before chunked", STR("POST / HTTP/1.1\r\n" H "Transfer-Encoding: \xa0" "chunked\r\n" END), HTTP_FAULT_CODING },
    { "chunked in 1.0", STR("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" END), HTTP_FAULT_CODING },
    { "another expectation", STR("POST / HTTP/1.1\r\n" H "Expect: a-pony\r\n" END), HTTP_FAULT_EXPECT },
    { "nine headers where eight are the bound", STR("GET / HTTP/1.1\r\n" H "a:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\ng:\r\nh:\r\n" END), HTTP_FAULT_HEADERS_MANY },
};

/* clang-format on */

static void requests_are_accepted_or_refused_for_the_right_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(request_rows); i++) {
        const struct request_row *row = &request_rows[i];
        /* In steps of 1, 2, 3 bytes and all at once the verdict is the same. */
        for (size_t step = 1; step <= 4; step++) {
            struct http_request req;
            enum http_fault fault = HTTP_FAULT_NONE;
            int rc = read_request(row->raw, step < 4 ? step : row->raw.len, &req, &fault);
            if (rc == (row->fault == HTTP_FAULT_NONE ? 0 : -EINVAL) && fault == row->fault)
                continue;
            fail_msg("%s (step %zu): rc %d, fault %s, expected %s", row->why, step, rc,
                     http_fault_info(fault)->name, http_fault_info(row->fault)->name);
        }
    }
}

static void every_prefix_of_a_request_is_incomplete(void **state)
{
    (void)state;
    struct str raw = STR("POST /v1/x?y HTTP/1.1\r\n" H "Content-Length: 5\r\n" END);
    struct http_request req;
    enum http_fault fault;
    for (size_t len = 1; len < raw.len; len++)
        assert_int_equal(read_request(str_of(raw.data, len), len, &req, &fault), -EAGAIN);
    assert_int_equal(read_request(raw, raw.len, &req, &fault), 0);
}

static void the_parts_of_a_request_are_found(void **state)
{
    (void)state;
    struct http_request req;
    enum http_fault fault;
    struct str raw = STR("POST /v1/chat%20x?a=1&b=%41+c HTTP/1.1\r\nHost: example.org:8080\r\n"
                         "content-LENGTH: 012\r\nX-Two:  a  b \t\r\nConnection: foo, Close\r\n"
                         "Expect: 100-continue\r\nx-two: second\r\n\r\n");
    assert_int_equal(read_request(raw, 1, &req, &fault), 0);
    assert_str(req.method, "POST");
    assert_str(req.target, "/v1/chat%20x?a=1&b=%41+c");
    assert_str(req.path, "/v1/chat%20x");
    assert_str(req.query, "a=1&b=%41+c");
    assert_str(req.host, "example.org:8080");
    assert_str(http_request_header(&req, "x-two"), "a  b");
    assert_str(http_request_header(&req, "X-TWO"), "a  b");
    assert_null(http_request_header(&req, "x-three").data);
    assert_int_equal(req.header_count, 6);
    assert_int_equal(req.body_kind, HTTP_BODY_COUNTED);
    assert_int_equal(req.body_length, 12);
    assert_int_equal(req.minor, 1);
    assert_false(req.keep_alive);
    assert_true(req.expect_continue);
}

static void keep_alive_follows_version_and_connection(void **state)
{
    (void)state;
    /* clang-format off */
    static const struct { struct str raw; bool keep; } rows[] = {
        { STR("GET / HTTP/1.1\r\n" H END), true },
        { STR("GET / HTTP/1.1\r\n" H "Connection: close\r\n" END), false },
        { STR("GET / HTTP/1.1\r\n" H "Connection: keep-alive, CLOSE\r\n" END), false },
        { STR("GET / HTTP/1.1\r\n" H "Connection: keep-alive\r\nConnection: close\r\n" END), false },
        { STR("GET / HTTP/1.0\r\n" END), false },
        { STR("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n" END), true },
        { STR("GET / HTTP/1.0\r\nConnection: x-keep-alive\r\n" END), false },
    };
    /* clang-format on */
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_request req;
        enum http_fault fault;
        assert_int_equal(read_request(rows[i].raw, 7, &req, &fault), 0);
        assert_int_equal(req.keep_alive, rows[i].keep);
    }
}

static void absolute_form_gives_path_and_query(void **state)
{
    (void)state;
    struct http_request req;
    enum http_fault fault;
    struct str raw = STR("GET HTTP://a?q HTTP/1.1\r\n" H END);
    assert_int_equal(read_request(raw, 3, &req, &fault), 0);
    assert_str(req.path, "/");
    assert_str(req.query, "q");
}

static void heads_at_the_bound_pass_and_beyond_it_are_refused_at_once(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf b = { 0 };
    struct http_request req;
    enum http_fault fault = HTTP_FAULT_NONE;
    size_t around = sizeof "GET / HTTP/1.1\r" - 1;
    struct str in = padded(&b, "GET /", 256 - around, " HTTP/1.1\r\n" H END);
    assert_int_equal(read_request(in, 1, &req, &fault), 0);
    in = padded(&b, "GET /", 256 - around + 1, " HTTP/1.1\r\n" H END);
    assert_int_equal(read_request(in, 1, &req, &fault), -EINVAL);
    assert_int_equal(fault, HTTP_FAULT_LINE_LONG);
    in = padded(&b, "GET /", 300, ""); /* no line end */
    assert_int_equal(read_request(in, in.len, &req, &fault), -EINVAL);
    assert_int_equal(fault, HTTP_FAULT_LINE_LONG);

    const char *before = "GET / HTTP/1.1\r\n" H "x: ";
    in = padded(&b, before, 1024 - strlen(before) - 4, "\r\n\r\n");
    assert_int_equal(in.len, 1024);
    assert_int_equal(read_request(in, 1, &req, &fault), 0);
    in = padded(&b, before, 1024 - strlen(before) - 3, "\r\n\r\n");
    assert_int_equal(read_request(in, 1, &req, &fault), -EINVAL);
    assert_int_equal(fault, HTTP_FAULT_HEAD_LONG);
}

/* ---- replies ---- */

struct response_row {
    const char *why;
    struct str raw;
    bool to_head;
    enum http_fault fault;
    int status;
    enum http_body_kind kind;
    bool keep_alive;
};

/* clang-format off */
static const struct response_row response_rows[] = {
    { "counted", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), false, HTTP_FAULT_NONE, 200, HTTP_BODY_COUNTED, true },
    { "chunked", STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), false, HTTP_FAULT_NONE, 200, HTTP_BODY_CHUNKED, true },
    { "until the end", STR("HTTP/1.1 200 OK\r\n\r\n"), false, HTTP_FAULT_NONE, 200, HTTP_BODY_UNTIL_END, false },
    { "no reason", STR("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"), false, HTTP_FAULT_NONE, 200, HTTP_BODY_NONE, true },
    { "a reason of words", STR("HTTP/1.1 404 Not Found Here\r\nContent-Length: 0\r\n\r\n"), false, HTTP_FAULT_NONE, 404, HTTP_BODY_NONE, true },
    { "to HEAD", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), true, HTTP_FAULT_NONE, 200, HTTP_BODY_NONE, true },
    { "204 has no body", STR("HTTP/1.1 204 No Content\r\n\r\n"), false, HTTP_FAULT_NONE, 204, HTTP_BODY_NONE, true },
    { "304 has no body", STR("HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n"), false, HTTP_FAULT_NONE, 304, HTTP_BODY_NONE, true },
    { "100", STR("HTTP/1.1 100 Continue\r\n\r\n"), false, HTTP_FAULT_NONE, 100, HTTP_BODY_NONE, true },
    { "1.0 closes", STR("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n"), false, HTTP_FAULT_NONE, 200, HTTP_BODY_COUNTED, false },
    { "1.0 kept alive", STR("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n"), false, HTTP_FAULT_NONE, 200, HTTP_BODY_COUNTED, true },
    { "close", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"), false, HTTP_FAULT_NONE, 200, HTTP_BODY_COUNTED, false },

    { "both framings", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), false, HTTP_FAULT_LENGTH_AND_CODING, 0, 0, 0 },
    { "two lengths", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"), false, HTTP_FAULT_LENGTH_REPEATED, 0, 0, 0 },
    { "gzip", STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"), false, HTTP_FAULT_CODING, 0, 0, 0 },
    { "chunked in 1.0", STR("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), false, HTTP_FAULT_CODING, 0, 0, 0 },
    { "four digits", STR("HTTP/1.1 2000 OK\r\n\r\n"), false, HTTP_FAULT_STATUS_LINE, 0, 0, 0 },
    { "status 099", STR("HTTP/1.1 099 OK\r\n\r\n"), false, HTTP_FAULT_STATUS_LINE, 0, 0, 0 },
    { "status 600", STR("HTTP/1.1 600 OK\r\n\r\n"), false, HTTP_FAULT_STATUS_LINE, 0, 0, 0 },
    { "another protocol", STR("SSH-2.0-OpenSSH\r\n\r\n"), false, HTTP_FAULT_STATUS_LINE, 0, 0, 0 },
    { "HTTP/2", STR("HTTP/2.0 200 OK\r\n\r\n"), false, HTTP_FAULT_VERSION, 0, 0, 0 },
    { "bare LF", STR("HTTP/1.1 200 OK\nContent-Length: 5\n\n"), false, HTTP_FAULT_BARE_LF, 0, 0, 0 },
};

/* clang-format on */

static void replies_are_framed_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(response_rows); i++) {
        const struct response_row *row = &response_rows[i];
        struct http1_scan scan = { 0 };
        struct http_response resp = { 0 };
        enum http_fault fault = HTTP_FAULT_NONE;
        size_t len = 0;
        int rc = http1_scan(&scan, row->raw, &limits, &len, &fault);
        if (rc == 0)
            rc = http1_response_parse(str_of(row->raw.data, len), &limits, row->to_head, &resp,
                                      &fault);
        if (fault != row->fault || rc != (row->fault == HTTP_FAULT_NONE ? 0 : -EINVAL))
            fail_msg("%s: rc %d, fault %s", row->why, rc, http_fault_info(fault)->name);
        if (rc == 0 && (resp.status != row->status || resp.body_kind != row->kind ||
                        resp.keep_alive != row->keep_alive))
            fail_msg("%s: status %d, body %d, keep-alive %d", row->why, resp.status, resp.body_kind,
                     resp.keep_alive);
    }
}

static void headers_that_would_break_a_head_are_not_valid(void **state)
{
    (void)state;
    assert_true(http_header_valid(STR("x-a"), STR("b c\t\xc3\xa9")));
    assert_false(http_header_valid(STR("x-a"), STR("b\r\nSet-Cookie: c")));
    assert_false(http_header_valid(STR("x-a"), STR("b\n")));
    assert_false(http_header_valid(STR("x-a"), STR("b\0")));
    assert_false(http_header_valid(STR("x a"), STR("b")));
    assert_false(http_header_valid(STR(""), STR("b")));
    assert_true(http_target_valid(STR("/a?b=%20")));
    assert_false(http_target_valid(STR("/a b")));
    assert_false(http_target_valid(STR("/a\r\nX: y")));
    assert_false(http_target_valid(STR("a")));
}

static void every_fault_has_a_name_a_status_and_a_sentence(void **state)
{
    (void)state;
    for (int i = 0; i < HTTP_FAULT_COUNT; i++) {
        const struct http_fault_info *info = http_fault_info((enum http_fault)i);
        assert_true(info->status >= 200 && info->name && info->name[0] && info->sentence[0]);
        assert_true(http_status_text(info->status)[0]);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(info->name, http_fault_info((enum http_fault)k)->name);
    }
}

/* ---- bodies, counted and in chunks, however they are cut; percent signs and queries ---- */

struct chunked_row {
    const char *why;
    struct str raw;
    bool trailers_refused;
    enum http_fault fault;
    const char *data; /* when accepted */
    size_t rest;      /* bytes behind the body */
};

/* clang-format off */
static const struct chunked_row chunked_rows[] = {
    { "empty", STR("0\r\n\r\n"), true, HTTP_FAULT_NONE, "", 0 },
    { "one", STR("5\r\nhello\r\n0\r\n\r\n"), true, HTTP_FAULT_NONE, "hello", 0 },
    { "two, sizes in hex", STR("A\r\n0123456789\r\n0a\r\nabcdefghij\r\n0\r\n\r\n"), true, HTTP_FAULT_NONE, "0123456789abcdefghij", 0 },
    { "the next request behind it", STR("1\r\nx\r\n0\r\n\r\nGET"), true, HTTP_FAULT_NONE, "x", 3 },
    { "line ends in the data", STR("4\r\n\r\n\r\n\r\n0\r\n\r\n"), true, HTTP_FAULT_NONE, "\r\n\r\n", 0 },
    { "a trailer that is skipped", STR("1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\nZ"), false, HTTP_FAULT_NONE, "x", 1 },
    { "a trailer that is refused", STR("1\r\nx\r\n0\r\nA: b\r\n\r\n"), true, HTTP_FAULT_TRAILER, NULL, 0 },
    { "an extension", STR("1;a=b\r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "a blank behind the size", STR("1 \r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "a blank before the size", STR(" 1\r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "0x", STR("0x1\r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "a sign", STR("+1\r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "negative", STR("-1\r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "no size", STR("\r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "bare LF behind the size", STR("1\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "bare CR behind the size", STR("1\rx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "bare LF behind the data", STR("1\r\nx\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "more data than said", STR("1\r\nxy\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "data said too long", STR("3\r\nxy\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "a size that wraps 64 bits", STR("10000000000000001\r\nx\r\n0\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "sixteen zeros", STR("0000000000000000\r\n\r\n"), true, HTTP_FAULT_CHUNK, NULL, 0 },
    { "bare LF at the end", STR("0\r\n\n"), false, HTTP_FAULT_TRAILER, NULL, 0 },
    { "bare LF in a trailer", STR("0\r\na: b\n\r\n"), false, HTTP_FAULT_TRAILER, NULL, 0 },
    { "CR at the end before no LF", STR("0\r\n\rx"), true, HTTP_FAULT_CHUNK, NULL, 0 },
};

/* clang-format on */

/* Feeds `step` bytes at a time. Returns the bytes used, or -EINVAL. */
static ssize_t feed(const struct chunked_row *row, size_t step, struct buf *out,
                    enum http_fault *ret_fault)
{
    struct http1_body body;
    http1_body_init(&body, HTTP_BODY_CHUNKED, 0, row->trailers_refused);
    size_t pos = 0;
    while (!body.done && pos < row->raw.len) {
        struct str in = str_of(row->raw.data + pos, min_size(step, row->raw.len - pos));
        struct str data;
        size_t used;
        if (http1_body_next(&body, in, &used, &data, ret_fault) < 0) return -EINVAL;
        buf_str(out, data);
        pos += used;
    }
    return body.done ? (ssize_t)pos : -EAGAIN;
}

static void chunked_bodies_come_apart_the_same_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(chunked_rows); i++) {
        const struct chunked_row *row = &chunked_rows[i];
        for (size_t step = 1; step <= row->raw.len; step++) {
            CLEANUP(buf_fini) struct buf out = { 0 };
            enum http_fault fault = HTTP_FAULT_NONE;
            ssize_t rc = feed(row, step, &out, &fault);
            ssize_t expected = row->data ? (ssize_t)(row->raw.len - row->rest) : -EINVAL;
            if (rc != expected || fault != row->fault)
                fail_msg("%s, step %zu: rc %zd, fault %s", row->why, step, rc,
                         http_fault_info(fault)->name);
            if (row->data) assert_str(buf_view(&out), row->data);
        }
    }
}

static void trailers_of_a_reply_are_bounded(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf b = { 0 };
    struct str raw = padded(&b, "0\r\na: ", HTTP_TRAILER_BYTES_MAX, "\r\n\r\n");
    const struct chunked_row row = { "long trailer", raw, false, HTTP_FAULT_TRAILER, NULL, 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    enum http_fault fault = HTTP_FAULT_NONE;
    assert_int_equal(feed(&row, 1000, &out, &fault), -EINVAL);
    assert_int_equal(fault, HTTP_FAULT_TRAILER);
}

static void a_counted_body_takes_exactly_its_bytes(void **state)
{
    (void)state;
    struct http1_body body;
    struct str data;
    size_t used;
    enum http_fault fault;
    http1_body_init(&body, HTTP_BODY_COUNTED, 5, true);
    assert_int_equal(http1_body_next(&body, STR("hel"), &used, &data, &fault), 0);
    assert_str(data, "hel");
    assert_false(body.done);
    assert_int_equal(http1_body_next(&body, STR("loGET"), &used, &data, &fault), 0);
    assert_str(data, "lo");
    assert_int_equal(used, 2);
    assert_true(body.done);
    http1_body_init(&body, HTTP_BODY_COUNTED, 0, true);
    assert_true(body.done);
    http1_body_init(&body, HTTP_BODY_NONE, 0, true);
    assert_true(body.done);
}

static void percent_signs_and_queries_are_decoded(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf b = { 0 };
    assert_int_equal(http_percent_decode(STR("a%2Fb+%c3%a9"), &b), 0);
    assert_str(buf_view(&b), "a/b+\xc3\xa9");
    assert_int_equal(http_percent_decode(STR("%2"), &b), -EINVAL);
    assert_int_equal(http_percent_decode(STR("%00"), &b), -EINVAL);
    struct str query = STR("a=1&bb=x%26y&c&a=2");
    buf_clear(&b);
    assert_int_equal(http_query_value(query, "bb", &b), 0);
    assert_str(buf_view(&b), "x&y");
    buf_clear(&b);
    assert_int_equal(http_query_value(query, "a", &b), 0);
    assert_str(buf_view(&b), "1");
    buf_clear(&b);
    assert_int_equal(http_query_value(query, "c", &b), 0);
    assert_int_equal(b.len, 0);
    assert_int_equal(http_query_value(query, "b", &b), -ENOENT);
}

static int http1_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_accepted_or_refused_for_the_right_reason),
        cmocka_unit_test(every_prefix_of_a_request_is_incomplete),
        cmocka_unit_test(the_parts_of_a_request_are_found),
        cmocka_unit_test(keep_alive_follows_version_and_connection),
        cmocka_unit_test(absolute_form_gives_path_and_query),
        cmocka_unit_test(heads_at_the_bound_pass_and_beyond_it_are_refused_at_once),
        cmocka_unit_test(replies_are_framed_or_refused),
        cmocka_unit_test(headers_that_would_break_a_head_are_not_valid),
        cmocka_unit_test(every_fault_has_a_name_a_status_and_a_sentence),
        cmocka_unit_test(chunked_bodies_come_apart_the_same_however_they_are_cut),
        cmocka_unit_test(trailers_of_a_reply_are_bounded),
        cmocka_unit_test(a_counted_body_takes_exactly_its_bytes),
        cmocka_unit_test(percent_signs_and_queries_are_decoded),
    };
    return cmocka_run_group_tests_name("http1", tests, NULL, NULL);
}

int main(void)
{
    return http1_tests();
}

/* f_http1.c - reads any bytes as a request, as a reply and as a chunked body.
 *
 * Besides not crashing it must hold that (1) where the bytes are cut changes nothing; (2) an accepted
 * head holds no byte that a head may not hold, and one framing only; (3) a head written out again from
 * its parts is read the same. */
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/http/http1.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

static const struct http1_limits limits = { 1024, 4096, 32 };

struct verdict {
    int rc;
    enum http_fault fault;
    size_t len;
};

static struct verdict scan(struct str in, size_t step)
{
    struct http1_scan s = { 0 };
    struct verdict v = { .rc = -EAGAIN };
    for (size_t have = 0; v.rc == -EAGAIN && have < in.len;) {
        have = step < in.len - have ? have + step : in.len;
        v.rc = http1_scan(&s, str_of(in.data, have), &limits, &v.len, &v.fault);
    }
    return v;
}

static void check_request(struct str head)
{
    struct http_request a, b;
    enum http_fault fault;
    if (http1_request_parse(head, &limits, &a, &fault) < 0) {
        must(http_fault_info(fault)->status >= 400);
        return;
    }
    must(a.path.len > 0 && (a.path.data[0] == '/' || a.path.data[0] == '*'));
    must(a.minor == 0 || a.host.len > 0);
    must((a.body_kind == HTTP_BODY_COUNTED) == (a.body_length > 0));

    CLEANUP(buf_fini) struct buf again = { 0 };
    buf_printf(&again, STR_FMT " " STR_FMT " HTTP/1.%u\r\n", STR_ARG(a.method), STR_ARG(a.target),
               a.minor);
    for (uint32_t i = 0; i < a.header_count; i++) {
        must(http_header_valid(a.headers[i].name, a.headers[i].value));
        buf_printf(&again, STR_FMT ": " STR_FMT "\r\n", STR_ARG(a.headers[i].name),
                   STR_ARG(a.headers[i].value));
    }
    buf_text(&again, "\r\n");
    const struct http1_limits wide = { 8192, 65536, 32 }; /* ": " may be longer than ":" was */
    must(http1_request_parse(buf_view(&again), &wide, &b, &fault) == 0);
    must(str_eq(a.path, b.path) && str_eq(a.query, b.query) && str_eq(a.host, b.host));
    must(a.body_kind == b.body_kind && a.body_length == b.body_length);
    must(a.keep_alive == b.keep_alive && a.header_count == b.header_count);
}

static void check_response(struct str head)
{
    struct http_response resp;
    enum http_fault fault;
    for (int to_head = 0; to_head <= 1; to_head++) {
        if (http1_response_parse(head, &limits, to_head, &resp, &fault) < 0) return;
        must(resp.status >= 100 && resp.status <= 599);
        must(!to_head || resp.body_kind == HTTP_BODY_NONE);
        must(!resp.keep_alive || resp.body_kind != HTTP_BODY_UNTIL_END);
    }
}

static struct verdict take_chunked(struct str in, size_t step, bool refuse, struct buf *out)
{
    struct http1_body body;
    struct verdict v = { .rc = -EAGAIN };
    http1_body_init(&body, HTTP_BODY_CHUNKED, 0, refuse);
    while (!body.done && v.len < in.len) {
        size_t left = in.len - v.len;
        struct str data;
        size_t used;
        if (http1_body_next(&body, str_of(in.data + v.len, step < left ? step : left), &used, &data,
                            &v.fault) < 0) {
            v.rc = -EINVAL;
            return v;
        }
        must(used > 0 && data.len <= used);
        buf_str(out, data);
        v.len += used;
    }
    if (body.done) v.rc = 0;
    return v;
}

static void check_chunked(struct str in, size_t step, bool refuse)
{
    CLEANUP(buf_fini) struct buf whole = { 0 }, cut = { 0 };
    struct verdict a = take_chunked(in, in.len, refuse, &whole);
    struct verdict b = take_chunked(in, step, refuse, &cut);
    must(a.rc == b.rc && a.fault == b.fault);
    must(a.rc < 0 || a.len == b.len);
    must(a.rc == -EINVAL || str_eq(buf_view(&whole), buf_view(&cut)));
}

const struct fuzz_cost fuzz_cost = { 40000, 200 };

void fuzz_one(const uint8_t *data, size_t size)
{
    if (size < 2) return;
    /* The first byte says where the input is cut; the rest is the message. */
    size_t step = 1 + data[0] % 32;
    struct str in = str_of(data + 1, size - 1);
    struct verdict whole = scan(in, in.len);
    struct verdict cut = scan(in, step);
    must(whole.rc == cut.rc && whole.fault == cut.fault && whole.len == cut.len);
    if (whole.rc == 0) {
        check_request(str_of(in.data, whole.len));
        check_response(str_of(in.data, whole.len));
        in = str_of(in.data + whole.len, in.len - whole.len);
    }
    if (in.len > 0) check_chunked(in, step, data[0] & 0x80);
}

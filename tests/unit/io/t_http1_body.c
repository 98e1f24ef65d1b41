/* t_http1_body.c - bodies, counted and in chunks, however they are cut; percent signs and queries. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http1.h"
#include "tests/unit/io/http1_text.h"

#include <errno.h>
#include <sys/types.h>

struct chunked_row {
    const char *why;
    struct str raw;
    bool trailers_refused;
    enum http_fault fault;
    const char *data; /* when accepted */
    size_t rest;      /* bytes that are not the body's */
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

/* Feeds `step` bytes at a time, as they come. Returns the bytes used, or -EINVAL. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunked_bodies_come_apart_the_same_however_they_are_cut),
        cmocka_unit_test(trailers_of_a_reply_are_bounded),
        cmocka_unit_test(a_counted_body_takes_exactly_its_bytes),
        cmocka_unit_test(percent_signs_and_queries_are_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

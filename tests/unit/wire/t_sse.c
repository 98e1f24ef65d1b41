/* t_sse.c - tests server-sent events: writing them, and cutting streams into events and lines. */
#include "base/core/own.h"
#include "base/wire/sse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static int collect(void *arg, struct str data)
{
    struct buf *out = arg;
    buf_byte(out, '<');
    buf_str(out, data);
    return buf_byte(out, '>');
}

static void framing(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf got = { 0 };
    struct sse_reader r;
    sse_reader_init(&r, 32);
    assert_int_equal(sse_reader_feed(&r,
                                     STR("event: x\ndata: a\ndata:b\r\nid: 1\n\n\n\n: c\n\ndata\n\n"
                                         "data: tail"),
                                     collect, &got),
                     0);
    assert_string_equal(got.data, "<a\nb><>"); /* an unfinished event is not delivered */
    sse_reader_fini(&r);

    sse_reader_init(&r, 8);
    assert_int_equal(sse_reader_feed(&r, STR("data: 123456789\n\n"), collect, &got), -E2BIG);
    sse_reader_fini(&r);
    sse_reader_init(&r, 8);
    assert_int_equal(sse_reader_feed(&r, STR("data:123"), collect, &got), 0);
    assert_int_equal(sse_reader_feed(&r, STR("45"), collect, &got), -E2BIG);
    sse_reader_fini(&r);

    struct line_reader lines;
    buf_clear(&got);
    line_reader_init(&lines, 4);
    assert_int_equal(line_reader_feed(&lines, STR("ab\ncd\r\n\nef"), collect, &got), 0);
    assert_int_equal(line_reader_feed(&lines, STR("gh\n"), collect, &got), 0);
    assert_string_equal(got.data, "<ab><cd><><efgh>");
    assert_int_equal(line_reader_feed(&lines, STR("12345\n"), collect, &got), -E2BIG);
    line_reader_fini(&lines);
}

static int stop_at_once(void *arg, struct str line)
{
    (void)line;
    return *(int *)arg;
}

static void a_callback_may_stop_the_feed(void **state)
{
    (void)state;
    int rc = -ECANCELED;
    struct line_reader lines;
    line_reader_init(&lines, 10);
    assert_int_equal(line_reader_feed(&lines, STR("a\nb\n"), stop_at_once, &rc), -ECANCELED);
    line_reader_fini(&lines);
}

static void named_events(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w = sse_event_begin(&out, "ping");
    json_kv_u64(&w, "n", 1);
    sse_event_end(&w);
    assert_string_equal(out.data, "event: ping\ndata: {\"type\":\"ping\",\"n\":1}\n\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(framing),
        cmocka_unit_test(a_callback_may_stop_the_feed),
        cmocka_unit_test(named_events),
    };
    return cmocka_run_group_tests_name("sse", tests, NULL, NULL);
}

/* t_fetch.c - tests calls through libcurl against sockets whose every byte the test writes. */
#include "base/core/fault.h"
#include "tests/unit/io/fetch_rig.h"

#include <signal.h>

/* ---- what is sent and what comes back ---- */

static void a_request_is_sent_as_asked_and_the_reply_is_whole(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ 0 });
    struct seen s = { 0 };
    const struct fetch_header headers[] = { { STR("X-Empty"), STR("") },
                                            { STR("X-A"), STR("b c") } };
    start(&w, &s,
          (struct fetch_request){ .method = STR("PATCH"),
                                  .headers = headers,
                                  .header_count = 2,
                                  .bearer = STR("secret"),
                                  .content_type = STR("application/json"),
                                  .body = STR("{\"a\":1}") });
    assert_int_equal(s.ends, 0); /* no callback from inside fetch_start */
    struct peer p = take(&w);
    PEER_UNTIL(w.loop, &p, peer_has(&p, "{\"a\":1}"));
    static const char *const lines[] = {
        "PATCH /x HTTP/1.1\r\n",
        "Authorization: Bearer secret\r\n",
        "X-A: b c\r\n",
        "X-Empty:\r\n",
        "Content-Type: application/json\r\n",
        "Content-Length: 7\r\n",
        "User-Agent: muster/" MUSTER_VERSION "\r\n",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (!peer_has(&p, lines[i])) fail_msg("%s is not in:\n%s", lines[i], p.got.data);
    assert_false(peer_has(&p, "Expect"));
    peer_send(w.loop, &p, STR(REPLY));
    TURN_UNTIL(w.loop, s.ends == 1);
    assert_end(&s, FETCH_OK);
    assert_int_equal(s.reply.status, 200);
    assert_int_equal(s.head_status, 200);
    assert_true(s.reply.sent);
    assert_string_equal(s.note, "hi");
    assert_true(str_eq(buf_view(&s.body), STR("ok")));
    peer_close(&p);
    seen_fini(&s);
    end(&w);
}

static void a_body_streams_as_it_comes(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ 0 });
    struct seen s = { 0 };
    start(&w, &s, (struct fetch_request){ .on_data = on_data, .body_bytes_max = SIZE_MAX });
    struct peer p = take(&w);
    peer_send(w.loop, &p, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    TURN_UNTIL(w.loop, s.heads == 1);
    for (size_t i = 1; i <= 100; i++) {
        peer_send(w.loop, &p, STR("3\r\nabc\r\n"));
        TURN_UNTIL(w.loop, s.body.len == 3 * i);
        assert_int_equal(s.ends, 0);
    }
    peer_send(w.loop, &p, STR("0\r\n\r\n"));
    TURN_UNTIL(w.loop, s.ends == 1);
    assert_end(&s, FETCH_OK);
    assert_int_equal(s.data_calls, 100);
    assert_int_equal(s.reply.body.len, 0);
    peer_close(&p);
    seen_fini(&s);
    end(&w);
}

static void a_connection_is_used_again(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ 0 });
    struct peer p = { .fd = -1 };
    for (int i = 0; i < 5; i++) {
        struct seen s = { 0 };
        start(&w, &s, (struct fetch_request){ .fresh = i == 3 });
        if (i == 0 || i == 3) {
            peer_close(&p);
            p = take(&w);
        }
        PEER_UNTIL(w.loop, &p, peer_has(&p, "\r\n\r\n"));
        buf_clear(&p.got);
        peer_send(w.loop, &p, STR(REPLY));
        TURN_UNTIL(w.loop, s.ends == 1);
        assert_end(&s, FETCH_OK);
        seen_fini(&s);
    }
    assert_int_equal(counts(&w).connects,
                     2); /* the first, and the one that asked for a fresh one */
    peer_close(&p);
    end(&w);
}

/* The peer closes the pooled connection after it has read the second request: it may have carried it out. */
static void a_request_with_a_body_is_sent_once(void **state)
{
    (void)state;
    for (int with_body = 0; with_body < 2; with_body++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen first = { 0 }, s = { 0 };
        start(&w, &first, (struct fetch_request){ 0 });
        struct peer p = take(&w), again = { .fd = -1 };
        peer_send(w.loop, &p, STR(REPLY));
        TURN_UNTIL(w.loop, first.ends == 1);
        buf_clear(&p.got);
        start(&w, &s, (struct fetch_request){ .body = with_body ? STR("buy one") : STR("") });
        PEER_UNTIL(w.loop, &p, peer_has(&p, with_body ? "buy one" : "\r\n\r\n"));
        peer_close(&p);
        if (!with_body) { /* a read is repeated by libcurl, and does no harm */
            again = take(&w);
            peer_send(w.loop, &again, STR(REPLY));
        }
        TURN_UNTIL(w.loop, s.ends == 1);
        assert_end(&s, with_body ? FETCH_CUT : FETCH_OK);
        assert_true(s.reply.sent);
        for (int i = 0; i < 20; i++)
            loop_turn(w.loop, 1000);
        /* libcurl may connect again before it notices that it has nothing to send. */
        if (with_body && peer_accept_now(w.listener, &again)) {
            peer_read(&again);
            assert_int_equal(again.got.len, 0);
        }
        peer_close(&again);
        seen_fini(&first);
        seen_fini(&s);
        end(&w);
    }
}

/* ---- bounds ---- */

static void calls_wait_their_turn_and_too_many_are_refused(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ .running_max = 2, .waiting_max = 3 });
    struct seen s[6] = { 0 };
    struct err err = { 0 };
    for (int i = 0; i < 2; i++)
        start(&w, &s[i], (struct fetch_request){ 0 });
    struct peer p[2] = { take(&w), take(&w) };
    for (int i = 2; i < 5; i++)
        start(&w, &s[i], (struct fetch_request){ 0 });
    assert_int_equal(try_start(&w, &s[5], (struct fetch_request){ 0 }, &err), -EAGAIN);
    assert_non_null(strstr(err.text, "3 calls wait"));
    for (int i = 0; i < 20; i++)
        loop_turn(w.loop, 1000);
    assert_int_equal(counts(&w).running, 2);
    assert_int_equal(counts(&w).waiting, 3);
    assert_int_equal(counts(&w).refused, 1);
    fetch_cancel(TAKE(s[3].call)); /* out of the queue */
    for (int done = 0; done < 4;) {
        for (int i = 0; i < 2; i++) {
            peer_read(&p[i]);
            if (peer_has(&p[i], "\r\n\r\n")) {
                buf_clear(&p[i].got);
                peer_send(w.loop, &p[i], STR(REPLY));
            }
        }
        loop_turn(w.loop, 1000);
        done = s[0].ends + s[1].ends + s[2].ends + s[4].ends;
    }
    assert_int_equal(s[3].ends, 0);
    assert_int_equal(counts(&w).running + counts(&w).waiting, 0);
    assert_int_equal(counts(&w).connects, 2);
    for (int i = 0; i < 6; i++)
        seen_fini(&s[i]);
    peer_close(&p[0]);
    peer_close(&p[1]);
    end(&w);
}

static void a_reply_above_its_bound_ends_the_call(void **state)
{
    (void)state;
    static const struct {
        size_t max, sent;
        bool stream, head;
        enum fetch_end end;
    } rows[] = {
        { 1000, 1000, false, false, FETCH_OK },
        { 1000, 1001, false, false, FETCH_LARGE },
        { 1000, 1000, true, false, FETCH_OK },
        { 1000, 200000, true, false, FETCH_LARGE },
        { 0, FETCH_BODY_BYTES + 1, false, false, FETCH_LARGE },
        { 0, FETCH_HEAD_BYTES_MAX, false, true, FETCH_LARGE },
        { SIZE_MAX, 9 << 20, true, false, FETCH_OK },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen s = { 0 };
        CLEANUP(buf_fini) struct buf out = { 0 };
        start(&w, &s,
              (struct fetch_request){ .body_bytes_max = rows[i].max,
                                      .on_data = rows[i].stream ? on_data : NULL });
        struct peer p = take(&w);
        buf_text(&out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
        for (size_t at = 0; rows[i].head && at < rows[i].sent; at += 1010)
            buf_printf(&out, "X-H: %01003d\r\n", 1);
        buf_printf(&out, "\r\n%zx\r\n", rows[i].sent);
        for (size_t n = 0; n < rows[i].sent; n++)
            buf_byte(&out, 'a');
        buf_text(&out, "\r\n0\r\n\r\n");
        assert_int_equal(out.rc, 0);
        peer_send(w.loop, &p, buf_view(&out));
        TURN_UNTIL(w.loop, s.ends == 1);
        if (s.reply.end != rows[i].end) fail_msg("row %zu: %s", i, s.problem);
        if (rows[i].max) assert_true(s.body.len <= rows[i].max);
        peer_close(&p);
        seen_fini(&s);
        end(&w);
    }
}

static void a_deadline_ends_a_call_wherever_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *sends, *says;
        bool waits;
    } rows[] = {
        { "", "no reply before the deadline", false },
        { "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "not whole at the deadline", false },
        { "", "before its turn came", true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ .running_max = 1 });
        struct seen first = { 0 }, s = { 0 };
        if (rows[i].waits) start(&w, &first, (struct fetch_request){ 0 });
        start(&w, &s, (struct fetch_request){ .deadline_us = loop_now_us(w.loop) + 100000 });
        struct peer p = take(&w);
        peer_send(w.loop, &p, str_from(rows[i].sends));
        TURN_UNTIL(w.loop, s.ends == 1);
        assert_end(&s, FETCH_TIMEOUT);
        assert_says(&s, rows[i].says);
        assert_int_equal(s.reply.sent, !rows[i].waits);
        /* The connection goes with the call, so that no later call inherits a dead one. */
        if (!rows[i].waits) PEER_UNTIL(w.loop, &p, p.closed);
        peer_close(&p);
        if (first.call) fetch_cancel(TAKE(first.call));
        seen_fini(&first);
        seen_fini(&s);
        end(&w);
    }
}

static void silence_ends_a_stream_and_slow_bytes_do_not(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ 0 });
    struct seen s = { 0 };
    start(&w, &s, (struct fetch_request){ .on_data = on_data, .idle_us = 200000 });
    struct peer p = take(&w);
    peer_send(w.loop, &p, STR("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"));
    int64_t begun_us = clock_mono_us();
    for (size_t i = 1; clock_mono_us() < begun_us + 1000000; i++) { /* five times the limit */
        peer_send(w.loop, &p, STR("x"));
        TURN_UNTIL(w.loop, s.body.len == i);
        int64_t until_us = clock_mono_us() + 20000;
        TURN_UNTIL(w.loop, clock_mono_us() > until_us);
    }
    assert_int_equal(s.ends, 0);
    TURN_UNTIL(w.loop, s.ends == 1);
    assert_end(&s, FETCH_TIMEOUT);
    assert_says(&s, "no byte came");
    peer_close(&p);
    seen_fini(&s);
    end(&w);
}

/* ---- failures ---- */

static void a_failure_says_what_failed_and_whether_the_request_was_sent(void **state)
{
    (void)state;
    static const struct {
        const char *url, *sends;
        enum fetch_end end;
        bool sent;
        const char *says;
    } rows[] = {
        { NULL, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", FETCH_CUT, true, "/x" },
        { NULL, "", FETCH_CUT, true, "Empty reply" },
        { NULL, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", FETCH_CUT, true,
          "" },
        { NULL, "nonsense\r\n\r\n", FETCH_MALFORMED, true, "" },
        { "http://127.0.0.1:1/", NULL, FETCH_CONNECT, false, "127.0.0.1:1" },
        { "http://[::1]:1/", NULL, FETCH_CONNECT, false, "[::1]:1" },
        { "http://no-such-host.invalid/", NULL, FETCH_NAME, false, "name is not known" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen s = { 0 };
        start(&w, &s, (struct fetch_request){ .url = str_from(rows[i].url) });
        if (rows[i].sends) {
            struct peer p = take(&w);
            peer_send(w.loop, &p, str_from(rows[i].sends));
            peer_close(&p);
        }
        TURN_UNTIL(w.loop, s.ends == 1);
        if (s.reply.end != rows[i].end || s.reply.sent != rows[i].sent ||
            !strstr(s.problem, rows[i].says))
            fail_msg("row %zu: %s sent %d: %s", i, fetch_end_name(s.reply.end), s.reply.sent,
                     s.problem);
        assert_int_equal(counts(&w).ended[rows[i].end], 1);
        seen_fini(&s);
        end(&w);
    }
}

static void a_request_that_cannot_be_sent_is_refused(void **state)
{
    (void)state;
    static const struct fetch_header split[] = { { STR("X-A"), STR("b\r\nX-B: c") } };
    static const struct fetch_header colon[] = { { STR("X:A"), STR("b") } };
    static const struct {
        struct fetch_request req;
        const char *says;
    } rows[] = {
        { { .url = STR("ftp://127.0.0.1/") }, "https://" },
        { { .url = STR("127.0.0.1") }, "https://" },
        { { .url = STR("https://") }, "https://" },
        { { .url = STR("https://a b/") }, "https://" },
        { { .url = STR("https://a/\r\nX: y") }, "https://" },
        { { .url = STR("https://user:secret@a/") }, "user or password" },
        { { .method = STR("GET /") }, "method" },
        { { .headers = split, .header_count = 1 }, "X-A" },
        { { .headers = colon, .header_count = 1 }, "X:A" },
        { { .bearer = STR("a\nb") }, "Authorization" },
        { { .proxy = STR("socks5://127.0.0.1:1") }, "SOCKS" },
        { { .proxy = STR("https://127.0.0.1:1") }, "SOCKS" },
    };
    struct world w = begin((struct fetch_config){ 0 });
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct seen s = { 0 };
        struct err err = { 0 };
        int rc = try_start(&w, &s, rows[i].req, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says))
            fail_msg("row %zu: %d %s", i, rc, err.text);
        if (strstr(err.text, "secret")) fail_msg("row %zu tells a password", i);
    }
    assert_int_equal(counts(&w).calls, 0);
    end(&w);
}

static void short_of_memory_a_call_fails_and_nothing_leaks(void **state)
{
    (void)state;
    uint64_t nth = 0;
    for (bool failed = true; failed;) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen s = { 0 };
        struct err err = { 0 };
        struct peer p = { .fd = -1 };
        const struct fetch_header header = { STR("X-A"), STR("b") };
        fault_arm(NULL, ++nth);
        int rc = try_start(&w, &s, (struct fetch_request){ .headers = &header, .header_count = 1 },
                           &err);
        if (rc == 0) {
            int64_t until_us = clock_mono_us() + PEER_WAIT_US;
            while (s.ends == 0 && clock_mono_us() < until_us) {
                loop_turn(w.loop, 1000);
                if (p.fd < 0 && peer_accept_now(w.listener, &p)) peer_send(w.loop, &p, STR(REPLY));
            }
            assert_int_equal(s.ends, 1);
        } else {
            assert_int_equal(rc, -ENOMEM);
        }
        failed = fault_hits() >= nth;
        fault_disarm();
        /* Some failures cost nothing: a timer that cannot be set is replaced by a task. */
        if (rc == 0 && failed && s.reply.end != FETCH_OK) assert_end(&s, FETCH_LOCAL);
        if (!failed) assert_end(&s, FETCH_OK);
        peer_close(&p);
        seen_fini(&s);
        end(&w);
    }
    assert_true(nth > 4);
}

/* ---- cancelling ---- */

static void a_call_may_be_cancelled_from_anywhere(void **state)
{
    (void)state;
    for (int where = 0; where < 5; where++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen other = { 0 };
        struct seen s = { .cancel_on_head = where == 1,
                          .cancel_on_data = where == 2,
                          .cancel_on_end = where == 3,
                          .other = where == 4 ? &other : NULL };
        start(&w, &s, (struct fetch_request){ .on_data = on_data });
        if (where == 0) {
            fetch_cancel(TAKE(s.call));
            for (int i = 0; i < 10; i++)
                loop_turn(w.loop, 1000);
            assert_int_equal(s.ends, 0);
            assert_int_equal(counts(&w).connects, 0);
        } else {
            struct peer p = take(&w);
            if (where == 4) start(&w, &other, (struct fetch_request){ 0 });
            peer_send(w.loop, &p, STR(REPLY));
            if (where == 1 || where == 2)
                PEER_UNTIL(w.loop, &p, p.closed);
            else
                TURN_UNTIL(w.loop, s.ends == 1);
            assert_int_equal(s.ends, where >= 3);
            assert_int_equal(s.data_calls, where != 1);
            assert_int_equal(other.ends, 0);
            peer_close(&p);
        }
        assert_int_equal(counts(&w).running + counts(&w).waiting, 0);
        seen_fini(&s);
        end(&w);
    }
}

static void a_call_may_start_another_from_its_end(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ .running_max = 1 });
    struct seen next = { 0 };
    struct seen s = { .start_on_end = true, .other = &next };
    start(&w, &s, (struct fetch_request){ 0 });
    struct peer p = take(&w);
    peer_send(w.loop, &p, STR(REPLY));
    TURN_UNTIL(w.loop, s.ends == 1);
    buf_clear(&p.got);
    PEER_UNTIL(w.loop, &p, peer_has(&p, "\r\n\r\n"));
    peer_send(w.loop, &p, STR(REPLY));
    TURN_UNTIL(w.loop, next.ends == 1);
    assert_end(&next, FETCH_OK);
    peer_close(&p);
    seen_fini(&s);
    seen_fini(&next);
    end(&w);
}

static void closing_the_client_ends_every_call(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ .running_max = 1 });
    struct seen s[3] = { 0 };
    for (int i = 0; i < 3; i++)
        start(&w, &s[i], (struct fetch_request){ 0 });
    struct peer p = take(&w);
    fetch_free(TAKE(w.fetch));
    for (int i = 0; i < 3; i++) {
        assert_end(&s[i], FETCH_CANCELLED);
        seen_fini(&s[i]);
    }
    PEER_UNTIL(w.loop, &p, p.closed);
    peer_close(&p);
    end(&w);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_sent_as_asked_and_the_reply_is_whole),
        cmocka_unit_test(a_body_streams_as_it_comes),
        cmocka_unit_test(a_connection_is_used_again),
        cmocka_unit_test(a_request_with_a_body_is_sent_once),
        cmocka_unit_test(calls_wait_their_turn_and_too_many_are_refused),
        cmocka_unit_test(a_reply_above_its_bound_ends_the_call),
        cmocka_unit_test(a_deadline_ends_a_call_wherever_it_is),
        cmocka_unit_test(silence_ends_a_stream_and_slow_bytes_do_not),
        cmocka_unit_test(a_failure_says_what_failed_and_whether_the_request_was_sent),
        cmocka_unit_test(a_request_that_cannot_be_sent_is_refused),
        cmocka_unit_test(short_of_memory_a_call_fails_and_nothing_leaks),
        cmocka_unit_test(a_call_may_be_cancelled_from_anywhere),
        cmocka_unit_test(a_call_may_start_another_from_its_end),
        cmocka_unit_test(closing_the_client_ends_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

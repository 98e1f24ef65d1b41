/* t_fetch.c - tests calls through libcurl against sockets whose every byte the test writes, and against our
 * own server over TLS. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/fetch.h"
#include "base/io/http/http_server.h"
#include "base/io/net/tls.h"
#include "tests/certs.h"
#include "tests/unit/io/raw_peer.h"

#include <ftw.h>
#include <signal.h>

#define REPLY "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Note:  hi \r\n\r\nok"

struct world {
    struct loop *loop;
    struct fetch *fetch;
    int listener;
    uint16_t port;
};

struct seen { /* the record of one call */
    struct fetch_call *call;
    struct buf body;
    int heads, ends, head_status;
    size_t data_calls;
    struct fetch_reply reply;
    char problem[FETCH_PROBLEM_BYTES], note[32];
    bool cancel_on_head, cancel_on_data, cancel_on_end, start_on_end;
    struct world *world;
    struct seen *other; /* started or cancelled from a callback */
};

static struct world begin(struct fetch_config config)
{
    struct world w = { 0 };
    struct err err = { 0 };
    assert_int_equal(loop_new(&w.loop, &err), 0);
    if (fetch_new(w.loop, &config, &w.fetch, &err) < 0) fail_msg("%s", err.text);
    w.listener = peer_listen(&w.port);
    return w;
}

static void end(struct world *w)
{
    fetch_free(w->fetch);
    if (w->listener >= 0) close(w->listener);
    loop_free(w->loop);
}

static void seen_fini(struct seen *s)
{
    buf_fini(&s->body);
    *s = (struct seen){ 0 };
}

static void start(struct world *w, struct seen *s, struct fetch_request req);

static void on_head(void *arg, int status)
{
    struct seen *s = arg;
    s->heads++;
    s->head_status = status;
    snprintf(s->note, sizeof s->note, STR_FMT, STR_ARG(fetch_header(s->call, "x-note")));
    if (s->cancel_on_head) fetch_cancel(TAKE(s->call));
}

static void on_data(void *arg, struct str data)
{
    struct seen *s = arg;
    assert_true(data.len > 0);
    assert_int_equal(s->ends, 0);
    s->data_calls++;
    buf_str(&s->body, data);
    if (s->cancel_on_data) fetch_cancel(TAKE(s->call));
    if (s->other && s->other->call) fetch_cancel(TAKE(s->other->call));
}

static void on_end(void *arg, const struct fetch_reply *reply)
{
    struct seen *s = arg;
    s->ends++;
    s->reply = *reply;
    snprintf(s->problem, sizeof s->problem, "%s", reply->problem);
    if (reply->body.len) buf_str(&s->body, reply->body);
    if (s->cancel_on_end) fetch_cancel(s->call);
    if (s->start_on_end) start(s->world, s->other, (struct fetch_request){ 0 });
    s->call = NULL;
}

/* The URL of the world's listener, unless the request has one. */
static struct str url_of(const struct world *w, const char *path, char ret[128])
{
    snprintf(ret, 128, "http://127.0.0.1:%u%s", w->port, path);
    return str_from(ret);
}

static int try_start(struct world *w, struct seen *s, struct fetch_request req, struct err *err)
{
    char url[128];
    if (req.url.len == 0) req.url = url_of(w, "/x", url);
    req.on_head = on_head;
    req.on_end = on_end;
    req.arg = s;
    s->world = w;
    return fetch_start(w->fetch, &req, &s->call, err);
}

static void start(struct world *w, struct seen *s, struct fetch_request req)
{
    struct err err = { 0 };
    if (try_start(w, s, req, &err) < 0) fail_msg("%s", err.text);
}

static struct fetch_counts counts(const struct world *w)
{
    struct fetch_counts c;
    fetch_counts_get(w->fetch, &c);
    return c;
}

/* Accepts a connection and waits for the head of a request. */
static struct peer take(struct world *w)
{
    struct peer p;
    PEER_ACCEPT(w->loop, w->listener, &p);
    PEER_UNTIL(w->loop, &p, peer_has(&p, "\r\n\r\n"));
    return p;
}

static void assert_end(const struct seen *s, enum fetch_end expected)
{
    if (s->ends != 1 || s->reply.end != expected)
        fail_msg("%d ends, %s: %s; expected %s", s->ends, fetch_end_name(s->reply.end), s->problem,
                 fetch_end_name(expected));
    assert_true((expected == FETCH_OK) == (s->problem[0] == 0));
}

static void assert_says(const struct seen *s, const char *words)
{
    if (!strstr(s->problem, words)) fail_msg("\"%s\" does not say \"%s\"", s->problem, words);
}

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

/* ---- redirects ---- */

static void redirects_are_followed_only_when_asked(void **state)
{
    (void)state;
    static const struct {
        const char *method, *where;
        uint32_t max;
        int status;  /* that the caller gets */
        bool secret; /* the second request has the header */
    } rows[] = {
        { "GET", "/y", 0, 302, false },
        { "GET", "/y", 1, 200, true },
        { "POST", "/y", 1, 302, false },
        { "GET", NULL, 1, 200, false }, /* the same port of another host: no credentials */
        { "GET", "gopher://127.0.0.1/", 1, 302, false },
        { "GET", "http://a:b@127.0.0.1/", 1, 302, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen s = { 0 };
        char where[128], head[256];
        snprintf(where, sizeof where, "http://localhost:%u/y", w.port);
        if (rows[i].where) snprintf(where, sizeof where, "%s", rows[i].where);
        snprintf(head, sizeof head,
                 "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 3\r\n\r\nold", where);
        start(&w, &s,
              (struct fetch_request){ .method = str_from(rows[i].method),
                                      .bearer = STR("secret"),
                                      .redirects_max = rows[i].max });
        struct peer p = take(&w), second = { .fd = -1 };
        peer_send(w.loop, &p, str_from(head));
        if (rows[i].status == 200) {
            bool same = rows[i].where != NULL;
            buf_clear(&p.got);
            if (!same) second = take(&w);
            struct peer *q = same ? &p : &second;
            PEER_UNTIL(w.loop, q, peer_has(q, "GET /y HTTP/1.1\r\n") && peer_has(q, "\r\n\r\n"));
            if (peer_has(q, "secret") != rows[i].secret) fail_msg("row %zu: %s", i, q->got.data);
            peer_send(w.loop, q, STR(REPLY));
        }
        TURN_UNTIL(w.loop, s.ends == 1);
        if (s.reply.end != FETCH_OK || s.reply.status != rows[i].status)
            fail_msg("row %zu: %d %s", i, s.reply.status, s.problem);
        assert_int_equal(s.heads, 1);
        assert_true(str_eq(buf_view(&s.body), s.reply.status == 200 ? STR("ok") : STR("old")));
        peer_close(&p);
        peer_close(&second);
        seen_fini(&s);
        end(&w);
    }
}

/* ---- proxies ---- */

static void a_proxy_is_used_only_when_the_caller_gives_one(void **state)
{
    (void)state;
    char proxy[128], upper[64], none[64];
    static const struct {
        const char *host, *no_proxy;
        bool environ, asked, through;
    } rows[] = {
        { "far.invalid", "", true, false, true },
        { "far.invalid", "other.invalid, invalid", true, false, false },
        { "far.invalid", ".invalid", true, false, false },
        { "far.invalid", "ar.invalid", true, false, true },
        { "far.invalid", "*", true, false, false },
        { "far.invalid", "", false, false, false },
        { "far.invalid", "*", false, true, true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        const char *const environ[] = { proxy, upper, none, NULL };
        char at[64], url[64];
        snprintf(at, sizeof at, "http://user:pw@127.0.0.1:%u", w.port);
        snprintf(proxy, sizeof proxy, "HTTPS_PROXY=%s", at);
        snprintf(upper, sizeof upper, "http_proxy=http://127.0.0.1:1");
        snprintf(none, sizeof none, "NO_PROXY=%s", rows[i].no_proxy);
        fetch_free(w.fetch);
        struct fetch_config config = { .environ = rows[i].environ ? environ : NULL };
        assert_int_equal(fetch_new(w.loop, &config, &w.fetch, NULL), 0);
        snprintf(url, sizeof url, "https://%s/", rows[i].host);
        struct seen s = { 0 };
        start(&w, &s,
              (struct fetch_request){ .url = str_from(url),
                                      .proxy = rows[i].asked ? str_from(at) : STR("") });
        if (rows[i].through) {
            struct peer p = take(&w);
            assert_true(peer_has(&p, "CONNECT far.invalid:443 HTTP/1.1\r\n"));
            assert_true(peer_has(&p, "Proxy-Authorization: Basic dXNlcjpwdw==\r\n"));
            peer_send(w.loop, &p, STR("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"));
            peer_close(&p);
        }
        TURN_UNTIL(w.loop, s.ends == 1);
        if (s.reply.end == FETCH_OK || (s.reply.end == FETCH_NAME) == rows[i].through)
            fail_msg("row %zu: %s", i, s.problem);
        seen_fini(&s);
        end(&w);
    }
}

static void the_environment_of_the_process_is_not_read(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ 0 });
    struct seen s = { 0 };
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    start(&w, &s, (struct fetch_request){ 0 });
    struct peer p = take(&w);
    peer_send(w.loop, &p, STR(REPLY));
    TURN_UNTIL(w.loop, s.ends == 1);
    assert_end(&s, FETCH_OK);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    peer_close(&p);
    seen_fini(&s);
    end(&w);
}

/* ---- TLS ---- */

static char folder[64];
static bool has_certs;

static struct str pem(const char *name, char ret[4096])
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = fread(ret, 1, 4096, f);
    fclose(f);
    assert_in_range(len, 1, 4095);
    return str_of(ret, len);
}

static void reply_ok(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    http_reply(x, 200, STR("text/plain"), STR("ok"));
}

static struct str path_of(const char *name, char ret[128])
{
    snprintf(ret, 128, "%s/%s", folder, name);
    return str_from(ret);
}

/* Serves with these files; `ca` empty: from every client. */
static void serve(struct world *w, const char *name, const char *ca, struct tls **tls,
                  struct http_server **server)
{
    char text[3][128], one[64];
    struct err err = { 0 };
    struct tls_files files = { 0 };
    snprintf(one, sizeof one, "%s.pem", name);
    files.certificate = path_of(one, text[0]);
    snprintf(one, sizeof one, "%s.key", name);
    files.key = path_of(one, text[1]);
    if (ca[0]) files.ca = path_of(ca, text[2]);
    if (tls_server_new(&files, tls, &err) < 0) fail_msg("%s", err.text);
    struct http_server_config config = { .host = "127.0.0.1", .tls = *tls, .on_request = reply_ok };
    assert_int_equal(http_server_new(w->loop, &config, server, NULL), 0);
}

static void the_peer_is_who_the_caller_says(void **state)
{
    (void)state;
    if (!has_certs) skip();
    static const struct {
        const char *server, *server_ca, *host, *name, *ca, *client;
        bool files, insecure;
        enum fetch_end end;
    } rows[] = {
        { "good", "", "localhost", "", "ca.pem", "", false, false, FETCH_OK },
        { "good", "", "127.0.0.1", "", "ca.pem", "", false, false, FETCH_OK },
        { "good", "", "localhost", "", "ca.pem", "", true, false, FETCH_OK },
        { "good", "", "127.0.0.1", "good.test", "ca.pem", "", false, false, FETCH_OK },
        { "good", "", "localhost", "other.test", "ca.pem", "", false, false, FETCH_TLS },
        { "other", "", "localhost", "", "ca.pem", "", false, false, FETCH_TLS },
        { "other", "", "localhost", "other.test", "ca.pem", "", false, false, FETCH_OK },
        { "old", "", "localhost", "", "ca.pem", "", false, false, FETCH_TLS },
        { "stranger", "", "localhost", "", "ca.pem", "", false, false, FETCH_TLS },
        { "stranger", "", "localhost", "", "ca.pem", "", false, true, FETCH_OK },
        { "good", "", "localhost", "", "", "", false, false, FETCH_TLS },
        { "good", "ca.pem", "localhost", "", "ca.pem", "client", false, false, FETCH_OK },
        { "good", "ca.pem", "localhost", "", "ca.pem", "client", true, false, FETCH_OK },
        { "good", "ca.pem", "localhost", "", "ca.pem", "stranger", false, false, FETCH_TLS },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct tls *tls = NULL;
        struct http_server *server = NULL;
        struct seen s = { 0 };
        char text[3][4096], path[3][128], one[64], url[64];
        serve(&w, rows[i].server, rows[i].server_ca, &tls, &server);
        struct fetch_tls t = { .name = str_from(rows[i].name), .insecure = rows[i].insecure };
        if (rows[i].ca[0]) {
            t.ca = pem(rows[i].ca, text[0]);
            t.ca_file = path_of(rows[i].ca, path[0]);
        }
        if (rows[i].client[0]) {
            snprintf(one, sizeof one, "%s.pem", rows[i].client);
            t.certificate = pem(one, text[1]);
            t.certificate_file = path_of(one, path[1]);
            snprintf(one, sizeof one, "%s.key", rows[i].client);
            t.key = pem(one, text[2]);
            t.key_file = path_of(one, path[2]);
        }
        if (rows[i].files) t.ca = t.certificate = t.key = STR("");
        snprintf(url, sizeof url, "https://%s:%u/", rows[i].host, http_server_port(server));
        start(&w, &s, (struct fetch_request){ .url = str_from(url), .tls = &t, .http2 = true });
        TURN_UNTIL(w.loop, s.ends == 1);
        /* In TLS 1.3 a client learns only from its first read that its certificate was refused. */
        bool refused = s.reply.end == rows[i].end ||
                       (rows[i].client[0] && rows[i].end == FETCH_TLS && s.reply.end == FETCH_CUT);
        if (!refused) fail_msg("row %zu: %s: %s", i, fetch_end_name(s.reply.end), s.problem);
        seen_fini(&s);
        http_server_free(server);
        tls_free(tls);
        end(&w);
    }
}

static void a_connection_is_not_shared_between_identities(void **state)
{
    (void)state;
    if (!has_certs) skip();
    struct world w = begin((struct fetch_config){ 0 });
    struct tls *tls = NULL;
    struct http_server *server = NULL;
    char text[3][4096], url[64];
    serve(&w, "good", "", &tls, &server);
    struct fetch_tls plain = { .ca = pem("ca.pem", text[0]) };
    struct fetch_tls client = plain, named = plain;
    client.certificate = pem("client.pem", text[1]);
    client.key = pem("client.key", text[2]);
    named.name = STR("good.test");
    const struct fetch_tls *const turns[] = { &plain, &plain, &client, &client, &named, &plain };
    snprintf(url, sizeof url, "https://localhost:%u/", http_server_port(server));
    for (size_t i = 0; i < COUNT_OF(turns); i++) {
        struct seen s = { 0 };
        start(&w, &s, (struct fetch_request){ .url = str_from(url), .tls = turns[i] });
        TURN_UNTIL(w.loop, s.ends == 1);
        assert_end(&s, FETCH_OK);
        seen_fini(&s);
    }
    assert_int_equal(counts(&w).connects, 3);
    http_server_free(server);
    tls_free(tls);
    end(&w);
}

static void a_file_that_is_absent_is_named(void **state)
{
    (void)state;
    static const struct fetch_tls rows[] = {
        { .ca_file = STR("/no/ca.pem") },
        { .certificate_file = STR("/no/cert.pem"), .key_file = STR("/no/key.pem") },
        { .ca = STR("nonsense") },
    };
    static const char *const says[] = { "/no/ca.pem", "/no/cert.pem", "CA" };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen s = { 0 };
        char url[64];
        snprintf(url, sizeof url, "https://127.0.0.1:%u/", w.port);
        start(&w, &s, (struct fetch_request){ .url = str_from(url), .tls = &rows[i] });
        TURN_UNTIL(w.loop, s.ends == 1);
        assert_end(&s, FETCH_LOCAL);
        assert_false(s.reply.sent);
        assert_says(&s, says[i]);
        seen_fini(&s);
        end(&w);
    }
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    snprintf(folder, sizeof folder, "/tmp/muster-fetch-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    has_certs = certs_make(folder);
    if (!has_certs) printf("skipped: no openssl command makes certificates here: TLS of fetch\n");
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
        cmocka_unit_test(redirects_are_followed_only_when_asked),
        cmocka_unit_test(a_proxy_is_used_only_when_the_caller_gives_one),
        cmocka_unit_test(the_environment_of_the_process_is_not_read),
        cmocka_unit_test(the_peer_is_who_the_caller_says),
        cmocka_unit_test(a_connection_is_not_shared_between_identities),
        cmocka_unit_test(a_file_that_is_absent_is_named),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}

/* t_http_client.c - tests calls against a peer that replies byte by byte as scripted, and blocking
 * fetches. */
#include "base/core/fault.h"
#include "base/io/http/http_fetch.h"
#include "base/io/http/http_server.h"
#include "tests/unit/io/client_rig.h"

#include <pthread.h>

/* ---- calls against a scripted peer ---- */

/* ---- replies ---- */

enum after { STAY, CLOSE, RESET };

/* clang-format off */
static const struct {
    const char *why;
    struct str reply;
    enum after after;
    enum http_end end;
    int status;
    const char *body;
    bool pooled; /* the connection may be reused */
} reply_rows[] = {
    { "counted", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), STAY, HTTP_END_OK, 200, "hello", true },
    { "empty", STR("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), STAY, HTTP_END_OK, 200, "", true },
    { "204", STR("HTTP/1.1 204 No Content\r\n\r\n"), STAY, HTTP_END_OK, 204, "", true },
    { "chunked", STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"), STAY, HTTP_END_OK, 200, "hello", true },
    { "a trailer", STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"), STAY, HTTP_END_OK, 200, "hello", true },
    { "until the end", STR("HTTP/1.1 200 OK\r\n\r\nhello"), CLOSE, HTTP_END_OK, 200, "hello", false },
    { "1.0 until the end", STR("HTTP/1.0 200 OK\r\n\r\nhello"), CLOSE, HTTP_END_OK, 200, "hello", false },
    { "close after a counted body", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"), STAY, HTTP_END_OK, 200, "hello", false },
    { "a server error is a whole reply", STR("HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\nno"), STAY, HTTP_END_OK, 500, "no", true },
    { "interim replies first", STR("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), STAY, HTTP_END_OK, 200, "ok", true },
    { "bytes behind the reply spoil the connection", STR("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), STAY, HTTP_END_OK, 200, "ok", false },

    { "nothing, closed", STR(""), CLOSE, HTTP_END_RESET_BEFORE_HEAD, 0, "", false },
    { "nothing, reset", STR(""), RESET, HTTP_END_RESET_BEFORE_HEAD, 0, "", false },
    { "half a head", STR("HTTP/1.1 200 OK\r\nContent-"), CLOSE, HTTP_END_RESET_BEFORE_HEAD, 0, "", false },
    { "half a body", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"), CLOSE, HTTP_END_RESET_AFTER_HEAD, 200, "hel", false },
    { "half a chunk", STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"), CLOSE, HTTP_END_RESET_AFTER_HEAD, 200, "hel", false },
    { "no last chunk", STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), CLOSE, HTTP_END_RESET_AFTER_HEAD, 200, "hello", false },
    { "a reset where the end would be the end", STR("HTTP/1.1 200 OK\r\n\r\nhel"), RESET, HTTP_END_RESET_AFTER_HEAD, 200, "hel", false },
    { "garbage", STR("220 smtp ready\r\n\r\n"), STAY, HTTP_END_MALFORMED, 0, "", false },
    { "bare LF", STR("HTTP/1.1 200 OK\n\n"), STAY, HTTP_END_MALFORMED, 0, "", false },
    { "two lengths", STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), STAY, HTTP_END_MALFORMED, 0, "", false },
    { "a bad chunk", STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokXX"), STAY, HTTP_END_MALFORMED, 200, "ok", false },
    { "switching protocols", STR("HTTP/1.1 101 x\r\n\r\n"), STAY, HTTP_END_MALFORMED, 0, "", false },
};

/* clang-format on */

static void replies_end_calls_for_the_right_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(reply_rows); i++) {
        for (size_t step = 1; step <= 10000; step *= 100) {
            struct fixture f = begin((struct http_client_config){ 0 });
            struct seen s = { 0 };
            call(&f, &s);
            struct peer p = take_request(&f);
            send_reply(&f, &p, reply_rows[i].reply, step);
            if (reply_rows[i].after == CLOSE) peer_close(&p);
            if (reply_rows[i].after == RESET) peer_reset(&p);
            TURN_UNTIL(f.loop, s.ends == 1);
            if (s.end != reply_rows[i].end || s.status != reply_rows[i].status)
                fail_msg("%s, step %zu: \"%s\", status %d", reply_rows[i].why, step,
                         http_end_text(s.end), s.status);
            assert_body(&s, reply_rows[i].body);
            assert_int_equal(s.heads, reply_rows[i].status != 0);
            bool pooled = counts(&f).idle == 1;
            loop_turn(f.loop, 0);
            /* If bytes of a second reply are still under way, the pool notices a turn later. */
            if (pooled && !reply_rows[i].pooled) TURN_UNTIL(f.loop, counts(&f).idle == 0);
            if (!pooled && reply_rows[i].pooled) fail_msg("%s: not pooled", reply_rows[i].why);
            peer_close(&p);
            seen_fini(&s);
            end(&f);
        }
    }
}

static void the_request_is_written_as_rfc_9112_says(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct seen s = { 0 };
    struct err err = { 0 };
    const struct http_header headers[] = { { STR("x-id"), STR("7") } };
    struct http_call_request req = request_for(&f, &s);
    req.headers = headers;
    req.header_count = 1;
    req.body = STR("hello");
    req.path = STR("/a?b=c");
    assert_non_null(http_call_start(f.client, &req, &err));
    struct peer p;
    PEER_ACCEPT(f.loop, f.listener, &p);
    PEER_UNTIL(f.loop, &p, peer_has(&p, "hello"));
    char expected[256];
    snprintf(expected, sizeof expected,
             "POST /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:%u\r\nx-id: 7\r\ncontent-length: 5\r\n\r\n"
             "hello",
             f.port);
    assert_true(str_eq(buf_view(&p.got), str_from(expected)));
    peer_close(&p);
    end(&f);
    assert_int_equal(s.end, HTTP_END_CANCELLED); /* by freeing the client */
    seen_fini(&s);
}

static void requests_that_would_break_a_head_are_not_started(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct seen s = { 0 };
    struct err err = { 0 };
    const struct http_header broken = { STR("x"), STR("a\r\nb: c") };
    const struct http_header ours = { STR("Transfer-Encoding"), STR("chunked") };
    for (int i = 0; i < 6; i++) {
        struct http_call_request req = request_for(&f, &s);
        if (i == 0) req.path = STR("/a b");
        if (i == 1) req.path = STR("/a\r\nX: y");
        if (i == 2) req.method = STR("GET /");
        if (i == 3 || i == 4) {
            req.headers = i == 3 ? &broken : &ours;
            req.header_count = 1;
        }
        if (i == 5) req.host = STR("no such host\r\n");
        err.text[0] = 0;
        assert_null(http_call_start(f.client, &req, &err));
        assert_true(err.text[0] != 0);
    }
    assert_int_equal(counts(&f).calls, 0);
    end(&f);
}

/* ---- ends that are not the peer's ---- */

static void a_refused_connection_ends_the_call_after_start_has_returned(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    close(f.listener);
    struct seen s = { 0 };
    call(&f, &s);
    assert_int_equal(s.ends, 0);
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_CONNECT_FAILED);
    f.listener = -1;
    seen_fini(&s);
    end(&f);
}

/* A listener with a full queue drops connection attempts. */
static void a_connection_that_never_comes_is_given_up(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ .connect_us = 30000 });
    assert_int_equal(listen(f.listener, 0), 0);
    struct peer filler[3];
    for (int i = 0; i < 3; i++) {
        filler[i] = (struct peer){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) };
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons(f.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        (void)!connect(filler[i].fd, (struct sockaddr *)&to, sizeof to);
    }
    struct seen s = { 0 };
    call(&f, &s);
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_CONNECT_FAILED);
    for (int i = 0; i < 3; i++)
        peer_close(&filler[i]);
    seen_fini(&s);
    end(&f);
}

static void the_deadline_ends_a_call_wherever_it_is(void **state)
{
    (void)state;
    static const char *const so_far[] = { "", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel" };
    int64_t given_us = 50000; /* more if the machine is too slow for it */
    for (size_t i = 0; i < COUNT_OF(so_far); i++) {
        struct fixture f = begin((struct http_client_config){ 0 });
        struct seen s = { 0 };
        struct err err = { 0 };
        struct http_call_request req = request_for(&f, &s);
        req.deadline_us = clock_mono_us() + given_us;
        s.call = http_call_start(f.client, &req, &err);
        struct peer p;
        PEER_ACCEPT(f.loop, f.listener, &p);
        PEER_UNTIL(f.loop, &p, p.closed || peer_has(&p, "\r\n\r\n"));
        bool in_time = s.ends == 0;
        if (in_time) peer_send(f.loop, &p, str_from(so_far[i]));
        TURN_UNTIL(f.loop, s.ends == 1);
        if (!in_time) {
            given_us *= 2;
            i--;
        }
        assert_int_equal(s.end, HTTP_END_TIMEOUT);
        assert_true(clock_mono_us() >= req.deadline_us);
        PEER_UNTIL(f.loop, &p, p.closed); /* the peer sees the close */
        peer_close(&p);
        seen_fini(&s);
        end(&f);
    }
}

static void a_cancelled_call_calls_nobody_and_closes(void **state)
{
    (void)state;
    for (int when = 0; when < 4; when++) {
        struct fixture f = begin((struct http_client_config){ 0 });
        struct seen s = { .cancel_on_head = when == 2, .cancel_on_data = when == 3 };
        call(&f, &s);
        if (when == 0) http_call_cancel(TAKE(s.call)); /* before anything was sent */
        struct peer p;
        PEER_ACCEPT(f.loop, f.listener, &p);
        if (when > 0) {
            PEER_UNTIL(f.loop, &p, peer_has(&p, "\r\n\r\n"));
            peer_send(f.loop, &p, STR("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"));
        }
        if (when == 1) {
            TURN_UNTIL(f.loop, s.body.len == 5);
            http_call_cancel(TAKE(s.call));
        }
        PEER_UNTIL(f.loop, &p, p.closed);
        loop_turn(f.loop, 0);
        assert_int_equal(s.ends, 0);
        assert_int_equal(s.data_calls, when == 1 || when == 3);
        assert_int_equal(counts(&f).ended[HTTP_END_CANCELLED], 1);
        assert_int_equal(counts(&f).connections, 0);
        peer_close(&p);
        seen_fini(&s);
        end(&f);
    }
}

/* ---- flow control ---- */

/* Sends up to `all` bytes without waiting; returns false when the kernel took none. */
static bool send_x(struct peer *p, size_t all, size_t *sent)
{
    char bytes[65536];
    memset(bytes, 'x', sizeof bytes);
    ssize_t count = send(p->fd, bytes, min_size(sizeof bytes, all - *sent), MSG_NOSIGNAL);
    if (count > 0) *sent += (size_t)count;
    return count > 0;
}

static void a_paused_call_reads_nothing_until_it_is_resumed(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct seen s = { .pause_on_data = true };
    call(&f, &s);
    struct peer p = take_request(&f);
    peer_send(f.loop, &p,
              STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n"));
    TURN_UNTIL(f.loop, s.data_calls == 1);

    /* The peer writes a chunk of 16 MiB as far as the kernel takes it, and is held back. */
    const size_t all = 16 << 20;
    size_t sent = 0;
    peer_send(f.loop, &p, STR("1000000\r\n"));
    for (int quiet = 0; quiet < 5; loop_turn(f.loop, 1000))
        quiet = send_x(&p, all, &sent) ? 0 : quiet + 1;
    assert_true(sent < all);
    for (int i = 0; i < 5; i++)
        loop_turn(f.loop, 1000);
    assert_int_equal(s.data_calls, 1);
    assert_body(&s, "a");

    http_call_resume(s.call);
    assert_int_equal(s.data_calls, 1); /* resume itself delivers no data */
    TURN_UNTIL(f.loop, s.data_calls == 2);
    assert_body(&s, "ab");
    s.pause_on_data = false;
    http_call_resume(s.call);
    TURN_UNTIL(f.loop, (send_x(&p, all, &sent), s.body.len == 3 + all));
    peer_send(f.loop, &p, STR("\r\n0\r\n\r\n"));
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_OK);
    peer_close(&p);
    seen_fini(&s);
    end(&f);
}

static void a_call_paused_at_its_last_byte_ends_when_resumed(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct seen s = { .pause_on_data = true };
    call(&f, &s);
    struct peer p = take_request(&f);
    peer_send(f.loop, &p, ok_reply);
    TURN_UNTIL(f.loop, s.data_calls == 1);
    peer_reset(&p); /* a paused call does not notice, and does not spin */
    struct loop_counts before, after;
    loop_counts_get(f.loop, &before);
    loop_turn(f.loop, 5000);
    loop_counts_get(f.loop, &after);
    assert_int_equal(after.turns - before.turns, 1);
    assert_int_equal(s.ends, 0);
    http_call_resume(s.call);
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_OK);
    seen_fini(&s);
    end(&f);
}

static void a_large_body_goes_out_while_the_reply_comes_in(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct seen s = { 0 };
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    for (int i = 0; i < 8 << 20; i++)
        buf_byte(&body, 'b');
    struct http_call_request req = request_for(&f, &s);
    req.body = buf_view(&body);
    s.call = http_call_start(f.client, &req, &err);
    struct peer p;
    PEER_ACCEPT(f.loop, f.listener, &p);
    PEER_UNTIL(f.loop, &p, p.got.len > 1 << 20);
    /* The peer refuses early and reads no further. */
    peer_send(f.loop, &p, STR("HTTP/1.1 413 x\r\nContent-Length: 2\r\n\r\nno"));
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_OK);
    assert_int_equal(s.status, 413);
    assert_int_equal(counts(&f).idle, 0); /* half a request was sent: no reuse */
    peer_close(&p);
    seen_fini(&s);
    end(&f);
}

/* ---- when memory or the kernel fails ---- */

static void any_single_failure_ends_the_call_once(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    bool reached = true;
    int n = 0;
    while (reached) {
        n++;
        struct seen s = { 0 };
        struct err err = { 0 };
        struct peer p = { .fd = -1 };
        bool answered = false;
        struct http_call_request req = request_for(&f, &s);
        req.deadline_us = clock_mono_us() + PEER_WAIT_US;
        buf_reserve(&s.body, 100);
        fault_arm(NULL, (uint64_t)n);
        s.call = http_call_start(f.client, &req, &err);
        while (s.call && s.ends == 0) {
            loop_turn(f.loop, 1000);
            if (p.fd < 0) (void)peer_accept_now(f.listener, &p);
            if (p.fd >= 0 && !answered) {
                char head[1024];
                answered = recv(p.fd, head, sizeof head, MSG_DONTWAIT) > 0;
                if (answered) (void)!send(p.fd, ok_reply.data, ok_reply.len, MSG_NOSIGNAL);
            }
        }
        reached = fault_hits() >= (uint64_t)n;
        fault_disarm();
        assert_true(s.ends <= 1 && s.end != HTTP_END_TIMEOUT);
        if (s.ends == 1 && s.end == HTTP_END_OK) assert_body(&s, "ok");
        peer_close(&p);
        TURN_UNTIL(f.loop, counts(&f).connections == 0);
        struct peer left; /* a connection that failed before the reply */
        while (peer_accept_now(f.listener, &left))
            peer_close(&left);
        seen_fini(&s);
        if (n > 1000) fail_msg("the faults never end");
    }
    assert_true(n > 5);
    end(&f);
}

static int http_client_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_end_calls_for_the_right_reason),
        cmocka_unit_test(the_request_is_written_as_rfc_9112_says),
        cmocka_unit_test(requests_that_would_break_a_head_are_not_started),
        cmocka_unit_test(a_refused_connection_ends_the_call_after_start_has_returned),
        cmocka_unit_test(a_connection_that_never_comes_is_given_up),
        cmocka_unit_test(the_deadline_ends_a_call_wherever_it_is),
        cmocka_unit_test(a_cancelled_call_calls_nobody_and_closes),
        cmocka_unit_test(a_paused_call_reads_nothing_until_it_is_resumed),
        cmocka_unit_test(a_call_paused_at_its_last_byte_ends_when_resumed),
        cmocka_unit_test(a_large_body_goes_out_while_the_reply_comes_in),
        cmocka_unit_test(any_single_failure_ends_the_call_once),
    };
    return cmocka_run_group_tests_name("http_client", tests, NULL, NULL);
}

/* ---- blocking fetches from our own server, and the addresses they accept ---- */

struct service {
    struct loop *loop;
    struct http_server *server;
    pthread_t thread;
    uint16_t port;
};

static void on_request(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    const struct http_request *req = http_exchange_request(x);
    if (str_eq(req->path, STR("/cut"))) {
        http_stream_begin(x, 200, STR("text/plain"));
        http_stream_write(x, "half", 4);
        http_exchange_abort(x);
    } else if (str_eq(req->path, STR("/stream"))) {
        http_stream_begin(x, 200, STR("text/event-stream"));
        for (int i = 0; i < 5; i++)
            http_stream_write(x, "data: x\n\n", 9);
        http_stream_end(x);
    } else {
        http_reply(x, 200, STR("text/plain"), req->body);
    }
}

static void *serve(void *arg)
{
    struct service *s = arg;
    loop_run(s->loop);
    return NULL;
}

static void service_start(struct service *s)
{
    struct err err = { 0 };
    assert_int_equal(loop_new(&s->loop, &err), 0);
    struct http_server_config config = { .host = "127.0.0.1", .on_request = on_request };
    assert_int_equal(http_server_new(s->loop, &config, &s->server, &err), 0);
    s->port = http_server_port(s->server);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void service_stop(struct service *s)
{
    loop_stop(s->loop);
    pthread_join(s->thread, NULL);
    http_server_free(s->server);
    loop_free(s->loop);
}

static int count_data(void *arg, struct str data)
{
    size_t *bytes = arg;
    *bytes += data.len;
    return 0;
}

static int stop_at_once(void *arg, struct str data)
{
    (void)arg, (void)data;
    return 7;
}

static void fetch_blocks_until_the_reply_is_whole(void **state)
{
    (void)state;
    struct service s = { 0 };
    service_start(&s);
    struct err err = { 0 };
    int status = 0;
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct http_fetch_request req = { .host = STR("localhost"),
                                      .port = s.port,
                                      .path = STR("/e"),
                                      .body = STR("hello"),
                                      .timeout_us = PEER_WAIT_US };
    assert_int_equal(http_fetch(&req, &status, &body, &err), 0);
    assert_int_equal(status, 200);
    assert_true(str_eq(buf_view(&body), STR("hello")));

    size_t bytes = 0;
    req.path = STR("/stream");
    assert_int_equal(http_fetch_stream(&req, &status, NULL, count_data, &bytes, &err), 0);
    assert_int_equal(bytes, 45);
    assert_int_equal(http_fetch_stream(&req, &status, NULL, stop_at_once, NULL, &err), 7);

    req.path = STR("/cut");
    assert_int_equal(http_fetch(&req, &status, &body, &err), -ECONNRESET);
    assert_true(strstr(err.text, "middle of the reply") != NULL);

    CLEANUP(buf_fini) struct buf small = { 0 };
    buf_init(&small, 3);
    req.path = STR("/e");
    assert_int_equal(http_fetch(&req, &status, &small, &err), -E2BIG);
    uint16_t port = s.port;
    service_stop(&s);
    req.port = port;
    assert_int_equal(http_fetch(&req, &status, &body, &err), -ECONNREFUSED);
    assert_true(strstr(err.text, "localhost:") != NULL);
}

static void fetch_gives_up_at_its_deadline(void **state)
{
    (void)state;
    uint16_t port;
    int listener = peer_listen(&port); /* accepts the connection and stays silent */
    struct err err = { 0 };
    int status = 0;
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct http_fetch_request req = {
        .host = STR("127.0.0.1"), .port = port, .path = STR("/"), .timeout_us = 30000
    };
    assert_int_equal(http_fetch(&req, &status, &body, &err), -ETIMEDOUT);
    close(listener);
}

static void addresses_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected; /* NULL: refused */
    } rows[] = {
        { "127.0.0.1:80", "127.0.0.1:80" },
        { "[::1]:8080", "[::1]:8080" },
        { "localhost:1", "127.0.0.1:1" },
        { "0.0.0.0:0", "0.0.0.0:0" },
        { "127.0.0.1", NULL },
        { "127.0.0.1:", NULL },
        { "127.0.0.1:65536", NULL },
        { "127.0.0.1:8x", NULL },
        { ":80", NULL },
        { "[::1:80", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct addr a;
        struct err err = { 0 };
        char text[ADDR_TEXT_MAX];
        int rc = addr_parse(&a, str_from(rows[i].text), &err);
        if ((rc == 0) != (rows[i].expected != NULL)) fail_msg("%s: %d", rows[i].text, rc);
        if (rc < 0) assert_true(err.text[0] != 0);
        if (rc < 0) continue;
        addr_text(&a, text);
        assert_string_equal(text, rows[i].expected);
    }
    struct addr a;
    assert_int_equal(addr_from_literal(&a, STR("::1"), 1), 0);
    assert_true(addr_is_loopback(&a));
    assert_int_equal(addr_from_literal(&a, STR("127.8.9.1"), 1), 0);
    assert_true(addr_is_loopback(&a));
    assert_int_equal(addr_from_literal(&a, STR("0.0.0.0"), 1), 0);
    assert_false(addr_is_loopback(&a));
}

static int http_fetch_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetch_blocks_until_the_reply_is_whole),
        cmocka_unit_test(fetch_gives_up_at_its_deadline),
        cmocka_unit_test(addresses_are_read_strictly),
    };
    return cmocka_run_group_tests_name("http_fetch", tests, NULL, NULL);
}

int main(void)
{
    return http_client_tests() + http_fetch_tests();
}

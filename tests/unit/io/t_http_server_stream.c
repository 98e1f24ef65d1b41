/* t_http_server_stream.c - answers that are written in pieces, and clients that leave meanwhile. */
#include "tests/unit/io/server_rig.h"

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

static uint64_t turns(const struct loop *l)
{
    struct loop_counts counts;
    loop_counts_get(l, &counts);
    return counts.turns;
}

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
            uint64_t from = turns(f->loop);
            TURN_UNTIL(f->loop, f->aborts == 1);
            assert_true(turns(f->loop) - from <= 100); /* the kernel may need a few */
            assert_int_equal(f->why, HTTP_ABORT_CLIENT_LEFT);
            peer_close(&p);
        }
    }
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_CLIENT_LEFT], 6);
    end(f);
}

/* A worker thread may still be reading the body. */
static void a_pinned_request_outlives_its_client(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    for (int leaves = 0; leaves <= 1; leaves++) {
        f->held = NULL;
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p,
                  STR("POST /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"));
        TURN_UNTIL(f->loop, f->held != NULL);
        struct http_exchange *x = f->held;
        f->aborts = 0;
        http_exchange_pin(x);
        if (leaves) {
            peer_reset(&p);
            TURN_UNTIL(f->loop, f->aborts == 1);
            for (int i = 0; i < 5; i++)
                loop_turn(f->loop, 0);
        }
        assert_int_equal(counts(f).connections, 1);
        assert_true(str_eq(http_exchange_request(x)->body, STR("hello")));
        http_exchange_unpin(x);
        if (!leaves) http_reply(x, 200, STR("text/plain"), STR("bye"));
        peer_close(&p);
        TURN_UNTIL(f->loop, counts(f).connections == 0);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_chunked_and_the_connection_goes_on),
        cmocka_unit_test(a_stream_to_http_1_0_ends_with_the_connection),
        cmocka_unit_test(an_aborted_stream_never_looks_complete),
        cmocka_unit_test(a_stream_that_is_not_read_is_bounded_and_drains),
        cmocka_unit_test(a_reader_that_takes_nothing_is_dropped),
        cmocka_unit_test(a_reader_that_trickles_is_dropped_as_well),
        cmocka_unit_test(a_client_that_leaves_is_noticed_at_once),
        cmocka_unit_test(a_pinned_request_outlives_its_client),
        cmocka_unit_test(a_client_that_leaves_behind_pipelined_bytes_is_noticed),
        cmocka_unit_test(a_client_that_left_before_its_request_was_read_is_noticed),
        cmocka_unit_test(a_half_closed_client_gets_what_is_answered_at_once),
        cmocka_unit_test(a_request_that_is_cut_short_reaches_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_http_stream.c - tests replies written in pieces, clients that leave meanwhile, and short
 * memory. */
#include "base/core/bits.h"
#include "tests/unit/io/server_rig.h"

/* ---- replies written in pieces, and clients that leave meanwhile ---- */

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
            assert_true(p.reset); /* a clean end would look like the body's end */
        peer_close(&p);
    }
    assert_int_equal(f->aborts, 0); /* no callback for its own abort */
    end(f);
}

/* Connects with small kernel buffers, so that few bytes fill them. */
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

/* Writes lines until the server is full; returns the bytes it took. */
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
    f->drains = 0; /* the kernel's buffers took some meanwhile */

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
        (void)!recv(p.fd, few, sizeof few, MSG_DONTWAIT); /* a little progress */
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

/* A worker thread may still read the body after the client has left. */
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

/* Pipelined bytes that are not read must not hide the end of the stream behind them. */
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

static int http_server_stream_tests(void)
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
    return cmocka_run_group_tests_name("http_server_stream", tests, NULL, NULL);
}

/* ---- short memory: the clients that are refused, those that are cut, and those that never are ----
 *
 * The oracle is the order of events and the bytes that are held, never the time. */

#define MIB ((size_t)1 << 20)
#define BODY_BYTES (300 * 1024) /* takes a buffer of 512 KiB */
#define BUFFER_BYTES (512 * 1024)

/* Begins a body that announces `announced` bytes, and sends `sent` of them. */
static struct peer begin_body(struct fixture *f, const char *path, size_t announced, size_t sent)
{
    CLEANUP(buf_fini) struct buf raw = { 0 };
    buf_printf(&raw, "POST %s HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", path, announced);
    size_t head = raw.len;
    assert_int_equal(buf_reserve(&raw, sent), 0);
    memset(raw.data + head, 'x', sent);
    raw.len += sent;
    uint64_t before = counts(f).bytes_in;
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, buf_view(&raw));
    PEER_UNTIL(f->loop, &p, counts(f).bytes_in == before + raw.len || p.got.len > 0);
    loop_turn(f->loop, 2000); /* so that ages differ by milliseconds */
    return p;
}

static bool was_refused(struct peer *p)
{
    peer_read(p);
    return peer_has(p, "HTTP/1.1 503 ") && peer_has(p, "\r\nretry-after: ");
}

static uint64_t refused(const struct fixture *f)
{
    return counts(f).refused[HTTP_FAULT_MEMORY];
}

/* Eight clients begin bodies and stop; for each further body the oldest one is refused. */
static void bodies_are_refused_oldest_first_and_not_the_newcomer(void **state)
{
    (void)state;
    enum { HALF = 8, MORE = 4 };
    struct fixture *f =
        begin((struct http_limits){ .held_bytes_max = 2 * HALF * BUFFER_BYTES + 2 * 65536 });
    struct peer left[HALF + MORE];
    for (int i = 0; i < HALF; i++)
        left[i] = begin_body(f, "/never", 2 * BODY_BYTES, BODY_BYTES);
    assert_int_equal(refused(f), 0);
    assert_true(counts(f).held_bytes >= HALF * (uint64_t)BUFFER_BYTES);
    for (int i = 0; i < MORE; i++) {
        left[HALF + i] = begin_body(f, "/never", 2 * BODY_BYTES, BODY_BYTES);
        PEER_UNTIL(f->loop, &left[i], was_refused(&left[i]));
        assert_int_equal(refused(f), i + 1);
        for (int k = i + 1; k <= HALF + i; k++)
            if (was_refused(&left[k])) fail_msg("after %d more, body %d was refused", i + 1, k);
    }
    /* Whole requests of that size are served: for each an old half body makes room. */
    for (int i = 0; i < 3; i++) {
        struct peer whole = begin_body(f, "/whole", BODY_BYTES, BODY_BYTES);
        PEER_UNTIL(f->loop, &whole, peer_has(&whole, "HTTP/1.1 200 "));
        peer_close(&whole);
    }
    for (int i = 0; i < HALF + MORE; i++)
        peer_close(&left[i]);
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

/* Of bodies of one age the largest is refused. */
static void of_bodies_of_one_age_the_largest_is_refused(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = 4 * MIB });
    struct peer p[3];
    static const size_t sizes[] = { 200 * 1024, 900 * 1024, 400 * 1024 };
    struct str head = STR("POST /never HTTP/1.1\r\n" HOST "Content-Length: 2000000\r\n\r\n");
    for (int i = 0; i < 3; i++) /* accepted in one turn, read in the next */
        p[i] = peer_connect(f->port);
    for (int i = 0; i < 3; i++)
        assert_int_equal(send(p[i].fd, head.data, head.len, MSG_NOSIGNAL), head.len);
    TURN_UNTIL(f->loop, counts(f).bytes_in == 3 * head.len);
    CLEANUP(buf_fini) struct buf more = { 0 };
    assert_int_equal(buf_reserve(&more, MIB), 0);
    memset(more.data, 'x', MIB);
    for (int i = 0; i < 3; i++)
        peer_send(f->loop, &p[i], str_of(more.data, sizes[i]));
    TURN_UNTIL(f->loop, counts(f).bytes_in == 3 * head.len + sizes[0] + sizes[1] + sizes[2]);
    assert_int_equal(refused(f), 0);
    struct peer last = begin_body(f, "/never", 2 * MIB, 900 * 1024);
    PEER_UNTIL(f->loop, &p[1], was_refused(&p[1]));
    assert_int_equal(refused(f), 1);
    assert_false(was_refused(&p[0]) || was_refused(&p[2]) || was_refused(&last));
    for (int i = 0; i < 3; i++)
        peer_close(&p[i]);
    peer_close(&last);
    end(f);
}

static void a_length_that_is_announced_holds_nothing(void **state)
{
    (void)state;
    enum { MANY = 50 };
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = 4 * MIB });
    struct peer p[MANY];
    for (int i = 0; i < MANY; i++)
        p[i] = begin_body(f, "/never", 8 * MIB, 10);
    assert_true(counts(f).held_bytes <= MANY * 8192);
    assert_int_equal(refused(f), 0);
    for (int i = 0; i < MANY; i++)
        peer_close(&p[i]);
    end(f);
}

/* Whole requests under way hold all that large ones may: they are kept, further large ones are
 * refused, and small ones are served. */
static void requests_in_progress_are_never_taken_and_small_ones_always_served(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = 4 * MIB });
    struct peer open[4];
    struct http_exchange *held[4];
    for (int i = 0; i < 4; i++) {
        open[i] = begin_body(f, "/wait", BODY_BYTES, BODY_BYTES);
        TURN_UNTIL(f->loop, f->held != NULL);
        held[i] = TAKE(f->held);
    }
    for (int i = 0; i < 3; i++) {
        struct peer large = begin_body(f, "/late", BODY_BYTES, BODY_BYTES);
        PEER_UNTIL(f->loop, &large, was_refused(&large));
        peer_close(&large);
        struct peer small = begin_body(f, "/small", 60000, 60000);
        PEER_UNTIL(f->loop, &small, peer_has(&small, "HTTP/1.1 200 "));
        peer_close(&small);
    }
    assert_int_equal(refused(f), 3);
    assert_int_equal(f->aborts, 0);
    for (int i = 0; i < 4; i++) {
        http_reply(held[i], 200, STR("text/plain"), STR("late"));
        PEER_UNTIL(f->loop, &open[i], peer_has(&open[i], "late"));
        peer_close(&open[i]);
    }
    end(f);
}

/* Half bodies that count as small fill the second half too; then they are refused, oldest first. */
static void small_bodies_beyond_the_whole_bound_are_refused_oldest_first(void **state)
{
    (void)state;
    enum { MANY = 12 };
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = MIB });
    struct peer p[MANY];
    for (int i = 0; i < MANY; i++) { /* 64 KiB of body lie in a buffer of 128 */
        p[i] = begin_body(f, "/never", 100000, 66000);
        assert_true(counts(f).held_bytes <= MIB + 131072 + 8192);
    }
    assert_true(refused(f) >= MANY - 8 && refused(f) <= MANY - 6);
    for (int i = 0; i < MANY; i++) {
        PEER_UNTIL(f->loop, &p[i], was_refused(&p[i]) == (i < (int)refused(f)));
        peer_close(&p[i]);
    }
    struct peer health = peer_connect(f->port);
    peer_send(f->loop, &health, STR(GET("/health")));
    PEER_UNTIL(f->loop, &health, peer_has(&health, "<GET /health >"));
    peer_close(&health);
    end(f);
}

/* A request that fits a connection's first buffer is served although no memory is left. */
static void a_request_in_the_first_buffer_is_served_whatever_is_held(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = 1000 });
    struct peer wait = peer_connect(f->port);
    peer_send(f->loop, &wait, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    assert_true(counts(f).held_bytes > 1000);
    struct peer health = peer_connect(f->port);
    peer_send(f->loop, &health, STR(GET("/health")));
    PEER_UNTIL(f->loop, &health, peer_has(&health, "<GET /health >"));
    assert_int_equal(refused(f), 0);
    peer_close(&wait);
    peer_close(&health);
    end(f);
}

/* ---- replies ---- */

static char long_text[3 * (1 << 20)];

/* Requests /wait and leaves the reply unread, except for what the kernel takes. */
static struct peer begin_reply(struct fixture *f, size_t bytes)
{
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    http_reply(TAKE(f->held), 200, STR("text/plain"), str_of(long_text, bytes));
    for (int i = 0; i < 3; i++)
        loop_turn(f->loop, 2000);
    return p;
}

static bool was_cut(struct peer *p, size_t bytes)
{
    peer_read(p);
    return p->closed && p->got.len < bytes;
}

static void replies_that_nobody_reads_count_and_are_cut_oldest_first(void **state)
{
    (void)state;
    memset(long_text, 'y', sizeof long_text);
    size_t bytes = sizeof long_text;
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = 20 * MIB });
    struct peer first = begin_reply(f, bytes);
    uint64_t one = counts(f).held_bytes;
    assert_true(one >= bytes && one <= 2 * bytes); /* the buffer's allocated size */
    struct peer second = begin_reply(f, bytes);
    assert_true(counts(f).held_bytes >= 2 * bytes);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_MEMORY], 0);

    struct peer third = begin_reply(f, bytes); /* together above the half */
    TURN_UNTIL(f->loop, counts(f).aborted[HTTP_ABORT_MEMORY] == 1);
    PEER_UNTIL(f->loop, &first, was_cut(&first, bytes));
    struct peer reading = begin_reply(f, bytes);
    TURN_UNTIL(f->loop, counts(f).aborted[HTTP_ABORT_MEMORY] == 2);
    PEER_UNTIL(f->loop, &second, was_cut(&second, bytes));

    PEER_UNTIL(f->loop, &third, third.got.len > bytes); /* complete: head and body */
    PEER_UNTIL(f->loop, &reading, reading.got.len > bytes);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_MEMORY], 2);
    assert_true(counts(f).held_bytes < MIB);
    struct peer *all[] = { &first, &second, &third, &reading };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        peer_close(all[i]);
    end(f);
}

/* A reply that finds no room even so becomes a short refusal. */
static void a_reply_beyond_the_bound_becomes_a_refusal(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .held_bytes_max = MIB });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    assert_int_equal(http_reply(TAKE(f->held), 200, STR("text/plain"), str_of(long_text, 2 * MIB)),
                     -ENOMEM);
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_true(was_refused(&p));
    assert_int_equal(peer_count(&p, "HTTP/1.1 "), 1);
    assert_int_equal(refused(f), 1);
    peer_close(&p);
    end(f);
}

/* A large stream that makes no progress is cut in favour of a body, and its handler is told
 * once. */
static void a_stream_that_stands_still_gives_way(void **state)
{
    (void)state;
    struct fixture *f =
        begin((struct http_limits){ .held_bytes_max = 4 * MIB, .unsent_bytes_max = MIB });
    struct peer stream = peer_connect(f->port);
    int small = 4096;
    (void)setsockopt(stream.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    peer_send(f->loop, &stream, STR(GET("/stream")));
    TURN_UNTIL(f->loop, f->held != NULL);
    while (http_stream_write(f->held, long_text, 65536) == 0)
        loop_turn(f->loop, 0);
    loop_turn(f->loop, 2000);
    struct peer body[3];
    for (int i = 0; i < 3; i++)
        body[i] = begin_body(f, "/never", 2 * BODY_BYTES, BODY_BYTES);
    TURN_UNTIL(f->loop, f->aborts == 1);
    assert_int_equal(f->why, HTTP_ABORT_MEMORY);
    assert_null(f->held);
    assert_int_equal(refused(f), 0);
    peer_close(&stream);
    for (int i = 0; i < 3; i++)
        peer_close(&body[i]);
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

/* A long reply's reader must take a quarter of it in unsent_us: one that takes more than
 * unsent_bytes_max but less than a quarter is cut. */
static void a_long_reply_must_be_read_faster_than_a_short_one(void **state)
{
    (void)state;
    struct fixture *f =
        begin((struct http_limits){ .unsent_bytes_max = 1024, .unsent_us = 300000 });
    struct peer p = peer_connect(f->port);
    int small = 4096;
    (void)setsockopt(p.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    http_reply(TAKE(f->held), 200, STR("text/plain"), str_of(long_text, sizeof long_text));
    char bytes[4096];
    int64_t next_us = 0;
    size_t taken = 0;
    while (counts(f).connections > 0 && taken < sizeof long_text) {
        loop_turn(f->loop, 2000);
        if (clock_mono_us() < next_us) continue;
        ssize_t count = recv(p.fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count > 0) taken += (size_t)count;
        next_us = clock_mono_us() + 20000; /* 60 times unsent_bytes_max in unsent_us */
    }
    assert_int_equal(counts(f).aborted[HTTP_ABORT_SLOW_READER], 1);
    peer_close(&p);
    end(f);
}

static int http_held_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_are_refused_oldest_first_and_not_the_newcomer),
        cmocka_unit_test(of_bodies_of_one_age_the_largest_is_refused),
        cmocka_unit_test(a_length_that_is_announced_holds_nothing),
        cmocka_unit_test(requests_in_progress_are_never_taken_and_small_ones_always_served),
        cmocka_unit_test(small_bodies_beyond_the_whole_bound_are_refused_oldest_first),
        cmocka_unit_test(a_request_in_the_first_buffer_is_served_whatever_is_held),
        cmocka_unit_test(replies_that_nobody_reads_count_and_are_cut_oldest_first),
        cmocka_unit_test(a_reply_beyond_the_bound_becomes_a_refusal),
        cmocka_unit_test(a_stream_that_stands_still_gives_way),
        cmocka_unit_test(a_long_reply_must_be_read_faster_than_a_short_one),
    };
    return cmocka_run_group_tests_name("http_held", tests, NULL, NULL);
}

int main(void)
{
    return http_server_stream_tests() + http_held_tests();
}

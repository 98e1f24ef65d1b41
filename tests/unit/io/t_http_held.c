/* t_http_held.c - when memory is short: who is refused, who is cut, and who never is.
 *
 * The oracle is the order of what happens and the bytes that are held, never the time. */
#include "base/core/bits.h"
#include "tests/unit/io/server_rig.h"

#define MIB ((size_t)1 << 20)
#define BODY_BYTES (300 * 1024) /* lies in a buffer of 512 KiB */
#define BUFFER_BYTES (512 * 1024)

/* Announces `announced` bytes and sends `sent` of them. */
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
    loop_turn(f->loop, 2000); /* a millisecond more for the ages to differ */
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

/* Eight bodies begun and left: the ninth does not pay for them, the oldest does; and so on. */
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
    /* Whole requests of the same size come through: an old half body goes for each that needs room. */
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

/* Of the same moment the largest is taken. */
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

/* Whole requests that are being answered hold all that large ones may: those are not taken, further
 * large ones are refused, and small ones are served. */
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

/* Half bodies of a size that counts as small fill the second half too; then they go, oldest first. */
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

/* A first buffer is served although nothing is left at all. */
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

/* Asks for /wait and leaves the reply unread, but for what the kernel takes. */
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
    assert_true(one >= bytes && one <= 2 * bytes); /* what the buffer has allocated */
    struct peer second = begin_reply(f, bytes);
    assert_true(counts(f).held_bytes >= 2 * bytes);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_MEMORY], 0);

    struct peer third = begin_reply(f, bytes); /* more than half together */
    TURN_UNTIL(f->loop, counts(f).aborted[HTTP_ABORT_MEMORY] == 1);
    PEER_UNTIL(f->loop, &first, was_cut(&first, bytes));
    struct peer reading = begin_reply(f, bytes);
    TURN_UNTIL(f->loop, counts(f).aborted[HTTP_ABORT_MEMORY] == 2);
    PEER_UNTIL(f->loop, &second, was_cut(&second, bytes));

    PEER_UNTIL(f->loop, &third, third.got.len > bytes); /* whole: head and body */
    PEER_UNTIL(f->loop, &reading, reading.got.len > bytes);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_MEMORY], 2);
    assert_true(counts(f).held_bytes < MIB);
    struct peer *all[] = { &first, &second, &third, &reading };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        peer_close(all[i]);
    end(f);
}

/* A reply for which there is no room even so is a short one that says it. */
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

/* The handler of a stream hears that it was cut, once, and a large stream that stands still gives
 * way to a body. */
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

/* A reader of a long reply has to take a quarter of it in unsent_us: one that takes more than
 * unsent_bytes_max, and less than that, is cut. */
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

int main(void)
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}

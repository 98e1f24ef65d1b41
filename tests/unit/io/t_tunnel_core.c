/* t_tunnel_core.c - tests the frames of tunnels: cut anywhere, frames that no honest peer sends, credit, and streams that
 * stand still. Two cores are each the other's peer. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/tunnel/tunnel_core.h"
#include "tests/unit/unit.h"

#include <errno.h>

#define STREAMS_MAX 8

struct end {
    struct tunnel_core core;
    struct buf out, log;
    size_t sent;
    struct tunnel_stream stream[64];
    uint32_t count; /* of streams accepted */
    uint32_t credits;
    uint64_t got[64];                /* bytes of each stream */
    bool refuses, keeps_all;         /* keeps_all: consumes nothing */
    struct tunnel_stream *greedy[4]; /* send what they may, whenever they may */
    char order[64];                  /* of the greedy ones' turns */
};

static uint32_t at(const struct end *e, const struct tunnel_stream *s)
{
    return (uint32_t)(s - e->stream);
}

static struct tunnel_stream *on_open(void *arg, uint16_t port, enum tunnel_reset *ret_why)
{
    struct end *e = arg;
    buf_printf(&e->log, "open %u;", port);
    *ret_why = TUNNEL_RESET_REFUSED;
    return e->refuses ? NULL : &e->stream[e->count++];
}

static void on_data(void *arg, struct tunnel_stream *s, struct str data)
{
    struct end *e = arg;
    /* Pieces are told as one: where they are cut is not the peer's doing. */
    for (size_t i = 0; i < data.len && e->log.len < 4096; i++)
        buf_printf(&e->log, "%u%c;", at(e, s), data.data[i]);
    e->got[at(e, s)] += data.len;
    if (!e->keeps_all) tunnel_core_consumed(&e->core, s, data.len);
}

static size_t send_all(struct end *e, struct tunnel_stream *s, char byte, size_t most)
{
    size_t room, all = 0;
    char *to;
    while (all < most && (to = tunnel_core_data_begin(&e->core, s, &room))) {
        size_t n = min_size(room, most - all);
        memset(to, byte, n);
        tunnel_core_data_end(&e->core, s, n);
        all += n;
    }
    return all;
}

static void on_credit(void *arg, struct tunnel_stream *s)
{
    struct end *e = arg;
    size_t room;
    e->credits++;
    for (size_t i = 0; i < COUNT_OF(e->greedy); i++) {
        if (e->greedy[i] != s || !tunnel_core_data_begin(&e->core, s, &room)) continue;
        tunnel_core_data_end(&e->core, s, room);
        size_t len = strlen(e->order);
        if (len + 1 < sizeof e->order) e->order[len] = (char)('a' + i);
        (void)tunnel_core_data_begin(&e->core, s, &room); /* wants more */
        tunnel_core_data_end(&e->core, s, 0);
    }
}

static void on_end(void *arg, struct tunnel_stream *s)
{
    struct end *e = arg;
    buf_printf(&e->log, "end %u;", at(e, s));
}

static void on_reset(void *arg, struct tunnel_stream *s, enum tunnel_reset why)
{
    struct end *e = arg;
    assert_true(s->id == 0);
    buf_printf(&e->log, "reset %u %u;", at(e, s), why);
}

static const struct tunnel_events logs = { on_open, on_data, on_credit, on_end, on_reset };

static void end_init(struct end *e, bool opens)
{
    *e = (struct end){ 0 };
    tunnel_core_init(&e->core, &logs, e, opens, STREAMS_MAX, &e->out, &e->sent);
}

static void end_fini(struct end *e)
{
    tunnel_core_fini(&e->core);
    buf_fini(&e->out);
    buf_fini(&e->log);
}

/* Takes what `from` has to send to `to`, in pieces of `step` bytes. */
static int carry(struct end *from, struct end *to, size_t step)
{
    int rc = 0;
    CLEANUP(buf_fini) struct buf way = from->out;
    from->out = (struct buf){ 0 };
    from->sent = 0;
    for (size_t pos = 0; rc == 0 && pos < way.len; pos += step)
        rc = tunnel_core_feed(&to->core, str_of(way.data + pos, min_size(step, way.len - pos)));
    return rc;
}

static void both(struct end *a, struct end *b, size_t step)
{
    while (a->out.len + b->out.len > 0) {
        assert_int_equal(carry(a, b, step), 0);
        assert_int_equal(carry(b, a, step), 0);
    }
}

static struct tunnel_stream *open_one(struct end *a, struct end *b)
{
    struct tunnel_stream *s = &a->stream[a->count++];
    assert_int_equal(tunnel_core_open(&a->core, s, 8200), 0);
    both(a, b, 1000);
    tunnel_core_accept(&b->core, &b->stream[b->count - 1]);
    both(a, b, 1000);
    assert_true(s->accepted);
    return s;
}

/* The same exchange with every cut of the bytes: both ends must see the same. */
static void test_every_cut(void **state)
{
    (void)state;
    for (size_t step = 1; step <= 41; step++) {
        struct end a, b;
        end_init(&a, true);
        end_init(&b, false);
        struct tunnel_stream *s = &a.stream[0], *t = &a.stream[1];
        assert_int_equal(tunnel_core_open(&a.core, s, 8200), 0);
        assert_int_equal(tunnel_core_open(&a.core, t, 8100), 0);
        both(&a, &b, step);
        assert_int_equal(send_all(&a, s, 'x', 3), 0); /* not accepted yet */
        tunnel_core_accept(&b.core, &b.stream[0]);
        tunnel_core_accept(&b.core, &b.stream[1]);
        both(&a, &b, step);
        assert_int_equal(send_all(&a, s, 'x', 3), 3);
        assert_int_equal(send_all(&a, t, 'y', 2), 2);
        tunnel_core_end(&a.core, s);
        tunnel_core_ping(&a.core);
        both(&a, &b, step);
        assert_false(a.core.pinged);
        assert_int_equal(send_all(&b, &b.stream[0], 'z', 2), 2);
        tunnel_core_end(&b.core, &b.stream[0]);
        tunnel_core_reset(&b.core, &b.stream[1], TUNNEL_RESET_CUT);
        assert_int_equal(send_all(&a, t, 'y', 9), 9); /* under way when it is reset: skipped */
        both(&a, &b, step);
        assert_string_equal(b.log.data, "open 8200;open 8100;0x;0x;0x;1y;1y;end 0;");
        assert_string_equal(a.log.data, "0z;0z;end 0;reset 1 0;");
        assert_int_equal(a.core.streams.count, 0);
        assert_int_equal(b.core.streams.count, 0);
        end_fini(&a);
        end_fini(&b);
    }
}

static void put(struct buf *out, uint8_t kind, uint32_t number, uint64_t id)
{
    buf_u32(out, kind);
    buf_u32(out, number);
    buf_u32(out, (uint32_t)id);
    buf_u32(out, (uint32_t)(id >> 32));
}

/* What no honest peer sends fails the tunnel, with a sentence. Stream 1 is open and accepted. */
static void test_false_frames(void **state)
{
    (void)state;
    static const struct {
        uint8_t kind, kind2;
        uint32_t number, number2;
        uint64_t id;
        bool to_opener;
        const char *why;
    } rows[] = {
        { .kind = 0, .id = 1, .why = "no kind" },
        { .kind = TUNNEL_KIND_END, .id = 1, .why = "a kind that is not there" },
        { .kind = 'G', .number = 0x20545445, .why = "HTTP" },
        { .kind = TUNNEL_OPEN, .id = 1, .why = "an id again" },
        { .kind = TUNNEL_OPEN, .id = 2, .number = 65536, .why = "no port" },
        { .kind = TUNNEL_OPEN, .id = 9, .to_opener = true, .why = "the wrong end opens" },
        { .kind = TUNNEL_ACCEPT, .id = 1, .why = "the wrong end accepts" },
        { .kind = TUNNEL_ACCEPT, .id = 1, .to_opener = true, .why = "accepted twice" },
        { .kind = TUNNEL_DATA, .id = 7, .number = 1, .why = "a stream that nobody opened" },
        { .kind = TUNNEL_DATA, .id = 0, .number = 1, .why = "no stream" },
        { .kind = TUNNEL_DATA, .id = 1, .number = 0, .why = "no data" },
        { .kind = TUNNEL_DATA, .id = 1, .number = TUNNEL_DATA_MAX + 1, .why = "too long" },
        { .kind = TUNNEL_END, .kind2 = TUNNEL_END, .id = 1, .why = "ended twice" },
        { .kind = TUNNEL_END,
          .kind2 = TUNNEL_DATA,
          .number2 = 1,
          .id = 1,
          .why = "data after the end" },
        { .kind = TUNNEL_WINDOW_MORE, .id = 1, .number = 1, .why = "more room than there is" },
        { .kind = TUNNEL_WINDOW_MORE, .id = 1, .number = 0, .why = "no room" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct end a, b;
        CLEANUP(buf_fini) struct buf bytes = { 0 };
        end_init(&a, true);
        end_init(&b, false);
        open_one(&a, &b);
        put(&bytes, rows[i].kind, rows[i].number, rows[i].id);
        if (rows[i].kind2) put(&bytes, rows[i].kind2, rows[i].number2, rows[i].id);
        struct end *to = rows[i].to_opener ? &a : &b;
        if (tunnel_core_feed(&to->core, buf_view(&bytes)) != -EPROTO)
            fail_msg("%s: was taken", rows[i].why);
        assert_non_null(to->core.why);
        /* Nothing is taken any more, and nothing is sent. */
        size_t before = to->out.len;
        assert_int_equal(tunnel_core_feed(&to->core, buf_view(&bytes)), -EPROTO);
        tunnel_core_ping(&to->core);
        assert_int_equal(to->out.len, before);
        end_fini(&a);
        end_fini(&b);
    }
}

/* More than the window fails; at most the window is sent; half of it consumed is granted again. */
static void test_credit(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    struct tunnel_stream *s = open_one(&a, &b);
    b.keeps_all = true;
    size_t sent = 0, n;
    while ((n = send_all(&a, s, 'x', SIZE_MAX)) > 0) {
        sent += n;
        both(&a, &b, 70000);
        tunnel_core_sent(&a.core);
    }
    assert_int_equal(sent, TUNNEL_WINDOW);
    assert_int_equal(b.got[0], TUNNEL_WINDOW);
    uint32_t before = a.credits;
    tunnel_core_consumed(&b.core, &b.stream[0], TUNNEL_WINDOW / 2 - 1);
    both(&a, &b, 70000);
    assert_int_equal(a.credits, before); /* not worth a frame yet */
    tunnel_core_consumed(&b.core, &b.stream[0], 1);
    both(&a, &b, 70000);
    assert_int_equal(a.credits, before + 1);
    assert_int_equal(s->may_send, TUNNEL_WINDOW / 2);
    /* A peer that sends on regardless. */
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    s->may_send = TUNNEL_WINDOW;
    for (uint32_t left = TUNNEL_WINDOW; left > 0; left -= TUNNEL_DATA_MAX)
        send_all(&a, s, 'x', TUNNEL_DATA_MAX);
    assert_int_equal(carry(&a, &b, 70000), -EPROTO);
    end_fini(&a);
    end_fini(&b);
}

/* A stream that nobody reads keeps its window's worth, and the other goes on for many windows. */
static void test_stalled_stream(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    struct tunnel_stream *s = open_one(&a, &b);
    b.keeps_all = true;
    for (int i = 0; i < 9; i++) {
        send_all(&a, s, 'x', SIZE_MAX);
        both(&a, &b, 4096);
    }
    assert_int_equal(b.got[0], TUNNEL_WINDOW);
    struct tunnel_stream *t = open_one(&a, &b);
    b.keeps_all = false;
    size_t sent = 0;
    for (int i = 0; i < 40; i++) {
        sent += send_all(&a, t, 'y', 100000);
        both(&a, &b, 4096);
    }
    assert_int_equal(sent, 4000000);
    assert_int_equal(b.got[1], 4000000);
    assert_int_equal(b.got[0], TUNNEL_WINDOW);
    end_fini(&a);
    end_fini(&b);
}

/* While the connection is full, data waits where it is; then the streams go on in turn. */
static void test_turns(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    struct tunnel_stream *filler[2] = { open_one(&a, &b), open_one(&a, &b) };
    for (size_t i = 0; i < 3; i++)
        a.greedy[i] = open_one(&a, &b);
    memset(a.order, 0, sizeof a.order);
    while (send_all(&a, filler[0], 'f', SIZE_MAX) + send_all(&a, filler[1], 'f', SIZE_MAX) > 0) {
    }
    assert_true(tunnel_core_unsent(&a.core) >= TUNNEL_OUT_BYTES);
    assert_true(tunnel_core_unsent(&a.core) < TUNNEL_OUT_BYTES + TUNNEL_DATA_MAX + 64);
    size_t room;
    for (size_t i = 0; i < 3; i++)
        assert_null(tunnel_core_data_begin(&a.core, a.greedy[i], &room));
    for (int i = 0; i < 9; i++) { /* each time there is room for one */
        a.sent = a.out.len - TUNNEL_OUT_BYTES + 1;
        tunnel_core_sent(&a.core);
    }
    assert_string_equal(a.order, "abcabcabc");
    end_fini(&a);
    end_fini(&b);
}

static void test_bounds(void **state)
{
    (void)state;
    struct end a, b;
    end_init(&a, true);
    end_init(&b, false);
    for (int i = 0; i < STREAMS_MAX; i++)
        open_one(&a, &b);
    assert_int_equal(tunnel_core_open(&a.core, &a.stream[20], 1), -ENOSPC);
    /* One that the acceptor has no room for, and one that it refuses. */
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    put(&bytes, TUNNEL_OPEN, 1, 100);
    assert_int_equal(tunnel_core_feed(&b.core, buf_view(&bytes)), 0);
    uint8_t *reply = (uint8_t *)b.out.data;
    assert_int_equal(b.out.len, TUNNEL_FRAME_BYTES);
    assert_int_equal(reply[0], TUNNEL_RESET);
    assert_int_equal(reply[4], TUNNEL_RESET_FULL);
    buf_clear(&b.out);
    tunnel_core_reset(&a.core, &a.stream[0], TUNNEL_RESET_CUT);
    b.refuses = true;
    both(&a, &b, 7);
    assert_string_equal(b.log.data + b.log.len - 10, "reset 0 0;");
    end_fini(&a);
    end_fini(&b);

    end_init(&a, true);
    end_init(&b, false);
    b.refuses = true;
    assert_int_equal(tunnel_core_open(&a.core, &a.stream[0], 22), 0);
    both(&a, &b, 7);
    assert_string_equal(b.log.data, "open 22;");
    assert_string_equal(a.log.data, "reset 0 1;");
    end_fini(&a);

    /* A peer that asks and never reads is given up at a bound. */
    buf_clear(&bytes);
    put(&bytes, TUNNEL_PING, 7, 0);
    int rc = 0;
    for (int i = 0; rc == 0 && i < 1000000; i++)
        rc = tunnel_core_feed(&b.core, buf_view(&bytes));
    assert_int_equal(rc, -E2BIG);
    assert_true(b.out.len <= TUNNEL_OUT_BYTES_MAX);
    end_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_false_frames),
        cmocka_unit_test(test_credit),    cmocka_unit_test(test_stalled_stream),
        cmocka_unit_test(test_turns),     cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

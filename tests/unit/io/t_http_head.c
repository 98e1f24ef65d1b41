/* t_http_head.c - what a handler may do with a request whose body has not come yet: answer it, bound
 * its body, leave a note. */
#include "base/core/bits.h"
#include "tests/unit/io/server_rig.h"

static int heads;

/* /refused is answered at once, /small may have ten bytes of body; all others are noted. */
static void on_head(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    const struct http_request *req = http_exchange_request(x);
    uint8_t *note = http_exchange_note(x);
    heads++;
    assert_int_equal(req->body.len, 0);
    assert_true(str_starts(req->peer, STR("127.0.0.1:")));
    assert_int_equal(note[0], 0); /* nothing is left of an earlier request */
    assert_int_equal(note[HTTP_NOTE_BYTES - 1], 0);
    if (str_eq(req->path, STR("/refused"))) {
        http_reply_header(x, "www-authenticate", STR("Bearer"));
        http_reply(x, 401, STR("text/plain"), STR("<no>"));
        return;
    }
    if (str_eq(req->path, STR("/cut"))) {
        http_exchange_abort(x);
        return;
    }
    if (str_eq(req->path, STR("/small"))) http_exchange_body_max(x, 10);
    if (str_eq(req->path, STR("/large"))) http_exchange_body_max(x, SIZE_MAX);
    memset(note, 7, HTTP_NOTE_BYTES);
}

static void on_noted(void *ctx, struct http_exchange *x)
{
    const uint8_t *note = http_exchange_note(x);
    assert_int_equal(note[0], 7);
    assert_int_equal(note[HTTP_NOTE_BYTES - 1], 7);
    on_request(ctx, x);
}

static struct fixture *begin_with_heads(void)
{
    struct fixture *f = calloc(1, sizeof *f);
    heads = 0;
    *f = start((struct http_server_config){ .limits = { .body_bytes_max = 4 << 20 },
                                            .on_head = on_head,
                                            .on_request = on_noted,
                                            .ctx = f });
    return f;
}

#define REFUSED "POST /refused HTTP/1.1\r\n" HOST

/* The answer comes although not a byte of the body was sent; what follows is no request. */
static void a_refused_head_is_answered_before_its_body(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct str raw;
    } rows[] = {
        { "counted", STR(REFUSED "Content-Length: 999999\r\n\r\n") },
        { "counted, some of it there", STR(REFUSED "Content-Length: 999999\r\n\r\n" GET("/a")) },
        { "chunked", STR(REFUSED "Transfer-Encoding: chunked\r\n\r\n") },
        { "chunked and whole",
          STR(REFUSED "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET("/a")) },
        { "waiting to be told", STR(REFUSED "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n") },
        { "longer than any body may be", STR(REFUSED "Content-Length: 999999999\r\n\r\n") },
    };
    struct fixture *f = begin_with_heads();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, rows[i].raw);
        assert_refused(f, &p, "401", rows[i].why);
        assert_false(p.reset);
        assert_false(peer_has(&p, "100 Continue"));
        assert_true(peer_has(&p, "www-authenticate: Bearer\r\n"));
        assert_true(str_ends(buf_view(&p.got), STR("<no>")));
        peer_close(&p);
    }
    assert_int_equal(counts(f).head_replies, COUNT_OF(rows));
    assert_int_equal(heads, COUNT_OF(rows));
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

/* A refusal whose body is there already costs no connection: the next request is where it was. */
static void a_refused_head_with_its_whole_body_keeps_the_connection(void **state)
{
    (void)state;
    struct fixture *f = begin_with_heads();
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(REFUSED "Content-Length: 5\r\n\r\nhello" REFUSED "\r\n" GET("/a")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /a >"));
    assert_int_equal(peer_count(&p, "HTTP/1.1 401 "), 2);
    assert_false(peer_has(&p, "connection: close"));
    assert_int_equal(f->requests, 1);
    peer_close(&p);
    end(f);
}

/* Megabytes that are on their way are read and dropped, so that no reset overtakes the answer, and
 * none of them is held. */
static void a_client_that_goes_on_sending_sees_the_answer(void **state)
{
    (void)state;
    struct fixture *f = begin_with_heads();
    struct peer p = peer_connect(f->port);
    CLEANUP(buf_fini) struct buf raw = { 0 };
    buf_text(&raw, REFUSED "Content-Length: 3000000\r\n\r\n");
    size_t head = raw.len;
    buf_reserve(&raw, 3000000);
    memset(raw.data + head, 'x', 3000000);
    raw.len += 3000000;
    for (size_t at = 0; at < raw.len; at += 100000) {
        peer_send(f->loop, &p, str_of(raw.data + at, min_size(100000, raw.len - at)));
        assert_true(counts(f).held_bytes < 500000);
    }
    shutdown(p.fd, SHUT_WR);
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_false(p.reset);
    assert_int_equal(peer_count(&p, "HTTP/1.1 401 "), 1);
    assert_int_equal(f->requests, 0);
    peer_close(&p);
    end(f);
}

static void a_head_may_lower_the_bound_of_its_body_only(void **state)
{
    (void)state;
    static const struct {
        struct str raw;
        const char *status;
    } rows[] = {
        { STR("POST /small HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n"), "413" },
        { STR("POST /small HTTP/1.1\r\n" HOST
              "Transfer-Encoding: chunked\r\n\r\n6\r\nsixsix\r\n5\r\n"),
          "413" },
        { STR("POST /large HTTP/1.1\r\n" HOST "Content-Length: 4194305\r\n\r\n"), "413" },
    };
    struct fixture *f = begin_with_heads();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, rows[i].raw);
        assert_refused(f, &p, rows[i].status, rows[i].status);
        peer_close(&p);
    }
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p,
              STR("POST /small HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n0123456789"
                  "POST /a HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n0123456789a"));
    PEER_UNTIL(f->loop, &p,
               peer_has(&p, "<POST /a 0123456789a>")); /* the bound was one request's */
    assert_true(peer_has(&p, "<POST /small 0123456789>"));
    peer_close(&p);
    end(f);
}

static void a_head_may_be_cut(void **state)
{
    (void)state;
    struct fixture *f = begin_with_heads();
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("POST /cut HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n"));
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_int_equal(p.got.len, 0);
    assert_int_equal(counts(f).aborted[HTTP_ABORT_SERVER], 1);
    peer_close(&p);
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_head_is_answered_before_its_body),
        cmocka_unit_test(a_refused_head_with_its_whole_body_keeps_the_connection),
        cmocka_unit_test(a_client_that_goes_on_sending_sees_the_answer),
        cmocka_unit_test(a_head_may_lower_the_bound_of_its_body_only),
        cmocka_unit_test(a_head_may_be_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

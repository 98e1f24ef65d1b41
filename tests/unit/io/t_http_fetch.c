/* t_http_fetch.c - blocking fetches from our own server, and the addresses they take. */
#include "base/io/http/http_fetch.h"
#include "base/io/http/http_server.h"
#include "tests/unit/io/client_rig.h"

#include <pthread.h>

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
    int listener = peer_listen(&port); /* takes the connection and says nothing */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetch_blocks_until_the_reply_is_whole),
        cmocka_unit_test(fetch_gives_up_at_its_deadline),
        cmocka_unit_test(addresses_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_http_server_bounds.c - tests the server's deadlines, limits, descriptors, listening and
 * draining, and its behaviour when memory or the kernel fails. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/log.h"
#include "base/io/net/descriptors.h"
#include "tests/unit/io/server_rig.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- deadlines and bounds ---- */

static void deadlines_are_absolute(void **state)
{
    (void)state;
    static const struct {
        const char *start;
        struct http_limits limits; /* the other deadline is long */
        enum http_fault fault;
    } rows[] = {
        { "GET / HTTP/1.1\r\n", { .head_us = 50000 }, HTTP_FAULT_HEAD_LATE },
        { "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999\r\n\r\n",
          { .body_us = 50000 },
          HTTP_FAULT_BODY_LATE },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture *f = begin(rows[i].limits);
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, str_from(rows[i].start));
        int64_t from = clock_mono_us();
        while (!p.closed && clock_mono_us() - from < PEER_WAIT_US) {
            if (p.got.len == 0) (void)!send(p.fd, "x", 1, MSG_NOSIGNAL); /* never silent for long */
            loop_turn(f->loop, 2000);
            peer_read(&p);
        }
        assert_true(str_starts(buf_view(&p.got), STR("HTTP/1.1 408 ")));
        assert_int_equal(peer_count(&p, "HTTP/1.1"), 1);
        assert_int_equal(counts(f).refused[rows[i].fault], 1);
        assert_int_equal(f->requests, 0);
        peer_close(&p);
        end(f);
    }
}

static void idle_connections_are_closed_without_a_word(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .idle_us = 30000 });
    struct peer fresh = peer_connect(f->port);
    struct peer used = peer_connect(f->port);
    peer_send(f->loop, &used, STR(GET("/a")));
    PEER_UNTIL(f->loop, &used, used.closed);
    PEER_UNTIL(f->loop, &fresh, fresh.closed);
    assert_int_equal(fresh.got.len, 0);
    assert_true(str_ends(buf_view(&used.got), STR("<GET /a >")));
    assert_int_equal(counts(f).idle_closed, 2);
    peer_close(&fresh);
    peer_close(&used);
    end(f);
}

/* An open exchange has no idle deadline, because a held request may wait long. */
static void an_open_exchange_outlives_the_idle_time(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .idle_us = 20000, .head_us = 20000 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    int64_t until = clock_mono_us() + 60000;
    TURN_UNTIL(f->loop, clock_mono_us() > until);
    assert_int_equal(f->aborts, 0);
    http_reply(f->held, 200, STR("text/plain"), STR("late"));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "late"));
    peer_close(&p);
    end(f);
}

static void heads_and_bodies_beyond_their_bounds_are_named(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){
        .line_bytes_max = 100, .head_bytes_max = 1000, .headers_max = 4, .body_bytes_max = 10 });
    CLEANUP(buf_fini) struct buf long_line = { 0 }, long_head = { 0 };
    buf_text(&long_line, "GET /");
    for (int i = 0; i < 200; i++)
        buf_byte(&long_line, 'a');
    buf_text(&long_head, "GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 1000; i++)
        buf_byte(&long_head, 'a');
    const struct {
        struct str raw;
        const char *status;
    } rows[] = {
        { buf_view(&long_line), "414" },
        { buf_view(&long_head), "431" },
        { STR("GET / HTTP/1.1\r\n" HOST "a:\r\nb:\r\nc:\r\nd:\r\n\r\n"), "431" },
        { STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n"), "413" },
        { STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n6\r\nsixsix\r\n5\r\n"),
          "413" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, rows[i].raw);
        assert_refused(f, &p, rows[i].status, rows[i].status);
        peer_close(&p);
    }
    end(f);
}

/* The metrics agree with the counts from the moment they are set. */
static void what_is_refused_and_cut_is_metered(void **state)
{
    (void)state;
    enum { CONNECTIONS, REFUSED, CUT, CLOSED, METERS };
    static const struct metric_desc table[METERS] = {
        [CONNECTIONS] = { .name = "connections", .type = METRIC_GAUGE, .help = "Open." },
        [REFUSED] = { .name = "refused_total",
                      .type = METRIC_COUNTER,
                      .labels = { "reason" },
                      .help = "Refused." },
        [CUT] = { .name = "cut_total",
                  .type = METRIC_COUNTER,
                  .labels = { "reason" },
                  .help = "Cut." },
        [CLOSED] = { .name = "closed_total",
                     .type = METRIC_COUNTER,
                     .labels = { "reason" },
                     .help = "Closed." },
    };
    CLEANUP(metrics_freep) struct metrics *m = NULL;
    assert_int_equal(metrics_new(table, METERS, NULL, 0, &m, NULL), 0);
    struct fixture *f = begin((struct http_limits){ .connections_max = 1 });
    http_server_meters_set(f->server,
                           &(struct http_server_meters){ m, CONNECTIONS, REFUSED, CUT, CLOSED });
    struct peer silent = peer_connect(f->port);
    TURN_UNTIL(f->loop, counts(f).connections == 1);
    assert_true(metric_value(metric_of(m, CONNECTIONS)) == 1);
    struct peer first = peer_connect(f->port);
    PEER_UNTIL(f->loop, &silent, silent.closed);
    struct str room = STR("room");
    assert_true(metric_value(metric_series(m, CLOSED, &room)) == 1);
    peer_send(f->loop, &first, STR("POST /wait HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\n"));
    TURN_UNTIL(f->loop, counts(f).bytes_in > 0);
    struct peer second = peer_connect(f->port);
    PEER_UNTIL(f->loop, &second, second.closed);
    struct str reason = str_from(http_fault_info(HTTP_FAULT_CONNECTIONS)->name);
    assert_true(metric_value(metric_series(m, REFUSED, &reason)) == 1);
    peer_send(f->loop, &first, STR("x"));
    TURN_UNTIL(f->loop, counts(f).requests == 1);
    peer_close(&first);
    peer_close(&silent);
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_true(metric_value(metric_of(m, CONNECTIONS)) == 0);
    reason = STR("client_left");
    assert_true(metric_value(metric_series(m, CUT, &reason)) == 1);
    peer_close(&second);
    end(f);
}

static void connections_beyond_the_bound_get_503_while_all_are_busy(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .connections_max = 2 });
    struct peer p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = peer_connect(f->port);
        if (i < 2)
            peer_send(f->loop, &p[i],
                      i ? STR(GET("/wait"))
                        : STR("POST /x HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\n"));
        for (int turn = 0; turn < 3; turn++)
            loop_turn(f->loop, 1000);
    }
    PEER_UNTIL(f->loop, &p[2], p[2].closed);
    assert_true(str_starts(buf_view(&p[2].got), STR("HTTP/1.1 503 ")));
    assert_true(peer_has(&p[2], "\r\nretry-after: 1\r\n"));
    assert_int_equal(counts(f).refused[HTTP_FAULT_CONNECTIONS], 1);
    assert_int_equal(counts(f).room_closed, 0);
    peer_close(&p[0]);
    TURN_UNTIL(f->loop, counts(f).connections == 1);
    struct peer again = peer_connect(f->port);
    peer_send(f->loop, &again, STR(GET("/a")));
    PEER_UNTIL(f->loop, &again, peer_has(&again, "<GET /a >"));
    peer_close(&again);
    peer_close(&p[1]);
    peer_close(&p[2]);
    end(f);
}

/* A new client takes the place of the connection that was idle longest, whichever was opened first;
 * a connection whose request is being read or served is never closed. */
static void the_longest_idle_connection_makes_room(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .connections_max = 4 });
    struct peer body = peer_connect(f->port);
    peer_send(f->loop, &body, STR("POST /x HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nh"));
    struct peer busy = peer_connect(f->port);
    peer_send(f->loop, &busy, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    struct peer used = peer_connect(f->port);
    TURN_UNTIL(f->loop, counts(f).connections == 3);
    struct peer silent = peer_connect(f->port);
    TURN_UNTIL(f->loop, counts(f).connections == 4);
    peer_send(f->loop, &used, STR(GET("/used"))); /* idle again, but for a shorter time */
    PEER_UNTIL(f->loop, &used, peer_has(&used, "<GET /used >"));

    struct peer first = peer_connect(f->port);
    peer_send(f->loop, &first, STR(GET("/first")));
    PEER_UNTIL(f->loop, &first, peer_has(&first, "<GET /first >"));
    PEER_UNTIL(f->loop, &silent, silent.closed);
    assert_int_equal(silent.got.len, 0);
    peer_read(&used);
    assert_false(used.closed);

    struct peer second = peer_connect(f->port);
    peer_send(f->loop, &second, STR(GET("/second")));
    PEER_UNTIL(f->loop, &second, peer_has(&second, "<GET /second >"));
    PEER_UNTIL(f->loop, &used, used.closed);
    assert_int_equal(counts(f).room_closed, 2);
    assert_int_equal(counts(f).connections, 4);
    assert_int_equal(counts(f).refused[HTTP_FAULT_CONNECTIONS], 0);

    peer_send(f->loop, &body, STR("i"));
    PEER_UNTIL(f->loop, &body, peer_has(&body, "<POST /x hi>"));
    assert_int_equal(f->aborts, 0);
    http_reply(f->held, 200, STR("text/plain"), STR("late"));
    PEER_UNTIL(f->loop, &busy, peer_has(&busy, "late"));
    struct peer *all[] = { &body, &busy, &used, &silent, &first, &second };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        peer_close(all[i]);
    end(f);
}

/* A slow head makes room, or slow heads would keep all others out. The one begun first goes, silent
 * or not; a connection that was just accepted stays. */
static void a_head_that_takes_long_makes_room(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ .connections_max = 2 });
    struct peer slow = peer_connect(f->port);
    peer_send(f->loop, &slow, STR("GET / HTTP/1.1\r\n"));
    TURN_UNTIL(f->loop, counts(f).bytes_in > 0);
    struct peer fresh = peer_connect(f->port);
    TURN_UNTIL(f->loop, counts(f).connections == 2);
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/a")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /a >"));
    PEER_UNTIL(f->loop, &slow, slow.closed);
    assert_true(str_starts(buf_view(&slow.got), STR("HTTP/1.1 408 ")));
    assert_int_equal(counts(f).room_closed, 1);
    peer_send(f->loop, &fresh, STR(GET("/fresh")));
    PEER_UNTIL(f->loop, &fresh, peer_has(&fresh, "<GET /fresh >"));
    assert_int_equal(f->requests, 2);
    peer_close(&slow);
    peer_close(&fresh);
    peer_close(&p);
    end(f);
}

/* When all clients leave and others come in one turn of the server, none is refused for those that
 * left. */
static void a_client_that_leaves_has_left_before_the_next_comes(void **state)
{
    (void)state;
    enum { MOST = 4 };
    struct fixture *f = begin((struct http_limits){ .connections_max = MOST });
    struct peer p[MOST];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < MOST; i++) {
            p[i] = peer_connect(f->port);
            peer_send(f->loop, &p[i],
                      STR("POST /x HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nh"));
        }
        TURN_UNTIL(f->loop, counts(f).connections == MOST);
        for (int i = 0; i < MOST; i++)
            peer_close(&p[i]);
        struct peer next = peer_connect(f->port);
        peer_send(f->loop, &next, STR(GET("/a")));
        PEER_UNTIL(f->loop, &next, next.got.len > 0);
        assert_true(peer_has(&next, "<GET /a >"));
        peer_close(&next);
        TURN_UNTIL(f->loop, counts(f).connections == 0);
    }
    end(f);
}

/* Among three times the bound of silent connections, each client that sends a request is served. */
static void silent_connections_keep_nobody_out(void **state)
{
    (void)state;
    enum { MOST = 20, SILENT = 60 };
    struct fixture *f = begin((struct http_limits){ .connections_max = MOST });
    struct peer silent[SILENT];
    for (int i = 0; i < SILENT; i++) {
        silent[i] = peer_connect(f->port);
        loop_turn(f->loop, 1000);
        if (i % 10 != 9) continue;
        struct peer p = peer_connect(f->port);
        peer_send(f->loop, &p, STR(GET("/a")));
        PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /a >"));
        peer_close(&p);
        assert_true(counts(f).connections <= MOST);
    }
    assert_int_equal(counts(f).refused[HTTP_FAULT_CONNECTIONS], 0);
    for (int i = 0; i < SILENT; i++)
        peer_close(&silent[i]);
    end(f);
}

/* Loopback is trusted, so the bound for trusted addresses applies here; t_http_server tests which
 * addresses are trusted. */
static void one_address_may_not_take_all_connections(void **state)
{
    (void)state;
    struct fixture *f =
        begin((struct http_limits){ .connections_max = 10, .connections_trusted_max = 2 });
    struct peer p[2] = { peer_connect(f->port), peer_connect(f->port) };
    TURN_UNTIL(f->loop, counts(f).connections == 2);
    struct peer third = peer_connect(f->port);
    PEER_UNTIL(f->loop, &third, third.closed);
    assert_true(str_starts(buf_view(&third.got), STR("HTTP/1.1 429 ")));
    assert_int_equal(counts(f).refused[HTTP_FAULT_ADDRESS], 1);
    peer_close(&p[0]);
    TURN_UNTIL(f->loop, counts(f).connections == 1);
    struct peer again = peer_connect(f->port);
    peer_send(f->loop, &again, STR(GET("/a")));
    PEER_UNTIL(f->loop, &again, peer_has(&again, "<GET /a >"));
    peer_close(&p[1]);
    peer_close(&third);
    peer_close(&again);
    end(f);
}

static struct str render(void *ctx, const struct http_fault_info *why, struct buf *body)
{
    assert_non_null(ctx);
    buf_printf(body, "{\"code\":\"%s\"}", why->name);
    return STR("application/json");
}

static void refusals_are_rendered_by_the_role(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    *f = start((struct http_server_config){ .ctx = f, .render_refusal = render });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR("GET / HTTP/1.1\r\n\r\n"));
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_true(peer_has(&p, "\r\ncontent-type: application/json\r\ncontent-length: 23\r\n"));
    assert_true(str_ends(buf_view(&p.got), STR("\r\n\r\n{\"code\":\"host_missing\"}")));
    peer_close(&p);
    end(f);
}

/* ---- listening ---- */

static void addresses_that_cannot_be_listened_on_are_explained(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct err err = { 0 };
    struct http_server *s = NULL;
    struct http_server_config config = { .host = "127.0.0.1",
                                         .port = f->port,
                                         .on_request = on_request };
    assert_int_equal(http_server_new(f->loop, &config, &s, &err), -EADDRINUSE);
    assert_true(strstr(err.text, "127.0.0.1:") != NULL);
    config = (struct http_server_config){ .host = "no such host", .on_request = on_request };
    assert_int_equal(http_server_new(f->loop, &config, &s, &err), -EINVAL);
    assert_true(strstr(err.text, "no such host") != NULL);
    assert_null(s);
    end(f);
}

static void ipv6_is_served(void **state)
{
    (void)state;
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    bool has_v6 = probe >= 0 && bind(probe, (struct sockaddr *)&to, sizeof to) == 0;
    if (probe >= 0) close(probe);
    if (!has_v6) {
        print_message("skipped: this machine has no IPv6 loopback\n");
        skip();
    }
    struct fixture *f = calloc(1, sizeof *f);
    *f = start((struct http_server_config){ .host = "[::1]", .ctx = f });
    to.sin6_port = htons(f->port);
    struct peer p = { .fd = socket(AF_INET6, SOCK_STREAM, 0) };
    assert_int_equal(connect(p.fd, (struct sockaddr *)&to, sizeof to), 0);
    peer_send(f->loop, &p, STR("GET /wait HTTP/1.1\r\nHost: [::1]:1\r\n\r\n"));
    TURN_UNTIL(f->loop, f->held != NULL);
    assert_true(str_starts(http_exchange_request(f->held)->peer, STR("[::1]:")));
    peer_close(&p);
    end(f);
}

static void servers_share_a_port_when_asked(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof *f);
    *f = start((struct http_server_config){ .ctx = f, .reuse_port = true });
    struct err err = { 0 };
    CLEANUP(http_server_freep) struct http_server *second = NULL;
    struct http_server_config config = {
        .host = "127.0.0.1", .port = f->port, .ctx = f, .on_request = on_request, .reuse_port = true
    };
    assert_int_equal(http_server_new(f->loop, &config, &second, &err), 0);
    struct peer p[16];
    for (int i = 0; i < 16; i++) {
        p[i] = peer_connect(f->port);
        peer_send(f->loop, &p[i], STR(GET("/a")));
        PEER_UNTIL(f->loop, &p[i], peer_has(&p[i], "<GET /a >"));
        peer_close(&p[i]);
    }
    struct http_server_counts c;
    http_server_counts_get(second, &c);
    assert_int_equal(c.requests + counts(f).requests, 16);
    http_server_free(TAKE(second));
    end(f);
}

/* ---- draining ---- */

static void a_drain_finishes_what_is_open_and_closes_the_rest(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer idle = peer_connect(f->port);
    struct peer busy = peer_connect(f->port);
    struct peer late = peer_connect(f->port); /* its request comes during the drain */
    peer_send(f->loop, &idle, STR(GET("/a")));
    PEER_UNTIL(f->loop, &idle, peer_has(&idle, "<GET /a >"));
    peer_send(f->loop, &busy, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    struct peer queued = peer_connect(f->port); /* not accepted yet */
    http_server_drain(f->server, on_empty, f);
    assert_int_equal(f->emptied, 0);
    peer_send(f->loop, &queued, STR(GET("/queued")));
    PEER_UNTIL(f->loop, &queued, queued.closed);
    assert_true(peer_has(&queued, "<GET /queued >"));
    peer_close(&queued);

    PEER_UNTIL(f->loop, &idle, idle.closed);
    peer_send(f->loop, &late, STR(GET("/late")));
    PEER_UNTIL(f->loop, &late, late.closed);
    assert_true(peer_has(&late, "<GET /late >"));
    assert_true(peer_has(&late, "\r\nconnection: close\r\n"));
    assert_int_equal(f->emptied, 0);
    http_reply(f->held, 200, STR("text/plain"), STR("done"));
    PEER_UNTIL(f->loop, &busy, busy.closed);
    assert_true(peer_has(&busy, "\r\nconnection: close\r\n") && peer_has(&busy, "done"));
    peer_close(&busy);
    peer_close(&late);
    peer_close(&idle);
    TURN_UNTIL(f->loop, f->emptied == 1);

    struct peer refused = { .fd = socket(AF_INET, SOCK_STREAM, 0) };
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(f->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(connect(refused.fd, (struct sockaddr *)&to, sizeof to), -1);
    assert_int_equal(errno, ECONNREFUSED);
    peer_close(&refused);
    end(f);
}

static void freeing_the_server_tells_open_exchanges(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer p = peer_connect(f->port);
    peer_send(f->loop, &p, STR(GET("/stream")));
    TURN_UNTIL(f->loop, f->held != NULL);
    http_server_free(TAKE(f->server));
    assert_int_equal(f->aborts, 1);
    assert_int_equal(f->why, HTTP_ABORT_SERVER);
    peer_close(&p);
    end(f);
}

/* ---- when memory or the kernel fails ---- */

/* Each failure point fails in turn: a request then gets its whole reply or its connection is
 * closed, and the server goes on. */
static void any_single_failure_costs_at_most_its_connection(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    struct str raw = STR("POST /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello"
                         "GET /stream HTTP/1.1\r\n" HOST "\r\n");
    bool reached = true;
    int n = 0;
    while (reached) {
        n++;
        struct peer p = peer_connect(f->port);
        (void)!send(p.fd, raw.data, raw.len, MSG_NOSIGNAL);
        buf_reserve(&p.got, 65536); /* the test's own memory must not fail */
        fault_arm(NULL, (uint64_t)n);
        int64_t until = clock_mono_us() + PEER_WAIT_US;
        while (!f->held && !p.closed && clock_mono_us() < until) {
            loop_turn(f->loop, 1000);
            peer_read(&p);
        }
        reached = fault_hits() >= (uint64_t)n;
        fault_disarm();
        assert_true(f->held || p.closed);
        if (f->held) {
            int rc = http_stream_write(f->held, "data", 4);
            assert_true(rc == 0);
            http_stream_end(f->held);
            f->held = NULL;
            PEER_UNTIL(f->loop, &p, peer_has(&p, "data\r\n0\r\n\r\n"));
        }
        peer_close(&p);
        TURN_UNTIL(f->loop, counts(f).connections == 0);
        if (n > 1000) fail_msg("the faults never end");
    }
    assert_true(n > 5); /* failure points were reached */
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

static void set_descriptors(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* When descriptors run out, an idle connection is closed for a new client. When all are busy, the
 * spare descriptor serves to turn the client away, which can then try elsewhere instead of waiting
 * in the queue. Without a spare one the listener rests instead of spinning. */
static void running_out_of_descriptors_is_survived(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct fixture *f = begin((struct http_limits){ 0 });
    struct peer idle = peer_connect(f->port);
    TURN_UNTIL(f->loop, counts(f).connections == 1);
    struct peer p = peer_connect(f->port);
    set_descriptors((rlim_t)p.fd + 1); /* the lowest free one is given first, so none is left */
    peer_send(f->loop, &p, STR(GET("/wait")));
    TURN_UNTIL(f->loop, f->held != NULL);
    PEER_UNTIL(f->loop, &idle, idle.closed);
    assert_int_equal(counts(f).room_closed, 1);
    assert_int_equal(counts(f).accept_failed, 0);
    set_descriptors(before.rlim_cur);
    struct peer busy = p;
    peer_close(&idle);

    p = peer_connect(f->port);
    set_descriptors((rlim_t)p.fd + 1);
    PEER_UNTIL(f->loop, &p, p.closed);
    assert_int_equal(counts(f).accept_failed, 1);
    set_descriptors(before.rlim_cur);
    peer_close(&p);

    p = peer_connect(f->port);
    set_descriptors(0);
    TURN_UNTIL(f->loop, counts(f).accept_failed == 2);
    struct loop_counts from, to;
    loop_counts_get(f->loop, &from);
    loop_turn(f->loop, 20000); /* nothing wakes it, although a client waits */
    loop_counts_get(f->loop, &to);
    assert_int_equal(to.turns - from.turns, 1);
    set_descriptors(before.rlim_cur);
    peer_send(f->loop, &p, STR(GET("/a")));
    PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /a >"));
    peer_close(&p);
    peer_close(&busy);
    end(f);
}

/* ---- memory over time ---- */

static void thousands_of_requests_leave_nothing_behind(void **state)
{
    (void)state;
    struct fixture *f = begin((struct http_limits){ 0 });
    for (int round = 0; round < 20; round++) {
        struct peer p = peer_connect(f->port);
        for (int i = 0; i < 50; i++) {
            buf_clear(&p.got);
            peer_send(f->loop, &p, STR(GET("/1") GET("/2")));
            PEER_UNTIL(f->loop, &p, peer_has(&p, "<GET /2 >"));
        }
        peer_close(&p);
    }
    TURN_UNTIL(f->loop, counts(f).connections == 0);
    assert_int_equal(f->requests, 2000);
    assert_int_equal(counts(f).held_bytes, 0);
    end(f);
}

static int http_server_bounds_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines_are_absolute),
        cmocka_unit_test(idle_connections_are_closed_without_a_word),
        cmocka_unit_test(an_open_exchange_outlives_the_idle_time),
        cmocka_unit_test(heads_and_bodies_beyond_their_bounds_are_named),
        cmocka_unit_test(what_is_refused_and_cut_is_metered),
        cmocka_unit_test(connections_beyond_the_bound_get_503_while_all_are_busy),
        cmocka_unit_test(the_longest_idle_connection_makes_room),
        cmocka_unit_test(a_head_that_takes_long_makes_room),
        cmocka_unit_test(a_client_that_leaves_has_left_before_the_next_comes),
        cmocka_unit_test(silent_connections_keep_nobody_out),
        cmocka_unit_test(one_address_may_not_take_all_connections),
        cmocka_unit_test(refusals_are_rendered_by_the_role),
        cmocka_unit_test(addresses_that_cannot_be_listened_on_are_explained),
        cmocka_unit_test(ipv6_is_served),
        cmocka_unit_test(servers_share_a_port_when_asked),
        cmocka_unit_test(a_drain_finishes_what_is_open_and_closes_the_rest),
        cmocka_unit_test(freeing_the_server_tells_open_exchanges),
        cmocka_unit_test(any_single_failure_costs_at_most_its_connection),
        cmocka_unit_test(running_out_of_descriptors_is_survived),
        cmocka_unit_test(thousands_of_requests_leave_nothing_behind),
    };
    return cmocka_run_group_tests_name("http_server_bounds", tests, NULL, NULL);
}

/* ---- the descriptor limit is raised to the system's maximum and divided with a reserve ---- */

static struct rlimit before;

static int remember(void **state)
{
    (void)state;
    return getrlimit(RLIMIT_NOFILE, &before);
}

static int restore(void **state)
{
    (void)state;
    return setrlimit(RLIMIT_NOFILE, &before);
}

static void set_soft(rlim_t soft)
{
    struct rlimit limit = { soft, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void the_soft_limit_becomes_the_hard_one_and_is_logged(void **state)
{
    (void)state;
    int log[2];
    char line[1024] = "";
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    set_soft(64);
    log_set_fd(log[1]);
    descriptors_raise();
    log_set_fd(2);
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_true(now.rlim_cur == before.rlim_max);
    assert_true(read(log[0], line, sizeof line - 1) > 0);
    char wanted[128];
    snprintf(wanted, sizeof wanted, " descriptors limit=%lu before=64 usable=%u ",
             (unsigned long)before.rlim_max, descriptors_usable());
    if (!strstr(line, wanted)) fail_msg("%s lacks %s", line, wanted);
    close(log[0]);
    close(log[1]);
}

static void a_reserve_is_never_given_out(void **state)
{
    (void)state;
    static const struct {
        rlim_t limit;
        uint32_t usable;
    } rows[] = { { 1024, 1024 - 128 }, { 512, 512 - 128 }, { 256, 128 }, { 100, 50 }, { 20, 10 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        set_soft(rows[i].limit);
        assert_int_equal(descriptors_usable(), rows[i].usable);
        /* The router's shares for three loops. */
        uint32_t given = 3 * descriptors_share(50, 3, 0) + 3 * descriptors_share(37, 3, 0) +
                         descriptors_share(12, 1, 0);
        if (given > rows[i].usable) fail_msg("%u of %u", given, rows[i].usable);
    }
    set_soft(1024);
    assert_int_equal(descriptors_share(50, 1, 0), 448);
    assert_int_equal(descriptors_share(50, 2, 0), 224);
    assert_int_equal(descriptors_share(50, 1, 100), 100);
    assert_int_equal(descriptors_share(1, 1000, 0), 1);
}

static int descriptors_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_soft_limit_becomes_the_hard_one_and_is_logged, remember,
                                        restore),
        cmocka_unit_test_setup_teardown(a_reserve_is_never_given_out, remember, restore),
    };
    return cmocka_run_group_tests_name("descriptors", tests, NULL, NULL);
}

int main(void)
{
    return http_server_bounds_tests() + descriptors_tests();
}

/* t_edge_clients.c - clients that are slow, never read or leave: what the router and the engine hold
 * for them has an end, and nobody else waits. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/edge/edge_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Both have these for good, from base/io/http/http_server.h; the slack only ends a test that hangs. */
#define HEAD_US 10000000
#define BODY_US 30000000
#define UNSENT_US 30000000
/* What the router may grow by beside a stream of some 60 MB that nobody reads. */
#ifdef __SANITIZE_ADDRESS__
#    define GROWTH_KIB (512 * 1024) /* freed memory stays in quarantine */
#else
#    define GROWTH_KIB (16 * 1024)
#endif
#define SLACK_US 120000000
#define EARLY_US 1500000 /* a deadline is set when the server sees us, and looked at in turns */

struct slow {
    int fd;
    const char *part; /* sent again and again, which must not move the deadline */
    int64_t limit_us;
    bool refused;
};

static void slow_begin(struct slow *c, const struct edge_server *to, const char *begin,
                       const char *part, int64_t limit_us)
{
    *c = (struct slow){ .fd = rig_connect(to->process->port, 0),
                        .part = part,
                        .limit_us = limit_us };
    assert_int_equal(send(c->fd, begin, strlen(begin), MSG_NOSIGNAL), strlen(begin));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

/* Sends a little more unless the refusal has come. */
static void slow_turn(struct slow *c, int64_t since_us)
{
    char text[1024];
    if (c->refused) return;
    ssize_t got = recv(c->fd, text, sizeof text - 1, 0);
    int64_t age_us = clock_mono_us() - since_us;
    if (got > 0) {
        text[got] = '\0';
        assert_int_equal(edge_status(str_from(text)), 408);
        assert_true(age_us >= c->limit_us - EARLY_US);
        c->refused = true;
        return;
    }
    if (got == 0 || errno != EAGAIN) fail_msg("closed without a word: %s", c->part);
    if (age_us > c->limit_us + SLACK_US) fail_msg("not cut: %s", c->part);
    assert_true(send(c->fd, c->part, strlen(c->part), MSG_NOSIGNAL) > 0);
}

/* A stream without an end, to a client that never reads. */
static int start_stuck_reader(void)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(
        rig_call(edge_fake.port, "/script", "{\"tokens\":1000000,\"token_ms\":0}", NULL), 200);
    int fd = rig_connect(edge_router.port, 4096);
    edge_post(&bytes, CHAT, STR("{" HELLO ",\"stream\":true}"));
    assert_int_equal(send(fd, bytes.data, bytes.len, MSG_NOSIGNAL), bytes.len);
    rig_wait_number(edge_fake.port, "/seen", "open", 1);
    assert_int_equal(rig_call(edge_fake.port, "/script", "{\"tokens\":8,\"token_ms\":1}", NULL),
                     200);
    return fd;
}

enum leaving { LEAVE_AT_ONCE, LEAVE_IN_THE_HEAD, LEAVE_IN_THE_STREAM, LEAVE_BY_RESET, LEAVE_COUNT };

static void come_and_leave(const struct edge_server *to, enum leaving how)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    int fd = rig_connect(to->process->port, 0);
    edge_post(&bytes, CHAT, STR("{" HELLO ",\"stream\":true,\"max_tokens\":64}"));
    size_t len = how == LEAVE_AT_ONCE ? 0 : how == LEAVE_IN_THE_HEAD ? 40 : bytes.len;
    if (len > 0) assert_int_equal(send(fd, bytes.data, len, MSG_NOSIGNAL), len);
    struct linger reset = { .l_onoff = 1 };
    if (how == LEAVE_BY_RESET) {
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    }
    close(fd);
}

struct calm {
    const struct edge_server *server;
    uint32_t descriptors;
    const char *metric;
};

static bool is_calm(void *arg)
{
    const struct calm *c = arg;
    /* Some room: connections to engines that are kept for the next request. */
    return rig_metric(c->server->process->port, c->metric) == 0 &&
           rig_descriptors(c->server->process) <= c->descriptors + 8;
}

static void clients_that_leave_leave_nothing(void **state)
{
    (void)state;
    static const char *const metrics[] = { "muster_router_in_flight_requests",
                                           "muster_engine_requests_running" };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        edge_expect_service(&edge_servers[s]);
        struct calm calm = { &edge_servers[s], rig_descriptors(edge_servers[s].process),
                             metrics[s] };
        for (int i = 0; i < 200; i++)
            come_and_leave(&edge_servers[s], (enum leaving)(i % LEAVE_COUNT));
        rig_wait(is_calm, &calm, "what 200 clients held is given back");
        edge_expect_service(&edge_servers[s]);
    }
    rig_wait_number(edge_fake.port, "/seen", "open", 0);
}

static void the_slow_are_cut_by_absolute_deadlines_and_hold_up_nobody(void **state)
{
    (void)state;
    struct slow slow[4];
    int64_t rss_kib = rig_rss_kib(&edge_router);
    int stuck = start_stuck_reader();
    int64_t since_us = clock_mono_us(), slowest_us = 0;
    uint32_t answered = 0;
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        slow_begin(&slow[2 * s], &edge_servers[s], "GET /health HTTP/1.1\r\nA: ", "a", HEAD_US);
        slow_begin(&slow[2 * s + 1], &edge_servers[s], POST "Content-Length: 100000\r\n\r\n{", " ",
                   BODY_US);
    }
    bool waiting = true;
    while (waiting) {
        int64_t before_us = clock_mono_us();
        if (before_us > since_us + UNSENT_US + SLACK_US) fail_msg("somebody was never cut");
        waiting = rig_number(edge_fake.port, "/seen", "open") > 0;
        if (waiting) assert_true(rig_rss_kib(&edge_router) < rss_kib + GROWTH_KIB);
        for (size_t i = 0; i < COUNT_OF(slow); i++) {
            slow_turn(&slow[i], since_us);
            waiting |= !slow[i].refused;
        }
        int status = rig_call(edge_router.port, CHAT, "{" HELLO ",\"stream\":true}", NULL);
        assert_int_equal(status, 200);
        answered++;
        int64_t took_us = clock_mono_us() - before_us;
        if (took_us > slowest_us) slowest_us = took_us;
        usleep(200000);
    }
    print_message("%u streams beside a stuck one, the slowest %.0f ms\n", answered,
                  (double)slowest_us * 1e-3);
    assert_true(answered >= 3); /* held up, the first had come when the stuck one was cut */
    for (size_t i = 0; i < COUNT_OF(slow); i++)
        close(slow[i].fd);
    close(stuck);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_that_leave_leave_nothing),
        cmocka_unit_test(the_slow_are_cut_by_absolute_deadlines_and_hold_up_nobody),
    };
    return rig_end(cmocka_run_group_tests(tests, edge_setup, edge_teardown));
}

/* t_serve_clients.c - clients that leave, that have no time, that are too many, that wait. */
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/unit/engine/serve_rig.h"

#include <sys/socket.h>
#include <unistd.h>

static void t_leaving_frees_the_pages(void **state)
{
    (void)state;
    const char *const args[] = { "--cpu-share", SLOW, NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 };
    engine_open(&e, args);
    for (int way = 0; way < 3; way++) {
        int fd = connect_raw(&e);
        buf_clear(&seen);
        send_raw(fd, "/v1/completions", ENDLESS_STREAM);
        read_raw(fd, "data: ", &seen);
        assert_true(metric(&e, "muster_engine_kv_pages{state=\"held\"}") > 0);
        if (way == 0) close(fd);             /* leaves */
        if (way == 1) shutdown(fd, SHUT_WR); /* half-closes */
        if (way == 2) {                      /* resets */
            struct linger now = { .l_onoff = 1, .l_linger = 0 };
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
            close(fd);
        }
        until_metric(&e, "muster_engine_requests_finished_total{reason=\"abort\"}", way + 1);
        until_metric(&e, "muster_engine_kv_pages{state=\"held\"}", 0);
        if (way == 1) close(fd);
    }
    assert_true(metric(&e, "muster_engine_generation_tokens_total") < ENDLESS_TOKENS);
    engine_close(&e);
}

static void t_deadline_is_408(void **state)
{
    (void)state;
    const char *const args[] = { "--cpu-share", SLOW, NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 };
    engine_open(&e, args);
    const char *body = "{\"prompt\":\"x\",\"max_tokens\":4000,\"ignore_eos\":true}";
    int64_t from = clock_mono_us();
    assert_int_equal(
        ask_with(&e, "POST", "/v1/completions", body, "x-request-timeout-ms", "100", &r), 408);
    has(&r, "deadline_exceeded");
    assert_true(clock_mono_us() - from >= 100000);
    until_metric(&e, "muster_engine_requests_finished_total{reason=\"deadline\"}", 1);
    until_metric(&e, "muster_engine_kv_pages{state=\"held\"}", 0);
    engine_close(&e);
}

static void t_full_is_429_and_waiting_streams_are_pinged(void **state)
{
    (void)state;
    const char *const args[] = { "--cpu-share", SLOW,     "--max-num-seqs", "1", "--max-waiting",
                                 "1",           "--ping", "100ms",          NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 };
    struct buf seen[2] = { 0 };
    engine_open(&e, args);
    int both[2] = { connect_raw(&e), connect_raw(&e) };
    send_raw(both[0], "/v1/completions", ENDLESS_STREAM);
    read_raw(both[0], "data: ", &seen[0]);
    send_raw(both[1], "/v1/completions", ENDLESS_STREAM);
    /* Mostly the second; the first where we read so slowly that it lost its place. */
    read_either_raw(both, ": ping", seen);
    int fd = connect_raw(&e);
    send_raw(fd, "/v1/completions", ENDLESS_STREAM);
    read_raw(fd, "\"code\":\"overloaded\"", &r);
    has(&r, "HTTP/1.1 429");
    has(&r, "retry-after: 1");
    close(fd);
    assert_true(metric(&e, "muster_engine_requests_refused_total") > 0);
    close(both[0]);
    read_raw(both[1], "data: ", &seen[1]); /* its turn */
    close(both[1]);
    buf_fini(&seen[0]);
    buf_fini(&seen[1]);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_leaving_frees_the_pages),
        cmocka_unit_test(t_deadline_is_408),
        cmocka_unit_test(t_full_is_429_and_waiting_streams_are_pinged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

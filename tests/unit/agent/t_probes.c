/* t_probes.c - tests what an agent answers to an orchestrator's probes. */
#include "agent/probes.h"
#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "tests/free_port.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static const char *state;
static bool is_ready;

static bool ready(void *arg, const char **ret_state)
{
    (void)arg;
    *ret_state = state;
    return is_ready;
}

/* What the thread beside the loop asks, one row after the other. */
struct asker {
    struct loop *loop;
    uint16_t port;
    pthread_t thread;
    const char *path, *method;
    int status;
    char body[64];
};

static void on_asked(void *arg)
{
    loop_stop(((struct asker *)arg)->loop);
}

static void *ask(void *arg)
{
    struct asker *a = arg;
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct http_fetch_request req = { .method = str_from(a->method),
                                            .host = STR("127.0.0.1"),
                                            .port = a->port,
                                            .path = str_from(a->path),
                                            .timeout_us = 10000000 };
    struct err err = { 0 };
    if (http_fetch(&req, &a->status, &body, &err) < 0) a->status = -1;
    snprintf(a->body, sizeof a->body, STR_FMT, STR_ARG(buf_view(&body)));
    (void)loop_post(a->loop, on_asked, a);
    return NULL;
}

static void probes_are_answered(void **test_state)
{
    (void)test_state;
    static const struct {
        const char *state;
        bool is_ready;
        const char *method, *path;
        int status;
        const char *body;
    } rows[] = {
        { "loading", false, "GET", "/health", 200, "alive\n" },
        { "loading", false, "GET", "/ready", 503, "loading\n" },
        { "ready", true, "GET", "/ready", 200, "ready\n" },
        { "ready", true, "HEAD", "/ready", 200, "" },
        { "ready", true, "POST", "/ready", 405, "GET only\n" },
        { "ready", true, "GET", "/metrics", 404, "no such path\n" },
    };
    struct asker a = { .port = free_port() };
    struct probes *probes = NULL;
    struct err err = { 0 };
    char listen[32];
    snprintf(listen, sizeof listen, "127.0.0.1:%u", a.port);
    assert_int_equal(loop_new(&a.loop, &err), 0);
    assert_int_equal(probes_open(a.loop, str_from(listen), ready, NULL, &probes, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        state = rows[i].state;
        is_ready = rows[i].is_ready;
        a.method = rows[i].method;
        a.path = rows[i].path;
        assert_int_equal(pthread_create(&a.thread, NULL, ask, &a), 0);
        assert_int_equal(loop_run(a.loop), 0);
        pthread_join(a.thread, NULL);
        assert_int_equal(a.status, rows[i].status);
        assert_string_equal(a.body, rows[i].body);
    }
    struct probes *second = NULL;
    assert_true(probes_open(a.loop, str_from(listen), ready, NULL, &second, &err) < 0);
    assert_non_null(strstr(err.text, "agent.listen"));
    assert_int_equal(probes_open(a.loop, STR("nowhere"), ready, NULL, &second, &err), -EINVAL);
    probes_close(probes);
    loop_free(a.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(probes_are_answered) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_traces.c - follows requests through a router and real engines by their traces: a whole one, one whose engine
 * is killed in the midst of its stream, one that is refused, and those that are not to be traced. */
#include "base/core/own.h"
#include "tests/proc/rig/trace_rig.h"
#include "tests/proc/router/router_rig.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define BODY                                                                           \
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"the king\"}]," \
    "\"max_tokens\":6,\"stream\":true}"
#define TOKENS 200

static struct rig_process collector;
static char endpoint[64];

/* Starts everything anew: two engines' ports, of which the first engine runs, slowly, and a router. */
static void start(const char *const *more)
{
    const char *argv[RIG_ARGS_MAX] = { "--endpoints", NULL };
    char at[64];
    collector = trace_collector();
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%u", collector.port);
    for (uint32_t i = 0; i < 2; i++)
        engine[i].port = rig_port();
    engine[0] = rig_server("engine", engine[0].port,
                           ARGS("--model", MODEL, "--served-model-name", "tiny", "--threads", "1",
                                "--cpu-share", "0.06", "--trace-endpoint", endpoint,
                                "--trace-delay", "50ms"));
    snprintf(at, sizeof at, "127.0.0.1:%u,127.0.0.1:%u", engine[0].port, engine[1].port);
    argv[1] = at;
    argv[2] = "--trace-endpoint";
    argv[3] = endpoint;
    rig_add_args(argv, 4, more);
    router = rig_server("router", rig_port(), argv);
    rig_wait_endpoints(&router, 1);
}

static int stop(void **state)
{
    (void)state;
    if (rig_is_alive(&collector)) rig_kill(&collector);
    return cleanup(state);
}

static int ask(uint32_t n, bool sampled)
{
    char header[TRACE_HEADER_BYTES];
    CLEANUP(buf_fini) struct buf reply = { 0 };
    trace_header(n, sampled, header);
    return trace_ask(router.port, CHAT, header, BODY, &reply);
}

static double router_metric(const char *name)
{
    return rig_metric(router.port, name);
}

static void a_request_is_one_trace(void **state)
{
    (void)state;
    start(ARGS("--trace-delay", "50ms"));
    assert_int_equal(ask(1, true), 200);
    assert_int_equal(ask(2, false), 200);
    assert_int_equal(ask(3, true), 200);
    trace_check("ours", 1);
    trace_check("ours", 3);
    trace_check("absent", 2); /* it came before the third */
    assert_true(router_metric("muster_router_traced_requests_total{decision=\"sampled\"}") == 2);
}

/* Reads the stream to its end, and kills the first engine once enough has come. */
static void read_and_kill(int fd, struct buf *reply)
{
    char bytes[4096];
    ssize_t n;
    bool done = false;
    while ((n = read(fd, bytes, sizeof bytes)) > 0) {
        buf_append(reply, bytes, (size_t)n);
        uint32_t chunks = 0;
        for (const char *at = reply->data; (at = strstr(at, "data: ")); at++)
            chunks++;
        if (done || chunks < 3) continue;
        done = true;
        /* The other engine is there before the first one goes. */
        engine[1] = rig_server("engine", engine[1].port,
                               ARGS("--model", MODEL, "--served-model-name", "tiny", "--threads",
                                    "1", "--trace-endpoint", endpoint, "--trace-delay", "50ms"));
        rig_wait_endpoints(&router, 2);
        rig_kill(&engine[0]);
    }
}

static void a_killed_engine_is_a_retry_in_the_trace(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 }, request = { 0 };
    char header[TRACE_HEADER_BYTES], body[256];
    start(ARGS("--trace-delay", "50ms"));
    trace_header(4, true, header);
    snprintf(body, sizeof body,
             "{\"model\":\"tiny\",\"prompt\":\"the king of the house\",\"max_tokens\":%d,"
             "\"ignore_eos\":true,\"stream\":true}",
             TOKENS);
    trace_request("/v1/completions", header, body, &request);
    int fd = rig_connect(router.port, 0);
    assert_int_equal(write(fd, request.data, request.len), request.len);
    read_and_kill(fd, &reply);
    close(fd);
    assert_non_null(strstr(reply.data, "[DONE]"));
    trace_check("killed", 4);
    assert_true(counted("continued") == 1);
}

static void a_request_that_failed_is_kept(void **state)
{
    (void)state;
    start(ARGS("--trace-delay", "50ms", "--trace-failed", "--hold-max", "100ms"));
    rig_kill(&engine[0]);
    assert_int_equal(ask(5, false), 503);
    trace_check("refused", 5);
    assert_true(router_metric("muster_router_traced_requests_total{decision=\"late\"}") == 1);
}

/* The sampler leaves it out and its first token takes long: the router keeps it, and tells of the engine, which
 * was told not to, what it saw. */
static void a_slow_request_is_kept(void **state)
{
    (void)state;
    start(ARGS("--trace-delay", "50ms", "--trace-slow", "1us"));
    assert_int_equal(ask(6, false), 200);
    trace_check("late", 6);
    assert_true(rig_metric(engine[0].port,
                           "muster_engine_traced_requests_total{decision=\"sampled\"}") <= 0);
}

static void an_engine_without_a_router_has_traces_too(void **state)
{
    (void)state;
    char header[TRACE_HEADER_BYTES];
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start(ARGS("--trace-delay", "50ms"));
    trace_header(7, true, header);
    assert_int_equal(trace_ask(engine[0].port, CHAT, header, BODY, &reply), 200);
    trace_check("alone", 7);
}

/* Without an endpoint there are no spans, and an engine still learns of its caller's trace. */
static void without_an_endpoint_the_context_is_passed_on(void **state)
{
    (void)state;
    char header[TRACE_HEADER_BYTES];
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start(ARGS("--trace-delay", "50ms"));
    assert_int_equal(rig_stop(&router), 0);
    router = rig_server("router", router.port, ARGS("--endpoints", engine[0].at));
    rig_wait_endpoints(&router, 1);
    trace_header(8, true, header);
    assert_int_equal(trace_ask(router.port, CHAT, header, BODY, &reply), 200);
    double sampled =
        rig_metric(engine[0].port, "muster_engine_traced_requests_total{decision=\"sampled\"}");
    assert_true(sampled == 1);
    assert_true(router_metric("muster_router_traced_requests_total") <= 0);
}

static void bad_headers_are_ignored_and_counted(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start(ARGS("--trace-delay", "50ms", "--trace-ratio", "0"));
    assert_int_equal(trace_ask(router.port, CHAT, "traceparent: 00-1-2-01", BODY, &reply), 200);
    buf_clear(&reply);
    assert_int_equal(
        trace_ask(router.port, CHAT,
                  "traceparent: 00-4bf92f3577b34da6a3ce929d00000006-00f067aa0ba902b7-01\r\n"
                  "tracestate: A=b",
                  BODY, &reply),
        200);
    double ignored =
        router_metric("muster_router_trace_headers_ignored_total{header=\"traceparent\"}");
    assert_true(ignored == 1);
    assert_true(router_metric("muster_router_trace_headers_ignored_total{header=\"tracestate\"}") ==
                1);
    assert_true(router_metric("muster_router_traced_requests_total{decision=\"sampled\"}") == 1);
}

/* Ten spans a second are two requests; the others are served and not traced. */
static void the_spans_of_a_second_are_bounded(void **state)
{
    (void)state;
    start(ARGS("--trace-delay", "50ms", "--trace-spans-max", "10", "--trace-sampler", "always_on"));
    for (uint32_t n = 10; n < 30; n++)
        assert_int_equal(ask(n, true), 200);
    double sampled = router_metric("muster_router_traced_requests_total{decision=\"sampled\"}");
    double capped = router_metric("muster_router_traced_requests_total{decision=\"capped\"}");
    assert_true(sampled >= 2 && sampled + capped == 20);
    /* A request that is left out is left out by the engine too. */
    double engine_sampled =
        rig_metric(engine[0].port, "muster_engine_traced_requests_total{decision=\"sampled\"}");
    assert_true(engine_sampled == sampled);
}

/* A collector that takes connections and answers nothing delays no request, nor the end by more than its
 * bound. */
static void a_hung_collector_delays_nobody(void **state)
{
    (void)state;
    start(ARGS("--trace-delay", "1ms", "--trace-sampler", "always_on"));
    kill((pid_t)collector.proc.id.pid, SIGSTOP);
    for (uint32_t n = 40; n < 45; n++)
        assert_int_equal(ask(n, true), 200);
    assert_int_equal(rig_stop(&router), 0);
    kill((pid_t)collector.proc.id.pid, SIGCONT);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL)) || !trace_can_run()) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_request_is_one_trace, stop),
        cmocka_unit_test_teardown(a_killed_engine_is_a_retry_in_the_trace, stop),
        cmocka_unit_test_teardown(a_request_that_failed_is_kept, stop),
        cmocka_unit_test_teardown(a_slow_request_is_kept, stop),
        cmocka_unit_test_teardown(an_engine_without_a_router_has_traces_too, stop),
        cmocka_unit_test_teardown(without_an_endpoint_the_context_is_passed_on, stop),
        cmocka_unit_test_teardown(bad_headers_are_ignored_and_counted, stop),
        cmocka_unit_test_teardown(the_spans_of_a_second_are_bounded, stop),
        cmocka_unit_test_teardown(a_hung_collector_delays_nobody, stop),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

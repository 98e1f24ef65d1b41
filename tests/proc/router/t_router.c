/* t_router.c - runs the router before scripted engines that fail, and observes it as its clients do. */
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/router/router_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"hello there\"}]"

static void start_engine(uint32_t i, const char *fail, const char *count)
{
    start_fake(i, ARGS("--fail", fail, "--fail-count", count));
}

/* Starts a router before the first `engines`, with one more option; it holds a request for at most 4 s. */
static void start_before(uint32_t engines, const char *option, const char *value)
{
    const char *role[ENGINES] = { 0 };
    for (uint32_t i = 0; i < engines; i++)
        role[i] = "";
    start_router(role, ARGS("--hold-max", "4s", option, value));
}

static void script(uint32_t i, const char *json)
{
    assert_int_equal(rig_call(engine[i].port, "/script", json, NULL), 200);
}

static int chat(const char *more, struct buf *reply)
{
    char body[512];
    snprintf(body, sizeof body, HELLO "%s}", more);
    return rig_call(router.port, CHAT, body, reply);
}

static bool is_idle(void *arg)
{
    (void)arg;
    return rig_metric(router.port, "muster_router_in_flight_requests") <= 0.5;
}

static void whole_and_streamed_answers_have_openai_shapes(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(0, "none", "0");
    start_before(1, NULL, NULL);
    assert_int_equal(chat("", &reply), 200);
    assert_non_null(strstr(reply.data, "\"object\":\"chat.completion\""));
    assert_non_null(strstr(reply.data, "\"finish_reason\":\"stop\""));
    assert_non_null(strstr(reply.data, "\"completion_tokens\":8"));

    assert_int_equal(chat(",\"stream\":true,\"stream_options\":{\"include_usage\":true}", &reply),
                     200);
    const char *role = strstr(reply.data, "\"role\":\"assistant\"");
    const char *text = strstr(reply.data, "\"content\":\"");
    const char *finish = strstr(reply.data, "\"finish_reason\":\"stop\"");
    const char *usage = strstr(reply.data, "\"choices\":[]");
    const char *done = strstr(reply.data, "data: [DONE]\n\n");
    assert_true(role && text && finish && usage && done);
    assert_true(role < finish && finish < usage && usage < done);
    assert_null(strstr(finish + 1, "\"finish_reason\":\"stop\""));
    assert_string_equal(done, "data: [DONE]\n\n");
}

static void bad_requests_get_error_objects(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *says;
    } rows[] = {
        { CHAT, "{", 400, "invalid_request_error" },
        { CHAT, "[1,2]", 400, "invalid_request_error" },
        { CHAT, "{}", 400, "messages" },
        { CHAT, HELLO ",\"temperature\":9}", 400, "temperature" },
        { CHAT, HELLO ",\"n\":65}", 400, "\"param\":\"n\"" },
        { CHAT, HELLO ",\"model\":\"other\"}", 404, "model_not_found" },
        { CHAT, HELLO ",\"max_tokens\":100000}", 400, "context_length_exceeded" },
        { "/v1/nothing", "{}", 404, "not_found_error" },
        { "/v1/models", "{}", 405, "invalid_request_error" },
        { "/admin/route", "{\"policy\":\"random\"}", 401, "authentication_error" },
    };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(0, "none", "0");
    start_before(1, NULL, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status = rig_call(router.port, rows[i].path, rows[i].body, &reply);
        if (status != rows[i].status || !strstr(reply.data, rows[i].says)) {
            fail_msg("row %zu: %d %s", i, status, reply.data);
        }
        assert_non_null(strstr(reply.data, "\"error\":{\"message\":"));
    }
}

static void dead_engines_cost_nothing_before_the_first_byte(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(0, "none", "0");
    start_engine(1, "none", "0");
    start_before(2, NULL, NULL);
    rig_kill(&engine[0]);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(chat("", &reply), 200);
}

/* Sends a request on a connection that stays, and reads its whole reply. */
static int ask_on(int fd, const char *head, const char *body, struct buf *reply)
{
    char request[1024];
    int len = snprintf(request, sizeof request,
                       "%s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                       "content-length: %zu\r\n\r\n%s",
                       head, strlen(body), body);
    assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
    buf_clear(reply);
    for (;;) {
        char part[16384];
        ssize_t got = recv(fd, part, sizeof part, 0);
        assert_true(got > 0);
        buf_append(reply, part, (size_t)got);
        const char *end = strstr(reply->data, "\r\n\r\n");
        const char *length = strstr(reply->data, "content-length: ");
        if (end && length &&
            reply->len >= (size_t)(end + 4 - reply->data) + strtoul(length + 16, NULL, 10))
            return (int)strtol(reply->data + strlen("HTTP/1.1 "), NULL, 10);
    }
}

/* A router without free descriptors answers 503 at once and does not blame its engines. */
static void a_shortage_of_descriptors_is_the_routers_own(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(0, "none", "0");
    start_before(1, NULL, NULL);
    int fd = rig_connect(router.port, 0);
    assert_int_equal(ask_on(fd, "GET /health", "", &reply), 200); /* the connection is accepted */
    struct rlimit before, none = { 0 };
    pid_t pid = (pid_t)router.proc.id.pid;
    assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &none, NULL), 0);
    assert_int_equal(ask_on(fd, "POST " CHAT, HELLO "}", &reply), 503);
    assert_non_null(strstr(reply.data, "retry-after: "));
    assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &before, NULL), 0);

    assert_int_equal(ask_on(fd, "POST " CHAT, HELLO "}", &reply), 200);
    close(fd);
    assert_int_equal(rig_metric(router.port, "muster_router_retries_total{failure=\"local\"}"), 1);
    assert_int_equal(rig_metric(router.port, "muster_router_hold_seconds_count"), 0);
    assert_true(rig_metric(router.port, "muster_router_retries_total{failure=\"unreachable\"}") <=
                0);
}

static void a_crash_goes_elsewhere_and_a_second_one_is_422(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(0, "die_early", "1");
    start_engine(1, "none", "0");
    start_before(2, "--route", "round_robin");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(chat("", &reply), 200);

    start_engine(0, "die_early", "1");
    script(1, "{\"fail\":\"die_early\",\"count\":1}");
    start_engine(2, "none", "0");
    assert_int_equal(chat("", &reply), 422);
    assert_non_null(strstr(reply.data, "invalid_request_error"));
}

static void failures_of_all_kinds_are_retried_before_the_first_byte(void **state)
{
    (void)state;
    static const char *const modes[] = { "busy", "error", "die_late" };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(1, "none", "0");
    for (size_t i = 0; i < 3; i++) {
        start_engine(0, modes[i], "1");
        start_before(2, "--route", "round_robin");
        /* Not streamed: the response is sent when it is whole, so any failure can be retried. */
        for (uint32_t n = 0; n < 3; n++) {
            int status = chat("", &reply);
            if (status != 200) fail_msg("%s: %d %s", modes[i], status, reply.data);
        }
        assert_true(rig_metric(router.port, "muster_router_retries_total") >= 1);
        assert_int_equal(rig_stop(&router), 0);
        rig_kill(&engine[0]);
    }
    start_before(1, NULL, NULL);
}

/* The output is continued three times, each time a few tokens further; the fourth break ends it. */
static void a_stream_that_breaks_each_time_ends_with_an_error_and_without_done(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(0, "cut", "4");
    script(0, "{\"tokens\":100}");
    start_before(1, NULL, NULL);
    chat(",\"stream\":true", &reply);
    assert_non_null(strstr(reply.data, "\"error\":{"));
    assert_null(strstr(reply.data, "[DONE]"));
}

static void a_client_that_leaves_is_passed_on(void **state)
{
    (void)state;
    start_engine(0, "none", "0");
    script(0, "{\"tokens\":100000,\"token_ms\":5}");
    start_before(1, NULL, NULL);
    static const char body[] = HELLO ",\"stream\":true}";
    for (uint32_t half = 0; half < 2; half++) {
        char request[512];
        int len = snprintf(request, sizeof request,
                           "POST " CHAT " HTTP/1.1\r\nhost: localhost\r\n"
                           "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                           sizeof body - 1, body);
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons(router.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
        assert_int_equal(write(fd, request, (size_t)len), len);
        rig_wait_number(engine[0].port, "/seen", "open", 1);
        if (half) shutdown(fd, SHUT_WR);
        if (!half) close(fd);
        rig_wait_number(engine[0].port, "/seen", "open", 0);
        rig_wait_number(engine[0].port, "/seen", "left", (int64_t)half + 1);
        if (half) close(fd);
    }
    rig_wait(is_idle, NULL, "nothing in flight"); /* the gauge follows the sync */
}

/* A predictor that asks the model for the length makes two calls for one output. A client that leaves
 * while that question is open ends the question too. */
static void questions_of_length_are_asked_first(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_engine(0, "none", "0");
    start_before(1, "--predict", "self_report");
    assert_int_equal(chat("", &reply), 200);
    assert_non_null(strstr(reply.data, "\"completion_tokens\":8"));
    assert_int_equal(rig_number(engine[0].port, "/seen", "calls"), 2);
    assert_true(rig_metric(router.port, "muster_router_question_tokens_total") > 8);
    assert_true(rig_metric(router.port, "muster_router_requests_total{outcome=\"ok\"") == 1);

    script(0, "{\"fail\":\"hang\",\"count\":1}");
    static const char body[] = HELLO "}";
    char request[512];
    int len = snprintf(request, sizeof request,
                       "POST " CHAT " HTTP/1.1\r\nhost: localhost\r\n"
                       "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                       sizeof body - 1, body);
    int fd = rig_connect(router.port, 0);
    assert_int_equal(write(fd, request, (size_t)len), len);
    rig_wait_number(engine[0].port, "/seen", "open", 1);
    close(fd);
    rig_wait_number(engine[0].port, "/seen", "open", 0);
    assert_int_equal(chat("", &reply), 200);
    assert_int_equal(rig_number(engine[0].port, "/seen", "calls"), 5);
    rig_wait(is_idle, NULL, "nothing in flight"); /* the gauge follows the sync */
}

/* Runs `muster replay` on the record and joins its two outputs. */
static void replay(const char *path, const char *more, char *text, size_t bytes)
{
    char line[512];
    snprintf(line, sizeof line, "%s replay %s --route round_robin %s 2>&1", getenv("MUSTER_BIN"),
             path, more);
    FILE *out = popen(line, "r");
    assert_non_null(out);
    size_t len = fread(text, 1, bytes - 1, out);
    text[len] = '\0';
    assert_int_equal(pclose(out), 0);
}

/* Records six decisions of a router over two engines. */
static void record_decisions(const char *path)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    start_before(2, "--record", path);
    for (int i = 0; i < 6; i++)
        assert_int_equal(chat("", &reply), 200);
    assert_int_equal(rig_stop(&router), 0);
}

/* A router records its decisions in a file; `muster replay` lets another policy make them again. */
static void decisions_are_recorded_and_put_to_another_row(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-record-XXXXXX", text[2048];
    struct stat st;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    start_engine(0, "none", "0");
    start_engine(1, "none", "0");
    record_decisions(path);
    replay(path, "-o json", text, sizeof text);
    assert_non_null(strstr(text, "\"recorded\":\"completion\""));
    assert_non_null(strstr(text, "\"decisions\":6"));
    assert_non_null(strstr(text, "\"judged\":6"));
    assert_non_null(strstr(text, "\"torn\":false"));
    assert_non_null(strstr(text, "\"route\":\"round_robin\""));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 10), 0);
    replay(path, "", text, sizeof text);
    assert_non_null(strstr(text, "ends within an entry: "));
    assert_non_null(strstr(text, "decisions by completion"));
    unlink(path);
}

/* Without an engine's speed no decision can be judged: the regret is absent, not 0. */
static void what_cannot_be_judged_is_absent(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-record-XXXXXX", text[2048];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    start_fake(0, ARGS("--untold"));
    start_fake(1, ARGS("--untold"));
    record_decisions(path);
    replay(path, "-o json", text, sizeof text);
    assert_non_null(strstr(text, "\"judged\":0,\"regret_s\":{\"mean\":null,\"p50\":null"));
    replay(path, "", text, sizeof text);
    assert_non_null(strstr(text, "         -           -           -"));
    assert_non_null(strstr(text, "6 without regret, some speed was unknown"));
    assert_null(strstr(text, "ends within"));
    unlink(path);
}

static void requests_wait_for_an_instance_and_no_longer_than_allowed(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    engine[0].port = rig_port();
    start_engine(1, "none", "0");
    start_before(2, NULL, NULL);
    rig_kill(&engine[1]);
    int64_t before_us = clock_mono_us();
    assert_int_equal(chat("", &reply), 503);
    int64_t waited_us = clock_mono_us() - before_us;
    assert_true(waited_us > 3500000);
    assert_non_null(strstr(reply.data, "unavailable_error"));
    /* A client that allows less time than that gets its own status. */
    before_us = clock_mono_us();
    assert_int_equal(
        rig_call_with(router.port, CHAT, "x-request-timeout-ms: 700", HELLO "}", &reply), 408);
    waited_us = clock_mono_us() - before_us;
    assert_true(waited_us > 600000);
    start_engine(0, "none", "0");
    assert_int_equal(chat("", &reply), 200);
}

static void routing_policies_change_while_it_runs_for_the_fleet_only(void **state)
{
    (void)state;
    char path[300], header[RIG_BEARER];
    snprintf(path, sizeof path, "%s/secret", rig_folder());
    start_fake(0, ARGS("--secret-file", path));
    start_before(1, "--secret-file", path);
    rig_bearer(path, header);
    assert_int_equal(
        rig_call_with(router.port, "/admin/route", header, "{\"policy\":\"random\"}", NULL), 200);
    assert_int_equal(
        rig_call_with(router.port, "/admin/route", header, "{\"policy\":\"rnd\"}", NULL), 400);
    assert_int_equal(rig_call(router.port, "/admin/route", "{\"policy\":\"random\"}", NULL), 401);
}

static bool is_ready(void *arg)
{
    (void)arg;
    return rig_call(router.port, "/ready", NULL, NULL) == 200;
}

/* It lives from the start, and goes on when the controller is gone. */
static void it_is_ready_once_the_controller_has_replied(void **state)
{
    (void)state;
    uint16_t port = rig_port();
    char at[24], secret[300], folder[300];
    snprintf(at, sizeof at, "127.0.0.1:%u", port);
    snprintf(secret, sizeof secret, "%s/secret", rig_folder());
    snprintf(folder, sizeof folder, "%s/state", rig_folder());
    router = rig_server("router", rig_port(),
                        ARGS("--controller", at, "--secret-file", secret, "--sync", "50ms"));
    assert_int_equal(rig_call(router.port, "/ready", NULL, NULL), 503);
    struct rig_process controller =
        rig_server("controller", port, ARGS("--state", folder, "--secret-file", secret));
    rig_wait(is_ready, NULL, "the router is ready");
    rig_kill(&controller);
    rig_wait_more(router.port, "muster_router_sync_age_seconds", 0.2);
    assert_int_equal(rig_call(router.port, "/ready", NULL, NULL), 200);
    rig_kill(&router);

    router = rig_server("router", rig_port(), ARGS("--endpoints", at));
    assert_int_equal(rig_call(router.port, "/ready", NULL, NULL), 200); /* it has no controller */
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
#define CASE(fn) cmocka_unit_test_teardown(fn, cleanup)
    const struct CMUnitTest tests[] = {
        CASE(whole_and_streamed_answers_have_openai_shapes),
        CASE(bad_requests_get_error_objects),
        CASE(dead_engines_cost_nothing_before_the_first_byte),
        CASE(a_shortage_of_descriptors_is_the_routers_own),
        CASE(a_crash_goes_elsewhere_and_a_second_one_is_422),
        CASE(failures_of_all_kinds_are_retried_before_the_first_byte),
        CASE(a_stream_that_breaks_each_time_ends_with_an_error_and_without_done),
        CASE(a_client_that_leaves_is_passed_on),
        CASE(questions_of_length_are_asked_first),
        CASE(decisions_are_recorded_and_put_to_another_row),
        CASE(what_cannot_be_judged_is_absent),
        CASE(requests_wait_for_an_instance_and_no_longer_than_allowed),
        CASE(routing_policies_change_while_it_runs_for_the_fleet_only),
        CASE(it_is_ready_once_the_controller_has_replied),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

/* t_router_text.c - sends large bodies to the router: text workers read them, within bounds, and their
 * memory is freed. */
#include "base/core/own.h"
#include "tests/proc/router/router_rig.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGE ((size_t)7 << 20)
#define MIDDLE ((size_t)40 << 10)
#define COMPLETIONS "/v1/completions"

/* Writes {"prompt":"abcd..."MORE} with `bytes` bytes of text. */
static void prompt_of(struct buf *out, size_t bytes, const char *more)
{
    buf_clear(out);
    buf_text(out, "{\"prompt\":\"");
    for (size_t i = 0; i < bytes; i++)
        buf_byte(out, "abcdefgh "[i % 9]);
    buf_printf(out, "\"%s}", more);
    assert_int_equal(out->rc, 0);
}

static void start(const char *context, const char *const *more)
{
    const char *const role[ENGINES] = { "" };
    start_fake(0, ARGS("--context", context));
    start_router(role, more);
}

static void send_all(int fd, const char *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t sent = send(fd, data + at, len - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

/* Opens a connection and sends a request except its last byte. */
static int begin_to_ask(const char *path, const struct buf *body)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text,
               "POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
               "content-length: %zu\r\n\r\n",
               path, body->len);
    buf_str(&text, buf_view(body));
    int fd = rig_connect(router.port, 0);
    send_all(fd, text.data, text.len - 1);
    return fd;
}

/* Opens a connection and sends a whole request. */
static int ask(const char *path, const struct buf *body)
{
    int fd = begin_to_ask(path, body);
    send_all(fd, body->data + body->len - 1, 1);
    return fd;
}

/* Waits for the response to begin and returns its status. */
static int status_of(int fd)
{
    char head[13] = { 0 };
    size_t len = 0;
    while (len < sizeof head - 1) {
        ssize_t got = recv(fd, head + len, sizeof head - 1 - len, 0);
        assert_true(got > 0);
        len += (size_t)got;
    }
    int status = 0;
    assert_int_equal(sscanf(head, "HTTP/1.1 %d", &status), 1);
    return status;
}

static double at_workers(void)
{
    return rig_metric(router.port, "muster_router_text_bytes");
}

static bool nothing_at_workers(void *arg)
{
    (void)arg;
    return at_workers() == 0;
}

static bool is_idle(void *arg)
{
    (void)arg;
    return rig_metric(router.port, "muster_router_in_flight_requests") <= 0.5;
}

/* Returns true when the gauge, which is set a few times a second, shows no body. */
static bool holds_no_body(void *arg)
{
    (void)arg;
    return rig_metric(router.port, "muster_router_http_held_bytes") < (double)LARGE;
}

/* Returns the number behind "key": in a reply. */
static long number_of(const char *reply, const char *key)
{
    long number = -1;
    const char *at = strstr(reply, key);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(key), "\":%ld", &number), 1);
    return number;
}

static void large_prompts_are_answered_like_small_ones(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    start("1000000", ARGS(NULL));
    long small = 0;
    for (int large = 0; large <= 1; large++) {
        prompt_of(&body, large ? MIDDLE : MIDDLE / 4, ",\"max_tokens\":3");
        assert_int_equal(rig_call(router.port, COMPLETIONS, body.data, &reply), 200);
        long tokens = number_of(reply.data, "prompt_tokens");
        if (!large) small = tokens;
        assert_true(large ? tokens > 3 * small && tokens < 5 * small : tokens > 0);
        prompt_of(&body, large ? MIDDLE : MIDDLE / 4, "");
        assert_int_equal(rig_call(router.port, "/tokenize", body.data, &reply), 200);
        assert_int_equal(number_of(reply.data, "count"), tokens);
    }
    assert_true(rig_metric(router.port, "muster_router_text_seconds_count") == 2);
    assert_int_equal(rig_call(router.port, "/v1/chat/completions", body.data, &reply), 400);
    assert_non_null(strstr(reply.data, "messages is missing"));
}

/* The body is small, but its template goes through all messages for each message: a worker renders it. */
static void much_work_in_few_bytes_is_a_workers(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    const char *const role[ENGINES] = { "" };
    start_fake(0,
               ARGS("--chat-template",
                    "{% for a in messages %}{% set n = loop.index %}{% for b in messages %}"
                    "{% if loop.index == n %}{{ b.content }}{% endif %}{% endfor %}{% endfor %}"));
    start_router(role, ARGS(NULL));
    for (int messages = 3; messages <= 300; messages += 297) {
        buf_clear(&body);
        buf_text(&body, "{\"max_tokens\":2,\"messages\":[");
        for (int i = 0; i < messages; i++)
            buf_printf(&body, "%s{\"role\":\"user\",\"content\":\"x\"}", i ? "," : "");
        buf_text(&body, "]}");
        assert_true(body.len < 16000);
        for (int way = 0; way <= 1; way++) {
            const char *path = way ? "/tokenize" : "/v1/chat/completions";
            assert_int_equal(rig_call(router.port, path, body.data, &reply), 200);
            assert_int_equal(number_of(reply.data, way ? "count" : "prompt_tokens"), messages);
            double worked = rig_metric(router.port, "muster_router_text_seconds_count");
            assert_true(worked == (messages > 3 ? 1 + way : 0));
        }
    }
}

static void what_cannot_fit_is_refused_by_its_own_name(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    start("4096", ARGS(NULL));
    prompt_of(&body, LARGE, "");
    assert_int_equal(rig_call(router.port, COMPLETIONS, body.data, &reply), 400);
    assert_non_null(strstr(reply.data, "context_length_exceeded"));
    assert_non_null(strstr(reply.data, "4096 tokens"));
    assert_int_equal(rig_call(router.port, "/tokenize", body.data, &reply), 413);
    assert_non_null(strstr(reply.data, "more than 131072 tokens"));

    buf_clear(&body);
    buf_text(&body, "{\"tokens\":[7");
    for (int i = 0; i < 1 << 17; i++)
        buf_text(&body, ",7");
    buf_text(&body, "]}");
    assert_int_equal(rig_call(router.port, "/detokenize", body.data, &reply), 413);
    assert_non_null(strstr(reply.data, "more than 131072"));
    assert_int_equal(rig_call(router.port, "/detokenize", "{\"tokens\":[400000]}", &reply), 400);
    assert_non_null(strstr(reply.data, "no token 400000"));
}

/* One worker has a queue of work. On a busy machine it may be quicker than the calls that observe it; then
 * the bodies are sent again. If the loop waited for its worker, no call would ever find the worker busy. */
static void the_loop_answers_while_workers_work(void **state)
{
    (void)state;
    enum { ASKED = 6, ROUNDS_MAX = 50 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    int fd[ASKED];
    start("1000000", ARGS("--text-threads", "1", "--text-queue", "128MiB"));
    prompt_of(&body, LARGE, "");
    uint32_t meanwhile = 0;
    for (int round = 0; meanwhile < ASKED; round++) {
        assert_true(round < ROUNDS_MAX);
        for (int i = 0; i < ASKED; i++)
            fd[i] = ask(COMPLETIONS, &body);
        while (at_workers() > 0) {
            assert_int_equal(rig_call(router.port, "/health", NULL, NULL), 200);
            meanwhile += at_workers() > 0;
        }
        for (int i = 0; i < ASKED; i++) {
            assert_int_equal(status_of(fd[i]), 400);
            close(fd[i]);
        }
    }
}

/* All bodies become complete at one moment. A worker may still be quicker than the loop; then they are sent
 * again. */
static void beyond_the_queue_is_429(void **state)
{
    (void)state;
    enum { ASKED = 8 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    int fd[ASKED], count[600] = { 0 }, asked = 0;
    start("1000000", ARGS("--text-threads", "1", "--text-queue", "32MiB"));
    prompt_of(&body, LARGE, "");
    for (; count[429] == 0; asked += ASKED) {
        for (int i = 0; i < ASKED; i++)
            fd[i] = begin_to_ask(i % 2 ? "/tokenize" : COMPLETIONS, &body);
        for (int i = 0; i < ASKED; i++)
            send_all(fd[i], body.data + body.len - 1, 1);
        for (int i = 0; i < ASKED; i++) {
            count[status_of(fd[i])]++;
            close(fd[i]);
        }
    }
    assert_true(count[400] + count[413] >= 2);
    assert_int_equal(count[429] + count[400] + count[413], asked);
    assert_true(counted("text_refused") == count[429]);
    rig_wait(is_idle, NULL, "what was refused is not in flight");
}

static void clients_that_leave_are_let_go_of(void **state)
{
    (void)state;
    enum { ASKED = 6 };
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    start("1000000", ARGS("--text-threads", "1", "--text-queue", "128MiB"));
    for (int round = 0; round < 2; round++) {
        int fd[ASKED];
        prompt_of(&body, LARGE, "");
        for (int i = 0; i < ASKED; i++)
            fd[i] = ask(i % 2 ? "/tokenize" : COMPLETIONS, &body);
        for (int i = 0; i < ASKED; i++) {
            struct linger hard = { .l_onoff = 1 };
            if (round) setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
            close(fd[i]);
        }
        rig_wait(nothing_at_workers, NULL, "workers are done with clients that left");
        rig_wait(is_idle, NULL, "nothing in flight");
    }
    prompt_of(&body, MIDDLE, ",\"max_tokens\":1");
    assert_int_equal(rig_call(router.port, COMPLETIONS, body.data, &reply), 200);
    rig_wait(holds_no_body, NULL, "their bodies are forgotten");
}

static void a_deadline_is_kept_and_an_end_is_clean(void **state)
{
    (void)state;
    enum { ASKED = 4 };
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    int fd[ASKED];
    start("1000000", ARGS("--text-threads", "1", "--text-queue", "128MiB"));
    prompt_of(&body, LARGE, "");
    for (int i = 0; i < ASKED; i++)
        fd[i] = ask(COMPLETIONS, &body);
    assert_int_equal(
        rig_call_with(router.port, COMPLETIONS, "x-request-timeout-ms: 1", body.data, &reply), 408);
    assert_int_equal(rig_stop(&router), 0); /* while workers still have earlier bodies */
    for (int i = 0; i < ASKED; i++) {
        assert_int_equal(status_of(fd[i]), 400);
        close(fd[i]);
    }
    start_router((const char *const[ENGINES]){ "" }, ARGS(NULL));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
#define CASE(fn) cmocka_unit_test_teardown(fn, cleanup)
    const struct CMUnitTest tests[] = {
        CASE(large_prompts_are_answered_like_small_ones),
        CASE(much_work_in_few_bytes_is_a_workers),
        CASE(what_cannot_fit_is_refused_by_its_own_name),
        CASE(the_loop_answers_while_workers_work),
        CASE(beyond_the_queue_is_429),
        CASE(clients_that_leave_are_let_go_of),
        CASE(a_deadline_is_kept_and_an_end_is_clean),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

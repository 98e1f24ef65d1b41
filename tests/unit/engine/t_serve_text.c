/* t_serve_text.c - large bodies at the engine itself: on a text worker, within bounds, let go of. */
#include "base/core/own.h"
#include "tests/unit/engine/serve_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGE ((size_t)7 << 20)
#define ASKED 6
#define ONCE "\"prompt\":\"once upon a time\",\"max_tokens\":8,\"temperature\":0"

/* {"prompt": "abab..."} with so many bytes of text. */
static void prompt_of(struct buf *out, size_t bytes)
{
    buf_clear(out);
    buf_text(out, "{\"prompt\":\"");
    for (size_t i = 0; i < bytes; i++)
        buf_byte(out, "abcdefgh "[i % 9]);
    buf_text(out, "\"}");
    assert_int_equal(out->rc, 0);
}

/* The same request as a short one, in a body that is large by its blanks. */
static void padded(struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "{" ONCE "%20000s}", "");
    assert_int_equal(out->rc, 0);
}

/* The text of a whole reply, in it. */
static struct str text_of(const struct buf *reply)
{
    const char *at = strstr(reply->data, "\"text\":");
    const char *end = at ? strstr(at, "\"finish_reason\"") : NULL;
    assert_non_null(end);
    return str_of(at, (size_t)(end - at));
}

static void t_large_is_answered_like_small(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf body = { 0 }, small = { 0 }, large = { 0 };
    engine_open(&e, NULL);
    padded(&body);
    assert_int_equal(post(&e, "/v1/completions", "{" ONCE "}", &small), 200);
    assert_true(metric(&e, "muster_engine_text_seconds_count") == 0);
    assert_int_equal(post(&e, "/v1/completions", body.data, &large), 200);
    assert_true(metric(&e, "muster_engine_text_seconds_count") == 1);
    assert_true(str_eq(text_of(&small), text_of(&large)));
    assert_int_equal(post(&e, "/v1/chat/completions", body.data, &large), 400);
    has(&large, "messages is missing");

    prompt_of(&body, LARGE);
    assert_int_equal(post(&e, "/v1/completions", body.data, &large), 400);
    has(&large, "context_length_exceeded");
    has(&large, "longer than the context");
    assert_int_equal(post(&e, "/tokenize", body.data, &large), 413);
    has(&large, "more than 131072 tokens");
    buf_clear(&body);
    buf_text(&body, "{\"tokens\":[7");
    for (int i = 0; i < 1 << 17; i++)
        buf_text(&body, ",7");
    buf_text(&body, "]}");
    assert_int_equal(post(&e, "/detokenize", body.data, &large), 413);
    engine_close(&e);
}

/* An engine whose template goes through all messages for each message. */
static void open_quadratic(struct engine *e, const char *text_queue)
{
    static const char template[] =
        "{% for a in messages %}{% for b in messages %}{% if loop.last %}{{ a.content }}"
        "{% endif %}{% endfor %}{% endfor %}";
    char path[] = "/tmp/text-template-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, template, strlen(template)) > 0);
    close(file);
    const char *const args[] = { "--chat-template", path, "--text-queue", text_queue, NULL };
    engine_open(e, args);
    unlink(path);
}

/* So many messages, and blanks. */
static void messages_of(struct buf *out, int messages, int blanks)
{
    buf_clear(out);
    buf_text(out, "{\"messages\":[");
    for (int i = 0; i < messages; i++)
        buf_printf(out, "%s{\"role\":\"user\",\"content\":\"a\"}", i ? "," : "");
    buf_printf(out, "]%*s}", blanks, "");
    assert_int_equal(out->rc, 0);
}

/* In few bytes. */
static void t_much_work_in_few_bytes_is_a_workers(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    open_quadratic(&e, "64MiB");
    for (int messages = 3; messages <= 300; messages += 297) {
        messages_of(&body, messages, 0);
        assert_true(body.len < 16000);
        assert_int_equal(post(&e, "/tokenize", body.data, &reply), 200);
        assert_true(metric(&e, "muster_engine_text_seconds_count") == (messages > 3 ? 1 : 0));
    }
    assert_int_equal(post(&e, "/v1/chat/completions", body.data, &reply), 200);
    assert_true(metric(&e, "muster_engine_text_seconds_count") == 2);
    engine_close(&e);
}

/* Each body is sent in far less time than a worker needs for it, and two fit into the queue. */
static void t_the_loop_answers_and_the_queue_is_bounded(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    int fd[ASKED], refused = 0, meanwhile = 0;
    open_quadratic(&e, "16MiB");
    messages_of(&body, 2000, 3 << 20);
    for (int i = 0; i < ASKED; i++) {
        fd[i] = connect_raw(&e);
        send_raw(fd[i], i % 2 ? "/tokenize" : "/v1/chat/completions", body.data);
    }
    while (metric(&e, "muster_engine_text_seconds_count") +
               metric(&e, "muster_engine_text_refused_total") <
           ASKED) {
        meanwhile += metric(&e, "muster_engine_text_bytes") > 0;
        assert_int_equal(get(&e, "/health", &reply), 200);
    }
    assert_true(meanwhile > 0);
    for (int i = 0; i < ASKED; i++) {
        buf_clear(&reply);
        read_raw(fd[i], "\"error\":{", &reply);
        if (!strstr(reply.data, "HTTP/1.1 429")) continue;
        has(&reply, "retry-after: 1");
        refused++;
    }
    assert_true(refused > 0 && refused <= ASKED - 2);
    assert_true(metric(&e, "muster_engine_text_refused_total") == refused);
    for (int i = 0; i < ASKED; i++)
        close(fd[i]);
    engine_close(&e);
}

static void t_clients_that_leave_are_let_go_of(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    engine_open(&e, NULL);
    prompt_of(&body, LARGE);
    for (int hard = 0; hard <= 1; hard++) {
        int fd[ASKED];
        for (int i = 0; i < ASKED; i++) {
            fd[i] = connect_raw(&e);
            send_raw(fd[i], i % 2 ? "/tokenize" : "/v1/completions", body.data);
        }
        for (int i = 0; i < ASKED; i++) {
            struct linger now = { .l_onoff = hard };
            setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
            close(fd[i]);
        }
        until_metric(&e, "muster_engine_text_bytes", 0);
    }
    until_metric(&e, "muster_engine_http_connections", 1); /* of the one that asks */
    padded(&body);
    assert_int_equal(post(&e, "/v1/completions", body.data, &reply), 200);
    engine_close(&e);
}

/* What came before the end was asked for is answered, though a worker has not come to it yet. */
static void t_a_drain_waits_for_what_is_at_the_workers(void **state)
{
    (void)state;
    const char *const args[] = { "--text-queue", "128MiB", NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    int fd[ASKED];
    engine_open(&e, args);
    prompt_of(&body, LARGE);
    for (int i = 0; i < ASKED; i++) {
        if (i == ASKED - 1) padded(&body);
        fd[i] = connect_raw(&e);
        send_raw(fd[i], "/v1/completions", body.data);
    }
    /* All are there: at a worker, waiting for one, or answered. */
    double all = (ASKED - 1) * (double)LARGE + (double)body.len;
    while (metric(&e, "muster_engine_text_seconds_count") * LARGE +
               metric(&e, "muster_engine_text_bytes") <
           all)
        continue;
    kill(e.pid, SIGTERM);
    for (int i = 0; i < ASKED; i++) {
        buf_clear(&reply);
        read_raw(fd[i], i == ASKED - 1 ? "\"usage\"" : "\"error\":{", &reply);
        has(&reply, i == ASKED - 1 ? "HTTP/1.1 200" : "HTTP/1.1 400");
        close(fd[i]);
    }
    assert_int_equal(engine_wait(&e), 0);
    engine_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_large_is_answered_like_small),
        cmocka_unit_test(t_much_work_in_few_bytes_is_a_workers),
        cmocka_unit_test(t_the_loop_answers_and_the_queue_is_bounded),
        cmocka_unit_test(t_clients_that_leave_are_let_go_of),
        cmocka_unit_test(t_a_drain_waits_for_what_is_at_the_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

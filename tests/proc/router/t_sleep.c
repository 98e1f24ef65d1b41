/* t_sleep.c - an engine that sleeps gives its memory back, is not sent requests, and says the same when it is
 * awake again. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/router/pair_rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK                                                                                      \
    "{\"prompt\":\"Once upon a time there was a king of the sea\",\"max_tokens\":12,\"seed\":4," \
    "\"logprobs\":2}"
#define WEIGHTS_KIB (6 << 10) /* of the shipped model */

static int setup(void **state)
{
    (void)state;
    pair_start(ARGS("--enable-sleep-mode", "--kv-cache-memory-bytes", "8MiB"));
    return 0;
}

static void ask(const char *path, int status, const char *word)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int got = rig_call(pair.engine.port, path, "{}", &reply);
    if (got != status || !strstr(reply.data, word)) fail_msg("%s: %d %s", path, got, reply.data);
}

static void is_sleeping(bool yes)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(rig_call(pair.engine.port, "/is_sleeping", NULL, &reply), 200);
    assert_non_null(strstr(reply.data, yes ? "{\"is_sleeping\":true}" : "{\"is_sleeping\":false}"));
    assert_true((rig_metric(pair.engine.port, "muster_engine_sleeping") > 0) == yes);
}

/* Returns the choices of a completion: text and log-probabilities. */
static struct str said(uint16_t port, struct buf *ret)
{
    assert_int_equal(rig_call(port, "/v1/completions", ASK, ret), 200);
    const char *from = strstr(ret->data, "\"choices\""), *to = strstr(ret->data, "\"usage\"");
    assert_true(from && to);
    return str_of(from, (size_t)(to - from));
}

static void memory_comes_back_and_so_does_the_output(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf before = { 0 }, after = { 0 }, refused = { 0 };
    const char *const levels[] = { "/sleep?level=1", "/sleep?level=2", "/sleep" };
    struct str want = said(pair.router.port, &before);
    for (size_t i = 0; i < COUNT_OF(levels); i++) {
        is_sleeping(false);
        int64_t awake = rig_rss_kib(&pair.engine);
        ask(levels[i], 200, "{}");
        ask(levels[i], 200, "{}"); /* it sleeps already */
        is_sleeping(true);
        int64_t given = awake - rig_rss_kib(&pair.engine);
        if (given < WEIGHTS_KIB / 2) fail_msg("%ld of %ld KiB", (long)given, (long)awake);
        buf_clear(&refused);
        assert_int_equal(rig_call(pair.engine.port, "/v1/completions", ASK, &refused), 503);
        assert_non_null(strstr(refused.data, "the engine sleeps"));
        assert_int_equal(rig_call(pair.engine.port, "/health", NULL, &refused), 503);
        assert_int_equal(rig_call(pair.engine.port, "/tokenize", "{\"prompt\":\"a\"}", &refused),
                         200);
        rig_wait_endpoints(&pair.router, 0);

        ask("/wake_up", 200, "{}");
        ask("/wake_up", 200, "{}");
        is_sleeping(false);
        rig_wait_endpoints(&pair.router, 1);
        buf_clear(&after);
        assert_true(str_eq(said(pair.router.port, &after), want));
        assert_non_null(strstr(after.data, "\"cached_tokens\":0")); /* nothing is cached */
    }
}

static int send_to(const char *path, const char *body)
{
    char head[256];
    int fd = rig_connect(pair.engine.port, 0);
    int len = snprintf(head, sizeof head,
                       "POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                       "connection: close\r\ncontent-length: %zu\r\n\r\n%s",
                       path, strlen(body), body);
    assert_int_equal(write(fd, head, (size_t)len), len);
    return fd;
}

static void read_to_end(int fd, const char *word)
{
    CLEANUP(buf_fini) struct buf seen = { 0 };
    char piece[4096];
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;)
        buf_append(&seen, piece, (size_t)n);
    buf_byte(&seen, 0);
    close(fd);
    if (!strstr(seen.data, word)) fail_msg("no %s in %s", word, seen.data);
}

/* Running requests end first; new ones are refused. */
static void sleep_waits_for_the_last_request(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf refused = { 0 };
    int stream = send_to("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":900,\"stream\":true,"
                                            "\"ignore_eos\":true,\"temperature\":0}");
    rig_wait_number(pair.engine.port, "/internal/info", "running", 1);
    int sleeper = send_to("/sleep", "{}");
    read_to_end(sleeper, "HTTP/1.1 200");
    is_sleeping(true);
    assert_int_equal(rig_call(pair.engine.port, "/v1/completions", ASK, &refused), 503);
    read_to_end(stream, "[DONE]"); /* it was whole before */
    ask("/wake_up", 200, "{}");
    rig_wait_endpoints(&pair.router, 1);
}

/* Weights in a file that engines share are mapped before and after. */
static void shared_weights_sleep_too(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf before = { 0 }, after = { 0 }, reply = { 0 };
    char cache[256];
    snprintf(cache, sizeof cache, "%s/weights", rig_folder());
    struct rig_process sharing =
        rig_server("engine", rig_port(),
                   ARGS("--model", MODEL, "--enable-sleep-mode", "--weight-cache", cache,
                        "--served-model-name", "muster-tiny"));
    struct str want = said(sharing.port, &before);
    assert_int_equal(rig_call(sharing.port, "/sleep", "{}", &reply), 200);
    assert_int_equal(rig_call(sharing.port, "/v1/completions", ASK, &reply), 503);
    assert_int_equal(rig_call(sharing.port, "/wake_up", "{}", &reply), 200);
    assert_true(str_eq(said(sharing.port, &after), want));
    assert_int_equal(rig_stop(&sharing), 0);
}

/* The engine sleeps on while its file is another one or is gone. */
static void another_model_does_not_wake(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf before = { 0 }, after = { 0 }, reply = { 0 }, model = { 0 };
    char path[256], aside[256];
    snprintf(path, sizeof path, "%s/model.gguf", rig_folder());
    snprintf(aside, sizeof aside, "%s/aside.gguf", rig_folder());
    assert_int_equal(file_read(MODEL, (size_t)64 << 20, &model, NULL), 0);
    assert_int_equal(file_write_atomic(path, buf_view(&model), 0600, NULL), 0);
    struct rig_process e = rig_server(
        "engine", rig_port(),
        ARGS("--model", path, "--enable-sleep-mode", "--served-model-name", "muster-tiny"));
    struct str want = said(e.port, &before);
    assert_int_equal(rig_call(e.port, "/sleep", "{}", &reply), 200);

    assert_int_equal(rename(path, aside), 0);
    buf_clear(&reply);
    assert_int_equal(rig_call(e.port, "/wake_up", "{}", &reply), 500);
    assert_non_null(strstr(reply.data, "sleeps on"));
    model.data[model.len - 1] ^= 1; /* one weight is another */
    assert_int_equal(file_write_atomic(path, buf_view(&model), 0600, NULL), 0);
    buf_clear(&reply);
    assert_int_equal(rig_call(e.port, "/wake_up", "{}", &reply), 500);
    assert_non_null(strstr(reply.data, "is another model now"));
    assert_int_equal(rig_call(e.port, "/v1/completions", ASK, &reply), 503);

    assert_int_equal(rename(aside, path), 0);
    assert_int_equal(rig_call(e.port, "/wake_up", "{}", &reply), 200);
    assert_true(str_eq(said(e.port, &after), want));
    assert_int_equal(rig_stop(&e), 0);
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    ask("/sleep?level=3", 400, "level must be 1 or 2");
    assert_int_equal(rig_call(pair.router.port, "/sleep", "{}", &reply), 404);
    struct rig_process plain = rig_server("engine", rig_port(), ARGS("--model", MODEL));
    buf_clear(&reply);
    assert_int_equal(rig_call(plain.port, "/sleep", "{}", &reply), 404);
    assert_non_null(strstr(reply.data, "--enable-sleep-mode"));
    assert_int_equal(rig_stop(&plain), 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_comes_back_and_so_does_the_output),
        cmocka_unit_test(sleep_waits_for_the_last_request),
        cmocka_unit_test(shared_weights_sleep_too),
        cmocka_unit_test(another_model_does_not_wake),
        cmocka_unit_test(mistakes_are_refused),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, pair_end));
}

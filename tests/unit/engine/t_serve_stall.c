/* t_serve_stall.c - the real engine whose device thread stops: what each client hears of it, and
 * that a queue that is merely long is told from it. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/generate.h"
#include "tests/unit/engine/serve_rig.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define BEAT "\r\n1\r\n\n\r\n" /* a chunk that holds an empty line */

static void send_generate(int fd)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    uint32_t ids[37];
    for (uint32_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = 30 + i;
    const struct generate_request g = {
        .id = STR("g"),
        .ids = ids,
        .id_count = COUNT_OF(ids),
        .prompt_tokens = COUNT_OF(ids),
        .sampling = { .top_p = 1, .repetition_penalty = 1 },
        .max_tokens = 500,
        .ignore_eos = true,
    };
    assert_int_equal(generate_encode(&g, &body), 0);
    send_raw(fd, "/internal/generate", body.data);
}

static uint32_t count_of(const struct buf *seen, const char *word)
{
    uint32_t count = 0;
    for (const char *at = seen->data; (at = strstr(at, word)); at++)
        count++;
    return count;
}

/* False at the end of the connection. */
static bool read_more(int fd, struct buf *seen)
{
    char some[4096];
    ssize_t n = read(fd, some, sizeof some);
    return n > 0 && buf_append(seen, some, (size_t)n) == 0;
}

/* Streams of clients end with a sentence, those of routers are cut; whoever asks is told. */
static void t_a_stalled_device_is_told(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 }, frames = { 0 }, reply = { 0 };
    engine_open(&e, (const char *const[]){ "--fault", "device.hang_at_37:1", NULL });
    assert_int_equal(get(&e, "/health", &reply), 200);
    int client = connect_raw(&e), router = connect_raw(&e);
    send_raw(client, "/v1/completions", ENDLESS_STREAM);
    read_raw(client, "data: ", &seen);
    send_generate(router); /* the device hangs while it computes this prompt */
    read_raw(router, GENERATE_BEAT_HEADER, &frames);
    read_raw(client, "[DONE]", &seen);
    has(&seen, "made no step");
    assert_int_equal(get(&e, "/health", &reply), 503);
    has(&reply, "made no step");
    assert_int_equal(get(&e, "/internal/info", &reply), 200);
    has(&reply, "\"health\":\"failing\"");
    has(&reply, "\"stalled_s\":");
    assert_int_equal(post(&e, "/v1/completions", "{\"prompt\":\"x\"}", &reply), 503);
    assert_true(metric(&e, "muster_engine_stalls_total") == 1);
    assert_true(metric(&e, "muster_engine_stalled_seconds") >= 5);
    while (read_more(router, &frames))
        continue;
    assert_null(strstr(frames.data, "\r\n0\r\n")); /* cut, not ended */
    assert_null(strstr(frames.data, "\"finish\""));
    close(client);
    close(router);
    kill(e.pid, SIGKILL);
    assert_int_equal(engine_wait(&e), 1000 + SIGKILL);
    engine_fini(&e);
}

static void t_a_request_that_waits_is_alive(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 }, frames = { 0 };
    engine_open(&e, (const char *const[]){ "--max-num-seqs", "1", "--cpu-share", SLOW, NULL });
    int first = connect_raw(&e), second = connect_raw(&e);
    send_raw(first, "/v1/completions", ENDLESS_STREAM);
    read_raw(first, "data: ", &seen);
    send_generate(second);
    read_raw(second, GENERATE_BEAT_HEADER ": " GENERATE_BEAT_MS, &frames);
    while (count_of(&frames, BEAT) < 2)
        assert_true(read_more(second, &frames));
    assert_null(strstr(frames.data, "\"ids\""));
    close(first);
    close(second);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_a_stalled_device_is_told),
        cmocka_unit_test(t_a_request_that_waits_is_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

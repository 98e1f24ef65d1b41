/* t_serve_life.c - tests how an engine starts, what it refuses to start with, its CPU share,
 * stalls, and its end. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/wire/generate.h"
#include "tests/unit/engine/serve_rig.h"
#include "tests/unit/engine/tiny_model.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void t_loading_is_503_and_a_bad_file_ends_it(void **state)
{
    (void)state;
    struct engine e = { .model_fd = -1 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char path[] = "/tmp/t_serve_XXXXXX", fifo[64];
    assert_non_null(mkdtemp(path));
    snprintf(fifo, sizeof fifo, "%s/model.gguf", path);
    assert_int_equal(mkfifo(fifo, 0600), 0); /* its open waits for a writer, as a slow disk would */
    engine_spawn(&e, fifo, NULL);
    engine_read_port(&e);
    assert_int_equal(get(&e, "/health", &reply), 503);
    has(&reply, "\"code\":\"loading\"");
    assert_int_equal(post(&e, "/v1/completions", "{\"prompt\":\"x\"}", &reply), 503);
    assert_int_equal(get(&e, "/internal/info", &reply), 200);
    has(&reply, "\"health\":\"loading\"");
    assert_int_equal(get(&e, "/v1/models", &reply), 200);
    int writer = open(fifo, O_WRONLY);
    assert_true(writer >= 0);
    close(writer);
    assert_int_equal(engine_wait(&e), 1);
    engine_log_has(&e, "no such word");
    has(&e.log, "model.gguf");
    unlink(fifo);
    rmdir(path);
    engine_fini(&e);
}

static void t_wrong_starts(void **state)
{
    (void)state;
    static const struct {
        const char *why, *args[4], *says;
        int code;
    } rows[] = {
        { "public without a key", { "--listen", "0.0.0.0:0" }, "--api-key-file", 1 },
        { "unknown row", { "--order", "fcsf" }, "did you mean fcfs", 1 },
        { "no text in an engine", { "--predict", "ngram" }, "an engine has no text", 1 },
        { "share", { "--cpu-share", "0.01" }, "--cpu-share", 1 },
        { "context", { "--max-model-len", "9999" }, "4096", 1 },
        { "page size", { "--block-size", "20" }, "multiple of 16", 1 },
        { "unknown flag", { "--max-num-seq", "2" }, "max-num-seqs", 2 },
    };
    char path[64];
    int model = tiny_model_path(TINY_CONTEXT_LONG, path);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct engine e = { .model_fd = -1 };
        engine_spawn(&e, path, rows[i].args);
        int code = engine_wait(&e);
        engine_log_has(&e, "no such word");
        if (code != rows[i].code || !strstr(e.log.data, rows[i].says)) {
            fail_msg("%s: %d %s", rows[i].why, code, e.log.data);
        }
        engine_fini(&e);
    }
    close(model);
}

/* Returns the bytes that a process has read. */
static uint64_t read_by(pid_t pid)
{
    char path[64];
    unsigned long long bytes = 0;
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "rchar: %llu", &bytes), 1);
    fclose(f);
    return bytes;
}

#define LONG_READ ((off_t)1 << 40) /* takes ten minutes and more, holes as they are */

/* Both ways to read a whole file, to compare its digest and to name the model by its own, end at the first signal. */
static void t_a_signal_ends_the_reading_of_a_model(void **state)
{
    (void)state;
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    const char *const *const args[] = {
        (const char *const[]){ "--model-sha256", zeros, NULL },
        (const char *const[]){ NULL },
    };
    for (size_t i = 0; i < COUNT_OF(args); i++) {
        struct engine e = { .model_fd = -1 };
        char path[64];
        int model = tiny_model_path(TINY_CONTEXT_LONG, path);
        assert_int_equal(ftruncate(model, LONG_READ), 0);
        engine_spawn(&e, path, args[i]);
        assert_true(engine_log_has(&e, "engine_loading"));
        int64_t from_us = clock_mono_us();
        while (read_by(e.pid) < 64u << 20) {
            assert_true(clock_mono_us() - from_us < 600000000);
            usleep(10000);
        }
        from_us = clock_mono_us();
        assert_int_equal(kill(e.pid, SIGTERM), 0);
        assert_int_equal(engine_wait(&e), 0);
        double seconds = (double)(clock_mono_us() - from_us) * 1e-6;
        print_message("it ended %.2f s after the signal\n", seconds);
        assert_true(seconds < 200); /* of the ten minutes that a whole reading takes */
        engine_fini(&e);
        close(model);
    }
}

static double cpu_s(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[len] = '\0';
    const char *at = strrchr(text, ')') + 1;
    unsigned long user = 0, kernel = 0;
    sscanf(at, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static void t_cpu_share_is_kept(void **state)
{
    (void)state;
    const char *const args[] = { "--cpu-share", "0.2", NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 };
    engine_open(&e, args);
    double before = cpu_s(e.pid), used = 0;
    int64_t from = clock_mono_us();
    while (used < 0.2) { /* well above the kernel's ticks; the engine always has work */
        buf_clear(&seen);
        int fd = connect_raw(&e);
        send_raw(fd, "/v1/completions", LONG_STREAM);
        read_raw(fd, "[DONE]", &seen);
        close(fd);
        used = cpu_s(e.pid) - before;
    }
    double wall = (double)(clock_mono_us() - from) * 1e-6;
    if (used / wall > 0.26) fail_msg("%.3f s of CPU in %.3f s", used, wall);
    engine_close(&e);
}

static void t_sigterm_drains(void **state)
{
    (void)state;
    const char *const args[] = { "--cpu-share", "0.1", NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 };
    engine_open(&e, args);
    int fd = connect_raw(&e);
    send_raw(fd, "/v1/completions", LONG_STREAM);
    read_raw(fd, "data: ", &seen);
    kill(e.pid, SIGTERM);
    assert_true(engine_log_has(&e, "draining"));
    read_raw(fd, "data: [DONE]", &seen); /* running requests finish */
    assert_int_equal(engine_wait(&e), 0);
    close(fd);
    engine_fini(&e);

    engine_open(&e, args);
    fd = connect_raw(&e);
    buf_clear(&seen);
    send_raw(fd, "/v1/completions", ENDLESS_STREAM);
    read_raw(fd, "data: ", &seen);
    kill(e.pid, SIGTERM);
    assert_true(engine_log_has(&e, "draining"));
    kill(e.pid, SIGTERM);
    assert_int_equal(engine_wait(&e), 128 + SIGTERM); /* the second signal ends it at once */
    close(fd);
    engine_fini(&e);
}

/* ---- a real engine whose device thread hangs, and one whose queue is merely long ---- */

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

/* Reads more into `seen`. Returns false at the end of the connection. */
static bool read_more(int fd, struct buf *seen)
{
    char some[4096];
    ssize_t n = read(fd, some, sizeof some);
    return n > 0 && buf_append(seen, some, (size_t)n) == 0;
}

/* A stall ends clients' streams with an error, cuts routers' streams, and shows in /health and
 * metrics. */
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
    send_generate(router); /* the device hangs in this prompt */
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

/* The requests before it run longer than two heartbeats take, on a busy machine too. */
static void t_a_request_that_waits_is_alive(void **state)
{
    (void)state;
    enum { BEFORE = 6 };
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 }, frames = { 0 };
    int before[BEFORE];
    engine_open(&e, (const char *const[]){ "--max-num-seqs", "1", "--order", "fcfs", "--cpu-share",
                                           SLOW, NULL });
    for (int i = 0; i < BEFORE; i++) {
        before[i] = connect_raw(&e);
        send_raw(before[i], "/v1/completions", ENDLESS_STREAM);
    }
    read_raw(before[0], "data: ", &seen);
    until_metric(&e, "muster_engine_requests_waiting", BEFORE - 1);
    int last = connect_raw(&e);
    send_generate(last);
    read_raw(last, GENERATE_BEAT_HEADER ": " GENERATE_BEAT_MS, &frames);
    while (count_of(&frames, BEAT) < 2)
        assert_true(read_more(last, &frames));
    assert_null(strstr(frames.data, "\"ids\""));
    close(last);
    for (int i = 0; i < BEFORE; i++)
        close(before[i]);
    engine_close(&e);
}

/* ---- clients that leave, have no time, are too many, or wait ---- */

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
    /* The ping comes mostly on the second; on the first if slow reading cost that its place. */
    read_either_raw(both, ": ping", seen);
    int fd = connect_raw(&e);
    send_raw(fd, "/v1/completions", ENDLESS_STREAM);
    read_raw(fd, "\"code\":\"overloaded\"", &r);
    has(&r, "HTTP/1.1 429");
    has(&r, "retry-after: 1");
    close(fd);
    until_metric(&e, "muster_engine_requests_refused_total", 1);
    close(both[0]);
    read_raw(both[1], "data: ", &seen[1]); /* its turn */
    close(both[1]);
    buf_fini(&seen[0]);
    buf_fini(&seen[1]);
    engine_close(&e);
}

/* Returns the process's CPU time so far, in microseconds. */
static int64_t cpu_us(const struct engine *e)
{
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)e->pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_true(len > 0);
    const char *rest = strrchr(text, ')');
    assert_int_equal(
        sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
    return (int64_t)(user + system) * 1000000 / sysconf(_SC_CLK_TCK);
}

#define GENERATED "muster_engine_generation_tokens_total"
#define IDLE_WAIT_US 600000000 /* a stream fills its buffers long before */

/* The client's stream fills up and no ping can be written: the loop waits until the client
 * reads. */
static void t_a_client_that_never_reads_costs_no_cpu(void **state)
{
    (void)state;
    struct engine e;
    engine_open(&e, (const char *const[]){ "--ping", "100ms", NULL });
    int fd = connect_raw(&e);
    send_raw(fd, "/v1/completions", ENDLESS_STREAM);
    int64_t until_us = clock_mono_us() + IDLE_WAIT_US;
    for (bool idle = false; !idle;) {
        assert_true(clock_mono_us() < until_us);
        double tokens = metric(&e, GENERATED);
        int64_t before_us = cpu_us(&e);
        usleep(1000000); /* an idle second is the case under test */
        idle = cpu_us(&e) - before_us < 100000 && tokens > 0 && metric(&e, GENERATED) == tokens;
    }
    close(fd);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_loading_is_503_and_a_bad_file_ends_it),
        cmocka_unit_test(t_wrong_starts),
        cmocka_unit_test(t_a_signal_ends_the_reading_of_a_model),
        cmocka_unit_test(t_cpu_share_is_kept),
        cmocka_unit_test(t_sigterm_drains),
        cmocka_unit_test(t_a_client_that_never_reads_costs_no_cpu),
        cmocka_unit_test(t_a_stalled_device_is_told),
        cmocka_unit_test(t_a_request_that_waits_is_alive),
        cmocka_unit_test(t_leaving_frees_the_pages),
        cmocka_unit_test(t_deadline_is_408),
        cmocka_unit_test(t_full_is_429_and_waiting_streams_are_pinged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

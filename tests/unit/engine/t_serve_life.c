/* t_serve_life.c - how an engine starts, what it does not start with, its share, and how it ends. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/unit/engine/serve_rig.h"
#include "tests/unit/engine/tiny_model.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
    assert_int_equal(mkfifo(fifo, 0600), 0); /* opening it waits for a writer: a slow disk */
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
    while (used < 0.2) { /* so that the kernel's ticks do not matter; it always has work */
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
    read_raw(fd, "data: [DONE]", &seen); /* what runs is finished */
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
    assert_int_equal(engine_wait(&e), 128 + SIGTERM); /* asked twice: now */
    close(fd);
    engine_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_loading_is_503_and_a_bad_file_ends_it),
        cmocka_unit_test(t_wrong_starts),
        cmocka_unit_test(t_cpu_share_is_kept),
        cmocka_unit_test(t_sigterm_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

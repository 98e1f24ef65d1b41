/* serve_rig.c - starts an engine, waits, sends requests and hangs up. */
#include "tests/unit/engine/serve_rig.h"

#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"
#include "tests/unit/engine/tiny_model.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_US 60000000
/* A look costs the engine processor time, of which SLOW gives it little. */
#define METRIC_POLL_US 100000
#define ARGS_MAX 32

/* ---- the process ---- */

static const char *binary(void)
{
    const char *from_env = getenv("MUSTER_BIN");
    return from_env ? from_env : MUSTER_BIN;
}

void engine_spawn(struct engine *e, const char *model, const char *const *more)
{
    const char *argv[ARGS_MAX] = { binary(), "engine", "--model", model, "--seed", "7" };
    int n = 6, pipes[2];
    bool listens = false;
    for (; more && *more; more++) {
        must(n < ARGS_MAX - 3);
        listens |= strcmp(*more, "--listen") == 0;
        argv[n++] = *more;
    }
    if (!listens) argv[n++] = "--listen", argv[n++] = "127.0.0.1:0";
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    e->pid = fork();
    if (e->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process */
        dup2(pipes[1], 2);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    e->log_fd = pipes[0];
}

/* Reads the log until it holds `word`. Returns false at the log's end or at a timeout. */
bool engine_log_has(struct engine *e, const char *word)
{
    int64_t until = clock_mono_us() + WAIT_US;
    while (!e->log.data || !strstr(e->log.data, word)) {
        char chunk[4096];
        struct pollfd p = { .fd = e->log_fd, .events = POLLIN };
        int left = (int)((until - clock_mono_us()) / 1000);
        if (left <= 0 || poll(&p, 1, left) <= 0) return false;
        ssize_t got = read(e->log_fd, chunk, sizeof chunk);
        if (got <= 0) return false;
        buf_append(&e->log, chunk, (size_t)got);
    }
    return true;
}

void engine_read_port(struct engine *e)
{
    if (!engine_log_has(e, "engine_loading"))
        fail_msg("no start: %s", e->log.data ? e->log.data : "");
    const char *at = strstr(e->log.data, "listen=127.0.0.1:");
    assert_non_null(at);
    e->port = (uint16_t)strtoul(at + strlen("listen=127.0.0.1:"), NULL, 10);
}

void engine_open(struct engine *e, const char *const *more)
{
    char path[64];
    *e = (struct engine){ 0 };
    e->model_fd = tiny_model_path(TINY_CONTEXT_LONG, path);
    engine_spawn(e, path, more);
    engine_read_port(e);
    if (!engine_log_has(e, "engine_ready")) fail_msg("never ready: %s", e->log.data);
}

int engine_wait(struct engine *e)
{
    int status = 0;
    assert_int_equal(waitpid(e->pid, &status, 0), e->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void engine_fini(struct engine *e)
{
    close(e->log_fd);
    close(e->model_fd);
    buf_fini(&e->log);
}

void engine_close(struct engine *e)
{
    kill(e->pid, SIGTERM);
    int code = engine_wait(e);
    if (code != 0) {
        engine_log_has(e, "no such word");
        fail_msg("ended with %d: %s", code, e->log.data);
    }
    engine_fini(e);
}

/* ---- requests ---- */

int ask_with(struct engine *e, const char *method, const char *path, const char *body,
             const char *header, const char *value, struct buf *reply)
{
    struct http_header headers[3] = { { STR("content-type"), STR("application/json") } };
    size_t count = 1;
    int status = 0;
    struct err err = { "" };
    if (e->bearer[0])
        headers[count++] = (struct http_header){ STR("authorization"), str_from(e->bearer) };
    if (header) headers[count++] = (struct http_header){ str_from(header), str_from(value) };
    struct http_fetch_request req = {
        .host = STR("127.0.0.1"),
        .port = e->port,
        .method = str_from(method),
        .path = str_from(path),
        .headers = headers,
        .header_count = count,
        .body = str_from(body),
        .timeout_us = WAIT_US,
    };
    buf_clear(reply);
    buf_byte(reply, ' ');
    buf_clear(reply);
    int rc = http_fetch(&req, &status, reply, &err);
    if (rc < 0) fail_msg("%s %s: %s", method, path, err_text(&err, rc));
    return status;
}

int get(struct engine *e, const char *path, struct buf *reply)
{
    return ask_with(e, "GET", path, "", NULL, NULL, reply);
}

int post(struct engine *e, const char *path, const char *body, struct buf *reply)
{
    return ask_with(e, "POST", path, body, NULL, NULL, reply);
}

void has(const struct buf *reply, const char *text)
{
    if (!reply->data || !strstr(reply->data, text)) {
        fail_msg("no %s in: %s", text, reply->data ? reply->data : "");
    }
}

/* Appends the text of a whole reply or a chunk to `text`; returns its other fields. */
struct openai_delta read_delta(struct str json, struct buf *text)
{
    struct openai_delta d;
    struct err err = { "" };
    if (openai_delta_parse(json, text, &d, &err) < 0) fail_msg("%s: %.*s", err.text, STR_ARG(json));
    return d;
}

double metric(struct engine *e, const char *name)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(get(e, "/metrics", &text), 200);
    char line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text.data, line);
    if (!at) fail_msg("no metric %s", name);
    return strtod(at + strlen(line), NULL);
}

void until_metric(struct engine *e, const char *name, double want)
{
    int64_t until = clock_mono_us() + WAIT_US;
    double seen;
    while ((seen = metric(e, name)) < want || seen > want) {
        if (clock_mono_us() > until) fail_msg("%s stays %g, not %g", name, seen, want);
        usleep(METRIC_POLL_US);
    }
}

/* ---- a raw connection ---- */

int connect_raw(struct engine *e)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(e->port) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

void send_raw(int fd, const char *path, const char *body)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text,
               "POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
               "content-length: %zu\r\n\r\n",
               path, strlen(body));
    buf_text(&text, body);
    for (size_t at = 0; at < text.len;) {
        ssize_t sent = send(fd, text.data + at, text.len - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

void read_either_raw(const int fd[2], const char *word, struct buf seen[2])
{
    int64_t until = clock_mono_us() + WAIT_US;
    for (;;) {
        struct pollfd p[2] = { { .fd = fd[0], .events = POLLIN },
                               { .fd = fd[1], .events = POLLIN } };
        int left = (int)((until - clock_mono_us()) / 1000);
        if (left <= 0 || poll(p, 2, left) <= 0) fail_msg("no %s", word);
        for (int i = 0; i < 2; i++) {
            char chunk[4096];
            if (fd[i] < 0 || !p[i].revents) continue;
            ssize_t got = recv(fd[i], chunk, sizeof chunk, 0);
            if (got <= 0) fail_msg("ended before %s: %s", word, seen[i].data ? seen[i].data : "");
            buf_append(&seen[i], chunk, (size_t)got);
            if (strstr(seen[i].data, word)) return;
        }
    }
}

void read_raw(int fd, const char *word, struct buf *seen)
{
    if (seen->data && strstr(seen->data, word)) return;
    struct buf both[2] = { *seen };
    read_either_raw((const int[]){ fd, -1 }, word, both);
    *seen = both[0];
}

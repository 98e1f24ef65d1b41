/* t_serve.c - the real binary: shapes, errors, disconnects, drain, seen by a client.
 *
 * Each test starts `muster engine` with the tiny model on a free port and talks HTTP to it. The
 * engine's log, read through a pipe, says the port and when it is ready. What must come about
 * (pages free, request counted) is waited for on /metrics, never slept for.
 */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/clock.h"
#include "base/io/http_fetch.h"
#include "base/text/bundle.h"
#include "base/wire/generate.h"
#include "base/wire/openai_reply.h"
#include "base/wire/sse.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_US 30000000
#define ARGS_MAX 32
#define SLOW "0.05" /* --cpu-share: a step of 0.2 ms takes 4 ms, so that there is time to leave */

struct engine {
    pid_t pid;
    int log_fd, model_fd;
    uint16_t port;
    struct buf log;
    char bearer[128];
};

/* ---- the process ---------------------------------------------------------------------------------- */

static const char *binary(void)
{
    const char *from_env = getenv("MUSTER_BIN");
    return from_env ? from_env : MUSTER_BIN;
}

static void spawn(struct engine *e, const char *model, const char *const *more)
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
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
        dup2(pipes[1], 2);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    e->log_fd = pipes[0];
}

/* Reads the log until `word` is in it. False at its end or when time is up. */
static bool log_has(struct engine *e, const char *word)
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

static void read_port(struct engine *e)
{
    if (!log_has(e, "engine_loading")) fail_msg("no start: %s", e->log.data ? e->log.data : "");
    const char *at = strstr(e->log.data, "listen=127.0.0.1:");
    assert_non_null(at);
    e->port = (uint16_t)strtoul(at + strlen("listen=127.0.0.1:"), NULL, 10);
}

static void engine_open(struct engine *e, const char *const *more)
{
    char path[64];
    *e = (struct engine){ 0 };
    e->model_fd = tiny_model_path(2, path);
    spawn(e, path, more);
    read_port(e);
    if (!log_has(e, "engine_ready")) fail_msg("never ready: %s", e->log.data);
}

static int engine_wait(struct engine *e)
{
    int status = 0;
    assert_int_equal(waitpid(e->pid, &status, 0), e->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void engine_fini(struct engine *e)
{
    close(e->log_fd);
    close(e->model_fd);
    buf_fini(&e->log);
}

static void engine_close(struct engine *e)
{
    kill(e->pid, SIGTERM);
    int code = engine_wait(e);
    if (code != 0) {
        log_has(e, "no such word");
        fail_msg("ended with %d: %s", code, e->log.data);
    }
    engine_fini(e);
}

/* ---- requests --------------------------------------------------------------------------------------- */

static int ask_with(struct engine *e, const char *method, const char *path, const char *body,
                    const char *header, const char *value, struct buf *reply)
{
    struct http_header headers[2];
    size_t count = 0;
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

static int get(struct engine *e, const char *path, struct buf *reply)
{
    return ask_with(e, "GET", path, "", NULL, NULL, reply);
}

static int post(struct engine *e, const char *path, const char *body, struct buf *reply)
{
    return ask_with(e, "POST", path, body, NULL, NULL, reply);
}

static void has(const struct buf *reply, const char *text)
{
    if (!reply->data || !strstr(reply->data, text)) {
        fail_msg("no %s in: %s", text, reply->data ? reply->data : "");
    }
}

/* The text and the rest of a whole reply or a chunk. */
static struct openai_delta read_delta(struct str json, struct buf *text)
{
    struct openai_delta d;
    struct err err = { "" };
    if (openai_delta_parse(json, text, &d, &err) < 0) fail_msg("%s: %.*s", err.text, STR_ARG(json));
    return d;
}

static double metric(struct engine *e, const char *name)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(get(e, "/metrics", &text), 200);
    char line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text.data, line);
    if (!at) fail_msg("no metric %s", name);
    return strtod(at + strlen(line), NULL);
}

static void until_metric(struct engine *e, const char *name, double want)
{
    int64_t until = clock_mono_us() + WAIT_US;
    double seen;
    while ((seen = metric(e, name)) < want || seen > want) {
        if (clock_mono_us() > until) fail_msg("%s stays %g, not %g", name, seen, want);
        usleep(5000);
    }
}

/* ---- a raw connection, for what a proper client would not do ------------------------------------------ */

static int connect_raw(struct engine *e)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(e->port) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void send_raw(int fd, const char *path, const char *body)
{
    char text[2048];
    int len =
        snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %zu\r\n\r\n%s",
                 path, strlen(body), body);
    assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
}

/* Reads until `word` came; the end of the stream fails. */
static void read_raw(int fd, const char *word, struct buf *all)
{
    int64_t until = clock_mono_us() + WAIT_US;
    while (!all->data || !strstr(all->data, word)) {
        char chunk[4096];
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int left = (int)((until - clock_mono_us()) / 1000);
        if (left <= 0 || poll(&p, 1, left) <= 0) fail_msg("no %s in: %s", word, all->data);
        ssize_t got = recv(fd, chunk, sizeof chunk, 0);
        if (got <= 0) fail_msg("ended before %s: %s", word, all->data ? all->data : "");
        buf_append(all, chunk, (size_t)got);
    }
}

#define LONG_STREAM                                                                              \
    "{\"prompt\":\"once upon a time\",\"max_tokens\":200,\"ignore_eos\":true,\"temperature\":0," \
    "\"stream\":true}"

/* ---- tests ------------------------------------------------------------------------------------------- */

static void t_loading_is_503_and_a_bad_file_ends_it(void **state)
{
    (void)state;
    struct engine e = { .model_fd = -1 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char path[] = "/tmp/t_serve_XXXXXX", fifo[64];
    assert_non_null(mkdtemp(path));
    snprintf(fifo, sizeof fifo, "%s/model.gguf", path);
    assert_int_equal(mkfifo(fifo, 0600), 0); /* opening it waits for a writer: a slow disk */
    spawn(&e, fifo, NULL);
    read_port(&e);
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
    log_has(&e, "no such word");
    has(&e.log, "model.gguf");
    unlink(fifo);
    rmdir(path);
    engine_fini(&e);
}

static void t_small_endpoints(void **state)
{
    (void)state;
    const char *const args[] = { "--served-model-name", "tiny", NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 };
    engine_open(&e, args);
    assert_int_equal(get(&e, "/health", &r), 200);
    assert_int_equal(get(&e, "/version", &r), 200);
    has(&r, "\"version\"");
    assert_int_equal(get(&e, "/v1/models", &r), 200);
    has(&r, "\"id\":\"tiny\"");
    has(&r, "\"max_model_len\":256");
    assert_int_equal(post(&e, "/tokenize", "{\"prompt\":\"hello the\"}", &r), 200);
    has(&r, "{\"count\":2,\"max_model_len\":256,\"tokens\":[");
    CLEANUP(buf_fini) struct buf back = { 0 }, ids = { 0 };
    buf_printf(&ids, "{\"tokens\":%s", strchr(r.data, '['));
    assert_int_equal(post(&e, "/detokenize", ids.data, &back), 200);
    assert_string_equal(back.data, "{\"prompt\":\"hello the\"}");
    assert_int_equal(
        post(&e, "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"<|end|>\"}]}", &r),
        200);
    has(&r, "\"tokens\":[3,"); /* <|user|> is a token, what the user wrote is not */
    assert_true(!strstr(r.data, ",1,1,"));
    assert_int_equal(get(&e, "/metrics?compat=vllm", &r), 200);
    has(&r, "vllm:num_requests_waiting{model_name=\"tiny\",engine=\"0\"} 0");
    has(&r, "vllm:time_to_first_token_seconds_bucket{");
    assert_int_equal(get(&e, "/metrics?compat=other", &r), 400);
    engine_close(&e);
}

static void t_completion_whole_and_streamed(void **state)
{
    (void)state;
    const char *const args[] = { "--served-model-name", "tiny", NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, whole = { 0 }, streamed = { 0 };
    engine_open(&e, args);
    const char *body = "{\"model\":\"tiny\",\"prompt\":\"the king of the house\",\"max_tokens\":40,"
                       "\"temperature\":0,\"ignore_eos\":true";
    CLEANUP(buf_fini) struct buf ask = { 0 };
    buf_printf(&ask, "%s}", body);
    assert_int_equal(post(&e, "/v1/completions", ask.data, &r), 200);
    has(&r, "\"object\":\"text_completion\"");
    has(&r, "\"finish_reason\":\"length\"");
    has(&r, "\"cached_tokens\":0");
    struct openai_delta d = read_delta(buf_view(&r), &whole);
    assert_true(d.has_usage && d.usage.generated_tokens == 40 && d.usage.prompt_tokens > 4);

    buf_clear(&ask);
    buf_printf(&ask, "%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}}", body);
    assert_int_equal(post(&e, "/v1/completions", ask.data, &r), 200);
    uint32_t finishes = 0, usages = 0, done = 0;
    for (struct str rest = buf_view(&r); rest.len > 0;) {
        struct str line = str_cut(&rest, '\n');
        if (!str_starts(line, STR("data: "))) continue;
        line = str_of(line.data + 6, line.len - 6);
        assert_int_equal(done, 0); /* nothing behind it */
        if (str_eq(line, SSE_DONE)) {
            done++;
            continue;
        }
        d = read_delta(line, &streamed);
        finishes += d.finish == FINISH_LENGTH;
        usages += d.has_usage;
        if (d.has_usage) assert_int_equal(d.usage.generated_tokens, 40);
    }
    assert_int_equal(finishes, 1);
    assert_int_equal(usages, 1);
    assert_int_equal(done, 1);
    assert_true(str_eq(buf_view(&whole), buf_view(&streamed)));
    engine_close(&e);
}

static void t_chat_stream_has_role_first(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 };
    engine_open(&e, NULL);
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":8,"
                       "\"seed\":3,\"stream\":true}";
    assert_int_equal(
        ask_with(&e, "POST", "/v1/chat/completions", body, "x-request-id", "my-id-1", &r), 200);
    has(&r, "\"id\":\"chatcmpl-my-id-1\"");
    has(&r, "\"object\":\"chat.completion.chunk\"");
    const char *role = strstr(r.data, "\"role\":\"assistant\"");
    assert_non_null(role);
    assert_null(memchr(r.data, '\n', (size_t)(role - r.data))); /* in the first event */
    assert_true(str_ends(buf_view(&r), STR("data: [DONE]\n\n")));
    assert_int_equal(post(&e, "/v1/chat/completions",
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
                          "\"max_completion_tokens\":4}",
                          &r),
                     200);
    has(&r, "\"object\":\"chat.completion\"");
    has(&r, "\"role\":\"assistant\"");
    engine_close(&e);
}

static void t_cache_is_used_and_reset(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, ids = { 0 };
    engine_open(&e, NULL);
    buf_text(&ids, "{\"max_tokens\":1,\"temperature\":0,\"prompt\":[");
    for (int i = 0; i < 64; i++)
        buf_printf(&ids, "%s%d", i ? "," : "", 20 + i);
    buf_text(&ids, "]}");
    const char *const cached[] = { "\"cached_tokens\":0", "\"cached_tokens\":63",
                                   "\"cached_tokens\":0" };
    CLEANUP(buf_fini) struct buf first = { 0 }, text = { 0 };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(post(&e, "/v1/completions", ids.data, &r), 200);
        has(&r, cached[i]);
        buf_clear(&text);
        read_delta(buf_view(&r), i == 0 ? &first : &text);
        if (i > 0) assert_true(str_eq(buf_view(&first), buf_view(&text)));
        if (i == 1) assert_int_equal(post(&e, "/reset_prefix_cache", "", &r), 200);
    }
    assert_true(metric(&e, "muster_engine_prefix_cache_hits_total") > 62);
    engine_close(&e);
}

static void t_stop_string(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, whole = { 0 }, cut = { 0 }, ask = { 0 };
    engine_open(&e, NULL);
    const char *body = "\"prompt\":\"in the garden\",\"max_tokens\":60,\"temperature\":0";
    buf_printf(&ask, "{%s}", body);
    assert_int_equal(post(&e, "/v1/completions", ask.data, &r), 200);
    read_delta(buf_view(&r), &whole);
    /* Two plain characters from its middle. */
    size_t at = whole.len / 2;
    while (at + 2 < whole.len &&
           (whole.data[at] < 'A' || whole.data[at] > 'z' || whole.data[at] == '\\' ||
            whole.data[at + 1] < 'A' || whole.data[at + 1] > 'z' || whole.data[at + 1] == '\\')) {
        at++;
    }
    assert_true(at + 2 < whole.len);
    struct str stop = str_of(whole.data + at, 2);
    for (int stream = 0; stream < 2; stream++) {
        buf_clear(&ask);
        buf_clear(&cut);
        buf_printf(&ask, "{%s,\"stream\":%s,\"stop\":\"" STR_FMT "\"}", body,
                   stream ? "true" : "false", STR_ARG(stop));
        assert_int_equal(post(&e, "/v1/completions", ask.data, &r), 200);
        has(&r, "\"finish_reason\":\"stop\"");
        for (struct str rest = buf_view(&r); rest.len > 0;) {
            struct str line = str_cut(&rest, '\n');
            if (str_starts(line, STR("data: "))) line = str_of(line.data + 6, line.len - 6);
            if (line.len > 0 && line.data[0] == '{') read_delta(line, &cut);
        }
        size_t first = str_find(buf_view(&whole), stop);
        assert_true(str_eq(buf_view(&cut), str_of(whole.data, first)));
    }
    engine_close(&e);
}

static void t_refusals(void **state)
{
    (void)state;
    const char *const args[] = { "--served-model-name", "tiny", NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, big = { 0 };
    engine_open(&e, args);
    buf_text(&big, "{\"prompt\":\"");
    for (int i = 0; i < 400; i++)
        buf_text(&big, "x1 ");
    buf_text(&big, "\"}");
    const struct {
        const char *why, *method, *path, *body;
        int status;
        const char *text;
    } rows[] = {
        { "too long", "POST", "/v1/completions", big.data, 400, "context_length_exceeded" },
        { "unknown model", "POST", "/v1/completions", "{\"model\":\"other\",\"prompt\":\"x\"}", 404,
          "model_not_found" },
        { "not JSON", "POST", "/v1/completions", "{\"prompt\":", 400, "invalid_request_error" },
        { "no prompt", "POST", "/v1/completions", "{}", 400, "\"param\":\"prompt\"" },
        { "empty prompt", "POST", "/v1/completions", "{\"prompt\":\"\"}", 400,
          "\"param\":\"prompt\"" },
        { "id out of range", "POST", "/v1/completions", "{\"prompt\":[1,99999]}", 400, "99999" },
        { "temperature", "POST", "/v1/completions", "{\"prompt\":\"x\",\"temperature\":-1}", 400,
          "\"param\":\"temperature\"" },
        { "unknown path", "GET", "/v1/nothing", "", 404, "unknown_url" },
        { "wrong method", "GET", "/v1/completions", "", 405, "method_not_allowed" },
        { "tokenize without text", "POST", "/tokenize", "{}", 400, "prompt or messages" },
        { "detokenize with words", "POST", "/detokenize", "{\"tokens\":[\"a\"]}", 400, "tokens" },
        { "detokenize out of range", "POST", "/detokenize", "{\"tokens\":[4000000000]}", 400,
          "4000000000" },
        { "generate by a stranger", "POST", "/internal/generate", "{\"v\":1}", 400, "error" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int status = ask_with(&e, rows[i].method, rows[i].path, rows[i].body, NULL, NULL, &r);
        if (status != rows[i].status || !strstr(r.data, rows[i].text) ||
            !str_starts(buf_view(&r), STR("{\"error\":{\"message\":"))) {
            fail_msg("%s: %d %s", rows[i].why, status, r.data);
        }
    }
    assert_int_equal(ask_with(&e, "POST", "/v1/completions", "{\"prompt\":\"x\"}",
                              "x-request-timeout-ms", "soon", &r),
                     400);
    assert_int_equal(ask_with(&e, "GET", "/internal/info", "", "origin", "http://evil", &r), 403);
    engine_close(&e);
}

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
        send_raw(fd, "/v1/completions", LONG_STREAM);
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
    assert_true(metric(&e, "muster_engine_generation_tokens_total") < 400); /* not 600 */
    engine_close(&e);
}

static void t_deadline_is_408(void **state)
{
    (void)state;
    const char *const args[] = { "--cpu-share", SLOW, NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 };
    engine_open(&e, args);
    const char *body = "{\"prompt\":\"x\",\"max_tokens\":200,\"ignore_eos\":true}";
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
    CLEANUP(buf_fini) struct buf first = { 0 }, second = { 0 }, r = { 0 };
    engine_open(&e, args);
    int one = connect_raw(&e), two = connect_raw(&e);
    send_raw(one, "/v1/completions", LONG_STREAM);
    read_raw(one, "data: ", &first);
    send_raw(two, "/v1/completions", LONG_STREAM);
    read_raw(two, ": ping", &second); /* while the first one runs */
    int fd = connect_raw(&e);
    send_raw(fd, "/v1/completions", LONG_STREAM);
    read_raw(fd, "\"code\":\"overloaded\"", &r);
    has(&r, "HTTP/1.1 429");
    has(&r, "retry-after: 1");
    close(fd);
    assert_true(metric(&e, "muster_engine_requests_refused_total") > 0);
    read_raw(one, "[DONE]", &first);
    read_raw(two, "data: ", &second); /* its turn */
    close(one);
    close(two);
    engine_close(&e);
}

static void t_the_fleet_side(void **state)
{
    (void)state;
    char folder[] = "/tmp/t_serve_XXXXXX", secret_path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(secret_path, sizeof secret_path, "%s/secret", folder);
    const char *const args[] = { "--secret-file", secret_path, NULL };
    struct engine e;
    CLEANUP(buf_fini) struct buf r = { 0 }, body = { 0 }, text = { 0 }, whole = { 0 };
    engine_open(&e, args);
    assert_int_equal(get(&e, "/internal/info", &r), 401);
    assert_int_equal(get(&e, "/metrics", &r), 401);
    assert_int_equal(post(&e, "/v1/completions", "{\"prompt\":\"x\"}", &r), 401);
    assert_int_equal(get(&e, "/health", &r), 200);

    char secret[128] = "";
    FILE *f = fopen(secret_path, "r");
    assert_non_null(f);
    assert_non_null(fgets(secret, sizeof secret, f));
    fclose(f);
    snprintf(e.bearer, sizeof e.bearer, "Bearer %.*s", (int)strcspn(secret, "\n"), secret);
    assert_int_equal(get(&e, "/internal/info", &r), 200);
    has(&r, "\"health\":\"ready\"");
    has(&r, "\"context_tokens\":256");

    CLEANUP(bundle_fini) struct bundle bundle = { 0 };
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(get(&e, "/internal/tokenizer", &bytes), 200);
    assert_int_equal(bundle_decode(buf_view(&bytes), NULL, &bundle, NULL), 0);
    assert_non_null(bundle.chat_template);

    uint32_t ids[40];
    for (uint32_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = 30 + i;
    struct generate_request req = {
        .id = STR("abc"),
        .ids = ids,
        .id_count = COUNT_OF(ids),
        .prompt_tokens = COUNT_OF(ids),
        .sampling = SAMPLING_DEFAULT,
        .max_tokens = 12,
        .ignore_eos = true,
        .tenant = STR("one"),
    };
    req.sampling.has_seed = true, req.sampling.seed = 5;
    for (int i = 0; i < 3; i++) {
        if (i == 2) req.tenant = STR("two");
        buf_clear(&body);
        assert_int_equal(generate_encode(&req, &body), 0);
        assert_int_equal(post(&e, "/internal/generate", body.data, &r), 200);
        struct arena arena;
        arena_init(&arena, 1 << 20);
        uint32_t tokens = 0, last = 0;
        buf_clear(&text);
        for (struct str rest = buf_view(&r); rest.len > 0;) {
            struct generate_frame frame;
            struct str line = str_cut(&rest, '\n');
            if (line.len == 0) continue;
            assert_int_equal(generate_frame_decode(line, &arena, &frame, NULL), 0);
            assert_int_equal(last, 0);
            if (tokens == 0 && frame.id_count) {
                assert_true(frame.has_usage);
                /* The second time from the cache; another tenant has one of its own. */
                assert_int_equal(frame.usage.cached_tokens, i == 1 ? 32 : 0);
            }
            tokens += frame.id_count;
            buf_str(&text, frame.text);
            last = frame.finish == FINISH_LENGTH;
        }
        assert_int_equal(tokens, 12);
        assert_int_equal(last, 1);
        if (i == 0) buf_str(&whole, buf_view(&text));
        assert_true(str_eq(buf_view(&whole), buf_view(&text)));
        arena_fini(&arena);
    }
    assert_int_equal(post(&e, "/internal/drain", "", &r), 200);
    assert_int_equal(post(&e, "/internal/generate", body.data, &r), 503);
    assert_int_equal(get(&e, "/health", &r), 503);
    engine_close(&e);
    unlink(secret_path);
    rmdir(folder);
}

static void t_block_events(void **state)
{
    (void)state;
    struct engine e;
    CLEANUP(buf_fini) struct buf seen = { 0 }, r = { 0 }, again = { 0 };
    engine_open(&e, NULL);
    int fd = connect_raw(&e);
    const char *ask = "GET /internal/events HTTP/1.1\r\nhost: x\r\n\r\n";
    assert_int_equal(send(fd, ask, strlen(ask), MSG_NOSIGNAL), (ssize_t)strlen(ask));
    read_raw(fd, "\"snapshot\"", &seen);
    has(&seen, "\"page_tokens\":16");
    const char *at = strstr(seen.data, "\"boot\":\"");
    assert_non_null(at);
    char boot[17] = "";
    memcpy(boot, at + 8, 16);
    const char *body =
        "{\"prompt\":\"aaaaaaaa bb cc dd ee ff gg hh ii jj kk ll mm\",\"max_tokens\":2}";
    assert_int_equal(post(&e, "/v1/completions", body, &r), 200);
    read_raw(fd, "\"seq\":2", &seen);
    has(&seen, "\"kind\":\"add\"");
    close(fd);

    /* From a known place: no snapshot, only what is missing. */
    fd = connect_raw(&e);
    char line[256];
    int len = snprintf(line, sizeof line,
                       "GET /internal/events?boot=%s&from=1 HTTP/1.1\r\nhost: x\r\n\r\n", boot);
    assert_int_equal(send(fd, line, (size_t)len, MSG_NOSIGNAL), len);
    read_raw(fd, "\"kind\":\"add\"", &again);
    assert_null(strstr(again.data, "snapshot"));
    assert_int_equal(post(&e, "/reset_prefix_cache", "", &r), 200);
    read_raw(fd, "\"kind\":\"drop\"", &again);
    assert_null(strstr(again.data, "\"load\"")); /* nobody asked */
    close(fd);

    /* What it has in total, for those who ask; told because it is not what was told last. */
    fd = connect_raw(&e);
    buf_clear(&again);
    ask = "GET /internal/events?load=1 HTTP/1.1\r\nhost: x\r\n\r\n";
    assert_int_equal(send(fd, ask, strlen(ask), MSG_NOSIGNAL), (ssize_t)strlen(ask));
    read_raw(fd, "\"kind\":\"load\"", &again);
    has(&again, "\"uncached_total\":");
    engine_close(&e); /* with the stream open */
    close(fd);
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
    assert_true(log_has(&e, "draining"));
    read_raw(fd, "data: [DONE]", &seen); /* what runs is finished */
    assert_int_equal(engine_wait(&e), 0);
    close(fd);
    engine_fini(&e);

    engine_open(&e, args);
    fd = connect_raw(&e);
    buf_clear(&seen);
    send_raw(fd, "/v1/completions", LONG_STREAM);
    read_raw(fd, "data: ", &seen);
    kill(e.pid, SIGTERM);
    assert_true(log_has(&e, "draining"));
    kill(e.pid, SIGTERM);
    assert_int_equal(engine_wait(&e), 128 + SIGTERM); /* asked twice: now */
    close(fd);
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
        { "context", { "--max-model-len", "9999" }, "256", 1 },
        { "page size", { "--block-size", "20" }, "multiple of 16", 1 },
        { "unknown flag", { "--max-num-seq", "2" }, "max-num-seqs", 2 },
    };
    char path[64];
    int model = tiny_model_path(2, path);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct engine e = { .model_fd = -1 };
        spawn(&e, path, rows[i].args);
        int code = engine_wait(&e);
        log_has(&e, "no such word");
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
    double before = cpu_s(e.pid);
    int64_t from = clock_mono_us();
    for (int i = 0; i < 4; i++) { /* one after the other, so that it always has work */
        buf_clear(&seen);
        int fd = connect_raw(&e);
        send_raw(fd, "/v1/completions", LONG_STREAM);
        read_raw(fd, "[DONE]", &seen);
        close(fd);
    }
    double used = cpu_s(e.pid) - before, wall = (double)(clock_mono_us() - from) * 1e-6;
    if (used / wall > 0.26) fail_msg("%.3f s of CPU in %.3f s", used, wall);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_loading_is_503_and_a_bad_file_ends_it),
        cmocka_unit_test(t_small_endpoints),
        cmocka_unit_test(t_completion_whole_and_streamed),
        cmocka_unit_test(t_chat_stream_has_role_first),
        cmocka_unit_test(t_cache_is_used_and_reset),
        cmocka_unit_test(t_stop_string),
        cmocka_unit_test(t_refusals),
        cmocka_unit_test(t_leaving_frees_the_pages),
        cmocka_unit_test(t_deadline_is_408),
        cmocka_unit_test(t_full_is_429_and_waiting_streams_are_pinged),
        cmocka_unit_test(t_the_fleet_side),
        cmocka_unit_test(t_block_events),
        cmocka_unit_test(t_sigterm_drains),
        cmocka_unit_test(t_wrong_starts),
        cmocka_unit_test(t_cpu_share_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

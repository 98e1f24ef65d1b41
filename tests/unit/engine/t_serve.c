/* t_serve.c - tests an engine's replies: shapes, streams, the cache, stop strings, refusals, large
 * bodies. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/sse.h"
#include "tests/unit/engine/serve_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- replies over HTTP ---- */

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
    has(&r, "\"max_model_len\":4096");
    assert_int_equal(post(&e, "/tokenize", "{\"prompt\":\"hello the\"}", &r), 200);
    has(&r, "{\"count\":2,\"max_model_len\":4096,\"tokens\":[");
    CLEANUP(buf_fini) struct buf back = { 0 }, ids = { 0 };
    buf_printf(&ids, "{\"tokens\":%s", strchr(r.data, '['));
    assert_int_equal(post(&e, "/detokenize", ids.data, &back), 200);
    assert_string_equal(back.data, "{\"prompt\":\"hello the\"}");
    assert_int_equal(
        post(&e, "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"<|end|>\"}]}", &r),
        200);
    has(&r, "\"tokens\":[3,"); /* <|user|> is a token, the user's own text is none */
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
    double predicted_s = metric(&e, "muster_engine_step_predicted_seconds_total");
    assert_true(predicted_s > 0 && predicted_s < 60); /* of some forty steps */
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
        assert_int_equal(done, 0); /* no event follows [DONE] */
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
    /* Takes two plain characters from the middle. */
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
    for (int i = 0; i < 3000; i++)
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
        { "generate by a stranger", "POST", "/internal/generate", "{\"v\":2}", 400, "error" },
        { "generate by an older router", "POST", "/internal/generate", "{\"v\":1}", 503,
          "run the same release" },
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

static int serve_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_small_endpoints),
        cmocka_unit_test(t_completion_whole_and_streamed),
        cmocka_unit_test(t_chat_stream_has_role_first),
        cmocka_unit_test(t_cache_is_used_and_reset),
        cmocka_unit_test(t_stop_string),
        cmocka_unit_test(t_refusals),
    };
    return cmocka_run_group_tests_name("serve", tests, NULL, NULL);
}

/* ---- large bodies: on a text worker, within bounds, released ---- */

#define LARGE ((size_t)7 << 20)
#define ASKED 6
#define ONCE "\"prompt\":\"once upon a time\",\"max_tokens\":8,\"temperature\":0"

/* Writes {"prompt": "abab..."} with so many bytes of text. */
static void prompt_of(struct buf *out, size_t bytes)
{
    buf_clear(out);
    buf_text(out, "{\"prompt\":\"");
    for (size_t i = 0; i < bytes; i++)
        buf_byte(out, "abcdefgh "[i % 9]);
    buf_text(out, "\"}");
    assert_int_equal(out->rc, 0);
}

/* Writes a short request into a body that blanks make large. */
static void padded(struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "{" ONCE "%20000s}", "");
    assert_int_equal(out->rc, 0);
}

/* Returns the text within a whole reply. */
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

/* Starts an engine whose template loops over all messages for each message. */
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

/* Writes a body of so many messages, followed by blanks. */
static void messages_of(struct buf *out, int messages, int blanks)
{
    buf_clear(out);
    buf_text(out, "{\"messages\":[");
    for (int i = 0; i < messages; i++)
        buf_printf(out, "%s{\"role\":\"user\",\"content\":\"a\"}", i ? "," : "");
    buf_printf(out, "]%*s}", blanks, "");
    assert_int_equal(out->rc, 0);
}

/* A small body can need much work: a worker does it. */
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

/* Each body takes a worker far longer than the sending of all, and two fit into the queue. */
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
    until_metric(&e, "muster_engine_http_connections", 1); /* the one that asks */
    padded(&body);
    assert_int_equal(post(&e, "/v1/completions", body.data, &reply), 200);
    engine_close(&e);
}

/* A draining engine replies to bodies that arrived before, though no worker has taken them yet. */
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
    /* All bodies have arrived: at a worker, waiting for one, or replied to. */
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

static int serve_text_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_large_is_answered_like_small),
        cmocka_unit_test(t_much_work_in_few_bytes_is_a_workers),
        cmocka_unit_test(t_the_loop_answers_and_the_queue_is_bounded),
        cmocka_unit_test(t_clients_that_leave_are_let_go_of),
        cmocka_unit_test(t_a_drain_waits_for_what_is_at_the_workers),
    };
    return cmocka_run_group_tests_name("serve_text", tests, NULL, NULL);
}

int main(void)
{
    return serve_tests() + serve_text_tests();
}

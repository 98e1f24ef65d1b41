/* t_serve.c - what an engine answers: shapes, streams, the cache, stop strings, refusals. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/sse.h"
#include "tests/unit/engine/serve_rig.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_small_endpoints),
        cmocka_unit_test(t_completion_whole_and_streamed),
        cmocka_unit_test(t_chat_stream_has_role_first),
        cmocka_unit_test(t_cache_is_used_and_reset),
        cmocka_unit_test(t_stop_string),
        cmocka_unit_test(t_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

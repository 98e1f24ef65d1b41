/* t_openai_reply.c - tests replies of the OpenAI API: writing them, and reading those of engines. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/wire/openai.h"
#include "base/wire/openai_calls.h"
#include "base/wire/sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- replies byte for byte, and back through the delta reader ---- */

static const struct usage used = { 10, 8, 3, 2 };

static struct openai_reply reply(enum openai_surface surface)
{
    return (struct openai_reply){
        .surface = surface, .id = STR("7"), .created_s = 1700000000, .model = STR("m\"x")
    };
}

#define HEAD(prefix, object)                                                     \
    "{\"id\":\"" prefix "-7\",\"object\":\"" object "\",\"created\":1700000000," \
    "\"model\":\"m\\\"x\",\"system_fingerprint\":null,\"choices\":["
#define CHAT_CHUNK "data: " HEAD("chatcmpl", "chat.completion.chunk")
#define TEXT_CHUNK "data: " HEAD("cmpl", "text_completion")
#define USAGE                                                                      \
    "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"total_tokens\":13," \
    "\"prompt_tokens_details\":{\"cached_tokens\":8}"
#define CHAT_USAGE USAGE ",\"completion_tokens_details\":{\"reasoning_tokens\":2}}"
#define TEXT_USAGE USAGE "}"

static int whole(const struct openai_reply *r, struct str text, enum finish finish, struct buf *out)
{
    return openai_reply_whole(r, &(struct openai_choice){ .text = text, .finish = finish }, 1,
                              &used, out);
}

static void whole_replies(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct openai_reply r = reply(OPENAI_CHAT);
    assert_int_equal(whole(&r, STR("hé"), FINISH_STOP, &out), 0);
    assert_string_equal(
        out.data,
        HEAD("chatcmpl", "chat.completion") "{\"index\":0,\"message\":{\"role\":"
                                            "\"assistant\",\"content\":\"hé\","
                                            "\"refusal\":null},\"logprobs\":null,"
                                            "\"finish_reason\":\"stop\"}]," CHAT_USAGE "}");
    buf_clear(&out);
    r = reply(OPENAI_COMPLETION);
    assert_int_equal(whole(&r, STR(""), FINISH_LENGTH, &out), 0);
    assert_string_equal(
        out.data, HEAD("cmpl", "text_completion") "{\"index\":0,\"text\":\"\",\"logprobs\":null,"
                                                  "\"finish_reason\":\"length\"}]," TEXT_USAGE "}");
    buf_clear(&out);
    r.fingerprint = STR("avx2-1");
    whole(&r, STR(""), FINISH_LENGTH, &out);
    assert_non_null(strstr(out.data, "\"system_fingerprint\":\"avx2-1\""));
}

static void chat_stream(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct openai_reply r = reply(OPENAI_CHAT);
    openai_chunk_role(&r, &out);
    openai_chunk_text(&r, STR("a\nb"), &out);
    openai_chunk_finish(&r, FINISH_STOP, &out);
    openai_chunk_done(&out);
    assert_string_equal(
        out.data,
        CHAT_CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                   "\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHAT_CHUNK
                   "{\"index\":0,\"delta\":{\"content\":\"a\\nb\"},\"logprobs\":null,"
                   "\"finish_reason\":null}]}\n\n" CHAT_CHUNK
                   "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n"
                   "data: [DONE]\n\n");
    buf_clear(&out);
    r.include_usage = true; /* null except in the last chunk */
    openai_chunk_text(&r, STR("x"), &out);
    openai_chunk_usage(&r, &used, &out);
    assert_string_equal(out.data,
                        CHAT_CHUNK "{\"index\":0,\"delta\":{\"content\":\"x\"},\"logprobs\":null,"
                                   "\"finish_reason\":null}],\"usage\":null}\n\n" CHAT_CHUNK
                                   "]," CHAT_USAGE "}\n\n");
}

static void completion_stream(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct openai_reply r = reply(OPENAI_COMPLETION);
    openai_chunk_text(&r, STR("x"), &out);
    openai_chunk_finish(&r, FINISH_LENGTH, &out);
    assert_string_equal(out.data, TEXT_CHUNK "{\"index\":0,\"text\":\"x\",\"logprobs\":null,"
                                             "\"finish_reason\":null}]}\n\n" TEXT_CHUNK
                                             "{\"index\":0,\"text\":\"\",\"logprobs\":null,"
                                             "\"finish_reason\":\"length\"}]}\n\n");
    buf_clear(&out);
    struct openai_error e;
    openai_error_set(&e, -1, OPENAI_UPSTREAM, NULL, "gone");
    reply_error_event(REPLY_OPENAI, &e, &out);
    assert_string_equal(out.data,
                        "data: {\"error\":{\"message\":\"gone\",\"type\":\"server_error\","
                        "\"param\":null,\"code\":\"upstream_failed\"}}\n\n");
    assert_null(openai_finish_name(FINISH_ABORT));
    assert_null(openai_finish_name(FINISH_ERROR));
}

static void models(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    const struct sampling own = { .temperature = 0.6,
                                  .top_k = 20,
                                  .unnamed =
                                      SAMPLING_ALL & ~(SAMPLING_TEMPERATURE | SAMPLING_TOP_K) };
    struct openai_model list[] = {
        { STR("a"), STR(""), 5, 2048, &own, "embed" },
        { STR("b"), STR("a"), 6, 0, NULL, NULL },
    };
    openai_models_render(list, 2, &out);
    assert_string_equal(
        out.data,
        "{\"object\":\"list\",\"data\":[{\"id\":\"a\",\"object\":\"model\","
        "\"created\":5,\"owned_by\":\"muster\",\"max_model_len\":2048,\"task\":\"embed\",\"default_"
        "sampling\":{\"temperature\":0.6,\"top_k\":20}},{\"id\":\"b\","
        "\"object\":\"model\",\"created\":6,\"owned_by\":\"muster\",\"parent\":\"a\"}]}");
}

/* What a request names stays, null names nothing, and the rest is the model's. */
static void a_models_defaults_settle_what_is_unnamed(void **state)
{
    (void)state;
    struct openai_request r;
    struct openai_error e;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    const struct sampling own = { .temperature = 0.6,
                                  .top_p = 0.9,
                                  .top_k = 20,
                                  .unnamed = SAMPLING_MIN_P | SAMPLING_REPETITION_PENALTY };
    arena_init(&arena, 1 << 16);
    assert_int_equal(
        openai_parse(OPENAI_COMPLETION,
                     STR("{\"prompt\":\"a\",\"top_p\":1,\"min_p\":0.1,\"top_k\":null}"), &arena, &r,
                     &e),
        0);
    assert_int_equal(r.sampling.unnamed, SAMPLING_ALL & ~(SAMPLING_TOP_P | SAMPLING_MIN_P));
    sampling_settle(&r.sampling, &own);
    assert_true(r.sampling.temperature == 0.6 && r.sampling.top_p == 1 && r.sampling.top_k == 20);
    assert_true(r.sampling.min_p == 0.1 && r.sampling.repetition_penalty == 1);
    assert_int_equal(r.sampling.unnamed, 0);
}

struct heard {
    struct buf text;
    struct openai_delta last;
    int events, finishes, usages;
    bool done;
};

static int hear(void *arg, struct str data)
{
    struct heard *h = arg;
    h->events++;
    if (str_eq(data, SSE_DONE)) {
        h->done = true;
        return 0;
    }
    int rc = openai_delta_parse(data, &h->text, &h->last, NULL);
    h->finishes += h->last.finish != FINISH_NONE;
    h->usages += h->last.has_usage;
    return rc;
}

/* A form rendered once gives the same bytes as a chunk rendered anew. */
static void text_forms_equal_chunks(void **state)
{
    (void)state;
    static const char *const text[] = { "", "x", "a\nb \"q\" \xC3\xA4", "\"content\":\"\"" };
    for (int i = 0; i < 4; i++) {
        struct openai_reply r = reply(i % 2 ? OPENAI_COMPLETION : OPENAI_CHAT);
        CLEANUP(buf_fini) struct buf slow = { 0 }, fast = { 0 };
        struct openai_text_form form = { 0 };
        r.include_usage = i > 1;
        r.model = STR("\"content\":\"\" \"text\":\"\"");
        assert_int_equal(openai_text_form_make(&r, &form), 0);
        for (size_t t = 0; t < sizeof text / sizeof *text; t++) {
            assert_int_equal(openai_chunk_text(&r, str_from(text[t]), &slow), 0);
            assert_int_equal(openai_text_form_put(&form, str_from(text[t]), &fast), 0);
        }
        assert_string_equal(fast.data, slow.data);
        buf_fini(&form.bytes);
    }
}

/* Our client reads back what we write, wherever the bytes are cut. */
static void streams_go_round(void **state)
{
    (void)state;
    for (int s = 0; s < 2; s++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct openai_reply r = reply(s ? OPENAI_COMPLETION : OPENAI_CHAT);
        r.include_usage = true;
        if (!s) openai_chunk_role(&r, &out);
        sse_comment(&out, STR("still here"));
        openai_chunk_text(&r, STR("one\r\n"), &out);
        openai_chunk_text(&r, STR("data: two"), &out);
        openai_chunk_finish(&r, FINISH_LENGTH, &out);
        openai_chunk_usage(&r, &used, &out);
        openai_chunk_done(&out);
        for (size_t step = 1; step <= out.len; step += step < 40 ? 1 : 97) {
            struct heard h = { 0 };
            struct sse_reader reader;
            sse_reader_init(&reader, 4096);
            for (size_t at = 0; at < out.len; at += step)
                assert_int_equal(
                    sse_reader_feed(&reader, str_of(out.data + at, min_size(step, out.len - at)),
                                    hear, &h),
                    0);
            assert_true(h.done);
            assert_int_equal(h.events, s ? 5 : 6);
            assert_int_equal(h.finishes, 1);
            assert_int_equal(h.usages, 1);
            assert_string_equal(h.text.data, "one\r\ndata: two");
            assert_int_equal(h.last.usage.cached_tokens, 8);
            assert_int_equal(h.last.usage.generated_tokens, 3);
            sse_reader_fini(&reader);
            buf_fini(&h.text);
        }
    }
}

static void foreign_replies(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int rc;
        const char *text;
        enum finish finish;
        bool has_usage, has_error;
    } rows[] = {
        { "{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"tool_calls\"}]}", 0,
          "x", FINISH_STOP, false, false },
        { "{\"choices\":[{\"text\":\"x\"},{\"text\":\"y\"}],\"usage\":{\"prompt_tokens\":1}}", 0,
          "x", FINISH_NONE, true, false },
        { "{\"choices\":[],\"usage\":{\"prompt_tokens_details\":null}}", 0, "", FINISH_NONE, true,
          false },
        { "{\"choices\":null,\"usage\":null}", 0, "", FINISH_NONE, false, false },
        { "{\"error\":{\"message\":\"no\",\"code\":1}}", 0, "no", FINISH_NONE, false, true },
        { "{\"error\":\"no\"}", 0, "no", FINISH_NONE, false, true },
        { "{\"object\":\"x\",\"extra\":[{}]}", 0, "", FINISH_NONE, false, false },
        { "{\"choices\":[{\"delta\":{\"content\":1}}]}", -EINVAL, "", FINISH_NONE, false, false },
        { "{\"choices\":[1]}", -EINVAL, "", FINISH_NONE, false, false },
        { "{\"choices\":{}}", -EINVAL, "", FINISH_NONE, false, false },
        { "{\"usage\":{\"prompt_tokens\":-1}}", -EINVAL, "", FINISH_NONE, false, false },
        { "{\"choices\":[{\"text\":\"x\"}", -EINVAL, "", FINISH_NONE, false, false },
        { "{} x", -EINVAL, "", FINISH_NONE, false, false },
        { "[]", -EINVAL, "", FINISH_NONE, false, false },
        { "", -EINVAL, "", FINISH_NONE, false, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        struct openai_delta d = { 0 };
        struct err err = { 0 };
        buf_text(&text, "");
        int rc = openai_delta_parse(str_from(rows[i].json), &text, &d, &err);
        if (rc != rows[i].rc) fail_msg("%s: rc %d %s", rows[i].json, rc, err.text);
        if (rc < 0) {
            assert_true(err.text[0] != 0);
            continue;
        }
        assert_string_equal(text.data, rows[i].text);
        assert_int_equal(d.finish, rows[i].finish);
        assert_int_equal(d.has_usage, rows[i].has_usage);
        assert_int_equal(d.has_error, rows[i].has_error);
    }
}

/* Rows of real replies: of llama.cpp's server, of vLLM with --enable-prompt-tokens-details, without it. */
static void absent_cached_tokens_are_not_zero(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        bool has_cached;
        uint32_t cached;
    } rows[] = {
        { "{\"choices\":[],\"usage\":{\"completion_tokens\":5,\"prompt_tokens\":11,\"total_"
          "tokens\":16,"
          "\"prompt_tokens_details\":{\"cached_tokens\":0}}}",
          true, 0 },
        { "{\"choices\":[],\"usage\":{\"prompt_tokens\":98,\"prompt_tokens_details\":"
          "{\"cached_tokens\":96,\"created_cache_tokens\":0}}}",
          true, 96 },
        { "{\"usage\":{\"prompt_tokens\":98,\"prompt_tokens_details\":null}}", false, 0 },
        { "{\"usage\":{\"prompt_tokens\":98,\"prompt_tokens_details\":{\"cached_tokens\":null}}}",
          false, 0 },
        { "{\"usage\":{\"prompt_tokens\":98}}", false, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        struct openai_delta d = { 0 };
        assert_int_equal(openai_delta_parse(str_from(rows[i].json), &text, &d, NULL), 0);
        if (d.has_cached != rows[i].has_cached || d.usage.cached_tokens != rows[i].cached)
            fail_msg("%s: %d %u", rows[i].json, d.has_cached, d.usage.cached_tokens);
    }
}

static void another_engine_counts_reasoning(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct openai_delta d = { 0 };
    struct str json = STR("{\"choices\":[],\"usage\":{\"completion_tokens\":9,"
                          "\"completion_tokens_details\":{\"audio_tokens\":null,"
                          "\"reasoning_tokens\":6}}}");
    assert_int_equal(openai_delta_parse(json, &text, &d, NULL), 0);
    assert_int_equal(d.usage.generated_tokens, 9);
    assert_int_equal(d.usage.reasoning_tokens, 6);
}

/* A message in parts: whole, and as the chunks of a stream. */
static void writes_messages_in_parts(void **state)
{
    (void)state;
    struct openai_reply reply = { .surface = OPENAI_CHAT, .id = STR("r1"), .model = STR("m") };
    struct buf out = { 0 };
    for (int stream = 0; stream < 2; stream++) {
        struct openai_message m;
        buf_clear(&out);
        openai_message_init(&m, &reply, stream ? &out : NULL);
        openai_message_reasoning(&m, STR("so\n"));
        openai_message_call(&m, 0, STR("f"));
        openai_message_arguments(&m, 0, STR("{\"a\":"));
        openai_message_arguments(&m, 0, STR(" 1}"));
        openai_message_call(&m, 1, STR("g"));
        openai_message_arguments(&m, 1, STR("{}"));
        assert_int_equal(openai_message_rc(&m), 0);
        if (stream) {
            assert_non_null(strstr(out.data, "\"delta\":{\"reasoning_content\":\"so\\n\"}"));
            assert_non_null(strstr(out.data, "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\""));
            assert_non_null(strstr(out.data, "\"type\":\"function\",\"function\":{\"name\":\"g\","
                                             "\"arguments\":\"\"}}]}"));
            assert_non_null(strstr(out.data, "{\"tool_calls\":[{\"index\":0,\"function\":{"
                                             "\"arguments\":\" 1}\"}}]}"));
        } else {
            const struct usage usage = { .prompt_tokens = 1 };
            struct openai_choice choice = openai_message_choice(&m);
            choice.finish = FINISH_STOP;
            assert_int_equal(openai_reply_whole(&reply, &choice, 1, &usage, &out), 0);
            assert_non_null(strstr(out.data, "\"content\":null"));
            assert_non_null(strstr(out.data, "\"reasoning_content\":\"so\\n\""));
            assert_non_null(strstr(out.data, "\"function\":{\"name\":\"f\",\"arguments\":"
                                             "\"{\\\"a\\\": 1}\"}},{\"id\":"));
            assert_non_null(strstr(out.data, "\"finish_reason\":\"tool_calls\""));
            struct openai_delta delta;
            struct buf text = { 0 };
            assert_int_equal(openai_delta_parse(buf_view(&out), &text, &delta, NULL), 0);
            assert_true(delta.called && delta.finish == FINISH_STOP && !delta.has_text);
            assert_true(str_eq(delta.reasoning, STR("\"so\\n\"")));
            assert_true(str_starts(delta.tool_calls, STR("[{\"id\":")));
            buf_fini(&text);
        }
        openai_message_fini(&m);
    }
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_replies),
        cmocka_unit_test(chat_stream),
        cmocka_unit_test(completion_stream),
        cmocka_unit_test(models),
        cmocka_unit_test(a_models_defaults_settle_what_is_unnamed),
        cmocka_unit_test(streams_go_round),
        cmocka_unit_test(text_forms_equal_chunks),
        cmocka_unit_test(foreign_replies),
        cmocka_unit_test(absent_cached_tokens_are_not_zero),
        cmocka_unit_test(another_engine_counts_reasoning),
        cmocka_unit_test(writes_messages_in_parts),
    };
    return cmocka_run_group_tests_name("openai_reply", tests, NULL, NULL);
}

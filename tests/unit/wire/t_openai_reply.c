/* t_openai_reply.c - replies byte for byte, and the way back through the delta reader. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/openai_reply.h"
#include "base/wire/sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct usage used = { 10, 8, 3 };

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
    "\"prompt_tokens_details\":{\"cached_tokens\":8}}"

static void whole_replies(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct openai_reply r = reply(OPENAI_CHAT);
    assert_int_equal(openai_reply_whole(&r, STR("hé"), FINISH_STOP, &used, &out), 0);
    assert_string_equal(
        out.data, HEAD("chatcmpl", "chat.completion") "{\"index\":0,\"message\":{\"role\":"
                                                      "\"assistant\",\"content\":\"hé\","
                                                      "\"refusal\":null},\"logprobs\":null,"
                                                      "\"finish_reason\":\"stop\"}]," USAGE "}");
    buf_clear(&out);
    r = reply(OPENAI_COMPLETION);
    assert_int_equal(openai_reply_whole(&r, STR(""), FINISH_LENGTH, &used, &out), 0);
    assert_string_equal(
        out.data, HEAD("cmpl", "text_completion") "{\"index\":0,\"text\":\"\",\"logprobs\":null,"
                                                  "\"finish_reason\":\"length\"}]," USAGE "}");
    buf_clear(&out);
    r.fingerprint = STR("avx2-1");
    openai_reply_whole(&r, STR(""), FINISH_LENGTH, &used, &out);
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
    r.include_usage = true; /* null until the chunk that has it */
    openai_chunk_text(&r, STR("x"), &out);
    openai_chunk_usage(&r, &used, &out);
    assert_string_equal(out.data,
                        CHAT_CHUNK "{\"index\":0,\"delta\":{\"content\":\"x\"},\"logprobs\":null,"
                                   "\"finish_reason\":null}],\"usage\":null}\n\n" CHAT_CHUNK
                                   "]," USAGE "}\n\n");
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
    openai_chunk_error(&e, &out);
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
    struct openai_model list[] = { { STR("a"), 5, 2048 }, { STR("b"), 6, 0 } };
    openai_models_render(list, 2, &out);
    assert_string_equal(
        out.data, "{\"object\":\"list\",\"data\":[{\"id\":\"a\",\"object\":\"model\","
                  "\"created\":5,\"owned_by\":\"muster\",\"max_model_len\":2048},{\"id\":\"b\","
                  "\"object\":\"model\",\"created\":6,\"owned_by\":\"muster\"}]}");
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

/* The form that is rendered once gives the bytes of the chunk that is rendered anew. */
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

/* What we write, our own client reads back, however the bytes are cut. */
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

static int collect(void *arg, struct str data)
{
    struct buf *out = arg;
    buf_byte(out, '<');
    buf_str(out, data);
    return buf_byte(out, '>');
}

static void framing(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf got = { 0 };
    struct sse_reader r;
    sse_reader_init(&r, 32);
    assert_int_equal(sse_reader_feed(&r,
                                     STR("event: x\ndata: a\ndata:b\r\nid: 1\n\n\n\n: c\n\ndata\n\n"
                                         "data: tail"),
                                     collect, &got),
                     0);
    assert_string_equal(got.data, "<a\nb><>"); /* an event that has not ended is not given */
    sse_reader_fini(&r);

    sse_reader_init(&r, 8);
    assert_int_equal(sse_reader_feed(&r, STR("data: 123456789\n\n"), collect, &got), -E2BIG);
    sse_reader_fini(&r);
    sse_reader_init(&r, 8);
    assert_int_equal(sse_reader_feed(&r, STR("data:123"), collect, &got), 0);
    assert_int_equal(sse_reader_feed(&r, STR("45"), collect, &got), -E2BIG);
    sse_reader_fini(&r);

    struct line_reader lines;
    buf_clear(&got);
    line_reader_init(&lines, 4);
    assert_int_equal(line_reader_feed(&lines, STR("ab\ncd\r\n\nef"), collect, &got), 0);
    assert_int_equal(line_reader_feed(&lines, STR("gh\n"), collect, &got), 0);
    assert_string_equal(got.data, "<ab><cd><><efgh>");
    assert_int_equal(line_reader_feed(&lines, STR("12345\n"), collect, &got), -E2BIG);
    line_reader_fini(&lines);
}

static int stop_at_once(void *arg, struct str line)
{
    (void)line;
    return *(int *)arg;
}

static void a_callback_may_stop_the_feed(void **state)
{
    (void)state;
    int rc = -ECANCELED;
    struct line_reader lines;
    line_reader_init(&lines, 10);
    assert_int_equal(line_reader_feed(&lines, STR("a\nb\n"), stop_at_once, &rc), -ECANCELED);
    line_reader_fini(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_replies),
        cmocka_unit_test(chat_stream),
        cmocka_unit_test(completion_stream),
        cmocka_unit_test(models),
        cmocka_unit_test(streams_go_round),
        cmocka_unit_test(text_forms_equal_chunks),
        cmocka_unit_test(foreign_replies),
        cmocka_unit_test(framing),
        cmocka_unit_test(a_callback_may_stop_the_feed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_anthropic.c - tests Anthropic's API: the chat that a Messages request becomes, and the responses. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/anthropic.h"
#include "base/wire/openai_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ARENA_BYTES ((size_t)4 << 20)
#define HEAD "\"model\":\"m\",\"max_tokens\":9,"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define USER(content) "{" HEAD "\"messages\":[{\"role\":\"user\",\"content\":" content "}]}"

static struct arena arena;
static struct openai_error problem;

static int rewrite(enum anthropic_ask ask, const char *body, struct str *ret)
{
    arena_fini(&arena);
    arena_init(&arena, ARENA_BYTES);
    return anthropic_to_chat(ask, str_from(body), &arena, ret, &problem);
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

/* ---- requests ---- */

static const struct {
    const char *body, *chat;
} rewritten[] = {
    { "{" HEAD HI ",\"system\":\"be \\\"brief\\\"\",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":4,"
      "\"stop_sequences\":[\"a\\nb\",\"c\"],\"stream\":true,\"metadata\":{\"user_id\":\"u\"},"
      "\"service_tier\":\"auto\",\"cache_control\":{\"type\":\"ephemeral\"},\"tools\":null}",
      "{\"model\":\"m\",\"max_tokens\":9,\"temperature\":0.5,\"top_p\":0.9,\"top_k\":4,"
      "\"stop\":[\"a\\nb\",\"c\"],\"stream\":true,\"user\":\"u\",\"messages\":["
      "{\"role\":\"system\",\"content\":\"be \\\"brief\\\"\"},"
      "{\"role\":\"user\",\"content\":\"hi\"}]}" },
    { "{" HEAD "\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":"
      "\"ephemeral\"}},{\"type\":\"text\",\"text\":\"b\"}]," HI "}",
      "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"system\",\"content\":\"a\\nb\"},"
      "{\"role\":\"user\",\"content\":\"hi\"}]}" },
    { "{" HEAD
      "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u00e4\"}]},"
      "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\","
      "\"signature\":\"s\"},"
      "{\"type\":\"text\",\"text\":\"so\"},{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\","
      "\"input\":"
      "{\"x\": \"q\"}},{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\",\"input\":{}}]},"
      "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
      "\"content\":\"7\"},"
      "{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true,\"content\":[{\"type\":"
      "\"text\","
      "\"text\":\"no\"}]},{\"type\":\"text\",\"text\":\"go\"}]}]}",
      "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e4\"},"
      "{\"role\":\"assistant\",\"content\":\"so\",\"reasoning_content\":\"hm\",\"tool_calls\":["
      "{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
      "\"{\\\"x\\\": "
      "\\\"q\\\"}\"}},{\"id\":\"t2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
      "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"7\"},"
      "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"Error: no\"},"
      "{\"role\":\"user\",\"content\":\"go\"}]}" },
    { "{" HEAD HI
      ",\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}},"
      "{\"type\":\"custom\",\"name\":\"g\",\"input_schema\":{}}],"
      "\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\",\"disable_parallel_tool_use\":true}}",
      "{\"model\":\"m\",\"max_tokens\":9,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
      "\"f\","
      "\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}},{\"type\":\"function\","
      "\"function\":"
      "{\"name\":\"g\",\"parameters\":{}}}],\"parallel_tool_calls\":false,\"tool_choice\":{"
      "\"type\":"
      "\"function\",\"function\":{\"name\":\"g\"}},\"messages\":[{\"role\":\"user\",\"content\":"
      "\"hi\"}]}" },
    { "{" HEAD HI
      ",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"none\"}}",
      "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" },
    { "{" HEAD HI ",\"thinking\":{\"type\":\"disabled\"},\"output_config\":{\"effort\":\"low\","
      "\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}}",
      "{\"model\":\"m\",\"max_tokens\":9,\"chat_template_kwargs\":{\"enable_thinking\":false,"
      "\"reasoning_effort\":\"low\"},\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
      "{\"name\":\"output\",\"schema\":{\"type\":\"object\"}}},"
      "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" },
    { "{" HEAD HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}",
      "{\"model\":\"m\",\"max_tokens\":9,\"chat_template_kwargs\":{\"enable_thinking\":true},"
      "\"thinking_token_budget\":1024,"
      "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" },
};

static void a_request_becomes_a_chat(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rewritten); i++) {
        struct str chat;
        struct openai_request req;
        if (rewrite(ANTHROPIC_MESSAGES, rewritten[i].body, &chat) < 0)
            fail_msg("%s: %s", rewritten[i].body, problem.message);
        assert_string_equal(chat.data, rewritten[i].chat);
        if (openai_parse(OPENAI_CHAT, chat, &arena, &req, &problem) < 0)
            fail_msg("%s: %s", chat.data, problem.message);
        assert_int_equal(req.max_tokens, 9);
    }
}

static void counting_needs_no_limit(void **state)
{
    (void)state;
    struct str chat;
    assert_int_equal(rewrite(ANTHROPIC_COUNT, "{" HI "}", &chat), 0);
    assert_string_equal(chat.data, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    assert_int_equal(rewrite(ANTHROPIC_MESSAGES, "{" HI "}", &chat), -EINVAL);
    assert_string_equal(problem.message, "max_tokens is missing.");
}

static const struct {
    const char *body, *sentence;
} refused[] = {
    { "[]", "must be a JSON object" },
    { "{", "The body" },
    { "{" HEAD HI "} x", "The body" },
    { "{" HEAD HI ",\"model\":\"n\"}", "model stands there twice" },
    { "{" HEAD HI ",\"container\":\"c\"}", "\"container\" is not served" },
    { "{" HEAD "\"system\":\"x\"}", "messages is missing" },
    { "{" HEAD HI ",\"system\":7}", "system must be a string or an array" },
    { "{" HEAD HI ",\"system\":[{\"type\":\"image\"}]}", "system: blocks of type \"image\"" },
    { "{" HEAD "\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}", "needs the role" },
    { "{" HEAD "\"messages\":[7]}", "needs the role" },
    { USER("7"), "content must be a string or an array" },
    { USER("[7]"), "a block must be an object" },
    { USER("[{\"type\":\"text\"}]"), "a text block without text" },
    { USER("[{\"type\":\"image\",\"source\":{}}]"), "blocks of type \"image\" are not served" },
    { USER("[{\"type\":\"document\",\"source\":{}}]"), "blocks of type \"document\" are not" },
    { USER("[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\",\"input\":{}}]"), "\"tool_use\"" },
    { USER("[{\"type\":\"tool_result\"}]"), "without tool_use_id" },
    { USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\"}]}]"),
      "tool_result.content: blocks of type \"image\"" },
    { "{" HEAD
      "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\","
      "\"name\":\"b\",\"input\":\"{}\"}]}]}",
      "input, an object" },
    { "{" HEAD "\"messages\":[{\"role\":\"assistant\",\"content\":\"I\"}]}", "the assistant's" },
    { "{" HEAD HI ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}",
      "\"web_search_20250305\" is not served" },
    { "{" HEAD HI ",\"tools\":[{\"name\":\"f\"}]}", "input_schema" },
    { "{" HEAD HI ",\"tool_choice\":\"any\"}", "tool_choice: want" },
    { "{" HEAD HI ",\"thinking\":{\"type\":\"enabled\"}}", "thinking.budget_tokens must be" },
    { "{" HEAD HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}}", "at least 1" },
    { "{" HEAD HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":\"9\"}}", "at least 1" },
    { "{" HEAD HI ",\"thinking\":{\"type\":\"often\"}}", "thinking: want" },
    { "{" HEAD HI ",\"output_config\":{\"format\":{\"type\":\"xml\"}}}", "output_config.format" },
    { "{" HEAD HI ",\"stop_sequences\":\"a\"}", "must be an array" },
    { "{" HEAD HI ",\"service_tier\":\"priority\"}", "service_tier" },
    { "{" HEAD HI ",\"metadata\":7}", "metadata must be" },
};

static void what_is_not_served_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        struct str chat;
        assert_int_equal(rewrite(ANTHROPIC_MESSAGES, refused[i].body, &chat), -EINVAL);
        assert_int_equal(problem.status, 400);
        if (!strstr(problem.message, refused[i].sentence))
            fail_msg("%s: %s", refused[i].body, problem.message);
    }
}

static void blocks_are_bounded(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct str chat;
    for (int over = 0; over < 2; over++) {
        buf_clear(&body);
        buf_text(&body, "{" HEAD "\"messages\":[{\"role\":\"user\",\"content\":[");
        for (int i = 0; i < ANTHROPIC_BLOCKS_MAX + over; i++)
            buf_printf(&body, "%s{\"type\":\"text\",\"text\":\"a\"}", i ? "," : "");
        buf_text(&body, "]}]}");
        assert_int_equal(rewrite(ANTHROPIC_MESSAGES, body.data, &chat), over ? -EINVAL : 0);
    }
    assert_non_null(strstr(problem.message, "more than 1024 blocks"));
}

static void a_short_arena_is_an_error(void **state)
{
    (void)state;
    struct str chat;
    arena_fini(&arena);
    arena_init(&arena, 8);
    assert_int_equal(
        anthropic_to_chat(ANTHROPIC_MESSAGES, STR("{" HEAD HI "}"), &arena, &chat, &problem),
        -ENOMEM);
    assert_int_equal(problem.status, 503);
}

/* ---- responses ---- */

static const struct openai_reply reply = {
    .surface = OPENAI_CHAT, .style = REPLY_ANTHROPIC, .id = { "r1", 2 }, .model = { "m", 1 }
};
static const struct usage before = { .prompt_tokens = 12 };
static const struct usage all = {
    .prompt_tokens = 12, .cached_tokens = 8, .generated_tokens = 5, .reasoning_tokens = 2
};

static void a_stream_has_every_event(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct openai_reply r = reply;
    struct openai_message m;
    r.called = true;
    openai_message_init(&m, &r, &out);
    openai_message_start(&m, &before);
    openai_message_reasoning(&m, STR("hm"));
    openai_message_text(&m, STR("a\n"));
    openai_message_text(&m, STR("b"));
    openai_message_call(&m, 0, STR("f"));
    openai_message_arguments(&m, 0, STR("{\"x\":"));
    openai_message_arguments(&m, 0, STR("1}"));
    anthropic_ping(&out);
    openai_message_end(&m, FINISH_STOP, (struct str){ 0 }, &all);
    assert_int_equal(openai_message_rc(&m), 0);
    openai_message_fini(&m);
    size_t at = str_find(buf_view(&out), STR("\"type\":\"tool_use\",\"id\":\""));
    assert_true(at != SIZE_MAX);
    memset(out.data + at + sizeof "\"type\":\"tool_use\",\"id\":\"" - 1, 'i', 9);
    assert_string_equal(
        out.data,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_r1\","
        "\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],"
        "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":12,"
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0,"
        "\"output_tokens_details\":{\"thinking_tokens\":0}}}}\n\n"
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
        "\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
        "\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n"
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,"
        "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,"
        "\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\n\"}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,"
        "\"delta\":{\"type\":\"text_delta\",\"text\":\"b\"}}\n\n"
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n"
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,"
        "\"content_block\":{\"type\":\"tool_use\",\"id\":\"iiiiiiiii\",\"name\":\"f\",\"input\":{}}"
        "}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,"
        "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\":\"}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,"
        "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"1}\"}}\n\n"
        "event: ping\ndata: {\"type\":\"ping\"}\n\n"
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n"
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
        "\"tool_use\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":4,"
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":8,\"output_tokens\":5,"
        "\"output_tokens_details\":{\"thinking_tokens\":2}}}\n\n"
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

/* The chunks of another server's reply make the same events as the parts of our own parser. */
static void chunks_of_others_make_the_same_events(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf ours = { 0 }, theirs = { 0 };
    struct openai_message m, o;
    openai_message_init(&m, &reply, &ours);
    openai_message_init(&o, &reply, &theirs);
    openai_message_reasoning(&m, STR("h\"m"));
    openai_message_call(&m, 1, STR("f"));
    openai_message_arguments(&m, 1, STR("{}"));
    assert_int_equal(openai_message_delta(&o, STR("\"h\\\"m\""), (struct str){ 0 }), 0);
    assert_int_equal(
        openai_message_delta(&o, (struct str){ 0 },
                             STR("[{\"index\":1,\"id\":\"x\",\"function\":{\"name\":\"f\","
                                 "\"arguments\":\"\"}}]")),
        0);
    assert_int_equal(
        openai_message_delta(&o, (struct str){ 0 },
                             STR("[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]")),
        0);
    assert_true(str_eq(buf_view(&ours), buf_view(&theirs)));
    assert_int_equal(o.call_count, 1);
    assert_int_equal(openai_message_delta(&o, (struct str){ 0 }, STR("[{\"index\":-1}]")), -EINVAL);
    assert_int_equal(openai_message_delta(&o, (struct str){ 0 }, STR("[7]")), -EINVAL);
    openai_message_fini(&m);
    openai_message_fini(&o);
}

static const struct {
    struct openai_choice choice;
    const char *content, *stop;
} wholes[] = {
    { { .text = STR("hi"), .finish = FINISH_STOP },
      "[{\"type\":\"text\",\"text\":\"hi\"}]",
      "\"end_turn\",\"stop_sequence\":null" },
    { { .text = STR("hi"), .finish = FINISH_STOP, .stopped = STR("\n") },
      "[{\"type\":\"text\",\"text\":\"hi\"}]",
      "\"stop_sequence\",\"stop_sequence\":\"\\n\"" },
    { { .reasoning = STR("hm"), .finish = FINISH_LENGTH },
      "[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"}]",
      "\"max_tokens\",\"stop_sequence\":null" },
    { { .tool_calls = STR("[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                          "\"arguments\":\"{\\\"x\\\":1}\"}},{\"id\":\"b\",\"function\":{\"name\":"
                          "\"g\",\"arguments\":\"\"}}]"),
        .finish = FINISH_STOP },
      "[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{\"x\":1}},"
      "{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"g\",\"input\":{}}]",
      "\"tool_use\",\"stop_sequence\":null" },
    { { .tool_calls =
            STR("[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\"}}]"),
        .finish = FINISH_LENGTH },
      "[]",
      "\"max_tokens\",\"stop_sequence\":null" },
};

static void a_whole_message_has_blocks_and_a_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wholes); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 }, want = { 0 };
        buf_printf(&want,
                   "{\"id\":\"msg_r1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\","
                   "\"content\":%s,\"stop_reason\":%s,\"usage\":{\"input_tokens\":4,"
                   "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":8,"
                   "\"output_tokens\":5,\"output_tokens_details\":{\"thinking_tokens\":2}}}",
                   wholes[i].content, wholes[i].stop);
        assert_int_equal(openai_reply_whole(&reply, &wholes[i].choice, 1, &all, &out), 0);
        assert_string_equal(out.data, want.data);
    }
}

static void errors_have_anthropics_types(void **state)
{
    (void)state;
    static const struct {
        enum openai_problem problem;
        const char *type;
    } rows[] = {
        { OPENAI_INVALID, "invalid_request_error" },
        { OPENAI_UNAUTHENTICATED, "authentication_error" },
        { OPENAI_FORBIDDEN, "permission_error" },
        { OPENAI_MODEL_NOT_FOUND, "not_found_error" },
        { OPENAI_DEADLINE, "timeout_error" },
        { OPENAI_TOO_LARGE, "request_too_large" },
        { OPENAI_RATE_LIMIT, "rate_limit_error" },
        { OPENAI_INTERNAL, "api_error" },
        { OPENAI_UPSTREAM, "api_error" },
        { OPENAI_LOADING, "overloaded_error" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 }, want = { 0 };
        struct openai_error e;
        openai_error_set(&e, 0, rows[i].problem, NULL, "why");
        buf_printf(&want,
                   "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":"
                   "\"why\"}}\n\n",
                   rows[i].type);
        assert_int_equal(reply_error_event(REPLY_ANTHROPIC, &e, &out), 0);
        assert_string_equal(out.data, want.data);
    }
    assert_int_equal(reply_style_of(STR("/v1/messages/count_tokens")), REPLY_ANTHROPIC);
    assert_int_equal(reply_style_of(STR("/v1/chat/completions")), REPLY_OPENAI);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_becomes_a_chat),
        cmocka_unit_test(counting_needs_no_limit),
        cmocka_unit_test(what_is_not_served_is_refused_by_name),
        cmocka_unit_test(blocks_are_bounded),
        cmocka_unit_test(a_short_arena_is_an_error),
        cmocka_unit_test(a_stream_has_every_event),
        cmocka_unit_test(chunks_of_others_make_the_same_events),
        cmocka_unit_test(a_whole_message_has_blocks_and_a_reason),
        cmocka_unit_test(errors_have_anthropics_types),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}

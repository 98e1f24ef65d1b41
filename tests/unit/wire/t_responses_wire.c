/* t_responses_wire.c - tests OpenAI's Responses API: the chat that a request becomes, and the responses. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/wire/openai_calls.h"
#include "base/wire/responses.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ARENA_BYTES ((size_t)4 << 20)
#define HI "\"input\":\"hi\""

static struct arena arena;
static struct openai_error problem;
static struct str repeated;

static int rewrite(const char *body, struct str *ret)
{
    arena_fini(&arena);
    arena_init(&arena, ARENA_BYTES);
    return responses_to_chat(str_from(body), &arena, ret, &repeated, &problem);
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static const struct {
    const char *body, *chat;
} rewritten[] = {
    { "{" HI "}", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" },
    { "{\"model\":\"m\",\"instructions\":\"be "
      "\\\"b\\\"\",\"input\":\"h\\ni\",\"max_output_tokens\":9,"
      "\"temperature\":0.5,\"top_p\":0.9,\"stream\":true,\"store\":false,\"include\":"
      "[\"reasoning.encrypted_content\"],\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},"
      "\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"medium\"},\"truncation\":"
      "\"disabled\","
      "\"prompt_cache_key\":\"k\",\"top_k\":3,\"logit_bias\":{\"7\":1},\"stream_options\":{"
      "\"include_obfuscation\":false}}",
      "{\"reasoning_effort\":\"low\",\"model\":\"m\",\"max_tokens\":9,\"temperature\":0.5,"
      "\"top_p\":0.9,\"stream\":true,\"prompt_cache_key\":\"k\",\"top_k\":3,\"logit_bias\":{\"7\":"
      "1},\"messages\":["
      "{\"role\":\"system\",\"content\":\"be "
      "\\\"b\\\"\"},{\"role\":\"user\",\"content\":\"h\\ni\"}]}" },
    { "{\"input\":[{\"role\":\"developer\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
      "{\"type\":\"input_text\",\"text\":\"b\"}]},{\"type\":\"message\",\"role\":\"user\","
      "\"content\":"
      "\"\\u00e4\"},{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[{\"type\":\"summary_text\","
      "\"text\":\"no\"}],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]},"
      "{\"type\":\"message\",\"id\":\"m\",\"role\":\"assistant\",\"status\":\"completed\","
      "\"content\":["
      "{\"type\":\"output_text\",\"text\":\"so\",\"annotations\":[]}]},"
      "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}"
      "\"},"
      "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":\"{}\"},"
      "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"7\"},"
      "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\","
      "\"text\":\"8\"}]},{\"role\":\"assistant\",\"content\":\"x\"},"
      "{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"y\"}]}]}",
      "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\\nb\"},"
      "{\"role\":\"user\",\"content\":\"\\u00e4\"},{\"role\":\"assistant\",\"content\":\"so\","
      "\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
      "\"function\":"
      "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}},{\"id\":\"c2\",\"type\":\"function\","
      "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
      "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"7\"},"
      "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"8\"},"
      "{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"y\"}]}" },
    { "{" HI
      ",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\",\"parameters\":"
      "{\"type\":\"object\"},\"strict\":true}],\"tool_choice\":{\"type\":\"function\",\"name\":"
      "\"f\"},"
      "\"parallel_tool_calls\":false,\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
      "\"schema\":{\"const\":1},\"strict\":true}}}",
      "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":"
      "{\"const\":1},\"strict\":true}},\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
      "\"f\","
      "\"description\":\"d\",\"parameters\":{\"type\":\"object\"},\"strict\":true}}],"
      "\"parallel_tool_calls\":false,\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
      "\"f\"}},\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" },
    { "{" HI ",\"tool_choice\":\"none\",\"text\":{\"format\":{\"type\":\"json_object\"}}}",
      "{\"response_format\":{\"type\":\"json_object\"},\"tool_choice\":\"none\",\"messages\":["
      "{\"role\":\"user\",\"content\":\"hi\"}]}" },
};

static void requests_become_chats(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rewritten); i++) {
        struct str chat = { 0 };
        if (rewrite(rewritten[i].body, &chat) < 0)
            fail_msg("%s: %s", rewritten[i].body, problem.message);
        if (!str_eq(chat, str_from(rewritten[i].chat)))
            fail_msg("%.*s, want %s", STR_ARG(chat), rewritten[i].chat);
    }
}

static const struct {
    const char *body, *param, *says;
} refused[] = {
    { "[]", "", "must be a JSON object" },
    { "{" HI, "", "The body" },
    { "{}", "input", "input is missing" },
    { "{" HI "," HI "}", "input", "twice" },
    { "{" HI ",\"store\":true}", "store", "not stored" },
    { "{" HI ",\"previous_response_id\":\"r\"}", "previous_response_id", "send the whole" },
    { "{" HI ",\"conversation\":\"c\"}", "conversation", "not stored" },
    { "{" HI ",\"background\":true}", "background", "not stored" },
    { "{" HI ",\"truncation\":\"auto\"}", "truncation", "refused, not cut" },
    { "{" HI ",\"include\":[\"message.output_text.logprobs\"]}", "include", "not served" },
    { "{" HI ",\"tools\":[{\"type\":\"web_search\"}]}", "tools", "web_search" },
    { "{" HI ",\"tools\":[{\"type\":\"function\"}]}", "tools", "needs a name" },
    { "{" HI ",\"tool_choice\":{\"type\":\"mcp\"}}", "tool_choice", "are served" },
    { "{" HI ",\"text\":{\"format\":{\"type\":\"grammar\"}}}", "text", "are served" },
    { "{" HI ",\"text\":{\"verbosity\":\"high\"}}", "text", "verbosity" },
    { "{" HI ",\"instructions\":1}", "instructions", "a string" },
    { "{\"input\":[1]}", "input", "needs a role or a type" },
    { "{\"input\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "input", "needs the role" },
    { "{\"input\":[{\"role\":\"user\"}]}", "input", "a string or an array" },
    { "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}", "input",
      "input_image" },
    { "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]}", "input",
      "without text" },
    { "{\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]}", "input", "needs call_id" },
    { "{\"input\":[{\"type\":\"function_call_output\"}]}", "input", "without call_id" },
    { "{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", "input", "item_reference" },
};

static void mistakes_have_their_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        struct str chat = { 0 };
        assert_int_equal(rewrite(refused[i].body, &chat), -EINVAL);
        assert_string_equal(problem.param, refused[i].param);
        if (!strstr(problem.message, refused[i].says))
            fail_msg("%s: \"%s\"", refused[i].body, problem.message);
    }
}

/* ---- responses ---- */

/* Checks that every event's data is JSON, numbered in turn; returns the events' names with commas. */
static void read_events(const struct buf *out, struct buf *names)
{
    struct str rest = buf_view(out);
    uint64_t number = 0;
    while (rest.len > 0) {
        struct str name = str_cut(&rest, '\n'), data = str_cut(&rest, '\n');
        struct json_reader r;
        assert_true(str_starts(name, STR("event: ")) && str_starts(data, STR("data: ")));
        assert_int_equal(str_cut(&rest, '\n').len, 0);
        buf_str(names, str_of(name.data + 7, name.len - 7));
        buf_byte(names, ' ');
        json_reader_init(&r, str_of(data.data + 6, data.len - 6));
        assert_int_equal(json_next(&r), JSON_OBJECT);
        while (json_next(&r) == JSON_KEY) {
            bool is_number = json_key_is(&r, "sequence_number");
            uint64_t v = 0;
            json_skip(&r);
            if (is_number) assert_true(json_u64(&r, &v) == 0 && v == number);
        }
        assert_int_equal(json_next(&r), JSON_END);
        number++;
    }
}

static const struct usage usage = {
    .prompt_tokens = 5, .cached_tokens = 4, .generated_tokens = 7, .reasoning_tokens = 3
};

static void has(const struct buf *out, const char *text)
{
    if (str_find(buf_view(out), str_from(text)) == SIZE_MAX)
        fail_msg("no %s in %.*s", text, (int)out->len, out->data);
}

#define OUTPUT(last)                                                                               \
    "\"output\":[{\"id\":\"rs_1_0\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[" \
    "],"                                                                                           \
    "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]},"                                \
    "{\"id\":\"msg_1_1\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\","    \
    "\"content\":[{\"type\":\"output_text\",\"text\":\"so\\\"\",\"annotations\":[],\"logprobs\":[" \
    "]}]},"                                                                                        \
    "{\"id\":\"fc_1_2\",\"type\":\"function_call\",\"status\":\"" last "\",\"call_id\":\""

static void streams_and_whole_responses_are_alike(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, names = { 0 }, whole_out = { 0 };
    const struct openai_reply r = { .style = REPLY_RESPONSES,
                                    .id = STR("1"),
                                    .model = STR("m"),
                                    .repeated = STR(",\"tools\":[]") };
    for (int streamed = 1; streamed >= 0; streamed--) {
        struct openai_message m;
        openai_message_init(&m, &r, streamed ? &out : NULL);
        if (streamed) openai_message_start(&m, &usage);
        openai_message_reasoning(&m, STR("h"));
        openai_message_reasoning(&m, STR("m"));
        openai_message_text(&m, STR("so"));
        openai_message_text(&m, STR(""));
        openai_message_text(&m, STR("\""));
        openai_message_call(&m, 0, STR("f"));
        openai_message_arguments(&m, 0, STR("{\"x\":"));
        openai_message_arguments(&m, 0, STR("1"));
        if (streamed) {
            openai_message_end(&m, FINISH_LENGTH, (struct str){ 0 }, &usage);
        } else {
            struct openai_choice choice = openai_message_choice(&m);
            choice.finish = FINISH_LENGTH;
            assert_int_equal(openai_reply_whole(&r, &choice, 1, &usage, &whole_out), 0);
        }
        assert_int_equal(openai_message_rc(&m), 0);
        openai_message_fini(&m);
    }
    read_events(&out, &names);
#define ITEM(part, deltas)                                                \
    "response.output_item.added response.content_part.added " deltas part \
    ".done response.content_part.done "                                   \
    "response.output_item.done "
    assert_true(str_eq(
        buf_view(&names),
        STR("response.created response.in_progress " ITEM(
            "response.reasoning_text",
            "response.reasoning_text.delta response.reasoning_text.delta ")
                ITEM("response.output_text", "response.output_text.delta "
                                             "response.output_text.delta ") "response.output_item."
                                                                            "added "
                                                                            "response.function_"
                                                                            "call_arguments.delta "
                                                                            "response.function_"
                                                                            "call_arguments.delta "
                                                                            "response.function_"
                                                                            "call_arguments.done "
                                                                            "response.output_item."
                                                                            "done "
                                                                            "response."
                                                                            "incomplete ")));
    has(&out, OUTPUT("incomplete"));
    has(&whole_out, OUTPUT("incomplete"));
    /* the last event's response is the whole one */
    size_t at = str_find(buf_view(&out), STR("event: response.incomplete\n"));
    struct str last = str_of(out.data + at, out.len - at);
    assert_true(str_find(last, buf_view(&whole_out)) != SIZE_MAX);
    has(&whole_out, "\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1\"}]");
    has(&whole_out, "\"usage\":{\"input_tokens\":5,\"input_tokens_details\":{\"cached_tokens\":4},"
                    "\"output_tokens\":7,\"output_tokens_details\":{\"reasoning_tokens\":3},");
    has(&whole_out, "\"total_tokens\":12},\"tools\":[]}");
}

static void a_failed_stream_says_so(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, names = { 0 };
    const struct openai_reply r = { .style = REPLY_RESPONSES, .id = STR("1"), .model = STR("m") };
    struct openai_message m;
    openai_message_init(&m, &r, &out);
    openai_message_start(&m, &usage);
    openai_error_set(&problem, 0, OPENAI_UPSTREAM, NULL, "it broke");
    openai_message_error(&m, &problem, &out);
    openai_message_fini(&m);
    read_events(&out, &names);
    assert_true(str_eq(buf_view(&names), STR("response.created response.in_progress error ")));
    has(&out, "\"code\":\"upstream_failed\",\"message\":\"it broke\",\"param\":null}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_become_chats),
        cmocka_unit_test(mistakes_have_their_sentence),
        cmocka_unit_test(streams_and_whole_responses_are_alike),
        cmocka_unit_test(a_failed_stream_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}

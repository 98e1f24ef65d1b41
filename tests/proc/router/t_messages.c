/* t_messages.c - tests /v1/messages at a router and at its engine: by plain HTTP, and by Anthropic's Python client
 * where it is installed. */
#include "base/core/own.h"
#include "tests/proc/router/pair_rig.h"

#include <stdio.h>
#include <string.h>

#define PATH "/v1/messages"
#define COUNT PATH "/count_tokens"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}]"
#define TOOL                                                                                  \
    "\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"x\":" \
    "{\"enum\":[\"a\"]}},\"required\":[\"x\"],\"additionalProperties\":false}}],"             \
    "\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}"

static int setup(void **state)
{
    (void)state;
    pair_start(ARGS("--tool-call-parser", "hermes"));
    return 0;
}

static void a_text_comes_whole_and_streamed(void **state)
{
    (void)state;
    BOTH(PATH, "{\"max_tokens\":3,\"temperature\":0," HI "}", 200, "{\"id\":\"msg_",
         "\"type\":\"message\",\"role\":\"assistant\"",
         "\"content\":[{\"type\":\"text\",\"text\":\"",
         "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null", "\"output_tokens\":3");
    BOTH(PATH, "{\"max_tokens\":3,\"temperature\":0,\"stream\":true," HI "}", 200,
         "event: message_start\ndata: ", "event: content_block_start\ndata: ",
         "{\"type\":\"text_delta\",\"text\":\"", "event: content_block_stop\ndata: ",
         "event: message_delta\ndata: ", "\"stop_reason\":\"max_tokens\"", "\"output_tokens\":3",
         "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void a_call_can_be_forced(void **state)
{
    (void)state;
    BOTH(PATH, "{\"max_tokens\":200," HI "," TOOL "}", 200, "\"type\":\"tool_use\",\"id\":\"",
         "\"name\":\"f\",\"input\":{", "\"a\"", "\"stop_reason\":\"tool_use\"");
    BOTH(PATH, "{\"max_tokens\":200,\"stream\":true," HI "," TOOL "}", 200,
         "\"content_block\":{\"type\":\"tool_use\",\"id\":\"", "\"name\":\"f\",\"input\":{}}}",
         "{\"type\":\"input_json_delta\",\"partial_json\":\"", "\"stop_reason\":\"tool_use\"",
         "event: message_stop");
}

static void tokens_are_counted(void **state)
{
    (void)state;
    BOTH(COUNT, "{\"model\":\"muster-tiny\",\"system\":\"be brief\"," HI "," TOOL "}", 200,
         "{\"input_tokens\":");
    BOTH(COUNT, "{}", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"");
}

static void refusals_are_in_anthropics_form(void **state)
{
    (void)state;
    BOTH(PATH, "{" HI "}", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"",
         "max_tokens is missing");
    BOTH(PATH, "{\"max_tokens\":1,\"model\":\"other\"," HI "}", 404, "\"not_found_error\"");
    BOTH(PATH,
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
         400, "image");
    BOTH(PATH "/batches", "{}", 404, "{\"type\":\"error\"", "not_found_error");
}

/* The engine's device hangs in the midst of a stream, until the request's time is over. */
static void a_silent_stream_is_pinged(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct rig_process hangs =
        rig_server("engine", rig_port(), ARGS("--model", MODEL, "--fault", "device.hang:6"));
    struct rig_process before =
        rig_server("router", rig_port(), ARGS("--endpoints", hangs.at, "--ping", "100ms"));
    rig_wait_endpoints(&before, 1);
    assert_int_equal(rig_call_with(before.port, PATH, "x-request-timeout-ms: 2000",
                                   "{\"max_tokens\":60,\"temperature\":0,\"stream\":true," HI "}",
                                   &reply),
                     200);
    const char *const text[] = { "event: message_start\n", "{\"type\":\"text_delta\",\"text\":\"",
                                 "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: ping\n",
                                 "event: error\n", "timeout_error" };
    pair_must_have(&reply, text, COUNT_OF(text));
    rig_kill(&hangs);
    assert_int_equal(rig_stop(&before), 0);
}

static void the_official_client_is_served(void **state)
{
    (void)state;
    char url[64];
    if (system("python3 -c 'import anthropic' 2>/dev/null") != 0) {
        print_message("the Python package anthropic is not installed\n");
        skip();
    }
    const char *at[] = { pair.router.at, pair.engine.at };
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        snprintf(url, sizeof url, "http://%s", at[i]);
        const char *argv[] = { "python3", "tests/proc/router/messages_client.py", url, NULL };
        int code = rig_client("messages_client", argv, 4);
        assert_int_equal(code, 0);
    }
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_comes_whole_and_streamed),
        cmocka_unit_test(a_call_can_be_forced),
        cmocka_unit_test(tokens_are_counted),
        cmocka_unit_test(refusals_are_in_anthropics_form),
        cmocka_unit_test(a_silent_stream_is_pinged),
        cmocka_unit_test(the_official_client_is_served),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, pair_end));
}

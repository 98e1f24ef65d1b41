/* t_responses.c - tests /v1/responses at a router and at its engine: by plain HTTP, and by OpenAI's Python client where
 * it is installed. */
#include "base/core/own.h"
#include "tests/proc/router/pair_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "/v1/responses"
#define TOOL                                                                                \
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"," \
    "\"properties\":{\"x\":{\"enum\":[\"a\"]}},\"required\":[\"x\"],"                       \
    "\"additionalProperties\":false}}],\"tool_choice\":\"required\",\"parallel_tool_calls\":false"

static int setup(void **state)
{
    (void)state;
    pair_start(ARGS("--tool-call-parser", "hermes"));
    return 0;
}

static void a_text_comes_whole_and_streamed(void **state)
{
    (void)state;
    BOTH(PATH, "{\"input\":\"hi\",\"max_output_tokens\":3,\"temperature\":0}", 200,
         "{\"id\":\"resp_", "\"object\":\"response\"", "\"status\":\"incomplete\"",
         "\"reason\":\"max_output_tokens\"", "\"output\":[{\"id\":\"msg_",
         "\"type\":\"message\",\"status\":\"incomplete\"",
         "\"content\":[{\"type\":\"output_text\",\"text\":\"", "\"annotations\":[]",
         "\"output_tokens\":3", "\"total_tokens\":", "\"max_output_tokens\":3", "\"store\":false");
    BOTH(PATH, "{\"input\":\"hi\",\"max_output_tokens\":3,\"temperature\":0,\"stream\":true}", 200,
         "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0",
         "event: response.in_progress\n", "event: response.output_item.added\n",
         "event: response.content_part.added\n", "event: response.output_text.delta\n",
         "\"delta\":\"", "event: response.output_text.done\n",
         "event: response.content_part.done\n", "event: response.output_item.done\n",
         "event: response.incomplete\n", "\"output\":[{\"id\":\"msg_", "\"output_tokens\":3");
}

static void a_call_can_be_forced(void **state)
{
    (void)state;
    BOTH(PATH, "{\"input\":\"hi\",\"max_output_tokens\":200," TOOL "}", 200,
         "\"status\":\"completed\"",
         "\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"", "\"name\":\"f\"",
         "\"arguments\":\"{", "\\\"a\\\"", "\"parallel_tool_calls\":false");
    BOTH(PATH, "{\"input\":\"hi\",\"max_output_tokens\":200,\"stream\":true," TOOL "}", 200,
         "event: response.output_item.added\n", "\"arguments\":\"\"",
         "event: response.function_call_arguments.delta\n",
         "event: response.function_call_arguments.done\n", "\"name\":\"f\",\"arguments\":\"{",
         "event: response.output_item.done\n", "event: response.completed\n");
}

static void forms_and_earlier_reasoning_are_taken(void **state)
{
    (void)state;
    const char *const grammar =
        "{\"input\":\"hi\",\"max_output_tokens\":60,\"temperature\":1,\"stream\":false,"
        "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{\"const\":true}}"
        "}}";
    BOTH(PATH, grammar, 200, "\"text\":\"true\"", "\"format\":{\"type\":\"json_schema\"");
    BOTH(
        PATH,
        "{\"input\":[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":"
        "\"reasoning_text\",\"text\":\"hm\"}]},{\"role\":\"assistant\",\"content\":\"so\"},"
        "{\"role\":\"user\",\"content\":\"on\"}],\"max_output_tokens\":2}",
        200, "\"input_tokens\":");
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    BOTH(PATH, "{}", 400, "{\"error\":{\"message\":\"input is missing");
    BOTH(PATH, "{\"input\":\"a\",\"previous_response_id\":\"r\"}", 400, "responses are not stored",
         "\"param\":\"previous_response_id\"", "unsupported_parameter");
    BOTH(PATH, "{\"input\":\"a\",\"store\":true}", 400, "store: true is not served");
    BOTH(PATH, "{\"input\":\"a\",\"model\":\"other\"}", 404, "model_not_found");
    BOTH(PATH, "{\"input\":\"a\",\"temperature\":9}", 400, "temperature: 9 is outside 0..2");
    BOTH(PATH, "{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", 400, "item_reference");
}

static bool has_client(void)
{
    if (system("python3 -c 'import openai' 2>/dev/null") == 0) return true;
    print_message("the Python package openai is not installed\n");
    return false;
}

static void the_official_client_is_served(void **state)
{
    (void)state;
    char url[64];
    if (!has_client()) skip();
    const char *at[] = { pair.router.at, pair.engine.at };
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        snprintf(url, sizeof url, "http://%s", at[i]);
        const char *argv[] = { "python3", "tests/proc/router/responses_client.py", url, NULL };
        assert_int_equal(rig_client("responses_client", argv, 4), 0);
    }
}

static void a_stream_goes_on_at_another_engine(void **state)
{
    (void)state;
    if (!has_client()) skip();
    pair_killed("tests/proc/router/responses_client.py", ARGS("--tool-call-parser", "hermes"));
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_comes_whole_and_streamed),
        cmocka_unit_test(a_call_can_be_forced),
        cmocka_unit_test(forms_and_earlier_reasoning_are_taken),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(the_official_client_is_served),
        cmocka_unit_test(a_stream_goes_on_at_another_engine),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, pair_end));
}

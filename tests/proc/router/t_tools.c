/* t_tools.c - runs OpenAI's Python client against a router and its engines, for tool calls and structural tags. An
 * argument sets the number of schemas. */
#include "tests/proc/router/pair_rig.h"

#include <stdio.h>

static const char *schemas = "50";

static int setup(void **state)
{
    (void)state;
    pair_start(ARGS("--tool-call-parser", "hermes"));
    return 0;
}

static void calls_are_valid(void **state)
{
    (void)state;
    char url[64];
    snprintf(url, sizeof url, "http://%s", pair.router.at);
    const char *argv[] = { "python3", "tests/proc/router/tools.py", url, schemas, NULL };
    assert_int_equal(rig_client("tools", argv, 10), 0);
}

static void a_call_goes_on_at_another_engine(void **state)
{
    (void)state;
    pair_killed("tests/proc/router/tools.py", ARGS("--tool-call-parser", "hermes"));
}

int main(int argc, char **argv)
{
    if (argc > 1) schemas = argv[1];
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (system("python3 -c 'import jsonschema, openai' 2>/dev/null") != 0) {
        print_message("skipped: the Python packages jsonschema and openai are not installed\n");
        return RIG_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_valid),
        cmocka_unit_test(a_call_goes_on_at_another_engine),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, pair_end));
}

/* t_tools.c - runs OpenAI's Python client against a router and two engines, for tool calls and structural tags. An
 * argument sets the number of schemas. */
#include "tests/proc/rig/rig.h"

#include <stdio.h>

static const char *schemas = "50";

static struct rig_process start_engine(void)
{
    return rig_server("engine", rig_port(),
                      ARGS("--model", MODEL, "--served-model-name", "muster-tiny",
                           "--tool-call-parser", "hermes"));
}

static void calls_are_valid(void **state)
{
    (void)state;
    char url[64], both[128], pid[2][64];
    struct rig_process engine[2] = { start_engine(), start_engine() };
    snprintf(both, sizeof both, "%s,%s", engine[0].at, engine[1].at);
    struct rig_process router = rig_server("router", rig_port(), ARGS("--endpoints", both));
    rig_wait_endpoints(&router, 2);
    snprintf(url, sizeof url, "http://%s", router.at);
    for (int i = 0; i < 2; i++)
        snprintf(pid[i], sizeof pid[i], "static-%d=%lld", i, (long long)engine[i].proc.id.pid);
    const char *argv[] = { "python3", "tests/proc/router/tools.py", url, schemas, pid[0], pid[1],
                           NULL };
    int code = rig_client("tools", argv, 10);
    for (int i = 0; i < 2; i++)
        rig_stop(&engine[i]); /* one was killed by the client */
    int router_code = rig_stop(&router);
    assert_int_equal(code, 0);
    assert_int_equal(router_code, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) schemas = argv[1];
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (system("python3 -c 'import jsonschema, openai' 2>/dev/null") != 0) {
        print_message("skipped: the Python packages jsonschema and openai are not installed\n");
        return RIG_SKIP;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(calls_are_valid) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

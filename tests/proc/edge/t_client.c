/* t_client.c - runs OpenAI's Python client, where it is installed, against a router and a real engine. */
#include "tests/proc/rig/rig.h"

#include <stdio.h>

static struct rig_process engine, router;

static void the_official_client_is_served(void **state)
{
    (void)state;
    char url[64];
    engine = rig_server("engine", rig_port(),
                        ARGS("--model", MODEL, "--served-model-name", "muster-tiny"));
    router = rig_server("router", rig_port(), ARGS("--endpoints", engine.at));
    rig_wait_endpoints(&router, 1);
    snprintf(url, sizeof url, "http://%s", router.at);
    const char *argv[] = { "python3", "tests/proc/edge/openai_client.py", url, NULL };
    int code = rig_client("openai_client", argv, 2);
    int engine_code = rig_stop(&engine), router_code = rig_stop(&router);
    assert_int_equal(code, 0);
    assert_int_equal(engine_code, 0);
    assert_int_equal(router_code, 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (system("python3 -c 'import openai' 2>/dev/null") != 0) {
        print_message("skipped: the Python package openai is not installed\n");
        return RIG_SKIP;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_official_client_is_served) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

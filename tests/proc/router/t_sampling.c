/* t_sampling.c - runs sampling_client.py against a real engine and a router before it. */
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <stdlib.h>

static struct rig_process engine, router;

static void official_client(const char *at)
{
    const char *argv[] = { "python3", "tests/proc/router/echo_client.py", at, NULL };
    if (system("python3 -c 'import openai' 2>/dev/null") != 0)
        print_message("the Python package openai is not installed\n");
    else
        assert_int_equal(rig_client("echo_client", argv, 4), 0);
}

static void sampling_is_served_through_both(void **state)
{
    (void)state;
    char at_engine[64], at_router[64];
    engine =
        rig_server("engine", rig_port(),
                   ARGS("--model", MODEL, "--threads", "1", "--served-model-name", "muster-tiny"));
    router = rig_server("router", rig_port(), ARGS("--endpoints", engine.at));
    rig_wait_endpoints(&router, 1);
    snprintf(at_engine, sizeof at_engine, "http://%s", engine.at);
    snprintf(at_router, sizeof at_router, "http://%s", router.at);
    const char *argv[] = { "python3", "tests/proc/router/sampling_client.py", at_engine, at_router,
                           NULL };
    int code = rig_client("sampling_client", argv, 3);
    official_client(at_engine);
    official_client(at_router);
    int engine_code = rig_stop(&engine), router_code = rig_stop(&router);
    assert_int_equal(code, 0);
    assert_int_equal(engine_code, 0);
    assert_int_equal(router_code, 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = { cmocka_unit_test(sampling_is_served_through_both) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

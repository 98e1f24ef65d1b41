/* t_schemas.c - outputs of the shipped model under JSON schemas, through a router, judged by the Python package
 * jsonschema. An argument sets the number of schemas. */
#include "tests/proc/rig/rig.h"

#include <stdio.h>

#define SCHEMAS "300"

static const char *schemas = SCHEMAS;

static void outputs_are_valid(void **state)
{
    (void)state;
    char url[64];
    struct rig_process engine = rig_server("engine", rig_port(), ARGS("--model", MODEL));
    struct rig_process router = rig_server("router", rig_port(), ARGS("--endpoints", engine.at));
    rig_wait_endpoints(&router, 1);
    snprintf(url, sizeof url, "http://%s", router.at);
    const char *argv[] = { "python3", "tests/proc/router/schemas.py", url, schemas, NULL };
    int code = rig_client("schemas", argv, 10);
    int engine_code = rig_stop(&engine), router_code = rig_stop(&router);
    assert_int_equal(code, 0);
    assert_int_equal(engine_code, 0);
    assert_int_equal(router_code, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) schemas = argv[1];
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (system("python3 -c 'import jsonschema' 2>/dev/null") != 0) {
        print_message("skipped: the Python package jsonschema is not installed\n");
        return RIG_SKIP;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(outputs_are_valid) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

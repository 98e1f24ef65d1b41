/* t_client.c - the official Python client against a router and a real engine, where it is there. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig.h"

#include <stdio.h>
#include <unistd.h>

#define MODEL "models/muster-tiny-q8_0.gguf"
#define SKIPPED 77 /* to ctest */

static struct rig_process engine, router;

static void start_engine(void)
{
    char listen[32];
    uint16_t port = rig_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    const char *argv[] = {
        getenv("MUSTER_BIN"),  "engine",      "--listen", listen, "--model", MODEL,
        "--served-model-name", "muster-tiny", NULL
    };
    engine = rig_start("engine", argv, port, "/health", 200);
}

static bool router_is_ready(void *arg)
{
    (void)arg;
    return rig_metric(router.port, "muster_router_endpoints") == 1;
}

static void start_router(void)
{
    char listen[32], endpoint[32];
    uint16_t port = rig_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", engine.port);
    const char *argv[] = { getenv("MUSTER_BIN"), "router", "--listen", listen,
                           "--endpoints",        endpoint, NULL };
    router = rig_start("router", argv, port, "/health", 200);
    rig_wait(router_is_ready, NULL, "the router knows the engine");
}

static void the_official_client_is_served(void **state)
{
    (void)state;
    char url[64];
    start_engine();
    start_router();
    snprintf(url, sizeof url, "http://127.0.0.1:%u", router.port);
    const char *argv[] = { "python3", "tests/proc/openai_client.py", url, NULL };
    struct rig_process client = rig_start("openai_client", argv, 1, NULL, 0);
    struct proc_exit how = { 0 };
    CLEANUP(buf_fini) struct buf log = { 0 };
    assert_int_equal(proc_wait(&client.proc, 2 * (int64_t)RIG_WAIT_US, &how), 0);
    proc_close(&client.proc);
    assert_int_equal(file_read(client.log, 1 << 20, &log, NULL), 0);
    print_message("%.*s", (int)log.len, log.data);
    int engine_code = rig_stop(&engine), router_code = rig_stop(&router);
    assert_true(!how.killed && how.code == 0);
    assert_int_equal(engine_code, 0);
    assert_int_equal(router_code, 0);
}

int main(void)
{
    if (!getenv("MUSTER_BIN") || access(MODEL, R_OK) < 0) {
        print_message("skipped: MUSTER_BIN or " MODEL " is missing\n");
        return SKIPPED;
    }
    if (system("python3 -c 'import openai' 2>/dev/null") != 0) {
        print_message("skipped: the Python package openai is not installed\n");
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_official_client_is_served) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

/* t_sampling.c - runs sampling_client.py against a real engine and a router before it. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>

static struct rig_process engine, router;

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
    struct rig_process client = rig_start("sampling_client", argv, 1, NULL, 0);
    struct proc_exit how = { 0 };
    CLEANUP(buf_fini) struct buf log = { 0 };
    assert_int_equal(proc_wait(&client.proc, 3 * (int64_t)RIG_WAIT_US, &how), 0);
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
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = { cmocka_unit_test(sampling_is_served_through_both) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}

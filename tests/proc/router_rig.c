/* router_rig.c - see router_rig.h. */
#include "tests/proc/router_rig.h"

#include <stdio.h>

struct rig_process engine[ENGINES], router;

void start_fake(uint32_t i, const char *const *more)
{
    if (engine[i].port == 0) engine[i].port = rig_port();
    engine[i] = rig_fake_engine(engine[i].port, more);
}

void start_router(const char *const role[ENGINES], const char *const *more)
{
    char list[256] = "";
    const char *args[RIG_ARGS_MAX] = { "--endpoints", list, "--sync", "100ms" };
    uint32_t count = 0;
    for (uint32_t i = 0; i < ENGINES && role[i]; i++) {
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s127.0.0.1:%u%s%s", i ? "," : "", engine[i].port,
                 role[i][0] ? "/" : "", role[i]);
        count += rig_is_alive(&engine[i]);
    }
    rig_add_args(args, 4, more);
    router = rig_server("router", rig_port(), args);
    rig_wait_endpoints(&router, count);
}

int cleanup(void **state)
{
    (void)state;
    int code = rig_stop(&router);
    for (uint32_t i = 0; i < ENGINES; i++) {
        rig_kill(&engine[i]);
        engine[i] = (struct rig_process){ 0 };
    }
    assert_int_equal(code, 0);
    return 0;
}

int64_t seen(uint32_t i, const char *what)
{
    return rig_number(engine[i].port, "/seen", what);
}

double counted(const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "muster_router_%s_total", what);
    return rig_metric(router.port, name);
}

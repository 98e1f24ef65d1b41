/* fleet_rig.c - see fleet_rig.h. */
#include "tests/proc/fleet_rig.h"

#include "base/core/own.h"
#include "base/io/file.h"

#include <stdio.h>

#define SERVICES "/api/v1/services"

struct rig_process controller, router;
char fleet_state[128], fleet_secret[160];
static char config[160];

void fleet_start_controller(void)
{
    uint16_t port = controller.port ? controller.port : rig_port();
    controller = rig_server("controller", port, ARGS("--config", config));
}

void fleet_start_router(void)
{
    uint16_t port = router.port ? router.port : rig_port();
    router = rig_server(
        "router", port,
        ARGS("--config", config, "--controller", controller.at, "--secret-file", fleet_secret));
}

void fleet_open(const char *tick, const char *yaml)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    snprintf(fleet_state, sizeof fleet_state, "%s/state", rig_folder());
    snprintf(fleet_secret, sizeof fleet_secret, "%s/secret", fleet_state);
    snprintf(config, sizeof config, "%s/muster.yaml", rig_folder());
    buf_printf(&text, "controller: { tick: %s, state: '%s' }\n%s", tick, fleet_state, yaml);
    assert_int_equal(file_write_atomic(config, buf_view(&text), 0600, NULL), 0);
    rig_hurry_agents();
    fleet_start_controller();
    fleet_start_router();
}

void fleet_scale(int count)
{
    char body[64];
    snprintf(body, sizeof body,
             count < 0 ? "{\"pool\":\"only\",\"count\":null}" : "{\"pool\":\"only\",\"count\":%d}",
             count);
    assert_int_equal(rig_call(controller.port, SERVICES "/tiny/scale", body, NULL), 200);
}

bool fleet_is_at(uint32_t count)
{
    return rig_number(controller.port, SERVICES, "ready") == count &&
           rig_number(controller.port, SERVICES, "starting") == 0 &&
           rig_number(controller.port, SERVICES, "draining") == 0 &&
           rig_metric(router.port, "muster_router_endpoints") == count;
}

static bool is_at(void *arg)
{
    return fleet_is_at(*(const uint32_t *)arg);
}

void fleet_wait(uint32_t count)
{
    char what[64];
    snprintf(what, sizeof what, "%u instances are ready and no other", count);
    rig_wait(is_at, &count, what);
}

/* cmd_router.c - `muster router`. */
#include "cli/cmd_role.h"
#include "cli/command.h"
#include "router/router.h"

static int run_router(const void *section, struct err *err)
{
    return router_main(section, err);
}

static int run(int argc, char *const *argv)
{
    return role_run("muster router",
                    "Take client requests and send each where its first token is expected soonest.",
                    &router_section, argc, argv, run_router);
}

const struct command command_router = {
    .name = "router",
    .group = "Roles",
    .about = "route requests to engines",
    .run = run,
};

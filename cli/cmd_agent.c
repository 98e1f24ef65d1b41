/* cmd_agent.c - `muster agent`. */
#include "agent/agent.h"
#include "cli/cmd_role.h"
#include "cli/command.h"

static int run_agent(const void *section, struct err *err)
{
    return agent_main(section, err);
}

static int run(int argc, char *const *argv)
{
    return role_run("muster agent",
                    "Supervise the engine of one instance; the controller's clouds start it.",
                    &agent_section, argc, argv, run_agent);
}

const struct command command_agent = {
    .name = "agent",
    .group = "Roles",
    .about = "supervise one engine",
    .run = run,
};

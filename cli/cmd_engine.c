/* cmd_engine.c - `muster engine`. */
#include "cli/cmd_role.h"
#include "cli/command.h"
#include "engine/engine.h"

static int run_engine(const void *section, struct err *err)
{
    return engine_main(section, err);
}

static int run(int argc, char *const *argv)
{
    return role_run("muster engine", "Serve one model on this machine.", &engine_section, argc,
                    argv, run_engine);
}

const struct command command_engine = {
    .name = "engine",
    .group = "Roles",
    .about = "serve one model",
    .run = run,
};

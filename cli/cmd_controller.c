/* cmd_controller.c - `muster controller`. */
#include "cli/cmd_role.h"
#include "cli/command.h"
#include "controller/controller.h"

static int run_controller(const struct config *config, struct err *err)
{
    const struct config_records *services = config_section_get(config, services_section.name);
    struct controller_config c = {
        .controller = config_section_get(config, controller_section.name),
        .service = services->items,
        .service_count = services->count,
        .local = config_section_get(config, local_section.name),
        .whole = config,
    };
    return controller_main(&c, err);
}

static int run(int argc, char *const *argv)
{
    return role_run_whole("muster controller",
                          "Keep each service as large as its promise needs, at the least cost.",
                          &controller_section, argc, argv, run_controller);
}

const struct command command_controller = {
    .name = "controller",
    .group = "Roles",
    .about = "launch, drain and end instances as demand asks",
    .run = run,
};

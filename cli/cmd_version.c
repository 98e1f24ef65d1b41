/* cmd_version.c - which build this is. */
#include "cli/command.h"

#include <stdio.h>

static int run(int argc, char *const *argv)
{
    (void)argc, (void)argv;
    printf("muster %s (gcc-compatible %s)\n", MUSTER_VERSION, __VERSION__);
    return 0;
}

const struct command command_version = {
    .name = "version",
    .group = "Help",
    .about = "print the version",
    .run = run,
};

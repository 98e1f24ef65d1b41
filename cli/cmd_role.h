/* cmd_role.h - what the commands that run a role share: options, configuration, help.
 *
 * Layer: cli (base/io)
 */
#pragma once
#include "base/io/opt.h"

/* Parses argv against the role's section of the configuration (flag > environment > file >
 * default; --config FILE names the file) and calls run with the section's struct. Returns the
 * exit status. */
int role_run(const char *command, const char *about, const struct config_section *section, int argc,
             char *const *argv, int (*run)(const void *section, struct err *err));

/* The same for a role that reads other sections too: run gets the whole configuration. */
int role_run_whole(const char *command, const char *about, const struct config_section *section,
                   int argc, char *const *argv,
                   int (*run)(const struct config *config, struct err *err));

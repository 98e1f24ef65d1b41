/* schema.h - holds the whole configuration, the sections of all roles in one tree, and checks whether a fleet
 * can be started from a file.
 *
 * Layer: cli (every role's configuration)
 */
#pragma once
#include "base/io/config/config.h"

extern const struct config_schema schema;

/* Loads `path` with the environment and checks what single fields cannot: that the named pools, policies and
 * offers exist and that the models can be read. `problems` (may be NULL) receives all sentences, one a line;
 * err the first. */
int check_file(const char *path, struct config **ret, struct buf *problems, struct err *err);

/* Makes the same checks of a configuration that is loaded. */
int check_loaded(const struct config *config, struct buf *problems, struct err *err);

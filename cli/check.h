/* check.h - is this configuration one that a fleet can be started from?
 *
 * Layer: cli (every role's configuration)
 */
#pragma once
#include "base/io/config.h"

/* Loads `path` with the environment and checks what the rows alone cannot: that pools, policies
 * and offers that are named exist and that the models can be read. `problems` (may be NULL)
 * receives all sentences, one a line; err the first. */
int check_file(const char *path, struct config **ret, struct buf *problems, struct err *err);

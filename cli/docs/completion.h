/* completion.h - makes shell completions from the tables of --help.
 *
 * Layer:   cli (base/io/config, policies)
 * Threads: the main one
 */
#pragma once
#include "cli/command.h"

/* Names of the shells, NULL-terminated. */
extern const char *const completion_shells[];

/* Appends the script for `shell`. -EINVAL with a sentence for another shell. */
int completion_script(struct str shell, const struct command *const *commands, struct buf *out,
                      struct err *err);

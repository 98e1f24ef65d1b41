/* cmd_run.h - the frame of a command: options, help, the sentence at the end, the exit status.
 *
 * Layer: cli (base/io)
 */
#pragma once
#include "base/io/opt.h"

/* What fn returns for arguments that are wrong in a way that the rows cannot say. */
#define COMMAND_MISUSED (-EBADRQC)

/* Parses argv into `options` and calls fn. fn returns an exit status, or a negative errno with a
 * sentence: that is printed behind the command's name; -ETIMEDOUT exits with EXIT_TIMED_OUT,
 * COMMAND_MISUSED with EXIT_USAGE, anything else with EXIT_FAILED. */
int command_run(const struct opt_command *usage, int argc, char *const *argv, void *options,
                int (*fn)(const void *options, struct err *err));

/* Writes `out` to stdout, whole. -EIO and the like when nobody takes it. */
int command_print(const struct buf *out, struct err *err);

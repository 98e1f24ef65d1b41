/* model_file.h - the shape of a model that an option names: a shipped one's, or a file's.
 *
 * Layer: cli (policies, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/perf/model_spec.h"

/* With a '/' in it, or `.spec` behind it, `name` is a file's path. -EINVAL for what is neither such a
 * file's form nor a shipped name, -errno for a file that cannot be read; `name` ends with a NUL. */
int model_file_find(struct str name, struct model_spec *ret, struct err *err);

/* For --help: the shipped models, the keys of a file, the known hardware. */
void model_file_help(struct buf *out);

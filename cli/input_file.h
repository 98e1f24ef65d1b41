/* input_file.h - reads the file that an option names: a trace, packed by zstd or plain, or a model's shape.
 *
 * Layer: cli (simulator/trace, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/perf/model_spec.h"
#include "simulator/trace.h"

#define TRACE_FILE_BYTES_MAX ((size_t)1 << 30)

/* Finds a file that comes with Muster by its name in a checkout, as traces/NAME or muster.yaml: in the current
 * folder, else in ../share/muster beside the running program, where an installation has it. A name that is found
 * nowhere is given back unchanged, so that opening it says what is wrong. */
void shipped_file_find(const char *name, char *ret, size_t size);

/* Appends the text of the trace at `path`, unpacked. A name without a folder that is not found here is looked
 * up in traces/, where NAME.zst counts as NAME; traces/ is this folder's or the installed one.
 * -EFBIG for a text above TRACE_FILE_BYTES_MAX, -EINVAL for a broken zstd frame, and open's and read's
 * errors. */
int trace_file_read(const char *path, struct buf *out, struct err *err);

/* As trace_parse; errors name the file. */
int trace_file_load(const char *path, enum trace_format format, struct trace **ret,
                    struct err *err);

/* The shape of a model that an option names: a shipped one's, or a file's. */

/* Finds the shape; a `name` that has a '/' in it or ends in `.spec` is a file's path. -EINVAL for a name that
 * is not shipped or a file of another form, -errno for one that cannot be read; `name` ends with a NUL. */
int model_file_find(struct str name, struct model_spec *ret, struct err *err);

/* Appends to --help the shipped models, the keys of a file and the known hardware. */
void model_file_help(struct buf *out);

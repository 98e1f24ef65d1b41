/* input_file.h - reads the file that an option names: a trace, packed by zstd or plain, or a model's shape.
 *
 * Layer: cli (simulator/trace, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/perf/model_spec.h"
#include "simulator/trace.h"

#define TRACE_FILE_BYTES_MAX ((size_t)1 << 30)

/* Appends the text of the trace at `path`, unpacked. A name without a folder that is not found here is looked
 * up in traces/, where NAME.zst counts as NAME: commands in the documents run in the root of a checkout.
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

/* trace_file.h - read a trace from a file, packed by zstd or plain.
 *
 * Layer: cli (simulator/trace, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "simulator/trace.h"

#define TRACE_FILE_BYTES_MAX ((size_t)1 << 30)

/* Appends the text of the trace at `path`, unpacked. A name without a folder that is not here is looked for
 * in traces/, where NAME.zst counts as NAME: commands in the documents run in the root of a checkout.
 * -EFBIG for a text above TRACE_FILE_BYTES_MAX, -EINVAL for a broken zstd frame, and open's and read's
 * errors. */
int trace_file_read(const char *path, struct buf *out, struct err *err);

/* As trace_parse; errors name the file. */
int trace_file_load(const char *path, enum trace_format format, struct trace **ret,
                    struct err *err);

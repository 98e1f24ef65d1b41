/* trace_file.h - a trace from a file; a refusal names the file and the line.
 *
 * Layer: cli (simulator/trace.h, base/io)
 */
#pragma once
#include "simulator/trace.h"

#define TRACE_FILE_BYTES_MAX ((size_t)1 << 30)

int trace_file_load(const char *path, enum trace_format format, struct trace **ret,
                    struct err *err);

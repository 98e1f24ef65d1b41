/* trace_file.c - read whole, parse, forget the text. */
#include "cli/trace_file.h"

#include "base/io/file.h"

int trace_file_load(const char *path, enum trace_format format, struct trace **ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { .max = TRACE_FILE_BYTES_MAX };
    int rc = file_read(path, TRACE_FILE_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = trace_parse(buf_view(&text), format, ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

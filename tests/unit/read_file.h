/* read_file.h - reads a file that ships with the tests, whole; a test whose file is missing fails. */
#pragma once
#include "base/core/buf.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static inline void read_file(const char *path, struct buf *out)
{
    FILE *file = fopen(path, "rb");
    char piece[4096];
    size_t n;
    if (!file) fail_msg("%s ships with the tests", path);
    while ((n = fread(piece, 1, sizeof piece, file)) > 0)
        buf_append(out, piece, n);
    fclose(file);
}

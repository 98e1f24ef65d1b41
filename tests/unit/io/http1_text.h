/* http1_text.h - texts that tests of the HTTP/1 parsers make and compare. */
#pragma once
#include "base/core/buf.h"
#include "tests/unit/unit.h"

static inline void assert_str(struct str got, const char *expected)
{
    if (!str_eq(got, str_from(expected)))
        fail_msg("got \"" STR_FMT "\", expected \"%s\"", STR_ARG(got), expected);
}

/* `count` bytes of filler between two texts. */
static inline struct str padded(struct buf *b, const char *before, size_t count, const char *after)
{
    buf_clear(b);
    buf_text(b, before);
    for (size_t i = 0; i < count; i++)
        buf_byte(b, 'a');
    buf_text(b, after);
    return buf_view(b);
}

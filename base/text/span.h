/* span.h - byte ranges of a text: which parts of a prompt came from a user.
 *
 * Layer: base/text (base/core)
 * Rules: ascending, disjoint, none empty; touching ranges are joined when added
 */
#pragma once
#include <stddef.h>

#define TEXT_SPANS_MAX ((size_t)1 << 20)

struct text_span {
    size_t start, len;
};

/* { 0 } is empty. */
struct text_spans {
    struct text_span *data;
    size_t count, cap;
};

void text_spans_fini(struct text_spans *s);

/* `start` is at or behind the end of the last span. 0, -E2BIG at TEXT_SPANS_MAX, -ENOMEM. */
int text_spans_add(struct text_spans *s, size_t start, size_t len);

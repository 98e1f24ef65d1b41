/* span.c - append to a list of byte ranges. */
#include "base/text/span.h"

#include "base/core/err.h"

#include <stdlib.h>

void text_spans_fini(struct text_spans *s)
{
    free(s->data);
    *s = (struct text_spans){ 0 };
}

int text_spans_add(struct text_spans *s, size_t start, size_t len)
{
    if (len == 0) return 0;
    if (s->count > 0) {
        struct text_span *last = &s->data[s->count - 1];
        must(start >= last->start + last->len);
        if (start == last->start + last->len) {
            last->len += len;
            return 0;
        }
    }
    if (s->count == TEXT_SPANS_MAX) return -E2BIG;
    if (s->count == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 16;
        struct text_span *data = realloc(s->data, cap * sizeof *data);
        if (!data) return -ENOMEM;
        s->data = data;
        s->cap = cap;
    }
    s->data[s->count++] = (struct text_span){ start, len };
    return 0;
}

/* buf.h - holds bytes that grow up to a named bound.
 *
 * Layer:    base/core (libc)
 * Lifetime: { 0 } is an empty buffer bounded by BUF_BYTES_MAX; buf_fini frees it
 * Errors:   sticky. The error of the first append that fails (-ENOMEM, or -E2BIG at the bound) is
 *           kept in `rc`; later appends do nothing and return it. Writers may append many times
 *           and check once.
 */
#pragma once
#include "base/core/str.h"

#include <stdarg.h>

#define BUF_BYTES_MAX ((size_t)64 << 20) /* the bound of a buffer that names none */

struct buf {
    char *data; /* data[len] is NUL once something was appended */
    size_t len;
    size_t cap;
    size_t max; /* 0: BUF_BYTES_MAX */
    int rc;
};

void buf_init(struct buf *b, size_t max);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b); /* empties, keeps the memory, clears rc */
int buf_reserve(struct buf *b, size_t more);
int buf_append(struct buf *b, const void *data, size_t len);
int buf_str(struct buf *b, struct str s);
int buf_text(struct buf *b, const char *text);
int buf_byte(struct buf *b, char c);
int buf_u32(struct buf *b, uint32_t value); /* four bytes, least significant first */
int buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
int buf_vprintf(struct buf *b, const char *format, va_list ap)
    __attribute__((format(printf, 2, 0)));
void buf_consume(struct buf *b, size_t count); /* drops the first `count` bytes; count <= len */

static inline struct str buf_view(const struct buf *b)
{
    return (struct str){ b->data, b->len };
}

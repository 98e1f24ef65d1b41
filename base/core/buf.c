/* buf.c - grows a buffer up to its bound, and keeps its first error.
 *
 * The capacity doubles, so appending n bytes costs O(n). One byte more than `len` is always held, for
 * the NUL that lets C string functions read the content. */
#include "base/core/buf.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/fault.h"

#include <stdio.h>
#include <stdlib.h>

#define BUF_BYTES_MIN 64 /* the first allocation */

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){ .max = max };
}

void buf_fini(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .max = b->max };
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->rc = 0;
    if (b->data) b->data[0] = 0;
}

static int grow(struct buf *b, size_t need)
{
    size_t bound = b->max ? b->max : BUF_BYTES_MAX;
    size_t cap = b->cap ? b->cap : BUF_BYTES_MIN;
    while (cap <= need)
        cap = cap > SIZE_MAX / 2 ? SIZE_MAX : cap * 2;
    /* Doubling must not hold more than the buffer can ever use: its bound and a NUL. */
    if (bound < SIZE_MAX) cap = min_size(cap, bound + 1);
    char *data = FAULT("buf.grow") ? NULL : realloc(b->data, cap);
    if (!data) return b->rc = -ENOMEM;
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_reserve(struct buf *b, size_t more)
{
    if (b->rc < 0) return b->rc;
    size_t need;
    if (!add_fits(b->len, more, &need)) return b->rc = -E2BIG;
    if (need > (b->max ? b->max : BUF_BYTES_MAX)) return b->rc = -E2BIG;
    if (need < b->cap) return 0;
    return grow(b, need);
}

int buf_append(struct buf *b, const void *data, size_t len)
{
    /* Both are compared: the bound may have been lowered since `cap` was allocated. */
    bool fits = len < b->cap - b->len && b->len + len <= (b->max ? b->max : BUF_BYTES_MAX);
    int rc = b->rc == 0 && fits ? 0 : buf_reserve(b, len);
    if (rc < 0) return rc;
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return 0;
}

int buf_str(struct buf *b, struct str s)
{
    return buf_append(b, s.data, s.len);
}

int buf_text(struct buf *b, const char *text)
{
    return buf_append(b, text, strlen(text));
}

int buf_byte(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

int buf_u32(struct buf *b, uint32_t value)
{
    char bytes[4];
    store_u32(bytes, value);
    return buf_append(b, bytes, sizeof bytes);
}

int buf_printf(struct buf *b, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int rc = buf_vprintf(b, format, ap);
    va_end(ap);
    return rc;
}

int buf_vprintf(struct buf *b, const char *format, va_list ap)
{
    int rc = buf_reserve(b, 0);
    if (rc < 0) return rc;
    va_list again;
    va_copy(again, ap);
    int len = vsnprintf(b->data + b->len, b->cap - b->len, format, ap);
    if (len < 0) rc = b->rc = -EINVAL;
    if (rc == 0 && (size_t)len >= b->cap - b->len) {
        b->data[b->len] = 0; /* a refused append leaves the content as it was */
        rc = buf_reserve(b, (size_t)len);
        if (rc == 0) vsnprintf(b->data + b->len, b->cap - b->len, format, again);
    }
    if (rc == 0) b->len += (size_t)len;
    va_end(again);
    return rc;
}

void buf_consume(struct buf *b, size_t count)
{
    must(count <= b->len);
    if (count == 0) return;
    memmove(b->data, b->data + count, b->len - count + 1);
    b->len -= count;
}

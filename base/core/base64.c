/* base64.c - writes and reads base64. */
#include "base/core/base64.h"

#include <errno.h>

static int put(struct buf *out, struct str bytes, const char *digits, bool pad)
{
    const unsigned char *b = (const unsigned char *)bytes.data;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t some = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t bits = (uint32_t)b[i] << 16;
        if (some > 1) bits |= (uint32_t)b[i + 1] << 8;
        if (some > 2) bits |= b[i + 2];
        char four[4] = { digits[bits >> 18], digits[bits >> 12 & 63], digits[bits >> 6 & 63],
                         digits[bits & 63] };
        for (size_t k = some + 1; k < 4; k++)
            four[k] = '=';
        buf_append(out, four, pad ? 4 : some + 1);
    }
    return out->rc;
}

int base64_put(struct buf *out, struct str bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return put(out, bytes, digits, true);
}

int base64_put_url(struct buf *out, struct str bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    return put(out, bytes, digits, false);
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+' || c == '-') return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

int base64_take(struct buf *out, struct str text)
{
    uint32_t bits = 0, held = 0;
    size_t digits = 0, padding = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '\n' || c == '\r') continue;
        padding += c == '=';
        if (c == '=') continue;
        int digit = digit_of(c);
        if (digit < 0 || padding > 0) return -EINVAL;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        digits++;
        if (held < 8) continue;
        held -= 8;
        buf_byte(out, (char)(bits >> held & 255));
    }
    /* No bit of the last digit may be left over, or the same bytes would have several texts. */
    bool whole = digits % 4 != 1 && (bits & ((1u << held) - 1)) == 0;
    if (padding > 0) whole = whole && (digits + padding) % 4 == 0 && padding < 3;
    return whole ? out->rc : -EINVAL;
}

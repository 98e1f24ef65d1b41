/* plain.c - one byte after the other; see plain.h. */
#include "cli/plain.h"

#define INSTEAD STR("\xef\xbf\xbd") /* U+FFFD */

/* Bytes of the character that begins so; 0: none does. */
static uint32_t length_of(unsigned char first)
{
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first < 0xe0) return 2;
    if (first >= 0xe0 && first < 0xf0) return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

static uint32_t decode(const unsigned char *c, uint32_t len)
{
    static const unsigned char mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t code = c[0] & mask[len];
    for (uint32_t i = 1; i < len; i++)
        code = code << 6 | (c[i] & 0x3f);
    return code;
}

static bool is_shown(uint32_t code, uint32_t len)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (code < least[len] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    if (code == '\n' || code == '\t') return true;
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    bool mark = code == 0x200e || code == 0x200f || code == 0x061c;
    bool override = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return !mark && !override;
}

static void put_torn(struct plain *p, struct buf *out)
{
    uint32_t len = p->torn_len;
    if (is_shown(decode(p->torn, len), len)) {
        buf_append(out, p->torn, len);
    } else {
        buf_str(out, INSTEAD);
    }
    p->torn_len = 0;
}

static void give_up(struct plain *p, struct buf *out)
{
    if (p->torn_len > 0) buf_str(out, INSTEAD);
    p->torn_len = 0;
}

int plain_add(struct plain *p, struct str piece, struct buf *out)
{
    for (size_t i = 0; i < piece.len; i++) {
        unsigned char c = (unsigned char)piece.data[i];
        bool goes_on = (c & 0xc0) == 0x80;
        if (!goes_on || p->torn_len == 0) {
            give_up(p, out);
            if (length_of(c) == 0) {
                buf_str(out, INSTEAD);
                continue;
            }
        }
        p->torn[p->torn_len++] = c;
        if (p->torn_len == length_of(p->torn[0])) put_torn(p, out);
    }
    return out->rc;
}

int plain_end(struct plain *p, struct buf *out)
{
    give_up(p, out);
    return out->rc;
}

int plain_whole(struct str text, struct buf *out)
{
    struct plain p = { 0 };
    plain_add(&p, text, out);
    return plain_end(&p, out);
}

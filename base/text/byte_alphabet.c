/* byte_alphabet.c - the mapping by ranges; 256 entries of table would say the same. */
#include "base/text/byte_alphabet.h"

#define FIRST_MOVED 256u
#define MOVED_COUNT 68u
#define LOW_MOVED 33u  /* 00..20 come first */
#define HIGH_MOVED 34u /* then 7F..A0; AD is the last */

static bool is_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

/* The byte that the code point stands for, or -1. */
static int byte_of(uint32_t cp)
{
    if (cp < 256) return is_itself(cp) ? (int)cp : -1;
    uint32_t n = cp - FIRST_MOVED;
    if (n >= MOVED_COUNT) return -1;
    if (n < LOW_MOVED) return (int)n;
    if (n < LOW_MOVED + HIGH_MOVED) return (int)(n - LOW_MOVED + 0x7F);
    return 0xAD;
}

static uint32_t code_point_of(unsigned char byte)
{
    if (is_itself(byte)) return byte;
    if (byte < LOW_MOVED) return FIRST_MOVED + byte;
    if (byte != 0xAD) return FIRST_MOVED + LOW_MOVED + byte - 0x7Fu;
    return FIRST_MOVED + MOVED_COUNT - 1;
}

bool byte_alphabet_decode(struct str text, char *out, uint32_t *ret_len)
{
    uint32_t len = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;
        size_t step = utf8_decode(str_of(text.data + at, text.len - at), &cp);
        int byte = step ? byte_of(cp) : -1;
        if (byte < 0) return false;
        out[len++] = (char)byte;
        at += step;
    }
    *ret_len = len;
    return true;
}

struct str byte_alphabet_encode(struct str bytes, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < bytes.len; i++)
        len += utf8_encode(code_point_of((unsigned char)bytes.data[i]), out + len);
    return str_of(out, len);
}

/* str.c - handles borrowed text: comparison, strict numbers, UTF-8, the nearest of some names.
 *
 * Numbers go through a grammar of our own before strtod sees them, because strtod also takes
 * blanks, hexadecimal, "inf" and "nan". Muster never calls setlocale (a banned function), so the
 * decimal point is always '.'.
 *
 * All UTF-8 functions share one walk, sequence(): decoding, validation, the cut before an incomplete
 * end, and the number of bytes that one U+FFFD replaces. */
#include "base/core/str.h"

#include "base/core/bits.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define NUMBER_CHARS_MAX 512 /* a longer decimal is an attack or a mistake: -ERANGE */
#define NEAREST_CHARS_MAX 64 /* longest word that "did you mean" looks at */

bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.len != b.len) return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower(a.data[i]) != lower(b.data[i])) return false;
    return true;
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && str_eq(str_of(s.data, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    if (s.len < suffix.len) return false;
    if (suffix.len == 0) return true;
    return str_eq(str_of(s.data + (s.len - suffix.len), suffix.len), suffix);
}

int str_cmp(struct str a, struct str b)
{
    size_t len = min_size(a.len, b.len);
    int order = len ? memcmp(a.data, b.data, len) : 0;
    if (order != 0) return order;
    return (a.len > b.len) - (a.len < b.len);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

struct str str_trim(struct str s)
{
    while (s.len && is_blank(s.data[0]))
        s.data++, s.len--;
    while (s.len && is_blank(s.data[s.len - 1]))
        s.len--;
    return s;
}

struct str str_cut(struct str *rest, char sep)
{
    struct str all = *rest;
    const char *at = all.len ? memchr(all.data, sep, all.len) : NULL;
    if (!at) {
        *rest = (struct str){ 0 };
        return all;
    }
    size_t len = (size_t)(at - all.data);
    *rest = str_of(at + 1, all.len - len - 1);
    return str_of(all.data, len);
}

size_t str_find(struct str s, struct str needle)
{
    if (needle.len == 0) return 0;
    if (s.len < needle.len) return SIZE_MAX;
    const char *at = memmem(s.data, s.len, needle.data, needle.len);
    return at ? (size_t)(at - s.data) : SIZE_MAX;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int str_to_u64(struct str s, uint64_t *ret)
{
    if (s.len == 0) return -EINVAL;
    uint64_t v = 0;
    bool wraps = false;
    for (size_t i = 0; i < s.len; i++) {
        if (!is_digit(s.data[i])) return -EINVAL; /* even past the range: "999..9x" is no number */
        uint64_t digit = (uint64_t)(s.data[i] - '0');
        wraps = wraps || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
                __builtin_add_overflow(v, digit, &v);
    }
    if (wraps) return -ERANGE;
    *ret = v;
    return 0;
}

int str_host_port(struct str text, struct str *ret_host, uint16_t *ret_port)
{
    uint64_t port;
    size_t colon = text.len;
    while (colon > 0 && text.data[colon - 1] != ':')
        colon--;
    if (colon < 2 || str_to_u64(str_of(text.data + colon, text.len - colon), &port) < 0 ||
        port > UINT16_MAX)
        return -EINVAL;
    struct str host = str_of(text.data, colon - 1);
    if (str_starts(host, STR("[")) && str_ends(host, STR("]")))
        host = str_of(host.data + 1, host.len - 2);
    if (host.len == 0) return -EINVAL;
    *ret_host = host;
    *ret_port = (uint16_t)port;
    return 0;
}

int str_to_i64(struct str s, int64_t *ret)
{
    bool negative = s.len && s.data[0] == '-';
    uint64_t v = 0;
    int rc = str_to_u64(negative ? str_of(s.data + 1, s.len - 1) : s, &v);
    if (rc < 0) return rc;
    if (v > (uint64_t)INT64_MAX + negative) return -ERANGE;
    *ret = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

static size_t digits(struct str s, size_t at)
{
    size_t from = at;
    while (at < s.len && is_digit(s.data[at]))
        at++;
    return at - from;
}

/* Returns true if all of `s` is -?digits[.digits][(e|E)[+-]digits]. */
static bool is_decimal(struct str s)
{
    size_t at = s.len && s.data[0] == '-';
    size_t n = digits(s, at);
    if (n == 0) return false;
    at += n;
    if (at < s.len && s.data[at] == '.') {
        n = digits(s, at + 1);
        if (n == 0) return false;
        at += 1 + n;
    }
    if (at < s.len && lower(s.data[at]) == 'e') {
        at++;
        if (at < s.len && (s.data[at] == '+' || s.data[at] == '-')) at++;
        n = digits(s, at);
        if (n == 0) return false;
        at += n;
    }
    return at == s.len;
}

int str_to_f64(struct str s, double *ret)
{
    if (!is_decimal(s)) return -EINVAL;
    char text[NUMBER_CHARS_MAX + 1];
    if (s.len > NUMBER_CHARS_MAX) return -ERANGE;
    memcpy(text, s.data, s.len);
    text[s.len] = 0;
    double v = strtod(text, NULL);
    if (!isfinite(v)) return -ERANGE;
    *ret = v;
    return 0;
}

/* Returns how many bytes at the start of `s` (len > 0) are a well-formed start of a sequence, at
 * least 1. *ret_need is the length of the whole sequence; 0 when the first byte can start none.
 * The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF
 * (Unicode, table 3-7). */
static size_t sequence(struct str s, size_t *ret_need)
{
    uint8_t first = (uint8_t)s.data[0];
    uint8_t low = 0x80, high = 0xbf;
    size_t need = 0;
    if (first < 0x80) {
        need = 1;
    } else if (first >= 0xc2 && first <= 0xdf) {
        need = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
        need = 3;
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
        need = 4;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
    }
    *ret_need = need;
    size_t have = 1;
    while (have < need && have < s.len) {
        uint8_t c = (uint8_t)s.data[have];
        if (c < low || c > high) break;
        low = 0x80, high = 0xbf;
        have++;
    }
    return have;
}

size_t utf8_decode(struct str s, uint32_t *ret)
{
    static const uint8_t mask[5] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    if (s.len == 0) return 0;
    size_t need;
    size_t have = sequence(s, &need);
    if (have != need) return 0;
    uint32_t v = (uint8_t)s.data[0] & mask[need];
    for (size_t i = 1; i < need; i++)
        v = v << 6 | ((uint8_t)s.data[i] & 0x3f);
    *ret = v;
    return need;
}

size_t utf8_invalid(struct str s)
{
    size_t need;
    if (s.len == 0) return 0;
    size_t have = sequence(s, &need);
    return have == need ? 0 : have;
}

size_t utf8_encode(uint32_t code_point, char out[4])
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xc0 | code_point >> 6);
        out[1] = (char)(0x80 | (code_point & 0x3f));
        return 2;
    }
    if (code_point < 0x10000) {
        out[0] = (char)(0xe0 | code_point >> 12);
        out[1] = (char)(0x80 | (code_point >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code_point & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code_point >> 18);
    out[1] = (char)(0x80 | (code_point >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code_point >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code_point & 0x3f));
    return 4;
}

bool str_utf8_valid(struct str s)
{
    uint32_t ignored;
    while (s.len) {
        size_t n = utf8_decode(s, &ignored);
        if (n == 0) return false;
        s = str_of(s.data + n, s.len - n);
    }
    return true;
}

size_t str_utf8_complete(struct str s)
{
    /* Only a sequence that starts in the last three bytes can be incomplete. */
    for (size_t back = 1; back <= 3 && back <= s.len; back++) {
        size_t at = s.len - back;
        if (((uint8_t)s.data[at] & 0xc0) == 0x80) continue;
        size_t need;
        size_t have = sequence(str_of(s.data + at, back), &need);
        return have == back && have < need ? at : s.len;
    }
    return s.len;
}

/* Computes the optimal string alignment distance: insert, delete, replace and the swap of two
 * neighbours cost one step each. */
static size_t edit_distance(struct str a, struct str b)
{
    size_t row[3][NEAREST_CHARS_MAX + 1];
    size_t *before = row[0], *last = row[1], *now = row[2];
    for (size_t j = 0; j <= b.len; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t cost = a.data[i - 1] != b.data[j - 1];
            size_t best = min_size(min_size(last[j], now[j - 1]) + 1, last[j - 1] + cost);
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1])
                best = min_size(best, before[j - 2] + 1);
            now[j] = best;
        }
        size_t *spare = before;
        before = last, last = now, now = spare;
    }
    return last[b.len];
}

const char *str_nearest(struct str word, const char *const *names, size_t count)
{
    if (word.len > NEAREST_CHARS_MAX) return NULL;
    size_t best = word.len / 3 > 1 ? word.len / 3 : 1;
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        struct str name = str_from(names[i]);
        if (name.len > NEAREST_CHARS_MAX) continue;
        size_t d = edit_distance(word, name);
        if (d < best || (d == best && !found)) best = d, found = names[i];
    }
    return found;
}

void str_list(const char *const *names, size_t count, char *ret, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t comma = i > 0 ? 2 : 0, len = strlen(names[i]);
        if (at + comma + len >= bytes) break;
        memcpy(ret + at, ", ", comma);
        memcpy(ret + at + comma, names[i], len);
        at += comma + len;
    }
    ret[at] = '\0';
}

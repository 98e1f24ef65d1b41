/* unicode.h - what kind of character a code point is, and its other case.
 *
 * Layer: base/text (base/core). Pure. The tables (unicode_table.c) are written by unicode_gen.py
 * from Python's unicodedata, which is also what the templates' oracle uses.
 */
#pragma once
#include "base/core/str.h"

enum unicode_class {
    UNICODE_LETTER = 1 << 0,
    UNICODE_NUMBER = 1 << 1,
    UNICODE_MARK = 1 << 2,
    UNICODE_PUNCTUATION = 1 << 3,
    UNICODE_SYMBOL = 1 << 4,
    UNICODE_WHITE = 1 << 5,     /* \s of the tokenizers' expressions: White_Space */
    UNICODE_SPACE = 1 << 6,     /* Python's str.isspace: also 1c..1f */
    UNICODE_PRINTABLE = 1 << 7, /* Python's repr shows it as it is */
    UNICODE_DIGIT = 1 << 8,     /* Python's str.isdigit */
};

#define UNICODE_CASE_MAX 3 /* code points that one may become, as U+FB03 does in capitals */

struct unicode_class_row {
    uint32_t first;
    uint16_t classes;
};

struct unicode_case_row {
    uint32_t first, last, step;
    int32_t delta;
};

struct unicode_case_special {
    uint32_t from;
    uint32_t to[UNICODE_CASE_MAX]; /* 0 where shorter */
};

extern const uint16_t unicode_ascii[128];
extern const struct unicode_class_row unicode_class_rows[];
extern const struct unicode_case_row unicode_upper_rows[], unicode_lower_rows[],
    unicode_title_rows[], unicode_is_lower_rows[], unicode_is_upper_rows[];
extern const struct unicode_case_special unicode_upper_specials[], unicode_lower_specials[],
    unicode_title_specials[];
extern const size_t unicode_class_rows_count, unicode_upper_rows_count, unicode_lower_rows_count,
    unicode_title_rows_count, unicode_is_lower_rows_count, unicode_is_upper_rows_count,
    unicode_upper_specials_count, unicode_lower_specials_count, unicode_title_specials_count;

/* Bits of enum unicode_class; 0 for what has none (unassigned, controls, above 10FFFF). */
uint32_t unicode_classes_slow(uint32_t cp);

static inline uint32_t unicode_classes(uint32_t cp)
{
    return cp < 128 ? unicode_ascii[cp] : unicode_classes_slow(cp);
}

enum unicode_case { UNICODE_UPPER, UNICODE_LOWER, UNICODE_TITLE, UNICODE_CASE_COUNT };

/* The code points that `cp` becomes in that case: 1..UNICODE_CASE_MAX of them. */
size_t unicode_to_case(enum unicode_case to, uint32_t cp, uint32_t ret[UNICODE_CASE_MAX]);

bool unicode_is_lower(uint32_t cp);
bool unicode_is_upper(uint32_t cp); /* title case counts */

/* The character at the start of `s` (s.len > 0): its length, and the code point or
 * UNICODE_BAD for one byte that starts no valid sequence. */
#define UNICODE_BAD UINT32_MAX

static inline size_t unicode_next(struct str s, uint32_t *ret)
{
    if ((unsigned char)s.data[0] < 128) {
        *ret = (unsigned char)s.data[0];
        return 1;
    }
    size_t len = utf8_decode(s, ret);
    if (len > 0) return len;
    *ret = UNICODE_BAD;
    return 1;
}

/* unicode.h - classifies code points, and changes their case.
 *
 * Layer: base/text (base/core, utf8proc in unicode.c). Pure.
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
    UNICODE_PRINTABLE = 1 << 7, /* Python's repr prints it unescaped */
};

#define UNICODE_CASE_MAX 3 /* most code points that one may become, as U+FB03 does in capitals */

/* The classes of ASCII, the most frequent characters. */
extern const uint8_t unicode_ascii[128];

/* Returns bits of enum unicode_class; 0 for a code point without a class (unassigned, most controls, above
 * 10FFFF). */
uint32_t unicode_classes_slow(uint32_t cp);

static inline uint32_t unicode_classes(uint32_t cp)
{
    return cp < 128 ? unicode_ascii[cp] : unicode_classes_slow(cp);
}

enum unicode_case { UNICODE_UPPER, UNICODE_LOWER, UNICODE_TITLE };

/* Writes the code points that `cp` becomes in that case; returns 1..UNICODE_CASE_MAX. */
size_t unicode_to_case(enum unicode_case to, uint32_t cp, uint32_t ret[UNICODE_CASE_MAX]);

/* Returns true for a letter that has a case: upper, lower or title. */
bool unicode_is_cased(uint32_t cp);

#define UNICODE_DECOMPOSED_MAX 18 /* most characters that one decomposes to: U+FDFA */

/* Writes the full canonical decomposition of `cp`, with `compatible` the compatibility one (Unicode 15,
 * UAX 15), not yet in canonical order; returns how many characters, at least 1. */
size_t unicode_decompose(uint32_t cp, bool compatible, uint32_t ret[UNICODE_DECOMPOSED_MAX]);
uint8_t unicode_combining_class(uint32_t cp);

/* Returns the character that `a` and `b` compose to, or 0. */
uint32_t unicode_compose(uint32_t a, uint32_t b);

/* Returns true if a grapheme cluster may end between `a` and `b` (UAX 29); *state begins as 0. */
bool unicode_grapheme_break(uint32_t a, uint32_t b, int32_t *state);

/* Says how a character may stand in a word of mixed case: UNICODE_HEAD in [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}],
 * UNICODE_TAIL in [\p{Ll}\p{Lm}\p{Lo}\p{M}]; both, one or none. */
enum { UNICODE_HEAD = 1, UNICODE_TAIL = 2 };
uint32_t unicode_word_part(uint32_t cp);

bool unicode_is_nonspacing(uint32_t cp); /* category Mn */
bool unicode_is_other(uint32_t cp);      /* Cc, Cf, Co */

/* Returns true for a character of \w in the expressions of tokenizers: alphabetic, mark, decimal digit,
 * connector, joiner. */
bool unicode_is_word(uint32_t cp);

/* Reads the character at the start of `s` (s.len > 0) and returns its length; *ret is the code point,
 * or UNICODE_BAD for one byte that starts no valid sequence. */
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

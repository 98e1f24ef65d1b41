/* unicode.c - classifies code points and maps their case by utf8proc; the only file that includes it.
 *
 * Classes come from the general category (utf8proc 2.8: Unicode 15). ASCII, the most frequent, has a
 * table of its own. utf8proc maps one character to one; the 102 that become several in capitals
 * (Unicode's SpecialCasing) are listed here, as Python has them.
 */
#include "base/text/unicode.h"

#include "base/core/bits.h"

#include <utf8proc.h>

#define L (UNICODE_LETTER | UNICODE_PRINTABLE)
#define M (UNICODE_MARK | UNICODE_PRINTABLE)
#define N (UNICODE_NUMBER | UNICODE_PRINTABLE)
#define P (UNICODE_PUNCTUATION | UNICODE_PRINTABLE)
#define S (UNICODE_SYMBOL | UNICODE_PRINTABLE)
#define B UNICODE_SPACE
#define W (UNICODE_WHITE | UNICODE_SPACE)
#define V (W | UNICODE_PRINTABLE)

// clang-format off
const uint8_t unicode_ascii[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, W, W, W, W, W, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, B, B, B, B,
    V, P, P, P, S, P, P, P, P, P, P, S, P, P, P, P, N, N, N, N, N, N, N, N, N, N, P, P, S, S, S, P,
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, P, P, P, S, P,
    S, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, P, S, P, S, 0,
};

/* The classes of utf8proc's categories; categories that are not listed have none. */
static const uint8_t category_classes[UTF8PROC_CATEGORY_CO + 1] = {
    [UTF8PROC_CATEGORY_LU] = L, [UTF8PROC_CATEGORY_LL] = L, [UTF8PROC_CATEGORY_LT] = L,
    [UTF8PROC_CATEGORY_LM] = L, [UTF8PROC_CATEGORY_LO] = L,
    [UTF8PROC_CATEGORY_MN] = M, [UTF8PROC_CATEGORY_MC] = M, [UTF8PROC_CATEGORY_ME] = M,
    [UTF8PROC_CATEGORY_ND] = N, [UTF8PROC_CATEGORY_NL] = N, [UTF8PROC_CATEGORY_NO] = N,
    [UTF8PROC_CATEGORY_PC] = P, [UTF8PROC_CATEGORY_PD] = P, [UTF8PROC_CATEGORY_PS] = P,
    [UTF8PROC_CATEGORY_PE] = P, [UTF8PROC_CATEGORY_PI] = P, [UTF8PROC_CATEGORY_PF] = P,
    [UTF8PROC_CATEGORY_PO] = P,
    [UTF8PROC_CATEGORY_SM] = S, [UTF8PROC_CATEGORY_SC] = S, [UTF8PROC_CATEGORY_SK] = S,
    [UTF8PROC_CATEGORY_SO] = S,
    [UTF8PROC_CATEGORY_ZS] = W, [UTF8PROC_CATEGORY_ZL] = W, [UTF8PROC_CATEGORY_ZP] = W,
};

/* Characters that become several in upper case or in title case. */
static const struct {
    uint16_t from, upper[UNICODE_CASE_MAX], title[UNICODE_CASE_MAX]; /* 0 where shorter */
} several[] = {
    {0xdf,{0x53,0x53},{0x53,0x73}}, {0x149,{0x2bc,0x4e},{0x2bc,0x4e}},
    {0x1f0,{0x4a,0x30c},{0x4a,0x30c}}, {0x390,{0x399,0x308,0x301},{0x399,0x308,0x301}},
    {0x3b0,{0x3a5,0x308,0x301},{0x3a5,0x308,0x301}}, {0x587,{0x535,0x552},{0x535,0x582}},
    {0x1e96,{0x48,0x331},{0x48,0x331}}, {0x1e97,{0x54,0x308},{0x54,0x308}},
    {0x1e98,{0x57,0x30a},{0x57,0x30a}}, {0x1e99,{0x59,0x30a},{0x59,0x30a}},
    {0x1e9a,{0x41,0x2be},{0x41,0x2be}}, {0x1f50,{0x3a5,0x313},{0x3a5,0x313}},
    {0x1f52,{0x3a5,0x313,0x300},{0x3a5,0x313,0x300}},
    {0x1f54,{0x3a5,0x313,0x301},{0x3a5,0x313,0x301}},
    {0x1f56,{0x3a5,0x313,0x342},{0x3a5,0x313,0x342}}, {0x1f80,{0x1f08,0x399},{0x1f88}},
    {0x1f81,{0x1f09,0x399},{0x1f89}}, {0x1f82,{0x1f0a,0x399},{0x1f8a}},
    {0x1f83,{0x1f0b,0x399},{0x1f8b}}, {0x1f84,{0x1f0c,0x399},{0x1f8c}},
    {0x1f85,{0x1f0d,0x399},{0x1f8d}}, {0x1f86,{0x1f0e,0x399},{0x1f8e}},
    {0x1f87,{0x1f0f,0x399},{0x1f8f}}, {0x1f88,{0x1f08,0x399},{0x1f88}},
    {0x1f89,{0x1f09,0x399},{0x1f89}}, {0x1f8a,{0x1f0a,0x399},{0x1f8a}},
    {0x1f8b,{0x1f0b,0x399},{0x1f8b}}, {0x1f8c,{0x1f0c,0x399},{0x1f8c}},
    {0x1f8d,{0x1f0d,0x399},{0x1f8d}}, {0x1f8e,{0x1f0e,0x399},{0x1f8e}},
    {0x1f8f,{0x1f0f,0x399},{0x1f8f}}, {0x1f90,{0x1f28,0x399},{0x1f98}},
    {0x1f91,{0x1f29,0x399},{0x1f99}}, {0x1f92,{0x1f2a,0x399},{0x1f9a}},
    {0x1f93,{0x1f2b,0x399},{0x1f9b}}, {0x1f94,{0x1f2c,0x399},{0x1f9c}},
    {0x1f95,{0x1f2d,0x399},{0x1f9d}}, {0x1f96,{0x1f2e,0x399},{0x1f9e}},
    {0x1f97,{0x1f2f,0x399},{0x1f9f}}, {0x1f98,{0x1f28,0x399},{0x1f98}},
    {0x1f99,{0x1f29,0x399},{0x1f99}}, {0x1f9a,{0x1f2a,0x399},{0x1f9a}},
    {0x1f9b,{0x1f2b,0x399},{0x1f9b}}, {0x1f9c,{0x1f2c,0x399},{0x1f9c}},
    {0x1f9d,{0x1f2d,0x399},{0x1f9d}}, {0x1f9e,{0x1f2e,0x399},{0x1f9e}},
    {0x1f9f,{0x1f2f,0x399},{0x1f9f}}, {0x1fa0,{0x1f68,0x399},{0x1fa8}},
    {0x1fa1,{0x1f69,0x399},{0x1fa9}}, {0x1fa2,{0x1f6a,0x399},{0x1faa}},
    {0x1fa3,{0x1f6b,0x399},{0x1fab}}, {0x1fa4,{0x1f6c,0x399},{0x1fac}},
    {0x1fa5,{0x1f6d,0x399},{0x1fad}}, {0x1fa6,{0x1f6e,0x399},{0x1fae}},
    {0x1fa7,{0x1f6f,0x399},{0x1faf}}, {0x1fa8,{0x1f68,0x399},{0x1fa8}},
    {0x1fa9,{0x1f69,0x399},{0x1fa9}}, {0x1faa,{0x1f6a,0x399},{0x1faa}},
    {0x1fab,{0x1f6b,0x399},{0x1fab}}, {0x1fac,{0x1f6c,0x399},{0x1fac}},
    {0x1fad,{0x1f6d,0x399},{0x1fad}}, {0x1fae,{0x1f6e,0x399},{0x1fae}},
    {0x1faf,{0x1f6f,0x399},{0x1faf}}, {0x1fb2,{0x1fba,0x399},{0x1fba,0x345}},
    {0x1fb3,{0x391,0x399},{0x1fbc}}, {0x1fb4,{0x386,0x399},{0x386,0x345}},
    {0x1fb6,{0x391,0x342},{0x391,0x342}}, {0x1fb7,{0x391,0x342,0x399},{0x391,0x342,0x345}},
    {0x1fbc,{0x391,0x399},{0x1fbc}}, {0x1fc2,{0x1fca,0x399},{0x1fca,0x345}},
    {0x1fc3,{0x397,0x399},{0x1fcc}}, {0x1fc4,{0x389,0x399},{0x389,0x345}},
    {0x1fc6,{0x397,0x342},{0x397,0x342}}, {0x1fc7,{0x397,0x342,0x399},{0x397,0x342,0x345}},
    {0x1fcc,{0x397,0x399},{0x1fcc}}, {0x1fd2,{0x399,0x308,0x300},{0x399,0x308,0x300}},
    {0x1fd3,{0x399,0x308,0x301},{0x399,0x308,0x301}}, {0x1fd6,{0x399,0x342},{0x399,0x342}},
    {0x1fd7,{0x399,0x308,0x342},{0x399,0x308,0x342}},
    {0x1fe2,{0x3a5,0x308,0x300},{0x3a5,0x308,0x300}},
    {0x1fe3,{0x3a5,0x308,0x301},{0x3a5,0x308,0x301}}, {0x1fe4,{0x3a1,0x313},{0x3a1,0x313}},
    {0x1fe6,{0x3a5,0x342},{0x3a5,0x342}}, {0x1fe7,{0x3a5,0x308,0x342},{0x3a5,0x308,0x342}},
    {0x1ff2,{0x1ffa,0x399},{0x1ffa,0x345}}, {0x1ff3,{0x3a9,0x399},{0x1ffc}},
    {0x1ff4,{0x38f,0x399},{0x38f,0x345}}, {0x1ff6,{0x3a9,0x342},{0x3a9,0x342}},
    {0x1ff7,{0x3a9,0x342,0x399},{0x3a9,0x342,0x345}}, {0x1ffc,{0x3a9,0x399},{0x1ffc}},
    {0xfb00,{0x46,0x46},{0x46,0x66}}, {0xfb01,{0x46,0x49},{0x46,0x69}},
    {0xfb02,{0x46,0x4c},{0x46,0x6c}}, {0xfb03,{0x46,0x46,0x49},{0x46,0x66,0x69}},
    {0xfb04,{0x46,0x46,0x4c},{0x46,0x66,0x6c}}, {0xfb05,{0x53,0x54},{0x53,0x74}},
    {0xfb06,{0x53,0x54},{0x53,0x74}}, {0xfb13,{0x544,0x546},{0x544,0x576}},
    {0xfb14,{0x544,0x535},{0x544,0x565}}, {0xfb15,{0x544,0x53b},{0x544,0x56b}},
    {0xfb16,{0x54e,0x546},{0x54e,0x576}}, {0xfb17,{0x544,0x53d},{0x544,0x56d}}
};
// clang-format on

#define NEXT_LINE 0x85 /* a control character that is White_Space */
#define DOTTED_I 0x130 /* the only one that becomes several in lower case: i and a dot above */
#define DOT_ABOVE 0x307

uint32_t unicode_classes_slow(uint32_t cp)
{
    if (cp > 0x10FFFF) return 0;
    if (cp == NEXT_LINE) return W;
    return category_classes[utf8proc_category((utf8proc_int32_t)cp)];
}

/* Returns the characters of `cp` in that case if it is in the table, else NULL. */
static const uint16_t *several_of(enum unicode_case to, uint32_t cp)
{
    size_t low = 0, high = COUNT_OF(several);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (several[middle].from == cp)
            return to == UNICODE_UPPER ? several[middle].upper : several[middle].title;
        if (several[middle].from < cp)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

size_t unicode_to_case(enum unicode_case to, uint32_t cp, uint32_t ret[UNICODE_CASE_MAX])
{
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    ret[0] = cp;
    if (cp > 0x10FFFF) return 1;
    if (to == UNICODE_LOWER) {
        ret[0] = cp == DOTTED_I ? 'i' : (uint32_t)utf8proc_tolower(c);
        ret[1] = DOT_ABOVE;
        return cp == DOTTED_I ? 2 : 1;
    }
    const uint16_t *made = several_of(to, cp);
    if (!made) {
        ret[0] = (uint32_t)(to == UNICODE_UPPER ? utf8proc_toupper(c) : utf8proc_totitle(c));
        return 1;
    }
    size_t len = 0;
    for (; len < UNICODE_CASE_MAX && made[len]; len++)
        ret[len] = made[len];
    return len;
}

bool unicode_is_cased(uint32_t cp)
{
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    if (cp > 0x10FFFF) return false;
    return utf8proc_islower(c) || utf8proc_isupper(c) ||
           utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

size_t unicode_decompose(uint32_t cp, bool compatible, uint32_t ret[UNICODE_DECOMPOSED_MAX])
{
    utf8proc_int32_t made[UNICODE_DECOMPOSED_MAX];
    const int how = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    ret[0] = cp;
    if (cp < 0x80 || cp > 0x10FFFF) return 1;
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)cp, made, COUNT_OF(made),
                                                     (utf8proc_option_t)how, NULL);
    if (count < 1 || count > (utf8proc_ssize_t)COUNT_OF(made)) return 1;
    for (utf8proc_ssize_t i = 0; i < count; i++)
        ret[i] = (uint32_t)made[i];
    return (size_t)count;
}

uint8_t unicode_combining_class(uint32_t cp)
{
    if (cp < 0x300 || cp > 0x10FFFF) return 0;
    return (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

uint32_t unicode_compose(uint32_t a, uint32_t b)
{
    if (b < 0x300 || a > 0x10FFFF || b > 0x10FFFF) return 0; /* no second part is below */
    utf8proc_int32_t pair[2] = { (utf8proc_int32_t)a, (utf8proc_int32_t)b };
    const int how = UTF8PROC_COMPOSE | UTF8PROC_STABLE;
    return utf8proc_normalize_utf32(pair, 2, (utf8proc_option_t)how) == 1 ? (uint32_t)pair[0] : 0;
}

bool unicode_grapheme_break(uint32_t a, uint32_t b, int32_t *state)
{
    if (a > 0x10FFFF || b > 0x10FFFF) return true;
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)a, (utf8proc_int32_t)b, state);
}

static utf8proc_category_t category_of(uint32_t cp)
{
    return cp > 0x10FFFF ? UTF8PROC_CATEGORY_CN : utf8proc_category((utf8proc_int32_t)cp);
}

bool unicode_is_nonspacing(uint32_t cp)
{
    return category_of(cp) == UTF8PROC_CATEGORY_MN;
}

bool unicode_is_other(uint32_t cp)
{
    utf8proc_category_t c = category_of(cp);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

uint32_t unicode_word_part(uint32_t cp)
{
    utf8proc_category_t c = category_of(cp);
    if (c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT) return UNICODE_HEAD;
    if (c == UTF8PROC_CATEGORY_LL) return UNICODE_TAIL;
    const uint32_t both = UNICODE_LETTER | UNICODE_MARK;
    return unicode_classes(cp) & both ? UNICODE_HEAD | UNICODE_TAIL : 0;
}

#define JOINER 0x200D
#define NON_JOINER 0x200C

bool unicode_is_word(uint32_t cp)
{
    /* Symbols that are alphabetic: letters in circles and squares. */
    static const uint32_t symbols[][2] = {
        { 0x24B6, 0x24E9 }, { 0x1F130, 0x1F149 }, { 0x1F150, 0x1F169 }, { 0x1F170, 0x1F189 }
    };
    utf8proc_category_t c = category_of(cp);
    if (unicode_classes(cp) & (UNICODE_LETTER | UNICODE_MARK)) return true;
    if (c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC)
        return true;
    for (size_t i = 0; i < COUNT_OF(symbols); i++)
        if (cp >= symbols[i][0] && cp <= symbols[i][1]) return true;
    return cp == JOINER || cp == NON_JOINER;
}

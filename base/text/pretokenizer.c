/* pretokenizer.c - implements the word rules of the byte-level BPE families.
 *
 * A rule is one or more expressions. With several, each works on the pieces of the one before: its
 * matches and the gaps between them. A matcher looks at one position and returns how many bytes
 * match there; find_with tries it at each position of a piece. Rules that could look far ahead and
 * fail (a run of blanks that does not end where the rule wants) are written so that a failure is
 * found without walking the run again from each of its positions.
 *
 * A byte that is not valid UTF-8 is a character without a class: neither letter, number nor
 * white, the same as a symbol for most rules. Byte-level BPE keeps it as it is.
 */
#include "base/text/pretokenizer.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/unicode.h"

#include <string.h>

enum {
    LETTER = UNICODE_LETTER,
    NUMBER = UNICODE_NUMBER,
    MARK = UNICODE_MARK,
    WHITE = UNICODE_WHITE,
    PUNCTUATION = UNICODE_PUNCTUATION,
    SYMBOL = UNICODE_SYMBOL,
};

typedef size_t (*match_fn)(struct str text, size_t at);

static __attribute__((noinline)) size_t char_beyond_ascii(struct str text, size_t at, uint32_t *cp,
                                                          uint32_t *classes)
{
    size_t len = unicode_next(str_of(text.data + at, text.len - at), cp);
    *classes = unicode_classes(*cp);
    return len;
}

/* Reads the character at `at` and returns its length; 0 at the end. */
static inline size_t char_at(struct str text, size_t at, uint32_t *cp, uint32_t *classes)
{
    *cp = UNICODE_BAD;
    *classes = 0;
    if (at >= text.len) return 0;
    const unsigned char c = (unsigned char)text.data[at];
    if (c >= 128) return char_beyond_ascii(text, at, cp, classes);
    *cp = c;
    *classes = unicode_ascii[c];
    return 1;
}

static bool is_ascii_of(char c, uint32_t wanted)
{
    return (unsigned char)c < 128 && unicode_ascii[(unsigned char)c] & wanted;
}

#define EACH_BYTE UINT64_C(0x0101010101010101)

/* Counts the ASCII letters at the start of `text`, eight at a time: a loop over bytes would mispredict its
 * exit once for each word. Stops before a rest of less than eight bytes. */
static size_t ascii_letters(const char *text, size_t len)
{
    size_t at = 0;
    for (; at + 8 <= len; at += 8) {
        uint64_t w = load_u64(text + at), small = (w | 0x20 * EACH_BYTE) & 0x7F * EACH_BYTE;
        uint64_t from_a = small + (0x80 - 'a') * EACH_BYTE,
                 above_z = small + (0x7F - 'z') * EACH_BYTE;
        uint64_t other = (~from_a | above_z | w) & 0x80 * EACH_BYTE;
        if (other) return at + (size_t)__builtin_ctzll(other) / 8;
    }
    return at;
}

/* Extends a run that begins at `at` and is known up to `end` by at most `max` characters; returns its bytes. */
static size_t run_on(struct str text, size_t at, size_t end, uint32_t wanted, size_t max)
{
    for (size_t i = 0; i < max; i++) {
        uint32_t cp, classes;
        for (; i < max && end < text.len && is_ascii_of(text.data[end], wanted); i++)
            end++;
        if (i == max) break;
        size_t len = char_at(text, end, &cp, &classes);
        if (len == 0 || !(classes & wanted)) break;
        end += len;
    }
    work_add(end - at + 1);
    return end - at;
}

/* Returns the bytes of the run of characters from `at` that have a class of `wanted`, at most `max`
 * characters. Most runs are words of ASCII letters that end at a blank. */
static inline size_t run_of(struct str text, size_t at, uint32_t wanted, size_t max)
{
    if (!(wanted & LETTER) || max != SIZE_MAX) return run_on(text, at, at, wanted, max);
    const size_t len = ascii_letters(text.data + at, text.len - at), end = at + len;
    const char next = end < text.len ? text.data[end] : ' ';
    if ((unsigned char)next >= 128 || is_ascii_of(next, wanted))
        return run_on(text, at, end, wanted, max);
    work_add(len + 1);
    return len;
}

/* Returns the bytes of the run of characters from `at` that have no class of `refused`. */
static size_t run_without(struct str text, size_t at, uint32_t refused)
{
    size_t end = at;
    for (;;) {
        uint32_t cp, classes;
        size_t len = char_at(text, end, &cp, &classes);
        if (len == 0 || (classes & refused)) break;
        end += len;
    }
    work_add(end - at + 1);
    return end - at;
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

static size_t newlines(struct str text, size_t at)
{
    size_t end = at;
    while (end < text.len && is_newline(text.data[end]))
        end++;
    return end - at;
}

/* 's 't 're 've 'm 'll 'd */
static size_t contraction(struct str text, size_t at, bool any_case)
{
    static const char *const tails[] = { "s", "t", "re", "ve", "m", "ll", "d" };
    if (text.data[at] != '\'') return 0;
    struct str rest = { text.data + at + 1, text.len - at - 1 };
    for (size_t i = 0; i < COUNT_OF(tails); i++) {
        size_t len = strlen(tails[i]);
        if (rest.len < len) continue;
        struct str head = { rest.data, len };
        struct str tail = { tails[i], len };
        if (any_case ? str_eq_nocase(head, tail) : str_eq(head, tail)) return 1 + len;
    }
    return 0;
}

/* \s+(?!\S)|\s+ : all of a run of blanks at the end, else all but its last, which belongs to the
 * word behind it; a single blank stands alone. */
static size_t blanks(struct str text, size_t at)
{
    size_t end = at, last = 0;
    for (;;) {
        uint32_t cp, classes;
        size_t len = char_at(text, end, &cp, &classes);
        if (len == 0) return end - at;
        if (!(classes & WHITE)) break;
        end += len;
        last = len;
    }
    work_add(end - at);
    return end - at > last ? end - at - last : end - at;
}

/* \s*[\r\n]+ : a run of blanks up to its last line end. */
static size_t blanks_to_newline(struct str text, size_t at)
{
    size_t run = run_of(text, at, WHITE, SIZE_MAX);
    while (run > 0 && !is_newline(text.data[at + run - 1]))
        run--;
    return run;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t match_gpt2(struct str text, size_t at)
{
    size_t len = contraction(text, at, false);
    if (len > 0) return len;
    const size_t space = text.data[at] == ' ', from = at + space;
    uint32_t cp, classes;
    if (char_at(text, from, &cp, &classes) == 0 || classes & WHITE) return blanks(text, at);
    if (classes & LETTER) return space + run_of(text, from, LETTER, SIZE_MAX);
    if (classes & NUMBER) return space + run_of(text, from, NUMBER, SIZE_MAX);
    return space + run_without(text, from, WHITE | LETTER | NUMBER);
}

/* [^\r\n\p{L}LEAD_REFUSED]?[WORD]+ : a run of WORD, or one leading character and a run. A character
 * of WORD that is no letter may also lead. */
static size_t led_word(struct str text, size_t at, uint32_t lead_refused, uint32_t word)
{
    size_t len = run_of(text, at, word, SIZE_MAX);
    if (len > 0) return len;
    uint32_t cp, classes;
    size_t lead = char_at(text, at, &cp, &classes);
    if (cp == '\r' || cp == '\n' || (classes & (LETTER | lead_refused))) return 0;
    len = run_of(text, at + lead, word, SIZE_MAX);
    return len > 0 ? lead + len : 0;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[WORD]+|\p{N}{1,DIGITS}|
 *  ?[^\s\p{N}WORD]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_cl100k(struct str text, size_t at, uint32_t word, size_t digits)
{
    size_t len = contraction(text, at, true);
    if (len > 0) return len;
    if ((len = led_word(text, at, NUMBER, word)) > 0) return len;
    if ((len = run_of(text, at, NUMBER, digits)) > 0) return len;
    size_t space = text.data[at] == ' ';
    len = run_without(text, at + space, WHITE | NUMBER | word);
    if (len > 0) return space + len + newlines(text, at + space + len);
    if ((len = blanks_to_newline(text, at)) > 0) return len;
    return blanks(text, at);
}

static size_t match_llama3(struct str text, size_t at)
{
    return match_cl100k(text, at, LETTER, 3);
}

static size_t match_qwen2(struct str text, size_t at)
{
    return match_cl100k(text, at, LETTER, 1);
}

static size_t match_qwen35(struct str text, size_t at)
{
    return match_cl100k(text, at, LETTER | MARK, 1);
}

static uint32_t part_at(struct str text, size_t at, size_t *ret_len)
{
    uint32_t cp, classes;
    *ret_len = char_at(text, at, &cp, &classes);
    return *ret_len ? unicode_word_part(cp) : 0;
}

/* [HEAD]*[TAIL]+ : a run of HEAD and the run of TAIL behind it; if there is none behind it, the run of HEAD up
 * to its last character that is a TAIL, too. With `head_only` [HEAD]+[TAIL]*. */
static size_t mixed_case(struct str text, size_t at, bool head_only)
{
    size_t end = at, last = at, len;
    uint32_t part;
    while ((part = part_at(text, end, &len)) & UNICODE_HEAD) {
        end += len;
        if (part & UNICODE_TAIL) last = end;
    }
    size_t behind = end;
    while (part_at(text, behind, &len) & UNICODE_TAIL)
        behind += len;
    work_add(behind - at + 1);
    if (behind > end && (!head_only || end > at)) return behind - at;
    return (head_only ? end : last) - at;
}

/* [^\r\n\p{L}\p{N}]?[HEAD]*[TAIL]+|[^\r\n\p{L}\p{N}]?[HEAD]+[TAIL]* */
static size_t led_mixed_case(struct str text, size_t at)
{
    uint32_t cp, classes;
    size_t lead = char_at(text, at, &cp, &classes);
    if (cp == '\r' || cp == '\n' || classes & (LETTER | NUMBER)) lead = 0;
    for (int head_only = 0; head_only < 2; head_only++) {
        size_t len = lead ? mixed_case(text, at + lead, head_only) : 0;
        if (len > 0) return lead + len;
        if ((len = mixed_case(text, at, head_only)) > 0) return len;
    }
    return 0;
}

/* LED_MIXED_CASE CONTRACTION?|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_o200k(struct str text, size_t at, bool contracted, size_t digits)
{
    size_t len = led_mixed_case(text, at);
    if (len > 0) {
        bool more = contracted && at + len < text.len;
        return len + (more ? contraction(text, at + len, true) : 0);
    }
    if ((len = run_of(text, at, NUMBER, digits)) > 0) return len;
    size_t space = text.data[at] == ' ';
    len = run_without(text, at + space, WHITE | NUMBER | LETTER);
    if (len > 0) {
        size_t end = at + space + len;
        while (end < text.len && (is_newline(text.data[end]) || text.data[end] == '/'))
            end++;
        return end - at;
    }
    if ((len = blanks_to_newline(text, at)) > 0) return len;
    return blanks(text, at);
}

static size_t match_gpt4o(struct str text, size_t at)
{
    return match_o200k(text, at, true, 3);
}

static size_t match_tekken(struct str text, size_t at)
{
    return match_o200k(text, at, false, 1);
}

/* [!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ where the first class is ASCII punctuation */
static size_t match_deepseek_v3(struct str text, size_t at)
{
    unsigned char c = (unsigned char)text.data[at];
    if (c < 128 && (unicode_ascii[c] & (PUNCTUATION | SYMBOL))) {
        size_t end = at + 1;
        while (end < text.len && (unsigned)((text.data[end] | 32) - 'a') < 26)
            end++;
        if (end > at + 1) return end - at;
    }
    size_t len = led_word(text, at, PUNCTUATION | SYMBOL, LETTER | MARK);
    if (len > 0) return len;
    size_t space = text.data[at] == ' ';
    len = run_of(text, at + space, PUNCTUATION | SYMBOL, SIZE_MAX);
    if (len > 0) return space + len + newlines(text, at + space + len);
    if ((len = blanks_to_newline(text, at)) > 0) return len;
    return blanks(text, at);
}

/* \s?[CLASS]+ */
static size_t blank_and_run(struct str text, size_t at, uint32_t wanted)
{
    uint32_t cp, classes;
    size_t lead = char_at(text, at, &cp, &classes);
    if (!(classes & WHITE)) lead = 0;
    size_t len = run_of(text, at + lead, wanted, SIZE_MAX);
    return len > 0 ? lead + len : 0;
}

static size_t match_blank_letters(struct str text, size_t at)
{
    return blank_and_run(text, at, LETTER);
}

static size_t match_blank_punctuation(struct str text, size_t at)
{
    return blank_and_run(text, at, PUNCTUATION);
}

static size_t match_newline(struct str text, size_t at)
{
    return is_newline(text.data[at]);
}

static size_t match_number(struct str text, size_t at)
{
    return run_of(text, at, NUMBER, 1);
}

static size_t match_numbers(struct str text, size_t at)
{
    return run_of(text, at, NUMBER, SIZE_MAX);
}

static size_t match_numbers3(struct str text, size_t at)
{
    return run_of(text, at, NUMBER, 3);
}

/* [0-9][0-9][0-9] */
static size_t match_3_digits(struct str text, size_t at)
{
    if (text.len - at < 3) return 0;
    for (size_t i = 0; i < 3; i++)
        if (text.data[at + i] < '0' || text.data[at + i] > '9') return 0;
    return 3;
}

/* [\p{P}$+<=>^~|]+, and with a backtick for falcon */
static size_t match_marks(struct str text, size_t at, const char *also)
{
    size_t end = at;
    for (;;) {
        uint32_t cp, classes;
        size_t len = char_at(text, end, &cp, &classes);
        bool listed = cp > 0 && cp < 128 && strchr(also, (int)cp);
        if (len == 0 || !((classes & PUNCTUATION) || listed)) return end - at;
        end += len;
    }
}

static size_t match_marks_default(struct str text, size_t at)
{
    return match_marks(text, at, "$+<=>^~|");
}

static size_t match_marks_falcon(struct str text, size_t at)
{
    return match_marks(text, at, "$+<=>^~|`");
}

/* Matches a run of characters in ranges, which are pairs of first and last. */
static size_t match_ranges(struct str text, size_t at, const uint32_t (*ranges)[2], size_t count)
{
    size_t end = at;
    for (;;) {
        uint32_t cp, classes;
        size_t len = char_at(text, end, &cp, &classes);
        size_t low = 0, high = count; /* the last range that begins at or before cp, from 1 */
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (cp >= ranges[middle][0])
                low = middle + 1;
            else
                high = middle;
        }
        if (len == 0 || low == 0 || cp > ranges[low - 1][1]) return end - at;
        end += len;
    }
}

/* [U+4E00-U+9FA5 U+0800-U+4E00 U+AC00-U+D7FF]+ */
static size_t match_cjk(struct str text, size_t at)
{
    static const uint32_t ranges[][2] = { { 0x0800, 0x9FA5 }, { 0xAC00, 0xD7FF } };
    return match_ranges(text, at, ranges, COUNT_OF(ranges));
}

/* [U+4E00-U+9FA5 hiragana katakana]+ */
static size_t match_han_kana(struct str text, size_t at)
{
    static const uint32_t ranges[][2] = { { 0x3040, 0x30FF }, { 0x4E00, 0x9FA5 } };
    return match_ranges(text, at, ranges, COUNT_OF(ranges));
}

/* \s?[RANGES]+ */
static size_t blank_and_ranges(struct str text, size_t at, const uint32_t (*ranges)[2],
                               size_t count)
{
    uint32_t cp, classes;
    size_t lead = char_at(text, at, &cp, &classes);
    if (!(classes & WHITE)) lead = 0;
    size_t len = match_ranges(text, at + lead, ranges, count);
    return len > 0 ? lead + len : 0;
}

/* DeepSeek lists cased letters, but not the small ones of Armenian, Georgian and Coptic, nor mathematical ones. */
static size_t match_blank_cased(struct str text, size_t at)
{
    /* clang-format off */
    static const uint32_t ranges[][2] = {
        { 0x0041, 0x005A }, { 0x0061, 0x007A }, { 0x00B5, 0x00B5 }, { 0x00C0, 0x00D6 },
        { 0x00D8, 0x00F6 }, { 0x00F8, 0x01BA }, { 0x01BC, 0x01BF }, { 0x01C4, 0x0293 },
        { 0x0295, 0x02AF }, { 0x0370, 0x0373 }, { 0x0376, 0x0377 }, { 0x037B, 0x037D },
        { 0x037F, 0x037F }, { 0x0386, 0x0386 }, { 0x0388, 0x038A }, { 0x038C, 0x038C },
        { 0x038E, 0x03A1 }, { 0x03A3, 0x03F5 }, { 0x03F7, 0x0481 }, { 0x048A, 0x052F },
        { 0x0531, 0x0556 }, { 0x10A0, 0x10C5 }, { 0x13A0, 0x13F5 }, { 0x13F8, 0x13FD },
        { 0x1C90, 0x1CBA }, { 0x1CBD, 0x1CBF }, { 0x1D00, 0x1D2B }, { 0x1D6B, 0x1D77 },
        { 0x1D79, 0x1D9A }, { 0x1E00, 0x1F15 }, { 0x1F18, 0x1F1D }, { 0x1F20, 0x1F45 },
        { 0x1F48, 0x1F4D }, { 0x1F50, 0x1F57 }, { 0x1F59, 0x1F59 }, { 0x1F5B, 0x1F5B },
        { 0x1F5D, 0x1F5D }, { 0x1F5F, 0x1F7D }, { 0x1F80, 0x1FB4 }, { 0x1FB6, 0x1FBC },
        { 0x1FBE, 0x1FBE }, { 0x1FC2, 0x1FC4 }, { 0x1FC6, 0x1FCC }, { 0x1FD0, 0x1FD3 },
        { 0x1FD6, 0x1FDB }, { 0x1FE0, 0x1FEC }, { 0x1FF2, 0x1FF4 }, { 0x1FF6, 0x1FFC },
        { 0x2102, 0x2102 }, { 0x2107, 0x2107 }, { 0x210A, 0x2113 }, { 0x2115, 0x2115 },
        { 0x2119, 0x211D }, { 0x2124, 0x2124 }, { 0x2126, 0x2126 }, { 0x2128, 0x2128 },
        { 0x212A, 0x212D }, { 0x212F, 0x2134 }, { 0x2139, 0x2139 }, { 0x213C, 0x213F },
        { 0x2145, 0x2149 }, { 0x214E, 0x214E }, { 0x2183, 0x2184 }, { 0x2C00, 0x2C7B },
        { 0x2C7E, 0x2CE4 }, { 0x2CEB, 0x2CEE }, { 0x2CF2, 0x2CF3 }, { 0xA640, 0xA66D },
        { 0xA680, 0xA69B }, { 0xA722, 0xA76F }, { 0xA771, 0xA787 }, { 0xA78B, 0xA78E },
        { 0xAB70, 0xABBF }, { 0xFB00, 0xFB06 }, { 0xFB13, 0xFB17 }, { 0xFF21, 0xFF3A },
        { 0xFF41, 0xFF5A }, { 0x10400, 0x1044F }, { 0x104B0, 0x104D3 }, { 0x104D8, 0x104FB },
        { 0x10C80, 0x10CB2 }, { 0x10CC0, 0x10CF2 }, { 0x118A0, 0x118DF }, { 0x1E900, 0x1E943 },
    };
    /* clang-format on */
    return blank_and_ranges(text, at, ranges, COUNT_OF(ranges));
}

/* ASCII punctuation, with the letters between its parts, the same in full width, quotation marks and CJK stops */
static size_t match_blank_marks(struct str text, size_t at)
{
    static const uint32_t ranges[][2] = { { 0x21, 0x2F },     { 0x3A, 0x7E },
                                          { 0x2018, 0x201F }, { 0x3000, 0x3002 },
                                          { 0xFF01, 0xFF0F }, { 0xFF1A, 0xFF5E } };
    return blank_and_ranges(text, at, ranges, COUNT_OF(ranges));
}

static bool find_with(match_fn match, struct str text, size_t from, size_t *ret_start,
                      size_t *ret_end)
{
    for (size_t at = from; at < text.len;) {
        size_t len = match(text, at);
        if (len > 0) {
            *ret_start = at;
            *ret_end = at + len;
            return true;
        }
        uint32_t cp;
        at += unicode_next(str_of(text.data + at, text.len - at), &cp);
    }
    return false;
}

/* \s+$ */
static bool find_last_blanks(struct str text, size_t from, size_t *ret_start, size_t *ret_end)
{
    size_t start = text.len;
    for (size_t at = from, len; at < text.len; at += len) {
        uint32_t cp, classes;
        len = char_at(text, at, &cp, &classes);
        if (!(classes & WHITE))
            start = text.len;
        else if (start == text.len)
            start = at;
    }
    work_add(text.len - from + 1);
    *ret_start = start;
    *ret_end = text.len;
    return start < text.len;
}

#define FIND(name)                                                                            \
    static bool find_##name(struct str text, size_t from, size_t *ret_start, size_t *ret_end) \
    {                                                                                         \
        return find_with(match_##name, text, from, ret_start, ret_end);                       \
    }

FIND(gpt2)
FIND(llama3)
FIND(qwen2)
FIND(qwen35)
FIND(gpt4o)
FIND(tekken)
FIND(deepseek_v3)
FIND(newline)
FIND(blank_letters)
FIND(blank_punctuation)
FIND(blank_cased)
FIND(blank_marks)
FIND(cjk)
FIND(han_kana)
FIND(number)
FIND(numbers)
FIND(numbers3)
FIND(3_digits)
FIND(marks_default)
FIND(marks_falcon)

/* Several names share a rule because one model copied it from another. */
// clang-format off
static const struct pretokenizer table[] = {
    { "gpt-2",            { find_gpt2 }, false },
    { "phi-2",            { find_gpt2 }, false },
    { "modern-bert",      { find_gpt2 }, false },
    { "mpt",              { find_gpt2 }, false },
    { "olmo",             { find_gpt2 }, false },
    { "default",          { find_marks_default, find_gpt2, find_numbers, find_3_digits }, false },
    { "starcoder",        { find_number, find_gpt2 }, false },
    { "refact",           { find_number, find_gpt2 }, false },
    { "command-r",        { find_number, find_gpt2 }, false },
    { "smollm",           { find_number, find_gpt2 }, false },
    { "codeshell",        { find_number, find_gpt2 }, false },
    { "falcon",           { find_marks_falcon, find_gpt2, find_3_digits }, false },
    { "deepseek-coder",   { find_newline, find_blank_letters, find_blank_punctuation, find_cjk,
                            find_number }, false },
    { "deepseek-llm",     { find_newline, find_blank_cased, find_blank_marks, find_last_blanks,
                            find_cjk, find_numbers }, false },
    { "deepseek-v3",      { find_numbers3, find_han_kana, find_deepseek_v3 }, false },
    { "llama-bpe",        { find_llama3 }, true },
    { "llama3",           { find_llama3 }, true },
    { "llama-v3",         { find_llama3 }, true },
    { "smaug-bpe",        { find_llama3 }, false },
    { "qwen2",            { find_qwen2 }, false },
    { "stablelm2",        { find_qwen2 }, false },
    { "deepseek-r1-qwen", { find_qwen2 }, false },
    { "qwen35",           { find_qwen35 }, false },
    { "gpt-4o",           { find_gpt4o }, false },
    { "tekken",           { find_tekken }, true },
    /* Stages by themselves, for tokenizer.json, which names an expression for each. */
    { "stage-cl100k",      { find_llama3 }, false },
    { "stage-tekken",      { find_tekken }, false },
    { "stage-deepseek-v3", { find_deepseek_v3 }, false },
    { "stage-newline",     { find_newline }, false },
    { "stage-letters",     { find_blank_letters }, false },
    { "stage-punctuation", { find_blank_punctuation }, false },
    { "stage-cased",       { find_blank_cased }, false },
    { "stage-marks",       { find_blank_marks }, false },
    { "stage-last-blanks", { find_last_blanks }, false },
    { "stage-cjk",         { find_cjk }, false },
    { "stage-han-kana",    { find_han_kana }, false },
    { "stage-number",      { find_number }, false },
    { "stage-numbers",     { find_numbers }, false },
    { "stage-numbers3",    { find_numbers3 }, false },
    { "stage-3-digits",    { find_3_digits }, false },
};

#define L "\\p{L}"
#define N "\\p{N}"
#define M "\\p{M}"
#define BLANKS "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define HEAD "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define TAIL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LED "[^\\r\\n\\p{L}\\p{N}]?"
#define MARKS " ?[^\\s\\p{L}\\p{N}]+"

/* The expressions that models publish, in all spellings seen, and the pretokenizer that each is. */
static const struct {
    const char *regex, *name;
} expressions[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?" L "+| ?" N "+|" MARKS "|\\s+(?!\\S)|\\s+", "gpt-2" },
    { "'(?:[sdmt]|ll|ve|re)| ?" L "+| ?" N "+|" MARKS "|\\s+(?!\\S)|\\s+", "gpt-2" },
    { SHORT "|" LED L "+|" N "{1,3}|" MARKS "[\\r\\n]*|" BLANKS, "stage-cl100k" },
    { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n" L N "]?+" L "+|" N "{1,3}| ?[^\\s" L N "]++[\\r\\n]*|"
      "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+", "stage-cl100k" },
    { SHORT "|" LED L "+|" N "|" MARKS "[\\r\\n]*|" BLANKS, "qwen2" },
    { SHORT "|" LED "[" L M "]+|" N "| ?[^\\s" L M N "]+[\\r\\n]*|" BLANKS, "qwen35" },
    { LED HEAD "*" TAIL "+" SHORT "?|" LED HEAD "+" TAIL "*" SHORT "?|" N "{1,3}|" MARKS
      "[\\r\\n/]*|" BLANKS, "gpt-4o" },
    { LED HEAD "*" TAIL "+|" LED HEAD "+" TAIL "*|" N "|" MARKS "[\\r\\n/]*|" BLANKS, "stage-tekken" },
    { "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
      "[" L M "]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS, "stage-deepseek-v3" },
    { "[\\r\\n]", "stage-newline" },
    { "[\r\n]", "stage-newline" },
    { "\\s?" L "+", "stage-letters" },
    { "\\s?\\p{P}+", "stage-punctuation" },
    { "\\s?["
      "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
      "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A"
      "\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556"
      "\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B"
      "\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D"
      "\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE"
      "\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4"
      "\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
      "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184"
      "\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B"
      "\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17"
      "\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
      "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
      "\U000118A0-\U000118DF\U0001E900-\U0001E943"
      "]+", "stage-cased" },
    { "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+", "stage-marks" },
    { "\\s+$", "stage-last-blanks" },
    { "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+", "stage-cjk" },
    { "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
      "stage-han-kana" },
    { N, "stage-number" },
    { N "+", "stage-numbers" },
    { N "{1,3}", "stage-numbers3" },
    { "[0-9][0-9][0-9]", "stage-3-digits" },
};
// clang-format on

const char *pretokenizer_of_regex(struct str regex)
{
    for (size_t i = 0; i < COUNT_OF(expressions); i++)
        if (str_eq(regex, str_from(expressions[i].regex))) return expressions[i].name;
    return NULL;
}

const char *pretokenizer_alias(const struct pretokenizer *p, bool whole_word_first)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (table[i].whole_word_first == whole_word_first &&
            !str_starts(str_from(table[i].name), STR("stage-")) &&
            memcmp(table[i].stages, p->stages, sizeof p->stages) == 0)
            return table[i].name;
    return NULL;
}

const char *pretokenizer_name(size_t index)
{
    return index < COUNT_OF(table) ? table[index].name : NULL;
}

const struct pretokenizer *pretokenizer_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (str_eq(name, str_from(table[i].name))) return &table[i];
    return NULL;
}

static int run_stage(const struct pretokenizer *p, size_t stage, struct str text,
                     pretokenizer_word_fn word, void *arg);

/* Passes a piece of `stage` on to the next stage; pieces of the last stage are words. */
static inline int pass_on(const struct pretokenizer *p, size_t stage, struct str piece,
                          pretokenizer_word_fn word, void *arg)
{
    if (piece.len == 0) return 0;
    if (stage + 1 == PRETOKENIZER_STAGES_MAX || !p->stages[stage + 1]) return word(arg, piece);
    return run_stage(p, stage + 1, piece, word, arg);
}

static int run_stage(const struct pretokenizer *p, size_t stage, struct str text,
                     pretokenizer_word_fn word, void *arg)
{
    size_t at = 0, start, end;
    int rc = 0;
    while (rc == 0 && at < text.len && p->stages[stage](text, at, &start, &end)) {
        rc = pass_on(p, stage, str_of(text.data + at, start - at), word, arg);
        if (rc == 0) rc = pass_on(p, stage, str_of(text.data + start, end - start), word, arg);
        at = end;
    }
    if (rc == 0) rc = pass_on(p, stage, str_of(text.data + at, text.len - at), word, arg);
    return rc;
}

int pretokenizer_run(const struct pretokenizer *p, struct str text, pretokenizer_word_fn word,
                     void *arg)
{
    return run_stage(p, 0, text, word, arg);
}

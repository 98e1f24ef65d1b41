/* normalizer.c - applies one rule after the other to an array of characters.
 *
 * A text is an array of code points while it is changed. A bad byte is a number above them, and the top
 * bit says that a character came from content; what a rule makes of characters inherits that bit.
 *
 * Composition and order follow Unicode's UAX 15. Marks are ordered by counting, because a run of a
 * million marks would make sorting by insertion quadratic.
 */
#include "base/text/normalizer.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/work.h"
#include "base/text/text_rules.h"
#include "base/text/unicode.h"

#include <stdlib.h>

#define CONTENT (1u << 31)
#define BAD_BYTE 0x110000u /* plus the byte */
#define REPLACEMENT 0xFFFDu
#define GRAPHEME_BYTES_MAX 6 /* `tokenizers` looks up only shorter ones as a whole */

/* A growing array of characters. `rc` is sticky. */
struct chars {
    uint32_t *data;
    size_t count, cap;
    int rc;
};

static void chars_fini(struct chars *c)
{
    free(c->data);
    *c = (struct chars){ 0 };
}

static void put(struct chars *c, uint32_t value)
{
    if (c->rc < 0) return;
    if (c->count == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 256;
        uint32_t *data = cap > 2 * NORMAL_CHARS_MAX ? NULL : realloc(c->data, cap * sizeof *data);
        if (c->count >= NORMAL_CHARS_MAX || !data) {
            c->rc = c->count >= NORMAL_CHARS_MAX ? -E2BIG : -ENOMEM;
            return;
        }
        c->data = data;
        c->cap = cap;
    }
    c->data[c->count++] = value;
}

static uint32_t plain(uint32_t value)
{
    return value & ~CONTENT;
}

static void put_text(struct chars *to, struct str text, uint32_t taint)
{
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;
        struct str rest = { text.data + at, text.len - at };
        at += unicode_next(rest, &cp);
        put(to, (cp == UNICODE_BAD ? BAD_BYTE + (unsigned char)rest.data[0] : cp) | taint);
    }
}

/* ---- the rules: each reads `from` and writes all of `to` ---- */

typedef void (*rule_fn)(const struct text_rule *r, const struct chars *from, struct chars *to);

/* Sorts marks [start, end) by their classes, stably. */
static void order_marks(uint32_t *data, size_t start, size_t end, struct chars *to)
{
    size_t places[257] = { 0 }, count = end - start;
    bool sorted = true;
    for (size_t i = start + 1; i < end && sorted; i++)
        sorted =
            unicode_combining_class(plain(data[i - 1])) <= unicode_combining_class(plain(data[i]));
    if (sorted) return;
    uint32_t *made = malloc(count * sizeof *made);
    if (!made) {
        to->rc = -ENOMEM;
        return;
    }
    for (size_t i = start; i < end; i++)
        places[unicode_combining_class(plain(data[i])) + 1u]++;
    for (size_t c = 1; c < COUNT_OF(places); c++)
        places[c] += places[c - 1];
    for (size_t i = start; i < end; i++)
        made[places[unicode_combining_class(plain(data[i]))]++] = data[i];
    memcpy(data + start, made, count * sizeof *made);
    work_add(2 * count + COUNT_OF(places));
    free(made);
}

static void order_all(struct chars *c)
{
    for (size_t at = 0; at < c->count && c->rc == 0; at++) {
        if (unicode_combining_class(plain(c->data[at])) == 0) continue;
        size_t end = at + 1;
        while (end < c->count && unicode_combining_class(plain(c->data[end])) != 0)
            end++;
        order_marks(c->data, at, end, c);
        at = end;
    }
}

static void decompose(const struct chars *from, bool compatible, struct chars *to)
{
    for (size_t i = 0; i < from->count; i++) {
        uint32_t made[UNICODE_DECOMPOSED_MAX];
        size_t count = unicode_decompose(plain(from->data[i]), compatible, made);
        for (size_t k = 0; k < count; k++)
            put(to, made[k] | (from->data[i] & CONTENT));
    }
    order_all(to);
}

/* Composes in place. A mark joins the last starter unless a mark between has its class or a higher one. */
static void compose(struct chars *c)
{
    size_t kept = 0, starter = SIZE_MAX;
    uint32_t last = 0; /* class of the last kept character behind the starter; 0: none is between */
    for (size_t i = 0; i < c->count; i++) {
        uint32_t cp = plain(c->data[i]), class = unicode_combining_class(cp);
        bool next_to = starter != SIZE_MAX && starter + 1 == kept;
        bool blocked = starter == SIZE_MAX || (!next_to && (class == 0 || last >= class));
        uint32_t joined = blocked ? 0 : unicode_compose(plain(c->data[starter]), cp);
        if (joined) {
            c->data[starter] = joined | ((c->data[starter] | c->data[i]) & CONTENT);
            continue;
        }
        if (class == 0) starter = kept;
        last = class;
        c->data[kept++] = c->data[i];
    }
    c->count = kept;
}

static void run_nfd(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    decompose(from, r->kind == RULE_NFKD, to);
}

static void run_nfc(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    decompose(from, r->kind == RULE_NFKC, to);
    compose(to);
}

static void put_lower(struct chars *to, uint32_t value)
{
    uint32_t made[UNICODE_CASE_MAX];
    size_t count = unicode_to_case(UNICODE_LOWER, plain(value), made);
    for (size_t k = 0; k < count; k++)
        put(to, made[k] | (value & CONTENT));
}

static void run_lower(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    (void)r;
    for (size_t i = 0; i < from->count; i++)
        put_lower(to, from->data[i]);
}

static bool is_white(uint32_t value)
{
    return plain(value) <= 0x10FFFF && unicode_classes(plain(value)) & UNICODE_WHITE;
}

static void run_strip(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    size_t start = 0, end = from->count;
    while (r->flags & RULE_LEFT && start < end && is_white(from->data[start]))
        start++;
    while (r->flags & RULE_RIGHT && start < end && is_white(from->data[end - 1]))
        end--;
    for (size_t i = start; i < end; i++)
        put(to, from->data[i]);
}

static void run_strip_accents(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    (void)r;
    for (size_t i = 0; i < from->count; i++)
        if (!(unicode_classes(plain(from->data[i])) & UNICODE_MARK)) put(to, from->data[i]);
}

/* Returns the taint of `count` characters. */
static uint32_t taint_of(const uint32_t *data, size_t count)
{
    uint32_t taint = 0;
    for (size_t i = 0; i < count; i++)
        taint |= data[i] & CONTENT;
    return taint;
}

static bool begins_with(const struct chars *c, size_t at, const uint32_t *want, size_t count)
{
    if (c->count - at < count) return false;
    for (size_t i = 0; i < count; i++)
        if (plain(c->data[at + i]) != want[i]) return false;
    return true;
}

static void run_replace(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    CLEANUP(chars_fini) struct chars want = { 0 };
    put_text(&want, r->a, 0);
    if (want.rc < 0) to->rc = want.rc;
    for (size_t at = 0; at < from->count && to->rc == 0;) {
        size_t len = 0;
        while (begins_with(from, at + len, want.data, want.count)) {
            len += want.count;
            if (!(r->flags & RULE_RUNS)) break;
        }
        if (len == 0 || (r->flags & RULE_RUNS && len < 2 * want.count)) {
            put(to, from->data[at++]);
            continue;
        }
        put_text(to, r->b, taint_of(from->data + at, len));
        work_add(len);
        at += len;
    }
    work_add(from->count * want.count);
}

static void run_prepend(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    if (from->count > 0) put_text(to, r->a, 0);
    for (size_t i = 0; i < from->count; i++)
        put(to, from->data[i]);
}

static void run_collapse(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    (void)r;
    for (size_t i = 0; i < from->count; i++) {
        bool blank = plain(from->data[i]) == ' ';
        bool next_blank = i + 1 == from->count || plain(from->data[i + 1]) == ' ';
        if (blank && (next_blank || to->count == 0)) continue;
        put(to, from->data[i]);
    }
}

/* The blocks of Chinese characters that BERT takes as words. */
static bool is_han(uint32_t cp)
{
    static const uint32_t ranges[][2] = { { 0x4E00, 0x9FFF },   { 0x3400, 0x4DBF },
                                          { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B73F },
                                          { 0x2B740, 0x2B81F }, { 0x2B920, 0x2CEAF },
                                          { 0xF900, 0xFAFF },   { 0x2F800, 0x2FA1F } };
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        if (cp >= ranges[i][0] && cp <= ranges[i][1]) return true;
    return false;
}

/* Copies what BERT's cleaning leaves of a character, with blanks around a Chinese one. */
static void put_clean(const struct text_rule *r, uint32_t value, struct chars *to)
{
    const uint32_t cp = plain(value), taint = value & CONTENT;
    if (r->flags & RULE_CLEAN) {
        bool line = cp == '\t' || cp == '\n' || cp == '\r';
        if (cp == 0 || cp == REPLACEMENT || (!line && unicode_is_other(cp))) return;
        if (is_white(value)) value = ' ' | taint;
    }
    bool han = r->flags & RULE_HAN && is_han(cp);
    if (han) put(to, ' ' | taint);
    put(to, value);
    if (han) put(to, ' ' | taint);
}

static void run_bert(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    CLEANUP(chars_fini) struct chars clean = { 0 };
    CLEANUP(chars_fini) struct chars apart = { 0 };
    for (size_t i = 0; i < from->count; i++)
        put_clean(r, from->data[i], &clean);
    if (r->flags & RULE_ACCENTS) decompose(&clean, false, &apart);
    const struct chars *left = r->flags & RULE_ACCENTS ? &apart : &clean;
    for (size_t i = 0; i < left->count; i++) {
        if (r->flags & RULE_ACCENTS && unicode_is_nonspacing(plain(left->data[i]))) continue;
        if (r->flags & RULE_LOWERCASE)
            put_lower(to, left->data[i]);
        else
            put(to, left->data[i]);
    }
    if (clean.rc < 0) to->rc = clean.rc;
    if (apart.rc < 0) to->rc = apart.rc;
}

#define WINDOW_CHARS 64 /* more than the longest entry of a map: 12 characters */

/* Writes characters [at, end) as UTF-8, at most WINDOW_CHARS of them; returns the bytes. `ends` receives
 * the offset behind each character. */
static struct str window(const struct chars *c, size_t at, size_t end, char *bytes, uint16_t *ends)
{
    size_t len = 0;
    for (size_t i = at; i < end && i < at + WINDOW_CHARS; i++) {
        uint32_t cp = plain(c->data[i]);
        if (cp >= BAD_BYTE) break;
        len += utf8_encode(cp, bytes + len);
        ends[i - at] = (uint16_t)len;
    }
    return str_of(bytes, len);
}

/* As SentencePiece does: the longest entry at each position; what has none stays. */
static void map_longest(const struct charsmap *m, const struct chars *from, struct chars *to)
{
    char bytes[4 * WINDOW_CHARS];
    uint16_t ends[WINDOW_CHARS];
    for (size_t at = 0; at < from->count;) {
        struct str made, text = window(from, at, from->count, bytes, ends);
        size_t len = charsmap_find(m, text, true, &made), chars = 0;
        while (chars < WINDOW_CHARS && len > 0 && ends[chars] < len)
            chars++;
        if (len == 0 || ends[chars] != len) {
            put(to, from->data[at++]);
            continue;
        }
        put_text(to, made, taint_of(from->data + at, chars + 1));
        at += chars + 1;
    }
    work_add(from->count * WINDOW_CHARS / 4);
}

static void map_char(const struct charsmap *m, uint32_t value, struct chars *to)
{
    char bytes[4];
    struct str made;
    uint32_t cp = plain(value);
    size_t len = cp < BAD_BYTE ? utf8_encode(cp, bytes) : 0;
    if (len == 0 || charsmap_find(m, str_of(bytes, len), false, &made) == 0)
        put(to, value);
    else
        put_text(to, made, value & CONTENT);
}

/* As `tokenizers` does: a grapheme cluster of few bytes becomes what its shortest entry becomes, all of it;
 * else each character by itself. Models were trained with that, so it is followed to the letter. */
static void map_graphemes(const struct charsmap *m, const struct chars *from, struct chars *to)
{
    char bytes[4 * WINDOW_CHARS];
    uint16_t ends[WINDOW_CHARS];
    for (size_t at = 0, end; at < from->count; at = end) {
        int32_t state = 0;
        for (end = at + 1; end < from->count; end++)
            if (unicode_grapheme_break(plain(from->data[end - 1]), plain(from->data[end]), &state))
                break;
        struct str made, text = window(from, at, end, bytes, ends);
        bool short_one = text.len > 0 && text.len < GRAPHEME_BYTES_MAX;
        if (short_one && charsmap_find(m, text, false, &made) > 0) {
            put_text(to, made, taint_of(from->data + at, end - at));
            continue;
        }
        for (size_t i = at; i < end; i++)
            map_char(m, from->data[i], to);
    }
    work_add(4 * from->count);
}

static void run_charsmap(const struct text_rule *r, const struct chars *from, struct chars *to)
{
    const struct charsmap m = charsmap_open(r->a);
    if (r->flags & RULE_GRAPHEMES)
        map_graphemes(&m, from, to);
    else
        map_longest(&m, from, to);
}

static const rule_fn rules_run[TEXT_RULE_COUNT] = {
    [RULE_NFC] = run_nfc,
    [RULE_NFD] = run_nfd,
    [RULE_NFKC] = run_nfc,
    [RULE_NFKD] = run_nfd,
    [RULE_LOWER] = run_lower,
    [RULE_STRIP] = run_strip,
    [RULE_STRIP_ACCENTS] = run_strip_accents,
    [RULE_REPLACE] = run_replace,
    [RULE_PREPEND] = run_prepend,
    [RULE_BERT] = run_bert,
    [RULE_CHARSMAP] = run_charsmap,
    [RULE_COLLAPSE] = run_collapse,
};

/* ---- from bytes to characters and back ---- */

static void read_text(struct str text, const struct text_spans *content, bool keep_bytes,
                      struct chars *to)
{
    size_t span = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t cp, taint = 0;
        struct str rest = { text.data + at, text.len - at };
        size_t len = unicode_next(rest, &cp);
        if (cp == UNICODE_BAD) {
            if (!keep_bytes) len = utf8_invalid(rest);
            cp = keep_bytes ? BAD_BYTE + (unsigned char)rest.data[0] : REPLACEMENT;
        }
        while (content && span < content->count &&
               content->data[span].start + content->data[span].len <= at)
            span++;
        if (content && span < content->count && content->data[span].start < at + len)
            taint = CONTENT;
        put(to, cp | taint);
        at += len;
    }
}

static int write_text(const struct chars *from, struct normal_text *out)
{
    for (size_t i = 0; i < from->count && out->text.rc == 0; i++) {
        char bytes[4];
        uint32_t cp = plain(from->data[i]);
        size_t start = out->text.len;
        if (cp >= BAD_BYTE)
            buf_byte(&out->text, (char)(cp - BAD_BYTE));
        else
            buf_append(&out->text, bytes, utf8_encode(cp, bytes));
        if (!(from->data[i] & CONTENT) || out->text.rc < 0) continue;
        int rc = text_spans_add(&out->content, start, out->text.len - start);
        if (rc < 0) return rc;
    }
    return out->text.rc;
}

void normal_text_fini(struct normal_text *t)
{
    buf_fini(&t->text);
    text_spans_fini(&t->content);
}

bool normalizer_leaves(struct text_rules rules, struct str text)
{
    for (size_t i = 0; i < rules.count; i++)
        if (rules.list[i].kind < RULE_NFC || rules.list[i].kind > RULE_NFKD) return false;
    for (size_t i = 0; i < text.len && rules.count > 0; i++)
        if ((unsigned char)text.data[i] >= 0x80) return false;
    return true;
}

int normalizer_run(struct text_rules rules, struct str text, const struct text_spans *content,
                   bool keep_bytes, struct normal_text *out)
{
    CLEANUP(chars_fini) struct chars a = { 0 };
    CLEANUP(chars_fini) struct chars b = { 0 };
    buf_clear(&out->text);
    out->text.max = 4 * NORMAL_CHARS_MAX;
    out->content.count = 0;
    read_text(text, content, keep_bytes, &a);
    for (size_t i = 0; i < rules.count && a.rc == 0; i++) {
        b.count = 0;
        rules_run[rules.list[i].kind](&rules.list[i], &a, &b);
        work_add(a.count + b.count);
        struct chars made = b;
        b = a;
        a = made;
    }
    return a.rc < 0 ? a.rc : write_text(&a, out);
}

/* text_rules.c - checks rules against the table of their kinds, and walks the double array of a character map. */
#include "base/text/text_rules.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/pretokenizer.h"

#include <string.h>

enum need { NO_TEXT, TEXT, MAP, NAME };

struct kind {
    const char *name;
    enum text_rules_use use;
    enum need a;
    bool b, behaves;
    uint8_t flags;
};

// clang-format off
static const struct kind kinds[TEXT_RULE_COUNT] = {
    [RULE_NFC] =           { "NFC",            TEXT_RULES_NORMAL, NO_TEXT, false, false, 0 },
    [RULE_NFD] =           { "NFD",            TEXT_RULES_NORMAL, NO_TEXT, false, false, 0 },
    [RULE_NFKC] =          { "NFKC",           TEXT_RULES_NORMAL, NO_TEXT, false, false, 0 },
    [RULE_NFKD] =          { "NFKD",           TEXT_RULES_NORMAL, NO_TEXT, false, false, 0 },
    [RULE_LOWER] =         { "lower case",     TEXT_RULES_NORMAL, NO_TEXT, false, false, 0 },
    [RULE_STRIP] =         { "strip",          TEXT_RULES_NORMAL, NO_TEXT, false, false, RULE_LEFT | RULE_RIGHT },
    [RULE_STRIP_ACCENTS] = { "strip accents",  TEXT_RULES_NORMAL, NO_TEXT, false, false, 0 },
    [RULE_REPLACE] =       { "replace",        TEXT_RULES_NORMAL, TEXT,    true,  false, RULE_RUNS },
    [RULE_PREPEND] =       { "prepend",        TEXT_RULES_NORMAL, TEXT,    false, false, 0 },
    [RULE_BERT] =          { "BERT",           TEXT_RULES_NORMAL, NO_TEXT, false, false,
                             RULE_CLEAN | RULE_HAN | RULE_ACCENTS | RULE_LOWERCASE },
    [RULE_CHARSMAP] =      { "character map",  TEXT_RULES_NORMAL, MAP,     false, false, RULE_GRAPHEMES },
    [RULE_COLLAPSE] =      { "collapse",       TEXT_RULES_NORMAL, NO_TEXT, false, false, 0 },
    [RULE_WORDS] =         { "words",          TEXT_RULES_CUT,    NAME,    false, true,  RULE_INVERT },
    [RULE_LITERAL] =       { "literal",        TEXT_RULES_CUT,    TEXT,    false, true,  RULE_INVERT },
    [RULE_WHITE] =         { "white space",    TEXT_RULES_CUT,    NO_TEXT, false, true,  RULE_INVERT },
    [RULE_PUNCTUATION] =   { "punctuation",    TEXT_RULES_CUT,    NO_TEXT, false, true,  RULE_INVERT },
    [RULE_DIGIT] =         { "digit",          TEXT_RULES_CUT,    NO_TEXT, false, true,  RULE_INVERT },
    [RULE_WORD_RUNS] =     { "word runs",      TEXT_RULES_CUT,    NO_TEXT, false, true,  RULE_INVERT },
    [RULE_METASPACE] =     { "metaspace",      TEXT_RULES_CUT,    TEXT,    false, false,
                             RULE_ALWAYS | RULE_FIRST | RULE_SPLIT },
    [RULE_PREFIX_BLANK] =  { "prefix blank",   TEXT_RULES_CUT,    NO_TEXT, false, false, 0 },
    [RULE_WORDPIECE] =     { "word pieces",    TEXT_RULES_DECODE, TEXT,    false, false, RULE_CLEAN_UP },
    [RULE_BLANK] =         { "blank",          TEXT_RULES_DECODE, NO_TEXT, false, false, 0 },
    [RULE_STRIP_TEXT] =    { "strip text",     TEXT_RULES_DECODE, NO_TEXT, false, false, 0 },
    [RULE_DROP_FIRST] =    { "drop first",     TEXT_RULES_DECODE, NO_TEXT, false, false, 0 },
};
// clang-format on

static int check_text(const char *name, struct str text, struct err *err)
{
    if (text.len > TEXT_RULE_TEXT_MAX)
        return err_set(err, -E2BIG, "rule \"%s\": a text of %zu bytes, at most %d", name, text.len,
                       TEXT_RULE_TEXT_MAX);
    if (!str_utf8_valid(text))
        return err_set(err, -EINVAL, "rule \"%s\": a text that is not UTF-8", name);
    return 0;
}

static int check_a(const struct kind *k, struct str a, struct err *err)
{
    if (k->a == NO_TEXT && a.len > 0)
        return err_set(err, -EINVAL, "rule \"%s\" takes no text", k->name);
    if (k->a == MAP) return charsmap_check(a, err);
    int rc = check_text(k->name, a, err);
    if (rc < 0) return rc;
    if (k->a != NO_TEXT && a.len == 0)
        return err_set(err, -EINVAL, "rule \"%s\" without its text", k->name);
    if (k->a == NAME && !pretokenizer_find(a))
        return err_set(err, -ENOTSUP, "rule \"%s\": no pretokenizer \"" STR_FMT "\"", k->name,
                       STR_ARG(a));
    return 0;
}

static int check(enum text_rules_use use, const struct text_rule *r, struct err *err)
{
    const struct kind *k = r->kind < TEXT_RULE_COUNT ? &kinds[r->kind] : NULL;
    if (!k || !k->name) return err_set(err, -EINVAL, "no rule has the number %u", r->kind);
    bool decodes = use == TEXT_RULES_DECODE && r->kind == RULE_REPLACE && r->flags == 0;
    if (k->use != use && !decodes)
        return err_set(err, -EINVAL, "rule \"%s\" is not of this list", k->name);
    if (r->flags & ~k->flags)
        return err_set(err, -EINVAL, "rule \"%s\" with unknown flags %u", k->name, r->flags);
    if (r->behavior >= (k->behaves ? RULE_BEHAVIOR_COUNT : 1))
        return err_set(err, -EINVAL, "rule \"%s\" with an unknown behavior %u", k->name,
                       r->behavior);
    if (!k->b && r->b.len > 0) return err_set(err, -EINVAL, "rule \"%s\" takes one text", k->name);
    int rc = check_a(k, r->a, err);
    return rc < 0 ? rc : check_text(k->name, r->b, err);
}

int text_rules_check(enum text_rules_use use, struct text_rules rules, struct err *err)
{
    if (rules.count > TEXT_RULES_MAX)
        return err_set(err, -E2BIG, "%zu rules: at most %d", rules.count, TEXT_RULES_MAX);
    for (size_t i = 0; i < rules.count; i++) {
        int rc = check(use, &rules.list[i], err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- the character map ---- */

/* A unit of darts-clone: bits 0..7 and 31 are its label, bit 8 says that an entry ends here, bits 10..30 are
 * the offset of its children, shifted by 8 if bit 9 is set. The unit of an ended entry holds its value in
 * bits 0..30. The child of unit `p` by byte `c` is at p ^ offset ^ c, and has the label c. */

int charsmap_check(struct str blob, struct err *err)
{
    if (blob.len > CHARSMAP_BYTES_MAX)
        return err_set(err, -E2BIG, "a character map of %zu bytes: at most %u", blob.len,
                       CHARSMAP_BYTES_MAX);
    uint32_t trie = blob.len >= 4 ? load_u32(blob.data) : 0;
    if (trie < 4 || trie % 4 != 0 || trie > blob.len - 4)
        return err_set(err, -EINVAL, "the character map is malformed: a trie of %u bytes in %zu",
                       trie, blob.len);
    struct str texts = { blob.data + 4 + trie, blob.len - 4 - trie };
    if (texts.len > 0 && texts.data[texts.len - 1] != '\0')
        return err_set(err, -EINVAL, "the character map is malformed: its last text has no end");
    if (!str_utf8_valid(texts))
        return err_set(err, -EINVAL, "the character map is malformed: a text that is not UTF-8");
    return 0;
}

struct charsmap charsmap_open(struct str blob)
{
    uint32_t trie = load_u32(blob.data);
    return (struct charsmap){ { blob.data + 4, trie },
                              { blob.data + 4 + trie, blob.len - 4 - trie } };
}

static bool unit_at(const struct charsmap *m, uint32_t at, uint32_t *ret)
{
    if (at >= m->units.len / 4) return false;
    *ret = load_u32(m->units.data + 4 * (size_t)at);
    return true;
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* Returns the text that begins at `at`; false if that is no start of one. */
static bool text_at(const struct charsmap *m, uint32_t at, struct str *ret)
{
    if (at >= m->texts.len || (at > 0 && m->texts.data[at - 1] != '\0')) return false;
    *ret = str_from(m->texts.data + at); /* charsmap_check saw the last zero */
    return true;
}

size_t charsmap_find(const struct charsmap *m, struct str text, bool longest, struct str *ret)
{
    uint32_t unit, at = 0, value;
    size_t found = 0, i = 0;
    if (!unit_at(m, at, &unit)) return 0;
    at ^= offset_of(unit);
    for (; i < text.len && text.data[i] != '\0'; i++) {
        unsigned char c = (unsigned char)text.data[i];
        at ^= c;
        if (!unit_at(m, at, &unit) || (unit & (1u << 31 | 0xFF)) != c) break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        if (!unit_at(m, at, &value) || !text_at(m, value & (UINT32_MAX >> 1), ret)) break;
        found = i + 1;
        if (!longest) break;
    }
    work_add(i + 1);
    return found;
}

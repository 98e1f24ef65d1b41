/* text_rules.c - checks rules against the table of their kinds. */
#include "base/text/text_rules.h"

#include "base/core/bits.h"
#include "base/text/charsmap.h"
#include "base/text/pretokenizer.h"

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

/* cutter.c - runs cut rules one inside the other.
 *
 * Each rule splits its piece into segments that match and segments that do not, a behavior joins or drops
 * them, and the next rule takes what is left. The joining needs one segment of memory: whether a segment
 * belongs to the one before or behind it is known when the next one comes.
 */
#include "base/text/cutter.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/unicode.h"

#include <errno.h>
#include <string.h>

static int run_rule(struct cutter *c, size_t rule, struct str text, bool first);

static int pass_on(struct cutter *c, size_t rule, struct str piece, bool first)
{
    if (piece.len == 0) return 0;
    return rule + 1 == c->rules.count ? c->word(c->arg, piece)
                                      : run_rule(c, rule + 1, piece, first);
}

/* ---- what matches: returns the bytes of the match at `at`, or 0 ---- */

static size_t char_of_class(struct str text, size_t at, uint32_t wanted)
{
    uint32_t cp;
    size_t len = unicode_next(str_of(text.data + at, text.len - at), &cp);
    return cp != UNICODE_BAD && unicode_classes(cp) & wanted ? len : 0;
}

static size_t punctuation(struct str text, size_t at)
{
    bool ascii = (unsigned char)text.data[at] < 128;
    return char_of_class(text, at, UNICODE_PUNCTUATION | (ascii ? UNICODE_SYMBOL : 0));
}

enum run { RUN_NONE, RUN_WORD, RUN_OTHER };

static enum run run_kind(struct str text, size_t at, size_t *ret_len)
{
    uint32_t cp;
    *ret_len = unicode_next(str_of(text.data + at, text.len - at), &cp);
    if (cp == UNICODE_BAD) return RUN_OTHER;
    if (unicode_is_word(cp)) return RUN_WORD;
    return unicode_classes(cp) & UNICODE_WHITE ? RUN_NONE : RUN_OTHER;
}

static size_t word_run(struct str text, size_t at)
{
    size_t len, end = at;
    const enum run kind = run_kind(text, at, &len);
    if (kind == RUN_NONE) return 0;
    while (end < text.len && run_kind(text, end, &len) == kind)
        end += len;
    return end - at;
}

static size_t match_at(const struct text_rule *r, struct str text, size_t at)
{
    struct str rest = { text.data + at, text.len - at };
    if (r->kind == RULE_LITERAL) return str_starts(rest, r->a) ? r->a.len : 0;
    if (r->kind == RULE_WHITE) return char_of_class(text, at, UNICODE_WHITE);
    if (r->kind == RULE_PUNCTUATION) return punctuation(text, at);
    if (r->kind == RULE_DIGIT) return char_of_class(text, at, UNICODE_NUMBER);
    return word_run(text, at);
}

/* Finds the first match at or behind `from`. */
static bool find(const struct text_rule *r, const struct pretokenizer *p, struct str text,
                 size_t from, size_t *ret_start, size_t *ret_end)
{
    if (p) return p->stages[0](text, from, ret_start, ret_end);
    work_add(1);
    for (size_t at = from; at < text.len;) {
        size_t len = match_at(r, text, at);
        if (len > 0) {
            *ret_start = at;
            *ret_end = at + len;
            work_add(*ret_end - from);
            return true;
        }
        uint32_t cp;
        at += unicode_next(str_of(text.data + at, text.len - at), &cp);
    }
    work_add(text.len - from);
    return false;
}

/* ---- what becomes of segments ---- */

struct joiner {
    struct cutter *c;
    size_t rule;
    struct str text;
    bool first; /* the text begins a prompt */
    enum rule_behavior behavior;
    size_t start, end; /* the segment that waits; empty: none */
    bool matched;      /* it is a match */
    bool before;       /* the last segment was a match */
};

static int give(struct joiner *j)
{
    struct str piece = { j->text.data + j->start, j->end - j->start };
    bool dropped = j->behavior == BEHAVIOR_REMOVED && j->matched;
    return dropped ? 0 : pass_on(j->c, j->rule, piece, j->first && j->start == 0);
}

static int take(struct joiner *j, size_t start, size_t end, bool match)
{
    if (start == end) return 0;
    bool waits = j->end > j->start, joins = false;
    switch (j->behavior) {
    case BEHAVIOR_CONTIGUOUS:
        joins = match == j->matched;
        break;
    case BEHAVIOR_WITH_PREVIOUS:
        joins = match && !j->before;
        break;
    case BEHAVIOR_WITH_NEXT:
        joins = !match && j->before;
        break;
    case BEHAVIOR_ISOLATED:
    case BEHAVIOR_REMOVED:
    case RULE_BEHAVIOR_COUNT:
        break;
    }
    int rc = waits && !joins ? give(j) : 0;
    if (!waits || !joins) j->start = start;
    j->end = end;
    j->matched = match;
    j->before = match;
    return rc;
}

/* Returns the pretokenizer by whose matches the rule cuts, for behaviors that must know them. */
static int cut(struct cutter *c, size_t rule, const struct pretokenizer *p, struct str text,
               bool first)
{
    const struct text_rule *r = &c->rules.list[rule];
    struct joiner j = { .c = c, .rule = rule, .text = text, .first = first };
    const bool match = !(r->flags & RULE_INVERT);
    size_t at = 0, start, end;
    int rc = 0;
    j.behavior = (enum rule_behavior)r->behavior;
    while (rc == 0 && at < text.len && find(r, p, text, at, &start, &end)) {
        rc = take(&j, at, start, !match);
        if (rc == 0) rc = take(&j, start, end, match);
        at = end;
    }
    if (rc == 0) rc = take(&j, at, text.len, !match);
    return rc == 0 && j.end > j.start ? give(&j) : rc;
}

/* ---- rules that change their piece ---- */

static int mark_blanks(struct cutter *c, size_t rule, struct str text, bool first)
{
    const struct text_rule *r = &c->rules.list[rule];
    struct buf *to = &c->changed[rule];
    buf_clear(to);
    bool marked = str_starts(text, r->a) || text.data[0] == ' ';
    if (!marked && (r->flags & RULE_ALWAYS || (r->flags & RULE_FIRST && first))) buf_str(to, r->a);
    for (size_t at = 0; at < text.len;) {
        const char *blank = memchr(text.data + at, ' ', text.len - at);
        size_t len = blank ? (size_t)(blank - text.data) - at : text.len - at;
        buf_append(to, text.data + at, len);
        if (blank) buf_str(to, r->a);
        at += len + (blank != NULL);
    }
    work_add(text.len);
    if (to->rc < 0) return to->rc;
    struct str all = buf_view(to);
    if (!(r->flags & RULE_SPLIT)) return pass_on(c, rule, all, first);
    for (size_t start = 0, at = 0; at < all.len; start = at) {
        size_t next = str_find(str_of(all.data + at + 1, all.len - at - 1), r->a);
        at = next == SIZE_MAX ? all.len : at + 1 + next;
        int rc = pass_on(c, rule, str_of(all.data + start, at - start), first && start == 0);
        if (rc != 0) return rc;
    }
    return 0;
}

static int prefix_blank(struct cutter *c, size_t rule, struct str text, bool first)
{
    struct buf *to = &c->changed[rule];
    if (text.data[0] == ' ') return pass_on(c, rule, text, first);
    buf_clear(to);
    buf_byte(to, ' ');
    buf_str(to, text);
    return to->rc < 0 ? to->rc : pass_on(c, rule, buf_view(to), first);
}

struct words {
    struct cutter *c;
    size_t rule;
    const char *start; /* of a text that begins a prompt; else NULL */
};

static int pass_word(void *arg, struct str word)
{
    const struct words *w = arg;
    return pass_on(w->c, w->rule, word, word.data == w->start);
}

static int run_rule(struct cutter *c, size_t rule, struct str text, bool first)
{
    const struct text_rule *r = &c->rules.list[rule];
    const struct pretokenizer *p = r->kind == RULE_WORDS ? pretokenizer_find(r->a) : NULL;
    if (r->kind == RULE_METASPACE) return mark_blanks(c, rule, text, first);
    if (r->kind == RULE_PREFIX_BLANK) return prefix_blank(c, rule, text, first);
    if (p && r->behavior == BEHAVIOR_ISOLATED) {
        struct words w = { c, rule, first ? text.data : NULL };
        return pretokenizer_run(p, text, pass_word, &w);
    }
    return cut(c, rule, p, text, first);
}

int cutter_run(struct cutter *c, struct str text, bool first)
{
    if (text.len == 0) return 0;
    return c->rules.count > 0 ? run_rule(c, 0, text, first) : c->word(c->arg, text);
}

void cutter_fini(struct cutter *c)
{
    for (size_t i = 0; i < COUNT_OF(c->changed); i++)
        buf_fini(&c->changed[i]);
}

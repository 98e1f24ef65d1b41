/* regex.c - reads a regular expression: the regular part of what Python, ECMA-262 and RE2 share.
 *
 * Texts, classes, ., groups (their names and numbers mean nothing here), |, * + ? {n,m}, \d \w \s and their
 * complements over ASCII, ^ and $ at the ends of an alternative. Back references, look-around, \b, \p and
 * flags are refused. A lazy count describes the same texts as a greedy one. */
#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/grammar/expr.h"

struct regex {
    struct builder *b;
    struct str text;
    size_t pos;
    uint32_t depth;
    bool in_json, searches;
};

#define WRONG(p, ...) builder_fail((p)->b, -EINVAL, "regex, byte %zu: " __VA_ARGS__)
#define UNSERVED(p, ...) builder_fail((p)->b, -ENOTSUP, "regex, byte %zu: " __VA_ARGS__)

static char peek_at(const struct regex *p, size_t ahead)
{
    return p->pos + ahead < p->text.len ? p->text.data[p->pos + ahead] : '\0';
}

static char peek(const struct regex *p)
{
    return peek_at(p, 0);
}

static bool at_end(const struct regex *p)
{
    return p->pos >= p->text.len;
}

static const struct expr *one_of(struct regex *p, struct code_set set)
{
    return p->in_json ? json_char_expr(p->b, set) : expr_class(p->b, set);
}

/* ---- classes ---- */

static const struct code_range digits[] = { { '0', '9' } };
static const struct code_range words[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
static const struct code_range spaces[] = { { '\t', '\r' }, { ' ', ' ' } };
static const struct code_range all_spaces[] = { { '\t', '\r' }, { 0x1c, ' ' } };
static const struct code_range line_ends[] = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };

/* Python counts letters, digits and blanks of all scripts, ECMA-262 those of ASCII. A complement is
 * therefore kept to ASCII, where both agree. */
static struct code_set ascii_without(struct builder *b, const struct code_range *range,
                                     uint32_t count)
{
    struct code_set set = code_set_make(b, range, count, true);
    return code_set_without(b, set, 0x80, CODE_POINT_MAX);
}

/* Returns the set of \d \w \s or their complements; false for another letter. */
static bool named_set(struct builder *b, char name, struct code_set *ret)
{
    switch (name) {
    case 'd':
        *ret = code_set_make(b, digits, COUNT_OF(digits), false);
        return true;
    case 'D':
        *ret = ascii_without(b, digits, COUNT_OF(digits));
        return true;
    case 'w':
        *ret = code_set_make(b, words, COUNT_OF(words), false);
        return true;
    case 'W':
        *ret = ascii_without(b, words, COUNT_OF(words));
        return true;
    case 's':
        *ret = code_set_make(b, spaces, COUNT_OF(spaces), false);
        return true;
    case 'S':
        *ret = ascii_without(b, all_spaces, COUNT_OF(all_spaces));
        return true;
    default:
        return false;
    }
}

static bool read_hex(struct regex *p, uint32_t count, uint32_t *ret)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; i++) {
        char d = peek_at(p, i);
        uint32_t v = d >= '0' && d <= '9'   ? (uint32_t)(d - '0')
                     : d >= 'a' && d <= 'f' ? (uint32_t)(d - 'a' + 10)
                     : d >= 'A' && d <= 'F' ? (uint32_t)(d - 'A' + 10)
                                            : 16;
        if (v == 16) return false;
        value = value << 4 | v;
    }
    p->pos += count;
    *ret = value;
    return value < 0xd800 || value > 0xdfff;
}

/* Reads the character behind a backslash; the position is on it. */
static bool read_escape(struct regex *p, uint32_t *ret)
{
    static const struct {
        char name, is;
    } plain[] = { { 'n', '\n' }, { 'r', '\r' }, { 't', '\t' }, { 'f', '\f' },
                  { 'v', '\v' }, { '0', '\0' }, { 'a', '\a' } };
    char c = peek(p);
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    p->pos++;
    if (c == 'x' && read_hex(p, 2, ret)) return true;
    if (c == 'u' && read_hex(p, 4, ret)) return true;
    for (size_t i = 0; i < COUNT_OF(plain); i++) {
        if (plain[i].name != c) continue;
        *ret = (uint32_t)plain[i].is;
        return true;
    }
    if (letter || (unsigned char)c >= 0x80 || p->pos > p->text.len) {
        UNSERVED(p, "the escape \\%c is not supported", p->pos, letter ? c : '?');
        return false;
    }
    *ret = (uint32_t)(unsigned char)c;
    return true;
}

static bool read_plain(struct regex *p, uint32_t *ret)
{
    size_t len = utf8_decode(str_of(p->text.data + p->pos, p->text.len - p->pos), ret);
    p->pos += len;
    if (len == 0) WRONG(p, "a character is not UTF-8", p->pos);
    return len > 0;
}

#define CLASS_RANGES_MAX 1024

struct class_ranges {
    struct code_range *range;
    uint32_t count;
    bool has_set; /* \d, \w, \s or a complement */
};

static bool class_add(struct regex *p, struct class_ranges *c, struct code_range r)
{
    if (c->count == CLASS_RANGES_MAX) {
        WRONG(p, "a class has more than %d ranges", p->pos, CLASS_RANGES_MAX);
        return false;
    }
    c->range[c->count++] = r;
    return true;
}

/* Reads one item of a class: a character, the beginning of a range, or a named set, which is added. */
static bool class_char(struct regex *p, struct class_ranges *c, uint32_t *ret, bool *is_set)
{
    struct code_set set;
    *is_set = false;
    if (peek(p) != '\\') return read_plain(p, ret);
    p->pos++;
    if (named_set(p->b, peek(p), &set)) {
        *is_set = c->has_set = true;
        p->pos++;
        for (uint32_t i = 0; i < set.count; i++)
            if (!class_add(p, c, set.range[i])) return false;
        return true;
    }
    if (peek(p) == 'b') { /* in a class: backspace */
        p->pos++;
        *ret = '\b';
        return true;
    }
    return read_escape(p, ret);
}

static const struct expr *read_class(struct regex *p)
{
    struct class_ranges c = {
        .range = arena_array(&p->b->arena, CLASS_RANGES_MAX, sizeof *c.range),
    };
    if (!c.range) return builder_fail(p->b, -E2BIG, "the grammar needs too much memory");
    p->pos++;
    bool negated = peek(p) == '^';
    p->pos += negated;
    if (peek(p) == ']') /* Python and ECMA-262 read it differently */
        return UNSERVED(p, "a class that begins with ] needs a backslash before it", p->pos);
    while (p->b->rc == 0 && peek(p) != ']') {
        struct code_range r;
        bool is_set, to_set;
        if (at_end(p)) return WRONG(p, "a class has no closing ]", p->pos);
        if (peek(p) == '[' && (peek_at(p, 1) == ':' || peek_at(p, 1) == '='))
            return UNSERVED(p, "POSIX classes are not supported", p->pos);
        if (!class_char(p, &c, &r.from, &is_set)) break;
        if (is_set) continue;
        r.to = r.from;
        if (peek(p) == '-' && peek_at(p, 1) != ']' && p->pos + 1 < p->text.len) {
            p->pos++;
            if (!class_char(p, &c, &r.to, &to_set)) break;
            if (to_set) return WRONG(p, "a range of a class ends in a set", p->pos);
        }
        if (r.to < r.from) return WRONG(p, "a range of a class runs backwards", p->pos);
        if (!class_add(p, &c, r)) break;
    }
    p->pos++;
    if (p->b->rc < 0) return expr_nothing(p->b);
    struct code_set set = code_set_make(p->b, c.range, c.count, negated);
    if (negated && c.has_set) set = code_set_without(p->b, set, 0x80, CODE_POINT_MAX);
    return one_of(p, set);
}

/* ---- items ---- */

static const struct expr *read_alternatives(struct regex *p, bool outermost);

static const struct expr *read_group(struct regex *p)
{
    if (++p->depth > GRAMMAR_DEPTH_MAX)
        return builder_fail(p->b, -E2BIG, "regex: more than %d parentheses nest",
                            GRAMMAR_DEPTH_MAX);
    p->pos++;
    if (peek(p) == '?') {
        char c = peek_at(p, 1), d = peek_at(p, 2);
        bool named = (c == 'P' && d == '<') || (c == '<' && d != '=' && d != '!');
        if (c == ':') {
            p->pos += 2;
        } else if (named) {
            while (!at_end(p) && peek(p) != '>')
                p->pos++;
            p->pos++;
        } else {
            return UNSERVED(p, "a group (?%c is not supported", p->pos,
                            c >= ' ' && c < 127 ? c : '?');
        }
    }
    const struct expr *x = read_alternatives(p, false);
    if (p->b->rc == 0 && peek(p) != ')') return WRONG(p, "a group has no closing )", p->pos);
    p->pos++;
    p->depth--;
    return x;
}

static const struct expr *read_atom(struct regex *p)
{
    struct code_set set;
    uint32_t c;
    switch (peek(p)) {
    case '(':
        return read_group(p);
    case '[':
        return read_class(p);
    case '.':
        p->pos++;
        return one_of(p, code_set_make(p->b, line_ends, COUNT_OF(line_ends), true));
    case '*':
    case '+':
    case '?':
        return WRONG(p, "a count stands behind nothing", p->pos);
    case '^':
    case '$':
        return UNSERVED(p, "^ and $ are supported at the ends of an alternative only", p->pos);
    case '\\':
        p->pos++;
        if (named_set(p->b, peek(p), &set)) {
            p->pos++;
            return one_of(p, set);
        }
        if (!read_escape(p, &c)) return expr_nothing(p->b);
        break;
    default:
        if (!read_plain(p, &c)) return expr_nothing(p->b);
    }
    const struct code_range r = { c, c };
    return one_of(p, (struct code_set){ &r, 1 });
}

/* Reads {n}, {n,} or {n,m}. Returns false, without moving, where the braces stand for themselves. */
static bool read_braces(struct regex *p, uint32_t *min, uint32_t *max)
{
    uint64_t n[2] = { 0, 0 };
    size_t from = p->pos++, part = 0, digits_seen[2] = { 0, 0 };
    for (;; p->pos++) {
        char c = peek(p);
        if (c >= '0' && c <= '9') {
            digits_seen[part]++;
            if (n[part] <= GRAMMAR_REPEAT_MAX) n[part] = n[part] * 10 + (uint64_t)(c - '0');
        } else if (c == ',' && part == 0) {
            part = 1;
        } else {
            break;
        }
    }
    if (peek(p) != '}' || (digits_seen[0] == 0 && digits_seen[1] == 0)) {
        p->pos = from;
        return false;
    }
    p->pos++;
    *min = (uint32_t)n[0];
    *max = part == 0 ? *min : digits_seen[1] > 0 ? (uint32_t)n[1] : EXPR_FOREVER;
    return true;
}

static const struct expr *read_counts(struct regex *p, const struct expr *x)
{
    uint32_t min = 0, max = 0;
    char c = peek(p);
    if (c == '*' || c == '+' || c == '?') {
        min = c == '+';
        max = c == '?' ? 1 : EXPR_FOREVER;
        p->pos++;
    } else if (c != '{' || !read_braces(p, &min, &max)) {
        return x;
    }
    if (min > max) return WRONG(p, "a count runs backwards", p->pos);
    if (peek(p) == '?') p->pos++; /* lazy: the same texts */
    if (peek(p) == '+' || peek(p) == '*' || peek(p) == '?')
        return UNSERVED(p, "a count of a count needs a group", p->pos);
    return expr_repeat(p->b, x, min, max);
}

/* ---- sequences ---- */

static const struct expr *anything(struct regex *p)
{
    const struct expr *any = one_of(p, code_set_make(p->b, NULL, 0, true));
    return expr_repeat(p->b, any, 0, EXPR_FOREVER);
}

/* A `{` that begins no count stands for itself, so an atom may begin with it. */
static const struct expr *read_sequence(struct regex *p, bool outermost)
{
    struct expr_items items = { 0 };
    bool from_start = outermost && peek(p) == '^', to_end = false;
    p->pos += from_start;
    if (outermost && p->searches && !from_start) expr_push(p->b, &items, anything(p));
    while (p->b->rc == 0 && !at_end(p) && peek(p) != '|' && peek(p) != ')') {
        char after = peek_at(p, 1);
        to_end = outermost && peek(p) == '$' &&
                 (p->pos + 1 == p->text.len || after == '|' || after == ')');
        if (to_end) {
            p->pos++;
            break;
        }
        expr_push(p->b, &items, read_counts(p, read_atom(p)));
    }
    if (outermost && p->searches && !to_end) expr_push(p->b, &items, anything(p));
    if (p->b->rc < 0) return expr_nothing(p->b);
    return items.count > 0 ? expr_of(p->b, EXPR_SEQ, &items) : expr_empty(p->b);
}

static const struct expr *read_alternatives(struct regex *p, bool outermost)
{
    struct expr_items items = { 0 };
    expr_push(p->b, &items, read_sequence(p, outermost));
    while (p->b->rc == 0 && peek(p) == '|') {
        p->pos++;
        expr_push(p->b, &items, read_sequence(p, outermost));
    }
    return p->b->rc == 0 ? expr_of(p->b, EXPR_ALT, &items) : expr_nothing(p->b);
}

const struct expr *regex_expr(struct builder *b, struct str text, bool in_json, bool searches)
{
    struct regex p = { .b = b, .text = text, .in_json = in_json, .searches = searches };
    work_add(text.len * 4);
    const struct expr *x = read_alternatives(&p, true);
    if (b->rc == 0 && p.pos < text.len) WRONG(&p, "a ) closes no group", p.pos);
    return x;
}

void regex_build(struct builder *b, struct str text)
{
    rule_set(b, 0, regex_expr(b, text, false, false));
}

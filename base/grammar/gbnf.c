/* gbnf.c - reads llama.cpp's grammar format: rules `name ::= ...` over texts, classes, groups and counts.
 *
 * A rule ends where the next `name ::=` begins, so a rule may run over many lines. Names are looked up by
 * hash; a name that is used and never defined is refused with the place of its first use. */
#include "base/core/buf.h"
#include "base/core/hash.h"
#include "base/core/map.h"
#include "base/core/work.h"
#include "base/grammar/expr.h"

struct gbnf {
    struct builder *b;
    struct str text;
    size_t pos;
    uint32_t depth;
    struct map rules; /* hash of a name -> rule */
};

static size_t line_of(const struct gbnf *p)
{
    size_t line = 1;
    for (size_t i = 0; i < p->pos && i < p->text.len; i++)
        line += p->text.data[i] == '\n';
    return line;
}

#define WRONG(p, sentence, ...) \
    builder_fail((p)->b, -EINVAL, "grammar, line %zu: " sentence, __VA_ARGS__)

static char peek(const struct gbnf *p)
{
    return p->pos < p->text.len ? p->text.data[p->pos] : '\0';
}

static void skip_space(struct gbnf *p)
{
    for (; p->pos < p->text.len; p->pos++) {
        char c = peek(p);
        if (c == '#') {
            while (p->pos + 1 < p->text.len && p->text.data[p->pos + 1] != '\n')
                p->pos++;
        } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
            return;
        }
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static struct str read_name(struct gbnf *p)
{
    size_t from = p->pos;
    while (p->pos < p->text.len && is_name(p->text.data[p->pos]))
        p->pos++;
    return str_of(p->text.data + from, p->pos - from);
}

/* Returns true if `name ::=` stands here; the position does not move. */
static bool at_rule(struct gbnf *p)
{
    size_t from = p->pos;
    bool name = read_name(p).len > 0;
    while (peek(p) == ' ' || peek(p) == '\t')
        p->pos++;
    bool is = name && p->pos + 3 <= p->text.len && memcmp(p->text.data + p->pos, "::=", 3) == 0;
    p->pos = from;
    return is;
}

static uint32_t rule_of(struct gbnf *p, struct str name)
{
    uint64_t key[2] = { hash64(name.data, name.len, 1), hash64(name.data, name.len, 2) };
    bool is_new = false;
    if (str_eq(name, STR("root"))) return 0;
    uint32_t *rule = map_put(&p->rules, key, &is_new);
    work_add(name.len + 8);
    if (!rule) {
        builder_fail(p->b, -E2BIG, "the grammar has more than %u rules", GRAMMAR_RULES_MAX);
        return 0;
    }
    if (is_new) *rule = rule_add(p->b, name);
    return *rule;
}

/* Reads a character of a text or class, escapes included. Returns false at a fault. */
static bool read_char(struct gbnf *p, uint32_t *ret)
{
    static const struct {
        char name, is;
    } plain[] = { { 'n', '\n' }, { 'r', '\r' }, { 't', '\t' }, { '\\', '\\' }, { '"', '"' },
                  { '[', '[' },  { ']', ']' },  { '-', '-' },  { '^', '^' } };
    struct str rest = str_of(p->text.data + p->pos, p->text.len - p->pos);
    if (peek(p) != '\\') {
        size_t len = utf8_decode(rest, ret);
        p->pos += len;
        if (len == 0) WRONG(p, "a character is not UTF-8", line_of(p));
        return len > 0;
    }
    char c = rest.len > 1 ? rest.data[1] : '\0';
    uint32_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, value = 0;
    p->pos += 2;
    for (size_t i = 0; digits == 0 && i < sizeof plain / sizeof plain[0]; i++) {
        if (plain[i].name != c) continue;
        *ret = (uint32_t)plain[i].is;
        return true;
    }
    for (uint32_t i = 0; i < digits; i++, p->pos++) {
        char d = peek(p);
        uint32_t v = d >= '0' && d <= '9'   ? (uint32_t)(d - '0')
                     : d >= 'a' && d <= 'f' ? (uint32_t)(d - 'a' + 10)
                     : d >= 'A' && d <= 'F' ? (uint32_t)(d - 'A' + 10)
                                            : 16;
        if (v == 16) digits = 0;
        value = value << 4 | (v & 15);
    }
    bool known = digits > 0 && value <= CODE_POINT_MAX && (value < 0xd800 || value > 0xdfff);
    if (!known) WRONG(p, "an escape is not known", line_of(p));
    *ret = value;
    return known;
}

static const struct expr *read_text(struct gbnf *p)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    p->pos++;
    while (p->b->rc == 0 && peek(p) != '"') {
        uint32_t c;
        char bytes[4];
        if (p->pos >= p->text.len || peek(p) == '\n')
            return WRONG(p, "a text has no closing quote", line_of(p));
        if (!read_char(p, &c)) break;
        buf_append(&out, bytes, utf8_encode(c, bytes));
    }
    p->pos++;
    if (out.rc < 0) return builder_fail(p->b, out.rc, "no memory for the grammar");
    return expr_bytes(p->b, buf_view(&out));
}

#define CLASS_RANGES_MAX 1024

static const struct expr *read_class(struct gbnf *p)
{
    struct code_range *range = arena_array(&p->b->arena, CLASS_RANGES_MAX, sizeof *range);
    uint32_t count = 0;
    if (!range) return builder_fail(p->b, -E2BIG, "the grammar needs too much memory");
    p->pos++;
    bool negated = peek(p) == '^';
    p->pos += negated;
    while (p->b->rc == 0 && peek(p) != ']') {
        if (p->pos >= p->text.len) return WRONG(p, "a class has no closing ]", line_of(p));
        if (count == CLASS_RANGES_MAX)
            return WRONG(p, "a class has more than %d ranges", line_of(p), CLASS_RANGES_MAX);
        struct code_range r;
        if (!read_char(p, &r.from)) break;
        r.to = r.from;
        if (peek(p) == '-' && p->pos + 1 < p->text.len && p->text.data[p->pos + 1] != ']') {
            p->pos++;
            if (!read_char(p, &r.to)) break;
        }
        if (r.to < r.from) return WRONG(p, "a range of a class runs backwards", line_of(p));
        range[count++] = r;
    }
    p->pos++;
    if (p->b->rc < 0) return expr_nothing(p->b);
    return expr_class(p->b, code_set_make(p->b, range, count, negated));
}

static bool read_count(struct gbnf *p, uint32_t *ret)
{
    uint64_t n = 0;
    size_t from = p->pos;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->pos++)
        if (n <= GRAMMAR_REPEAT_MAX) n = n * 10 + (uint64_t)(peek(p) - '0');
    *ret = (uint32_t)n;
    return p->pos > from;
}

/* Reads * + ? {n} {n,} {n,m} {,m} behind an item, as many as stand there. */
static const struct expr *read_repeats(struct gbnf *p, const struct expr *x)
{
    while (p->b->rc == 0) {
        char c = peek(p);
        if (c != '*' && c != '+' && c != '?' && c != '{') return x;
        uint32_t min = c == '+', max = c == '?' ? 1 : EXPR_FOREVER;
        p->pos++;
        if (c == '{') {
            skip_space(p);
            bool has_min = read_count(p, &min);
            skip_space(p);
            if (!has_min && peek(p) != ',') return WRONG(p, "{ needs a count", line_of(p));
            max = min;
            if (peek(p) == ',') {
                p->pos++;
                skip_space(p);
                if (!read_count(p, &max)) max = EXPR_FOREVER;
                skip_space(p);
            }
            if (peek(p) != '}') return WRONG(p, "a count has no closing }", line_of(p));
            p->pos++;
            if (min > max) return WRONG(p, "a count runs backwards", line_of(p));
        }
        x = expr_repeat(p->b, x, min, max);
    }
    return x;
}

static const struct expr *read_alternatives(struct gbnf *p);

static const struct expr *read_item(struct gbnf *p)
{
    const struct expr *x;
    char c = peek(p);
    if (c == '"') return read_text(p);
    if (c == '[') return read_class(p);
    if (c == '.') {
        p->pos++;
        return expr_class(p->b, code_set_make(p->b, NULL, 0, true));
    }
    if (is_name(c)) return expr_call(p->b, rule_of(p, read_name(p)));
    if (c != '(') return WRONG(p, "'%c' begins no item", line_of(p), c >= ' ' && c < 127 ? c : '?');
    if (++p->depth > GRAMMAR_DEPTH_MAX)
        return builder_fail(p->b, -E2BIG, "grammar: more than %d parentheses nest",
                            GRAMMAR_DEPTH_MAX);
    p->pos++;
    x = read_alternatives(p);
    if (p->b->rc == 0 && peek(p) != ')') return WRONG(p, "a group has no closing )", line_of(p));
    p->pos++;
    p->depth--;
    return x;
}

static const struct expr *read_sequence(struct gbnf *p)
{
    struct expr_items items = { 0 };
    for (;;) {
        skip_space(p);
        char c = peek(p);
        if (p->b->rc < 0 || p->pos >= p->text.len || c == '|' || c == ')' || at_rule(p)) break;
        expr_push(p->b, &items, read_repeats(p, read_item(p)));
    }
    return p->b->rc == 0 && items.count > 0 ? expr_of(p->b, EXPR_SEQ, &items) : expr_empty(p->b);
}

static const struct expr *read_alternatives(struct gbnf *p)
{
    struct expr_items items = { 0 };
    expr_push(p->b, &items, read_sequence(p));
    while (p->b->rc == 0 && peek(p) == '|') {
        p->pos++;
        expr_push(p->b, &items, read_sequence(p));
    }
    return p->b->rc == 0 ? expr_of(p->b, EXPR_ALT, &items) : expr_nothing(p->b);
}

void gbnf_build(struct builder *b, struct str text)
{
    struct gbnf p = { .b = b, .text = text };
    map_init(&p.rules, 2 * sizeof(uint64_t), sizeof(uint32_t), GRAMMAR_RULES_MAX, MAP_FOREIGN);
    work_add(text.len * 4);
    skip_space(&p);
    while (b->rc == 0 && p.pos < text.len) {
        if (!at_rule(&p)) {
            WRONG(&p, "a rule begins with its name and ::=", line_of(&p));
            break;
        }
        uint32_t rule = rule_of(&p, read_name(&p));
        while (peek(&p) != '=')
            p.pos++;
        p.pos++;
        if (b->rc < 0) break;
        if (b->rule[rule].body) {
            WRONG(&p, "the rule " STR_FMT " stands there twice", line_of(&p),
                  STR_ARG(b->rule[rule].name));
            break;
        }
        rule_set(b, rule, read_alternatives(&p));
        if (b->rc == 0 && peek(&p) == ')') WRONG(&p, "a ) closes no group", line_of(&p));
    }
    map_fini(&p.rules);
    for (uint32_t i = 0; i < b->rule_count && b->rc == 0; i++)
        if (!b->rule[i].body)
            builder_fail(b, -EINVAL, "grammar: the rule " STR_FMT " is used and not defined",
                         STR_ARG(b->rule[i].name));
}

/* json.c - describes JSON itself, texts as JSON writes them, and a choice of texts.
 *
 * A string may be written in any way that JSON allows, but for lone surrogates, which no UTF-8 reader
 * takes. Between two tokens there may be one space, or a line break and a bounded indent, and nothing
 * around the whole value: an output that is complete ends at once, and a model cannot fill a response
 * with blanks. Numbers have a bounded count of digits for the same reason. */
#include "base/core/json.h"

#include "base/core/bits.h"
#include "base/grammar/expr.h"

#include <stdio.h>

#define INDENT_MAX 24
#define DIGITS_MAX 17 /* behind the first; of a whole part, and of a fraction */

/* ---- strings ---- */

static const struct expr *control_escape(struct builder *b, uint32_t c)
{
    char text[8];
    const char *name = c == '\b'   ? "\\b"
                       : c == '\f' ? "\\f"
                       : c == '\n' ? "\\n"
                       : c == '\r' ? "\\r"
                       : c == '\t' ? "\\t"
                                   : NULL;
    snprintf(text, sizeof text, "\\u%04x", c);
    return expr_text(b, name ? name : text);
}

const struct expr *json_char_expr(struct builder *b, struct code_set set)
{
    struct expr_items items = { 0 };
    struct code_set plain = code_set_without(b, set, 0, 0x1f);
    plain = code_set_without(b, plain, '"', '"');
    plain = code_set_without(b, plain, '\\', '\\');
    if (b->rc < 0) return expr_nothing(b);
    if (plain.count > 0) expr_push(b, &items, expr_class(b, plain));
    if (code_set_has(set, '"')) expr_push(b, &items, expr_text(b, "\\\""));
    if (code_set_has(set, '\\')) expr_push(b, &items, expr_text(b, "\\\\"));
    for (uint32_t c = 0; c < 0x20; c++)
        if (code_set_has(set, c)) expr_push(b, &items, control_escape(b, c));
    return items.count > 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

const struct expr *json_literal(struct builder *b, struct str text)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_put_str(&w, text);
    if (out.rc < 0) return builder_fail(b, out.rc, "no memory for the grammar");
    return expr_bytes(b, buf_view(&out));
}

static const struct expr *class_of(struct builder *b, const char *chars)
{
    struct code_range range[32];
    uint32_t count = 0;
    for (; *chars; chars++, count++)
        range[count] = (struct code_range){ (uint32_t)*chars, (uint32_t)*chars };
    return expr_class(b, code_set_make(b, range, count, false));
}

static const struct expr *hex(struct builder *b)
{
    static const struct code_range range[] = { { '0', '9' }, { 'A', 'F' }, { 'a', 'f' } };
    return expr_class(b, (struct code_set){ range, COUNT_OF(range) });
}

/* One character of a string: itself, or escaped; a pair of surrogates is one. */
static const struct expr *make_char(struct builder *b)
{
    struct code_set set = code_set_make(b, NULL, 0, true);
    set = code_set_without(b, set, 0, 0x1f);
    set = code_set_without(b, set, '"', '"');
    set = code_set_without(b, set, '\\', '\\');
    const struct expr *x = hex(b), *d = class_of(b, "dD");
    const struct expr *high = EXPR_SEQ_OF(b, d, class_of(b, "89abAB"), x, x);
    const struct expr *low = EXPR_SEQ_OF(b, d, class_of(b, "cdefCDEF"), x, x);
    const struct expr *not_d = EXPR_SEQ_OF(b, class_of(b, "0123456789abcefABCEF"), x, x, x);
    const struct expr *below = EXPR_SEQ_OF(b, d, expr_range(b, '0', '7'), x, x);
    const struct expr *code =
        EXPR_ALT_OF(b, not_d, below, EXPR_SEQ_OF(b, high, expr_text(b, "\\u"), low));
    const struct expr *escape = EXPR_SEQ_OF(
        b, expr_text(b, "\\"),
        EXPR_ALT_OF(b, class_of(b, "\"\\/bfnrt"), EXPR_SEQ_OF(b, expr_text(b, "u"), code)));
    return EXPR_ALT_OF(b, expr_class(b, set), escape);
}

/* ---- numbers ---- */

static const struct expr *whole(struct builder *b)
{
    const struct expr *digit = expr_range(b, '0', '9');
    const struct expr *more =
        EXPR_SEQ_OF(b, expr_range(b, '1', '9'), expr_repeat(b, digit, 0, DIGITS_MAX));
    return EXPR_SEQ_OF(b, expr_optional(b, expr_text(b, "-")),
                       EXPR_ALT_OF(b, expr_text(b, "0"), more));
}

/* The exponent has two digits, so that every number is a finite double. */
static const struct expr *make_number(struct builder *b)
{
    const struct expr *digit = expr_range(b, '0', '9');
    const struct expr *fraction =
        EXPR_SEQ_OF(b, expr_text(b, "."), expr_repeat(b, digit, 1, DIGITS_MAX));
    const struct expr *exponent = EXPR_SEQ_OF(
        b, class_of(b, "eE"), expr_optional(b, class_of(b, "+-")), expr_repeat(b, digit, 1, 2));
    return EXPR_SEQ_OF(b, whole(b), expr_optional(b, fraction), expr_optional(b, exponent));
}

/* ---- values ---- */

static const struct expr *make_space(struct builder *b)
{
    const struct expr *blank = expr_text(b, " ");
    const struct expr *line =
        EXPR_SEQ_OF(b, expr_text(b, "\n"), expr_repeat(b, blank, 0, INDENT_MAX));
    return expr_optional(b, EXPR_ALT_OF(b, blank, line));
}

/* Items between brackets, parted by commas; maybe none. */
static const struct expr *make_list(struct builder *b, struct json_rules *j, const char *open,
                                    const char *close, const struct expr *item)
{
    const struct expr *space = json_part(b, j, JSON_PART_SPACE);
    const struct expr *more = EXPR_SEQ_OF(b, expr_text(b, ","), space, item);
    const struct expr *items = EXPR_SEQ_OF(b, item, expr_repeat(b, more, 0, EXPR_FOREVER), space);
    return EXPR_SEQ_OF(b, expr_text(b, open), space, expr_optional(b, items), expr_text(b, close));
}

static const struct expr *make_value(struct builder *b, struct json_rules *j)
{
    return EXPR_ALT_OF(b, json_part(b, j, JSON_PART_OBJECT), json_part(b, j, JSON_PART_ARRAY),
                       json_part(b, j, JSON_PART_STRING), json_part(b, j, JSON_PART_NUMBER),
                       expr_text(b, "true"), expr_text(b, "false"), expr_text(b, "null"));
}

static const struct expr *make_part(struct builder *b, struct json_rules *j, enum json_part part)
{
    const struct expr *quote = expr_text(b, "\"");
    switch (part) {
    case JSON_PART_VALUE:
        return make_value(b, j);
    case JSON_PART_OBJECT:
        return make_list(b, j, "{", "}",
                         EXPR_SEQ_OF(b, json_part(b, j, JSON_PART_STRING), expr_text(b, ":"),
                                     json_part(b, j, JSON_PART_SPACE),
                                     json_part(b, j, JSON_PART_VALUE)));
    case JSON_PART_ARRAY:
        return make_list(b, j, "[", "]", json_part(b, j, JSON_PART_VALUE));
    case JSON_PART_STRING:
        return EXPR_SEQ_OF(b, quote,
                           expr_repeat(b, json_part(b, j, JSON_PART_CHAR), 0, EXPR_FOREVER), quote);
    case JSON_PART_CHAR:
        return make_char(b);
    case JSON_PART_NUMBER:
        return make_number(b);
    case JSON_PART_INTEGER:
        return whole(b);
    case JSON_PART_SPACE:
    case JSON_PART_COUNT:
        break;
    }
    return make_space(b);
}

const struct expr *json_part(struct builder *b, struct json_rules *j, enum json_part part)
{
    if (!j->made[part]) {
        uint32_t rule = rule_add(b, (struct str){ 0 });
        j->made[part] = true; /* before its body: JSON is recursive */
        j->rule[part] = rule;
        const struct expr *body = make_part(b, j, part);
        rule_set(b, rule, body);
    }
    return expr_call(b, j->rule[part]);
}

void json_object_build(struct builder *b)
{
    struct json_rules j = { 0 };
    rule_set(b, 0, json_part(b, &j, JSON_PART_OBJECT));
}

/* ---- choice ---- */

#define CHOICES_MAX 8192

void choice_build(struct builder *b, struct str text)
{
    struct json_reader r;
    struct str *choice = arena_array(&b->arena, CHOICES_MAX, sizeof *choice);
    uint32_t count = 0;
    json_reader_init(&r, text);
    if (!choice) {
        builder_fail(b, -ENOMEM, "no memory for the grammar");
        return;
    }
    bool is_list = json_next(&r) == JSON_ARRAY;
    while (is_list && json_next(&r) == JSON_STRING) {
        if (count == CHOICES_MAX) {
            builder_fail(b, -E2BIG, "more than %d choices", CHOICES_MAX);
            return;
        }
        if (json_text_arena(&r, &b->arena, &choice[count]) < 0) {
            builder_fail(b, -ENOMEM, "no memory for the grammar");
            return;
        }
        count++;
    }
    if (!is_list || r.token != JSON_ARRAY_END || json_next(&r) != JSON_END || count == 0) {
        builder_fail(b, -EINVAL, "the choices must be an array of at least one string");
        return;
    }
    rule_set(b, 0, expr_strings(b, choice, count));
}

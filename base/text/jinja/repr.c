/* repr.c - builds text with marks, and prints values as Python does.
 *
 * A builder doubles in the arena; the blocks that it leaves behind are together at most as large as the
 * one it holds. Marks are allocated when the first marked byte comes, so that text of the template
 * alone costs none.
 */
#include "base/core/bits.h"
#include "base/text/jinja/run.h"
#include "base/text/jinja/value.h"
#include "base/text/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool jinja_is_marked(struct jinja_text t)
{
    return t.mark && t.len > 0 && memchr(t.mark, 1, t.len);
}

static int grow(struct jinja_builder *b, size_t more)
{
    size_t need;
    if (!add_fits(b->len, more, &need) || need > b->run->limits.output_bytes_max)
        return jinja_fail(b->run, -E2BIG, "a text of more than %zu bytes (output_bytes_max)",
                          b->run->limits.output_bytes_max);
    if (need <= b->cap) return 0;
    size_t cap = b->cap ? 2 * b->cap : 64;
    if (cap < need) cap = need;
    void *data, *mark = NULL;
    int rc = jinja_alloc(b->run, cap, 1, &data);
    if (rc == 0 && b->mark) rc = jinja_alloc(b->run, cap, 1, &mark);
    if (rc < 0) return rc;
    if (b->len > 0) memcpy(data, b->data, b->len);
    if (b->mark) memcpy(mark, b->mark, b->len);
    b->data = data;
    b->mark = mark;
    b->cap = cap;
    return 0;
}

int jinja_expect(struct jinja_builder *b, size_t bytes)
{
    return grow(b, bytes);
}

static int make_marks(struct jinja_builder *b)
{
    void *mark;
    int rc = jinja_alloc(b->run, b->cap, 1, &mark); /* zeroed: earlier bytes are unmarked */
    if (rc == 0) b->mark = mark;
    return rc;
}

void jinja_put(struct jinja_builder *b, struct jinja_text t)
{
    if (t.len == 0 || b->rc < 0) return;
    b->rc = grow(b, t.len);
    if (b->rc == 0) b->rc = jinja_charge(b->run, t.len / JINJA_STEP_BYTES);
    if (b->rc == 0 && !b->mark && jinja_is_marked(t)) b->rc = make_marks(b);
    if (b->rc < 0) return;
    memcpy(b->data + b->len, t.data, t.len);
    if (b->mark && t.mark) memcpy(b->mark + b->len, t.mark, t.len);
    if (b->mark && !t.mark) memset(b->mark + b->len, 0, t.len);
    b->len += t.len;
}

void jinja_put_str(struct jinja_builder *b, struct str s)
{
    jinja_put(b, jinja_text_of(s));
}

void jinja_put_marked(struct jinja_builder *b, struct str s, bool marked)
{
    size_t start = b->len;
    jinja_put_str(b, s);
    if (!marked || b->rc < 0) return;
    if (!b->mark) b->rc = make_marks(b);
    if (b->rc == 0) memset(b->mark + start, 1, s.len);
}

void jinja_put_text(struct jinja_builder *b, const char *text)
{
    jinja_put_str(b, str_from(text));
}

int jinja_built(struct jinja_builder *b, struct jinja_value *ret)
{
    if (b->rc < 0) return b->rc;
    *ret = jinja_string((struct jinja_text){ b->data ? b->data : "", b->mark, b->len, false });
    return 0;
}

/* Finds the digits of the shortest decimal that reads back as `d`, and its exponent: 0.DIGITS * 10^exp. */
static size_t shortest_digits(double d, char digits[20], int *exponent)
{
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, d);
        if (strtod(text, NULL) == d) break;
    }
    size_t len = 0;
    const char *at = text;
    for (; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9') digits[len++] = *at;
    *exponent = (int)strtol(at + 1, NULL, 10) + 1;
    while (len > 1 && digits[len - 1] == '0')
        len--;
    return len;
}

size_t jinja_float_repr(double d, char out[JINJA_FLOAT_LEN])
{
    if (isnan(d)) return (size_t)snprintf(out, JINJA_FLOAT_LEN, "nan");
    if (isinf(d)) return (size_t)snprintf(out, JINJA_FLOAT_LEN, d < 0 ? "-inf" : "inf");
    char digits[20];
    int exponent;
    const char *sign = signbit(d) ? "-" : "";
    int count = (int)shortest_digits(fabs(d), digits, &exponent);
    int len;
    if (d == 0) {
        len = snprintf(out, JINJA_FLOAT_LEN, "%s0.0", sign);
    } else if (exponent > 16 || exponent <= -4) {
        len = snprintf(out, JINJA_FLOAT_LEN, "%s%c%s%.*se%+03d", sign, digits[0],
                       count > 1 ? "." : "", count - 1, digits + 1, exponent - 1);
    } else if (exponent <= 0) {
        len =
            snprintf(out, JINJA_FLOAT_LEN, "%s0.%.*s%.*s", sign, -exponent, "0000", count, digits);
    } else if (count <= exponent) {
        len = snprintf(out, JINJA_FLOAT_LEN, "%s%.*s%.*s.0", sign, count, digits, exponent - count,
                       "0000000000000000");
    } else {
        len = snprintf(out, JINJA_FLOAT_LEN, "%s%.*s.%.*s", sign, exponent, digits,
                       count - exponent, digits + exponent);
    }
    return (size_t)len;
}

static void put_number(struct jinja_builder *b, const struct jinja_value *v)
{
    char text[JINJA_FLOAT_LEN];
    size_t len = v->kind == JINJA_FLOAT
                     ? jinja_float_repr(v->real, text)
                     : (size_t)snprintf(text, sizeof text, "%" PRId64, v->integer);
    jinja_put_str(b, str_of(text, len));
}

static void put_escape(struct jinja_builder *b, uint32_t cp, bool marked)
{
    char text[16];
    const char *form = cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (cp == '\n' || cp == '\r' || cp == '\t')
        snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* one of the three above */
        snprintf(text, sizeof text, form, cp);
#pragma GCC diagnostic pop
    jinja_put_marked(b, str_from(text), marked);
}

static void put_text_repr(struct jinja_builder *b, const struct jinja_value *v)
{
    struct jinja_text t = v->text;
    bool single = t.len > 0 && memchr(t.data, '\'', t.len);
    bool twofold = t.len > 0 && memchr(t.data, '"', t.len);
    char quote = single && !twofold ? '"' : '\'';
    if (t.safe) jinja_put_text(b, "Markup(");
    jinja_put_str(b, str_of(&quote, 1));
    size_t done = 0;
    for (size_t at = 0; at < t.len && b->rc == 0;) {
        uint32_t cp;
        size_t len = unicode_next(str_of(t.data + at, t.len - at), &cp);
        bool printable = unicode_classes(cp) & UNICODE_PRINTABLE;
        if (printable && cp != '\\' && cp != (unsigned char)quote) {
            at += len;
            continue;
        }
        jinja_put(b, jinja_slice(t, done, at - done));
        bool marked = t.mark && t.mark[at];
        if (printable) {
            jinja_put_marked(b, STR("\\"), marked);
            jinja_put(b, jinja_slice(t, at, len));
        } else {
            put_escape(b, cp, marked);
        }
        at += len;
        done = at;
    }
    jinja_put(b, jinja_slice(t, done, t.len - done));
    jinja_put_str(b, str_of(&quote, 1));
    if (t.safe) jinja_put_text(b, ")");
}

static void put_items(struct jinja_builder *b, const struct jinja_list *list)
{
    for (size_t i = 0; i < list->count && b->rc == 0; i++) {
        if (i > 0) jinja_put_text(b, ", ");
        jinja_put_repr(b, &list->items[i]);
    }
}

static void put_dict(struct jinja_builder *b, const struct jinja_dict *d)
{
    jinja_put_text(b, "{");
    for (size_t i = 0; i < d->count && b->rc == 0; i++) {
        if (i > 0) jinja_put_text(b, ", ");
        jinja_put_repr(b, &d->entries[i].key);
        jinja_put_text(b, ": ");
        jinja_put_repr(b, &d->entries[i].value);
    }
    jinja_put_text(b, "}");
}

static void put_container(struct jinja_builder *b, const struct jinja_value *v)
{
    if (b->rc == 0) b->rc = jinja_charge(b->run, 1);
    if (b->rc == 0) b->rc = jinja_enter(b->run);
    if (b->rc < 0) return;
    if (v->kind == JINJA_DICT) {
        put_dict(b, v->dict);
    } else if (v->kind == JINJA_VIEW) {
        jinja_put_text(b, v->list->view);
        jinja_put_text(b, "([");
        put_items(b, v->list);
        jinja_put_text(b, "])");
    } else {
        bool tuple = v->kind == JINJA_TUPLE;
        jinja_put_text(b, tuple ? "(" : "[");
        put_items(b, v->list);
        jinja_put_text(b, tuple ? v->list->count == 1 ? ",)" : ")" : "]");
    }
    jinja_leave(b->run);
}

static void put_callable(struct jinja_builder *b, const struct jinja_value *v)
{
    jinja_put_text(b, "<");
    jinja_put_text(b, jinja_type_name(v));
    jinja_put_text(b, ">");
}

static void put_scalar(struct jinja_builder *b, const struct jinja_value *v)
{
    if (v->kind == JINJA_UNDEFINED) jinja_put_text(b, "Undefined");
    if (v->kind == JINJA_NONE) jinja_put_text(b, "None");
    if (v->kind == JINJA_BOOL) jinja_put_text(b, v->boolean ? "True" : "False");
    if (v->kind == JINJA_INT || v->kind == JINJA_FLOAT) put_number(b, v);
}

/* The functions that print each kind; of a kind without one only the type is printed. */
static void (*const reprs[JINJA_KIND_COUNT])(struct jinja_builder *b,
                                             const struct jinja_value *v) = {
    [JINJA_ABSENT] = put_scalar,    [JINJA_UNDEFINED] = put_scalar, [JINJA_NONE] = put_scalar,
    [JINJA_BOOL] = put_scalar,      [JINJA_INT] = put_scalar,       [JINJA_FLOAT] = put_scalar,
    [JINJA_STRING] = put_text_repr, [JINJA_LIST] = put_container,   [JINJA_TUPLE] = put_container,
    [JINJA_DICT] = put_container,   [JINJA_VIEW] = put_container,
};

void jinja_put_repr(struct jinja_builder *b, const struct jinja_value *v)
{
    if (reprs[v->kind])
        reprs[v->kind](b, v);
    else
        put_callable(b, v);
}

void jinja_put_value(struct jinja_builder *b, const struct jinja_value *v)
{
    if (v->kind == JINJA_UNDEFINED) return;
    if (v->kind == JINJA_STRING)
        jinja_put(b, v->text);
    else
        jinja_put_repr(b, v);
}

int jinja_to_text(struct jinja_run *run, const struct jinja_value *v, struct jinja_text *ret)
{
    if (v->kind == JINJA_STRING) {
        *ret = v->text;
        return 0;
    }
    struct jinja_builder b = { .run = run };
    struct jinja_value text;
    jinja_put_value(&b, v);
    int rc = jinja_built(&b, &text);
    if (rc == 0) *ret = text.text;
    return rc;
}

/* format.c - "%s and %.2f" % values, and "{} {name:>8}".format(...).
 *
 * Both come down to a field with Python's format specification:
 *     [[fill]align][sign][#][0][width][,][.precision][type]
 * Attribute and index lookups inside of {} are refused: in Python they are a way out of a
 * sandbox, and no template uses them.
 */
#include "base/core/bits.h"
#include "base/text/jinja/row.h"

#include <inttypes.h>
#include <stdio.h>

#define WIDTH_MAX 1000
#define NUMBER_LEN 400 /* %f of the largest double has 309 digits before the point */

struct field {
    struct jinja_text fill; /* one character */
    char align;             /* < > ^ = or 0 */
    char sign;              /* + - or blank */
    bool alternate, comma;
    int width, precision; /* precision -1: none */
    char type;            /* 0: by the value */
};

static bool take_int(struct str *s, int *ret)
{
    int value = 0;
    bool any = false;
    while (s->len > 0 && s->data[0] >= '0' && s->data[0] <= '9') {
        value = value * 10 + (s->data[0] - '0');
        if (value > WIDTH_MAX) return false;
        *s = str_of(s->data + 1, s->len - 1);
        any = true;
    }
    if (any) *ret = value;
    return true;
}

static bool take_char(struct str *s, char c)
{
    if (s->len == 0 || s->data[0] != c) return false;
    *s = str_of(s->data + 1, s->len - 1);
    return true;
}

static const char *digits_of(char type)
{
    return type == 'x'   ? "%" PRIx64
           : type == 'X' ? "%" PRIX64
           : type == 'o' ? "%" PRIo64
                         : "%" PRIu64;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* one of the four above, or a checked type */
static size_t int_digits(char type, uint64_t magnitude, char out[NUMBER_LEN])
{
    if (type != 'b') return (size_t)snprintf(out, NUMBER_LEN, digits_of(type), magnitude);
    size_t len = 0;
    for (int bit = 63; bit >= 0; bit--)
        if (len > 0 || (magnitude >> bit & 1) || bit == 0)
            out[len++] = (char)('0' + (magnitude >> bit & 1));
    return len;
}

static size_t float_digits(const struct field *f, double magnitude, char out[NUMBER_LEN])
{
    char form[] = { '%', '.', '*', f->type == '%' ? 'f' : f->type, '\0' };
    int precision = f->precision < 0 ? 6 : f->precision;
    if (f->type == '%') magnitude *= 100;
    int len = snprintf(out, NUMBER_LEN - 1, form, precision, magnitude);
    if (len > NUMBER_LEN - 2) len = NUMBER_LEN - 2;
    if (f->type == '%') out[len++] = '%';
    return (size_t)len;
}
#pragma GCC diagnostic pop

/* Thousands of the digits before the point. */
static size_t add_commas(char text[NUMBER_LEN], size_t len)
{
    size_t whole = 0;
    while (whole < len && text[whole] >= '0' && text[whole] <= '9')
        whole++;
    for (size_t at = whole; at > 3 && len + 1 < NUMBER_LEN;) {
        at -= 3;
        memmove(text + at + 1, text + at, len - at);
        text[at] = ',';
        len++;
    }
    return len;
}

static void put_fill(struct jinja_builder *b, const struct field *f, size_t count)
{
    for (size_t i = 0; i < count && b->rc == 0; i++)
        jinja_put(b, f->fill);
}

static void put_aligned(struct jinja_builder *b, const struct field *f, struct jinja_text text,
                        char usual)
{
    size_t len = jinja_text_length(text);
    size_t room = (size_t)f->width > len ? (size_t)f->width - len : 0;
    char align = f->align ? f->align : usual;
    size_t before = align == '<' ? 0 : align == '^' ? room / 2 : room;
    put_fill(b, f, before);
    jinja_put(b, text);
    put_fill(b, f, room - before);
}

static void put_signed(struct jinja_builder *b, const struct field *f, bool negative,
                       struct str digits)
{
    char sign[2] = { negative ? '-' : f->sign == '+' || f->sign == ' ' ? f->sign : '\0' };
    if (f->align == '=') {
        size_t len = strlen(sign) + digits.len;
        jinja_put_text(b, sign);
        put_fill(b, f, (size_t)f->width > len ? (size_t)f->width - len : 0);
        jinja_put_str(b, digits);
        return;
    }
    char text[NUMBER_LEN + 2];
    memcpy(text, sign, strlen(sign));
    memcpy(text + strlen(sign), digits.data, digits.len);
    put_aligned(b, f, jinja_text_of(str_of(text, strlen(sign) + digits.len)), '>');
}

static int put_int(struct jinja_builder *b, const struct field *f, int64_t v)
{
    char text[NUMBER_LEN] = "", prefix[3] = { '0', f->type, '\0' };
    size_t start = 0;
    if (f->alternate && f->type && strchr("xXob", f->type)) {
        memcpy(text, prefix, 2);
        start = 2;
    }
    uint64_t magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    char digits[NUMBER_LEN];
    size_t len = int_digits(f->type, magnitude, digits);
    if (f->comma) len = add_commas(digits, len);
    memcpy(text + start, digits, min_size(len, NUMBER_LEN - start));
    put_signed(b, f, v < 0, str_of(text, min_size(start + len, NUMBER_LEN)));
    return b->rc;
}

static int put_float(struct jinja_builder *b, const struct field *f, double v)
{
    char text[NUMBER_LEN];
    size_t len;
    double magnitude = v < 0 ? -v : v;
    if (f->type)
        len = float_digits(f, magnitude, text);
    else if (f->precision >= 0)
        len = float_digits(&(struct field){ .type = 'g', .precision = f->precision }, magnitude,
                           text);
    else
        len = jinja_float_repr(magnitude, text);
    if (f->comma) len = add_commas(text, len);
    put_signed(b, f, v < 0, str_of(text, len));
    return b->rc;
}

static int put_text(struct jinja_builder *b, const struct field *f, struct jinja_text text)
{
    if (f->precision >= 0) {
        size_t at = 0, left = (size_t)f->precision;
        while (at < text.len && (((unsigned char)text.data[at] & 0xC0) == 0x80 || left-- > 0))
            at++;
        text = jinja_slice(text, 0, at);
    }
    put_aligned(b, f, text, '<');
    return b->rc;
}

static int put_char(struct jinja_builder *b, const struct field *f, int64_t v)
{
    char text[4];
    if (v < 0 || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        return jinja_fail(b->run, -EDOM, "%%c needs a code point");
    size_t len = utf8_encode((uint32_t)v, text);
    return put_text(b, f, jinja_text_of(str_of(text, len)));
}

static int put_field(struct jinja_builder *b, const struct field *f, const struct jinja_value *v)
{
    static const char ints[] = "dxXob", floats[] = "fFeEgG%";
    int64_t i;
    char type = f->type;
    bool is_int = jinja_as_int(v, &i);
    if (type == 'c' && is_int) return put_char(b, f, i);
    bool one_char = type == 'c' && v->kind == JINJA_STRING && jinja_text_length(v->text) == 1;
    if (type == 's' || one_char || (!type && !jinja_is_number(v)) ||
        (!type && v->kind == JINJA_BOOL)) {
        struct jinja_text text;
        int rc = jinja_to_text(b->run, v, &text);
        return rc < 0 ? rc : put_text(b, f, text);
    }
    if (is_int && (!type || strchr(ints, type))) return put_int(b, f, i);
    if (jinja_is_number(v) && (!type || strchr(floats, type)))
        return put_float(b, f, jinja_as_float(v));
    return jinja_type_error(b->run, "this format needs another type", v);
}

/* One %... of a printf-like form; *s stands behind the %. */
static int percent_field(struct jinja_builder *b, struct str *s, struct field *f)
{
    static const char known[] = "srdiufFeEgGxXoc";
    *f = (struct field){ .fill = jinja_text_of(STR(" ")), .precision = -1, .align = '>' };
    for (;;) {
        if (take_char(s, '-'))
            f->align = '<';
        else if (take_char(s, '0'))
            f->fill = jinja_text_of(STR("0")), f->align = f->align == '<' ? '<' : '=';
        else if (take_char(s, '+'))
            f->sign = '+';
        else if (take_char(s, ' '))
            f->sign = ' ';
        else if (take_char(s, '#'))
            f->alternate = true;
        else
            break;
    }
    if (!take_int(s, &f->width)) return jinja_fail(b->run, -E2BIG, "a format's width is too large");
    if (take_char(s, '.')) {
        f->precision = 0;
        if (!take_int(s, &f->precision))
            return jinja_fail(b->run, -E2BIG, "a format's precision is too large");
    }
    if (s->len == 0 || !s->data[0] || !strchr(known, s->data[0]))
        return jinja_fail(b->run, -EDOM, "a %% format is not known");
    f->type = s->data[0] == 'i' || s->data[0] == 'u' ? 'd' : s->data[0];
    *s = str_of(s->data + 1, s->len - 1);
    return 0;
}

static int percent_value(struct jinja_builder *b, struct field *f, const struct jinja_value *v)
{
    if (f->type == 'd' && v->kind == JINJA_FLOAT) { /* %d cuts a float */
        if (!(v->real > -9e18 && v->real < 9e18))
            return jinja_fail(b->run, -EDOM, "%%d needs a number of at most 64 bits");
        struct jinja_value whole = jinja_int((int64_t)v->real);
        return put_field(b, f, &whole);
    }
    if (f->type == 'r') {
        struct jinja_builder repr = { .run = b->run };
        struct jinja_value text;
        jinja_put_repr(&repr, v);
        int rc = jinja_built(&repr, &text);
        f->type = 's';
        return rc < 0 ? rc : put_field(b, f, &text);
    }
    return put_field(b, f, v);
}

/* %(name)s takes from a mapping. */
static int named_value(struct jinja_builder *b, struct str *s, const struct jinja_value *args,
                       const struct jinja_value **ret)
{
    size_t end = str_find(*s, STR(")"));
    if (end == SIZE_MAX || args->kind != JINJA_DICT)
        return jinja_fail(b->run, -EDOM, "%%( needs a name and a mapping");
    int rc = jinja_dict_find(b->run, args->dict, str_of(s->data, end), ret);
    if (rc < 0) return rc;
    *s = str_of(s->data + end + 1, s->len - end - 1);
    return *ret ? 0 : jinja_fail(b->run, -EDOM, "%%( names a key that is not there");
}

static struct jinja_text rest_of(struct jinja_text form, struct str left)
{
    return jinja_slice(form, form.len - left.len, left.len);
}

int jinja_percent(struct jinja_run *run, struct jinja_text form, struct jinja_value *args,
                  struct jinja_value *ret)
{
    struct jinja_builder b = { .run = run };
    bool many = args->kind == JINJA_TUPLE;
    size_t used = 0, count = many ? args->list->count : 1;
    struct str s = jinja_bytes(form);
    bool named = false;
    while (s.len > 0 && b.rc == 0) {
        size_t at = str_find(s, STR("%"));
        if (at == SIZE_MAX) at = s.len;
        jinja_put(&b, jinja_slice(rest_of(form, s), 0, at));
        s = str_of(s.data + at, s.len - at);
        if (!take_char(&s, '%')) break;
        if (take_char(&s, '%')) {
            jinja_put_text(&b, "%");
            continue;
        }
        struct field f;
        const struct jinja_value *v = NULL;
        int rc = 0;
        if (take_char(&s, '(')) {
            rc = named_value(&b, &s, args, &v);
            named = true;
        } else if (used < count) {
            v = many ? &args->list->items[used] : args;
            used++;
        } else {
            rc = jinja_fail(run, -EDOM, "not enough values for the %% formats");
        }
        if (rc == 0) rc = percent_field(&b, &s, &f);
        if (rc == 0) rc = percent_value(&b, &f, v);
        if (rc < 0) return rc;
    }
    /* Python asks this only of what is no mapping, and a list counts as one. */
    bool counted =
        many || args->kind == JINJA_STRING || jinja_is_number(args) || args->kind == JINJA_NONE;
    if (used < count && !named && counted)
        return jinja_fail(run, -EDOM, "more values than %% formats");
    return jinja_built(&b, ret);
}

/* The specification behind the colon of {}. */
static int brace_field(struct jinja_builder *b, struct str s, struct field *f)
{
    static const char aligns[] = "<>^=", types[] = "sdxXobcfFeEgG%";
    *f = (struct field){ .fill = jinja_text_of(STR(" ")), .precision = -1 };
    uint32_t cp;
    size_t first = s.len > 0 ? utf8_decode(s, &cp) : 0;
    if (first > 0 && s.len > first && strchr(aligns, s.data[first])) {
        f->fill = jinja_text_of(str_of(s.data, first));
        f->align = s.data[first];
        s = str_of(s.data + first + 1, s.len - first - 1);
    } else if (s.len > 0 && strchr(aligns, s.data[0])) {
        f->align = s.data[0];
        s = str_of(s.data + 1, s.len - 1);
    }
    if (take_char(&s, '+'))
        f->sign = '+';
    else if (take_char(&s, ' '))
        f->sign = ' ';
    else
        take_char(&s, '-');
    f->alternate = take_char(&s, '#');
    if (take_char(&s, '0') && !f->align) f->fill = jinja_text_of(STR("0")), f->align = '=';
    if (!take_int(&s, &f->width))
        return jinja_fail(b->run, -E2BIG, "a format's width is too large");
    f->comma = take_char(&s, ',');
    if (take_char(&s, '.') && !take_int(&s, &f->precision))
        return jinja_fail(b->run, -E2BIG, "a format's precision is too large");
    if (s.len == 1 && s.data[0] && strchr(types, s.data[0]))
        f->type = s.data[0];
    else if (s.len > 0)
        return jinja_fail(b->run, -EDOM, "a format specification is not known");
    return 0;
}

static int brace_value(struct jinja_builder *b, struct str name, const struct jinja_args *args,
                       size_t *next, const struct jinja_value **ret)
{
    uint64_t index = *next;
    if (name.len == 0) (*next)++;
    if (name.len == 0 || str_to_u64(name, &index) == 0) {
        if (index >= args->count)
            return jinja_fail(b->run, -EDOM, "not enough values for the format");
        *ret = &args->at[index];
        return 0;
    }
    for (size_t i = 0; i < args->named_count; i++)
        if (str_eq(args->named[i].name, name)) *ret = &args->named[i].value;
    if (*ret) return 0;
    return jinja_fail(b->run, -EDOM, "the format names '%.*s', which is not given",
                      (int)min_size(name.len, 64), name.data);
}

/* {name!r:spec}; `inside` is what stands between the braces. */
static int put_brace(struct jinja_builder *b, struct str inside, const struct jinja_args *args,
                     size_t *next)
{
    struct str spec = inside;
    struct str name = str_cut(&spec, ':');
    struct str conversion = name;
    name = str_cut(&conversion, '!');
    const struct jinja_value *v = NULL;
    struct field f;
    int rc = brace_value(b, name, args, next, &v);
    if (rc == 0) rc = brace_field(b, spec.data ? spec : (struct str){ 0 }, &f);
    if (rc < 0) return rc;
    if (!conversion.data) return put_field(b, &f, v);
    f.type = str_eq(conversion, STR("r")) ? 'r' : 's';
    return percent_value(b, &f, v);
}

int jinja_format(struct jinja_run *run, struct jinja_text form, const struct jinja_args *args,
                 struct jinja_value *ret)
{
    struct jinja_builder b = { .run = run };
    struct str s = jinja_bytes(form);
    size_t next = 0;
    while (s.len > 0 && b.rc == 0) {
        size_t at = 0;
        while (at < s.len && s.data[at] != '{' && s.data[at] != '}')
            at++;
        jinja_put(&b, jinja_slice(rest_of(form, s), 0, at));
        if (at == s.len) break;
        char brace = s.data[at];
        s = str_of(s.data + at + 1, s.len - at - 1);
        if (take_char(&s, brace)) {
            jinja_put_str(&b, str_of(&brace, 1));
            continue;
        }
        size_t end = brace == '{' ? str_find(s, STR("}")) : SIZE_MAX;
        if (end == SIZE_MAX) return jinja_fail(run, -EDOM, "a format has a single brace");
        int rc = put_brace(&b, str_of(s.data, end), args, &next);
        if (rc < 0) return rc;
        s = str_of(s.data + end + 1, s.len - end - 1);
    }
    return jinja_built(&b, ret);
}

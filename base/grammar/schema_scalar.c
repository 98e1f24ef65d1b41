/* schema_scalar.c - writes strings and numbers of a shape.
 *
 * A format describes fewer texts than its RFC, so that every reader takes what is written. Intervals of numbers are
 * described digit by digit (json_number.h). */
#include "base/core/bits.h"
#include "base/grammar/json_number.h"
#include "base/grammar/schema_expr.h"

#include <math.h>

#define WHOLE_MOST 1e15
#define DECIMAL_MOST 999999999.0
#define MILLION 1e6

const struct expr *schema_quoted(struct builder *b, const struct expr *x)
{
    const struct expr *quote = expr_text(b, "\"");
    return EXPR_SEQ_OF(b, quote, x, quote);
}

uint32_t schema_repeat_bound(uint64_t most)
{
    return most == UINT64_MAX ? EXPR_FOREVER
                              : (uint32_t)min_u64(most, (uint64_t)GRAMMAR_REPEAT_MAX + 1);
}

/* ---- strings ---- */

/* Dates keep to days that every year has. */
#define DATE_TEXT                                               \
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|" \
    "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME_TEXT                                                                                  \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"
#define BYTE_TEXT "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL_TEXT "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"

static const struct {
    const char *name, *regex;
} formats[] = {
    { "date", DATE_TEXT },
    { "time", TIME_TEXT },
    { "date-time", DATE_TEXT "T" TIME_TEXT },
    { "uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}" },
    { "ipv4", "(" BYTE_TEXT "\\.){3}" BYTE_TEXT },
    { "hostname", LABEL_TEXT "(\\." LABEL_TEXT "){0,4}" },
    { "email",
      "[a-z0-9_]{1,32}([.+-][a-z0-9_]{1,16}){0,2}@" LABEL_TEXT "(\\." LABEL_TEXT "){1,3}" },
};

static const struct expr *format_expr(struct schema *s, struct source format)
{
    struct str name;
    if (source_text(s, format, &name) < 0) return expr_nothing(s->b);
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (str_eq(name, str_from(formats[i].name)))
            return schema_quoted(s->b, regex_expr(s->b, str_from(formats[i].regex), true, false));
    schema_unserved(
        s, format.place,
        "this format is not supported; date, time, date-time, uuid, ipv4, hostname and email are");
    return expr_nothing(s->b);
}

static const struct expr *pattern_expr(struct schema *s, struct source pattern)
{
    struct builder *b = s->b;
    struct str text;
    if (source_text(s, pattern, &text) < 0) return expr_nothing(b);
    const struct expr *x = regex_expr(b, text, true, true);
    if (b->rc == -EINVAL || b->rc == -ENOTSUP) {
        CLEANUP(buf_fini) struct buf pointer = { .max = SCHEMA_POINTER_BYTES };
        place_put(pattern.place, &pointer);
        err_prefix(b->err, b->rc, "schema %.*s", (int)pointer.len, pointer.data);
    }
    return schema_quoted(b, x);
}

const struct expr *schema_string_expr(struct schema *s, const struct shape *shape)
{
    struct builder *b = s->b;
    bool bounded = shape->min_length > 0 || shape->max_length < UINT64_MAX;
    bool has_pattern = shape->pattern.raw.len > 0, has_format = shape->format.raw.len > 0;
    if ((has_pattern || has_format) && (bounded || (has_pattern && has_format))) {
        schema_unserved(
            s, has_pattern ? shape->pattern.place : shape->format.place,
            "only one of pattern, format and a bound on the length is supported for one value");
        return expr_nothing(b);
    }
    if (has_pattern) return pattern_expr(s, shape->pattern);
    if (has_format) return format_expr(s, shape->format);
    if (!bounded) return json_part(b, &s->json, JSON_PART_STRING);
    return schema_quoted(b,
                         expr_repeat(b, json_part(b, &s->json, JSON_PART_CHAR),
                                     (uint32_t)min_u64(shape->min_length, GRAMMAR_REPEAT_MAX + 1),
                                     schema_repeat_bound(shape->max_length)));
}

/* ---- numbers ---- */

static const struct expr *whole_expr(struct schema *s, const struct shape *shape,
                                     const struct place *place)
{
    double low = fmax(shape->low, -WHOLE_MOST), high = fmin(shape->high, WHOLE_MOST);
    if (shape->low > WHOLE_MOST || shape->high < -WHOLE_MOST) {
        schema_unserved(s, place, "bounds of whole numbers beyond 1e15 are not supported");
        return expr_nothing(s->b);
    }
    int64_t from = (int64_t)ceil(low), to = (int64_t)floor(high);
    if (shape->low_open && !((double)from > low)) from++;
    if (shape->high_open && !((double)to < high)) to--;
    return from > to ? expr_nothing(s->b) : json_whole_between(s->b, from, to);
}

static const struct expr *decimal_expr(struct schema *s, const struct shape *shape,
                                       const struct place *place)
{
    double low = fmax(shape->low, -DECIMAL_MOST), high = fmin(shape->high, DECIMAL_MOST);
    double from = nearbyint(low * MILLION), to = nearbyint(high * MILLION);
    bool exact = !(from / MILLION < low) && !(from / MILLION > low) && !(to / MILLION < high) &&
                 !(to / MILLION > high);
    if (shape->low > DECIMAL_MOST || shape->high < -DECIMAL_MOST || !exact) {
        schema_unserved(
            s, place,
            "bounds of numbers are supported up to 999999999, with six digits behind the point");
        return expr_nothing(s->b);
    }
    int64_t first = (int64_t)from + (shape->low_open && shape->low >= low);
    int64_t last = (int64_t)to - (shape->high_open && shape->high <= high);
    return first > last ? expr_nothing(s->b) : json_millionths_between(s->b, first, last);
}

const struct expr *schema_number_expr(struct schema *s, const struct shape *shape, uint32_t types,
                                      const struct place *place)
{
    bool bounded = isfinite(shape->low) || isfinite(shape->high), whole = !(types & TYPE_NUMBER);
    if (!bounded) return json_part(s->b, &s->json, whole ? JSON_PART_INTEGER : JSON_PART_NUMBER);
    return whole ? whole_expr(s, shape, place) : decimal_expr(s, shape, place);
}

/* schema_scalar.c - writes strings and numbers of a shape.
 *
 * A format describes fewer texts than its RFC, so that every reader takes what is written. Intervals of numbers are
 * described digit by digit below. */
#include "base/core/bits.h"
#include "base/grammar/expr.h"
#include "base/grammar/schema_expr.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- the numbers of an interval ---- */

/* Whole numbers of [low, high]: texts of each length between those of the ends; of one length, the digits
 * follow an end's digits until the first that lies strictly between. Decimal numbers are taken in millionths:
 * nine digits before the point and six behind it are exact as doubles, so a validator that reads doubles
 * compares as we do. */

#define WHOLE_DIGITS 20
#define FRACTION_DIGITS 6
#define MILLION 1000000

static const struct expr *digit(struct builder *b, int from, int to)
{
    return from > to ? expr_nothing(b)
                     : expr_range(b, (uint32_t)('0' + from), (uint32_t)('0' + to));
}

static const struct expr *digits(struct builder *b, uint32_t min, uint32_t max)
{
    return expr_repeat(b, digit(b, 0, 9), min, max);
}

/* Texts of `len` digits that are at least a's, at most z's, or both; NULL: no bound. */
static const struct expr *same_length(struct builder *b, const char *a, const char *z, uint32_t len)
{
    if (len == 0) return expr_empty(b);
    if (!a && !z) return digits(b, len, len);
    int low = a ? *a - '0' : 0, high = z ? *z - '0' : 9;
    const char *next_a = a ? a + 1 : NULL, *next_z = z ? z + 1 : NULL;
    if (a && z && low == high)
        return EXPR_SEQ_OF(b, digit(b, low, low), same_length(b, next_a, next_z, len - 1));
    struct expr_items items = { 0 };
    if (a)
        expr_push(b, &items,
                  EXPR_SEQ_OF(b, digit(b, low, low), same_length(b, next_a, NULL, len - 1)));
    if (z)
        expr_push(b, &items,
                  EXPR_SEQ_OF(b, digit(b, high, high), same_length(b, NULL, next_z, len - 1)));
    int from = a ? low + 1 : low, to = z ? high - 1 : high;
    if (from <= to)
        expr_push(b, &items, EXPR_SEQ_OF(b, digit(b, from, to), digits(b, len - 1, len - 1)));
    return b->rc == 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

/* Whole numbers of [low, high], both at least 0. */
static const struct expr *natural(struct builder *b, int64_t low, int64_t high)
{
    struct expr_items items = { 0 };
    char a[WHOLE_DIGITS + 1], z[WHOLE_DIGITS + 1];
    if (low > high) return expr_nothing(b);
    for (int64_t power = 10;; power *= 10) {
        int64_t from = power == 10 ? 0 : power / 10, to = power - 1;
        if (from > high) break;
        if (to < low) continue;
        int len = snprintf(a, sizeof a, "%" PRId64, max_i64(low, from));
        snprintf(z, sizeof z, "%" PRId64, min_i64(high, to));
        expr_push(b, &items, same_length(b, a, z, (uint32_t)len));
    }
    return b->rc == 0 && items.count > 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

/* The whole numbers of [low, high]. */
static const struct expr *json_whole_between(struct builder *b, int64_t low, int64_t high)
{
    const struct expr *below = expr_nothing(b);
    if (low < 0) below = EXPR_SEQ_OF(b, expr_text(b, "-"), natural(b, high < 0 ? -high : 1, -low));
    return EXPR_ALT_OF(b, below, natural(b, max_i64(low, 0), high));
}

/* ---- decimals ---- */

static bool all(const char *d, char c)
{
    for (; *d; d++)
        if (*d != c) return false;
    return true;
}

/* Digits of a fraction, maybe none, that is at least a's; `a` and `z` are the rest of six digits. */
static const struct expr *rest_from(struct builder *b, const char *a)
{
    uint32_t left = (uint32_t)strlen(a);
    if (all(a, '0')) return digits(b, 0, left);
    return EXPR_ALT_OF(b, EXPR_SEQ_OF(b, digit(b, *a - '0', *a - '0'), rest_from(b, a + 1)),
                       EXPR_SEQ_OF(b, digit(b, *a - '0' + 1, 9), digits(b, 0, left - 1)));
}

static const struct expr *rest_to(struct builder *b, const char *z)
{
    uint32_t left = (uint32_t)strlen(z);
    if (left == 0) return expr_empty(b);
    return EXPR_ALT_OF(b, expr_empty(b),
                       EXPR_SEQ_OF(b, digit(b, *z - '0', *z - '0'), rest_to(b, z + 1)),
                       EXPR_SEQ_OF(b, digit(b, 0, *z - '0' - 1), digits(b, 0, left - 1)));
}

static const struct expr *rest_between(struct builder *b, const char *a, const char *z)
{
    uint32_t left = (uint32_t)strlen(a);
    if (all(a, '0')) return rest_to(b, z);
    if (*a == *z)
        return EXPR_SEQ_OF(b, digit(b, *a - '0', *a - '0'), rest_between(b, a + 1, z + 1));
    return EXPR_ALT_OF(b, EXPR_SEQ_OF(b, digit(b, *a - '0', *a - '0'), rest_from(b, a + 1)),
                       EXPR_SEQ_OF(b, digit(b, *a - '0' + 1, *z - '0' - 1), digits(b, 0, left - 1)),
                       EXPR_SEQ_OF(b, digit(b, *z - '0', *z - '0'), rest_to(b, z + 1)));
}

/* A point and the digits of a fraction in [low, high] millionths; nothing at all counts as zero. */
static const struct expr *fraction(struct builder *b, int64_t low, int64_t high)
{
    char a[FRACTION_DIGITS + 1], z[FRACTION_DIGITS + 1];
    snprintf(a, sizeof a, "%06d", (int)low);
    snprintf(z, sizeof z, "%06d", (int)high);
    /* The first digit is written here: a point without one is no number. */
    struct expr_items items = { 0 };
    int first = a[0] - '0', last = z[0] - '0';
    if (first == last) {
        expr_push(b, &items, EXPR_SEQ_OF(b, digit(b, first, first), rest_between(b, a + 1, z + 1)));
    } else {
        expr_push(b, &items, EXPR_SEQ_OF(b, digit(b, first, first), rest_from(b, a + 1)));
        expr_push(b, &items,
                  EXPR_SEQ_OF(b, digit(b, first + 1, last - 1), digits(b, 0, FRACTION_DIGITS - 1)));
        expr_push(b, &items, EXPR_SEQ_OF(b, digit(b, last, last), rest_to(b, z + 1)));
    }
    if (b->rc < 0) return expr_nothing(b);
    const struct expr *point = EXPR_SEQ_OF(b, expr_text(b, "."), expr_of(b, EXPR_ALT, &items));
    return low == 0 ? expr_optional(b, point) : point;
}

static const struct expr *positive(struct builder *b, int64_t low, int64_t high)
{
    if (low > high) return expr_nothing(b);
    int64_t a = low / MILLION, z = high / MILLION;
    int64_t from = low % MILLION, to = high % MILLION;
    if (a == z) return EXPR_SEQ_OF(b, natural(b, a, a), fraction(b, from, to));
    return EXPR_ALT_OF(b, EXPR_SEQ_OF(b, natural(b, a, a), fraction(b, from, MILLION - 1)),
                       EXPR_SEQ_OF(b, natural(b, a + 1, z - 1), fraction(b, 0, MILLION - 1)),
                       EXPR_SEQ_OF(b, natural(b, z, z), fraction(b, 0, to)));
}

/* The decimal numbers of [low, high] millionths, with at most six digits behind the point. */
static const struct expr *json_millionths_between(struct builder *b, int64_t low, int64_t high)
{
    const struct expr *below = expr_nothing(b);
    if (low < 0) below = EXPR_SEQ_OF(b, expr_text(b, "-"), positive(b, high < 0 ? -high : 1, -low));
    return EXPR_ALT_OF(b, below, positive(b, max_i64(low, 0), high));
}

#define WHOLE_MOST 1e15
#define DECIMAL_MOST 999999999.0

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

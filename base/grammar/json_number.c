/* json_number.c - describes the numbers of an interval, digit by digit.
 *
 * Whole numbers of [low, high]: texts of each length between those of the ends; of one length, the digits
 * follow an end's digits until the first that lies strictly between. Decimal numbers are taken in millionths:
 * nine digits before the point and six behind it are exact as doubles, so a validator that reads doubles
 * compares as we do. */
#include "base/grammar/json_number.h"

#include "base/core/bits.h"

#include <inttypes.h>
#include <stdio.h>

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

const struct expr *json_whole_between(struct builder *b, int64_t low, int64_t high)
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

const struct expr *json_millionths_between(struct builder *b, int64_t low, int64_t high)
{
    const struct expr *below = expr_nothing(b);
    if (low < 0) below = EXPR_SEQ_OF(b, expr_text(b, "-"), positive(b, high < 0 ? -high : 1, -low));
    return EXPR_ALT_OF(b, below, positive(b, max_i64(low, 0), high));
}

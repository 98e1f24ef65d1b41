/* config_value.c - converts one text to one C value and back.
 *
 * Numbers with a unit are read as integers times the unit, never through a double: 0.1s is
 * exactly 100000 us, and a value that cannot be exact (finer than a microsecond or a byte) is refused
 * instead of rounded. Printing gives the largest unit that divides, so print(parse(x)) parses to
 * the same value.
 */
#include "base/io/config/config_value.h"

#include "base/core/arena.h"
#include "base/core/own.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FRACTION_DIGITS_MAX 6 /* 10^6 times the largest unit still fits 64 bits */

struct unit {
    const char *name;
    uint64_t size;
};

static const struct unit duration_units[] = {
    { "d", 86400000000 }, { "h", 3600000000 }, { "m", 60000000 },
    { "s", 1000000 },     { "ms", 1000 },      { "us", 1 },
};

/* Binary before decimal: 1048576 prints as 1MiB. */
static const struct unit bytes_units[] = {
    { "TiB", (uint64_t)1 << 40 },
    { "GiB", (uint64_t)1 << 30 },
    { "MiB", (uint64_t)1 << 20 },
    { "KiB", (uint64_t)1 << 10 },
    { "TB", 1000000000000 },
    { "GB", 1000000000 },
    { "MB", 1000000 },
    { "KB", 1000 },
    { "B", 1 },
};

/* Takes the decimal digits at the start of *s; returns false when there is none or they do not fit. */
static bool digits_take(struct str *s, uint64_t *ret, size_t *ret_count)
{
    uint64_t value = 0;
    size_t n = 0;
    while (n < s->len && s->data[n] >= '0' && s->data[n] <= '9') {
        if (__builtin_mul_overflow(value, 10, &value)) return false;
        if (__builtin_add_overflow(value, (uint64_t)(s->data[n] - '0'), &value)) return false;
        n++;
    }
    if (n == 0) return false;
    *ret = value;
    *ret_count = n;
    s->data += n;
    s->len -= n;
    return true;
}

static int scaled_parse(struct str text, const struct unit *units, size_t count, uint64_t *ret)
{
    uint64_t whole, fraction = 0, scale = 1;
    size_t digits;
    if (text.len == 0 || text.data[0] < '0' || text.data[0] > '9') return -EINVAL;
    if (!digits_take(&text, &whole, &digits)) return -ERANGE;
    if (text.len > 0 && text.data[0] == '.') {
        text.data++;
        text.len--;
        if (!digits_take(&text, &fraction, &digits)) return -EINVAL;
        if (digits > FRACTION_DIGITS_MAX) return -ERANGE;
        for (size_t i = 0; i < digits; i++)
            scale *= 10;
    }
    for (size_t i = 0; i < count; i++) {
        if (!str_eq(text, str_from(units[i].name))) continue;
        uint64_t value, part = fraction * units[i].size;
        if (part % scale != 0) return -ERANGE;
        if (__builtin_mul_overflow(whole, units[i].size, &value) ||
            __builtin_add_overflow(value, part / scale, &value) || value > INT64_MAX)
            return -ERANGE;
        *ret = value;
        return 0;
    }
    return -EINVAL;
}

static int scaled_print(int64_t value, const struct unit *units, size_t count, struct buf *out)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    for (size_t i = 0; i < count; i++) {
        if (size < units[i].size || size % units[i].size != 0) continue;
        return buf_printf(out, "%s%" PRIu64 "%s", value < 0 ? "-" : "", size / units[i].size,
                          units[i].name);
    }
    return buf_text(out, "0");
}

int duration_parse(struct str text, int64_t *ret_us)
{
    uint64_t us = 0;
    if (!str_eq(text, STR("0"))) {
        int rc = scaled_parse(text, duration_units, COUNT_OF(duration_units), &us);
        if (rc < 0) return rc;
    }
    *ret_us = (int64_t)us;
    return 0;
}

int duration_print(int64_t us, struct buf *out)
{
    return scaled_print(us, duration_units, COUNT_OF(duration_units), out);
}

int bytes_parse(struct str text, int64_t *ret)
{
    uint64_t bytes = 0;
    int rc = str_to_u64(text, &bytes);
    if (rc < 0) rc = scaled_parse(text, bytes_units, COUNT_OF(bytes_units), &bytes);
    if (rc == 0 && bytes > INT64_MAX) rc = -ERANGE;
    if (rc < 0) return rc;
    *ret = (int64_t)bytes;
    return 0;
}

int bytes_print(int64_t bytes, struct buf *out)
{
    /* The unit B adds nothing: 512 stays 512, as an integer in JSON would be. */
    return bytes != 0 && bytes % 1000 != 0 && bytes % 1024 != 0
               ? buf_printf(out, "%" PRId64, bytes)
               : scaled_print(bytes, bytes_units, COUNT_OF(bytes_units), out);
}

/* Prints the shortest decimal that reads back equal. */
static int float_print(double v, struct buf *out)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break; /* NOLINT: exact on purpose */
    }
    return buf_text(out, text);
}

static const char *const type_texts[CONFIG_TYPE_COUNT] = {
    [CONFIG_BOOL] = "true or false",
    [CONFIG_INT] = "an integer",
    [CONFIG_FLOAT] = "a number",
    [CONFIG_TEXT] = "text",
    [CONFIG_ENUM] = "one of a list of names",
    [CONFIG_DURATION] = "a duration such as 250ms, 10s or 2m",
    [CONFIG_BYTES] = "a size such as 512, 64MiB or 1GB",
    [CONFIG_TEXTS] = "a list of text",
    [CONFIG_RECORD] = "a mapping",
    [CONFIG_RECORDS] = "a list of mappings",
};

const char *config_type_text(enum config_type type)
{
    return type_texts[type];
}

static bool is_bounded(const struct config_field *f)
{
    return f->min < f->max;
}

static int number_print(const struct config_field *f, double v, struct buf *out)
{
    if (f->type == CONFIG_DURATION) return duration_print((int64_t)v, out);
    if (f->type == CONFIG_BYTES) return bytes_print((int64_t)v, out);
    if (fabs(v) <= 9e15 && floor(v) == v) return buf_printf(out, "%.0f", v);
    return float_print(v, out);
}

static int enum_print_names(const struct config_field *f, struct buf *out)
{
    for (size_t i = 0; f->names[i]; i++)
        buf_printf(out, "%s%s", i ? ", " : "", f->names[i]);
    return out->rc;
}

static const char *range_suffix(enum config_type type)
{
    if (type == CONFIG_TEXT) return " bytes";
    return type == CONFIG_TEXTS || type == CONFIG_RECORDS ? " items" : "";
}

int config_value_range(const struct config_field *f, struct buf *out)
{
    if (f->type == CONFIG_ENUM) {
        buf_text(out, "one of ");
        return enum_print_names(f, out);
    }
    if (!is_bounded(f)) return 0;
    bool open = isinf(f->max);
    bool from_zero = range_suffix(f->type)[0] && f->min <= 0;
    if (open) buf_text(out, "at least ");
    if (from_zero && !open) buf_text(out, "at most ");
    if (!from_zero || open) number_print(f, f->min, out);
    if (!from_zero && !open) buf_text(out, " to ");
    if (!open) number_print(f, f->max, out);
    return buf_text(out, range_suffix(f->type));
}

/* Checks the bounds; "-3 is below 0 (allowed: 0 to 10)" for a value that was written as `text`. */
static int bounds_check(const struct config_field *f, double v, struct str text, struct err *err)
{
    if (!is_bounded(f) || (v >= f->min && v <= f->max)) return 0;
    CLEANUP(buf_fini) struct buf bound = { 0 }, range = { 0 };
    number_print(f, v < f->min ? f->min : f->max, &bound);
    config_value_range(f, &range);
    if (bound.rc < 0 || range.rc < 0) return -ENOMEM;
    return err_set(err, -ERANGE, STR_FMT " is %s %s (allowed: %s)", STR_ARG(text),
                   v < f->min ? "below" : "above", bound.data, range.data);
}

/* Returns the part of a value that a sentence shows. */
static struct str shown(struct str text)
{
    text.len = min_size(text.len, 80);
    text.len = str_utf8_complete(text);
    return text;
}

static int not_a(const struct config_field *f, int rc, struct str text, struct err *err)
{
    if (rc == -ERANGE)
        return err_set(err, rc, "'" STR_FMT "' is too large or too fine for %s",
                       STR_ARG(shown(text)), type_texts[f->type]);
    return err_set(err, -EINVAL, "'" STR_FMT "' is not %s", STR_ARG(shown(text)),
                   type_texts[f->type]);
}

static int enum_parse(const struct config_field *f, struct str text, int *into, struct err *err)
{
    size_t count = 0;
    for (; f->names[count]; count++) {
        if (!str_eq(text, str_from(f->names[count]))) continue;
        *into = (int)count;
        return 0;
    }
    CLEANUP(buf_fini) struct buf names = { 0 };
    if (enum_print_names(f, &names) < 0) return -ENOMEM;
    const char *near = str_nearest(text, f->names, count);
    return err_set(err, -EINVAL, "'" STR_FMT "' is not one of %s%s%s%s", STR_ARG(shown(text)),
                   names.data, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int text_parse(const struct config_field *f, struct str text, struct arena *arena,
                      struct str *into, struct err *err)
{
    double length = (double)text.len;
    bool bounded = f->type == CONFIG_TEXT && is_bounded(f);
    if (!str_utf8_valid(text) || memchr(text.data ? text.data : "", 0, text.len))
        return err_set(err, -EINVAL, "is not valid UTF-8 text");
    if (bounded && length < f->min)
        return err_set(err, -ERANGE, "'" STR_FMT "' is shorter than %.0f bytes",
                       STR_ARG(shown(text)), f->min);
    if (length > (bounded ? f->max : (double)CONFIG_TEXT_BYTES_MAX))
        return err_set(err, -ERANGE, "is longer than %.0f bytes",
                       bounded ? f->max : (double)CONFIG_TEXT_BYTES_MAX);
    struct str copy = arena ? arena_str(arena, text) : text;
    if (arena && !copy.data) return err_set(err, -ENOMEM, "no memory for the configuration");
    *into = copy;
    return 0;
}

int config_count_check(const struct config_field *f, size_t count, struct err *err)
{
    double max = is_bounded(f) ? f->max : CONFIG_LIST_MAX;
    if (is_bounded(f) && (double)count < f->min)
        return err_set(err, -ERANGE, "has %zu items, at least %.0f are needed", count, f->min);
    if ((double)count > max)
        return err_set(err, -ERANGE, "has %zu items, at most %.0f are allowed", count, max);
    return 0;
}

static int texts_parse(const struct config_field *f, struct str text, struct arena *arena,
                       struct config_texts *into, struct err *err)
{
    size_t count = text.len > 0;
    for (size_t i = 0; i < text.len; i++)
        count += text.data[i] == ',';
    int rc = config_count_check(f, count, err);
    if (rc < 0) return rc;
    struct str *items = arena ? arena_array(arena, count, sizeof *items) : NULL, unkept;
    if (arena && !items) return err_set(err, -ENOMEM, "no memory for the configuration");
    for (size_t i = 0; i < count; i++) {
        struct str item = str_trim(str_cut(&text, ','));
        rc = text_parse(f, item, arena, items ? &items[i] : &unkept, err);
        if (rc < 0) return rc;
    }
    *into = (struct config_texts){ items, count };
    return 0;
}

static int number_parse(const struct config_field *f, struct str text, void *into, struct err *err)
{
    int64_t i = 0;
    double d = 0;
    int rc = f->type == CONFIG_INT        ? str_to_i64(text, &i)
             : f->type == CONFIG_DURATION ? duration_parse(text, &i)
             : f->type == CONFIG_BYTES    ? bytes_parse(text, &i)
                                          : str_to_f64(text, &d);
    if (rc < 0) return not_a(f, rc, text, err);
    rc = bounds_check(f, f->type == CONFIG_FLOAT ? d : (double)i, text, err);
    if (rc < 0) return rc;
    if (f->type == CONFIG_FLOAT)
        *(double *)into = d;
    else
        *(int64_t *)into = i;
    return 0;
}

int config_value_parse(const struct config_field *f, struct str text, struct arena *arena,
                       void *into, struct err *err)
{
    switch (f->type) {
    case CONFIG_BOOL:
        if (!str_eq(text, STR("true")) && !str_eq(text, STR("false")))
            return not_a(f, -EINVAL, text, err);
        *(bool *)into = text.data[0] == 't';
        return 0;
    case CONFIG_ENUM:
        return enum_parse(f, text, into, err);
    case CONFIG_TEXT:
        return text_parse(f, text, arena, into, err);
    case CONFIG_TEXTS:
        return texts_parse(f, text, arena, into, err);
    case CONFIG_INT:
    case CONFIG_FLOAT:
    case CONFIG_DURATION:
    case CONFIG_BYTES:
        return number_parse(f, text, into, err);
    case CONFIG_RECORD:
    case CONFIG_RECORDS:
    case CONFIG_TYPE_COUNT:
        break;
    }
    return err_set(err, -EINVAL, "%s cannot be written in one text", type_texts[f->type]);
}

int config_value_default(const struct config_field *f, struct arena *arena, void *into)
{
    if (!f->default_text) return 0; /* the struct was zeroed: unset */
    int rc = config_value_parse(f, str_from(f->default_text), arena, into, NULL);
    must(rc == 0 || rc == -ENOMEM);
    return rc;
}

int config_value_print(const struct config_field *f, const void *from, struct buf *out)
{
    const struct config_texts *texts = from;
    const struct str *text = from;
    switch (f->type) {
    case CONFIG_BOOL:
        return buf_text(out, *(const bool *)from ? "true" : "false");
    case CONFIG_INT:
        return buf_printf(out, "%" PRId64, *(const int64_t *)from);
    case CONFIG_FLOAT:
        return float_print(*(const double *)from, out);
    case CONFIG_TEXT:
        return text->data ? buf_str(out, *text) : 0;
    case CONFIG_ENUM:
        return buf_text(out, f->names[*(const int *)from]);
    case CONFIG_DURATION:
        return duration_print(*(const int64_t *)from, out);
    case CONFIG_BYTES:
        return bytes_print(*(const int64_t *)from, out);
    case CONFIG_TEXTS:
        for (size_t i = 0; i < texts->count; i++) {
            if (i > 0) buf_byte(out, ',');
            buf_str(out, texts->items[i]);
        }
        return out->rc;
    case CONFIG_RECORD:
    case CONFIG_RECORDS:
    case CONFIG_TYPE_COUNT:
        break;
    }
    return 0;
}

static int name_print(const char *name, char from, char to, bool upper, struct buf *out)
{
    for (; *name; name++) {
        char c = *name == '.' || *name == from ? to : *name;
        if (upper && c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
        buf_byte(out, c);
    }
    return out->rc;
}

int config_flag_name(const char *path_in_section, struct buf *out)
{
    return name_print(path_in_section, '_', '-', false, out);
}

int config_env_name(const char *path, struct buf *out)
{
    buf_text(out, "MUSTER_");
    return name_print(path, '.', '_', true, out);
}

/* globals.c - implements the functions that every template has.
 *
 * range() returns a list and is not lazy, so it prints as a list. strftime_now formats a UTC moment, in
 * English, without a clock or a locale, because a prompt must not depend on the machine that renders
 * it; days become dates by the era method (400 Gregorian years are 146,097 days).
 */
#include "base/core/bits.h"
#include "base/text/jinja/text.h"

#include <inttypes.h>
#include <stdio.h>

#define RANGE_MAX 100000 /* as in jinja2's sandbox */
#define DAY_S 86400
#define ERA_DAYS 146097
#define ERA_YEARS 400
#define EPOCH_DAYS 719468                 /* from 0000-03-01 to 1970-01-01 */
#define SECONDS_MAX INT64_C(253402300799) /* end of the year 9999, where Python's dates end */

JINJA_FN(fn_range)
{
    int64_t a = 0, b = 0, step = 1;
    bool two = jinja_arg_given(args, 1);
    int rc = jinja_arg_int(run, args, 0, 0, two ? &a : &b);
    if (rc == 0 && two) rc = jinja_arg_int(run, args, 1, 0, &b);
    if (rc == 0) rc = jinja_arg_int(run, args, 2, 1, &step);
    if (rc < 0) return rc;
    if (step == 0) return jinja_fail(run, -EDOM, "range: the step must not be 0");
    __int128 span = step > 0 ? (__int128)b - a : (__int128)a - b;
    __int128 stride = step > 0 ? step : -(__int128)step;
    __int128 count = span > 0 ? (span + stride - 1) / stride : 0;
    if (count > RANGE_MAX) return jinja_fail(run, -E2BIG, "a range of more than %d", RANGE_MAX);
    struct jinja_list *list = NULL;
    rc = jinja_list_new(run, (size_t)count, &list);
    for (int64_t i = 0; i < count && rc == 0; i++)
        rc = jinja_list_push(run, list, jinja_int(a + i * step));
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, list);
    return rc;
}

/* Implements dict(mapping, a=1) and namespace(mapping, a=1). form: the kind that it makes. */
JINJA_FN(fn_mapping)
{
    struct jinja_dict *dict = NULL;
    int rc = jinja_dict_new(run, &dict);
    if (rc < 0) return rc;
    if (args->count > 1 || (args->count == 1 && args->at[0].kind != JINJA_DICT))
        return jinja_fail(run, -EDOM, "a mapping and named values are expected");
    const struct jinja_dict *from = args->count == 1 ? args->at[0].dict : NULL;
    for (size_t i = 0; rc == 0 && from && i < from->count; i++)
        rc = jinja_dict_put(run, dict, from->entries[i].key, from->entries[i].value);
    for (size_t i = 0; rc == 0 && i < args->named_count; i++)
        rc = jinja_dict_set(run, dict, args->named[i].name, args->named[i].value);
    if (rc == 0) *ret = (struct jinja_value){ .kind = form, .dict = dict };
    return rc;
}

JINJA_FN(fn_raise)
{
    struct jinja_text message;
    int rc = jinja_to_text(run, &args->at[0], &message);
    if (rc < 0 || run->failed) return rc;
    run->failed = true;
    return err_set(run->err, -EPROTO, "%.*s", (int)min_size(message.len, ERR_TEXT_MAX - 1),
                   message.data ? message.data : "");
}

/* ---- strftime_now ---- */

struct moment {
    int64_t year;
    int month, day; /* 1..12, 1..31 */
    int weekday;    /* Sunday 0 */
    int second;     /* of the day */
};

/* Converts seconds to a date. Years begin in March here, so that the leap day is their last day. */
static struct moment moment_of(int64_t now_s)
{
    int64_t days = now_s / DAY_S + EPOCH_DAYS;
    int64_t era = days / ERA_DAYS, in_era = days % ERA_DAYS;
    int64_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int in_year = (int)(in_era - (365 * year + year / 4 - year / 100));
    int month = (5 * in_year + 2) / 153; /* 0: March */
    struct moment m = { .second = (int)(now_s % DAY_S) };
    m.day = in_year - (153 * month + 2) / 5 + 1;
    m.month = month < 10 ? month + 3 : month - 9;
    m.year = year + era * ERA_YEARS + (m.month <= 2);
    m.weekday = (int)((days + 3) % 7); /* 0000-03-01 was a Wednesday */
    return m;
}

/* Appends one directive as text; false for an unknown one. */
static bool put_directive(struct jinja_builder *b, char directive, const struct moment *m)
{
    static const char *const days[] = { "Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday" };
    static const char *const months[] = { "January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December" };
    const struct {
        char directive;
        int64_t number;
        const char *name; /* NULL: the number, with at least two digits */
        int letters;      /* of the name */
    } table[] = {
        { 'Y', m->year, NULL, 0 },
        { 'm', m->month, NULL, 0 },
        { 'd', m->day, NULL, 0 },
        { 'H', m->second / 3600, NULL, 0 },
        { 'M', m->second / 60 % 60, NULL, 0 },
        { 'S', m->second % 60, NULL, 0 },
        { 'A', 0, days[m->weekday], 9 },
        { 'a', 0, days[m->weekday], 3 },
        { 'B', 0, months[m->month - 1], 9 },
        { 'b', 0, months[m->month - 1], 3 },
    };
    char text[32];
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (table[i].directive != directive) continue;
        if (table[i].name)
            snprintf(text, sizeof text, "%.*s", table[i].letters, table[i].name);
        else
            snprintf(text, sizeof text, "%02" PRId64, table[i].number);
        jinja_put_text(b, text);
        return true;
    }
    return false;
}

JINJA_FN(fn_strftime)
{
    struct jinja_text given;
    struct jinja_value time;
    struct jinja_builder plain = { .run = run }, b = { .run = run };
    int rc = jinja_arg_text(run, args, 0, &given);
    if (rc < 0) return rc;
    struct moment m = moment_of(max_i64(0, min_i64(run->now_s, SECONDS_MAX)));
    for (struct str rest = jinja_bytes(given); rest.len > 0 && plain.rc == 0;) {
        size_t at = min_size(str_find(rest, STR("%")), rest.len);
        jinja_put_str(&plain, str_of(rest.data, at));
        rest = str_of(rest.data + at, rest.len - at);
        if (rest.len == 0) break;
        char directive = rest.len > 1 ? rest.data[1] : '%';
        if (!put_directive(&plain, directive, &m))
            return jinja_fail(run, -EDOM, "strftime_now: no directive %%%c here", directive);
        rest = str_of(rest.data + 2, rest.len - 2);
    }
    rc = jinja_built(&plain, &time);
    if (rc < 0) return rc;
    jinja_put_marked(&b, jinja_bytes(time.text), jinja_is_marked(given));
    return jinja_built(&b, ret);
}

static const struct jinja_row table[] = {
    { "range", "start,stop,step", 1, fn_range, 0 },
    { "dict", NULL, 0, fn_mapping, JINJA_DICT },
    { "namespace", NULL, 0, fn_mapping, JINJA_NAMESPACE },
    { "raise_exception", "message", 1, fn_raise, 0 },
    { "strftime_now", "format", 1, fn_strftime, 0 },
};

int jinja_add_globals(struct jinja_run *run)
{
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(table) && rc == 0; i++) {
        struct jinja_value v = { .kind = JINJA_FUNCTION, .function = &table[i] };
        rc = jinja_dict_set(run, run->globals, str_from(table[i].name), v);
    }
    return rc;
}

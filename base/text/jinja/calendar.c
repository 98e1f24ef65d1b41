/* calendar.c - days to dates by the era method (400 Gregorian years are 146,097 days).
 *
 * libc's strftime would do but reads the locale, and a prompt must not depend on the machine that
 * renders it.
 */
#include "base/text/jinja/calendar.h"

#include "base/core/bits.h"

#include <inttypes.h>
#include <stdio.h>

#define DAY_S 86400
#define ERA_DAYS 146097
#define ERA_YEARS 400
#define EPOCH_DAYS 719468                 /* from 0000-03-01 to 1970-01-01 */
#define SECONDS_MAX INT64_C(253402300799) /* end of the year 9999, where Python's dates end */

struct moment {
    int64_t year;
    int month, day, hour, minute, second; /* month 1..12 */
    int weekday, yearday;                 /* Sunday 0; January 1st 0 */
};

/* Years begin in March here, so that the leap day is their last. */
static struct moment moment_of(int64_t now_s)
{
    int64_t days = now_s / DAY_S + EPOCH_DAYS;
    int rest = (int)(now_s % DAY_S);
    int64_t era = days / ERA_DAYS, in_era = days % ERA_DAYS;
    int64_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int in_year = (int)(in_era - (365 * year + year / 4 - year / 100));
    int month = (5 * in_year + 2) / 153; /* 0: March */
    struct moment m = { .hour = rest / 3600, .minute = rest / 60 % 60, .second = rest % 60 };
    m.day = in_year - (153 * month + 2) / 5 + 1;
    m.month = month < 10 ? month + 3 : month - 9;
    m.year = year + era * ERA_YEARS + (m.month <= 2);
    m.weekday = (int)((days + 3) % 7); /* 0000-03-01 was a Wednesday */
    bool leap = m.year % 4 == 0 && (m.year % 100 != 0 || m.year % 400 == 0);
    m.yearday = m.month > 2 ? in_year + 59 + leap : in_year - 306;
    return m;
}

static void put_padded(struct jinja_builder *b, int64_t value, int width, char pad)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%" PRId64, value);
    for (int i = len; i < width && pad; i++)
        jinja_put_str(b, str_of(&pad, 1));
    jinja_put_str(b, str_of(text, (size_t)len));
}

/* Directives that are numbers: the value, its width and what fills it. */
static bool put_number(struct jinja_builder *b, char directive, const struct moment *m, bool bare)
{
    int hour12 = m->hour % 12 == 0 ? 12 : m->hour % 12;
    int monday = (m->weekday + 6) % 7;
    const struct {
        char directive;
        int64_t value;
        int width;
        char pad;
    } numbers[] = {
        { 'Y', m->year, 4, '0' },
        { 'y', m->year % 100, 2, '0' },
        { 'C', m->year / 100, 2, '0' },
        { 'm', m->month, 2, '0' },
        { 'd', m->day, 2, '0' },
        { 'e', m->day, 2, ' ' },
        { 'H', m->hour, 2, '0' },
        { 'k', m->hour, 2, ' ' },
        { 'I', hour12, 2, '0' },
        { 'l', hour12, 2, ' ' },
        { 'M', m->minute, 2, '0' },
        { 'S', m->second, 2, '0' },
        { 'f', 0, 6, '0' },
        { 'j', m->yearday + 1, 3, '0' },
        { 'w', m->weekday, 1, '0' },
        { 'u', monday + 1, 1, '0' },
        { 'U', (m->yearday + 7 - m->weekday) / 7, 2, '0' },
        { 'W', (m->yearday + 7 - monday) / 7, 2, '0' },
    };
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        if (numbers[i].directive != directive) continue;
        put_padded(b, numbers[i].value, numbers[i].width, bare ? '\0' : numbers[i].pad);
        return true;
    }
    return false;
}

static bool put_name(struct jinja_builder *b, char directive, const struct moment *m)
{
    static const char *const days[] = { "Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday" };
    static const char *const months[] = { "January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December" };
    const char *day = days[m->weekday], *month = months[m->month - 1];
    switch (directive) {
    case 'a':
        jinja_put_str(b, str_of(day, 3));
        return true;
    case 'A':
        jinja_put_text(b, day);
        return true;
    case 'b':
    case 'h':
        jinja_put_str(b, str_of(month, 3));
        return true;
    case 'B':
        jinja_put_text(b, month);
        return true;
    case 'p':
        jinja_put_text(b, m->hour < 12 ? "AM" : "PM");
        return true;
    case '%':
        jinja_put_text(b, "%");
        return true;
    case 'n':
        jinja_put_text(b, "\n");
        return true;
    case 't':
        jinja_put_text(b, "\t");
        return true;
    case 'z':
    case 'Z':
        return true;
    default:
        return false;
    }
}

/* Directives that stand for several; NULL for others. None of these holds another of them. */
static const char *expand(char directive)
{
    switch (directive) {
    case 'F':
        return "%Y-%m-%d";
    case 'T':
    case 'X':
        return "%H:%M:%S";
    case 'R':
        return "%H:%M";
    case 'D':
    case 'x':
        return "%m/%d/%y";
    case 'r':
        return "%I:%M:%S %p";
    case 'c':
        return "%a %b %e %H:%M:%S %Y";
    default:
        return NULL;
    }
}

static void put_form(struct jinja_builder *b, struct str form, const struct moment *m)
{
    while (form.len > 0 && b->rc == 0) {
        size_t at = str_find(form, STR("%"));
        if (at == SIZE_MAX) at = form.len;
        jinja_put_str(b, str_of(form.data, at));
        form = str_of(form.data + at, form.len - at);
        bool bare = form.len > 2 && form.data[1] == '-';
        size_t len = bare ? 3 : 2;
        if (form.len < len) break;
        char directive = form.data[len - 1];
        const char *several = expand(directive);
        if (several)
            put_form(b, str_from(several), m);
        else if (!put_number(b, directive, m, bare) && !put_name(b, directive, m))
            len = 1, jinja_put_text(b, "%"); /* not known: printed as it stands */
        form = str_of(form.data + len, form.len - len);
    }
    jinja_put_str(b, form);
}

void jinja_put_time(struct jinja_builder *b, struct str form, int64_t now_s)
{
    if (now_s < 0) now_s = 0;
    if (now_s > SECONDS_MAX) now_s = SECONDS_MAX;
    struct moment m = moment_of(now_s);
    put_form(b, form, &m);
}

/* date.c - writes and reads dates by gmtime and timegm of the C library, which know no zone but UTC. */
#include "base/io/date.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

void date_print(int64_t date_us, char ret[DATE_BYTES])
{
    int64_t rest_us = date_us % 1000000;
    time_t seconds = (time_t)(date_us / 1000000);
    if (rest_us < 0) rest_us += 1000000, seconds--;
    struct tm t = { 0 };
    gmtime_r(&seconds, &t);
    size_t len = strftime(ret, DATE_BYTES, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(ret + len, DATE_BYTES - len, ".%06dZ", (int)rest_us);
}

/* Reads `digits` digits at the front of *s and drops them. */
static bool cut_number(struct str *s, size_t digits, int *ret)
{
    int value = 0;
    if (s->len < digits) return false;
    for (size_t i = 0; i < digits; i++) {
        if (s->data[i] < '0' || s->data[i] > '9') return false;
        value = value * 10 + (s->data[i] - '0');
    }
    *s = str_of(s->data + digits, s->len - digits);
    *ret = value;
    return true;
}

static bool cut_byte(struct str *s, char one, char other)
{
    if (s->len == 0 || (s->data[0] != one && s->data[0] != other)) return false;
    *s = str_of(s->data + 1, s->len - 1);
    return true;
}

/* Reads the zone, Z or +hh:mm, as seconds to take from the time. */
static bool cut_zone(struct str *s, int *ret_s)
{
    int hours, minutes, sign = s->len > 0 && s->data[0] == '-' ? -1 : 1;
    *ret_s = 0;
    if (cut_byte(s, 'Z', 'z')) return true;
    if (!cut_byte(s, '+', '-') || !cut_number(s, 2, &hours) || !cut_byte(s, ':', ':') ||
        !cut_number(s, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *ret_s = sign * (hours * 3600 + minutes * 60);
    return true;
}

static int64_t cut_fraction(struct str *s)
{
    int64_t us = 0, unit = 100000;
    if (!cut_byte(s, '.', '.')) return 0;
    if (s->len == 0 || s->data[0] < '0' || s->data[0] > '9') return -1;
    while (s->len > 0 && s->data[0] >= '0' && s->data[0] <= '9') {
        us += unit * (s->data[0] - '0');
        unit /= 10; /* digits beyond the microsecond count nothing */
        *s = str_of(s->data + 1, s->len - 1);
    }
    return us;
}

/* -EINVAL: the calendar has no such moment. */
static int count_seconds(const struct tm *t, int64_t *ret)
{
    bool in_range = t->tm_mon >= 0 && t->tm_mon <= 11 && t->tm_mday >= 1 && t->tm_mday <= 31 &&
                    t->tm_hour <= 23 && t->tm_min <= 59 && t->tm_sec <= 60;
    if (!in_range) return -EINVAL;
    struct tm whole = *t; /* timegm carries over: a 31st of April would become the 1st of May */
    *ret = (int64_t)timegm(&whole);
    return whole.tm_mday != t->tm_mday && t->tm_sec < 60 ? -EINVAL : 0;
}

int date_parse(struct str text, int64_t *ret_date_us)
{
    struct str s = text;
    struct tm t = { 0 };
    int64_t seconds;
    int zone_s;
    bool ok =
        cut_number(&s, 4, &t.tm_year) && cut_byte(&s, '-', '-') && cut_number(&s, 2, &t.tm_mon) &&
        cut_byte(&s, '-', '-') && cut_number(&s, 2, &t.tm_mday) && cut_byte(&s, 'T', 't') &&
        cut_number(&s, 2, &t.tm_hour) && cut_byte(&s, ':', ':') && cut_number(&s, 2, &t.tm_min) &&
        cut_byte(&s, ':', ':') && cut_number(&s, 2, &t.tm_sec);
    int64_t fraction_us = ok ? cut_fraction(&s) : -1;
    if (fraction_us < 0 || !cut_zone(&s, &zone_s) || s.len > 0) return -EINVAL;
    t.tm_year -= 1900;
    t.tm_mon--;
    if (count_seconds(&t, &seconds) < 0) return -EINVAL;
    *ret_date_us = (seconds - zone_s) * 1000000 + fraction_us;
    return 0;
}

static bool cut_month(struct str *s, int *ret)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    if (s->len < 3) return false;
    size_t at = str_find(str_from(names), str_of(s->data, 3));
    if (at == SIZE_MAX || at % 3 != 0) return false;
    *s = str_of(s->data + 3, s->len - 3);
    *ret = (int)(at / 3);
    return true;
}

int date_parse_http(struct str text, int64_t *ret_date_us)
{
    struct tm t = { 0 };
    int64_t seconds;
    if (text.len < 3) return -EINVAL;
    struct str s = str_of(text.data + 3, text.len - 3); /* the day of the week says nothing more */
    bool ok = cut_byte(&s, ',', ',') && cut_byte(&s, ' ', ' ') && cut_number(&s, 2, &t.tm_mday) &&
              cut_byte(&s, ' ', ' ') && cut_month(&s, &t.tm_mon) && cut_byte(&s, ' ', ' ') &&
              cut_number(&s, 4, &t.tm_year) && cut_byte(&s, ' ', ' ') &&
              cut_number(&s, 2, &t.tm_hour) && cut_byte(&s, ':', ':') &&
              cut_number(&s, 2, &t.tm_min) && cut_byte(&s, ':', ':') &&
              cut_number(&s, 2, &t.tm_sec) && str_eq(s, STR(" GMT"));
    t.tm_year -= 1900;
    if (!ok || count_seconds(&t, &seconds) < 0) return -EINVAL;
    *ret_date_us = seconds * 1000000;
    return 0;
}

/* bill.c - keeps the rows of a bill, and finds the pace that its ceilings allow. */
#include "controller/core/bill.h"

#include "base/core/bits.h"
#include "base/wire/field.h"

#include <math.h>
#include <string.h>

#define DAY_US INT64_C(86400000000)
#define VERSION 1 /* rows were added to it: older releases skip them, and keep the total */

/* ---- periods ---- */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Returns the day of a year's first of March since 1970: with the year begun in March a leap day is the last. */
static int64_t march_first(int64_t year)
{
    return year * 365 + floor_div(year, 4) - floor_div(year, 100) + floor_div(year, 400) - 719468;
}

/* Returns the day on which a month begins, both counted since January 1970. */
static int64_t month_begins(int64_t month)
{
    int64_t from_march = month - 2, in_year = from_march - floor_div(from_march, 12) * 12;
    /* 153 days in five months: 31, 30, 31, 30, 31 */
    return march_first(1970 + floor_div(from_march, 12)) + (153 * in_year + 2) / 5;
}

struct bill_periods bill_periods_at(int64_t now_us, int64_t date_ahead_us)
{
    int64_t day = floor_div(now_us + date_ahead_us, DAY_US);
    int64_t month = floor_div(day * 12, 365) + 1; /* too late by a month at most, or two */
    while (month_begins(month) > day)
        month--;
    return (struct bill_periods){
        .now_us = now_us,
        .day_us = day * DAY_US - date_ahead_us,
        .day_end_us = (day + 1) * DAY_US - date_ahead_us,
        .month_us = month_begins(month) * DAY_US - date_ahead_us,
        .month_end_us = month_begins(month + 1) * DAY_US - date_ahead_us,
        .day = day,
        .month = month,
    };
}

/* ---- rows ---- */

/* Returns its index; UINT32_MAX: it has no row. */
static uint32_t find_row(const struct bill *l, const char *service)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->row[i].service, service) == 0) return i;
    return UINT32_MAX;
}

/* Makes a row; in a full bill in the place of the one that was spent on longest ago. */
static struct bill_row *add_row(struct bill *l, const char *service)
{
    uint32_t at = l->count;
    if (at < BILL_ROWS_MAX) {
        l->count++;
    } else {
        at = 0;
        for (uint32_t i = 1; i < l->count; i++)
            if (l->row[i].day < l->row[at].day) at = i;
        l->lost += l->row[at].total;
    }
    l->row[at] = (struct bill_row){ 0 };
    must(name_copy(l->row[at].service, NAME_BYTES, str_from(service)) == 0);
    return &l->row[at];
}

void bill_fold(struct bill *l, const struct intent *i, const struct bill_periods *p)
{
    double total = intent_cost(i, p->now_us);
    if (total <= 0) return;
    uint32_t at = find_row(l, i->service);
    struct bill_row *r = at == UINT32_MAX ? add_row(l, i->service) : &l->row[at];
    if (r->day != p->day) r->in_day = 0;
    if (r->month != p->month) r->in_month = 0;
    r->day = p->day;
    r->month = p->month;
    r->in_day += intent_cost_since(i, p->day_us, p->now_us);
    r->in_month += intent_cost_since(i, p->month_us, p->now_us);
    r->total += total;
}

struct bill_spent bill_spent(const struct bill *l, const char *service, const struct intent *intent,
                             uint32_t count, const struct bill_periods *p)
{
    uint32_t at = find_row(l, service);
    struct bill_spent s = { 0 };
    if (at != UINT32_MAX) {
        const struct bill_row *r = &l->row[at];
        s = (struct bill_spent){ .day = r->day == p->day ? r->in_day : 0,
                                 .month = r->month == p->month ? r->in_month : 0,
                                 .total = r->total };
    }
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(intent[i].service, service) != 0) continue;
        s.day += intent_cost_since(&intent[i], p->day_us, p->now_us);
        s.month += intent_cost_since(&intent[i], p->month_us, p->now_us);
        s.total += intent_cost(&intent[i], p->now_us);
    }
    return s;
}

double bill_total(const struct bill *l, const struct intent *intent, uint32_t count, int64_t now_us)
{
    double sum = l->lost;
    for (uint32_t i = 0; i < l->count; i++)
        sum += l->row[i].total;
    for (uint32_t i = 0; i < count; i++)
        sum += intent_cost(&intent[i], now_us);
    return sum;
}

/* ---- ceilings ---- */

static double pace(double ceiling, double spent, int64_t left_us)
{
    double hours = (double)max_i64(left_us, BILL_LEAST_US) / 3.6e9;
    return fmax((ceiling - spent) / hours, BILL_NOTHING_LEFT);
}

double bill_pace_h(const struct bill_ceilings *c, const struct bill_spent *spent,
                   const struct bill_periods *p)
{
    double least = c->hour > 0 ? c->hour : HUGE_VAL;
    if (c->day > 0) least = fmin(least, pace(c->day, spent->day, p->day_end_us - p->now_us));
    if (c->month > 0)
        least = fmin(least, pace(c->month, spent->month, p->month_end_us - p->now_us));
    return least < HUGE_VAL ? least : 0;
}

/* ---- the stored form ---- */

struct row_record {
    struct str service;
    int64_t day, month;
    double in_day, in_month, total;
};
static const struct field row_fields[] = {
    FIELD(struct row_record, service, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD(struct row_record, day, FIELD_I64, .required = true, .max = 1e9),
    FIELD(struct row_record, month, FIELD_I64, .required = true, .max = 1e9),
    FIELD(struct row_record, in_day, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct row_record, in_month, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct row_record, total, FIELD_F64, .required = true, FIELD_POSITIVE),
};
static const struct field_set row_set = FIELD_SET(struct row_record, row_fields);

struct record {
    uint32_t v;
    double folded; /* of all rows, as older releases read and write it */
    const struct row_record *rows;
    uint32_t row_count;
};
static const struct field record_fields[] = {
    FIELD(struct record, v, FIELD_U32, .required = true, .min = 1, .max = VERSION),
    FIELD(struct record, folded, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD_ARRAY("services", struct record, rows, row_count, FIELD_LIST, BILL_ROWS_MAX,
                .of = &row_set),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

int bill_encode(const struct bill *l, struct buf *out)
{
    struct row_record row[BILL_ROWS_MAX];
    for (uint32_t i = 0; i < l->count; i++) {
        const struct bill_row *r = &l->row[i];
        row[i] = (struct row_record){ str_from(r->service), r->day,  r->month, r->in_day,
                                      r->in_month,          r->total };
    }
    const struct record r = {
        .v = VERSION, .folded = bill_total(l, NULL, 0, 0), .rows = row, .row_count = l->count
    };
    return fields_encode(&record_set, &r, out);
}

int bill_decode(struct str text, struct arena *arena, struct bill *ret, struct err *err)
{
    struct record r;
    int rc = fields_decode(&record_set, text, arena, &r, "the stored cost", err);
    if (rc < 0) return rc;
    struct bill l = { .lost = r.folded };
    for (uint32_t i = 0; i < r.row_count; i++) {
        const struct row_record *from = &r.rows[i];
        char service[NAME_BYTES];
        must(name_copy(service, sizeof service, from->service) == 0); /* the field bounds it */
        if (find_row(&l, service) != UINT32_MAX)
            return err_set(err, -EINVAL, "the stored cost has service %s twice", service);
        struct bill_row *to = add_row(&l, service);
        to->day = from->day;
        to->month = from->month;
        to->in_day = from->in_day;
        to->in_month = from->in_month;
        to->total = from->total;
        l.lost -= from->total;
    }
    l.lost = fmax(l.lost, 0);
    *ret = l;
    return 0;
}

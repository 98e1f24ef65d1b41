/* bill.c - keeps the rows of a bill, and finds the pace that its ceilings allow. */
#include "controller/core/bill.h"

#include "base/core/bits.h"
#include "base/wire/field.h"

#include <math.h>
#include <string.h>

#define DAY_US INT64_C(86400000000)
#define VERSION 1 /* lists were added to it: older releases skip them, and keep the total */

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

struct cost cost_in(const struct cost *c, const struct bill_periods *p)
{
    return (struct cost){ .day = p->day,
                          .month = p->month,
                          .in_day = c->day == p->day ? c->in_day : 0,
                          .in_month = c->month == p->month ? c->in_month : 0,
                          .total = c->total };
}

/* ---- rows ---- */

/* Returns its index; UINT32_MAX: it has no row. */
static uint32_t find_row(const struct bill *l, const char *service, const char *pool)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->row[i].service, service) == 0 && strcmp(l->row[i].pool, pool) == 0) return i;
    return UINT32_MAX;
}

static int64_t last_day(const struct bill_row *r)
{
    return max_i64(r->cost.day, r->mtokens.day);
}

/* Makes a row; in a full bill in the place of the one that was spent on longest ago. */
static struct bill_row *add_row(struct bill *l, const char *service, const char *pool)
{
    uint32_t at = l->count;
    if (at < BILL_ROWS_MAX) {
        l->count++;
    } else {
        at = 0;
        for (uint32_t i = 1; i < l->count; i++)
            if (last_day(&l->row[i]) < last_day(&l->row[at])) at = i;
        l->lost += l->row[at].cost.total;
    }
    l->row[at] = (struct bill_row){ 0 };
    must(name_copy(l->row[at].service, NAME_BYTES, str_from(service)) == 0);
    must(name_copy(l->row[at].pool, NAME_BYTES, str_from(pool)) == 0);
    return &l->row[at];
}

static struct bill_row *row_of(struct bill *l, const char *service, const char *pool)
{
    uint32_t at = find_row(l, service, pool);
    return at == UINT32_MAX ? add_row(l, service, pool) : &l->row[at];
}

static struct cost add_cost(struct cost a, struct cost b)
{
    a.in_day += b.in_day;
    a.in_month += b.in_month;
    a.total += b.total;
    return a;
}

void bill_fold(struct bill *l, const struct intent *i, const struct bill_periods *p)
{
    struct cost c = charge_of(i, p);
    memcpy(l->last, i->id, sizeof l->last);
    if (c.total <= 0) return;
    struct bill_row *r = row_of(l, i->service, i->pool);
    r->cost = add_cost(cost_in(&r->cost, p), c);
}

void bill_reserve(struct bill *l, const char *offer, double dollars, const struct bill_periods *p)
{
    struct bill_row *r = row_of(l, BILL_RESERVED, offer);
    r->cost = add_cost(cost_in(&r->cost, p),
                       (struct cost){ .in_day = dollars, .in_month = dollars, .total = dollars });
}

void bill_count_tokens(struct bill *l, const char *service, uint64_t tokens,
                       const struct bill_periods *p)
{
    double m = (double)tokens / 1e6;
    if (tokens == 0) return;
    struct bill_row *r = row_of(l, service, "");
    r->mtokens =
        add_cost(cost_in(&r->mtokens, p), (struct cost){ .in_day = m, .in_month = m, .total = m });
}

struct cost bill_mtokens(const struct bill *l, const char *service, const struct bill_periods *p)
{
    uint32_t at = find_row(l, service, "");
    return at == UINT32_MAX ? (struct cost){ 0 } : cost_in(&l->row[at].mtokens, p);
}

struct bill_spent bill_spent(const struct bill *l, const char *service, const char *pool,
                             const struct intent *intent, uint32_t count,
                             const struct bill_periods *p)
{
    struct cost sum = { 0 };
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->row[i].service, service) == 0 && (!pool || strcmp(l->row[i].pool, pool) == 0))
            sum = add_cost(sum, cost_in(&l->row[i].cost, p));
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(intent[i].service, service) == 0 && (!pool || strcmp(intent[i].pool, pool) == 0))
            sum = add_cost(sum, charge_of(&intent[i], p));
    return (struct bill_spent){ sum.in_day, sum.in_month, sum.total };
}

double bill_total(const struct bill *l, const struct intent *intent, uint32_t count, int64_t now_us)
{
    double sum = l->lost;
    for (uint32_t i = 0; i < l->count; i++)
        sum += l->row[i].cost.total;
    for (uint32_t i = 0; i < count; i++)
        sum += charge_total(&intent[i], now_us);
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
    struct str service, pool;
    struct cost cost, mtokens;
};
#define SUM(T, key, member, kind, ...) FIELD_AS(key, T, member, kind, __VA_ARGS__)
static const struct field row_fields[] = {
    FIELD(struct row_record, service, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD(struct row_record, pool, FIELD_STR, .max = NAME_BYTES - 1),
    SUM(struct row_record, "day", cost.day, FIELD_I64, .required = true, .max = 1e9),
    SUM(struct row_record, "month", cost.month, FIELD_I64, .required = true, .max = 1e9),
    SUM(struct row_record, "in_day", cost.in_day, FIELD_F64, .required = true, FIELD_POSITIVE),
    SUM(struct row_record, "in_month", cost.in_month, FIELD_F64, .required = true, FIELD_POSITIVE),
    SUM(struct row_record, "total", cost.total, FIELD_F64, .required = true, FIELD_POSITIVE),
    SUM(struct row_record, "tokens_day", mtokens.day, FIELD_I64, .max = 1e9),
    SUM(struct row_record, "tokens_month", mtokens.month, FIELD_I64, .max = 1e9),
    SUM(struct row_record, "mtokens_in_day", mtokens.in_day, FIELD_F64, FIELD_POSITIVE),
    SUM(struct row_record, "mtokens_in_month", mtokens.in_month, FIELD_F64, FIELD_POSITIVE),
    SUM(struct row_record, "mtokens", mtokens.total, FIELD_F64, FIELD_POSITIVE),
};
static const struct field_set row_set = FIELD_SET(struct row_record, row_fields);

struct record {
    uint32_t v;
    double folded; /* of all rows, as older releases read and write it */
    struct str last;
    int64_t reserved_us;
    const struct row_record *rows, *services; /* services: of a release without pools */
    uint32_t row_count, service_count;
};
static const struct field record_fields[] = {
    FIELD(struct record, v, FIELD_U32, .required = true, .min = 1, .max = VERSION),
    FIELD(struct record, folded, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct record, last, FIELD_STR, .max = INTENT_ID_BYTES - 1),
    FIELD(struct record, reserved_us, FIELD_I64, .max = 9e15),
    FIELD_ARRAY("services", struct record, services, service_count, FIELD_LIST, BILL_ROWS_MAX,
                .of = &row_set),
    FIELD_ARRAY("pools", struct record, rows, row_count, FIELD_LIST, BILL_ROWS_MAX, .of = &row_set),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

int bill_encode(const struct bill *l, struct buf *out)
{
    struct row_record row[BILL_ROWS_MAX];
    for (uint32_t i = 0; i < l->count; i++) {
        const struct bill_row *r = &l->row[i];
        row[i] =
            (struct row_record){ str_from(r->service), str_from(r->pool), r->cost, r->mtokens };
    }
    const struct record r = { .v = VERSION,
                              .folded = bill_total(l, NULL, 0, 0),
                              .last = str_from(l->last),
                              .reserved_us = l->reserved_us,
                              .rows = row,
                              .row_count = l->count };
    return fields_encode(&record_set, &r, out);
}

static int take_rows(struct bill *l, const struct row_record *rows, uint32_t count, struct err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        char service[NAME_BYTES], pool[NAME_BYTES];
        must(name_copy(service, sizeof service, rows[i].service) == 0); /* the field bounds it */
        must(name_copy(pool, sizeof pool, rows[i].pool) == 0);
        if (find_row(l, service, pool) != UINT32_MAX)
            return err_set(err, -EINVAL, "the stored cost has pool '%s' of service %s twice", pool,
                           service);
        if (l->count == BILL_ROWS_MAX)
            return err_set(err, -E2BIG, "the stored cost has more than %d rows", BILL_ROWS_MAX);
        struct bill_row *to = add_row(l, service, pool);
        to->cost = rows[i].cost;
        to->mtokens = rows[i].mtokens;
        l->lost -= rows[i].cost.total;
    }
    return 0;
}

int bill_decode(struct str text, struct arena *arena, struct bill *ret, struct err *err)
{
    struct record r;
    int rc = fields_decode(&record_set, text, arena, &r, "the stored cost", err);
    if (rc < 0) return rc;
    struct bill l = { .lost = r.folded, .reserved_us = r.reserved_us };
    must(name_copy(l.last, sizeof l.last, r.last) == 0);
    rc = take_rows(&l, r.rows, r.row_count, err);
    if (rc == 0) rc = take_rows(&l, r.services, r.service_count, err);
    if (rc < 0) return rc;
    l.lost = fmax(l.lost, 0);
    *ret = l;
    return 0;
}

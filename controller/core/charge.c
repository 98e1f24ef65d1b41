/* charge.c - counts what one instance costs.
 *
 *     from           to or now      end of the last unit
 *      |--- price before ---|--- price_h ---|
 *                       priced_us
 *
 * Earlier prices and lives are kept as dollars (`before`), by the day and month that they fell in, so that a
 * sum never has to be made again from prices that are gone. */
#include "controller/core/charge.h"

#include "base/core/bits.h"
#include "controller/core/bill.h"

#include <math.h>
#include <stdlib.h>

const char *const charge_difference_names[CHARGE_DIFFERENCE_COUNT] = {
    [CHARGE_SAME] = "same", [CHARGE_TIME] = "time",     [CHARGE_PRICE] = "price",
    [CHARGE_GONE] = "gone", [CHARGE_ORPHAN] = "orphan",
};

/* Returns when the provider began to bill it, or may have; 0: nothing was made. */
static int64_t begins_us(const struct intent *i)
{
    if (i->charge.from_us) return i->charge.from_us;
    if (i->made_us == 0 && i->state == INTENT_ENDED) return 0; /* refused: it was never made */
    return i->called_us ? i->called_us : i->made_us;
}

static int64_t ends_us(const struct intent *i, int64_t now_us)
{
    if (i->state != INTENT_ENDED) return now_us;
    return i->charge.to_us ? i->charge.to_us : i->ended_us;
}

/* Returns the end of the last unit that is owed. */
static int64_t owed_until_us(const struct intent *i, int64_t now_us)
{
    const struct billing *b = &i->charge.billing;
    int64_t from = begins_us(i), life = ends_us(i, now_us) - from;
    if (from == 0 || life <= 0) return from;
    life = max_i64(life, b->least_us);
    if (b->unit_us > 0) life = (life + b->unit_us - 1) / b->unit_us * b->unit_us;
    return from + life;
}

static double since(const struct intent *i, int64_t since_us, int64_t now_us)
{
    int64_t from = max_i64(max_i64(begins_us(i), i->charge.priced_us), since_us);
    int64_t until = owed_until_us(i, now_us);
    return until > from ? i->price_h * (double)(until - from) / 3.6e9 : 0;
}

struct cost charge_of(const struct intent *i, const struct bill_periods *p)
{
    const struct cost *b = &i->charge.before;
    return (struct cost){
        .day = p->day,
        .month = p->month,
        .in_day = since(i, p->day_us, p->now_us) + (b->day == p->day ? b->in_day : 0),
        .in_month = since(i, p->month_us, p->now_us) + (b->month == p->month ? b->in_month : 0),
        .total = since(i, INT64_MIN, p->now_us) + b->total,
    };
}

double charge_total(const struct intent *i, int64_t now_us)
{
    return since(i, INT64_MIN, now_us) + i->charge.before.total;
}

double charge_unsure(const struct intent *i, int64_t now_us)
{
    struct intent least = *i;
    if (least.charge.from_us == 0) least.charge.from_us = i->made_us;
    if (least.charge.to_us) least.charge.to_us -= i->charge.unsure_us;
    return since(i, INT64_MIN, now_us) - since(&least, INT64_MIN, now_us) + i->charge.before_unsure;
}

void charge_add(struct intent *i, double dollars, const struct bill_periods *p)
{
    struct cost *b = &i->charge.before;
    *b = cost_in(b, p);
    b->in_day += dollars;
    b->in_month += dollars;
    b->total += dollars;
}

void charge_price(struct intent *i, double price_h, const struct bill_periods *p)
{
    i->charge.before = charge_of(i, p);
    i->charge.priced_us = max_i64(i->charge.priced_us, owed_until_us(i, p->now_us));
    i->price_h = price_h;
}

static bool same_price(double a, double b)
{
    return fabs(a - b) <= CHARGE_PRICE_SHARE * fmax(a, b);
}

enum charge_difference charge_reconcile(struct intent *i, const struct charge_entry *e,
                                        const struct bill_periods *p, bool *ret_changed)
{
    enum charge_difference d = CHARGE_SAME;
    *ret_changed = false;
    if (e->made_us && i->charge.from_us == 0) {
        /* Its clock and ours differ: nothing is made before it was asked for, or after it was seen. */
        int64_t called_us = i->adopted ? e->made_us : i->called_us;
        int64_t made_us = min_i64(max_i64(e->made_us, called_us), p->now_us);
        if (i->made_us && !i->adopted && llabs(e->made_us - i->made_us) > CHARGE_TIME_US)
            d = CHARGE_TIME;
        i->charge.from_us = made_us;
        *ret_changed = true;
    }
    if (!e->price_known || (i->charge.told && same_price(e->price_h, i->price_h))) return d;
    if (i->charge.told) { /* a market's price: it moves */
        charge_price(i, e->price_h, p);
    } else { /* this is what it was sold for: it holds from the beginning */
        if (!same_price(e->price_h, i->price_h)) d = CHARGE_PRICE;
        i->price_h = e->price_h;
    }
    i->charge.told = true;
    *ret_changed = true;
    return d;
}

/* A provider that still shows it after it took our remove bills it until it is gone. */
void charge_close(struct intent *i, const struct charge_end *e)
{
    int64_t from_us = begins_us(i), until_us = e->absent_us ? e->absent_us : i->ended_us;
    if (from_us == 0) return;
    if (e->removed_us && e->removed_us >= e->shown_us) until_us = min_i64(until_us, e->removed_us);
    int64_t earliest_us = max_i64(max_i64(from_us, e->shown_us), e->asked_us);
    i->charge.to_us = max_i64(until_us, from_us);
    i->charge.unsure_us = max_i64(0, i->charge.to_us - earliest_us);
}

void charge_reopen(struct intent *i, int64_t made_us, const struct bill_periods *p)
{
    struct intent ended = *i;
    ended.state = INTENT_ENDED;
    struct charge c = { .before = charge_of(&ended, p),
                        .before_unsure = i->charge.before_unsure,
                        .billing = i->charge.billing };
    c.told = i->charge.told;
    c.from_us = made_us;
    i->charge = c;
}

void charge_turn(struct intent *i, const struct charge_turn *t, const struct bill_periods *p)
{
    struct intent ended = *i;
    ended.state = INTENT_ENDED;
    ended.charge.to_us = ended.ended_us = max_i64(t->at_us, begins_us(i));
    ended.charge.unsure_us = t->unsure_us;
    i->charge = (struct charge){ .from_us = ended.charge.to_us,
                                 .before = charge_of(&ended, p),
                                 .before_unsure = charge_unsure(&ended, p->now_us),
                                 .billing = t->billing,
                                 .halted = t->halted };
    i->price_h = t->price_h;
}

/* t_bill.c - tests that days and months are those of the C library's calendar, that what is folded counts where it
 * was spent, and that no service spends above its ceilings: at the pace alone, and in a fleet whose controller dies. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "controller/charges.h"
#include "controller/control_state.h"
#include "controller/core/bill.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9 * (1 + fabs(b));
}

static int64_t of_calendar(struct tm t)
{
    return (int64_t)timegm(&t) * SECOND;
}

static void periods_are_the_calendars(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint32_t k = 0; k < 20000; k++) {
        /* 1940 to 2199, and the edges of days */
        int64_t date = (int64_t)(rng_f64(&rng) * 260 * 365.25 * 86400) - INT64_C(946684800);
        if (k % 4 == 0) date -= date % 86400 + (k % 8 == 0);
        time_t seconds = (time_t)date;
        int64_t ahead = (int64_t)(rng_f64(&rng) * 1e15), now = date * SECOND - ahead;
        struct tm t;
        gmtime_r(&seconds, &t);
        struct bill_periods p = bill_periods_at(now, ahead);
        struct tm month = { .tm_year = t.tm_year, .tm_mon = t.tm_mon, .tm_mday = 1 }, next = month;
        next.tm_mon++;
        t.tm_hour = t.tm_min = t.tm_sec = 0;
        if (p.day_us + ahead != of_calendar(t) || p.day_end_us != p.day_us + DAY ||
            p.month_us + ahead != of_calendar(month) ||
            p.month_end_us + ahead != of_calendar(next) ||
            p.month != (month.tm_year - 70) * 12 + month.tm_mon)
            fail_msg("date %lld", (long long)date);
    }
}

static struct intent an_intent(const char *service, int64_t from_us, int64_t until_us)
{
    struct intent i = { .state = until_us ? INTENT_ENDED : INTENT_REGISTERED,
                        .price_h = 2,
                        .called_us = from_us,
                        .made_us = from_us,
                        .ended_us = until_us };
    assert_int_equal(name_copy(i.service, sizeof i.service, str_from(service)), 0);
    return i;
}

static void costs_count_in_the_periods_that_they_fell_in(void **state)
{
    (void)state;
    struct bill l = { 0 }, again;
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, (size_t)1 << 16);
    int64_t midnight = 20513 * DAY; /* 2026-03-01 */
    /* Three hours of which one lies in this month, and a whole instance of the day before. */
    struct intent over = an_intent("chat", midnight - 2 * HOUR, midnight + HOUR),
                  before = an_intent("chat", midnight - 9 * HOUR, midnight - 8 * HOUR),
                  other = an_intent("code", midnight, 0);
    struct bill_periods p = bill_periods_at(midnight + 2 * HOUR, 0);
    bill_fold(&l, &over, &p);
    bill_fold(&l, &before, &p);
    struct intent live[] = { other, an_intent("chat", midnight + HOUR, 0) };
    struct bill_spent s = bill_spent(&l, "chat", NULL, live, 2, &p);
    assert_true(near(s.day, 4) && near(s.month, 4) && near(s.total, 10));
    s = bill_spent(&l, "code", NULL, live, 2, &p);
    assert_true(near(s.day, 4) && near(s.month, 4) && near(s.total, 4));
    assert_true(near(bill_total(&l, live, 2, p.now_us), 14));
    assert_int_equal(bill_encode(&l, &text), 0);
    assert_int_equal(bill_decode(buf_view(&text), &arena, &again, &err), 0);
    assert_memory_equal(&l, &again, sizeof l);
    /* The next day, and the next month, begin at nothing. */
    struct bill_periods day = bill_periods_at(midnight + 25 * HOUR, 0),
                        month = bill_periods_at(midnight + 32 * DAY, 0);
    s = bill_spent(&l, "chat", NULL, NULL, 0, &day);
    assert_true(s.day == 0 && near(s.month, 2) && near(s.total, 8));
    s = bill_spent(&l, "chat", NULL, NULL, 0, &month);
    assert_true(s.day == 0 && s.month == 0 && near(s.total, 8));
    /* The record of a release that kept the total alone. */
    assert_int_equal(bill_decode(STR("{\"v\":1,\"folded\":12.5}"), &arena, &again, &err), 0);
    assert_true(near(bill_total(&again, NULL, 0, 0), 12.5));
    static const char *const bad[] = {
        "{\"v\":1}",
        "{\"v\":1,\"folded\":1,\"services\":[{\"service\":\"a\",\"day\":1,\"month\":1,\"in_day\":-"
        "1,"
        "\"in_month\":1,\"total\":1}]}",
        "{\"v\":1,\"folded\":2,\"services\":["
        "{\"service\":\"a\",\"day\":1,\"month\":1,\"in_day\":1,\"in_month\":1,\"total\":1},"
        "{\"service\":\"a\",\"day\":1,\"month\":1,\"in_day\":1,\"in_month\":1,\"total\":1}]}",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(bill_decode(str_from(bad[i]), &arena, &again, &err), -EINVAL);
}

/* Of more services than rows, the sum is kept. */
static void a_full_bill_keeps_its_sum(void **state)
{
    (void)state;
    struct bill l = { 0 };
    char name[32];
    for (uint32_t k = 0; k < 2 * BILL_ROWS_MAX; k++) {
        snprintf(name, sizeof name, "service-%u", k);
        struct intent i = an_intent(name, (k + 1) * DAY, (k + 1) * DAY + HOUR);
        struct bill_periods p = bill_periods_at((k + 1) * DAY + 2 * HOUR, 0);
        bill_fold(&l, &i, &p);
    }
    assert_int_equal(l.count, BILL_ROWS_MAX);
    assert_true(near(bill_total(&l, NULL, 0, 0), 4.0 * BILL_ROWS_MAX));
    struct bill_periods p = bill_periods_at(0, 0);
    assert_true(bill_spent(&l, "service-0", NULL, NULL, 0, &p).total == 0);
    assert_true(near(bill_spent(&l, name, NULL, NULL, 0, &p).total, 2));
}

/* Whoever spends at most the pace, and now and then less, stays below both ceilings, and comes close to one. */
static void no_pace_leads_above_a_ceiling(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (uint32_t k = 0; k < 50; k++) {
        const struct bill_ceilings c = { 0, 24, 300 + 100 * (k % 5) };
        struct bill_spent spent = { 0 };
        double wish = 0.3 + 3 * rng_f64(&rng), month_max = 0;
        struct bill_periods last = bill_periods_at(20513 * DAY, 0);
        for (int64_t now = last.now_us; now < 20575 * DAY; now += 10 * 60 * SECOND) {
            struct bill_periods p = bill_periods_at(now, 0);
            if (p.day != last.day) spent.day = 0;
            if (p.month != last.month) spent.month = 0;
            last = p;
            double pace = bill_pace_h(&c, &spent, &p);
            assert_true(pace > 0);
            double spend = fmin(pace, rng_f64(&rng) < 0.2 ? 0 : wish) / 6;
            spent.day += spend;
            spent.month += spend;
            if (spent.day > c.day + 1e-6 || spent.month > c.month + 1e-6)
                fail_msg("seed %u: %.6f a day, %.6f a month", k, spent.day, spent.month);
            month_max = fmax(month_max, spent.month);
        }
        if (wish > 2) assert_true(month_max > 0.9 * fmin(c.month, 30 * c.day));
    }
    const struct bill_ceilings none = { 0 }, hour = { 5, 0, 0 };
    struct bill_periods p = bill_periods_at(0, 0);
    assert_true(bill_pace_h(&none, &(struct bill_spent){ 0 }, &p) == 0);
    assert_true(bill_pace_h(&hour, &(struct bill_spent){ 0 }, &p) == 5);
    const struct bill_ceilings day = { 0, 10, 0 };
    assert_true(bill_pace_h(&day, &(struct bill_spent){ 12, 12, 12 }, &p) == BILL_NOTHING_LEFT);
}

/* Returns the dollars that the fake provider's instances cost within [from, until). */
static double billed(const struct world *w, int64_t from, int64_t until)
{
    uint32_t count;
    double sum = 0;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    for (uint32_t i = 0; i < count; i++) {
        double price_h = strcmp(in[i].offer, "l1") == 0   ? 1.9
                         : strcmp(in[i].offer, "s2") == 0 ? 1.2
                                                          : 1;
        int64_t a = max_i64(in[i].made_us, from);
        int64_t b = min_i64(in[i].removed_us ? in[i].removed_us : until, until);
        if (b > a) sum += price_h * (double)(b - a) / 3.6e9;
    }
    return sum;
}

/* Eight instances are wanted by hand over a midnight; the ceiling of the day pays for fewer, and a controller that
 * dies and starts again has not forgotten what was spent. The provider's bill is counted apart. */
static void a_fleet_stays_within_its_day(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    world_kill(w);
    w->service.budget = (struct bill_ceilings){ .day = 30 };
    world_start(w);
    int64_t midnight = (w->now / DAY + 1) * DAY;
    w->now = midnight - 3 * HOUR;
    w->rate = 200;
    uint32_t most = 0;
    for (int64_t s = 0; w->now < midnight + 5 * HOUR; s++) {
        world_second(w);
        if (s % 3000 == 2999) world_kill(w), world_start(w);
        most = max_u32(most, world_running(w));
    }
    double before = billed(w, midnight - DAY, midnight), after = billed(w, midnight, w->now);
    print_message("%u at once at most; %.2f dollars before midnight, %.2f in five hours after it\n",
                  most, before, after);
    assert_true(before <= 30 &&
                before > 20); /* ten dollars an hour are allowed, as nothing was spent */
    assert_true(after <= 30.0 * 5 / 24 + 0.5 && after > 4);
    struct bill_spent spent = control_spent(w->control, 0, NULL);
    assert_true(fabs(spent.day - after) < 0.05 && fabs(spent.total - before - after) < 0.1);
    world_free(w);
}

/* ---- one instance ---- */

static struct intent sold(int64_t from_us, int64_t until_us, int64_t unit_us, int64_t least_us)
{
    struct intent i = an_intent("chat", from_us, until_us);
    i.charge.billing = (struct billing){ unit_us, least_us };
    return i;
}

static void time_is_billed_in_the_units_of_the_provider(void **state)
{
    (void)state;
    static const struct {
        int64_t life_us, unit_us, least_us, billed_us;
        const char *why;
    } rows[] = {
        { 90 * SECOND + 1, 0, 0, 90 * SECOND + 1, "as it is" },
        { 90 * SECOND + 1, SECOND, 60 * SECOND, 91 * SECOND, "by the second" },
        { 5 * SECOND, SECOND, 60 * SECOND, 60 * SECOND, "a minute at least" },
        { 61 * SECOND, 60 * SECOND, 0, 120 * SECOND, "by the minute" },
        { HOUR, HOUR, 0, HOUR, "a whole hour" },
        { HOUR + 1, HOUR, 0, 2 * HOUR, "the second has begun" },
    };
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct intent i = sold(DAY, DAY + rows[k].life_us, rows[k].unit_us, rows[k].least_us);
        struct intent live = sold(DAY, 0, rows[k].unit_us, rows[k].least_us);
        double dollars = 2 * (double)rows[k].billed_us / 3.6e9;
        if (!near(charge_total(&i, 9 * DAY), dollars) ||
            !near(charge_total(&live, DAY + rows[k].life_us), dollars))
            fail_msg("%s: %.6f and not %.6f", rows[k].why, charge_total(&i, 9 * DAY), dollars);
    }
}

/* Two hours at two dollars, then four: by the second, and where a begun hour is owed at the old price. */
static void a_new_price_holds_from_the_next_unit(void **state)
{
    (void)state;
    int64_t midnight = 20513 * DAY;
    struct intent i = sold(midnight - HOUR, 0, SECOND, 0);
    struct bill_periods p = bill_periods_at(midnight + HOUR, 0);
    charge_price(&i, 4, &p);
    p = bill_periods_at(midnight + 2 * HOUR, 0);
    struct cost c = charge_of(&i, &p);
    assert_true(near(c.total, 2 * 2 + 4) && near(c.in_day, 2 + 4) && near(c.in_month, 2 + 4));
    struct intent hourly = sold(midnight, 0, HOUR, 0);
    p = bill_periods_at(midnight + HOUR / 2, 0);
    charge_price(&hourly, 4, &p);
    assert_true(near(charge_total(&hourly, midnight + HOUR / 2), 2));
    assert_true(near(charge_total(&hourly, midnight + HOUR + 1), 2 + 4));
    /* All of it survives the store. */
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct intent again = { 0 };
    struct err err = { 0 };
    arena_init(&arena, (size_t)1 << 16);
    snprintf(hourly.id, sizeof hourly.id, "i-1");
    snprintf(hourly.pool, sizeof hourly.pool, "p");
    snprintf(hourly.provider, sizeof hourly.provider, "c");
    snprintf(hourly.offer, sizeof hourly.offer, "o");
    assert_int_equal(intent_encode(&hourly, &text), 0);
    if (intent_decode(buf_view(&text), &arena, &again, &err) < 0) fail_msg("%s", err.text);
    assert_true(near(charge_total(&again, midnight + HOUR + 1), 2 + 4));
    assert_memory_equal(&hourly.charge, &again.charge, sizeof again.charge);
}

static void a_listing_corrects_the_charge(void **state)
{
    (void)state;
    struct bill_periods p = bill_periods_at(DAY + 10 * SECOND, 0);
    struct intent i = an_intent("chat", DAY, 0);
    i.made_us = DAY + 4 * SECOND;
    bool changed;
    struct charge_entry e = { .made_us = DAY + 2 * SECOND };
    assert_int_equal(charge_reconcile(&i, &e, &p, &changed), CHARGE_SAME);
    assert_true(changed && i.charge.from_us == DAY + 2 * SECOND);
    assert_int_equal(charge_reconcile(&i, &e, &p, &changed), CHARGE_SAME);
    assert_false(changed);
    /* What this machine was sold for holds from its beginning, and a later price from then on. */
    e = (struct charge_entry){ .made_us = DAY, .price_known = true, .price_h = 3 };
    assert_int_equal(charge_reconcile(&i, &e, &p, &changed), CHARGE_PRICE);
    assert_true(changed && near(charge_total(&i, DAY + 2 * SECOND + HOUR), 3));
    e.price_h = 6;
    p = bill_periods_at(DAY + 2 * SECOND + HOUR, 0);
    assert_int_equal(charge_reconcile(&i, &e, &p, &changed),
                     CHARGE_SAME); /* it moves, it is no error */
    assert_true(changed);
    assert_true(near(charge_total(&i, DAY + 2 * SECOND + 2 * HOUR), 3 + 6));
    struct intent late = an_intent("chat", DAY, 0);
    late.made_us = DAY + 100 * SECOND;
    e = (struct charge_entry){ .made_us = DAY + SECOND };
    assert_int_equal(charge_reconcile(&late, &e, &p, &changed), CHARGE_TIME);
    /* Its end: what the provider took counts, unless it goes on showing it; else the first listing without it. */
    i = an_intent("chat", DAY, DAY + 90 * SECOND);
    charge_close(&i, &(struct charge_end){ .asked_us = DAY + 50 * SECOND,
                                           .removed_us = DAY + 51 * SECOND,
                                           .shown_us = DAY + 48 * SECOND,
                                           .absent_us = DAY + 60 * SECOND });
    assert_true(i.charge.to_us == DAY + 51 * SECOND && i.charge.unsure_us == SECOND);
    charge_close(&i, &(struct charge_end){ .asked_us = DAY + 50 * SECOND,
                                           .removed_us = DAY + 51 * SECOND,
                                           .shown_us = DAY + 57 * SECOND,
                                           .absent_us = DAY + 60 * SECOND });
    assert_true(i.charge.to_us == DAY + 60 * SECOND && i.charge.unsure_us == 3 * SECOND);
    /* It came late: the second life is added to the first. */
    p = bill_periods_at(DAY + 200 * SECOND, 0);
    i.state = INTENT_ENDING;
    charge_reopen(&i, DAY + 190 * SECOND, &p);
    assert_true(near(charge_total(&i, DAY + 200 * SECOND), 2 * 70 / 3600.0));
}

/* A fold is two writes; the controller dies between them. */
static void a_fold_that_is_cut_counts_once(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    CLEANUP(buf_fini) struct buf record = { 0 }, bill = { 0 };
    struct intent i = an_intent("chat", w->now - 2 * HOUR, w->now - HOUR);
    snprintf(i.id, sizeof i.id, "i-00000000abcd");
    snprintf(i.pool, sizeof i.pool, "small");
    snprintf(i.provider, sizeof i.provider, "fake");
    snprintf(i.offer, sizeof i.offer, "s1");
    struct bill l = { 0 };
    struct bill_periods p = bill_periods_at(w->now, 0);
    world_kill(w);
    bill_fold(&l, &i, &p);
    assert_int_equal(bill_encode(&l, &bill), 0);
    assert_int_equal(intent_encode(&i, &record), 0);
    assert_int_equal(store_put_if(w->store, STR("cost"), buf_view(&bill), STORE_ANY, NULL, NULL),
                     0);
    assert_int_equal(store_put_if(w->store, STR("intent/i-00000000abcd"), buf_view(&record),
                                  STORE_ANY, NULL, NULL),
                     0);
    world_start(w);
    assert_true(near(control_cost_total(w->control, w->now), 2));
    buf_clear(&record);
    assert_int_equal(store_get(w->store, STR("intent/i-00000000abcd"), &record, NULL, NULL),
                     -ENOENT);
    world_free(w);
}

/* An instance of no configured pool is ended after a minute; until then it costs what it costs. */
static void a_stray_is_told_and_billed(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    fake_cloud_plant(w->fake, "i-00000000beef", "chat", "another", "s2", w->now);
    world_run(w, 30);
    assert_int_equal(world_running(w), 1);
    assert_true(fabs(control_cost_total(w->control, w->now) - 1.2 * 30 / 3600) < 0.001);
    world_run(w, 90);
    assert_int_equal(world_running(w), 0);
    double truth = billed(w, 0, w->now), told = control_cost_total(w->control, w->now);
    assert_true(truth > 1.2 * 50 / 3600);
    if (fabs(truth - told) > 0.002) fail_msg("%.5f dollars billed, %.5f counted", truth, told);
    const struct str orphan[] = { STR("fake"), STR("orphan") },
                     gone[] = { STR("fake"), STR("gone") };
    struct metrics *m = control_metrics(w->control);
    assert_true(metric_value(metric_series(m, CONTROL_M_BILL_DIFFERENCES, orphan)) >= 1);
    assert_true(metric_value(metric_series(m, CONTROL_M_BILL_DIFFERENCES, gone)) <= 0);
    /* It is in the store by now. */
    world_kill(w);
    world_start(w);
    assert_true(near(control_cost_total(w->control, w->now), told));
    /* One that dies by itself is told too, and is not billed on. */
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 1, NULL), 0);
    world_run(w, 60);
    uint32_t count;
    fake_cloud_instances(w->fake, &count);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), -1, NULL), 0);
    w->agents_silent = true;
    fake_cloud_kill(w->fake, count - 1);
    world_run(w, 20);
    truth = billed(w, 0, w->now), told = control_cost_total(w->control, w->now);
    if (fabs(truth - told) > 0.003) fail_msg("%.5f dollars billed, %.5f counted", truth, told);
    m = control_metrics(w->control);
    assert_true(metric_value(metric_series(m, CONTROL_M_BILL_DIFFERENCES, gone)) >= 1);
    world_free(w);
}

/* One reserved instance at a dollar: it costs that at all times, and a service pays for the second one only. */
static void reserved_instances_are_paid_for_always(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    world_start(w);
    uint32_t s1 = control_find_offer(w->control, "fake", "s1");
    w->control->money.offer[s1].reserved = 1;
    world_run(w, 1800);
    double before = control_cost_total(w->control, w->now);
    if (fabs(before - 0.5) > 0.01) fail_msg("%.5f dollars for half an hour of none", before);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 2, NULL), 0);
    world_run(w, 1800);
    assert_int_equal(world_running(w), 2);
    struct bill_spent spent = control_spent(w->control, 0, NULL);
    double paid = control_cost_total(w->control, w->now) - spent.total;
    if (fabs(paid - 1) > 0.01) fail_msg("%.5f dollars for an hour of one", paid);
    if (spent.total < 0.45 || spent.total > 0.65) /* of s1 or s2, for half an hour */
        fail_msg("%.5f dollars for the second", spent.total);
    world_run(w, 120);
    world_kill(w);
    w->now += 1800 * SECOND;
    world_start(w);
    w->control->money.offer[s1].reserved = 1;
    world_run(w, 5);
    paid = control_cost_total(w->control, w->now) - control_spent(w->control, 0, NULL).total;
    if (fabs(paid - 1 - 1925.0 / 3600) > 0.01) fail_msg("%.5f dollars with the time away", paid);
    world_free(w);
}

static void stock_is_remembered_over_restarts(void **state)
{
    (void)state;
    struct fake_config config = { .step_count = 1 };
    config.script[0] =
        (struct fake_step){ .op = FAKE_CREATE, .fault = FAKE_STOCK_OUT, .offer = "s1" };
    struct world *w = world_new(&config);
    world_start(w);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 1, NULL), 0);
    world_run(w, 60);
    uint32_t s1 = control_find_offer(w->control, "fake", "s1");
    assert_true(w->control->money.stock.sold_out[s1] > 0.9);
    world_kill(w);
    world_start(w);
    world_run(w, 5);
    assert_true(w->control->money.stock.sold_out[s1] > 0.9);
    CLEANUP(buf_fini) struct buf view = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_OFFERS, w->now, &view), 0);
    assert_non_null(strstr(view.data, "\"sold_out\":0.9"));
    world_free(w);
}

static void tokens_are_counted_by_period(void **state)
{
    (void)state;
    struct bill l = { 0 };
    struct bill_periods p = bill_periods_at(20513 * DAY + HOUR, 0);
    bill_count_tokens(&l, "chat", 2000000, &p);
    bill_count_tokens(&l, "chat", 500000, &p);
    struct cost c = bill_mtokens(&l, "chat", &p);
    assert_true(near(c.in_day, 2.5) && near(c.in_month, 2.5) && near(c.total, 2.5));
    p = bill_periods_at(20514 * DAY, 0);
    bill_count_tokens(&l, "chat", 1000000, &p);
    c = bill_mtokens(&l, "chat", &p);
    assert_true(near(c.in_day, 1) && near(c.in_month, 3.5) && near(c.total, 3.5));
    assert_true(bill_spent(&l, "chat", NULL, NULL, 0, &p).total <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(periods_are_the_calendars),
        cmocka_unit_test(costs_count_in_the_periods_that_they_fell_in),
        cmocka_unit_test(a_full_bill_keeps_its_sum),
        cmocka_unit_test(no_pace_leads_above_a_ceiling),
        cmocka_unit_test(a_fleet_stays_within_its_day),
        cmocka_unit_test(time_is_billed_in_the_units_of_the_provider),
        cmocka_unit_test(a_new_price_holds_from_the_next_unit),
        cmocka_unit_test(a_listing_corrects_the_charge),
        cmocka_unit_test(a_fold_that_is_cut_counts_once),
        cmocka_unit_test(a_stray_is_told_and_billed),
        cmocka_unit_test(tokens_are_counted_by_period),
        cmocka_unit_test(reserved_instances_are_paid_for_always),
        cmocka_unit_test(stock_is_remembered_over_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

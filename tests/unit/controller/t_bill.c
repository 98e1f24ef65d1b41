/* t_bill.c - tests that days and months are those of the C library's calendar, that what is folded counts where it
 * was spent, and that no service spends above its ceilings: at the pace alone, and in a fleet whose controller dies. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
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
    struct bill_spent s = bill_spent(&l, "chat", live, 2, &p);
    assert_true(near(s.day, 4) && near(s.month, 4) && near(s.total, 10));
    s = bill_spent(&l, "code", live, 2, &p);
    assert_true(near(s.day, 4) && near(s.month, 4) && near(s.total, 4));
    assert_true(near(bill_total(&l, live, 2, p.now_us), 14));
    assert_int_equal(bill_encode(&l, &text), 0);
    assert_int_equal(bill_decode(buf_view(&text), &arena, &again, &err), 0);
    assert_memory_equal(&l, &again, sizeof l);
    /* The next day, and the next month, begin at nothing. */
    struct bill_periods day = bill_periods_at(midnight + 25 * HOUR, 0),
                        month = bill_periods_at(midnight + 32 * DAY, 0);
    s = bill_spent(&l, "chat", NULL, 0, &day);
    assert_true(s.day == 0 && near(s.month, 2) && near(s.total, 8));
    s = bill_spent(&l, "chat", NULL, 0, &month);
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
    assert_true(bill_spent(&l, "service-0", NULL, 0, &p).total == 0);
    assert_true(near(bill_spent(&l, name, NULL, 0, &p).total, 2));
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
    struct bill_spent spent = control_spent(w->control, 0);
    assert_true(fabs(spent.day - after) < 0.05 && fabs(spent.total - before - after) < 0.1);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(periods_are_the_calendars),
        cmocka_unit_test(costs_count_in_the_periods_that_they_fell_in),
        cmocka_unit_test(a_full_bill_keeps_its_sum),
        cmocka_unit_test(no_pace_leads_above_a_ceiling),
        cmocka_unit_test(a_fleet_stays_within_its_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

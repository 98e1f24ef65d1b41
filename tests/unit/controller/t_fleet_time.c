/* t_fleet_time.c - steps of the date, other boots and late turns: what they move, and what not. */
#include "base/core/bits.h"
#include "controller/control_metrics.h"
#include "controller/core/fleet_time.h"
#include "controller/fleet_clock.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOUR (3600 * SECOND)
#define DATE (1795000000 * SECOND)
#define UP (100 * SECOND) /* of the machine, when the first controller starts */

/* ---- the count ---- */

static void it_goes_on_over_restarts_and_boots(void **state)
{
    (void)state;
    static const struct {
        uint64_t boot;
        int64_t mono, wall; /* what the clocks show at the restart */
        int64_t passed;     /* in fleet time, since the record was written */
        const char *why;
    } rows[] = {
        { 1, UP + 60 * SECOND, DATE + 60 * SECOND, 60 * SECOND, "the date is right" },
        { 1, UP + 60 * SECOND, DATE + HOUR, 60 * SECOND, "the date went forward" },
        { 1, UP + 60 * SECOND, DATE - HOUR, 60 * SECOND, "the date went back" },
        { 2, 5 * SECOND, DATE + 90 * SECOND, 90 * SECOND, "another boot: the date tells" },
        { 2, 5 * SECOND, DATE - HOUR, 0, "another boot, and a date before the last: no time" },
    };
    const struct fleet_moment first = { 1, UP, DATE };
    int64_t ahead = fleet_time_ahead(NULL, &first);
    assert_int_equal(UP + ahead, DATE); /* it begins at the date */
    const struct fleet_record written = fleet_record_at(ahead, &first);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct fleet_moment now = { rows[i].boot, rows[i].mono, rows[i].wall };
        int64_t fleet = now.mono_us + fleet_time_ahead(&written, &now);
        if (fleet - written.seen_us != rows[i].passed) fail_msg("%s", rows[i].why);
    }
}

static void its_record_is_kept_and_read_back(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 4096);
    struct fleet_record r = { 0xfedcba9876543210, -5, DATE, DATE + 7 }, got;
    assert_int_equal(fleet_record_encode(&r, &text), 0);
    assert_int_equal(fleet_record_decode(buf_view(&text), &arena, &got, NULL), 0);
    assert_memory_equal(&r, &got, sizeof r);
    static const char *const bad[] = { "", "{}", "{\"v\":1}",
                                       "{\"v\":2,\"boot\":\"0000000000000001\",\"ahead_us\":1,"
                                       "\"seen_us\":1,\"wall_us\":1}" };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_true(fleet_record_decode(str_from(bad[i]), &arena, &got, NULL) < 0);
}

static void the_clock_goes_on_where_the_store_says(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct store *store;
    struct fleet_clock first, second;
    assert_int_equal(store_memory_open(16, &store, NULL), 0);
    assert_int_equal(fleet_clock_open(&first, store, NULL), 0);
    assert_int_equal(fleet_clock_open(&second, store, NULL), 0);
    assert_int_equal(first.ahead_us, second.ahead_us);
    /* As if the date had been a year behind at the very first start. */
    struct fleet_record r = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 4096);
    assert_int_equal(store_get(store, STR("clock"), &text, NULL, NULL), 0);
    assert_int_equal(fleet_record_decode(buf_view(&text), &arena, &r, NULL), 0);
    r.ahead_us -= 365 * 24 * HOUR;
    buf_clear(&text);
    uint64_t version;
    assert_int_equal(fleet_record_encode(&r, &text), 0);
    assert_int_equal(store_put_if(store, STR("clock"), buf_view(&text), STORE_ANY, &version, NULL),
                     0);
    assert_int_equal(fleet_clock_open(&second, store, NULL), 0);
    assert_int_equal(second.ahead_us, first.ahead_us - 365 * 24 * HOUR);
    assert_true(fleet_clock_date_ahead(&second) > 364 * 24 * HOUR); /* what people are shown */

    /* What cannot be read stays as it is. */
    assert_int_equal(store_put_if(store, STR("clock"), STR("{"), STORE_ANY, &version, NULL), 0);
    assert_int_equal(fleet_clock_open(&second, store, NULL), 0);
    assert_true(llabs(fleet_clock_date_ahead(&second)) < HOUR);
    assert_int_equal(fleet_clock_keep(&second, NULL), 0);
    buf_clear(&text);
    assert_int_equal(store_get(store, STR("clock"), &text, NULL, NULL), 0);
    assert_true(str_eq(buf_view(&text), STR("{")));
    store_close(store);
}

/* ---- the controller ---- */

static struct world *fleet_of(uint32_t min)
{
    struct world *w = world_new(NULL);
    w->service.min = min;
    w->service.max = min;
    w->setup.tick_us = SECOND;
    return w;
}

static double counter(const struct world *w, enum control_metric m)
{
    return metric_value(metric_of(control_metrics(w->control), m));
}

/* Stopped for an hour; then the routers speak first, and the agents not at all. */
static void a_late_tick_ends_nothing_and_bills_the_hour(void **state)
{
    (void)state;
    struct world *w = fleet_of(3);
    world_run(w, 20);
    assert_int_equal(world_running(w), 3);
    w->agents_silent = true;
    w->now += HOUR;
    world_second(w);
    assert_int_equal(counter(w, CONTROL_M_LATE), 1);
    world_run(w, (int)(w->setup.merge.silent_us / SECOND) - 5);
    assert_int_equal(world_running(w), 3);
    assert_int_equal(world_made(w), 3);
    double dollars = counter(w, CONTROL_M_COST_TOTAL);
    assert_true(dollars > 3 * 1.0 * 1.1 && dollars < 3 * 1.9 * 1.3); /* 1 h 10 min each */
    /* Then the silence is theirs. */
    world_run(w, 10);
    assert_true(world_made(w) > 3);
    world_free(w);
}

static void what_boots_has_its_deadline_again(void **state)
{
    (void)state;
    struct fake_config slow = { .boot_us = 30 * SECOND };
    struct world *w = world_new(&slow);
    w->service.min = w->service.max = 2;
    w->setup.tick_us = SECOND;
    world_run(w, 5);
    assert_int_equal(world_running(w), 2);
    w->agents_silent = true;
    w->now += HOUR;
    world_run(w, 30);
    w->agents_silent = false;
    world_run(w, 5);
    assert_int_equal(world_made(w), 2);
    assert_int_equal(world_running(w), 2);
    world_free(w);
}

/* ---- dates ---- */

static void people_are_shown_the_date(void **state)
{
    (void)state;
    static const int64_t ahead[] = { 0, HOUR, HOUR + SECOND / 2, -HOUR };
    static const double steps[] = { 0, 1, 1, 2 };
    struct world *w = fleet_of(1);
    world_run(w, 20);
    for (size_t i = 0; i < COUNT_OF(ahead); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        char want[64];
        control_date(w->control, ahead[i]);
        world_second(w);
        assert_true(counter(w, CONTROL_M_DATE_STEPS) == steps[i]);
        assert_int_equal(control_view(w->control, CONTROL_INTENTS, w->now, &out), 0);
        buf_byte(&out, 0);
        snprintf(want, sizeof want, "\"now_us\":%lld", (long long)(w->now + ahead[i]));
        assert_non_null(strstr(out.data, want));
        snprintf(want, sizeof want, "\"wanted_us\":%lld",
                 (long long)(WORLD_START + SECOND + ahead[i]));
        assert_non_null(strstr(out.data, want));
    }
    assert_int_equal(world_made(w), 1);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_over_restarts_and_boots),
        cmocka_unit_test(its_record_is_kept_and_read_back),
        cmocka_unit_test(the_clock_goes_on_where_the_store_says),
        cmocka_unit_test(a_late_tick_ends_nothing_and_bills_the_hour),
        cmocka_unit_test(what_boots_has_its_deadline_again),
        cmocka_unit_test(people_are_shown_the_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

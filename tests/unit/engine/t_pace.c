/* t_pace.c - simulated clocks: share and clock hold over time, and credit is not saved up. */
#include "base/core/bits.h"
#include "engine/serve/pace.h"
#include "tests/unit/unit.h"

#include <math.h>

static void t_share_holds(void **state)
{
    (void)state;
    const double shares[] = { 0.05, 0.2, 0.4, 1.0, 1.5 };
    for (size_t k = 0; k < COUNT_OF(shares); k++) {
        struct throttle t = { .share = shares[k] };
        int64_t cpu = 1000000, wall = 5000000, from = wall;
        for (int i = 0; i < 400; i++) {
            int64_t step = 3000 + (i * 7919) % 20000; /* two threads: half as much wall */
            cpu += step;
            wall += step / 2;
            wall += throttle_wait_us(&t, cpu, wall);
        }
        double used = (double)(cpu - 1000000) / (double)(wall - from);
        if (fabs(used / shares[k] - 1) > 0.03) fail_msg("share %.2f: used %.3f", shares[k], used);
    }
}

static void t_no_limit(void **state)
{
    (void)state;
    struct throttle t = { 0 };
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(throttle_wait_us(&t, i * 1000, i * 1000), 0);
}

static void t_idle_time_is_not_saved_up(void **state)
{
    (void)state;
    struct throttle t = { .share = 0.1 };
    throttle_wait_us(&t, 0, 0);
    assert_int_equal(throttle_wait_us(&t, 0, 3600000000), 0); /* an idle hour */
    /* 20 ms of burst are free; the other 80 ms of CPU are worth 800 ms, 100 of them passed. */
    int64_t wait = throttle_wait_us(&t, 100000, 3600000000 + 100000);
    assert_true(wait > 690000 && wait < 710000);
}

/* A bucket of `share` cores at `clock` in a process of `cores` threads that never rests. */
static double used_at(double share, double clock, double cores)
{
    struct throttle t = { .share = share, .clock = clock, .cores = cores };
    int64_t cpu = 0, wall = 0;
    for (int i = 0; i < 1000; i++) {
        cpu += 10000;
        wall += (int64_t)(10000 / cores);
        wall += throttle_wait_us(&t, cpu, wall);
    }
    return (double)cpu / (double)wall;
}

static void t_clock_is_a_share_of_what_there_is(void **state)
{
    (void)state;
    static const struct {
        double share, clock, cores, used;
        const char *why;
    } rows[] = {
        { 0, 0.5, 1, 0.5, "half of the only core" },
        { 0, 0.25, 2, 0.5, "a quarter of both" },
        { 0.4, 0.5, 1, 0.2, "half of the share" },
        { 1.5, 0.2, 2, 0.3, "a fifth of a share above one core" },
        { 0.4, 1, 1, 0.4, "the full clock is the share" },
        { 0.4, 0, 1, 0.4, "and so is none" },
        { 0, 1, 2, 2, "nothing is kept" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        double used = used_at(rows[i].share, rows[i].clock, rows[i].cores);
        if (fabs(used / rows[i].used - 1) > 0.03) fail_msg("%s: %.3f", rows[i].why, used);
    }
}

static void t_what_was_used_freely_is_no_debt(void **state)
{
    (void)state;
    struct throttle t = { .clock = 0.5, .cores = 1 };
    assert_int_equal(throttle_wait_us(&t, 0, 0), 0);
    assert_true(throttle_wait_us(&t, 100000, 100000) > 90000);
    t.clock = 1; /* an hour without a pause */
    assert_int_equal(throttle_wait_us(&t, 3600000000, 3600000000), 0);
    t.clock = 0.5;
    assert_int_equal(throttle_wait_us(&t, 3600100000, 3600100000), 0);
    int64_t wait = throttle_wait_us(&t, 3600200000, 3600200000);
    assert_true(wait > 90000 && wait < 110000);
}

/* When a device that holds work has stalled, in simulated time. */

#define SECOND ((int64_t)1000000)
#define T0 (100 * SECOND)

static void t_idle_is_well_however_long(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 86400 * SECOND), 0);
    pulse_work(&p, T0);
    pulse_turn(&p, T0 + SECOND);
    pulse_idle(&p);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 86400 * SECOND), 0);
    /* Owed from when work came, not from the last step. */
    pulse_work(&p, T0 + 86400 * SECOND);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 86401 * SECOND), 0);
}

static void t_work_without_a_step_is_a_stall(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_work(&p, T0);
    pulse_work(&p, T0 + 3 * SECOND); /* more of it changes nothing */
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US - 1), 0);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US), PULSE_MIN_US);
    pulse_turn(&p, T0 + 9 * SECOND);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 9 * SECOND + PULSE_MIN_US - 1), 0);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 9 * SECOND + PULSE_MIN_US), PULSE_MIN_US);
}

static void t_a_long_step_has_its_time(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_step(&p, T0, 2.0);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 2 * PULSE_STEPS * SECOND - 1), 0);
    assert_true(pulse_stalled_us(&p, 0, T0 + 2 * PULSE_STEPS * SECOND) > 0);
    pulse_step(&p, T0, 1e-3); /* a short one not less than the least */
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US - 1), 0);
    /* The next turn does not inherit it. */
    pulse_step(&p, T0, 100.0);
    pulse_turn(&p, T0);
    assert_true(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US) > 0);
}

static void t_sleep_on_purpose_is_none(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_rest(&p, T0 + 60 * SECOND);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 60 * SECOND), 0);
    assert_true(pulse_stalled_us(&p, 0, T0 + 60 * SECOND + PULSE_MIN_US) > 0);
}

static void t_a_reader_that_was_away_excuses(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_turn(&p, T0);
    int64_t woke = T0 + 100 * SECOND;
    assert_int_equal(pulse_stalled_us(&p, woke, woke), 0);
    assert_int_equal(pulse_stalled_us(&p, woke, woke + PULSE_MIN_US - 1), 0);
    assert_int_equal(pulse_stalled_us(&p, woke, woke + PULSE_MIN_US), PULSE_MIN_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_share_holds),
        cmocka_unit_test(t_no_limit),
        cmocka_unit_test(t_idle_time_is_not_saved_up),
        cmocka_unit_test(t_clock_is_a_share_of_what_there_is),
        cmocka_unit_test(t_what_was_used_freely_is_no_debt),
        cmocka_unit_test(t_idle_is_well_however_long),
        cmocka_unit_test(t_work_without_a_step_is_a_stall),
        cmocka_unit_test(t_a_long_step_has_its_time),
        cmocka_unit_test(t_sleep_on_purpose_is_none),
        cmocka_unit_test(t_a_reader_that_was_away_excuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

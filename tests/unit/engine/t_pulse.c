/* t_pulse.c - when a device that holds work has stalled, in simulated time. */
#include "engine/serve/pulse.h"
#include "tests/unit/unit.h"

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
        cmocka_unit_test(t_idle_is_well_however_long),
        cmocka_unit_test(t_work_without_a_step_is_a_stall),
        cmocka_unit_test(t_a_long_step_has_its_time),
        cmocka_unit_test(t_sleep_on_purpose_is_none),
        cmocka_unit_test(t_a_reader_that_was_away_excuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

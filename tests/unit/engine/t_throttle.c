/* t_throttle.c - simulated clocks: the share holds over time, and credit is not saved up. */
#include "base/core/bits.h"
#include "engine/serve/throttle.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_share_holds),
        cmocka_unit_test(t_no_limit),
        cmocka_unit_test(t_idle_time_is_not_saved_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_control_faults.c - a whole controller over a cloud that fails as told, killed at every step. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Two rows of demand, then silence: up to some, down to none. */
static void busy_then_silent(struct world *w)
{
    world_run(w, 3);
    w->held = 2;
    w->rate = 8;
    world_run(w, 60);
    w->rate = 0;
    w->held = 0;
    world_run(w, 120);
}

static void hand(struct world *w, int32_t count)
{
    while (!w->control)
        world_second(w);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), count, NULL), 0);
}

/* The controller is killed at the nth passing of each step; three seconds later it is back. Three
 * instances are wanted, then none: three must have been made, whatever happened in between. */
static void killed_at_every_step(void **state)
{
    (void)state;

    uint32_t crashes = 0;
    for (uint32_t s = 0; s < control_step_count; s++)
        for (uint64_t nth = 1; nth <= 4; nth++) {
            char what[64];
            snprintf(what, sizeof what, "%s, time %llu", control_steps[s], (unsigned long long)nth);
            struct world *w = world_new(NULL);
            fault_arm(control_steps[s], nth);
            world_run(w, 2);
            hand(w, 3);
            world_run(w, 40);
            if (world_running(w) != 3) fail_msg("%s: %u run", what, world_running(w));
            hand(w, 0);
            world_run(w, 60);
            world_check_end(w, what);
            if (nth <= 3 && w->crashes != 1) fail_msg("%s was not reached", what);
            if (world_made(w) != 3) fail_msg("%s: %u were made", what, world_made(w));
            crashes += w->crashes;
            world_free(w);
        }
    assert_true(crashes >= 3 * control_step_count);
}

/* The same once for each step, with SQLite under it. */
static void killed_at_every_step_on_disk(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < control_step_count; s++) {
        char path[] = "/tmp/t_control_faults_XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        unlink(path);
        struct world *w = world_new(NULL);
        store_close(w->store);
        w->store = NULL;
        w->path = path;
        fault_arm(control_steps[s], 2);
        world_run(w, 2);
        hand(w, 2);
        world_run(w, 20);
        hand(w, 0);
        world_run(w, 30);
        world_check_end(w, control_steps[s]);
        assert_int_equal(w->crashes, 1);
        assert_int_equal(world_made(w), 2);

        struct store *second; /* and nobody else may have the file meanwhile */
        assert_int_equal(store_file_open(path, 0, &second, NULL), -EBUSY);
        world_free(w);
        static const char *const ends[] = { "", "-wal", "-shm", "-lock", ".lock", "-journal" };
        for (size_t i = 0; i < COUNT_OF(ends); i++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", path, ends[i]);
            unlink(name);
        }
    }
}

struct fault_row {
    struct fake_config fake;
    bool may_double; /* the provider itself makes two; the controller must end one */
    const char *why;
};

#define MISCHIEF(...) .script = { __VA_ARGS__ }
static const struct fault_row fault_rows[] = {
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_STOCK_OUT, 0, NULL }) },
      false,
      "sold out once" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 0, FAKE_STOCK_OUT, 0, "l1" }) },
      false,
      "one offer is sold out for good" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_THROTTLE, 0, NULL }) },
      false,
      "throttled" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_QUOTA, 0, NULL }) }, false, "quota" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_LOST_REPLY, 0, NULL }) },
      false,
      "the reply is lost" },
    { { .step_count = 2,
        .lag_us = 4 * SECOND,
        MISCHIEF({ FAKE_CREATE, 1, FAKE_LOST_REPLY, 0, NULL },
                 { FAKE_CREATE, 2, FAKE_LOST_REPLY, 0, NULL }) },
      false,
      "two replies are lost and listings lag" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_LATE_SUCCESS, 6 * SECOND, NULL }) },
      false,
      "it succeeds late" },
    { { .step_count = 1,
        .keyless = true,
        MISCHIEF({ FAKE_CREATE, 1, FAKE_LATE_SUCCESS, 6 * SECOND, NULL }) },
      true,
      "it succeeds late, and there are no keys" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_DOWN, 0, NULL }) },
      false,
      "the call is lost" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_SLOW_BOOT, 20 * SECOND, NULL }) },
      false,
      "a slow boot" },
    { { .step_count = 1, MISCHIEF({ FAKE_CREATE, 1, FAKE_SLOW_BOOT, 900 * SECOND, NULL }) },
      false,
      "it never comes up" },
    { { .lag_us = 5 * SECOND }, false, "listings lag" },
    { { .step_count = 3,
        MISCHIEF({ FAKE_LIST, 1, FAKE_DOWN, 0, NULL }, { FAKE_LIST, 9, FAKE_DOWN, 0, NULL },
                 { FAKE_LIST, 30, FAKE_DOWN, 0, NULL }) },
      false,
      "listings fail" },
    { { .step_count = 2,
        MISCHIEF({ FAKE_REMOVE, 1, FAKE_DOWN, 0, NULL },
                 { FAKE_REMOVE, 2, FAKE_LOST_REPLY, 0, NULL }) },
      false,
      "removes get lost" },
};

static void check_end(struct world *w, const struct fault_row *r, const char *what)
{
    if (!r->may_double)
        world_check_end(w, what);
    else if (world_running(w) != 0)
        fail_msg("%s: %u are left", what, world_running(w));
}

static void every_mischief_ends_well(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(fault_rows); i++) {
        struct fake_config fake = fault_rows[i].fake;
        fake.boot_us = WORLD_BOOT_US;
        struct world *w = world_new(&fake);
        busy_then_silent(w);
        check_end(w, &fault_rows[i], fault_rows[i].why);
        assert_true(w->running_max >= 2); /* it did serve */
        world_free(w);
    }
}

static void mischief_and_a_kill_at_every_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(fault_rows); i++)
        for (uint32_t s = 0; s < control_step_count; s++)
            for (uint64_t nth = 1; nth <= 2; nth++) {
                char what[128];
                snprintf(what, sizeof what, "%s, killed at %s, time %llu", fault_rows[i].why,
                         control_steps[s], (unsigned long long)nth);
                struct fake_config fake = fault_rows[i].fake;
                fake.boot_us = WORLD_BOOT_US;
                struct world *w = world_new(&fake);
                fault_arm(control_steps[s], nth);
                busy_then_silent(w);
                check_end(w, &fault_rows[i], what);
                world_free(w);
            }
}

static void killed_again_and_again(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct rng rng;
        rng_seed(&rng, seed);
        struct fake_config fake = { .boot_us = WORLD_BOOT_US,
                                    .lag_us = rng_below(&rng, 4) * SECOND };
        fake.step_count = 6;
        for (uint32_t k = 0; k < fake.step_count; k++)
            fake.script[k] =
                (struct fake_step){ .op = (enum fake_op)rng_below(&rng, FAKE_OP_COUNT),
                                    .nth = 1 + (uint32_t)rng_below(&rng, 12),
                                    .fault = (enum fake_fault)rng_below(&rng, FAKE_FAULT_COUNT),
                                    .delay_us = (int64_t)rng_below(&rng, 15) * SECOND };
        struct world *w = world_new(&fake);
        for (int t = 0; t < 240; t++) {
            if (t % 20 == 0) w->rate = (double)rng_below(&rng, 25);
            if (t % 23 == 0) w->held = (uint32_t)rng_below(&rng, 3);
            if (rng_below(&rng, 12) == 0)
                fault_arm(control_steps[rng_below(&rng, control_step_count)],
                          1 + rng_below(&rng, 2));
            if (rng_below(&rng, 60) == 0 && world_made(w))
                fake_cloud_kill(w->fake, (uint32_t)rng_below(&rng, world_made(w)));
            world_second(w);
            assert_true(world_running(w) <= 12);
        }
        fault_disarm();
        w->rate = 0;
        w->held = 0;
        world_run(w, 150);
        char what[32];
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        world_check_end(w, what);
        world_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(killed_at_every_step_on_disk),
        cmocka_unit_test(every_mischief_ends_well),
        cmocka_unit_test(mischief_and_a_kill_at_every_step),
        cmocka_unit_test(killed_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

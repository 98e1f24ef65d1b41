/* t_control_faults.c - tests a whole controller over a cloud with scripted faults, and under clocks
 * that jump. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "controller/core/fleet_time.h"
#include "controller/fleet_clock.h"
#include "controller/joins.h"
#include "controller/metrics.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a cloud with scripted faults; the controller is killed at every step ---- */

/* Runs a minute of demand, then two of silence: the fleet grows, then shrinks to none. */
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

/* Kills the controller at the nth passing of each step; it returns three seconds later. Three
 * instances are wanted, then none: exactly three must have been made, whatever happened in
 * between. */
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

/* Runs the same once for each step, with SQLite as the store. */
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

        struct store *second; /* the file has one owner */
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
    bool may_double; /* the provider makes two; the controller must end one */
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

/* ---- joins: the token of an instance is used, then used again ---- */

static struct world *world_with_tokens(bool replaces)
{
    struct world *w = world_new(NULL);
    world_kill(w);
    w->cloud.joins = true;
    w->agents_silent = true; /* none reports without a key */
    w->setup.join = (struct join_config){ .within_us = 60 * SECOND, .replaces = replaces };
    world_start(w);
    world_run(w, 2);
    hand(w, 1);
    world_run(w, 3);
    assert_int_equal(world_made(w), 1);
    return w;
}

static enum join_verdict join(struct world *w, const char *mark)
{
    uint32_t count;
    enum join_verdict v = JOIN_VERDICT_COUNT;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    assert_true(control_may_join(w->control, str_from(in[0].intent)));
    assert_int_equal(control_join(w->control, str_from(in[0].intent), mark, w->now, &v), 0);
    return v;
}

/* What was told to an agent, or could have been, holds for the next controller. */
static void a_join_outlives_the_controller(void **state)
{
    (void)state;
    struct world *w = world_with_tokens(true);
    uint32_t count;
    enum join_verdict v;
    struct str id = str_from(fake_cloud_instances(w->fake, &count)[0].intent);
    fault_arm("store.write", 1);
    assert_int_equal(control_join(w->control, id, "a", w->now, &v), -EAGAIN); /* nobody is in */
    fault_disarm();
    fault_arm(control_join_step, 1);
    assert_int_equal(control_join(w->control, id, "b", w->now, &v), -ECANCELED);
    fault_disarm();
    world_kill(w);
    world_start(w);
    assert_int_equal(join(w, "b"), JOIN_AGAIN);
    assert_int_equal(join(w, "a"), JOIN_TAKEN);
    assert_false(control_may_join(w->control, STR("i-unknown")));
    world_kill(w); /* before the tick that ends it */
    world_start(w);
    world_run(w, 20);
    assert_int_equal(world_made(w), 2);
    assert_int_equal(world_running(w), 1);
    assert_int_equal(join(w, "b"), JOIN_CLOSED);
    world_free(w);
}

static void people_may_look_at_a_contested_instance_first(void **state)
{
    (void)state;
    struct world *w = world_with_tokens(false);
    assert_int_equal(join(w, "a"), JOIN_FIRST);
    assert_int_equal(join(w, "b"), JOIN_TAKEN);
    world_run(w, 10);
    assert_int_equal(world_made(w), 1);
    assert_int_equal(world_running(w), 1);
    world_free(w);
}

static int control_faults_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(killed_at_every_step_on_disk),
        cmocka_unit_test(every_mischief_ends_well),
        cmocka_unit_test(mischief_and_a_kill_at_every_step),
        cmocka_unit_test(killed_again_and_again),
        cmocka_unit_test(a_join_outlives_the_controller),
        cmocka_unit_test(people_may_look_at_a_contested_instance_first),
    };
    return cmocka_run_group_tests_name("control_faults", tests, NULL, NULL);
}

/* ---- clock steps, other boots and late turns: what they change ---- */

#define HOUR (3600 * SECOND)
#define DATE (1795000000 * SECOND)
#define UP (100 * SECOND) /* the machine's uptime at the first start */

/* ---- fleet time ---- */

static void it_goes_on_over_restarts_and_boots(void **state)
{
    (void)state;
    static const struct {
        uint64_t boot;
        int64_t mono, wall; /* the clocks at the restart */
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
    assert_int_equal(UP + ahead, DATE); /* fleet time begins at the date */
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
    /* The record is as if the date had been a year behind at the first start. */
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
    assert_true(fleet_clock_date_ahead(&second) > 364 * 24 * HOUR); /* shown to people */

    /* An unreadable record stays as it is. */
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

/* The controller stops for an hour; then routers report before agents, and agents stay silent. */
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
    /* Beyond the limit the silence is the agents' own. */
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

static int fleet_time_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_over_restarts_and_boots),
        cmocka_unit_test(its_record_is_kept_and_read_back),
        cmocka_unit_test(the_clock_goes_on_where_the_store_says),
        cmocka_unit_test(a_late_tick_ends_nothing_and_bills_the_hour),
        cmocka_unit_test(what_boots_has_its_deadline_again),
        cmocka_unit_test(people_are_shown_the_date),
    };
    return cmocka_run_group_tests_name("fleet_time", tests, NULL, NULL);
}

int main(void)
{
    return control_faults_tests() + fleet_time_tests();
}

/* t_stops.c - tests which instances are stopped in place of removed, which are started again, and what the plan sees of
 * them. Crash points, bills and providers are t_web_ec2's, t_web_gce's and t_web_azure's. */
#include "base/core/bits.h"
#include "controller/charges.h"
#include "controller/control_state.h"
#include "controller/orders.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void want(struct world *w, int32_t count)
{
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), count, NULL), 0);
}

static uint32_t in_state(const struct world *w, enum intent_state s)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < w->control->money.count; at++)
        n += w->control->money.intent[at].state == s;
    return n;
}

static struct plan_pool *pool(struct world *w)
{
    return &w->control->desired.service[0].pool[0];
}

/* A world with `count` instances that serve, of a pool that keeps `keep`, at its first `offers` offers. */
static struct world *world_of(const struct fake_config *config, uint32_t keep, uint32_t offers,
                              int32_t count)
{
    struct world *w = world_new(config);
    w->service.pool[0].keep_stopped = keep;
    w->service.pool[0].offer_count = offers;
    world_run(w, 2);
    for (uint32_t o = 0; o < w->control->money.offer_count; o++)
        w->control->money.offer[o].disk_h = 0.1;
    want(w, count);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_REGISTERED), count);
    return w;
}

static struct world *world_that_keeps(const struct fake_config *config, uint32_t keep,
                                      int32_t count)
{
    return world_of(config, keep, 2, count);
}

static void as_many_are_kept_as_the_pool_says(void **state)
{
    (void)state;
    struct world *w = world_that_keeps(NULL, 2, 3);
    want(w, 0);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_STOPPED), 2);
    assert_int_equal(world_running(w), 2); /* the third is removed */
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_STOP), 2);
    for (uint32_t at = 0; at < w->control->money.count; at++)
        if (w->control->money.intent[at].state == INTENT_STOPPED)
            assert_true(fabs(w->control->money.intent[at].price_h - 0.1) < 1e-9); /* its disk */
    want(w, 3);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 3);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_START), 2);
    assert_int_equal(world_made(w), 4); /* one more than the two that were there */
    pool(w)->keep_stopped = 0;
    want(w, 0);
    world_run(w, 20);
    world_check_end(w, "a pool that keeps none");
    world_free(w);
}

static void fewer_are_kept_when_the_pool_says_so(void **state)
{
    (void)state;
    struct world *w = world_that_keeps(NULL, 2, 2);
    want(w, 0);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_STOPPED), 2);
    pool(w)->keep_stopped = 1;
    world_run(w, 10);
    assert_int_equal(in_state(w, INTENT_STOPPED), 1);
    assert_int_equal(world_running(w), 1);
    world_free(w);
}

/* Another model is another machine: what is on the disk of a stopped one is of the model before. */
static void one_of_another_model_is_removed(void **state)
{
    (void)state;
    struct world *w = world_that_keeps(NULL, 2, 1);
    want(w, 0);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_STOPPED), 1);
    w->launch[0][0].model = STR("/models/another.gguf");
    world_run(w, 10);
    assert_int_equal(in_state(w, INTENT_STOPPED), 0);
    assert_int_equal(world_running(w), 0);
    want(w, 1);
    world_run(w, 20);
    assert_int_equal(world_made(w), 2);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_START), 0);
    world_free(w);
}

static void one_that_a_person_drains_is_removed(void **state)
{
    (void)state;
    struct world *w = world_that_keeps(NULL, 2, 1);
    assert_int_equal(control_let_go(w->control, 0, true, "by hand", w->now), 0);
    want(w, 0);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_STOPPED), 0);
    assert_int_equal(world_running(w), 0);
    world_free(w);
}

static void the_next_launch_is_seen_as_shorter(void **state)
{
    (void)state;
    struct fake_config slow = { .boot_us = WORLD_BOOT_US };
    struct world *w = world_that_keeps(&slow, 2, 1);
    struct offer *o = &w->control->money.offer[0];
    double first_s = o->lead_s;
    assert_true(o->restart_s == 0);
    assert_true(offer_lead_s(o, true) == first_s); /* nothing shorter is proven */
    for (int time = 0; time < 3; time++) {
        want(w, 0);
        world_run(w, 20);
        assert_int_equal(in_state(w, INTENT_STOPPED), 1);
        want(w, 1);
        world_run(w, 20);
        assert_int_equal(in_state(w, INTENT_REGISTERED), 1);
    }
    assert_int_equal(world_made(w), 1);
    assert_true(o->restart_s > 0 && o->lead_s == first_s); /* starts teach nothing of launches */
    want(w, 0);
    world_run(w, 20);
    struct plan_view view;
    control_build_view(w->control, w->now, &view);
    assert_int_equal(view.instance_count, 1);
    assert_int_equal(view.instance[0].phase, PHASE_STOPPED);
    assert_true(fabs(view.instance[0].price_h - 0.1) < 1e-9);
    world_free(w);
}

/* Where the provider has no room to start it, the offer is sold out like any other, and the instance stays. */
static void a_start_without_room_leaves_it_stopped(void **state)
{
    (void)state;
    struct fake_config config = { .boot_us = WORLD_BOOT_US,
                                  .script = { { FAKE_START, 1, FAKE_STOCK_OUT, 0, NULL } },
                                  .step_count = 1 };
    struct world *w = world_of(&config, 1, 1, 1);
    double before = control_spent(w->control, 0, NULL).total;
    want(w, 0);
    world_run(w, 20);
    want(w, 1);
    world_run(w, 5);
    assert_int_equal(in_state(w, INTENT_STOPPED), 1);
    assert_int_equal(w->control->money.health[0].last, OFFER_CAPACITY);
    assert_int_equal(w->control->money.health[0].refused, 1);
    world_run(w, 40);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 1); /* there is room again */
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_START), 2);
    assert_int_equal(world_made(w), 1);
    assert_true(control_spent(w->control, 0, NULL).total > before);
    world_free(w);
}

/* A stop that the provider never carries out, and one that it does not understand, end in a removal. */
static void a_stop_that_comes_to_nothing_ends_it(void **state)
{
    (void)state;
    static const enum fake_fault faults[] = { FAKE_DOWN, FAKE_INVALID };
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        struct fake_config config = { .boot_us = WORLD_BOOT_US,
                                      .script = { { FAKE_STOP, 0, faults[i], 0, NULL } },
                                      .step_count = 1 };
        struct world *w = world_that_keeps(&config, 1, 1);
        want(w, 0);
        world_run(w, 90);
        world_check_end(w, "stops that fail");
        world_free(w);
    }
}

static void one_that_somebody_starts_or_removes_is_seen(void **state)
{
    (void)state;
    for (int removed = 0; removed < 2; removed++) {
        struct world *w = world_that_keeps(NULL, 1, 1);
        struct err err = { 0 };
        enum offer_error class;
        uint32_t count;
        want(w, 0);
        world_run(w, 20);
        assert_int_equal(in_state(w, INTENT_STOPPED), 1);
        char handle[NAME_BYTES];
        memcpy(handle, fake_cloud_instances(w->fake, &count)[0].handle, sizeof handle);
        const struct cloud_backend *b = fake_cloud_backend();
        if (removed)
            assert_int_equal(b->remove(w->fake, handle, "", w->now, &err), 0);
        else
            assert_int_equal(b->turn(w->fake, handle, "", true, w->now, &class, &err), 0);
        world_run(w, 30);
        assert_int_equal(in_state(w, INTENT_STOPPED), 0);
        assert_int_equal(world_running(w), 0);
        world_free(w);
    }
}

/* An empty store: a stopped machine is gone like any other that stands, and its disk is not forgotten. */
static void a_stopped_one_without_an_intent_is_removed(void **state)
{
    (void)state;
    struct world *w = world_that_keeps(NULL, 1, 1);
    want(w, 0);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_STOPPED), 1);
    world_kill(w);
    store_close(w->store);
    must(store_memory_open(4096, &w->store, NULL) == 0);
    w->setup.store = w->store;
    world_start(w);
    world_run(w, 90);
    assert_int_equal(world_running(w), 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_are_kept_as_the_pool_says),
        cmocka_unit_test(fewer_are_kept_when_the_pool_says_so),
        cmocka_unit_test(one_of_another_model_is_removed),
        cmocka_unit_test(one_that_a_person_drains_is_removed),
        cmocka_unit_test(the_next_launch_is_seen_as_shorter),
        cmocka_unit_test(a_start_without_room_leaves_it_stopped),
        cmocka_unit_test(a_stop_that_comes_to_nothing_ends_it),
        cmocka_unit_test(one_that_somebody_starts_or_removes_is_seen),
        cmocka_unit_test(a_stopped_one_without_an_intent_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

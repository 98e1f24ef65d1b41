/* t_term.c - tests terms of leadership: one that ends in the middle of a tick, calls of an old term that are
 * queued, at the provider or late, and the controller that takes over. Two handles share a memory store. */
#include "base/core/bits.h"
#include "controller/control_state.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static void lead(struct store *s, const char *holder, uint64_t epoch)
{
    struct store_lease seen;
    const struct store_claim claim = { str_from(holder), STR(""), 10 * SECOND, epoch };
    assert_int_equal(store_lease_see(s, &seen, NULL), 0);
    assert_int_equal(store_lease_acquire(s, &claim, &seen, NULL, NULL), 0);
    assert_int_equal(store_epoch(s), epoch);
}

static void want(struct world *w, const char *pool, int32_t count)
{
    assert_int_equal(control_scale(w->control, STR("chat"), str_from(pool), count, NULL), 0);
}

/* A term that ends when it is asked about for the `until`th time: then another process leads. */
struct term {
    struct world *w;
    struct store *other;
    struct cloud_fence fence;
    uint32_t asked, until; /* 0: it does not end */
    bool over;
    uint64_t marker; /* version of the other's first write */
    uint32_t calls;  /* made before the end */
};

static uint32_t calls_made(const struct world *w)
{
    uint32_t sum = 0;
    for (int op = 0; op < FAKE_OP_COUNT; op++)
        sum += fake_cloud_calls(w->fake, (enum fake_op)op);
    return sum;
}

static void take_over(struct term *t)
{
    t->over = true;
    t->calls = calls_made(t->w);
    lead(t->other, "b", 2);
    assert_int_equal(store_put_if(t->other, STR("marker"), STR(""), STORE_ANY, &t->marker, NULL),
                     0);
}

static bool leads(void *arg)
{
    struct term *t = arg;
    if (++t->asked == t->until) take_over(t);
    return !t->over;
}

static struct world *begin(struct term *t, struct fake_config fake)
{
    *t = (struct term){ 0 };
    atomic_store(&t->fence.epoch, 1);
    atomic_store(&t->fence.until_us, INT64_MAX);
    fake.fence = &t->fence;
    struct world *w = world_new(&fake);
    t->w = w;
    assert_int_equal(store_memory_join(w->store, &t->other, NULL), 0);
    lead(w->store, "a", 1);
    w->setup.term = (struct control_term){ 1, leads, t };
    world_run(w, 2);
    return w;
}

/* The other process goes on: its control restores, observes and acts. */
static void succeed(struct term *t)
{
    struct world *w = t->w;
    if (!t->over) take_over(t);
    control_free(w->control);
    w->control = NULL;
    store_close(w->store);
    w->store = t->other;
    t->other = NULL;
    w->setup.term = (struct control_term){ 2, NULL, NULL };
    atomic_store(&t->fence.epoch, 2);
    world_start(w);
}

static void finish(struct world *w, const char *what)
{
    want(w, "small", 0);
    want(w, "large", 0);
    world_run(w, 40);
    world_check_end(w, what);
    world_free(w);
}

static int is_older(void *ctx, const struct store_entry *e)
{
    const struct term *t = ctx;
    if (e->version >= t->marker && !str_eq(e->key, STR("marker")))
        fail_msg(STR_FMT " was written after the end of the term", STR_ARG(e->key));
    return 0;
}

/* The term ends before each of the calls of a tick that launches and drains, in turn. */
static void nothing_is_written_or_called_after_the_end_in_a_tick(void **state)
{
    (void)state;
    uint32_t ends = 0;
    for (uint32_t n = 1;; n++) {
        struct term t;
        struct world *w = begin(&t, (struct fake_config){ .boot_us = WORLD_BOOT_US });
        want(w, "large", 2);
        world_run(w, 8);
        want(w, "large", 1);
        want(w, "small", 3);
        t.asked = 0;
        t.until = n;
        world_second(w);
        if (!t.over) {
            store_close(t.other);
            world_free(w);
            break;
        }
        ends++;
        assert_int_equal(calls_made(w), t.calls);
        for (int i = 0; i < 3; i++) /* it has not noticed yet */
            world_second(w);
        assert_int_equal(calls_made(w), t.calls);
        assert_int_equal(store_list(t.other, STR(""), is_older, &t, NULL), 0);
        assert_int_equal(store_epoch(w->store), 0);

        succeed(&t);
        world_run(w, 30);
        assert_int_equal(world_running(w), 4);
        finish(w, "after a term that ended in a tick");
    }
    print_message("the term ended at %u places\n", ends);
    assert_true(ends >= 4);
}

/* A create waits in the driver's queue when the term ends: it is not made, and the successor makes it. */
static void a_queued_call_of_an_old_term_is_dropped(void **state)
{
    (void)state;
    struct term t;
    struct world *w = begin(&t, (struct fake_config){ .boot_us = WORLD_BOOT_US,
                                                      .slow = { { FAKE_CREATE, 1, 20 * SECOND } },
                                                      .slow_count = 1 });
    want(w, "small", 1);
    world_run(w, 3);
    assert_int_equal(fake_cloud_under_way(w->fake), 1);
    atomic_store(&t.fence.epoch, 0);
    w->now += 30 * SECOND;
    assert_int_equal(control_calls(w->control, w->now), 0);
    assert_int_equal(fake_cloud_under_way(w->fake), 0);
    assert_int_equal(world_made(w), 0);
    succeed(&t);
    world_run(w, 20);
    assert_int_equal(world_made(w), 1);
    assert_int_equal(world_running(w), 1);
    finish(w, "after a queued call");
}

/* The create is at the provider when the term ends, and goes through later: the instance is the intent's. */
static void a_late_call_of_an_old_term_makes_no_second_instance(void **state)
{
    (void)state;
    for (int late_s = 0; late_s < 60; late_s += 5) {
        struct term t;
        struct world *w = begin(&t, (struct fake_config){ .boot_us = WORLD_BOOT_US,
                                                          .slow = { { FAKE_CREATE, 1, 1 } },
                                                          .slow_count = 1 });
        want(w, "small", 1);
        assert_int_equal(control_tick(w->control, w->now), 0);
        assert_int_equal(fake_cloud_under_way(w->fake), 1);
        struct intent i = w->control->money.intent[0];
        fake_cloud_cut(w->fake, w->now + late_s * SECOND); /* made then */
        succeed(&t);
        world_run(w, 70);
        assert_int_equal(world_running(w), 1);
        finish(w, i.id);
    }
}

/* Completions of an old term's calls belong to no call of the next term. */
static void an_old_event_completes_no_new_call(void **state)
{
    (void)state;
    struct term t;
    struct world *w = begin(&t, (struct fake_config){ .boot_us = WORLD_BOOT_US });
    uint64_t old = w->control->money.call_last;
    assert_true(old >> 32 == 1);
    succeed(&t);
    world_run(w, 1);
    assert_true(w->control->money.call_last >> 32 == 2);
    assert_true((w->control->money.call_last & UINT32_MAX) > 0);
    finish(w, "old events");
}

/* A process that was stopped after its last look at the fence: the provider knows a later term. */
static void a_provider_refuses_an_old_term(void **state)
{
    (void)state;
    struct term t;
    struct world *w = begin(&t, (struct fake_config){ .boot_us = WORLD_BOOT_US });
    struct control *old = w->control;
    struct store *old_store = w->store;
    w->control = NULL;
    w->store = t.other;
    take_over(&t);
    w->setup.term = (struct control_term){ 2, NULL, NULL };
    atomic_store(&t.fence.epoch, 2);
    world_start(w);
    world_run(w, 1); /* a listing of the new term */
    assert_int_equal(control_epoch_seen(w->control), 0);
    uint32_t calls = calls_made(w);

    t.over = false;                  /* it believes that it leads still */
    atomic_store(&t.fence.epoch, 1); /* and so does its driver */
    w->now += SECOND;
    assert_int_equal(control_tick(old, w->now), 0);
    assert_int_equal(calls_made(w), calls);
    assert_int_equal(control_epoch_seen(old), 2);
    control_free(old);
    store_close(old_store);
    atomic_store(&t.fence.epoch, 2);
    finish(w, "refused by the provider");
}

/* The store loses its content in the middle of a term: nothing is launched twice, and what runs is adopted. */
static void a_lost_store_is_no_empty_fleet(void **state)
{
    (void)state;
    struct term t;
    struct world *w = begin(&t, (struct fake_config){ .boot_us = WORLD_BOOT_US });
    want(w, "small", 2);
    world_run(w, 10);
    assert_int_equal(world_made(w), 2);
    store_memory_lose(t.other);
    uint32_t removes = fake_cloud_calls(w->fake, FAKE_REMOVE);
    world_run(w, 12); /* with the next write at the latest, it is noticed */
    assert_int_equal(store_epoch(w->store), 0);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_REMOVE), removes);
    w->service.pool[0].manual = 2; /* the override is lost: a person gives it again */
    succeed(&t);
    want(w, "small", 2);
    world_run(w, 20);
    assert_int_equal(world_made(w), 2);
    assert_int_equal(world_running(w), 2);
    finish(w, "after a lost store");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_written_or_called_after_the_end_in_a_tick),
        cmocka_unit_test(a_queued_call_of_an_old_term_is_dropped),
        cmocka_unit_test(a_late_call_of_an_old_term_makes_no_second_instance),
        cmocka_unit_test(an_old_event_completes_no_new_call),
        cmocka_unit_test(a_provider_refuses_an_old_term),
        cmocka_unit_test(a_lost_store_is_no_empty_fleet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

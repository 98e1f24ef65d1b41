/* t_calls.c - calls to providers: slow, overdue, beyond the budget; listings that are stale; a spot
 * market. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/control_state.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void want(struct world *w, const char *pool, int32_t count)
{
    assert_int_equal(control_scale(w->control, STR("chat"), str_from(pool), count, NULL), 0);
}

static double counted(struct world *w, enum control_metric m, const char *label)
{
    struct str value = str_from(label);
    return metric_value(metric_series(control_metrics(w->control), m, &value));
}

static struct world *started(const struct fake_config *fake)
{
    struct world *w = world_new(fake);
    world_run(w, 2);
    return w;
}

static uint32_t in_state(const struct world *w, enum intent_state s)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < w->control->money.count; at++)
        n += w->control->money.intent[at].state == s;
    return n;
}

/* One create takes 30 seconds. All the while the others of the fleet are heard, answered, launched
 * and ended. */
static void a_slow_create_holds_up_nothing(void **state)
{
    (void)state;
    struct world *w = started(&(struct fake_config){
        .boot_us = WORLD_BOOT_US, .slow = { { FAKE_CREATE, 2, 30 * SECOND } }, .slow_count = 1 });
    want(w, "small", 1);
    world_run(w, 8);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 1);
    want(w, "small", 2);
    world_run(w, 3);
    assert_int_equal(fake_cloud_under_way(w->fake), 1);

    want(w, "large", 2);
    for (int i = 0; i < 20; i++) {
        uint64_t seq = w->agent[0].seq, sync = w->router_seq;
        world_second(w); /* asserts that the sync was answered */
        assert_int_equal(w->agent[0].seq, seq + 1);
        assert_int_equal(w->router_seq, sync + 1);
        assert_int_equal(w->control->observed.seen[0].heard_us,
                         w->now); /* and the report was taken */
        assert_int_equal(w->control->observed.provider[0].listing.taken_us, w->now);
    }
    assert_int_equal(fake_cloud_under_way(w->fake), 1);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 3);
    assert_int_equal(in_state(w, INTENT_CREATING), 1);

    world_run(w, 20);
    assert_int_equal(fake_cloud_under_way(w->fake), 0);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 4);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_CREATE), 4); /* asked once each */
    world_free(w);
}

/* A wish to end an instance whose create is under way waits for it, and ends it then. */
static void an_end_waits_for_its_create(void **state)
{
    (void)state;
    struct world *w = started(&(struct fake_config){
        .boot_us = WORLD_BOOT_US, .slow = { { FAKE_CREATE, 1, 20 * SECOND } }, .slow_count = 1 });
    want(w, "small", 1);
    world_run(w, 5);
    want(w, "small", 0);
    world_run(w, 5);
    assert_int_equal(in_state(w, INTENT_ENDING), 1);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_REMOVE), 0);
    world_run(w, 20);
    assert_int_equal(world_made(w), 1);
    world_check_end(w, "ended while being made");
    assert_int_equal(in_state(w, INTENT_ENDED), 1);
    world_free(w);
}

/* A controller dies while a create is under way; the provider makes the instance all the same. */
static void a_call_under_way_survives_a_crash(void **state)
{
    (void)state;
    struct world *w = started(&(struct fake_config){
        .boot_us = WORLD_BOOT_US, .slow = { { FAKE_CREATE, 1, 15 * SECOND } }, .slow_count = 1 });
    want(w, "small", 1);
    world_run(w, 5);
    world_kill(w);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 1);
    assert_int_equal(world_made(w), 1);
    want(w, "small", 0);
    world_run(w, 20);
    world_check_end(w, "after a crash");
    world_free(w);
}

/* A driver that breaks its promise: the call is given up after two minutes and made again, under the
 * same key. */
static void an_overdue_call_is_given_up(void **state)
{
    (void)state;
    struct world *w = world_new(&(struct fake_config){
        .boot_us = WORLD_BOOT_US, .slow = { { FAKE_CREATE, 1, 600 * SECOND } }, .slow_count = 1 });
    w->setup.merge.boot_us = 300 * SECOND;
    world_run(w, 2);
    want(w, "small", 1);
    world_run(w, 110);
    assert_int_equal(in_state(w, INTENT_CREATING), 1);
    world_run(w, 30);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 1);
    world_run(w, 500); /* the first one completes, and changes nothing */
    assert_int_equal(in_state(w, INTENT_REGISTERED), 1);
    assert_int_equal(world_made(w), 1);
    world_free(w);
}

/* Two calls a second are what the provider allows: a burst, then two a second, listings included. */
static void calls_stay_within_the_budget(void **state)
{
    (void)state;
    struct world *w = started(
        &(struct fake_config){ .boot_us = WORLD_BOOT_US, .poll_us = SECOND, .calls_per_s = 2 });
    uint32_t before = 0;
    for (enum fake_op op = 0; op < FAKE_OP_COUNT; op++)
        before += fake_cloud_calls(w->fake, op);
    want(w, "small", 6);
    want(w, "large", 6);
    for (int s = 1; s <= 15; s++) {
        uint32_t calls = 0;
        world_second(w);
        for (enum fake_op op = 0; op < FAKE_OP_COUNT; op++)
            calls += fake_cloud_calls(w->fake, op);
        if (calls - before > 10 + 2 * (uint32_t)s)
            fail_msg("%u calls in %d seconds", calls - before, s);
    }
    assert_true(counted(w, CONTROL_M_CALLS_DEFERRED, "fake") > 0);
    world_run(w, 15);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 12);
    assert_int_equal(world_made(w), 12);
    world_free(w);
}

/* Listings fail for ten minutes, and so does every agent's way to the controller. The last good
 * listing is stale then: nothing may be ended by it. */
static void a_stale_listing_ends_nothing(void **state)
{
    (void)state;
    struct fake_config fake = { .boot_us = WORLD_BOOT_US, .poll_us = SECOND };
    struct world *w = started(&fake);
    want(w, "small", 2);
    world_run(w, 10);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 2);

    /* The cached listing is made to say that one has gone, and to be old. */
    struct provider *p = &w->control->observed.provider[0];
    p->list_call = UINT64_MAX; /* a listing that never comes */
    p->list_sent_us = w->now + 590 * SECOND;
    p->listed[0].gone = true;
    p->listing.count = 1;
    p->listing.taken_us = w->now - 60 * SECOND;
    world_run(w, 60);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 2);

    p->list_call = 0;
    p->list_sent_us = 0;
    world_run(w, 5);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 2);
    assert_int_equal(world_running(w), 2);
    world_free(w);
}

/* ---- spot ---- */

static void make_spot(struct world *w)
{
    for (uint32_t o = 0; o < 2; o++) {
        w->control->money.offer[o].spot = true;
        snprintf(w->control->money.offer[o].zone, NAME_BYTES, "%c", 'a' + (char)o);
    }
}

/* The market takes an offer's instances away, with notices of two minutes, half a minute and none:
 * each is counted once as a loss of its offer, and another serves in its place. */
static void losses_are_heeded_and_counted(void **state)
{
    (void)state;
    static const int64_t notices[] = { 120 * SECOND, 30 * SECOND, 0 };
    for (size_t k = 0; k < COUNT_OF(notices); k++) {
        struct world *w =
            world_new(&(struct fake_config){ .boot_us = WORLD_BOOT_US,
                                             .market = { { .offer = "s1",
                                                           .takes = true,
                                                           .at_us = WORLD_START + 150 * SECOND,
                                                           .notice_us = notices[k] } },
                                             .market_count = 1 });
        world_run(w, 2);
        make_spot(w);
        want(w, "small", 1);
        world_run(w, 20);
        assert_int_equal(in_state(w, INTENT_REGISTERED), 1);
        int64_t notice_us = WORLD_START + 150 * SECOND - notices[k];
        while (w->now < notice_us - SECOND)
            world_second(w);
        assert_int_equal(w->control->money.health[0].lost, 0);
        world_run(w, 20);
        assert_int_equal(w->control->money.health[0].lost, 1);
        assert_true(counted(w, CONTROL_M_LOST, "s1") == 1);
        assert_int_equal(in_state(w, INTENT_REGISTERED), 1); /* another one */
        assert_int_equal(world_made(w), 2);
        world_run(w, 150);
        assert_int_equal(w->control->money.health[0].lost, 1);
        assert_int_equal(world_running(w), 1);
        world_free(w);
    }
}

/* The agent hears how long it has. */
static void a_notice_reaches_the_agent(void **state)
{
    (void)state;
    struct world *w =
        world_new(&(struct fake_config){ .boot_us = WORLD_BOOT_US,
                                         .market = { { .offer = "s1",
                                                       .takes = true,
                                                       .at_us = WORLD_START + 60 * SECOND,
                                                       .notice_us = 30 * SECOND } },
                                         .market_count = 1 });
    world_run(w, 2);
    want(w, "small", 1);
    world_run(w, 20);
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    struct agent_report r = { .instance = str_from(in[0].intent),
                              .intent = str_from(in[0].intent),
                              .boot = 1 };
    struct agent_reply reply;
    r.seq = ++w->agent[0].seq;
    control_report(w->control, &r, w->now, &reply);
    assert_int_equal(reply.leaves_ms, 0);
    while (w->now < WORLD_START + 32 * SECOND)
        world_second(w);
    r.seq = ++w->agent[0].seq;
    control_report(w->control, &r, w->now, &reply);
    assert_true(reply.drain);
    assert_int_equal(reply.leaves_ms, 28000);
    world_free(w);
}

/* Prices are the market's; one that has not been heard for long is not known. */
static void prices_follow_the_market(void **state)
{
    (void)state;
    struct world *w = world_new(&(struct fake_config){
        .boot_us = WORLD_BOOT_US,
        .step_count = 1,
        .script = { { FAKE_PRICES, 0, FAKE_FINE, 0, NULL } },
        .market = { { .offer = "s1", .at_us = WORLD_START + 10 * SECOND, .price_h = 0.4 },
                    { .offer = "s1", .at_us = WORLD_START + 20 * SECOND, .price_h = 0.7 } },
        .market_count = 2 });
    world_run(w, 5);
    assert_true(w->control->money.offer[0].price_h == 1);
    world_run(w, 10);
    assert_true(w->control->money.offer[0].price_h == 0.4);
    world_run(w, 10);
    assert_true(w->control->money.offer[0].price_h == 0.7);
    assert_true(w->control->money.offer[0].price_known);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_create_holds_up_nothing),
        cmocka_unit_test(an_end_waits_for_its_create),
        cmocka_unit_test(a_call_under_way_survives_a_crash),
        cmocka_unit_test(an_overdue_call_is_given_up),
        cmocka_unit_test(calls_stay_within_the_budget),
        cmocka_unit_test(a_stale_listing_ends_nothing),
        cmocka_unit_test(losses_are_heeded_and_counted),
        cmocka_unit_test(a_notice_reaches_the_agent),
        cmocka_unit_test(prices_follow_the_market),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

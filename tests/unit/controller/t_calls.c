/* t_calls.c - tests calls to providers: slow, overdue or beyond the budget; stale listings; a spot
 * market; a backend behind its own thread. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/cloud_thread.h"
#include "controller/control_state.h"
#include "controller/orders.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- slow and overdue calls, the budget of calls, stale listings ---- */

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

/* One create takes 30 seconds. Meanwhile the controller hears reports, replies, launches and ends
 * other instances. */
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
        world_second(w); /* checks the sync's reply */
        assert_int_equal(w->agent[0].seq, seq + 1);
        assert_int_equal(w->router_seq, sync + 1);
        assert_int_equal(w->control->observed.seen[0].heard_us, w->now); /* the report counted */
        assert_int_equal(w->control->observed.provider[0].listing.taken_us, w->now);
    }
    assert_int_equal(fake_cloud_under_way(w->fake), 1);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 3);
    assert_int_equal(in_state(w, INTENT_CREATING), 1);

    world_run(w, 20);
    assert_int_equal(fake_cloud_under_way(w->fake), 0);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 4);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_CREATE), 4); /* one call each */
    world_free(w);
}

/* The end of an intent whose create is under way waits for the create. */
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

/* A controller dies during a create; the provider makes the instance all the same. */
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

/* A driver never reports a call's end: the call is given up after two minutes and made again under
 * the same key. */
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
    world_run(w, 500); /* the first call completes without effect */
    assert_int_equal(in_state(w, INTENT_REGISTERED), 1);
    assert_int_equal(world_made(w), 1);
    world_free(w);
}

/* The provider allows two calls a second: a burst, then two a second, listings included. */
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

/* Listings fail for ten minutes, and no agent reaches the controller. The last good listing is
 * stale by then and may end nothing. */
static void a_stale_listing_ends_nothing(void **state)
{
    (void)state;
    struct fake_config fake = { .boot_us = WORLD_BOOT_US, .poll_us = SECOND };
    struct world *w = started(&fake);
    want(w, "small", 2);
    world_run(w, 10);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 2);

    /* Makes the cached listing old, and one instance gone in it. */
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
 * each counts once as a loss of its offer, and another instance takes its place. With two minutes both serve for a
 * while. */
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
        /* the replacement, and the one that has more than half a minute left */
        assert_int_equal(in_state(w, INTENT_REGISTERED), notices[k] == 120 * SECOND ? 2 : 1);
        assert_int_equal(world_made(w), 2);
        world_run(w, 150);
        assert_int_equal(w->control->money.health[0].lost, 1);
        assert_int_equal(world_running(w), 1);
        world_free(w);
    }
}

static struct agent_report report_of(struct world *w, uint32_t at)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    must(at < count);
    return (struct agent_report){ .instance = str_from(in[at].intent),
                                  .intent = str_from(in[at].intent),
                                  .boot = 1,
                                  .seq = ++w->agent[at].seq };
}

/* Reports once more of the first instance. */
static struct agent_reply tell(struct world *w, struct agent_report *r)
{
    struct agent_reply reply;
    r->seq = ++w->agent[0].seq;
    control_report(w->control, r, w->now, &reply);
    return reply;
}

/* A world with one instance, which serves. */
static struct world *world_of_one(const struct fake_config *config)
{
    struct world *w = world_new(config);
    world_run(w, 2);
    want(w, "small", 1);
    world_run(w, 20);
    return w;
}

/* The agent hears how long its instance has left. */
static void a_notice_reaches_the_agent(void **state)
{
    (void)state;
    struct world *w =
        world_of_one(&(struct fake_config){ .boot_us = WORLD_BOOT_US,
                                            .market = { { .offer = "s1",
                                                          .takes = true,
                                                          .at_us = WORLD_START + 60 * SECOND,
                                                          .notice_us = 30 * SECOND } },
                                            .market_count = 1 });
    struct agent_report r = report_of(w, 0);
    assert_int_equal(tell(w, &r).leaves_ms, 0);
    while (w->now < WORLD_START + 32 * SECOND)
        world_second(w);
    struct agent_reply reply = tell(w, &r);
    assert_true(reply.drain);
    assert_int_equal(reply.leaves_ms, 28000);
    world_free(w);
}

/* A machine that was told of its end says so before its provider's listing does: another is made, it drains when half a
 * minute is left, and the loss is counted once. */
static void a_notice_of_the_machine_is_heeded(void **state)
{
    (void)state;
    struct world *w = world_of_one(&(struct fake_config){ .boot_us = WORLD_BOOT_US });
    struct agent_report r = report_of(w, 0);
    r.leaves_ms = 38000;
    r.leaves_why = STR("spot instance-action terminate");
    tell(w, &r);
    world_second(w);
    r.leaves_ms = 37000;
    struct agent_reply reply = tell(w, &r);
    assert_false(reply.drain);
    assert_true(reply.leaves_ms > 36000 && reply.leaves_ms <= 38000);
    world_run(w, 8);
    r.leaves_ms = 29000;
    assert_true(tell(w, &r).drain);
    assert_true(counted(w, CONTROL_M_LOST, "s1") == 1);
    assert_int_equal(world_made(w), 2);
    world_run(w, 60);
    assert_true(counted(w, CONTROL_M_LOST, "s1") == 1);
    world_free(w);
}

/* One that its machine calls at risk serves on until another is ready; it is no loss. */
static void an_instance_at_risk_is_replaced_first(void **state)
{
    (void)state;
    struct world *w = world_of_one(&(struct fake_config){ .boot_us = WORLD_BOOT_US });
    struct agent_report r = report_of(w, 0);
    r.at_risk = true;
    r.leaves_why = STR("rebalance recommendation");
    assert_int_equal(tell(w, &r).leaves_ms, 0);
    world_second(w);
    world_second(w);
    assert_int_equal(world_made(w), 2);
    assert_false(tell(w, &r).drain); /* the other boots */
    world_run(w, 60);
    assert_int_equal(world_made(w), 2);
    assert_true(counted(w, CONTROL_M_LOST, "s1") == 0);
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    assert_true(in[0].removed_us > 0 || in[0].dead);
    assert_int_equal(in[1].removed_us, 0);
    world_free(w);
}

/* A machine that is broken drains at once, and its faults are counted by their rise. */
static void a_broken_machine_is_replaced(void **state)
{
    (void)state;
    struct world *w = world_new(&(struct fake_config){ .boot_us = WORLD_BOOT_US });
    struct agent_reply reply;
    world_run(w, 2);
    want(w, "small", 1);
    world_run(w, 20);
    const struct wire_gpu gpu = { .name = STR("NVIDIA A100-SXM4-40GB"),
                                  .memory_bytes = UINT64_C(40960) << 20 };
    struct wire_fault fault[] = { { STR("xid_13"), 2 }, { STR("xid_79"), 1 } };
    struct agent_report r = report_of(w, 0);
    r.gpus = &gpu, r.gpu_count = 1;
    r.faults = fault, r.fault_count = 1;
    control_report(w->control, &r, w->now, &reply);
    assert_false(reply.drain);
    assert_true(counted(w, CONTROL_M_GPU_FAULTS, "xid_13") == 2);
    fault[0].count = 3;
    r = report_of(w, 0);
    r.gpus = &gpu, r.gpu_count = 1;
    r.faults = fault, r.fault_count = 2;
    r.machine = MACHINE_BROKEN;
    r.machine_why = STR("GPU 0: Xid 79, it has fallen off the bus");
    w->agents_silent = true; /* this test's words are the last */
    control_report(w->control, &r, w->now, &reply);
    assert_true(counted(w, CONTROL_M_GPU_FAULTS, "xid_13") == 3);
    assert_true(counted(w, CONTROL_M_GPU_FAULTS, "xid_79") == 1);
    world_second(w);
    r.seq = ++w->agent[0].seq;
    control_report(w->control, &r, w->now, &reply);
    assert_true(reply.drain);
    assert_int_equal(world_made(w), 2);
    assert_true(counted(w, CONTROL_M_LOST, "s1") == 0); /* it is no loss of the market */
    assert_true(counted(w, CONTROL_M_GPU_FAULTS, "xid_79") == 1);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_INSTANCES, w->now, &text), 0);
    assert_non_null(strstr(text.data, "its machine is broken: GPU 0: Xid 79, it has fallen off"));
    assert_non_null(strstr(text.data, "\"hardware\":\"1 x NVIDIA A100-SXM4-40GB\""));
    world_free(w);
}

static uint32_t told_of(struct world *w, const char *what)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint32_t n = 0;
    assert_int_equal(control_events(w->control, STR(""), 100, &text), 0);
    for (const char *at = text.data; at && (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* A machine whose GPU is another than its offer is said to have is told of, once; it serves on. */
static void another_gpu_than_was_sold_is_told_of(void **state)
{
    (void)state;
    static const struct {
        const char *sold, *hardware, *name;
        uint64_t memory_mib;
        bool mig;
        uint32_t told;
    } rows[] = {
        { "l4", "a100-80", "NVIDIA A100-SXM4-80GB", 81920, false, 1 },
        { "l4", "l4", "NVIDIA L4", 23034, false, 0 },
        { "l4", "l4", "NVIDIA L4", 12000, false, 1 }, /* half of one */
        { "l4", "", "A board that nobody knows", 23034, false, 0 },
        { "l4", "", "A board that nobody knows", 8192, false, 1 },
        { "a100-80", "a100-80", "NVIDIA A100-SXM4-80GB", 20096, true,
          0 }, /* a slice is sold as one */
        { "", "a100-80", "NVIDIA A100-SXM4-80GB", 81920, false, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world *w = world_new(&(struct fake_config){ .boot_us = WORLD_BOOT_US });
        struct agent_reply reply;
        world_run(w, 2);
        snprintf(w->control->money.offer[0].hardware, NAME_BYTES, "%s", rows[i].sold);
        want(w, "small", 1);
        world_run(w, 20);
        const struct wire_gpu gpu = { .name = str_from(rows[i].name),
                                      .hardware = str_from(rows[i].hardware),
                                      .memory_bytes = rows[i].memory_mib << 20,
                                      .mig = rows[i].mig };
        for (int time = 0; time < 3; time++) {
            struct agent_report r = report_of(w, 0);
            r.gpus = &gpu, r.gpu_count = 1;
            control_report(w->control, &r, w->now, &reply);
            assert_false(reply.drain || reply.stop);
        }
        if (told_of(w, "hardware_differs") != rows[i].told)
            fail_msg("row %zu: told %u times", i, told_of(w, "hardware_differs"));
        if (rows[i].told) {
            char text[96];
            snprintf(text, sizeof text, "offer s1 is sold as %s, and the machine has %.40s",
                     rows[i].sold, rows[i].name);
            assert_int_equal(told_of(w, text), 1);
        }
        world_free(w);
    }
}

/* A create that comes through twice, the second time when the first instance is long gone, leaves one behind that has
 * another handle than the intent: it is removed by its own. */
static void a_late_twin_is_removed(void **state)
{
    (void)state;
    struct world *w = world_new(&(struct fake_config){ .boot_us = WORLD_BOOT_US });
    world_run(w, 2);
    want(w, "small", 1);
    world_run(w, 20);
    uint32_t count;
    char intent[NAME_BYTES];
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    assert_int_equal(count, 1);
    memcpy(intent, in[0].intent, sizeof intent);
    want(w, "small", 0);
    world_run(w, 30);
    assert_int_equal(world_running(w), 0);
    fake_cloud_plant(w->fake, intent, "chat", "small", "s1", w->now);
    assert_int_equal(world_running(w), 1);
    world_run(w, 30);
    assert_int_equal(world_running(w), 0);
    world_free(w);
}

/* Prices follow the market; a price that was not heard for long is unknown. */
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

/* Tells of an engine at `host` that has the model, or of one that has it not, and returns how many others may be asked. */
static uint32_t givers_told(struct world *w, const char *host, bool whole)
{
    CLEANUP(arena_fini) struct arena arena;
    struct agent_report r = report_of(w, 0);
    struct agent_report reader = report_of(w, 1);
    struct agent_reply reply = { 0 };
    arena_init(&arena, 1 << 16);
    r.state = AGENT_UP;
    r.has_weights = reader.has_weights = r.has_engine = true;
    r.weights = (struct wire_weights){ .sha256 = STR("ab12"), .whole = whole, .port = 8101 };
    r.engine.host = str_from(host);
    reader.weights.sha256 = STR("AB12");
    control_report(w->control, &r, w->now, &reply);
    control_report(w->control, &reader, w->now, &reply);
    control_seeds(w->control, &reader, w->now, &arena, &reply);
    if (reply.seed_count == 1) {
        assert_true(str_eq(reply.seeds[0].host, str_from(host)));
        assert_int_equal(reply.seeds[0].port, 8101);
    }
    return reply.seed_count;
}

/* An agent is sent for its model to those that have all of it and that it can reach: not behind a tunnel, and not on their
 * way out. */
static void a_model_is_had_of_those_that_can_be_asked(void **state)
{
    (void)state;
    struct world *w = world_new(&(struct fake_config){ .boot_us = WORLD_BOOT_US });
    world_run(w, 2);
    want(w, "small", 2);
    world_run(w, 20);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 2);
    assert_int_equal(givers_told(w, "10.0.0.1", true), 1);
    assert_int_equal(givers_told(w, "10.0.0.1", false), 0);
    assert_int_equal(givers_told(w, "tunnel:i-1", true), 0);
    assert_int_equal(givers_told(w, "10.0.0.1", true), 1);
    want(w, "small", 0);
    world_second(w);
    assert_int_equal(in_state(w, INTENT_REGISTERED), 0);
    assert_int_equal(givers_told(w, "10.0.0.1", true), 0);
    world_free(w);
}

static int calls_tests(void)
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
        cmocka_unit_test(a_notice_of_the_machine_is_heeded),
        cmocka_unit_test(an_instance_at_risk_is_replaced_first),
        cmocka_unit_test(a_broken_machine_is_replaced),
        cmocka_unit_test(another_gpu_than_was_sold_is_told_of),
        cmocka_unit_test(a_late_twin_is_removed),
        cmocka_unit_test(a_model_is_had_of_those_that_can_be_asked),
        cmocka_unit_test(prices_follow_the_market),
    };
    return cmocka_run_group_tests_name("calls", tests, NULL, NULL);
}

/* ---- a backend that waits as long as the test wants, behind its own thread ---- */

#define HANG_S 120 /* only ends a test that hangs */

struct slow {
    sem_t begun, go; /* one post for each call that began, and for each that may end */
    sem_t woken;
    char log[512]; /* written by the thread, read while no call is under way */
    bool closed;
};

static void begin(struct slow *s, const char *call, const char *what)
{
    size_t len = strlen(s->log);
    snprintf(s->log + len, sizeof s->log - len, "%s %s;", call, what);
    sem_post(&s->begun);
    sem_wait(&s->go);
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    (void)now_us;
    begin(ctx, "create", req->intent);
    if (strcmp(req->offer->name, "none") == 0) {
        *ret_class = OFFER_CAPACITY;
        return err_set(err, -EBUSY, "sold out");
    }
    assert_true(str_eq(req->spec->engine_args[0], STR("muster")));
    assert_true(str_eq(req->key, STR("secret")));
    snprintf(ret->handle, sizeof ret->handle, "h-%s", req->intent);
    return 0;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    (void)now_us, (void)max, (void)err;
    begin(ctx, "list", "");
    snprintf(ret[0].intent, sizeof ret[0].intent, "i-1");
    *ret_count = 1;
    return 0;
}

static int remove_instance(void *ctx, const char *handle, const char *intent, int64_t now_us,
                           struct err *err)
{
    (void)now_us, (void)handle;
    begin(ctx, "remove", intent);
    return err_set(err, -EIO, "not now");
}

static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    (void)now_us, (void)max, (void)err;
    begin(ctx, "prices", "");
    ret[0] = (struct cloud_price){ .offer = "s1", .known = true, .price_h = 0.5 };
    *ret_count = 1;
    return 0;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    (void)ctx, (void)ret, (void)max, (void)err;
    *ret_count = 0;
    return 0;
}

static void close_slow(void *ctx)
{
    ((struct slow *)ctx)->closed = true;
}

static const struct cloud_backend backend = {
    .name = "slow",
    .about = "waits for the test",
    .close = close_slow,
    .offers = offers,
    .create = create,
    .list = list,
    .remove = remove_instance,
    .prices = prices,
};

static void await(sem_t *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_S;
    if (sem_timedwait(s, &until) < 0) fail_msg("nothing happened");
}

static void woken(void *arg)
{
    sem_post(&((struct slow *)arg)->woken);
}

static void open_fenced(struct slow *s, const struct cloud_fence *fence, struct cloud *ret)
{
    *s = (struct slow){ 0 };
    sem_init(&s->begun, 0, 0);
    sem_init(&s->go, 0, 0);
    sem_init(&s->woken, 0, 0);
    const struct cloud pace = { .poll_us = 7, .calls_per_s = 3, .lag_us = 5, .fence = fence };
    assert_int_equal(cloud_thread_new(&backend, s, &pace, ret, NULL), 0);
    assert_int_equal(ret->poll_us, 7);
    assert_int_equal(ret->lag_us, 5);
    ret->driver->watch(ret->ctx, woken, s);
}

static void open_slow(struct slow *s, struct cloud *ret)
{
    open_fenced(s, NULL, ret);
}

static const struct str args[] = { { "muster", 6 } };

static const struct launch_spec spec = { .instance = { "i-1", 3 },
                                         .service = { "chat", 4 },
                                         .pool = { "small", 5 },
                                         .offer = { "s1", 2 },
                                         .controller_host = { "127.0.0.1", 9 },
                                         .controller_port = 1,
                                         .engine_host = { "127.0.0.1", 9 },
                                         .engine_args = args,
                                         .engine_arg_count = 1 };

static int ask_create_in(const struct cloud *c, uint64_t epoch, uint64_t id, const char *intent,
                         const char *offer)
{
    struct offer o = { 0 };
    snprintf(o.name, sizeof o.name, "%s", offer);
    char name[NAME_BYTES]; /* the call's texts end with this function: submit copied them */
    snprintf(name, sizeof name, "%s", intent);
    struct cloud_call call = {
        .op = CLOUD_CREATE,
        .id = id,
        .epoch = epoch,
        .create = { .intent = name, .offer = &o, .spec = &spec, .key = STR("secret") },
    };
    return c->driver->submit(c->ctx, &call, 1000, NULL);
}

static int ask_create(const struct cloud *c, uint64_t id, const char *intent, const char *offer)
{
    return ask_create_in(c, 0, id, intent, offer);
}

static struct cloud_event *taken(struct slow *s, const struct cloud *c)
{
    static struct cloud_event e;
    sem_post(&s->go);
    await(&s->woken);
    assert_true(c->driver->next(c->ctx, 1000, &e));
    return &e;
}

/* The backend sits in its first call until the test releases it; submit and next return
 * meanwhile. */
static void nothing_waits_for_the_backend(void **state)
{
    (void)state;
    struct slow s;
    struct cloud c;
    static struct cloud_event none;
    open_slow(&s, &c);
    assert_int_equal(ask_create(&c, 1, "i-1", "s1"), 0);
    await(&s.begun);
    assert_int_equal(ask_create(&c, 2, "i-2", "none"), 0);
    struct cloud_call remove = { .op = CLOUD_REMOVE, .id = 3, .handle = "h", .intent = "i-3" };
    struct cloud_call look = { .op = CLOUD_LIST, .id = 4 }, price = { .op = CLOUD_PRICES, .id = 5 };
    assert_int_equal(c.driver->submit(c.ctx, &remove, 1000, NULL), 0);
    assert_int_equal(c.driver->submit(c.ctx, &look, 1000, NULL), 0);
    assert_int_equal(c.driver->submit(c.ctx, &price, 1000, NULL), 0);
    assert_false(c.driver->next(c.ctx, 1000, &none));

    struct cloud_event *e = taken(&s, &c);
    assert_int_equal(e->id, 1);
    assert_int_equal(e->rc, 0);
    assert_string_equal(e->made.handle, "h-i-1");
    e = taken(&s, &c);
    assert_int_equal(e->id, 2);
    assert_int_equal(e->class, OFFER_CAPACITY);
    assert_string_equal(e->err.text, "sold out");
    e = taken(&s, &c);
    assert_int_equal(e->id, 3);
    assert_int_equal(e->rc, -EIO);
    e = taken(&s, &c);
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].intent, "i-1");
    e = taken(&s, &c);
    assert_true(e->price[0].known && e->price[0].price_h == 0.5);
    assert_string_equal(s.log, "create i-1;create i-2;remove i-3;list ;prices ;");
    cloud_close(&c);
    assert_true(s.closed);
}

static void a_full_queue_is_an_answer(void **state)
{
    (void)state;
    struct slow s;
    struct cloud c;
    open_slow(&s, &c);
    char name[16];
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++) {
        snprintf(name, sizeof name, "i-%u", i);
        assert_int_equal(ask_create(&c, i + 1, name, "s1"), 0);
    }
    assert_int_equal(ask_create(&c, 999, "i-999", "s1"), -EBUSY);
    assert_int_equal(taken(&s, &c)->id, 1);
    assert_int_equal(ask_create(&c, 1000, "i-1000", "s1"), 0);
    assert_int_equal(ask_create(&c, 1001, "i-1001", "s1"), -EBUSY);
    assert_int_equal(taken(&s, &c)->id, 2);
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++) /* releases every call */
        sem_post(&s.go);
    cloud_close(&c); /* waits for the call under way; queued ones may be dropped */
    assert_true(s.closed);
}

/* Calls wait behind one that is under way while the term ends, by an order or by time: the one goes through,
 * the others are not made. */
static void a_queued_call_is_not_made_after_its_term(void **state)
{
    (void)state;
    for (int by_time = 0; by_time < 2; by_time++) {
        struct slow s;
        struct cloud c;
        struct cloud_fence fence;
        atomic_init(&fence.epoch, 5);
        atomic_init(&fence.until_us, INT64_MAX);
        open_fenced(&s, &fence, &c);
        assert_int_equal(ask_create_in(&c, 5, 1, "i-1", "s1"), 0);
        await(&s.begun);
        assert_int_equal(ask_create_in(&c, 5, 2, "i-2", "s1"), 0);
        struct cloud_call remove = {
            .op = CLOUD_REMOVE, .id = 3, .epoch = 5, .handle = "h", .intent = "i-3"
        };
        assert_int_equal(c.driver->submit(c.ctx, &remove, 1000, NULL), 0);
        if (by_time)
            atomic_store(&fence.until_us, 1); /* the process was stopped until after its end */
        else
            atomic_store(&fence.epoch, 6);
        assert_int_equal(taken(&s, &c)->rc, 0);
        for (uint64_t id = 2; id <= 3; id++) {
            static struct cloud_event e;
            await(&s.woken);
            assert_true(c.driver->next(c.ctx, 1000, &e));
            assert_int_equal(e.id, id);
            assert_int_equal(e.rc, -EKEYREVOKED);
            assert_int_equal(e.class, OFFER_TRANSIENT);
        }
        assert_string_equal(s.log, "create i-1;");
        cloud_close(&c);
    }
}

static int cloud_thread_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_waits_for_the_backend),
        cmocka_unit_test(a_full_queue_is_an_answer),
        cmocka_unit_test(a_queued_call_is_not_made_after_its_term),
    };
    return cmocka_run_group_tests_name("cloud_thread", tests, NULL, NULL);
}

int main(void)
{
    return calls_tests() + cloud_thread_tests();
}

/* t_orders.c - tests orders of people: drains of instances, pools and nodes, and what is kept of orders and
 * events. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/control_state.h"
#include "controller/orders.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* A world with `count` ready instances of the pool small. */
static struct world *world_of(uint32_t count)
{
    struct world *w = world_new(NULL);
    w->service.pool[0].min = count;
    w->service.pool[1].max = 0;
    world_run(w, 15);
    assert_int_equal(world_running(w), count);
    return w;
}

static int order(struct world *w, const struct drain_order *o, const char *says)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct err err = { 0 };
    int rc = control_drain(w->control, o, w->now, &out, &err);
    const char *text = rc < 0 ? err.text : out.data;
    if (!strstr(text, says)) fail_msg("no '%s' in %s", says, text);
    return rc;
}

static const char *id_of(const struct world *w, uint32_t at)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    assert_true(at < count);
    return in[at].intent;
}

static enum intent_state state_of(const struct world *w, const char *id)
{
    uint32_t at = control_find(w->control, id);
    return at == UINT32_MAX ? INTENT_ENDED : w->control->money.intent[at].state;
}

static void a_drained_instance_is_replaced_and_not_kept(void **state)
{
    (void)state;
    struct world *w = world_of(2);
    char id[NAME_BYTES];
    snprintf(id, sizeof id, "%s", id_of(w, 0));
    const struct drain_order o = { .instance = str_from(id) };
    assert_int_equal(order(w, &o, id), 0);
    assert_int_equal(state_of(w, id), INTENT_DRAINING);
    w->held = 4; /* wanted again at once: the plan takes another, not this one */
    w->rate = 8;
    world_second(w);
    assert_int_equal(state_of(w, id), INTENT_DRAINING);
    world_run(w, 20);
    assert_int_equal(state_of(w, id), INTENT_ENDED);
    assert_true(world_running(w) >= 2);
    assert_int_equal(order(w, &o, "there is no instance"), -ENOENT);
    world_free(w);
}

/* The mark is on the stored intent: a controller that starts again does not keep the instance either. */
static void a_drain_outlives_the_controller(void **state)
{
    (void)state;
    struct world *w = world_of(2);
    char id[NAME_BYTES];
    snprintf(id, sizeof id, "%s", id_of(w, 1));
    assert_int_equal(order(w, &(struct drain_order){ .instance = str_from(id) }, id), 0);
    world_kill(w);
    world_second(w);
    uint32_t at = control_find(w->control, id);
    assert_true(at != UINT32_MAX && w->control->money.intent[at].let_go);
    world_run(w, 20);
    assert_int_equal(state_of(w, id), INTENT_ENDED);
    assert_int_equal(world_running(w), 2);
    world_free(w);
}

static void a_drain_can_be_taken_back_until_it_ends(void **state)
{
    (void)state;
    struct world *w = world_of(2);
    char id[NAME_BYTES];
    snprintf(id, sizeof id, "%s", id_of(w, 0));
    struct drain_order o = { .instance = str_from(id), .undo = true };
    assert_int_equal(order(w, &o, "is not drained by hand"), -EINVAL);
    o.undo = false;
    assert_int_equal(order(w, &o, id), 0);
    assert_int_equal(order(w, &o, id), 0); /* again: nothing changes */
    o.undo = true;
    assert_int_equal(order(w, &o, id), 0);
    assert_int_equal(state_of(w, id), INTENT_REGISTERED);
    world_run(w, 10);
    assert_int_equal(state_of(w, id), INTENT_REGISTERED);
    assert_int_equal(world_made(w), 2);
    o.undo = false;
    assert_int_equal(order(w, &o, id), 0);
    for (int i = 0; i < 20 && state_of(w, id) == INTENT_DRAINING; i++)
        world_second(w);
    o.undo = true;
    assert_int_equal(state_of(w, id), INTENT_ENDING);
    assert_int_equal(order(w, &o, "cannot be taken back"), -EINVAL);
    world_free(w);
}

static void a_drained_pool_wants_nothing_until_it_is_undone(void **state)
{
    (void)state;
    struct world *w = world_of(2);
    struct drain_order o = { .service = STR("chat"), .pool = STR("small") };
    struct err err;
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 3, &err), 0);
    world_run(w, 10);
    assert_int_equal(world_running(w), 3);
    assert_int_equal(order(w, &o, id_of(w, 2)), 0);
    world_run(w, 10);
    assert_int_equal(world_running(w), 0);
    world_kill(w); /* the override outlives the controller */
    world_run(w, 20);
    assert_int_equal(world_running(w), 0);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_POOLS, w->now, &text), 0);
    assert_non_null(strstr(text.data, "\"manual\":3,\"drained\":true"));
    o.undo = true;
    assert_int_equal(order(w, &o, "[]"), 0);
    world_run(w, 10);
    assert_int_equal(world_running(w), 3); /* the count from before */
    o.pool = STR("huge");
    assert_int_equal(order(w, &o, "has no pool 'huge'"), -ENOENT);
    o.service = STR("talk");
    assert_int_equal(order(w, &o, "no service 'talk'"), -ENOENT);
    world_free(w);
}

/* With a pool drained the other one takes its load. */
static void load_moves_to_the_other_pool(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    w->service.pool[0].min = 1;
    world_run(w, 10);
    assert_int_equal(
        order(w, &(struct drain_order){ .service = STR("chat"), .pool = STR("small") }, "i-"), 0);
    w->held = 2;
    w->rate = 4;
    world_run(w, 30);
    uint32_t count, large = 0;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    for (uint32_t i = 0; i < count; i++) {
        bool runs = in[i].removed_us == 0 && !in[i].dead;
        if (runs && strcmp(in[i].pool, "small") == 0) fail_msg("%s runs", in[i].intent);
        large += runs && strcmp(in[i].pool, "large") == 0;
    }
    assert_true(large >= 1);
    world_free(w);
}

static void a_node_is_drained_as_a_whole(void **state)
{
    (void)state;
    struct world *w = world_of(4);
    struct drain_order o = { .node = STR("node-1") };
    uint32_t gone = 0;
    char ids[4][NAME_BYTES];
    for (uint32_t i = 0; i < 4; i++)
        snprintf(ids[i], NAME_BYTES, "%s", id_of(w, i));
    assert_int_equal(order(w, &o, "i-"), 0);
    o.undo = true;
    assert_int_equal(order(w, &o, "i-"), 0);
    world_run(w, 5);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(state_of(w, ids[i]), INTENT_REGISTERED);
    o.undo = false;
    assert_int_equal(order(w, &o, "i-"), 0);
    world_run(w, 20);
    for (uint32_t i = 0; i < 4; i++)
        gone += state_of(w, ids[i]) == INTENT_ENDED;
    assert_int_equal(gone, 2);
    assert_int_equal(world_running(w), 4); /* replaced */
    o.node = STR("node-9");
    assert_int_equal(order(w, &o, "no instance runs on 'node-9'; they run on node-"), -ENOENT);
    world_free(w);
}

/* ---- events ---- */

static void happened(struct world *w, const char *about, uint32_t max, struct buf *ret)
{
    buf_clear(ret);
    assert_int_equal(control_events(w->control, str_from(about), max, ret), 0);
}

static uint32_t count_of(const struct buf *text, const char *word)
{
    uint32_t n = 0;
    for (const char *at = text->data; (at = strstr(at, word)); at++)
        n++;
    return n;
}

static void events_are_kept_by_name_and_orders_for_good(void **state)
{
    (void)state;
    struct world *w = world_of(2);
    CLEANUP(buf_fini) struct buf text = { 0 };
    char id[NAME_BYTES];
    snprintf(id, sizeof id, "%s", id_of(w, 0));
    happened(w, id, 100, &text);
    assert_int_equal(count_of(&text, "\"what\":\"launch\""), 1);
    assert_int_equal(count_of(&text, "\"what\":\"registered\""), 1);
    assert_null(strstr(text.data, id_of(w, 1)));
    happened(w, id, 1, &text);
    assert_int_equal(count_of(&text, "\"what\":"), 1);
    assert_int_equal(count_of(&text, "\"what\":\"registered\""), 1); /* the newest */
    happened(w, "nobody", 100, &text);
    assert_non_null(strstr(text.data, "\"events\":[]"));

    const struct control_order o = {
        .what = "scale", .by = "token ann", .service = STR("chat"), .text = "3"
    };
    control_order_done(w->control, &o, w->now);
    world_kill(w);
    world_second(w);
    happened(w, "chat", 100, &text);
    assert_int_equal(count_of(&text, "\"by\":\"token ann\",\"order\":true"), 1);
    assert_int_equal(count_of(&text, "\"what\":\"launch\""), 0); /* not stored */
    world_free(w);
}

/* A drain that the controller ends itself, because the agent never told of its end, counts what was last seen. */
static void a_drain_that_is_cut_says_what_was_in_flight(void **state)
{
    (void)state;
    struct world *w = world_of(1);
    CLEANUP(buf_fini) struct buf events = { 0 };
    const struct engine_report busy = { .host = STR("127.0.0.1"),
                                        .port = 8200,
                                        .health = ENGINE_READY,
                                        .model = STR("chat"),
                                        .running = 2,
                                        .waiting = 1,
                                        .running_max = 16 };
    char id[NAME_BYTES];
    snprintf(id, sizeof id, "%s", id_of(w, 0));
    w->engine = &busy;
    world_second(w);
    assert_int_equal(order(w, &(struct drain_order){ .instance = str_from(id) }, id), 0);
    w->agents_silent = true;
    world_run(w, (int)(w->setup.merge.drain_us / SECOND) + 1);
    assert_true(state_of(w, id) >= INTENT_ENDING);
    happened(w, id, 100, &events);
    assert_int_equal(count_of(&events, "over its deadline, with 3 requests in flight"), 1);
    world_free(w);
}

static void events_are_bounded(void **state)
{
    (void)state;
    struct world *w = world_of(1);
    CLEANUP(buf_fini) struct buf text = { 0 };
    for (uint32_t i = 0; i < EVENTS_MAX + 10; i++)
        control_note(w->control, &(struct event_note){ .what = "x", .service = "s" }, w->now);
    happened(w, "", UINT32_MAX, &text);
    assert_int_equal(count_of(&text, "\"what\":"), EVENTS_MAX);
    assert_null(strstr(text.data, "\"dropped\":0,"));
    const struct control_order o = { .what = "pause", .by = "b", .service = STR("chat") };
    for (uint32_t i = 0; i < EVENTS_RESTORED_MAX + 20; i++)
        control_order_done(w->control, &o, w->now);
    world_kill(w);
    world_second(w);
    happened(w, "chat", UINT32_MAX, &text);
    assert_int_equal(count_of(&text, "\"what\":\"pause\""), EVENTS_RESTORED_MAX);
    world_free(w);
}

/* ---- gc ---- */

/* Collects; *ret_removed counts. The reply is kept in a buffer that the next call reuses. */
static const char *collect(struct world *w, bool remove, uint32_t *ret_removed)
{
    static struct buf text;
    struct err err = { 0 };
    buf_clear(&text);
    if (control_gc(w->control, remove, w->now, &text, ret_removed, &err) < 0)
        fail_msg("%s", err.text);
    return text.data;
}

static void nothing_of_a_healthy_fleet_is_collected(void **state)
{
    (void)state;
    struct world *w = world_of(3);
    uint32_t removed;
    w->router_silent = w->agents_silent = true; /* silence is no proof */
    world_run(w, 120);
    if (!strstr(collect(w, true, &removed), "\"orphans\":[]"))
        fail_msg("%s", collect(w, false, &removed));
    assert_int_equal(removed, 0);
    assert_int_equal(world_running(w), 3);
    world_free(w);
}

static void strangers_are_shown_and_kept_until_they_are_old(void **state)
{
    (void)state;
    struct world *w = world_of(1);
    uint32_t removed;
    fake_cloud_plant(w->fake, "i-old", "nobody", "small", "s1", w->now);
    world_run(w, 10);
    const char *text = collect(w, true, &removed);
    if (!strstr(text, "\"service\":\"nobody\"") || !strstr(text, "\"action\":\"keep\""))
        fail_msg("%s", text);
    assert_int_equal(removed, 0);
    assert_int_equal(world_running(w), 2);
    w->control->observed.provider[0].is_new = false;
    w->now += 60 * SECOND; /* old enough, and no tick has come yet */
    text = collect(w, false, &removed);
    if (!strstr(text, "\"action\":\"remove\"")) fail_msg("%s", text);
    assert_int_equal(world_running(w), 2); /* only shown */
    text = collect(w, true, &removed);
    assert_int_equal(removed, 1);
    world_run(w, 3);
    assert_int_equal(world_running(w), 1);
    world_free(w);
}

/* A provider that lists nothing of a launch leaves an intent without an instance. */
static void an_intent_past_its_lead_is_ended(void **state)
{
    (void)state;
    struct fake_config lost = { .boot_us = WORLD_BOOT_US,
                                .script = { { FAKE_CREATE, 0, FAKE_DOWN, 0, NULL } },
                                .step_count = 1 };
    struct world *w = world_new(&lost);
    uint32_t removed;
    w->setup.merge.boot_us = 600 * SECOND;
    w->service.pool[0].min = 1;
    w->service.pool[1].max = 0;
    world_run(w, 30);
    const char *text = collect(w, true, &removed);
    if (!strstr(text, "\"orphans\":[]")) fail_msg("too early: %s", text);
    world_run(w, 60);
    text = collect(w, false, &removed);
    if (!strstr(text, "past its lead")) fail_msg("%s", text);
    collect(w, true, &removed);
    assert_int_equal(removed, 1);
    CLEANUP(buf_fini) struct buf events = { 0 };
    happened(w, "chat", 100, &events);
    assert_int_equal(count_of(&events, "collected: it has no instance"), 1);
    world_free(w);
}

static void records_that_nothing_needs_go(void **state)
{
    (void)state;
    struct world *w = world_of(1);
    uint32_t removed;
    uint64_t v;
    world_kill(w);
    must(store_put_if(w->store, STR("aside/cost"), STR("?"), STORE_ABSENT, &v, NULL) == 0);
    must(store_put_if(w->store, STR("intent/i-lost"), STR("?"), STORE_ABSENT, &v, NULL) == 0);
    must(store_put_if(w->store, STR("tenant/acme"), STR("?"), STORE_ABSENT, &v, NULL) == 0);
    world_run(w, 5);
    assert_int_equal(control_is_degraded(w->control), true);
    const char *text = collect(w, true, &removed);
    assert_int_equal(removed, 2);
    if (!strstr(text, "\"name\":\"tenant/acme\",\"provider\":null,\"service\":null,\"pool\":null,"
                      "\"action\":\"keep\""))
        fail_msg("%s", text);
    assert_int_equal(store_get(w->store, STR("aside/cost"), NULL, NULL, NULL), -ENOENT);
    assert_int_equal(store_get(w->store, STR("intent/i-lost"), NULL, NULL, NULL), -ENOENT);
    assert_int_equal(store_get(w->store, STR("tenant/acme"), NULL, NULL, NULL), 0);
    assert_int_equal(control_aside_count(w->control), 1);
    world_free(w);
}

/* The record of an instance that the provider has stays: it may serve. */
static void the_record_of_a_living_instance_stays(void **state)
{
    (void)state;
    struct world *w = world_of(1);
    char key[NAME_BYTES + 8];
    uint32_t removed;
    snprintf(key, sizeof key, "intent/%s", id_of(w, 0));
    world_kill(w);
    must(store_put_if(w->store, str_from(key), STR("?"), STORE_ANY, &(uint64_t){ 0 }, NULL) == 0);
    world_run(w, 5);
    const char *text = collect(w, true, &removed);
    assert_int_equal(removed, 0);
    if (!strstr(text, "its instance may serve")) fail_msg("%s", text);
    assert_int_equal(store_get(w->store, str_from(key), NULL, NULL, NULL), 0);
    assert_int_equal(world_running(w), 1);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drained_instance_is_replaced_and_not_kept),
        cmocka_unit_test(a_drain_outlives_the_controller),
        cmocka_unit_test(a_drain_can_be_taken_back_until_it_ends),
        cmocka_unit_test(a_drained_pool_wants_nothing_until_it_is_undone),
        cmocka_unit_test(load_moves_to_the_other_pool),
        cmocka_unit_test(a_node_is_drained_as_a_whole),
        cmocka_unit_test(events_are_kept_by_name_and_orders_for_good),
        cmocka_unit_test(a_drain_that_is_cut_says_what_was_in_flight),
        cmocka_unit_test(events_are_bounded),
        cmocka_unit_test(nothing_of_a_healthy_fleet_is_collected),
        cmocka_unit_test(strangers_are_shown_and_kept_until_they_are_old),
        cmocka_unit_test(an_intent_past_its_lead_is_ended),
        cmocka_unit_test(records_that_nothing_needs_go),
        cmocka_unit_test(the_record_of_a_living_instance_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

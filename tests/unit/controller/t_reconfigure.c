/* t_reconfigure.c - tests a running controller whose services and pools change: what stays with a service,
 * what becomes of instances. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/control_state.h"
#include "policies/scale/scale.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The configuration that a test changes to. */
struct next {
    struct plan_service service[3];
    struct control_launch launch[3][SCALE_POOLS_MAX];
    struct control_setup setup;
};

static struct next *next_of(const struct world *w)
{
    struct next *n = calloc(1, sizeof *n);
    must(n);
    n->setup = w->setup;
    for (uint32_t s = 0; s < 3; s++) {
        n->service[s] = w->service;
        memcpy(n->launch[s], w->launch[0], sizeof n->launch[s]);
    }
    snprintf(n->service[1].name, NAME_BYTES, "talk");
    snprintf(n->service[2].name, NAME_BYTES, "code");
    n->setup.service = n->service;
    n->setup.launch = (const struct control_launch(*)[SCALE_POOLS_MAX])n->launch;
    return n;
}

static void change(struct world *w, struct next *n)
{
    struct control_next *next = NULL;
    struct err err = { 0 };
    if (control_prepare(w->control, &n->setup, &next, &err) < 0) fail_msg("%s", err.text);
    control_commit(w->control, next);
}

static uint32_t running_in(const struct world *w, const char *pool)
{
    uint32_t count, runs = 0;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    for (uint32_t i = 0; i < count; i++)
        runs += in[i].removed_us == 0 && !in[i].dead && strcmp(in[i].pool, pool) == 0;
    return runs;
}

static void bounds_and_slo_hold_from_the_next_tick(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    world_run(w, 5);
    struct next *n = next_of(w);
    n->service[0].pool[0].min = 2;
    n->service[0].ttft_slo_s = 7;
    n->service[0].budget_h = 50;
    change(w, n);
    world_run(w, 10);
    assert_int_equal(running_in(w, "small"), 2);
    n->service[0].pool[0].min = 0;
    n->service[0].pool[0].max = 1;
    change(w, n);
    world_run(w, 30);
    assert_true(running_in(w, "small") <= 1);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct router_sync s = { .router = STR("r1"), .boot = 9, .seq = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, NULL), 0);
    assert_true(rules.services[0].slo_ttft_s == 7); /* routers hear it with their next sync */
    world_free(w);
    free(n);
}

static void instances_of_a_pool_that_goes_are_drained(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    w->service.pool[0].min = 2;
    w->service.pool[1].min = 1;
    world_run(w, 15);
    assert_int_equal(running_in(w, "large"), 1);
    struct next *n = next_of(w);
    n->service[0].pool_count = 1;
    change(w, n);
    world_run(w, 15);
    assert_int_equal(running_in(w, "large"), 0);
    assert_int_equal(running_in(w, "small"), 2);
    assert_int_equal(world_made(w), 3); /* the others stayed as they were */
    world_free(w);
    free(n);
}

static void services_come_and_go(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    w->service.pool[0].min = 1;
    world_run(w, 10);
    struct next *n = next_of(w);
    n->service[1].pool[0].min = 2;
    n->setup.service_count = 2;
    change(w, n);
    world_run(w, 10);
    assert_int_equal(world_running(w), 3);
    assert_int_equal(control_scale(w->control, STR("talk"), STR("small"), 4, NULL), 0);
    world_run(w, 10);
    assert_int_equal(world_running(w), 5);

    n->setup.service_count = 1; /* talk goes */
    change(w, n);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_SERVICES, w->now, &text), 0);
    assert_null(strstr(text.data, "talk"));
    world_run(w, 20);
    assert_int_equal(world_running(w), 1);
    buf_clear(&text);
    assert_int_equal(metrics_render(control_metrics(w->control), METRICS_CLASSIC, &text), 0);
    assert_non_null(strstr(
        text.data, "{service=\"talk\",pool=\"small\",provider=\"fake\",phase=\"ready\"} 0\n"));

    n->setup.service_count = 2; /* and comes back, with the override that a person had set */
    change(w, n);
    assert_int_equal(w->control->desired.service[1].pool[0].manual, 4);
    world_run(w, 10);
    assert_int_equal(world_running(w), 5);
    world_free(w);
    free(n);
}

/* A service that moves to another index keeps its demand, its overrides and its policies' state. */
static void what_belongs_to_a_service_moves_with_it(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    w->rate = 8;
    w->held = 1;
    world_run(w, 40);
    uint32_t before = world_running(w), made = world_made(w);
    assert_true(before >= 2);
    assert_int_equal(control_pause(w->control, STR("chat"), true, NULL), 0);
    struct plan_memory memory = w->control->desired.memory[0];
    struct next *n = next_of(w);
    n->service[2] = n->service[0];
    snprintf(n->service[0].name, NAME_BYTES, "code");
    n->setup.service_count = 3;
    change(w, n);
    const struct control *c = w->control;
    assert_true(c->desired.service[2].paused && !c->desired.service[0].paused);
    assert_memory_equal(&c->desired.memory[2].policy, memory.policy, sizeof memory.policy);
    assert_true(c->observed.demand[2].sum.present && !c->observed.demand[0].sum.present);
    for (uint32_t at = 0; at < c->money.count; at++)
        assert_int_equal(c->observed.detail[at].service, 2);
    world_run(w, 20);
    assert_int_equal(world_running(w), before);
    assert_int_equal(world_made(w), made);
    world_free(w);
    free(n);
}

static void another_policy_begins_without_the_old_ones_state(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    static const struct plan_memory none;
    w->rate = 8;
    w->held = 1;
    world_run(w, 40);
    w->control->desired.memory[0].policy[0] ^= 1; /* not all zero, whatever it was */
    w->control->desired.memory[0].policy[1] |= 1;
    struct next *n = next_of(w);
    n->service[0].policy = scale_find(STR("static"));
    must(n->service[0].policy && n->service[0].policy != w->service.policy);
    change(w, n);
    assert_memory_equal(w->control->desired.memory[0].policy, none.policy, sizeof none.policy);
    world_run(w, 20);
    world_free(w);
    free(n);
}

/* An order that is prepared and not committed changes nothing. */
static void what_is_only_prepared_changes_nothing(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    world_run(w, 5);
    struct next *n = next_of(w);
    struct control_next *next = NULL;
    n->service[0].pool[0].min = 3;
    assert_int_equal(control_prepare(w->control, &n->setup, &next, NULL), 0);
    control_next_free(next);
    world_run(w, 15);
    assert_int_equal(world_running(w), 0);
    world_free(w);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_and_slo_hold_from_the_next_tick),
        cmocka_unit_test(instances_of_a_pool_that_goes_are_drained),
        cmocka_unit_test(services_come_and_go),
        cmocka_unit_test(what_belongs_to_a_service_moves_with_it),
        cmocka_unit_test(another_policy_begins_without_the_old_ones_state),
        cmocka_unit_test(what_is_only_prepared_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

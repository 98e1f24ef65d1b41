/* t_control.c - a whole controller over a cloud that fails as told, killed at every step. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOOT (3 * SECOND)

static struct world *world(const struct fake_config *fake)
{
    struct world *w = malloc(sizeof *w);
    must(w);
    struct fake_config plain = { .boot_us = BOOT };
    world_init(w, fake ? fake : &plain, 1);
    return w;
}

/* The number that stands right behind `label`; it must be there. */
static double number_behind(const struct buf *text, const char *label)
{
    const char *at = strstr(text->data, label);
    assert_non_null(at);
    at += strlen(label);
    double v = 0;
    assert_int_equal(str_to_f64(str_of(at, strspn(at, "+-.0123456789e")), &v), 0);
    return v;
}

static void world_free(struct world *w)
{
    fault_disarm();
    world_fini(w);
    free(w);
}

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

/* One instance an intent, ever; and none is left. */
static void check_truth(struct world *w, const char *what)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count; j++)
            if (strcmp(in[i].intent, in[j].intent) == 0)
                fail_msg("%s: %s has two instances", what, in[i].intent);
    }
    if (world_running(w) != 0) fail_msg("%s: %u are left", what, world_running(w));
}

static uint32_t made(const struct world *w)
{
    uint32_t count;
    fake_cloud_instances(w->fake, &count);
    return count;
}

static void grows_and_shrinks_to_zero(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    world_run(w, 3);
    assert_int_equal(world_running(w), 0);
    w->held = 2;
    w->rate = 8;
    world_second(w);
    assert_true(world_running(w) >= 1); /* in the same second */
    world_run(w, 30);
    uint32_t peak = world_running(w);
    assert_true(peak >= 2);
    w->rate = 0;
    world_run(w, 60);
    assert_int_equal(world_running(w), 0);
    check_truth(w, "plain");

    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_decisions(w->control, 1, 100, &text, NULL), 0);
    assert_non_null(strstr(text.data, "\"launch\""));
    assert_non_null(strstr(text.data, "\"drain\""));
    assert_non_null(strstr(text.data, "\"ttft_p90_s\":0.1")); /* what routers measured */
    world_free(w);
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
            struct world *w = world(NULL);
            fault_arm(control_steps[s], nth);
            world_run(w, 2);
            hand(w, 3);
            world_run(w, 40);
            if (world_running(w) != 3) fail_msg("%s: %u run", what, world_running(w));
            hand(w, 0);
            world_run(w, 60);
            check_truth(w, what);
            if (nth <= 3 && w->crashes != 1) fail_msg("%s was not reached", what);
            if (made(w) != 3) fail_msg("%s: %u were made", what, made(w));
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
        char path[] = "/tmp/t_control_XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        unlink(path);
        struct world *w = world(NULL);
        store_close(w->store);
        w->store = NULL;
        w->path = path;
        fault_arm(control_steps[s], 2);
        world_run(w, 2);
        hand(w, 2);
        world_run(w, 20);
        hand(w, 0);
        world_run(w, 30);
        check_truth(w, control_steps[s]);
        assert_int_equal(w->crashes, 1);
        assert_int_equal(made(w), 2);

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
        check_truth(w, what);
    else if (world_running(w) != 0)
        fail_msg("%s: %u are left", what, world_running(w));
}

static void every_mischief_ends_well(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(fault_rows); i++) {
        struct fake_config fake = fault_rows[i].fake;
        fake.boot_us = BOOT;
        struct world *w = world(&fake);
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
                fake.boot_us = BOOT;
                struct world *w = world(&fake);
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
        struct fake_config fake = { .boot_us = BOOT, .lag_us = rng_below(&rng, 4) * SECOND };
        fake.step_count = 6;
        for (uint32_t k = 0; k < fake.step_count; k++)
            fake.script[k] =
                (struct fake_step){ .op = (enum fake_op)rng_below(&rng, FAKE_OP_COUNT),
                                    .nth = 1 + (uint32_t)rng_below(&rng, 12),
                                    .fault = (enum fake_fault)rng_below(&rng, FAKE_FAULT_COUNT),
                                    .delay_us = (int64_t)rng_below(&rng, 15) * SECOND };
        struct world *w = world(&fake);
        for (int t = 0; t < 240; t++) {
            if (t % 20 == 0) w->rate = (double)rng_below(&rng, 25);
            if (t % 23 == 0) w->held = (uint32_t)rng_below(&rng, 3);
            if (rng_below(&rng, 12) == 0)
                fault_arm(control_steps[rng_below(&rng, control_step_count)],
                          1 + rng_below(&rng, 2));
            if (rng_below(&rng, 60) == 0 && made(w))
                fake_cloud_kill(w->fake, (uint32_t)rng_below(&rng, made(w)));
            world_second(w);
            assert_true(world_running(w) <= 12);
        }
        fault_disarm();
        w->rate = 0;
        w->held = 0;
        world_run(w, 150);
        char what[32];
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        check_truth(w, what);
        world_free(w);
    }
}

static void an_empty_store_adopts_the_fleet(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    w->rate = 8;
    w->held = 1;
    world_run(w, 40);
    uint32_t before = world_running(w), all = made(w);
    assert_true(before >= 2);
    world_kill(w);
    store_close(w->store);
    must(store_memory_open(4096, &w->store, NULL) == 0);
    w->setup.store = w->store;
    world_run(w, 40);
    assert_int_equal(made(w), all); /* nothing was launched beside them */
    assert_int_equal(world_running(w), before);
    w->rate = 0;
    world_run(w, 90);
    check_truth(w, "adopted");
    world_free(w);
}

static void strangers_are_ended_after_a_while(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    fake_cloud_plant(w->fake, "i-old", "nobody", "small", "s1", w->now);
    world_run(w, 30);
    assert_int_equal(world_running(w), 1);
    world_run(w, 60);
    assert_int_equal(world_running(w), 0);
    world_free(w);
}

static void a_dead_machine_is_replaced(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    w->service.min = 2;
    w->service.pool[1].max = 0;
    world_run(w, 20);
    assert_int_equal(world_running(w), 2);
    fake_cloud_kill(w->fake, 0);
    assert_int_equal(world_running(w), 1);
    world_run(w, 20);
    assert_int_equal(world_running(w), 2);
    assert_int_equal(made(w), 3);
    world_free(w);
}

static void nothing_is_bought_that_cannot_be_written(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    store_close(w->store);
    must(store_memory_open(1, &w->store, NULL) == 0); /* room for one record, soon taken */
    w->setup.store = w->store;
    uint64_t version;
    must(store_put_if(w->store, STR("taken"), STR("x"), STORE_ABSENT, &version, NULL) == 0);
    w->held = 1;
    world_run(w, 20);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_CREATE), 0);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(metrics_render(control_metrics(w->control), &text), 0);
    assert_true(number_behind(&text, "\nmuster_controller_store_failures_total ") > 0);
    world_free(w);
}

static void a_silent_router_stops_the_shrinking(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    w->rate = 8;
    w->held = 1;
    world_run(w, 40);
    uint32_t before = world_running(w);
    w->router_silent = true;
    world_run(w, 60);
    assert_int_equal(world_running(w), before);
    w->router_silent = false;
    w->rate = 0;
    world_run(w, 90);
    assert_int_equal(world_running(w), 0);
    world_free(w);
}

static void hands_outlive_the_controller(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    world_second(w);
    struct err err;
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 3, &err), 0);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("large"), 99, &err), -ERANGE);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("huge"), 1, &err), -ENOENT);
    assert_int_equal(control_scale(w->control, STR("talk"), STR("small"), 1, &err), -ENOENT);
    world_run(w, 10);
    assert_int_equal(world_running(w), 3);
    world_kill(w);
    world_run(w, 30);
    assert_int_equal(world_running(w), 3);
    assert_int_equal(control_pause(w->control, STR("chat"), true, &err), 0);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), -1, &err), 0);
    world_kill(w);
    world_run(w, 30);
    assert_int_equal(world_running(w), 3); /* paused: as it is */
    assert_int_equal(control_pause(w->control, STR("chat"), false, &err), 0);
    world_run(w, 60);
    assert_int_equal(world_running(w), 0);
    world_free(w);
}

static void routers_hear_what_they_need(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    w->rate = 4;
    w->held = 1;
    world_run(w, 30);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct router_sync s = { .router = STR("r1"), .boot = 9, .seq = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, NULL), 0);
    assert_true(rules.endpoint_count >= 1);
    assert_int_equal(rules.endpoints[0].state, ENDPOINT_READY);
    assert_true(str_eq(rules.endpoints[0].host, STR("127.0.0.1")));
    assert_int_equal(rules.endpoints[0].port, 8200);
    assert_true(rules.endpoints[0].price_per_h > 0);
    assert_int_equal(rules.service_count, 1);
    assert_true(rules.services[0].may_start);
    assert_false(rules.keys_required);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(router_rules_encode(&rules, &text), 0);

    /* a seventeenth router is told so */
    for (int i = 0; i < CONTROL_ROUTERS_MAX; i++) {
        char id[16];
        snprintf(id, sizeof id, "x%d", i);
        struct router_sync more = { .router = str_from(id), .boot = 9, .seq = 1 };
        arena_reset(&arena);
        int rc = control_sync(w->control, &more, w->now, &arena, &rules, NULL);
        assert_int_equal(rc, i < CONTROL_ROUTERS_MAX - 2 ? 0 : -ENOSPC);
        if (rc < 0) continue;
        assert_int_equal(rules.router_index + 1, rules.router_count); /* the newest is the last */
        assert_true(rules.router_count >= (uint32_t)i + 2);
    }
    world_free(w);
}

static void tenants_come_and_go(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    world_second(w);
    char key[TENANT_KEY_BYTES], other[TENANT_KEY_BYTES];
    struct err err;
    struct tenant_limits limits = { .requests_per_min = 60, .concurrency = 4 };
    struct control *c = w->control;
    assert_int_equal(control_tenant_add(c, STR("a b"), &limits, w->now, key, &err), -EINVAL);
    assert_int_equal(control_tenant_add(c, STR("acme"), &limits, w->now, key, &err), 0);
    assert_int_equal(control_tenant_add(c, STR("acme"), &limits, w->now, other, &err), -EEXIST);
    assert_int_equal(control_tenant_add(c, STR("beta"), &limits, w->now, other, &err), 0);
    assert_string_not_equal(key, other);

    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct tenant_usage usage = { .tenant = STR("beta"),
                                  .requests_total = 5,
                                  .generated_tokens_total = 70 };
    struct router_sync s = { .router = STR("r1"), .boot = 9, .seq = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0);
    assert_true(rules.keys_required && rules.has_tenants);
    assert_int_equal(rules.tenant_count, 2);
    s.tenants_version = rules.tenants_version;
    s.usage = &usage, s.usage_count = 1;
    s.seq = 2;
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0);
    assert_false(rules.has_tenants);
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0); /* twice: once */
    usage.requests_total = 7;
    s.seq = 3;
    assert_int_equal(control_tenant_remove(c, STR("acme"), &err), 0);
    assert_int_equal(control_tenant_remove(c, STR("acme"), &err), -ENOENT);
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0);
    assert_int_equal(rules.tenant_count, 1);
    s.boot = 10, s.seq = 1, usage.requests_total = 2; /* the router began anew */
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0);

    world_run(w, 40); /* usage is written */
    world_kill(w);
    world_run(w, 5);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_TENANTS, w->now, &text), 0);
    assert_non_null(strstr(text.data, "\"beta\""));
    assert_null(strstr(text.data, "\"acme\""));
    assert_non_null(strstr(text.data, "\"requests_total\":9"));
    assert_non_null(strstr(text.data, "\"generated_tokens_total\":140"));
    assert_null(strstr(text.data, key)); /* no key is kept anywhere */
    world_free(w);
}

static void every_view_is_json(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    w->rate = 4;
    w->held = 1;
    world_run(w, 20);
    for (uint32_t v = 0; v < CONTROL_VIEW_COUNT; v++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        assert_int_equal(control_view(w->control, (enum control_view)v, w->now, &text), 0);
        struct json_reader r;
        json_reader_init(&r, buf_view(&text));
        assert_int_equal(json_next(&r), JSON_OBJECT);
        json_skip_rest(&r);
        if (json_next(&r) != JSON_END) fail_msg("view %u: %s", v, text.data);
    }
    CLEANUP(buf_fini) struct buf one = { 0 };
    uint64_t last = control_decision_last(w->control);
    assert_true(last >= 1);
    assert_int_equal(control_decision(w->control, last, &one, NULL), 0);
    assert_int_equal(control_decision(w->control, last + 1, &one, NULL), -ENOENT);
    world_free(w);
}

static void tombstones_are_bounded_and_cost_stays(void **state)
{
    (void)state;
    struct world *w = world(NULL);
    w->service.pool[1].max = 0;
    w->service.shape.down_window_s = 1;
    double before = 0;
    for (int i = 0; i < 300; i++) {
        w->held = 1;
        world_run(w, 5);
        w->held = 0;
        world_run(w, 14);
        CLEANUP(buf_fini) struct buf text = { 0 };
        assert_int_equal(control_view(w->control, CONTROL_COST, w->now, &text), 0);
        double total = number_behind(&text, "\"total\":");
        assert_true(total >= before - 1e-9); /* never falls */
        before = total;
    }
    assert_true(made(w) > CONTROL_TOMBSTONES_MAX);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_INTENTS, w->now, &text), 0);
    uint32_t intents = 0;
    for (const char *p = text.data; (p = strstr(p, "\"id\":")); p++)
        intents++;
    assert_in_range(intents, 1, CONTROL_TOMBSTONES_MAX + 4);
    double total = before;
    world_kill(w);
    world_second(w);
    buf_clear(&text);
    assert_int_equal(control_view(w->control, CONTROL_COST, w->now, &text), 0);
    before = number_behind(&text, "\"total\":");
    assert_true(before >= total - 1e-9 && before < total + 0.01);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_shrinks_to_zero),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(killed_at_every_step_on_disk),
        cmocka_unit_test(every_mischief_ends_well),
        cmocka_unit_test(mischief_and_a_kill_at_every_step),
        cmocka_unit_test(killed_again_and_again),
        cmocka_unit_test(an_empty_store_adopts_the_fleet),
        cmocka_unit_test(strangers_are_ended_after_a_while),
        cmocka_unit_test(a_dead_machine_is_replaced),
        cmocka_unit_test(nothing_is_bought_that_cannot_be_written),
        cmocka_unit_test(a_silent_router_stops_the_shrinking),
        cmocka_unit_test(hands_outlive_the_controller),
        cmocka_unit_test(routers_hear_what_they_need),
        cmocka_unit_test(tenants_come_and_go),
        cmocka_unit_test(every_view_is_json),
        cmocka_unit_test(tombstones_are_bounded_and_cost_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

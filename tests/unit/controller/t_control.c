/* t_control.c - a whole controller over a cloud that does as it is told: growing and shrinking, what
 * it finds and replaces, hands, routers, tenants, and what it tells of itself. */
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

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

static void grows_and_shrinks_to_zero(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
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
    world_check_end(w, "plain");

    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_decisions(w->control, 1, 100, &text, NULL), 0);
    assert_non_null(strstr(text.data, "\"launch\""));
    assert_non_null(strstr(text.data, "\"drain\""));
    assert_non_null(strstr(text.data, "\"ttft_p90_s\":0.1")); /* what routers measured */
    world_free(w);
}

static void an_empty_store_adopts_the_fleet(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    w->rate = 8;
    w->held = 1;
    world_run(w, 40);
    uint32_t before = world_running(w), all = world_made(w);
    assert_true(before >= 2);
    world_kill(w);
    store_close(w->store);
    must(store_memory_open(4096, &w->store, NULL) == 0);
    w->setup.store = w->store;
    world_run(w, 40);
    assert_int_equal(world_made(w), all); /* nothing was launched beside them */
    assert_int_equal(world_running(w), before);
    w->rate = 0;
    world_run(w, 90);
    world_check_end(w, "adopted");
    world_free(w);
}

static void strangers_are_ended_after_a_while(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
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
    struct world *w = world_new(NULL);
    w->service.min = 2;
    w->service.pool[1].max = 0;
    world_run(w, 20);
    assert_int_equal(world_running(w), 2);
    fake_cloud_kill(w->fake, 0);
    assert_int_equal(world_running(w), 1);
    world_run(w, 20);
    assert_int_equal(world_running(w), 2);
    assert_int_equal(world_made(w), 3);
    world_free(w);
}

static void nothing_is_bought_that_cannot_be_written(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
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
    struct world *w = world_new(NULL);
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
    struct world *w = world_new(NULL);
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
    struct world *w = world_new(NULL);
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
    struct world *w = world_new(NULL);
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
    struct world *w = world_new(NULL);
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
    struct world *w = world_new(NULL);
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
    assert_true(world_made(w) > CONTROL_TOMBSTONES_MAX);
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

/* t_control.c - tests a whole controller over an obedient cloud: growth and shrinking, finds and
 * replacements, overrides, routers, tenants, and its reports. */
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/access.h"
#include "controller/charges.h"
#include "controller/metrics.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the number right behind `label`, which must be there. */
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
    assert_non_null(strstr(text.data, "\"ttft_p90_s\":0.1")); /* as routers measured it */
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
    assert_int_equal(world_made(w), all); /* no launch besides the adopted ones */
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
    must(store_memory_open(1, &w->store, NULL) == 0); /* room for one record, taken below */
    w->setup.store = w->store;
    uint64_t version;
    must(store_put_if(w->store, STR("taken"), STR("x"), STORE_ABSENT, &version, NULL) == 0);
    w->held = 1;
    world_run(w, 20);
    assert_int_equal(fake_cloud_calls(w->fake, FAKE_CREATE), 0);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(metrics_render(control_metrics(w->control), METRICS_CLASSIC, &text), 0);
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
    assert_int_equal(world_running(w), 3); /* paused: no change */
    assert_int_equal(control_pause(w->control, STR("chat"), false, &err), 0);
    world_run(w, 60);
    assert_int_equal(world_running(w), 0);
    world_free(w);
}

static void routers_hear_what_they_need(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    const struct wire_adapter adapters[] = { { STR("sql"), STR("d1") },
                                             { STR("tone"), STR("d2") } };
    const struct engine_report engine = { .host = STR("127.0.0.1"),
                                          .port = 8200,
                                          .health = ENGINE_READY,
                                          .model = STR("chat"),
                                          .running_max = 16,
                                          .adapters = adapters,
                                          .adapter_count = 2 };
    w->engine = &engine;
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
    assert_int_equal(rules.endpoints[0].adapter_count, 2);
    assert_true(str_eq(rules.endpoints[0].adapters[1].name, STR("tone")));
    assert_true(str_eq(rules.endpoints[0].adapters[1].digest, STR("d2")));
    assert_int_equal(rules.service_count, 1);
    assert_true(rules.services[0].may_start);
    assert_false(rules.keys_required);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(router_rules_encode(&rules, &text), 0);

    /* The seventeenth router is refused. */
    for (int i = 0; i < CONTROL_ROUTERS_MAX; i++) {
        char id[16];
        snprintf(id, sizeof id, "x%d", i);
        struct router_sync more = { .router = str_from(id), .boot = 9, .seq = 1 };
        arena_reset(&arena);
        int rc = control_sync(w->control, &more, w->now, &arena, &rules, NULL);
        assert_int_equal(rc, i < CONTROL_ROUTERS_MAX - 2 ? 0 : -ENOSPC);
        if (rc < 0) continue;
        assert_int_equal(rules.router_index + 1, rules.router_count); /* the newest comes last */
        assert_true(rules.router_count >= (uint32_t)i + 2);
    }
    world_free(w);
}

static bool hears_a_complete_list(struct world *w, uint32_t *ret_count)
{
    static uint64_t seq;
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct router_sync s = { .router = STR("r1"), .boot = 9, .seq = ++seq };
    struct router_rules rules;
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, NULL), 0);
    *ret_count = rules.endpoint_count;
    return router_rules_complete(&rules);
}

/* A list of endpoints is incomplete while an instance has not reported since the start: its address
 * is unknown, and it has not ended. */
static void a_list_is_incomplete_until_everybody_was_heard(void **state)
{
    (void)state;
    static const bool comes_back[] = { true, false };
    for (size_t i = 0; i < COUNT_OF(comes_back); i++) {
        struct world *w = world_new(NULL);
        uint32_t count;
        w->service.min = w->service.max = 2;
        world_run(w, 20);
        assert_true(hears_a_complete_list(w, &count));
        assert_int_equal(count, 2);
        world_kill(w);
        world_start(w);
        assert_false(hears_a_complete_list(w, &count)); /* no listing yet */
        w->agents_silent = true;
        world_run(w, 60);
        assert_false(hears_a_complete_list(w, &count));
        assert_int_equal(count, 0);
        w->agents_silent = !comes_back[i];
        world_run(w, 2);
        assert_int_equal(hears_a_complete_list(w, &count), comes_back[i]);
        assert_int_equal(count, comes_back[i] ? 2 : 0);
        /* An instance that stays silent is ended; then the list is complete without it. */
        for (int left = 700; left > 0 && !hears_a_complete_list(w, &count); left--)
            world_second(w);
        assert_true(hears_a_complete_list(w, &count));
        world_free(w);
    }
}

static bool keys_are_required(struct world *w)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct router_sync s = { .router = STR("r1"), .boot = 9, .seq = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, NULL), 0);
    return rules.keys_required;
}

static void put(struct world *w, const char *key, const char *value)
{
    uint64_t version;
    assert_int_equal(
        store_put_if(w->store, str_from(key), str_from(value), STORE_ANY, &version, NULL), 0);
}

static bool holds(struct world *w, const char *key, const char *value)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return store_get(w->store, str_from(key), &text, NULL, NULL) == 0 &&
           str_eq(buf_view(&text), str_from(value));
}

static bool view_has(struct world *w, enum control_view view, const char *text)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(control_view(w->control, view, w->now, &out), 0);
    buf_byte(&out, 0);
    return strstr(out.data, text) != NULL;
}

/* A record of a newer release, or a damaged one, stays and is reported; its instance serves and
 * counts, and everything else goes on. */
static void unreadable_records_stop_nothing_else(void **state)
{
    (void)state;
    static const char newer[] = "{\"v\":2,\"is\":\"of a newer release\"}";
    struct world *w = world_new(NULL);
    struct tenant_limits none = { 0 };
    char key[TENANT_KEY_BYTES], intent[NAME_BYTES + 8];
    w->service.min = 3;
    w->service.max = 6;
    world_run(w, 20);
    assert_int_equal(control_tenant_add(w->control, STR("a"), &none, w->now, key, NULL), 0);
    assert_int_equal(control_tenant_add(w->control, STR("b"), &none, w->now, key, NULL), 0);
    assert_false(control_is_degraded(w->control));
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    assert_int_equal(count, 3);
    snprintf(intent, sizeof intent, "intent/%s", in[0].intent);

    world_kill(w);
    const char *const damaged[] = { intent, "intent/i-0000000000ff", "tenant/a", "cost" };
    for (size_t i = 0; i < COUNT_OF(damaged); i++)
        put(w, damaged[i], newer);
    world_start(w);
    assert_true(control_is_degraded(w->control));
    world_run(w, 20);
    for (size_t i = 0; i < 3; i++) {
        assert_true(view_has(w, CONTROL_STATUS, damaged[i]));
        assert_true(holds(w, damaged[i], newer));
    }
    assert_true(holds(w, "aside/cost", newer));
    assert_true(metric_value(metric_of(control_metrics(w->control), CONTROL_M_UNREADABLE)) == 4);
    /* The instance is an endpoint, and counts. */
    assert_true(hears_a_complete_list(w, &count));
    assert_int_equal(count, 3);
    assert_int_equal(world_made(w), 3);
    assert_true(view_has(w, CONTROL_TENANTS, "\"tenant\":\"b\""));
    assert_int_equal(control_tenant_remove(w->control, STR("b"), NULL), 0);
    assert_true(keys_are_required(w)); /* an unreadable tenant still has a key */

    /* The fleet grows and shrinks around the instance, and never ends it. */
    w->service.min = 0;
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 5, NULL), 0);
    world_run(w, 20);
    assert_int_equal(world_running(w), 5);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 0, NULL), 0);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("large"), 0, NULL), 0);
    world_kill(w);
    world_run(w, 60); /* the world restarts it, with the new minimum */
    assert_int_equal(world_running(w), 1);
    in = fake_cloud_instances(w->fake, &count);
    assert_true(in[0].removed_us == 0);
    assert_true(holds(w, intent, newer));
    assert_true(view_has(w, CONTROL_INTENTS, in[0].intent));
    world_free(w);
}

/* Damaged memory of policies is replaced by empty memory; its bytes are kept aside for
 * inspection. */
static void damaged_memory_is_set_aside(void **state)
{
    (void)state;
    static const char damaged[] = "muster policy memory 1\ncut here";
    struct world *w = world_new(NULL);
    w->service.min = 1;
    world_run(w, 30); /* memory is written every ten seconds */
    assert_true(store_get(w->store, STR("memory/chat"), NULL, NULL, NULL) == 0);
    world_kill(w);
    put(w, "memory/chat", damaged);
    world_start(w);
    assert_true(control_is_degraded(w->control));
    assert_true(holds(w, "aside/memory/chat", damaged));
    assert_true(view_has(w, CONTROL_STATUS, "aside/memory/chat"));
    world_run(w, 30);
    assert_int_equal(world_running(w), 1);
    assert_false(holds(w, "memory/chat", damaged));
    world_free(w);
}

/* An unreadable override pauses its service until a person sets another. */
static void an_unreadable_order_pauses_its_service(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    w->service.min = 2;
    world_run(w, 20);
    world_kill(w);
    put(w, "hand/chat", "{\"v\":1,\"paused\":fal");
    w->service.min = 4;
    world_start(w);
    world_run(w, 20);
    assert_int_equal(world_running(w), 2);
    assert_true(view_has(w, CONTROL_STATUS, "hand/chat"));
    assert_int_equal(control_pause(w->control, STR("chat"), false, NULL), 0);
    world_run(w, 20);
    assert_int_equal(world_running(w), 4);
    world_kill(w);
    world_start(w);
    assert_false(control_is_degraded(w->control));
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
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0); /* counts once */
    usage.requests_total = 7;
    s.seq = 3;
    assert_int_equal(control_tenant_remove(c, STR("acme"), &err), 0);
    assert_int_equal(control_tenant_remove(c, STR("acme"), &err), -ENOENT);
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0);
    assert_int_equal(rules.tenant_count, 1);
    s.boot = 10, s.seq = 1, usage.requests_total = 2; /* the router restarted */
    assert_int_equal(control_sync(c, &s, w->now, &arena, &rules, &err), 0);

    world_run(w, 40); /* usage is written meanwhile */
    world_kill(w);
    world_run(w, 5);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_TENANTS, w->now, &text), 0);
    assert_non_null(strstr(text.data, "\"beta\""));
    assert_null(strstr(text.data, "\"acme\""));
    assert_non_null(strstr(text.data, "\"requests_total\":9"));
    assert_non_null(strstr(text.data, "\"generated_tokens_total\":140"));
    assert_null(strstr(text.data, key)); /* keys are stored nowhere */
    world_free(w);
}

static int take_cost(void *ctx, struct str tenant)
{
    double **next = ctx;
    return json_path_f64(tenant, "cost_today", (*next)++);
}

/* A service's cost is shared out by the tokens that it computed, whatever else its tenants had computed elsewhere. */
static void a_services_cost_is_its_tenants(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    CLEANUP(arena_fini) struct arena arena;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct err err;
    char key[TENANT_KEY_BYTES];
    struct tenant_limits limits = { 0 };
    struct router_rules rules;
    arena_init(&arena, SYNC_BYTES_MAX);
    world_second(w);
    assert_int_equal(control_tenant_add(w->control, STR("acme"), &limits, w->now, key, &err), 0);
    assert_int_equal(control_tenant_add(w->control, STR("beta"), &limits, w->now, key, &err), 0);
    assert_int_equal(control_scale(w->control, STR("chat"), STR("small"), 2, NULL), 0);
    world_run(w, 600);
    struct tenant_work of_acme[] = { { STR("chat"), 0 }, { STR("another"), 0 } };
    struct tenant_work of_beta[] = { { STR("chat"), 0 } };
    struct tenant_usage usage[] = { { .tenant = STR("acme"), .work = of_acme, .work_count = 2 },
                                    { .tenant = STR("beta"), .work = of_beta, .work_count = 1 } };
    struct router_sync s = { .router = STR("r1"), .boot = 9, .usage = usage, .usage_count = 2 };
    for (s.seq = 1; s.seq <= 3; s.seq++) { /* the first only says where the counters stand */
        arena_reset(&arena);
        assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, &err), 0);
        of_acme[0].computed_tokens_total += 3000000;
        of_acme[1].computed_tokens_total += 8000000;
        of_beta[0].computed_tokens_total += 1000000;
        usage[0].requests_total++, usage[0].generated_tokens_total += 11000000;
        usage[1].requests_total++, usage[1].generated_tokens_total += 1000000;
    }
    for (int restarted = 0; restarted < 2; restarted++) {
        double spent = control_spent(w->control, 0, NULL).day, cost[2] = { 0 }, *next = cost;
        buf_clear(&text);
        assert_int_equal(control_view(w->control, CONTROL_TENANTS, w->now, &text), 0);
        assert_int_equal(json_path_each(buf_view(&text), "tenants", take_cost, &next), 0);
        assert_true(spent > 0 && fabs(cost[0] - 0.75 * spent) < 1e-6 * spent &&
                    fabs(cost[1] - 0.25 * spent) < 1e-6 * spent);
        assert_non_null(
            strstr(text.data, "\"services\":[{\"service\":\"chat\",\"mtokens_this_month\":6"));
        if (restarted) break;
        world_run(w, 40); /* usage is written meanwhile */
        world_kill(w);
        world_run(w, 5);
    }
    world_free(w);
}

static void tokens_outlive_the_controller_as_digests(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    char token[TOKEN_TEXT_BYTES], other[TOKEN_TEXT_BYTES];
    enum token_role role = TOKEN_READ;
    struct err err;
    world_second(w);
    assert_int_equal(control_token_add(w->control, STR("ann"), TOKEN_ADMIN, w->now, token, &err),
                     0);
    assert_int_equal(control_token_add(w->control, STR("bob"), TOKEN_READ, w->now, other, &err), 0);
    world_kill(w);
    world_run(w, 5);
    assert_non_null(control_token_find(w->control, str_from(token), &role));
    assert_int_equal(role, TOKEN_ADMIN);
    assert_non_null(control_token_find(w->control, str_from(other), &role));
    assert_int_equal(role, TOKEN_READ);
    assert_null(control_token_find(w->control, STR("muster-admin-0"), &role));
    assert_null(control_token_find(w->control, (struct str){ 0 }, &role));
    CLEANUP(buf_fini) struct buf kept = { 0 };
    assert_int_equal(store_get(w->store, STR("token/ann"), &kept, NULL, NULL), 0);
    assert_null(strstr(kept.data, token));
    /* Routers receive the digests. */
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct router_sync s = { .router = STR("r1"), .boot = 9, .seq = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, &err), 0);
    assert_int_equal(rules.token_count, 2);
    assert_int_equal(control_token_remove(w->control, STR("ann"), &err), 0);
    assert_null(control_token_find(w->control, str_from(token), &role));
    world_free(w);
}

/* The service requires keys from its first tenant on; only a person opens it again. */
static void keys_stay_required(void **state)
{
    (void)state;
    struct world *w = world_new(NULL);
    char key[TENANT_KEY_BYTES];
    struct err err;
    struct tenant_limits limits = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct router_sync s = { .router = STR("r1"), .boot = 9, .seq = 1 };
    struct router_rules rules;
    arena_init(&arena, SYNC_BYTES_MAX);
    world_second(w);
    assert_int_equal(control_tenant_add(w->control, STR("a"), &limits, w->now, key, &err), 0);
    assert_int_equal(control_keys_open(w->control, &err), -EEXIST);
    assert_int_equal(control_tenant_remove(w->control, STR("a"), &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, &err), 0);
        assert_true(rules.keys_required && !rules.keys_opened);
        world_kill(w);
        world_run(w, 5);
    }
    assert_int_equal(control_keys_open(w->control, &err), 0);
    world_kill(w);
    world_run(w, 5);
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, &err), 0);
    assert_true(!rules.keys_required && rules.keys_opened);
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
        cmocka_unit_test(a_list_is_incomplete_until_everybody_was_heard),
        cmocka_unit_test(unreadable_records_stop_nothing_else),
        cmocka_unit_test(damaged_memory_is_set_aside),
        cmocka_unit_test(an_unreadable_order_pauses_its_service),
        cmocka_unit_test(tenants_come_and_go),
        cmocka_unit_test(a_services_cost_is_its_tenants),
        cmocka_unit_test(tokens_outlive_the_controller_as_digests),
        cmocka_unit_test(keys_stay_required),
        cmocka_unit_test(every_view_is_json),
        cmocka_unit_test(tombstones_are_bounded_and_cost_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

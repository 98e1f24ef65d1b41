/* t_observe.c - tests how reports of agents and routers reach scaling policies. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/control_state.h"
#include "policies/scale/scale.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Returns a world whose pool "small" has one registered instance. */
static struct world *world_with_one(const struct scale_policy *policy)
{
    struct world *w = world_new(&(struct fake_config){ .boot_us = SECOND });
    w->service.policy = policy;
    w->service.shaper = &scale_shape_none;
    w->service.pool[0].min = 1;
    world_run(w, 12);
    assert_int_equal(world_running(w), 1);
    return w;
}

/* Lets the agent of the only instance report `engine`. */
static void say(struct world *w, const struct engine_report *engine)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    assert_int_equal(count, 1);
    struct agent_report r = { .instance = str_from(in[0].intent),
                              .intent = str_from(in[0].intent),
                              .boot = 1,
                              .seq = ++w->agent[0].seq,
                              .state = AGENT_UP,
                              .has_engine = true,
                              .engine = *engine };
    struct agent_reply reply;
    control_report(w->control, &r, w->now, &reply);
    assert_true(reply.known);
}

#define ENGINE_WORD                                                                              \
    {                                                                                            \
        .host = STR("127.0.0.1"), .port = 8200, .health = ENGINE_READY, .model = STR("chat"),    \
        .running = 3, .waiting = 2, .running_max = 16, .step_tokens = 64, .page_tokens = 16,     \
        .pages_total = 1000, .pages_free = 700, .pages_cached = 100, .has_perf = true, .perf = { \
            .step_s = 0.01,                                                                      \
            .prefill_token_s = 0.0005,                                                           \
            .decode_seq_s = 0.001,                                                               \
            .samples = 50,                                                                       \
            .ratio_p90 = 1.2                                                                     \
        }                                                                                        \
    }

static const struct scale_instance *seen(struct world *w)
{
    static struct plan_view view;
    control_build_view(w->control, w->now, &view);
    assert_int_equal(view.instance_count, 1);
    return &view.instance[0].load;
}

static void services_say(struct world *w, const char *what)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(w->control, CONTROL_SERVICES, w->now, &text), 0);
    if (!strstr(text.data, what)) fail_msg("no '%s' in %s", what, text.data);
}

static void what_engines_owe_is_seen(void **state)
{
    (void)state;
    struct world *w = world_with_one(&scale_token_aware);
    struct engine_report e = ENGINE_WORD;
    say(w, &e);
    assert_false(seen(w)->prefill_known); /* absent is not zero */
    services_say(w, "\"policy_lacks\":\"the prompt tokens that instances have not computed\"");

    e.has_owed = true;
    say(w, &e);
    assert_true(seen(w)->prefill_known && seen(w)->prefill_tokens == 0);
    e.owed.prompt_tokens = 7000;
    say(w, &e);
    const struct scale_instance *in = seen(w);
    assert_true(in->prefill_known);
    assert_int_equal(in->prefill_tokens, 7000);
    assert_int_equal(in->running, 3);
    assert_int_equal(in->waiting, 2);
    assert_int_equal(in->kv_tokens, 200 * 16);
    assert_int_equal(in->kv_tokens_max, 1000 * 16);
    services_say(w, "\"policy_lacks\":null");
    struct plan_view view;
    control_build_view(w->control, w->now, &view);
    assert_int_equal(view.instance[0].step_tokens, 64);
    world_free(w);
}

/* 7,000 tokens at 0.5 ms are 3.5 s of prefill where 1.5 s may wait: three instances. An engine that
 * does not report its tokens changes nothing. */
static void the_rows_that_read_it_act_on_it(void **state)
{
    (void)state;
    static const struct {
        const struct scale_policy *policy;
        uint64_t owed;
        bool grows;
        const char *why;
    } rows[] = {
        { &scale_token_aware, 7000, true, "prompts in line" },
        { &scale_token_aware, 700, false, "few prompts in line" },
        { &scale_dynamo_load, 7000, true, "every engine misses the SLO" },
        { &scale_dynamo_load, 700, false, "no engine misses it" },
        { &scale_blitzscale, 7000, true, "below the lower bound" },
        { &scale_blitzscale, 700, false, "within the bounds" },
    };
    for (size_t i = 0; i < COUNT_OF(rows) * 2; i++) {
        bool said = i < COUNT_OF(rows);
        size_t k = i % COUNT_OF(rows);
        struct world *w = world_with_one(rows[k].policy);
        struct engine_report e = ENGINE_WORD;
        e.has_owed = said;
        e.owed.prompt_tokens = said ? rows[k].owed : 0;
        w->rate = 1;
        w->engine = &e;
        world_run(w, 20); /* token_aware is asked every 15 s */
        bool grew = world_running(w) > 1;
        if (grew != (said && rows[k].grows))
            fail_msg("%s, %s, %s: %u run", rows[k].policy->name, rows[k].why,
                     said ? "said" : "unsaid", world_running(w));
        world_free(w);
    }
}

/* Makes lengths of `count` equal requests of (prompt, output), as one router reports them. */
static void tell_lengths(uint32_t count, double prompt, double output, double age_s, uint32_t place,
                         struct lengths *ret)
{
    *ret = (struct lengths){ .count = count,
                             .age_s = age_s,
                             .prompt = prompt,
                             .output = output,
                             .prompt_sq = prompt * prompt,
                             .output_sq = output * output,
                             .cross = prompt * output };
    ret->bin[place / LENGTH_BINS][place % LENGTH_BINS] = (float)count;
}

static struct str reach; /* where the next router that syncs may be dialled */

static void sync_router(struct world *w, const char *name, struct service_demand *d)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct router_sync out = { .router = str_from(name),
                               .boot = 5,
                               .seq = ++w->router_seq,
                               .window_s = 15,
                               .reach = reach,
                               .services = d,
                               .service_count = 1 };
    struct router_sync in;
    struct router_rules rules;
    struct err err = { 0 };
    assert_int_equal(router_sync_encode(&out, &text), 0);
    if (router_sync_decode(buf_view(&text), &arena, &in, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(control_sync(w->control, &in, w->now, &arena, &rules, NULL), 0);
}

static const struct scale_demand *demand_seen(struct world *w)
{
    static struct plan_view view;
    control_sum_demand(w->control, w->now);
    control_build_view(w->control, w->now, &view);
    return &view.demand[0].sum;
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

/* An agent whose engine is reached by tunnel is told where the routers are that may be dialled; others are not. */
static void agents_hear_of_routers(void **state)
{
    (void)state;
    struct world *w = world_with_one(&scale_work);
    struct service_demand d = { .service = STR("chat") };
    struct engine_report engine = ENGINE_WORD;
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    sync_router(w, "r1", &d);
    reach = STR("https://r2.example:8443");
    sync_router(w, "r2", &d);
    reach = (struct str){ 0 };
    for (int tunnelled = 0; tunnelled < 2; tunnelled++) {
        struct agent_report r = { .instance = str_from(in[0].intent),
                                  .intent = str_from(in[0].intent),
                                  .boot = 1,
                                  .seq = ++w->agent[0].seq,
                                  .state = AGENT_UP,
                                  .has_engine = true,
                                  .engine = engine };
        struct agent_reply reply;
        if (tunnelled) r.engine.host = STR("tunnel:i-1");
        control_report(w->control, &r, w->now, &reply);
        assert_int_equal(reply.router_count, tunnelled);
        if (tunnelled) assert_true(str_eq(reply.routers[0], STR("https://r2.example:8443")));
    }
    world_free(w);
}

static void lengths_of_two_routers_are_joined(void **state)
{
    (void)state;
    struct world *w = world_with_one(&scale_work);
    w->now += DEMAND_FRESH_US + SECOND; /* the world's own router is stale and does not count */
    assert_false(demand_seen(w)->present);
    struct service_demand a = { .service = STR("chat"), .has_expected = true, .has_queued = true };
    struct service_demand b = { .service = STR("chat"), .has_expected = true };
    tell_lengths(30, 100, 40, 1, 2 * LENGTH_BINS + 1, &a.expected);
    tell_lengths(4, 5000, 10, 0, 8 * LENGTH_BINS, &a.queued);
    tell_lengths(10, 2000, 600, 3, 6 * LENGTH_BINS + 5, &b.expected);
    sync_router(w, "r1", &a);
    w->now += SECOND;
    sync_router(w, "r2", &b);
    const struct scale_demand *d = demand_seen(w);
    assert_true(d->present && is_near(d->age_s, 1));
    assert_true(is_near(d->expected.count, 40) && is_near(d->expected.age_s, 2));
    assert_true(is_near(d->expected.prompt, (30 * 100 + 10 * 2000) / 40.0));
    assert_true(is_near(d->expected.output, (30 * 40 + 10 * 600) / 40.0));
    assert_true(is_near(d->expected.cross, (30 * 4000 + 10 * 1.2e6) / 40.0));
    assert_true(is_near(d->expected.prompt_sq, (30 * 1e4 + 10 * 4e6) / 40.0));
    assert_true(is_near(d->expected.bin[2][1], 30) && is_near(d->expected.bin[6][5], 10));
    assert_true(is_near(d->queued.count, 4) && is_near(d->queued.prompt, 5000));
    assert_true(is_near(d->queued.bin[8][0], 4) && is_near(d->queued.age_s, 1));
    services_say(w, "\"expected\":{\"count\":40,");
    services_say(w, "\"queued\":{\"count\":4,");

    a.held = 40; /* the decision records its inputs */
    a.arrival_per_s = 50;
    sync_router(w, "r1", &a);
    assert_int_equal(control_tick(w->control, w->now), 0);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_decisions(w->control, 1, 100, &text, NULL), 0);
    buf_byte(&text, 0);
    assert_non_null(
        strstr(text.data, "\"expected\":{\"count\":40,\"age_s\":1,\"prompt_tokens_mean\":575,"));
    assert_non_null(
        strstr(text.data, "\"queued\":{\"count\":4,\"age_s\":0,\"prompt_tokens_mean\":5000,"));
    a.has_queued = false; /* nothing is queued: absent */
    sync_router(w, "r1", &a);
    d = demand_seen(w);
    assert_true(is_near(d->expected.count, 40) && d->queued.count <= 0);
    services_say(w, "\"queued\":null");
    w->now += DEMAND_FRESH_US + 1; /* silent routers do not count */
    d = demand_seen(w);
    assert_true(!d->present && d->expected.count <= 0);
    world_free(w);
}

static bool remembers(const struct world *w)
{
    static const struct plan_memory none;
    return memcmp(&w->control->desired.memory[0], &none, sizeof none) != 0;
}

static void start_again(struct world *w)
{
    world_kill(w);
    world_start(w);
}

/* The memory of policies is structs, with pools by number: it is restored for the same policies,
 * shaper and pools, and dropped for any others. */
static void memory_is_of_its_rows_and_pools(void **state)
{
    (void)state;
    struct world *w = world_with_one(&scale_kpa);
    w->service.shaper = &scale_shape_hpa;
    start_again(w);
    world_run(w, 30);
    struct plan_memory before = w->control->desired.memory[0];
    start_again(w);
    assert_true(remembers(w));
    world_run(w, 30);
    start_again(w);
    assert_true(remembers(w));
    assert_memory_not_equal(&before, &w->control->desired.memory[0], sizeof before);

    w->service.policy = &scale_work;
    start_again(w);
    assert_false(remembers(w));
    w->service.policy = &scale_kpa;
    start_again(w);
    assert_true(remembers(w));
    w->service.shaper = &scale_shape_window;
    start_again(w);
    assert_false(remembers(w));
    w->service.shaper = &scale_shape_hpa;
    struct plan_pool first = w->service.pool[0];
    w->service.pool[0] = w->service.pool[1];
    w->service.pool[1] = first;
    start_again(w);
    assert_false(remembers(w));
    world_free(w);
}

/* Lets the agent of instance `at` say that it has given its engine up. */
static void give_up(struct world *w, uint32_t at, const char *trouble)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    assert_true(at < count);
    struct agent_report r = { .instance = str_from(in[at].intent),
                              .intent = str_from(in[at].intent),
                              .boot = 1,
                              .seq = ++w->agent[at].seq,
                              .state = AGENT_STOPPED,
                              .trouble = str_from(trouble) };
    struct agent_reply reply;
    control_report(w->control, &r, w->now, &reply);
}

static const char *offer_text(const struct world *w, const char *name)
{
    uint32_t at = control_find_offer(w->control, "fake", name);
    assert_int_not_equal(at, PLAN_NONE);
    return w->control->money.health[at].text;
}

static void an_engine_that_never_starts_counts_against_its_offer(void **state)
{
    (void)state;
    struct world *w = world_new(&(struct fake_config){ .boot_us = SECOND });
    w->service.pool[0].min = 1;
    w->agents_silent = true; /* the test speaks for them */
    for (int i = 0; i < 60 && world_made(w) == 0; i++)
        world_second(w);
    assert_int_equal(world_made(w), 1);
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    char first[NAME_BYTES];
    snprintf(first, sizeof first, "%s", in[0].offer);
    world_run(w, 3);
    give_up(w, 0, "the engine ended by signal 9: the memory limit was reached");
    for (int i = 0; i < 60 && world_made(w) == 1; i++)
        world_second(w);
    assert_int_equal(world_made(w), 2);
    in = fake_cloud_instances(w->fake, &count);
    assert_string_not_equal(in[1].offer, first);
    assert_string_equal(offer_text(w, first),
                        "the engine ended by signal 9: the memory limit was reached");
    world_free(w);
}

static void an_engine_that_dies_later_does_not(void **state)
{
    (void)state;
    struct world *w = world_with_one(&scale_work);
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    char first[NAME_BYTES];
    snprintf(first, sizeof first, "%s", in[0].offer);
    give_up(w, 0, "the engine ended by signal 6");
    world_run(w, 12);
    assert_string_equal(offer_text(w, first), "");
    assert_true(world_running(w) >= 1);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_engines_owe_is_seen),
        cmocka_unit_test(the_rows_that_read_it_act_on_it),
        cmocka_unit_test(lengths_of_two_routers_are_joined),
        cmocka_unit_test(agents_hear_of_routers),
        cmocka_unit_test(memory_is_of_its_rows_and_pools),
        cmocka_unit_test(an_engine_that_never_starts_counts_against_its_offer),
        cmocka_unit_test(an_engine_that_dies_later_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

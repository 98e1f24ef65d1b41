/* t_roles.c - tests prefill and decode roles: pinned by pools, given by role policies, and reported
 * to routers, people and the log. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/control_state.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* About an A100 with a 13B model, which role policies disaggregate at an SLO of 2 s and 100 ms. */
static const struct engine_report engine = {
    .host = { "127.0.0.1", 9 },
    .port = 8200,
    .health = ENGINE_READY,
    .model = { "chat", 4 },
    .running_max = 256,
    .step_tokens = 2048,
    .context_tokens = 8192,
    .kv_token_bytes = 819200,
    .page_tokens = 16,
    .pages_total = 12500,
    .pages_free = 12500,
    .has_perf = true,
    .perf = { .step_s = 0.016,
              .prefill_token_s = 1.1e-4,
              .decode_seq_s = 1e-4,
              .kv_read_s = 4.5e-7,
              .attend_s = 1e-8,
              .samples = 50 },
    .has_owed = true,
};

struct fleet {
    struct world *w;
    uint64_t seq, arrivals;
    bool demand;
    uint32_t of[ROLE_COUNT]; /* ready endpoints in the router's last reply, by role */
    uint32_t large[ROLE_COUNT];
    bool link_said;
    double link_bytes_s;
};

static struct fleet a_fleet(uint32_t small, uint32_t large)
{
    struct fleet f = { .w = malloc(sizeof *f.w), .demand = true };
    struct fake_config plain = { .boot_us = SECOND };
    must(f.w);
    world_init(f.w, &plain, 1);
    f.w->engine = &engine;
    f.w->service.pool[0].min = f.w->service.pool[0].max = small;
    f.w->service.pool[1].min = f.w->service.pool[1].max = large;
    f.w->service.kv_link_bytes_s = 25e9;
    return f;
}

static void fleet_free(struct fleet *f)
{
    world_fini(f->w);
    free(f->w);
}

/* Syncs a second router, which reports expected lengths and receives the roles. */
static void sync_router(struct fleet *f)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct service_demand d = { .service = STR("chat"),
                                .arrivals_total = f->arrivals++,
                                .arrival_per_s = 0.1,
                                .has_expected = f->demand,
                                .expected = { .count = 50,
                                              .age_s = 1,
                                              .prompt = 1000,
                                              .output = 200,
                                              .prompt_sq = 2e6,
                                              .output_sq = 7e4,
                                              .cross = 2e5,
                                              .bin = { { 50 } } } };
    struct router_sync s = { .router = STR("r1"),
                             .boot = 1,
                             .seq = ++f->seq,
                             .window_s = 5,
                             .services = &d,
                             .service_count = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(f->w->control, &s, f->w->now, &arena, &rules, NULL), 0);
    memset(f->of, 0, sizeof f->of);
    memset(f->large, 0, sizeof f->large);
    for (uint32_t i = 0; i < rules.endpoint_count; i++) {
        const struct endpoint *e = &rules.endpoints[i];
        if (e->state != ENDPOINT_READY) continue;
        f->of[e->role]++;
        if (str_eq(e->pool, STR("large"))) f->large[e->role]++;
    }
    assert_int_equal(rules.service_count, 1);
    f->link_said = rules.services[0].has_kv_link;
    f->link_bytes_s = rules.services[0].kv_link_bytes_s;
}

static void run(struct fleet *f, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        world_second(f->w);
        sync_router(f);
    }
}

static void want(const struct fleet *f, uint32_t both, uint32_t prefill, uint32_t decode,
                 const char *why)
{
    const uint32_t *of = f->of;
    if (of[ROLE_BOTH] == both && of[ROLE_PREFILL] == prefill && of[ROLE_DECODE] == decode) return;
    fail_msg("%s: %u both, %u prefill, %u decode", why, of[0], of[1], of[2]);
}

static void says(struct fleet *f, enum control_view view, const char *what)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(control_view(f->w->control, view, f->w->now, &text), 0);
    if (!strstr(text.data, what)) fail_msg("no '%s' in %s", what, text.data);
}

/* Returns how often the log of decisions has these words. */
static uint32_t kept(struct fleet *f, const char *what)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint32_t count = 0;
    assert_int_equal(control_decisions(f->w->control, 1, 1000, &text, NULL), 0);
    buf_byte(&text, 0);
    for (const char *at = text.data; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static double metric(struct fleet *f, const char *line)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    double v = -1;
    assert_int_equal(metrics_render(control_metrics(f->w->control), METRICS_CLASSIC, &text), 0);
    buf_byte(&text, 0);
    const char *at = strstr(text.data, line);
    if (at) v = strtod(at + strlen(line), NULL);
    return v;
}

static void what_pools_say_reaches_routers(void **state)
{
    (void)state;
    struct fleet f = a_fleet(1, 2);
    f.w->service.pool[0].role = ROLE_PREFILL;
    f.w->service.pool[1].role = ROLE_DECODE;
    run(&f, 12);
    want(&f, 0, 1, 2, "two pools");
    assert_int_equal(f.large[ROLE_DECODE], 2);
    assert_true(f.link_said && fabs(f.link_bytes_s - 25e9) < 1);
    says(&f, CONTROL_INSTANCES, "\"role\":\"prefill\"");
    says(&f, CONTROL_POOLS, "\"role\":\"decode\"");
    says(&f, CONTROL_SERVICES, "\"role\":null,\"role_reason\":\"roles as the pools have them\"");
    assert_true(metric(&f, "role_instances{service=\"chat\",role=\"decode\"} ") == 2);
    assert_true(metric(&f, "role_instances{service=\"chat\",role=\"both\"} ") == 0);
    fleet_free(&f);
}

/* The decode pool goes and comes back: meanwhile prefill instances serve whole requests, and the
 * log records both changes. */
static void one_phase_alone_serves_whole_requests(void **state)
{
    (void)state;
    struct fleet f = a_fleet(2, 1);
    f.w->service.pool[0].role = ROLE_PREFILL;
    f.w->service.pool[1].role = ROLE_DECODE;
    f.w->service.pool[1].min = 0;
    f.w->service.pool[1].max = 1;
    run(&f, 3);
    assert_int_equal(control_scale(f.w->control, STR("chat"), STR("large"), 1, NULL), 0);
    run(&f, 12);
    want(&f, 0, 2, 1, "both phases");
    const char *joined = "\"was\":\"prefill\",\"role\":\"both\"";
    const char *split = "\"was\":\"both\",\"role\":\"prefill\"";
    uint32_t before = kept(&f, joined), back = kept(&f, split);
    assert_int_equal(control_scale(f.w->control, STR("chat"), STR("large"), 0, NULL), 0);
    run(&f, 12);
    want(&f, 2, 0, 0, "nobody decodes");
    assert_int_equal(kept(&f, joined), before + 2);
    assert_true(kept(&f, "nobody is left for the other phase") > 0);
    assert_int_equal(control_scale(f.w->control, STR("chat"), STR("large"), 1, NULL), 0);
    run(&f, 12);
    want(&f, 0, 2, 1, "somebody decodes again");
    assert_int_equal(kept(&f, split), back + 2);
    assert_true(metric(&f, "role_changes_total{service=\"chat\",role=\"prefill\"} ") >= 2);
    fleet_free(&f);
}

static void a_row_gives_roles(void **state)
{
    (void)state;
    struct fleet f = a_fleet(0, 4);
    f.w->service.role = role_find(STR("distserve"));
    run(&f, 20);
    if (f.of[ROLE_BOTH] || !f.of[ROLE_PREFILL] || !f.of[ROLE_DECODE])
        want(&f, 0, 2, 2, "split, somehow");
    uint32_t prefill = f.of[ROLE_PREFILL];
    says(&f, CONTROL_SERVICES, "\"role\":\"distserve\",\"role_reason\":\"as many of each");
    says(&f, CONTROL_SERVICES, "\"role_goodput_rps\":");
    assert_true(kept(&f, "\"kind\":\"role\",\"policy\":\"distserve\"") > 0);
    assert_true(kept(&f, "\"kv_token_bytes\":819200") > 0);
    assert_true(kept(&f, "\"act\":\"role\",\"pool\":\"large\"") >= 4);
    assert_true(kept(&f, "\"kind\":\"scale\"") > 0);

    /* Roles are not durable: a new controller begins with the pools' roles until the policy has
     * decided. */
    world_kill(f.w);
    f.demand = false;
    run(&f, 3);
    want(&f, 4, 0, 0, "restarted, and no demand is known");
    f.demand = true;
    run(&f, 12);
    want(&f, 0, prefill, 4 - prefill, "the row has spoken again");
    fleet_free(&f);
}

/* A new instance gets its role within seconds, not at the policy's next time. */
static void who_comes_is_given_a_role(void **state)
{
    (void)state;
    struct fleet f = a_fleet(0, 2);
    f.w->service.pool[1].max = 4;
    f.w->service.role = role_find(STR("distserve")); /* decides every minute */
    run(&f, 20);
    want(&f, 0, 1, 1, "two");
    assert_int_equal(control_scale(f.w->control, STR("chat"), STR("large"), 4, NULL), 0);
    run(&f, 10);
    assert_int_equal(f.of[0] + f.of[1] + f.of[2], 4);
    assert_int_equal(f.of[ROLE_BOTH], 0);
    fleet_free(&f);
}

/* No role policy changes a role that a pool pins, whatever the policy would choose. */
static void what_a_pool_says_no_row_changes(void **state)
{
    (void)state;
    static const char *const rows[] = { "colocated", "distserve", "planner", "pd_serve" };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fleet f = a_fleet(1, 3);
        f.w->service.pool[0].role = ROLE_DECODE;
        f.w->service.role = role_find(str_from(rows[i]));
        run(&f, 30);
        uint32_t large = f.large[0] + f.large[1] + f.large[2];
        assert_int_equal(large, 3);
        if (f.of[ROLE_DECODE] != 1 + f.large[ROLE_DECODE]) fail_msg("%s", rows[i]);
        if (i == 0) want(&f, 3, 0, 1, "colocated");
        fleet_free(&f);
    }
}

/* The bytes of its K and V are unknown, so the engine takes part in no handoff. */
static void an_engine_that_does_not_say_serves_whole_requests(void **state)
{
    (void)state;
    struct engine_report mute = engine;
    mute.kv_token_bytes = 0;
    struct fleet f = a_fleet(0, 3);
    f.w->engine = &mute;
    f.w->service.role = role_find(STR("pd_serve"));
    run(&f, 25);
    want(&f, 3, 0, 0, "the row would part them");
    says(&f, CONTROL_SERVICES, "no engine says what K and V of a token weigh");
    assert_int_equal(kept(&f, "\"kind\":\"role\""), 0);
    fleet_free(&f);

    f = a_fleet(1, 1);
    f.w->engine = &mute;
    f.w->service.pool[0].role = ROLE_PREFILL;
    f.w->service.pool[1].role = ROLE_DECODE;
    run(&f, 15);
    want(&f, 2, 0, 0, "nor do the pools");
    fleet_free(&f);
}

/* An instance without measured speed counts as fast as another of its offer, or as the offer's
 * prior; without either it gets no role. */
static void speeds_are_lent_within_an_offer(void **state)
{
    (void)state;
    struct engine_report idle = engine;
    idle.has_perf = false;
    struct fleet f = a_fleet(0, 4);
    f.w->engine = &idle;
    f.w->service.role = role_find(STR("distserve"));
    world_second(f.w);
    f.w->control->money.offer[2].has_prior = false;
    run(&f, 20);
    want(&f, 4, 0, 0, "its speed is not known");

    struct control *c = f.w->control;
    c->observed.seen[2].has_perf = true;
    c->observed.seen[2].perf = (struct perf_coef){ .step_s = 0.016,
                                                   .prefill_token_s = 1.1e-4,
                                                   .decode_seq_s = 1e-4,
                                                   .kv_read_s = 4.5e-7,
                                                   .attend_s = 1e-8 };
    c->observed.roles[0].look.again_us = 0;
    control_give_roles(c, f.w->now);
    sync_router(&f);
    assert_int_equal(f.of[ROLE_BOTH], 0); /* one has a speed; the others are taken to equal it */
    assert_true(f.of[ROLE_PREFILL] > 0 && f.of[ROLE_DECODE] > 0);
    assert_false(c->observed.seen[0].has_perf);
    fleet_free(&f);

    f = a_fleet(0, 4);
    f.w->engine = &idle;
    f.w->service.role = role_find(STR("distserve"));
    run(&f, 20);
    assert_int_equal(f.of[ROLE_BOTH], 0); /* by the offer's prior */
    fleet_free(&f);
}

/* Without a role policy nothing is decided and nothing changes. */
static void nobody_asks_for_roles(void **state)
{
    (void)state;
    struct fleet f = a_fleet(1, 2);
    f.w->service.kv_link_bytes_s = 0;
    run(&f, 20);
    want(&f, 3, 0, 0, "no role anywhere");
    assert_true(f.link_said && f.link_bytes_s == 0); /* no KV is copied, and routers know that */
    assert_int_equal(kept(&f, "\"kind\":\"role\""), 0);
    fleet_free(&f);
}

/* Policies know instances by numbers, which are reused but never shared by two at once. */
static void role_ids_are_of_one_instance(void **state)
{
    (void)state;
    struct fleet f = a_fleet(0, 0);
    f.w->service.pool[1].max = 6;
    run(&f, 3);
    for (int round = 0; round < 6; round++) {
        int32_t count = round % 2 ? 2 : 6;
        assert_int_equal(control_scale(f.w->control, STR("chat"), STR("large"), count, NULL), 0);
        run(&f, 15);
        bool taken[SLOTS_MAX] = { false };
        for (uint32_t at = 0; at < f.w->control->money.count; at++) {
            uint32_t id = f.w->control->observed.detail[at].role_id;
            assert_true(id < f.w->control->money.count && !taken[id]);
            taken[id] = true;
        }
    }
    fleet_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_pools_say_reaches_routers),
        cmocka_unit_test(one_phase_alone_serves_whole_requests),
        cmocka_unit_test(a_row_gives_roles),
        cmocka_unit_test(who_comes_is_given_a_role),
        cmocka_unit_test(what_a_pool_says_no_row_changes),
        cmocka_unit_test(an_engine_that_does_not_say_serves_whole_requests),
        cmocka_unit_test(speeds_are_lent_within_an_offer),
        cmocka_unit_test(nobody_asks_for_roles),
        cmocka_unit_test(role_ids_are_of_one_instance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

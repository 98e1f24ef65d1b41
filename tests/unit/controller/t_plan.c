/* t_plan.c - tests plans for small fleets, and the memory of policies between plans. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "controller/core/plan_view.h"
#include "controller/core/record.h"
#include "controller/core/stock.h"
#include "policies/place/place.h"
#include "policies/scale/scale.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how many instances, and when: plans known in advance, and random ones against rules ---- */

static void a_held_request_starts_one(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_LAUNCH);
    assert_non_null(d->reason);
    assert_true(d->cost_h_after > d->cost_h);
    free(s);
}

static void growth_is_at_once_and_counts_what_starts(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_add(s, 0, PHASE_READY);
    scene_busy(s, 20);
    scene_decide(s);
    uint32_t launched = scene_count(s, PLAN_LAUNCH);
    assert_true(launched >= 2);
    /* The same demand, with those launches under way, needs nothing more. */
    for (uint32_t i = 0; i < launched; i++)
        scene_add(s, s->plan.action[i].pool, PHASE_STARTING);
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    free(s);
}

static void shrink_waits_and_drains_the_least_valuable(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    for (int i = 0; i < 4; i++)
        scene_add(s, 0, PHASE_READY);
    s->instance[0].in_flight = 3;
    s->instance[1].in_flight = 1, s->instance[1].pages_cached = 5;
    s->instance[2].in_flight = 1, s->instance[2].pages_cached = 2, s->instance[2].price_h = 2;
    s->instance[3].in_flight = 1, s->instance[3].pages_cached = 2;
    s->service.shape.down_step_max = 1;
    scene_busy(s, 0.1);
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    const struct plan_decision *d = scene_decide_after_window(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_DRAIN);
    assert_int_equal(s->plan.action[0].instance, 2); /* least cache, then dearest */
    assert_true(d->cost_h_after < d->cost_h);
    free(s);
}

static void launches_are_cancelled_before_drains(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_add(s, 0, PHASE_READY);
    scene_add(s, 0, PHASE_STARTING);
    scene_busy(s, 0.1);
    scene_decide_after_window(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_CANCEL);
    assert_int_equal(s->plan.action[0].instance, 1);
    free(s);
}

static void a_drain_is_withdrawn_before_another_is_bought(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_add(s, 0, PHASE_DRAINING)->pages_cached = 1;
    scene_add(s, 0, PHASE_DRAINING)->pages_cached = 9;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_KEEP);
    assert_int_equal(s->plan.action[0].instance, 1);
    free(s);
}

static void what_the_provider_takes_is_not_kept(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_add(s, 0, PHASE_DRAINING)->doomed = true;
    s->demand.sum.held = 1;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_KEEP), 0);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 1);
    free(s);
}

/* A failing machine's instance serves until another does in its place; nothing is bought twice, and where nothing can
 * be bought it goes on. */
static void what_fails_is_replaced_first(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool[0].manual = 2;
    scene_add(s, 0, PHASE_READY)->failing = true;
    scene_add(s, 0, PHASE_READY);
    plan_pick_failing(s->instance, 2);
    for (uint32_t o = 0; o < 3; o++)
        offer_answered(&s->health[o], OFFER_CAPACITY, NULL, s->now);
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    assert_non_null(d->blocked);
    for (uint32_t o = 0; o < 3; o++)
        offer_answered(&s->health[o], OFFER_OK, NULL, s->now);
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_LAUNCH);
    struct plan_instance *new = scene_add(s, 0, PHASE_STARTING);
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    new->phase = PHASE_READY;
    s->service.paused = true;
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    s->service.paused = false;
    s->demand.all_fresh = false; /* nothing goes down unseen */
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    s->demand.all_fresh = true;
    d = scene_decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_DRAIN);
    assert_int_equal(s->plan.action[0].instance, 0);
    assert_non_null(strstr(s->plan.action[0].why, "failing"));
    assert_true(d->cost_h_after < d->cost_h);
    free(s);
}

/* Its price counts while it serves: a budget that is full keeps it. */
static void a_full_budget_keeps_what_fails(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    struct plan_instance *in = scene_add(s, 0, PHASE_READY);
    s->service.pool[0].manual = 1;
    in->failing = true;
    plan_pick_failing(in, 1);
    s->service.budget_h = in->price_h;
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    assert_string_equal(d->blocked, PLAN_BLOCKED_BUDGET);
    free(s);
}

static void a_wave_of_failures_is_replaced_by_parts(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    for (int i = 0; i < 10; i++)
        scene_add(s, 0, PHASE_READY)->failing = true;
    scene_add(s, 1, PHASE_READY)->failing = true; /* another pool */
    plan_pick_failing(s->instance, 11);
    uint32_t left[2] = { 0 };
    for (int i = 0; i < 11; i++) {
        left[s->instance[i].pool] += s->instance[i].failing;
        assert_true(s->instance[i].failing == s->instance[i].at_risk);
    }
    assert_int_equal(left[0], 2);
    assert_int_equal(left[1], 1);
    free(s);
}

struct zero_row {
    bool routers_fresh, present;
    uint32_t held, in_flight, stale;
    double idle_s;
    uint32_t drains;
    const char *why;
};

/* Another is launched first, and takes its place; then the one at risk goes, though it has the most work. */
static void one_at_risk_is_replaced_and_goes_then(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool[0].min = s->service.pool[0].max = 2;
    struct plan_instance *risk = scene_add(s, 0, PHASE_READY);
    scene_add(s, 0, PHASE_READY);
    risk->at_risk = true;
    risk->in_flight = 9;
    scene_busy(s, 0.1);
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_LAUNCH);
    struct plan_instance *next = scene_add(s, 0, PHASE_STARTING);
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);

    next->phase = PHASE_READY;
    s->service.paused = true;
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    s->service.paused = false;
    s->demand.all_fresh = false; /* nothing goes down without proof */
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    s->demand.all_fresh = true;
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 1);
    assert_int_equal(s->plan.action[0].act, PLAN_DRAIN);
    assert_int_equal(s->plan.action[0].instance, 0);

    /* Its drain is not withdrawn: another is bought. */
    risk->phase = PHASE_DRAINING;
    next->phase = PHASE_ENDING;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 1);
    assert_int_equal(scene_count(s, PLAN_KEEP), 0);

    /* Where no offer can be had it serves on. */
    risk->phase = PHASE_READY;
    for (uint32_t o = 0; o < 3; o++)
        offer_answered(&s->health[o], OFFER_CAPACITY, NULL, s->now);
    scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    free(s);
}

static void zero_needs_proof(void **state)
{
    (void)state;
    static const struct zero_row rows[] = {
        { true, true, 0, 0, 0, 1e6, 1, "nobody asked for long" },
        { true, true, 0, 0, 0, 1, 0, "somebody asked just now" },
        { true, true, 0, 1, 0, 1e6, 0, "somebody is being served" },
        { true, true, 1, 0, 0, 1e6, 0, "somebody waits" },
        { false, true, 0, 0, 0, 1e6, 0, "one of the routers is silent" },
        { true, false, 0, 0, 0, 1e6, 0, "no router has spoken" },
        { true, true, 0, 0, 1, 1e6, 0, "the agent's report is stale" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct scene *s = scene_new();
        scene_add(s, 0, PHASE_READY)->fresh = !rows[i].stale;
        s->demand.all_fresh = rows[i].routers_fresh;
        s->demand.sum.present = rows[i].present;
        s->demand.sum.held = rows[i].held;
        s->demand.sum.in_flight = rows[i].in_flight;
        s->demand.sum.idle_s = rows[i].idle_s;
        scene_decide_after_window(s);
        if (scene_count(s, PLAN_DRAIN) != rows[i].drains || scene_count(s, PLAN_LAUNCH))
            fail_msg("%s: %u drains", rows[i].why, scene_count(s, PLAN_DRAIN));
        free(s);
    }
}

static void nine_fresh_reports_in_ten_are_enough(void **state)
{
    (void)state;
    for (uint32_t stale = 0; stale <= 2; stale++) {
        struct scene *s = scene_new();
        s->service.pool[0].max = s->service.max = 20;
        for (uint32_t i = 0; i < 10; i++)
            scene_add(s, 0, PHASE_READY)->fresh = i >= stale;
        scene_busy(s, 0.1);
        const struct plan_decision *d = scene_decide_after_window(s);
        assert_int_equal(d->fresh, 10 - stale);
        if (stale <= 1)
            assert_true(scene_count(s, PLAN_DRAIN) > 0);
        else
            assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
        if (stale == 2) assert_non_null(d->blocked);
        free(s);
    }
}

static void minimums_hold_without_demand(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool[1].min = 2;
    s->demand.sum.present = false;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 2);
    assert_int_equal(s->plan.action[0].pool, 1);

    s->service.pool[1].min = 0;
    s->service.min = 3;
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 3);
    assert_int_equal(d->target[0], 3); /* the cheaper pool */
    free(s);
}

static void the_services_maximum_holds(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.max = 2;
    scene_busy(s, 500);
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 2);
    assert_string_equal(d->blocked, "the service's maximum");
    free(s);
}

/* The window holds one pool up while the minimum asks for instances of the other. */
static void growth_waits_for_room_below_the_services_maximum(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.min = s->service.max = 2;
    for (int i = 0; i < 2; i++)
        scene_add(s, 1, PHASE_READY);
    for (int i = 0; i < 30; i++, s->now += SECOND) {
        const struct plan_decision *d = scene_decide(s);
        assert_true(d->target[0] + d->target[1] <= 2);
        if (scene_count(s, PLAN_DRAIN)) break;
        assert_int_equal(scene_count(s, PLAN_LAUNCH), 0);
    }
    assert_int_equal(scene_count(s, PLAN_DRAIN), 2); /* one pool replaces the other */
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 2);
    free(s);
}

static void hands_are_stronger_than_signals(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_add(s, 0, PHASE_READY);
    scene_busy(s, 500);
    s->service.paused = true;
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    assert_string_equal(d->reason, "paused by hand");

    s->service.paused = false;
    s->service.pool[0].manual = 3;
    s->service.pool[1].manual = 0;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 2);

    s->service.pool[0].manual = 0; /* down at once and without demand's proof: a person decided */
    s->demand.sum.present = false;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 1);

    s->service.pool[0].manual = 100; /* not beyond the maximum */
    d = scene_decide(s);
    assert_int_equal(d->target[0], 8);
    free(s);
}

static void what_is_configured_no_more_is_drained(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_add(s, 0, PHASE_READY)->service = PLAN_NONE;
    scene_add(s, 0, PHASE_STARTING)->pool = PLAN_NONE;
    scene_add(s, 0, PHASE_DRAINING)->pool = PLAN_NONE;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 1);
    assert_int_equal(scene_count(s, PLAN_CANCEL), 1);
    free(s);
}

static void learned_speed_replaces_the_prior(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    scene_busy(s, 4);
    struct plan_instance *in = scene_add(s, 0, PHASE_READY);
    scene_decide(s);
    uint32_t by_prior = s->plan.decision[0].target[0];
    in->has_perf = true;
    in->perf = s->offer[0].prior;
    in->perf.prefill_token_s /= 4, in->perf.decode_seq_s /= 4, in->perf.step_s /= 4;
    memset(&s->memory, 0, sizeof s->memory);
    scene_decide(s);
    assert_true(s->plan.decision[0].target[0] < by_prior);
    free(s);
}

static void actions_are_bounded(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool[0].max = s->service.pool[1].max = s->service.max = 200;
    s->service.min = 200;
    s->view.room = 1000;
    scene_decide(s);
    assert_int_equal(s->plan.action_count, PLAN_ACTIONS_MAX);
    assert_true(s->plan.dropped > 0);
    s->view.room = 5;
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 5);
    assert_non_null(d->blocked);
    free(s);
}

static void random_fleets_keep_the_rules(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 17);
    for (uint32_t round = 0; round < 3000; round++) {
        struct scene *s = scene_new();
        uint32_t n = (uint32_t)rng_below(&rng, 12);
        for (uint32_t i = 0; i < n; i++) {
            struct plan_instance *in = scene_add(s, (uint32_t)rng_below(&rng, 2),
                                                 (enum phase)rng_below(&rng, PHASE_COUNT));
            in->fresh = rng_below(&rng, 4) != 0;
            in->in_flight = (uint32_t)rng_below(&rng, 3);
            in->at_risk = rng_below(&rng, 6) == 0;
        }
        s->service.policy = scale_table[rng_below(&rng, scale_count)];
        s->service.pool[0].manual = rng_below(&rng, 5) ? -1 : (int32_t)rng_below(&rng, 4);
        s->service.budget_h = rng_below(&rng, 2) ? rng_f64(&rng) * 12 : 0;
        s->service.min = (uint32_t)rng_below(&rng, 3);
        s->demand.all_fresh = rng_below(&rng, 3) != 0;
        s->demand.sum.present = rng_below(&rng, 3) != 0;
        for (uint32_t o = 0; o < 3; o++)
            if (rng_below(&rng, 3) == 0)
                offer_answered(&s->health[o], OFFER_CAPACITY, NULL, s->now);
        scene_busy(s, rng_f64(&rng) * 30);

        double cost = 0;
        for (uint32_t i = 0; i < n; i++)
            cost += s->instance[i].price_h;
        for (int tick = 0; tick < 13; tick++, s->now += SECOND) {
            const struct plan_decision *d = scene_decide(s);
            bool hit[64] = { false };
            double bought = 0;
            for (uint32_t i = 0; i < s->plan.action_count; i++) {
                const struct plan_action *a = &s->plan.action[i];
                if (a->act == PLAN_LAUNCH) {
                    assert_true(offer_may_be_asked(&s->health[a->offer], s->now));
                    bought += s->offer[a->offer].price_h;
                    continue;
                }
                assert_false(hit[a->instance]); /* one action for each instance */
                hit[a->instance] = true;
                enum phase p = s->instance[a->instance].phase;
                assert_int_equal(p, a->act == PLAN_DRAIN    ? PHASE_READY
                                    : a->act == PLAN_CANCEL ? PHASE_STARTING
                                                            : PHASE_DRAINING);
                bool shrinks = a->act == PLAN_DRAIN || a->act == PLAN_CANCEL;
                bool by_hand = s->service.pool[a->pool].manual >= 0;
                if (shrinks && !by_hand)
                    assert_true(d->routers_fresh && d->fresh >= d->expected * PLAN_FRESH_SHARE);
            }
            if (s->service.budget_h > 0 && bought > 0)
                assert_true(cost + bought <= s->service.budget_h * (1 + 1e-6));
        }
        free(s);
    }
}

static int plan_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_request_starts_one),
        cmocka_unit_test(growth_is_at_once_and_counts_what_starts),
        cmocka_unit_test(shrink_waits_and_drains_the_least_valuable),
        cmocka_unit_test(launches_are_cancelled_before_drains),
        cmocka_unit_test(a_drain_is_withdrawn_before_another_is_bought),
        cmocka_unit_test(what_the_provider_takes_is_not_kept),
        cmocka_unit_test(one_at_risk_is_replaced_and_goes_then),
        cmocka_unit_test(what_fails_is_replaced_first),
        cmocka_unit_test(a_full_budget_keeps_what_fails),
        cmocka_unit_test(a_wave_of_failures_is_replaced_by_parts),
        cmocka_unit_test(zero_needs_proof),
        cmocka_unit_test(nine_fresh_reports_in_ten_are_enough),
        cmocka_unit_test(minimums_hold_without_demand),
        cmocka_unit_test(the_services_maximum_holds),
        cmocka_unit_test(growth_waits_for_room_below_the_services_maximum),
        cmocka_unit_test(hands_are_stronger_than_signals),
        cmocka_unit_test(what_is_configured_no_more_is_drained),
        cmocka_unit_test(learned_speed_replaces_the_prior),
        cmocka_unit_test(actions_are_bounded),
        cmocka_unit_test(random_fleets_keep_the_rules),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}

/* ---- the memory of policies survives restarts and releases; damaged memory is not used ---- */

static struct plan_service service(void)
{
    struct plan_service s = { .name = "chat",
                              .policy = scale_find(STR("work")),
                              .shaper = scale_shape_find(STR("window")),
                              .place = place_find(STR("spot")),
                              .pool_count = 2 };
    snprintf(s.pool[0].name, sizeof s.pool[0].name, "small");
    snprintf(s.pool[1].name, sizeof s.pool[1].name, "large");
    assert_true(s.policy && s.place);
    return s;
}

static struct plan_memory written, found;

static void fill(struct plan_memory *m)
{
    unsigned char *bytes = (unsigned char *)m;
    for (size_t i = 0; i < sizeof *m; i++)
        bytes[i] = (unsigned char)(i * 7 + 3);
}

/* This hash changes when a policy is added, removed or changes its state's size. Where a size or
 * the meaning of a member of an existing policy's state changed, POLICY_MEMORY_VERSION rises, and a
 * migration reads the former. */
#define SIZES_OF_VERSION_1 88399502u

static void the_version_is_of_these_sizes(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf sizes = { 0 };
    buf_printf(&sizes, "%zu", sizeof(struct plan_memory));
    for (uint32_t i = 0; i < scale_count; i++)
        buf_printf(&sizes, " %s:%u", scale_table[i]->name, scale_table[i]->state_size);
    for (uint32_t i = 0; i < scale_shape_count; i++)
        buf_printf(&sizes, " %s:%u", scale_shape_table[i]->name, scale_shape_table[i]->state_size);
    for (uint32_t i = 0; i < place_count; i++)
        buf_printf(&sizes, " %s:%u", place_table[i]->name, place_table[i]->state_size);
    uint32_t sum = (uint32_t)hash64(sizes.data, sizes.len, 0);
    if (sum != SIZES_OF_VERSION_1) fail_msg("%u: %s", sum, sizes.data);
}

static void what_was_written_is_found(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    fill(&written);
    memset(&found, 0, sizeof found);
    assert_int_equal(policy_memory_encode(&s, &written, &record), 0);
    assert_int_equal(policy_memory_decode(&s, buf_view(&record), &found), POLICY_MEMORY_GOOD);
    assert_memory_equal(&written, &found, sizeof found);
}

/* Memory of another policy, other pools, another order of pools or another version is ignored. */
static void what_is_of_another_is_left(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    fill(&written);
    memset(&found, 0, sizeof found);
    assert_int_equal(policy_memory_encode(&s, &written, &record), 0);
    struct plan_service others[3] = { s, s, s };
    others[0].policy = scale_find(STR("kpa"));
    assert_non_null(others[0].policy);
    others[1].pool_count = 1;
    memcpy(others[2].pool[0].name, "large", sizeof "large");
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(policy_memory_decode(&others[i], buf_view(&record), &found),
                         POLICY_MEMORY_OTHER);
    char *number = strchr(record.data, '\n') - 1;
    (*number)++;
    assert_int_equal(policy_memory_decode(&s, buf_view(&record), &found), POLICY_MEMORY_OTHER);
    static const char *const strangers[] = { "", "{\"v\":1}", "0.1.0 nonsense\n", "\n\n\n" };
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(policy_memory_decode(&s, str_from(strangers[i]), &found),
                         POLICY_MEMORY_OTHER);
    struct plan_memory nothing = { 0 };
    assert_memory_equal(&found, &nothing, sizeof found);
}

/* A changed byte behind the first line is detected, and so is a cut there. */
static void damage_is_seen(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    fill(&written);
    memset(&found, 0, sizeof found);
    assert_int_equal(policy_memory_encode(&s, &written, &record), 0);
    size_t from = (size_t)(strchr(record.data, '\n') - record.data) + 1;
    for (size_t at = from; at < record.len; at += at < from + 200 ? 1 : 997) {
        record.data[at] ^= 0x20;
        if (policy_memory_decode(&s, buf_view(&record), &found) != POLICY_MEMORY_DAMAGED)
            fail_msg("byte %zu", at);
        record.data[at] ^= 0x20;
        if (policy_memory_decode(&s, str_of(record.data, at), &found) != POLICY_MEMORY_DAMAGED)
            fail_msg("cut at %zu", at);
    }
    struct plan_memory nothing = { 0 };
    assert_memory_equal(&found, &nothing, sizeof found);
}

/* Release 0.1.0 wrote one line, then the bytes. */
static void records_of_before_format_1_are_read(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    fill(&written);
    buf_printf(&record, "0.1.0 %s:%u %s:%u %s:%u small large\n", s.policy->name,
               s.policy->state_size, s.shaper ? s.shaper->name : "",
               s.shaper ? s.shaper->state_size : 0, s.place->name, s.place->state_size);
    buf_append(&record, &written, sizeof written);
    memset(&found, 0, sizeof found);
    assert_int_equal(policy_memory_decode(&s, buf_view(&record), &found), POLICY_MEMORY_GOOD);
    assert_memory_equal(&written, &found, sizeof found);
    assert_int_equal(policy_memory_decode(&s, str_of(record.data, record.len - 1), &found),
                     POLICY_MEMORY_OTHER);
}

/* ---- a decision as a record: its JSON, and which decisions are news ---- */

static void records_are_json_and_only_news(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_busy(s, 20);
    s->demand.sum.age_s = 0.5;
    const struct plan_decision *d = scene_decide(s);
    double priced = 0; /* a pool's price is for instances to add: none exists, so for all */
    for (uint32_t p = 0; p < s->service.pool_count; p++) {
        assert_non_null(d->placed[p].reason);
        priced += d->placed[p].cost_h;
    }
    assert_true(priced > 0 && fabs(priced - (d->cost_h_after - d->cost_h)) < 1e-9);
    CLEANUP(buf_fini) struct buf text = { 0 };
    char launched[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { "i-new" };
    const char(*ids)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])launched;
    assert_int_equal(record_encode(&s->view, &s->plan, d, ids, 5, &text), 0);
    struct json_reader r;
    json_reader_init(&r, buf_view(&text));
    assert_int_equal(json_next(&r), JSON_OBJECT);
    assert_int_equal(json_skip_rest(&r), JSON_OBJECT_END);
    assert_int_equal(json_next(&r), JSON_END);
    static const char *const members[] = { "\"reason\":",
                                           "\"runner_up\":",
                                           "\"i-new\"",
                                           "\"cost_per_h_after\":",
                                           "\"arrivals_per_s\":20",
                                           "\"place\":\"joint\",\"placed\":[{\"pool\":\"",
                                           "\"short_share\":0}",
                                           "\"demand_age_s\":0.5" };
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (!strstr(text.data, members[i])) fail_msg("no %s in %s", members[i], text.data);

    /* One that is held back says what the offers said. */
    struct plan_decision held = *d;
    held.blocked = "no offer";
    s->health[0].last = OFFER_CAPACITY;
    snprintf(s->health[0].text, sizeof s->health[0].text, "no node for 8 s");
    buf_clear(&text);
    assert_int_equal(record_encode(&s->view, &s->plan, &held, ids, 5, &text), 0);
    assert_non_null(strstr(text.data, "\"error\":\"capacity\",\"why\":\"no node for 8 s\"}]"));

    struct record_last last = { 0 };
    assert_true(record_is_news(&last, d));
    struct plan_decision quiet = { .reason = d->reason };
    assert_false(record_is_news(&last, &quiet));
    quiet.blocked = "a";
    assert_true(record_is_news(&last, &quiet));
    assert_false(record_is_news(&last, &quiet));
    free(s);
}

static int policy_memory_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_is_of_these_sizes),
        cmocka_unit_test(what_was_written_is_found),
        cmocka_unit_test(what_is_of_another_is_left),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(records_of_before_format_1_are_read),
        cmocka_unit_test(records_are_json_and_only_news),
    };
    return cmocka_run_group_tests_name("policy_memory", tests, NULL, NULL);
}

/* ---- what is sold out, and what is paid for anyway ---- */

static uint32_t launched_at(const struct scene *s, uint32_t offer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->plan.action_count; i++)
        n += s->plan.action[i].act == PLAN_LAUNCH && s->plan.action[i].offer == offer;
    return n;
}

/* s1 costs 1 and s2 1.2: the dearer one is taken while the cheaper one is likely to refuse. */
static void what_is_likely_sold_out_comes_later(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    double sold_out[3] = { 0 };
    s->service.place = place_find(STR("on_demand"));
    s->service.pool_count = 1;
    s->view.sold_out = sold_out;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    scene_decide(s);
    assert_int_equal(launched_at(s, 0), 1);
    sold_out[0] = 1; /* it then costs what the dearest does, and the earlier offer wins a tie */
    s->offer[1].price_h = 1.1;
    s->service.pool[0].offer[2] = 2;
    s->service.pool[0].offer_count = 3;
    scene_decide(s);
    assert_int_equal(launched_at(s, 1), 1);
    CLEANUP(buf_fini) struct buf text = { 0 };
    char ids[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { { 0 } };
    const char(*launched)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])ids;
    assert_int_equal(record_encode(&s->view, &s->plan, &s->plan.decision[0], launched, 0, &text),
                     0);
    assert_non_null(strstr(text.data, "\"sold_out\":[{\"offer\":\"s1\",\"chance\":1"));
    free(s);
}

/* Two of l1, the dearest, are paid for: they come first, no budget is in their way, and the third is not free. */
static void what_is_reserved_is_used_first(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->offer[2].reserved = 2;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    s->service.budget_h = 0.5; /* nothing else can be had for it */
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(launched_at(s, 2), 1);
    assert_true(d->cost_h_after <= 0);
    s->service.pool[1].manual = 3;
    d = scene_decide(s);
    assert_int_equal(launched_at(s, 2), 2);
    assert_string_equal(d->blocked, PLAN_BLOCKED_BUDGET);
    s->service.budget_h = 2;
    d = scene_decide(s);
    assert_int_equal(launched_at(s, 2), 3);
    assert_true(fabs(d->cost_h_after - 1.9) < 1e-9);
    free(s);
}

/* A start that costs three dollars makes s1 the dearer one for an hour. */
static void what_a_start_pulls_is_priced(void **state)
{
    (void)state;
    static const char *const rows[] = { "joint", "on_demand" };
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct scene *s = scene_new();
        s->service.pool_count = 1;
        s->demand.sum.held = 1;
        s->demand.sum.idle_s = 0;
        s->service.place = place_find(str_from(rows[k]));
        s->offer[0].start_usd = 3;
        scene_decide(s);
        if (launched_at(s, 1) != 1) fail_msg("%s: %u at s1", rows[k], launched_at(s, 0));
        free(s);
    }
}

/* A policy that wants two of the large pool and none of the small one. */
static void wants_large(void *state, const struct scale_config *config,
                        const struct scale_view *view, int64_t now_us, struct rng *rng,
                        struct scale_verdict *ret)
{
    (void)state, (void)config, (void)view, (void)now_us, (void)rng;
    *ret = (struct scale_verdict){ .choice = { .want = { 0, 2 } },
                                   .estimate_s = -1,
                                   .reason = "test" };
}

/* Two instances of a pool are to be replaced by two of another, which is sold out at first. */
static void what_works_stays_until_its_replacement_is_ready(void **state)
{
    (void)state;
    static const struct scale_policy policy = { .name = "test", .decide = wants_large };
    struct scene *s = scene_new();
    s->service.policy = &policy;
    s->service.shape.down_window_s = 0;
    scene_busy(s, 1);
    for (int i = 0; i < 2; i++)
        scene_add(s, 0, PHASE_READY);
    for (int i = 0; i < 3; i++)
        s->offer[i].has_prior = false; /* as fast as each other */
    s->health[2].until_us = INT64_MAX; /* sold out */
    for (int k = 0; k < 20; k++, s->now += SECOND) {
        scene_decide(s);
        assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
    }
    s->health[2].until_us = 0;
    scene_decide(s);
    assert_int_equal(launched_at(s, 2), 2);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
    struct plan_instance *first = scene_add(s, 1, PHASE_STARTING);
    struct plan_instance *second = scene_add(s, 1, PHASE_STARTING);
    s->now += SECOND;
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
    assert_string_equal(d->blocked, "what would replace it is not ready yet");
    first->phase = PHASE_READY;
    s->now += SECOND;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 1);
    second->phase = PHASE_READY;
    s->now += SECOND;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 2);
    /* Where the budget has no room for both, what runs is not in the way. */
    s->view.instance_count = 2;
    s->service.budget_h = 2.5;
    s->now += SECOND;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 2);
    free(s);
}

/* ---- the memory of stock ---- */

static void stock_decays_and_learns(void **state)
{
    (void)state;
    struct stocks all = { 0 };
    struct offer o = { .name = "a", .provider = "p", .zone = "z", .hardware = "h100" }, other = o;
    snprintf(other.name, sizeof other.name, "b"); /* another pool's offer of the same */
    struct stock *s = stock_of(&all, &o);
    assert_ptr_equal(stock_of(&all, &other), s);
    other.spot = true;
    assert_ptr_not_equal(stock_of(&all, &other), s);
    int64_t now = 1000 * SECOND, hour = 3600 * SECOND;
    struct stock_seen seen = { 0 };
    assert_false(stock_observe(s, &seen, 0, now));
    assert_true(stock_out(s, now) <= 0); /* never refused: nothing is known against it */
    seen.refused = 1;
    assert_true(stock_observe(s, &seen, 0, now));
    assert_true(stock_out(s, now) > 0.99);
    double half = stock_out(s, now + hour / 2), one = stock_out(s, now + hour);
    double day = stock_out(s, now + 24 * hour);
    assert_true(half < 0.7 && half > one && one > day && day < 0.2);
    /* It was there again after six hours, twice: its runs last longer, so the chance decays more slowly. */
    for (int k = 0; k < 2; k++) {
        seen.held = 0;
        seen.refused++;
        (void)stock_observe(s, &seen, 0, now += hour);
        seen.refused++;
        (void)stock_observe(s, &seen, 0, now += 6 * hour);
        seen.held = 1;
        assert_true(stock_observe(s, &seen, 0, now += 60 * SECOND));
        assert_true(stock_out(s, now) < 0.01);
    }
    seen.held = 0;
    seen.refused++;
    (void)stock_observe(s, &seen, 0, now);
    double slow = stock_out(s, now + hour / 2);
    assert_true(slow > half + 0.1);
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct stocks again;
    struct err err = { 0 };
    arena_init(&arena, (size_t)1 << 16);
    assert_int_equal(stocks_encode(&all, &text), 0);
    if (stocks_decode(buf_view(&text), &arena, &again, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(again.count, 1); /* of the other there is nothing to keep */
    assert_true(fabs(stock_out(stock_find(&again, &o), now + hour / 2) - slow) < 1e-6);
    assert_true(stocks_decode(STR("{\"v\":2}"), &arena, &again, &err) < 0);
}

static int market_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_likely_sold_out_comes_later),
        cmocka_unit_test(what_is_reserved_is_used_first),
        cmocka_unit_test(what_a_start_pulls_is_priced),
        cmocka_unit_test(what_works_stays_until_its_replacement_is_ready),
        cmocka_unit_test(stock_decays_and_learns),
    };
    return cmocka_run_group_tests_name("market", tests, NULL, NULL);
}

int main(void)
{
    return plan_tests() + market_tests() + policy_memory_tests();
}

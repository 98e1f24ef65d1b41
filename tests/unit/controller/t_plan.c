/* t_plan.c - tests how many instances a plan wants, and when: fleets known in advance, and random ones against rules. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "controller/core/plan_view.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

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

int main(void)
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

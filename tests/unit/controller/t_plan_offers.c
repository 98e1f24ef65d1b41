/* t_plan_offers.c - which offer a plan launches from: what is sold out, learned, spot, too dear. */
#include "policies/place/place.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static void stock_out_falls_to_the_next_offer(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 0);
    offer_answered(&s->health[0], OFFER_CAPACITY, "sold out", s->now);
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 1);
    offer_answered(&s->health[1], OFFER_QUOTA, "quota", s->now);
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(s->plan.action_count, 0);
    assert_int_equal(d->target[0], 0); /* the signal knows that nothing can be had */
    s->now += 20 * SECOND;             /* the first may be asked again */
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 0);
    free(s);
}

/* serverlessllm launches where launches have been quickest, and goes elsewhere as it learns. */
static void the_lead_that_was_learned_chooses(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.place = &place_serverlessllm;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 0); /* equal leads: the cheaper */
    offer_learn_lead(&s->offer[0], 60);
    scene_decide(s);
    assert_int_equal(s->plan.action[0].act, PLAN_LAUNCH);
    assert_int_equal(s->plan.action[0].offer, 1);
    assert_string_equal(s->plan.decision[0].placed[0].reason, "where it is ready first");
    for (int i = 0; i < 4; i++)
        offer_learn_lead(&s->offer[1], 300);
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 0);
    free(s);
}

/* Two on demand where spot costs a third: both are replaced at once, none is given up before, and
 * nothing is bought twice. */
static void a_pool_moves_to_spot(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.pool[0].min = 2;
    s->offer[1].spot = true;
    s->offer[1].price_h = 0.35;
    scene_add(s, 0, PHASE_READY);
    scene_add(s, 0, PHASE_READY);
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 2);
    assert_int_equal(s->plan.action_count, 2);
    struct plan_instance *in[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s->plan.action[i].offer, 1);
        in[i] = scene_add(s, 0, PHASE_STARTING);
        in[i]->offer = 1;
        in[i]->price_h = 0.35;
    }
    for (int i = 0; i < 2; i++) {
        s->now += SECOND;
        scene_decide(s);
        assert_int_equal(s->plan.action_count, 0); /* it is under way */
        in[i]->phase = PHASE_READY;
    }
    scene_decide_after_window(s);
    assert_int_equal(s->plan.action_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s->plan.action[i].act, PLAN_DRAIN);
        struct plan_instance *left = &s->instance[s->plan.action[i].instance];
        assert_int_equal(left->offer, 0);
        left->phase = PHASE_ENDING;
    }
    scene_decide_after_window(s);
    assert_int_equal(s->plan.action_count, 0);
    free(s);
}

/* The same with room for three instances: the second moves when the first has. */
static void a_move_keeps_to_the_pools_maximum(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.pool[0].min = 2;
    s->service.pool[0].max = 3;
    s->offer[1].spot = true;
    s->offer[1].price_h = 0.35;
    scene_add(s, 0, PHASE_READY);
    scene_add(s, 0, PHASE_READY);
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 1);
    assert_int_equal(s->plan.action_count, 1);
    free(s);
}

/* SkyServe's row keeps one more than is needed, and no more than that. */
static void a_spare_is_bought_once(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.pool[0].min = 2;
    s->service.place = &place_spot;
    s->offer[0].spot = s->offer[1].spot = true;
    uint32_t bought = 0;
    for (int i = 0; i < 60; i++, s->now += SECOND) {
        scene_decide(s);
        assert_int_equal(scene_count(s, PLAN_DRAIN) + scene_count(s, PLAN_CANCEL), 0);
        for (uint32_t a = 0; a < s->plan.action_count; a++, bought++) {
            uint32_t offer = s->plan.action[a].offer;
            scene_add(s, 0, PHASE_READY)->offer = offer;
        }
    }
    assert_int_equal(bought, 3);
    free(s);
}

static void another_pool_steps_in(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    for (int i = 0; i < 3; i++) {
        memset(s->health, 0, sizeof s->health);
        uint32_t only = (uint32_t)i;
        for (uint32_t o = 0; o < 3; o++)
            if (o != only) offer_answered(&s->health[o], OFFER_AUTH, "no", s->now);
        scene_decide(s);
        assert_int_equal(s->plan.action_count, 1);
        assert_int_equal(s->plan.action[0].offer, only);
    }
    free(s);
}

static void the_budget_counts_launches_and_drains(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.budget_h = 3.5; /* three of the first offer */
    scene_busy(s, 500);
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 3);
    assert_true(d->cost_h_after <= 3.5);
    memset(&s->memory, 0, sizeof s->memory);
    scene_add(s, 0, PHASE_STARTING);
    scene_add(s, 0, PHASE_ENDING);
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_LAUNCH), 1);
    s->offer[0].price_known = false; /* an unknown price fits no budget: the next offer does */
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 1);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stock_out_falls_to_the_next_offer),
        cmocka_unit_test(the_lead_that_was_learned_chooses),
        cmocka_unit_test(a_pool_moves_to_spot),
        cmocka_unit_test(a_move_keeps_to_the_pools_maximum),
        cmocka_unit_test(a_spare_is_bought_once),
        cmocka_unit_test(another_pool_steps_in),
        cmocka_unit_test(the_budget_counts_launches_and_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_pool_mix.c - tests counts of pools chosen by mix policies, alone and in the running plan, and
 * offers chosen by place policies. */
#include "base/core/own.h"
#include "policies/place/place.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns a scene of short requests, and long ones that only the large pool's instances serve
 * within the SLO of 2 s: 10,000 tokens of prompt take 5 s on a small one and 0.5 s on a large one.
 * Short ones are cheaper on small ones. */
static struct scene *two_kinds(double short_s, double long_s)
{
    struct scene *s = scene_new();
    s->offer[0].price_h = s->offer[1].price_h = 1;
    s->offer[2].price_h = 8;
    s->offer[2].prior =
        (struct perf_coef){ .step_s = 0.005, .prefill_token_s = 0.00005, .decode_seq_s = 0.0005 };
    struct lengths *l = &s->demand.sum.expected;
    lengths_add(l, 190, 100, 100 * short_s);
    lengths_add(l, 10000, 100, 100 * long_s);
    lengths_mean(l);
    scene_busy(s, short_s + long_s);
    s->demand.sum.prompt_tokens = l->prompt;
    s->demand.sum.output_tokens = l->output;
    s->view.mix_room = calloc(1, sizeof *s->view.mix_room);
    s->view.mix = calloc(1, sizeof *s->view.mix);
    assert_non_null(s->view.mix_room);
    assert_non_null(s->view.mix);
    return s;
}

static void scene_free(struct scene *s)
{
    free(s->view.mix_room);
    free(s->view.mix);
    free(s);
}

static double cost_of(const struct plan_decision *d)
{
    return d->target[0] * 1.0 + d->target[1] * 8.0;
}

/* Plans once with `mix` and empty memory; returns the decision. */
static struct plan_decision planned(struct scene *s, const struct mix_policy *mix)
{
    s->service.mix = mix;
    s->service.shaper = &scale_shape_none;
    memset(s->view.mix, 0, sizeof *s->view.mix);
    memset(&s->memory, 0, sizeof s->memory);
    return *scene_decide(s);
}

/* Melange buys small instances for short requests and large ones for long requests; a single type
 * has to be the large one for all, and costs more. */
static void a_mix_is_cheaper_than_one_type(void **state)
{
    (void)state;
    struct scene *s = two_kinds(20, 1);
    struct plan_decision one = planned(s, &mix_single_type);
    assert_int_equal(one.target[0], 0);
    assert_true(one.target[1] >= 2);
    assert_string_equal(one.reason, "the mix for the lengths that are expected");
    struct plan_decision melange = planned(s, &mix_melange);
    assert_true(melange.target[0] >= 1 && melange.target[1] >= 1);
    assert_true(cost_of(&melange) < cost_of(&one));
    struct plan_decision joint = planned(s, &mix_joint);
    assert_true(joint.target[0] >= 1 && joint.target[1] >= 1);
    assert_true(cost_of(&joint) < cost_of(&one));
    assert_true(scene_count(s, PLAN_LAUNCH) == joint.target[0] + joint.target[1]);
    scene_free(s);
}

/* Hazard rates: zero on demand, the prior in a new zone, and the observed losses after some. */
static void zones_are_watched(void **state)
{
    (void)state;
    static struct pool_mix mix;
    struct place_view offers = { .offer_count = 2, .availability = 0.99 };
    offers.offer[0] = (struct place_offer){ .price_h = 4 };
    offers.offer[1] = (struct place_offer){ .spot = true, .ready = 1, .price_h = 1, .lead_s = 90 };
    double each = 4 * PLACE_FINE / 0.01 * hazard_gap_h(90); /* dollars for one loss an hour */
    pool_mix_watch(&mix, 0, &offers, 0, 0, 1);
    assert_float_equal(mix.missing_h[0], 0, 0);
    pool_mix_watch(&mix, 0, &offers, 1, 0, 1);
    assert_true(fabs(mix.missing_h[0] - each / HAZARD_PRIOR_H) < 1e-9);
    assert_true(fabs(mix.missing_kept_h[0] - each / HAZARD_PRIOR_H) < 1e-9);
    for (int i = 0; i < 4; i++) {
        offers.offer[1].lost++;
        pool_mix_watch(&mix, 0, &offers, 1, 0.5, 2 + i);
    }
    assert_true(fabs(mix.missing_h[0] - each * (1 + 4) / (HAZARD_PRIOR_H + 4 * 0.5)) < 1e-9);
    pool_mix_watch(&mix, 0, &offers, PLACE_NONE, 0, 9);
    assert_float_equal(mix.missing_h[0], 0, 0);
    assert_true(mix.missing_kept_h[0] > 0);
}

/* In a plan, the losses of a spot zone reach the mix, and outlast a time without demand. */
static void the_plan_tells_a_mix_of_losses(void **state)
{
    (void)state;
    struct scene *s = two_kinds(20, 1);
    s->offer[0].spot = s->offer[1].spot = true;
    planned(s, &mix_joint);
    double before = s->view.mix[0].missing_h[0];
    assert_true(before > 0);
    assert_float_equal(s->view.mix[0].missing_h[1], 0, 0); /* the large pool is on demand */
    s->health[0].lost += 2;
    s->health[1].lost += 2;
    scene_decide(s);
    assert_true(s->view.mix[0].missing_h[0] > before);
    s->demand.sum.expected.count = 0;
    scene_decide(s);
    assert_false(s->view.mix[0].found);
    assert_true(s->view.mix[0].missing_h[0] > before);
    scene_free(s);
}

static void more_load_needs_more(void **state)
{
    (void)state;
    uint32_t last = 0;
    for (double k = 1; k <= 4; k *= 2) {
        struct scene *s = two_kinds(10 * k, 0.5 * k);
        struct plan_decision d = planned(s, &mix_melange);
        assert_true(d.target[0] + d.target[1] > last);
        last = d.target[0] + d.target[1];
        scene_free(s);
    }
}

/* Between two solutions the last one stands, whatever the load. */
static void it_is_solved_now_and_then(void **state)
{
    (void)state;
    struct scene *s = two_kinds(20, 1);
    struct plan_decision before = planned(s, &mix_melange);
    s->demand.sum.arrivals_s *= 3;
    s->now += POOL_MIX_EVERY_US - 1;
    struct plan_decision soon = *scene_decide(s);
    assert_memory_equal(soon.target, before.target, sizeof soon.target);
    s->now += 1;
    struct plan_decision later = *scene_decide(s);
    assert_true(later.target[0] > before.target[0]);
    scene_free(s);
}

/* The scaling policy decides without arrivals, without lengths, or where no pool can serve the
 * load. */
static void without_an_answer_the_scaling_policy_decides(void **state)
{
    (void)state;
    struct scene *s = two_kinds(20, 1);
    s->demand.sum.expected = (struct lengths){ 0 };
    struct plan_decision plain = planned(s, NULL), mixed = planned(s, &mix_melange);
    assert_memory_equal(mixed.target, plain.target, sizeof mixed.target);
    assert_false(s->view.mix->found);
    scene_free(s);

    s = two_kinds(20, 1);
    s->service.ttft_slo_s = 0.0001; /* no pool keeps that */
    plain = planned(s, NULL);
    mixed = planned(s, &mix_joint);
    assert_memory_equal(mixed.target, plain.target, sizeof mixed.target);
    assert_false(s->view.mix->found);
    scene_free(s);
}

/* Bounds of the service and its pools, and a person's override, hold as they do without a mix. */
static void bounds_and_overrides_hold(void **state)
{
    (void)state;
    struct scene *s = two_kinds(40, 1);
    s->service.pool[0].max = 1;
    struct plan_decision d = planned(s, &mix_melange);
    assert_true(d.target[0] <= 1);
    s->service.pool[0].max = 8;
    s->service.pool[0].manual = 0;
    d = planned(s, &mix_melange);
    assert_int_equal(d.target[0], 0);
    s->service.pool[0].manual = -1;
    s->service.pool[1].min = 3;
    d = planned(s, &mix_melange);
    assert_true(d.target[1] >= 3);
    scene_free(s);
}

/* ---- the offer that a plan launches from: sold out, learned, spot, too dear ---- */

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
    assert_int_equal(d->target[0], 0); /* the scaling policy knows that no offer is available */
    s->now += 20 * SECOND;             /* the first offer's back-off is over */
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 0);
    free(s);
}

/* serverlessllm launches where launches are quickest, and goes elsewhere as it learns lead
 * times. */
static void the_lead_that_was_learned_chooses(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->service.pool_count = 1;
    s->service.place = &place_serverlessllm;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    scene_decide(s);
    assert_int_equal(s->plan.action[0].offer, 0); /* equal leads: the cheaper offer */
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

/* Spot costs a third of two on-demand instances: both are replaced at once, neither ends before its
 * replacement is ready, and none is bought twice. */
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
        assert_int_equal(s->plan.action_count, 0); /* the launch is under way */
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

/* With room for three instances, the second is replaced after the first. */
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

/* SkyServe's policy keeps one spare instance, and buys it once. */
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

/* Another type has become a little cheaper for the same work. A running fleet does not move for less than what the
 * lead of the new instances costs; it moves where that pays, and what it has goes only once the new instances are
 * ready. */
static void a_mix_moves_where_it_pays(void **state)
{
    (void)state;
    struct scene *s = two_kinds(20, 0);
    struct plan_decision d = planned(s, &mix_joint);
    assert_true(d.target[0] >= 2 && d.target[1] == 0);
    uint32_t small = d.target[0];
    for (uint32_t i = 0; i < small; i++)
        scene_add(s, 0, PHASE_READY)->price_h = 1;
    s->offer[2].prior = s->offer[0].prior; /* as fast as a small one */
    s->service.scale.life_s = 600;
    s->offer[2].lead_s = 60;
    s->offer[2].price_h = 0.95; /* 5 % less, and 10 % for the lead */
    d = planned(s, &mix_joint);
    assert_int_equal(d.target[0], small);
    assert_int_equal(d.target[1], 0);
    s->offer[2].price_h = 0.6;
    d = planned(s, &mix_joint);
    assert_int_equal(d.target[1], small);
    assert_int_equal(d.target[0], small);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
    assert_non_null(d.blocked);
    for (uint32_t i = 0; i < small; i++)
        scene_add(s, 1, PHASE_STARTING)->price_h = 0.6;
    assert_int_equal(planned(s, &mix_joint).target[0], small); /* on their way */
    for (uint32_t i = 0; i < s->view.instance_count; i++)
        s->instance[i].phase = PHASE_READY;
    d = planned(s, &mix_joint);
    assert_int_equal(d.target[0], 0);
    assert_int_equal(scene_count(s, PLAN_DRAIN), small);
    scene_free(s);
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
        cmocka_unit_test(a_mix_is_cheaper_than_one_type),
        cmocka_unit_test(zones_are_watched),
        cmocka_unit_test(the_plan_tells_a_mix_of_losses),
        cmocka_unit_test(more_load_needs_more),
        cmocka_unit_test(it_is_solved_now_and_then),
        cmocka_unit_test(without_an_answer_the_scaling_policy_decides),
        cmocka_unit_test(bounds_and_overrides_hold),
        cmocka_unit_test(stock_out_falls_to_the_next_offer),
        cmocka_unit_test(the_lead_that_was_learned_chooses),
        cmocka_unit_test(a_pool_moves_to_spot),
        cmocka_unit_test(a_move_keeps_to_the_pools_maximum),
        cmocka_unit_test(a_spare_is_bought_once),
        cmocka_unit_test(another_pool_steps_in),
        cmocka_unit_test(a_mix_moves_where_it_pays),
        cmocka_unit_test(the_budget_counts_launches_and_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

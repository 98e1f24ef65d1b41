/* t_pool_mix.c - counts of pools by mix policies: in themselves, and in the running plan. */
#include "base/core/own.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Short requests, and long ones that only the large pool's instances serve within the SLO of 2 s:
 * 10,000 tokens of prompt take 5 s on a small one and 0.5 s on a large one. Short ones are cheaper on
 * small ones. */
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

/* One instance of each pool that is there, so that both speeds are known; then the plan's targets. */
static struct plan_decision planned(struct scene *s, const struct mix_policy *mix)
{
    s->service.mix = mix;
    s->service.shaper = &scale_shape_none;
    memset(s->view.mix, 0, sizeof *s->view.mix);
    memset(&s->memory, 0, sizeof s->memory);
    return *scene_decide(s);
}

/* Melange buys small ones for the short and large ones for the long; a single type has to be the
 * large one for all, and costs more. */
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

/* Between two solutions the last one stands, whatever comes. */
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

/* No arrivals, no lengths, or a load that no pool serves: the scaling policy's choice stands. */
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
    s->service.ttft_slo_s = 0.0001; /* nobody keeps that */
    plain = planned(s, NULL);
    mixed = planned(s, &mix_joint);
    assert_memory_equal(mixed.target, plain.target, sizeof mixed.target);
    assert_false(s->view.mix->found);
    scene_free(s);
}

/* The service's and the pools' own bounds, and a person's override, hold as they do without a mix. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mix_is_cheaper_than_one_type),
        cmocka_unit_test(more_load_needs_more),
        cmocka_unit_test(it_is_solved_now_and_then),
        cmocka_unit_test(without_an_answer_the_scaling_policy_decides),
        cmocka_unit_test(bounds_and_overrides_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

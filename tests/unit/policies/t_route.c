/* t_route.c - every routing row on small views whose right answer can be read off. */
#include "base/core/bits.h"
#include "policies/route/overload.h"
#include "policies/route/route.h"
#include "tests/unit/policies/route_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PERF ((struct perf_coef){ .step_s = 0.01, .prefill_token_s = 0.001, .decode_seq_s = 0.002 })

static struct route_instance instance(uint32_t id)
{
    return (struct route_instance){ .id = id,
                                    .name_hash = id * 7919 + 1,
                                    .accepts = true,
                                    .has_perf = true,
                                    .perf = PERF,
                                    .token_budget = 512,
                                    .seqs_max = 8 };
}

static uint32_t ask(const char *name, struct route_instance *in, uint32_t count,
                    uint32_t prompt_tokens, struct route_verdict *ret)
{
    const struct route_policy *p = route_find(str_from(name));
    assert_non_null(p);
    assert_true(p->state_size <= ROUTE_STATE_BYTES_MAX);
    static uint64_t state[ROUTE_STATE_BYTES_MAX / 8];
    memset(state, 0, sizeof state);
    struct rng rng;
    rng_seed(&rng, 1);
    struct route_view view = { .instance = in, .instance_count = count };
    struct route_req req = { .prompt_tokens = prompt_tokens, .prefix_hash = 5 };
    struct route_verdict v;
    p->decide(state, &view, &req, 0, &rng, &v);
    if (ret) *ret = v;
    return v.instance_id;
}

static void no_row_sends_where_nothing_accepts(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < route_count; p++) {
        struct route_instance in[2] = { instance(0), instance(1) };
        in[0].accepts = in[1].accepts = false;
        assert_int_equal(ask(route_table[p]->name, in, 2, 10, NULL), ROUTE_NONE);
        assert_int_equal(ask(route_table[p]->name, in, 0, 10, NULL), ROUTE_NONE);
        in[1].accepts = true;
        assert_int_equal(ask(route_table[p]->name, in, 2, 10, NULL), 1);
    }
}

static void shortest_ttft_trades_a_hit_for_a_queue(void **state)
{
    (void)state;
    struct route_instance in[2] = { instance(0), instance(1) };
    in[0].hit_tokens = 800;
    struct route_verdict v;
    assert_int_equal(ask("shortest_ttft", in, 2, 1000, &v), 0);
    assert_true(fabs(v.estimate_s - (0.01 + 0.2)) < 1e-9);
    assert_int_equal(v.runner_up_id, 1);
    assert_true(fabs(v.runner_up_s - (2 * 0.01 + 1.0)) < 1e-9);

    in[0].prefill_tokens = 900; /* queueing behind them now costs more than the hit saves */
    assert_int_equal(ask("shortest_ttft", in, 2, 1000, &v), 1);

    in[0].prefill_tokens = 0;
    in[0].slot_wait_s = 2;
    assert_int_equal(ask("shortest_ttft", in, 2, 1000, &v), 1);
}

static void shortest_ttft_without_telemetry(void **state)
{
    (void)state;
    struct route_instance in[2] = { instance(0), instance(1) };
    in[1].has_perf = false; /* estimated with the fleet's mean: the empty one wins */
    in[0].prefill_tokens = 100;
    struct route_verdict v;
    assert_int_equal(ask("shortest_ttft", in, 2, 100, &v), 1);
    assert_true(v.estimate_s < 0); /* absent is not zero */
    in[0].has_perf = false;
    assert_int_equal(ask("shortest_ttft", in, 2, 100, &v), 1);
}

static void a_claimed_hit_never_covers_the_whole_prompt(void **state)
{
    (void)state;
    struct route_instance in = instance(0);
    in.hit_tokens = 5000;
    struct route_verdict v;
    ask("shortest_ttft", &in, 1, 100, &v);
    assert_true(fabs(v.estimate_s - (0.01 + 0.001)) < 1e-9);
}

static void ties_spread_evenly(void **state)
{
    (void)state;
    struct route_instance in[3] = { instance(0), instance(1), instance(2) };
    struct route_view view = { .instance = in, .instance_count = 3 };
    struct route_req req = { .prompt_tokens = 50 };
    struct rng rng;
    rng_seed(&rng, 3);
    uint32_t got[3] = { 0 };
    for (uint32_t i = 0; i < 3000; i++) {
        struct route_verdict v;
        route_find(STR("shortest_ttft"))->decide(NULL, &view, &req, 0, &rng, &v);
        got[v.instance_id]++;
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_in_range(got[i], 900, 1100);
}

static void round_robin_keeps_its_turn_when_one_leaves(void **state)
{
    (void)state;
    struct route_instance in[3] = { instance(4), instance(7), instance(9) };
    struct route_view view = { .instance = in, .instance_count = 3 };
    struct route_req req = { .prompt_tokens = 5 };
    uint64_t memory[8] = { 0 };
    struct rng rng;
    rng_seed(&rng, 1);
    static const uint32_t expected[] = { 4, 7, 9, 4, 9, 4 };
    for (uint32_t i = 0; i < COUNT_OF(expected); i++) {
        in[1].accepts = i < 4;
        struct route_verdict v;
        route_find(STR("round_robin"))->decide(memory, &view, &req, 0, &rng, &v);
        assert_int_equal(v.instance_id, expected[i]);
    }
}

static void least_and_two_choices_prefer_the_emptier(void **state)
{
    (void)state;
    struct route_instance in[2] = { instance(0), instance(1) };
    in[0].in_flight = 5;
    in[1].in_flight = 2;
    assert_int_equal(ask("least_request", in, 2, 10, NULL), 1);
    assert_int_equal(ask("power_of_two", in, 2, 10, NULL), 1);
}

static void consistent_hash_moves_only_what_left(void **state)
{
    (void)state;
    struct route_instance in[4] = { instance(0), instance(1), instance(2), instance(3) };
    struct route_view view = { .instance = in, .instance_count = 4 };
    struct rng rng;
    rng_seed(&rng, 1);
    uint32_t before[400], share[4] = { 0 };
    for (uint32_t pass = 0; pass < 2; pass++) {
        in[2].accepts = pass == 0;
        for (uint32_t i = 0; i < 400; i++) {
            struct route_req req = { .prompt_tokens = 9, .prefix_hash = i + 1 };
            struct route_verdict v;
            route_find(STR("consistent_hash"))->decide(NULL, &view, &req, 0, &rng, &v);
            if (pass == 0) share[before[i] = v.instance_id]++;
            if (pass == 1 && before[i] != 2) assert_int_equal(v.instance_id, before[i]);
            if (pass == 1) assert_int_not_equal(v.instance_id, 2);
        }
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_in_range(share[i], 60, 140);
}

static void prefix_affinity_follows_its_thresholds(void **state)
{
    (void)state;
    struct route_instance in[2] = { instance(0), instance(1) };
    in[0].hit_tokens = 31;
    in[0].in_flight = 60;
    assert_int_equal(ask("prefix_affinity", in, 2, 100, NULL), 0); /* 0.31 > 0.3 */
    in[0].hit_tokens = 30;
    assert_int_equal(ask("prefix_affinity", in, 2, 100, NULL), 1); /* not above 0.3 */
    in[0].hit_tokens = 90;
    in[0].in_flight = 65;
    assert_int_equal(ask("prefix_affinity", in, 2, 100, NULL), 1); /* uneven by more than 64 */
}

/* A burst and an overload are told apart, and only late requests are refused. */

#define SECOND INT64_C(1000000)

/* Two instances of a thousand tokens a second; the rig asks for 1,000 tokens. */
static struct route_instance *queues(struct route_rig *rig, uint64_t first, uint64_t second)
{
    struct route_instance *in = route_rig_init(rig, "completion", 2);
    in[0].perf = in[1].perf = (struct perf_coef){ .prefill_token_s = 1e-3 };
    in[0].prefill_tokens = first;
    in[1].prefill_tokens = second;
    return in;
}

static bool overloaded_at(struct route_overload *o, const struct route_rig *rig, int64_t now_us)
{
    route_overload_observe(o, &rig->view, now_us);
    return route_is_overloaded(o, &rig->view, now_us);
}

static void a_queue_that_stands_for_a_minute_is_an_overload(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_overload o = { 0 };
    struct route_instance *in = queues(&rig, 5000, 5000);
    assert_false(overloaded_at(&o, &rig, 100 * SECOND)); /* seen for the first time */
    assert_false(overloaded_at(&o, &rig, 159 * SECOND));
    assert_true(overloaded_at(&o, &rig, 160 * SECOND));
    in[1].prefill_tokens = 0; /* one is free */
    assert_false(overloaded_at(&o, &rig, 170 * SECOND));
    in[1].prefill_tokens = 10;
    assert_false(overloaded_at(&o, &rig, 229 * SECOND));
    assert_true(overloaded_at(&o, &rig, 230 * SECOND));
    assert_false(overloaded_at(&o, &rig, 100 * SECOND)); /* a clock that was set back */
}

static void more_work_than_the_fleet_does_is_one_at_once(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_overload o = { 0 };
    struct route_instance *in = queues(&rig, 5000, 5000);
    rig.view.has_load = true;
    rig.view.load = 0.99;
    overloaded_at(&o, &rig, 0);
    assert_false(overloaded_at(&o, &rig, SECOND));
    rig.view.load = 1;
    assert_true(overloaded_at(&o, &rig, SECOND));
    in[0].prefill_tokens = 0; /* while one is free the load is a burst's */
    assert_false(overloaded_at(&o, &rig, 2 * SECOND));
}

static void slots_are_waited_for_like_prompts_and_those_that_take_nothing_do_not_count(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_overload o = { 0 };
    struct route_instance *in = queues(&rig, 5000, 0);
    in[1].accepts = false;
    overloaded_at(&o, &rig, 0);
    assert_true(overloaded_at(&o, &rig, 60 * SECOND));
    in[1].accepts = true;
    in[1].slot_wait_s = 3;
    assert_true(overloaded_at(&o, &rig, 61 * SECOND));
    in[0].accepts = in[1].accepts = false; /* nobody: what comes is held */
    assert_false(overloaded_at(&o, &rig, 62 * SECOND));
}

static void only_what_is_late_wherever_it_goes_is_refused(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_verdict v = { .instance_id = 7 };
    queues(&rig, 3000, 9000); /* 4 s and 10 s */
    rig.req.slo_ttft_s = 4.1;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    assert_int_equal(v.instance_id, 7);
    rig.req.slo_ttft_s = 1.5;
    assert_true(route_refuse_late(&rig.view, &rig.req, &v));
    assert_int_equal(v.instance_id, ROUTE_NONE);
    assert_true(v.reject && v.late);
    assert_float_equal(v.retry_after_s, 2.5, 1e-9);
    rig.req.slo_ttft_s = 3.9;
    assert_true(route_refuse_late(&rig.view, &rig.req, &v));
    assert_float_equal(v.retry_after_s, 1, 1e-9); /* at least */
}

static void nothing_is_refused_without_an_slo_or_a_speed(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_verdict v;
    struct route_instance *in = queues(&rig, 3000, 9000);
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    rig.req.slo_ttft_s = 1;
    in[0].has_perf = false; /* the other's speed stands in */
    assert_true(route_refuse_late(&rig.view, &rig.req, &v));
    in[1].has_perf = false;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    in[0].accepts = in[1].accepts = false;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_row_sends_where_nothing_accepts),
        cmocka_unit_test(shortest_ttft_trades_a_hit_for_a_queue),
        cmocka_unit_test(shortest_ttft_without_telemetry),
        cmocka_unit_test(a_claimed_hit_never_covers_the_whole_prompt),
        cmocka_unit_test(ties_spread_evenly),
        cmocka_unit_test(round_robin_keeps_its_turn_when_one_leaves),
        cmocka_unit_test(least_and_two_choices_prefer_the_emptier),
        cmocka_unit_test(consistent_hash_moves_only_what_left),
        cmocka_unit_test(prefix_affinity_follows_its_thresholds),
        cmocka_unit_test(a_queue_that_stands_for_a_minute_is_an_overload),
        cmocka_unit_test(more_work_than_the_fleet_does_is_one_at_once),
        cmocka_unit_test(
            slots_are_waited_for_like_prompts_and_those_that_take_nothing_do_not_count),
        cmocka_unit_test(only_what_is_late_wherever_it_goes_is_refused),
        cmocka_unit_test(nothing_is_refused_without_an_slo_or_a_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

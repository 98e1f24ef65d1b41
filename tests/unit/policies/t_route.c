/* t_route.c - tests every route policy on small views whose right verdict can be computed. */
#include "base/core/bits.h"
#include "policies/route/overload.h"
#include "policies/route/route.h"
#include "tests/unit/policies/route_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- views whose right verdict can be read off ---- */

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

    in[0].prefill_tokens = 900; /* its queue costs more than the hit saves */
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

/* ---- bursts and overloads are told apart, and only late requests are refused ---- */

#define SECOND INT64_C(1000000)

/* Sets up two instances of a thousand tokens a second; the rig's request has 1,000 tokens. */
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
    in[1].prefill_tokens = 0; /* one instance is free */
    assert_false(overloaded_at(&o, &rig, 170 * SECOND));
    in[1].prefill_tokens = 10;
    assert_false(overloaded_at(&o, &rig, 229 * SECOND));
    assert_true(overloaded_at(&o, &rig, 230 * SECOND));
    assert_false(overloaded_at(&o, &rig, 100 * SECOND)); /* the clock was set back */
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
    in[0].prefill_tokens = 0; /* one is free, so the load is a burst */
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
    in[0].accepts = in[1].accepts = false; /* none accepts: requests are held */
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
    assert_float_equal(v.retry_after_s, 1, 1e-9); /* the minimum */
}

static void nothing_is_refused_without_an_slo_or_a_speed(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_verdict v;
    struct route_instance *in = queues(&rig, 3000, 9000);
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    rig.req.slo_ttft_s = 1;
    in[0].has_perf = false; /* the other's speed replaces it */
    assert_true(route_refuse_late(&rig.view, &rig.req, &v));
    in[1].has_perf = false;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
    in[0].accepts = in[1].accepts = false;
    assert_false(route_refuse_late(&rig.view, &rig.req, &v));
}

static int route_tests(void)
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
    return cmocka_run_group_tests_name("route", tests, NULL, NULL);
}

/* ---- policies that price instances, on views whose right verdict can be computed ---- */

static void completion_is_the_shortest_ttft_while_nothing_is_loaded(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    in[0].perf = in[1].perf = (struct perf_coef){ .prefill_token_s = 1e-3 };
    in[0].hit_tokens = 600;
    in[0].prefill_tokens = 700; /* 1.1 s against 1.0 s */
    ASSERT_ROUTED(&rig, 1);
    rig.view.has_load = true;
    ASSERT_ROUTED(&rig, 1);
}

static void completion_values_avoided_work_more_under_load(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    in[0].perf = in[1].perf = (struct perf_coef){ .prefill_token_s = 1e-3 };
    rig.view.has_load = true;
    in[0].hit_tokens = 600;
    /* Even at a wait of .6 / (1 - r): .4 / (1 - r) + wait against 1 / (1 - r). */
    static const struct {
        double load;
        uint32_t queued, expected;
    } rows[] = { { 0, 590, 0 },     { 0, 610, 1 },    { 0.5, 1190, 0 },   { 0.5, 1210, 1 },
                 { 0.8, 2990, 0 },  { 0.8, 3010, 1 }, { 0.95, 11990, 0 }, { 0.95, 12010, 1 },
                 { 7.0, 11990, 0 }, { 7.0, 12010, 1 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        rig.view.load = rows[i].load;
        in[0].prefill_tokens = rows[i].queued;
        if (route_rig_ask(&rig).instance_id != rows[i].expected) fail_msg("row %zu", i);
    }
}

static void completion_weighs_decoding_where_it_contends(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    rig.req.prompt_tokens = 1000;
    in[0].in_flight = in[0].decoding = 6;
    in[0].output_left = 600;
    ASSERT_ROUTED(&rig, 1);
    /* 1.5 s of queue, or six decoding: 1.5 s of its own decode, 1.2 s of theirs. */
    in[1].prefill_tokens = 1500;
    ASSERT_ROUTED(&rig, 1);
    in[1].prefill_tokens = 3000;
    ASSERT_ROUTED(&rig, 0);
    in[1].prefill_tokens = 1500;
    in[1].prompt_load = 0.8; /* and prompts stretch every gap there five times */
    ASSERT_ROUTED(&rig, 0);
    in[0].perf.decode_seq_s = in[1].perf.decode_seq_s =
        0; /* no contention: only the queue counts */
    in[1].prefill_tokens = 0;
    in[0].prefill_tokens = 5;
    ASSERT_ROUTED(&rig, 1);
}

/* 5 s of prompt, or 1 s behind a queue of 5: prompts in half of the next ten seconds stretch the
 * output of 1.2 s to three times as long, in a tenth of them to 1.2 times. */
static void completion_counts_what_a_prompt_itself_stretches(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    rig.req.prompt_tokens = 5000;
    in[0].hit_tokens = 4000;
    in[0].prefill_tokens = 5000;
    ASSERT_ROUTED(&rig, 0);
    in[0].prefill_tokens = 6500;
    ASSERT_ROUTED(&rig, 1);
    in[0].perf.decode_seq_s = in[1].perf.decode_seq_s =
        0; /* no token waits for prompts: 6 s against 5 */
    in[0].prefill_tokens = 5000;
    ASSERT_ROUTED(&rig, 1);
}

/* A queue of 1.5 s with .4 s of the prompt cached, against no queue where four sessions would wait
 * for those .4 s. */
static void completion_computes_nothing_again_beside_many(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    rig.req.output_mean = 1;
    in[0].hit_tokens = 400;
    in[0].prefill_tokens = 1500;
    in[0].decoding = in[0].in_flight = in[1].decoding = in[1].in_flight = 4;
    ASSERT_ROUTED(&rig, 0);
    in[0].hit_tokens = 0; /* equal work: the shorter queue */
    ASSERT_ROUTED(&rig, 1);
    in[0].hit_tokens = 400;
    in[1].decoding = in[1].in_flight = 0; /* no session is delayed there */
    ASSERT_ROUTED(&rig, 1);
}

static void completion_weighs_decoding_by_the_slos(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    rig.req.prompt_tokens = 1000;
    in[0].in_flight = in[0].decoding = 6;
    in[0].output_left = 600;     /* 1.5 s of its own decoding more, 1.2 s of theirs */
    in[1].prefill_tokens = 1500; /* 1.5 s of queue */
    ASSERT_ROUTED(&rig, 1);
    rig.req.slo_ttft_s = 2;
    rig.req.slo_tpot_s = 0.05; /* 2 s against 5 s: decode counts 0.4 of its seconds */
    ASSERT_ROUTED(&rig, 0);
    rig.req.slo_ttft_s = 5; /* equal weights */
    ASSERT_ROUTED(&rig, 1);
    rig.req.slo_ttft_s = 600; /* the weight of decode is at most 1 */
    in[1].prefill_tokens = 3000;
    ASSERT_ROUTED(&rig, 0);
    in[1].prefill_tokens = 1500;
    rig.req.slo_ttft_s = 2;
    rig.req.slo_tpot_s = 0; /* no SLO for decode */
    ASSERT_ROUTED(&rig, 1);
}

/* The first token takes 0.03 s and decode at best 1.2 s: 2.4 s more of decode equal a queue of 0.06
 * s. */
static void completion_weighs_decoding_by_what_the_phases_take(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    rig.req.prompt_tokens = 10;
    in[0].in_flight = in[0].decoding = 6;
    in[0].output_left = 600;
    in[1].prefill_tokens = 200;
    ASSERT_ROUTED(&rig, 0);
    in[1].prefill_tokens = 40;
    ASSERT_ROUTED(&rig, 1);
}

/* Random queues, most of them longer than the SLO, which moves no request where nothing else is
 * weighed by it. */
static void completion_places_a_late_request_like_any_other(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 4);
    struct rng chance;
    rng_seed(&chance, 15);
    for (int i = 0; i < 4; i++)
        in[i].perf = (struct perf_coef){ .prefill_token_s = 1e-3 };
    rig.view.has_load = true;
    for (int round = 0; round < 500; round++) {
        rig.view.load = 1.2 * rng_f64(&chance);
        for (int i = 0; i < 4; i++) {
            in[i].prefill_tokens = (uint32_t)rng_below(&chance, 20000);
            in[i].hit_tokens = (uint32_t)rng_below(&chance, 1000);
            in[i].decoding = in[i].in_flight = (uint32_t)rng_below(&chance, 8);
        }
        rig.req.slo_ttft_s = rig.req.slo_tpot_s = 0;
        uint32_t without = route_rig_ask(&rig).instance_id;
        rig.req.slo_ttft_s = 2, rig.req.slo_tpot_s = 0.1;
        ASSERT_ROUTED(&rig, without);
    }
}

static void completion_takes_the_cheaper_of_equals(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    in[0].price_per_hour = 2;
    in[1].price_per_hour = 1;
    for (int i = 0; i < 20; i++)
        ASSERT_ROUTED(&rig, 1);
    in[1].prefill_tokens = 2000; /* but two seconds outweigh the price */
    ASSERT_ROUTED(&rig, 0);
}

static void completion_keeps_a_greedy_tenant_behind_itself(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    in[0].waiting = in[0].tenant_waiting = 3; /* three of its own */
    in[0].prefill_tokens = 300;
    in[1].waiting = 3; /* three of others, a little less work */
    in[1].prefill_tokens = 200;
    ASSERT_ROUTED(&rig, 1);
    struct route_event ev = { .kind = ROUTE_SENT, .tenant = 1, .work_s = 90 };
    route_rig_tell(&rig, &ev);
    ASSERT_ROUTED(&rig, 1); /* a tenant alone is never above its share */
    ev.tenant = 2;
    ev.work_s = 10;
    route_rig_tell(&rig, &ev);
    ASSERT_ROUTED(&rig, 0);
    rig.now_us = 3600 * 1000000LL; /* forgotten after an hour */
    ASSERT_ROUTED(&rig, 1);
}

static void min_ttft_refuses_what_cannot_be_kept(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "min_ttft", 1);
    in->id = 3;
    ASSERT_ROUTED(&rig, 3);    /* without an SLO nothing is refused */
    rig.req.slo_ttft_s = 1.03; /* 1.02 s predicted */
    ASSERT_ROUTED(&rig, 3);
    rig.req.slo_ttft_s = 0.9;
    struct route_verdict v = route_rig_ask(&rig);
    assert_int_equal(v.instance_id, ROUTE_NONE);
    assert_true(v.reject && fabs(v.retry_after_s - 0.12) < 1e-9);
    rig.req.slo_ttft_s = 0;
    rig.req.slo_tpot_s = 0.02;
    assert_false(route_rig_ask(&rig).reject); /* 12 ms between tokens */
    in->decoding = 7;                         /* 26 ms */
    assert_true(route_rig_ask(&rig).reject);
}

static void mooncake_fetches_where_that_is_faster(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "mooncake_fetch", 2);
    in[0].hit_tokens = 900;
    in[0].prefill_tokens = 800;
    struct route_verdict v = route_rig_ask(&rig); /* no link: .1 + .8 s against 1 s */
    assert_int_equal(v.instance_id, 0);
    assert_int_equal(v.fetch_from_id, ROUTE_NONE);
    rig.view.kv_bytes_per_token = 1000;
    rig.view.link_bytes_s = 10e6; /* 90 ms for 900 tokens, then 100 of its own */
    v = route_rig_ask(&rig);
    assert_int_equal(v.instance_id, 1);
    assert_int_equal(v.fetch_from_id, 0);
    assert_int_equal(v.fetch_tokens, 900);
    assert_true(fabs(v.estimate_s - (0.01 + 0.1 + 0.09)) < 1e-9);
    rig.view.link_bytes_s = 1e5; /* nine seconds: the queue is better */
    v = route_rig_ask(&rig);
    assert_int_equal(v.instance_id, 0);
    in[1].hit_tokens = 800; /* within 1.25 of the best: the local hit is used */
    rig.view.link_bytes_s = 10e6;
    v = route_rig_ask(&rig);
    assert_int_equal(v.instance_id, 1);
    assert_int_equal(v.fetch_from_id, ROUTE_NONE);
}

static void dynamo_adds_prefill_and_held_blocks(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "dynamo_cost", 2);
    in[0].prefill_tokens = 160; /* 10 blocks */
    in[1].active_tokens = 144;  /* 9 blocks */
    ASSERT_ROUTED(&rig, 1);
    in[0].hit_tokens = 32;
    ASSERT_ROUTED(&rig, 0);
    in[0].hit_tokens = 15; /* not quite a block */
    ASSERT_ROUTED(&rig, 1);
}

static void lmetric_multiplies(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "lmetric", 2);
    in[0].hit_tokens = 500; /* 500 tokens behind one request */
    in[0].in_flight = 1;
    in[1].prefill_tokens = 1; /* 1001 tokens behind none */
    ASSERT_ROUTED(&rig, 0);
    in[0].in_flight = 2;
    ASSERT_ROUTED(&rig, 1);
}

static void llmd_weighs_three_two_two(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "llmd_scorers", 3);
    in[0].hit_tokens = 700; /* 2.1 of prefix against 2 of queue */
    in[0].waiting = 4;
    in[2].waiting = 4;
    ASSERT_ROUTED(&rig, 0);
    in[0].hit_tokens = 600;
    ASSERT_ROUTED(&rig, 1);
    in[1].kv_tokens_max = 1000;
    in[1].active_tokens = 200; /* 2 + 1.6 against 1.8 + 2 */
    ASSERT_ROUTED(&rig, 0);
}

static void bounded_load_walks_on_when_the_owner_is_full(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "bounded_load", 4);
    uint32_t owner = route_rig_ask(&rig).instance_id;
    for (int i = 0; i < 10; i++)
        ASSERT_ROUTED(&rig, owner);
    for (uint32_t i = 0; i < 4; i++)
        in[i].in_flight = 3;
    in[owner].in_flight = 4; /* ceil(1.25 * 14 / 4) = 5 */
    ASSERT_ROUTED(&rig, owner);
    in[owner].in_flight = 5;
    uint32_t next = route_rig_ask(&rig).instance_id;
    assert_int_not_equal(next, owner);
    rig.req.prefix_hash = 77; /* other prefixes have other orders */
    uint32_t seen = 0;
    for (uint64_t h = 0; h < 64; h++) {
        rig.req.prefix_hash = h;
        seen |= 1u << route_rig_ask(&rig).instance_id;
    }
    assert_int_equal(seen | 1u << owner, 15);
}

static int route_cost_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completion_is_the_shortest_ttft_while_nothing_is_loaded),
        cmocka_unit_test(completion_values_avoided_work_more_under_load),
        cmocka_unit_test(completion_weighs_decoding_where_it_contends),
        cmocka_unit_test(completion_counts_what_a_prompt_itself_stretches),
        cmocka_unit_test(completion_computes_nothing_again_beside_many),
        cmocka_unit_test(completion_weighs_decoding_by_the_slos),
        cmocka_unit_test(completion_weighs_decoding_by_what_the_phases_take),
        cmocka_unit_test(completion_places_a_late_request_like_any_other),
        cmocka_unit_test(completion_takes_the_cheaper_of_equals),
        cmocka_unit_test(completion_keeps_a_greedy_tenant_behind_itself),
        cmocka_unit_test(min_ttft_refuses_what_cannot_be_kept),
        cmocka_unit_test(mooncake_fetches_where_that_is_faster),
        cmocka_unit_test(dynamo_adds_prefill_and_held_blocks),
        cmocka_unit_test(lmetric_multiplies),
        cmocka_unit_test(llmd_weighs_three_two_two),
        cmocka_unit_test(bounded_load_walks_on_when_the_owner_is_full),
    };
    return cmocka_run_group_tests_name("route_cost", tests, NULL, NULL);
}

int main(void)
{
    return route_tests() + route_cost_tests();
}

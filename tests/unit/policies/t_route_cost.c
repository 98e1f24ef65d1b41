/* t_route_cost.c - rows that price instances: each on a view whose right answer can be computed. */
#include "tests/unit/policies/route_rig.h"

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
    /* .4 / (1 - r) + wait against 1 / (1 - r): even at a wait of .6 / (1 - r). */
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
    /* 1.5 s of queue; six decoders: 1.5 s of its own, 1.2 s of theirs */
    in[1].prefill_tokens = 1500;
    ASSERT_ROUTED(&rig, 1);
    in[1].prefill_tokens = 3000;
    ASSERT_ROUTED(&rig, 0);
    in[1].prefill_tokens = 1500;
    in[1].prompt_load = 0.8; /* and prompts stretch every gap there five times */
    ASSERT_ROUTED(&rig, 0);
    in[0].perf.decode_seq_s = in[1].perf.decode_seq_s =
        0; /* nothing contends: only the queue is left */
    in[1].prefill_tokens = 0;
    in[0].prefill_tokens = 5;
    ASSERT_ROUTED(&rig, 1);
}

/* 5 s of prompt, or 1 s behind a queue of 5: half of the next ten seconds would stretch the answer
 * of 1.2 s to three times as long, a tenth to 1.2 times. */
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
        0; /* nobody's tokens wait for prompts: 6 s against 5 */
    in[0].prefill_tokens = 5000;
    ASSERT_ROUTED(&rig, 1);
}

/* A queue of 1.5 s where .4 s of the prompt are cached, against four who would wait for those .4 s
 * where they are not. */
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
    in[0].hit_tokens = 0; /* the same work anywhere: the shorter queue */
    ASSERT_ROUTED(&rig, 1);
    in[0].hit_tokens = 400;
    in[1].decoding = in[1].in_flight = 0; /* nobody is held up there */
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
    rig.req.slo_tpot_s = 0.05; /* 2 s against 5 s: decoding counts 0.4 of its seconds */
    ASSERT_ROUTED(&rig, 0);
    rig.req.slo_ttft_s = 5; /* alike, */
    ASSERT_ROUTED(&rig, 1);
    rig.req.slo_ttft_s = 600; /* and never more than a second is */
    in[1].prefill_tokens = 3000;
    ASSERT_ROUTED(&rig, 0);
    in[1].prefill_tokens = 1500;
    rig.req.slo_ttft_s = 2;
    rig.req.slo_tpot_s = 0; /* nothing is said of decoding */
    ASSERT_ROUTED(&rig, 1);
}

/* A first token after 0.03 s, where decoding takes 1.2 s at best: 2.4 s of decoding more are worth a
 * queue of 0.06 s. */
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

/* Queues of chance, most of them longer than the SLO, which moves no request where nothing else is
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
    in[1].prefill_tokens = 2000; /* but nobody waits two seconds for the difference */
    ASSERT_ROUTED(&rig, 0);
}

static void completion_keeps_a_greedy_tenant_behind_itself(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "completion", 2);
    in[0].waiting = in[0].tenant_waiting = 3; /* its own three */
    in[0].prefill_tokens = 300;
    in[1].waiting = 3; /* three of others, a little less work */
    in[1].prefill_tokens = 200;
    ASSERT_ROUTED(&rig, 1);
    struct route_event ev = { .kind = ROUTE_SENT, .tenant = 1, .work_s = 90 };
    route_rig_tell(&rig, &ev);
    ASSERT_ROUTED(&rig, 1); /* alone, nobody is above its share */
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
    ASSERT_ROUTED(&rig, 3);    /* nothing promised, nothing refused */
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
    rig.view.link_bytes_s = 1e5; /* nine seconds: rather the queue */
    v = route_rig_ask(&rig);
    assert_int_equal(v.instance_id, 0);
    in[1].hit_tokens = 800; /* within 1.25 of the best: what is there is used */
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
    in[1].prefill_tokens = 1; /* 1001 alone */
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

int main(void)
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}

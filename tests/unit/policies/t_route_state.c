/* t_route_state.c - rows that remember, and what holds for every row: equal state gives equal
 * answers, decode-only instances and closed ones get nothing. */
#include "tests/unit/policies/route_rig.h"

static void preble_exploits_a_holder_until_it_is_overloaded(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "preble", 2);
    in[0].hit_tokens = 400; /* less than half is cached: the cheapest */
    in[0].output_left = 1000;
    ASSERT_ROUTED(&rig, 1);
    in[0].hit_tokens = 600;
    in[0].output_left = in[1].output_left = 1000;
    ASSERT_ROUTED(&rig, 0);
    in[0].output_left = 5000; /* above 1.5 x the least load: shifted */
    ASSERT_ROUTED(&rig, 1);
}

static void preble_remembers_three_minutes_of_prefill(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "preble", 2);
    in[1].accepts = false;
    ASSERT_ROUTED(&rig, 0); /* a second of prefill is noted */
    in[1].accepts = true;
    in[1].output_left = 50; /* .5 s of decoding */
    ASSERT_ROUTED(&rig, 1);
    in[1].accepts = false;
    rig.now_us = 1800 * 1000000LL; /* both forgotten after half an hour */
    in[1].accepts = true;
    ASSERT_ROUTED(&rig, 0);
}

static void d2lpm_follows_the_prefix_while_there_is_credit(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "d2lpm", 2);
    in[0].hit_tokens = 900;
    in[0].in_flight = 9;
    ASSERT_ROUTED(&rig, 0);
    struct route_event ev = { .kind = ROUTE_SENT, .tenant = 1, .prompt_tokens = 20000 };
    route_rig_tell(&rig, &ev); /* more than the quantum: instance 0 is in debt to others */
    ASSERT_ROUTED(&rig, 1);
    rig.req.tenant = 2; /* another tenant's credit is untouched */
    ASSERT_ROUTED(&rig, 0);
    rig.req.tenant = 1;
    ev = (struct route_event){
        .kind = ROUTE_FINISHED, .tenant = 1, .instance_id = 1, .generated = 30000
    };
    route_rig_tell(&rig, &ev); /* now both are: the lesser debtor is filled up first */
    ASSERT_ROUTED(&rig, 0);
}

/* Two tenants, one with ten times the load: over a long run each instance's work for them differs
 * by the locality a quantum allows, not by what they ask. */
static void d2lpm_spreads_a_heavy_tenant(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "d2lpm", 4);
    in[2].hit_tokens = 500; /* every prompt has its longest prefix here */
    uint32_t got[4] = { 0 };
    for (uint32_t i = 0; i < 4000; i++) {
        struct route_verdict v = route_rig_ask(&rig);
        struct route_event ev = { .kind = ROUTE_SENT,
                                  .tenant = 1,
                                  .instance_id = v.instance_id,
                                  .prompt_tokens = 1000,
                                  .hit_tokens = in[v.instance_id].hit_tokens };
        route_rig_tell(&rig, &ev);
        got[v.instance_id]++;
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_in_range(got[i], 700, 1700); /* 2 is twice as cheap: about twice as many */
    assert_true(got[2] > got[0]);
}

static void intelligent_router_prices_mixing(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "intelligent_router", 2);
    in[0].decoding = 1; /* stalls one for a second, against a queue of 0.9 s */
    in[1].prefill_tokens = 900;
    ASSERT_ROUTED(&rig, 1);
    in[1].prefill_tokens = 1400;
    ASSERT_ROUTED(&rig, 0);
    rig.req.prompt_tokens = 100; /* a small prompt stalls little */
    in[1].prefill_tokens = 900;
    ASSERT_ROUTED(&rig, 0);
}

static void tetri_prefers_room_then_fewer_long_answers(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "tetri_p2c", 3);
    in[2].kv_tokens_max = 1100; /* 1,200 are needed: never drawn */
    in[0].in_flight = in[1].in_flight = 10;
    in[0].heavy = 9;
    in[1].heavy = 2;
    for (int i = 0; i < 50; i++)
        ASSERT_ROUTED(&rig, 1);
}

static void tetri_names_who_decodes_where_roles_are_split(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "tetri_p2c", 3);
    in[0].role = ROLE_PREFILL;
    in[1].role = in[2].role = ROLE_DECODE;
    in[1].in_flight = in[2].in_flight = 4;
    in[1].heavy = 3;
    for (int i = 0; i < 20; i++) {
        struct route_verdict v = route_rig_ask(&rig);
        assert_int_equal(v.instance_id, 0);
        assert_int_equal(v.decode_id, 2);
    }
}

/* The truth here: instance 1's prompts take three times as long as its queue tells. */
static void learned_latency_learns_what_a_feature_costs(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "learned_latency", 2);
    double before = 0, after = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        in[0].prefill_tokens = (uint64_t)rng_below(&rig.rng, 5000);
        in[1].prefill_tokens = (uint64_t)rng_below(&rig.rng, 5000);
        in[0].waiting = (uint32_t)rng_below(&rig.rng, 20);
        in[1].waiting = (uint32_t)rng_below(&rig.rng, 20);
        rig.req.prompt_tokens = 100 + (uint32_t)rng_below(&rig.rng, 2000);
        struct route_verdict v = route_rig_ask(&rig);
        const struct route_instance *at = &in[v.instance_id];
        double truth = 0.05 + 2e-4 * (double)at->prefill_tokens + 3e-4 * rig.req.prompt_tokens;
        if (i < 50) before += fabs(v.estimate_s - truth) / 50;
        if (i >= 1900) after += fabs(v.estimate_s - truth) / 100;
        struct route_event ev = { .kind = ROUTE_FIRST_TOKEN, .ttft_s = truth };
        memcpy(ev.scratch, v.scratch, sizeof ev.scratch);
        route_rig_tell(&rig, &ev);
    }
    assert_true(after < 0.01);
    assert_true(before > 3 * after);
    in[0].prefill_tokens = 3000;
    in[1].prefill_tokens = 1000;
    in[0].waiting = 0;
    in[1].waiting = 19; /* of no consequence, which it has learnt */
    uint32_t shorter = 0;
    for (int i = 0; i < 100; i++)
        shorter += route_rig_ask(&rig).instance_id == 1;
    assert_true(shorter >= 95);
    /* An event of somebody else's decision carries no features: it teaches nothing. */
    uint64_t copy[ROUTE_STATE_BYTES_MAX / 8];
    memcpy(copy, rig.state, sizeof copy);
    struct route_event strange = { .kind = ROUTE_FIRST_TOKEN, .ttft_s = 99 };
    route_rig_tell(&rig, &strange);
    assert_memory_equal(copy, rig.state, sizeof copy);
}

/* Instance 1 takes three times as long for the same: it is asked only where the other's queue is
 * more than three times as long, and a share of one in 50 to hear of it. */
static void learned_latency_learns_the_pace_of_an_instance(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "learned_latency", 2);
    rig.req.output_mean = 1; /* nothing is told of tokens after the first */
    for (uint32_t i = 0; i < 2000; i++) {
        in[0].prefill_tokens = (uint64_t)rng_below(&rig.rng, 5000);
        in[1].prefill_tokens = (uint64_t)rng_below(&rig.rng, 5000);
        struct route_verdict v = route_rig_ask(&rig);
        struct route_event ev = { .kind = ROUTE_FIRST_TOKEN, .instance_id = v.instance_id };
        double queued = (double)in[v.instance_id].prefill_tokens;
        ev.ttft_s = (1e-4 * queued + 0.1) * (v.instance_id == 1 ? 3 : 1);
        memcpy(ev.scratch, v.scratch, sizeof ev.scratch);
        route_rig_tell(&rig, &ev);
    }
    uint32_t slow = 0;
    in[0].prefill_tokens = 3000;
    in[1].prefill_tokens = 1000; /* .4 s against .6 */
    for (int i = 0; i < 100; i++)
        slow += route_rig_ask(&rig).instance_id == 1;
    assert_true(slow <= 5);
    in[0].prefill_tokens = 5000; /* .6 s against .36 */
    in[1].prefill_tokens = 200;
    for (int i = 0; i < 100; i++)
        slow += route_rig_ask(&rig).instance_id == 1;
    assert_true(slow >= 95);
}

/* ---- every row ------------------------------------------------------------------------------ */

static void random_view(struct rng *rng, struct route_instance *in, uint32_t count,
                        struct route_rig *rig)
{
    for (uint32_t i = 0; i < count; i++) {
        in[i] = route_rig_instance(i * 3);
        in[i].accepts = rng_below(rng, 5) > 0;
        in[i].role = rng_below(rng, 6) == 0 ? ROLE_DECODE : ROLE_BOTH;
        in[i].has_perf = rng_below(rng, 4) > 0;
        in[i].in_flight = (uint32_t)rng_below(rng, 20);
        in[i].waiting = (uint32_t)rng_below(rng, in[i].in_flight + 1);
        in[i].decoding = in[i].in_flight - in[i].waiting;
        in[i].heavy = (uint32_t)rng_below(rng, in[i].in_flight + 1);
        in[i].prefill_tokens = rng_below(rng, 5000);
        in[i].kv_tokens = in[i].active_tokens = rng_below(rng, 50000);
        in[i].kv_tokens_max = rng_below(rng, 2) ? 40000 : 0;
        in[i].output_left = (double)rng_below(rng, 3000);
        in[i].hit_tokens = (uint32_t)rng_below(rng, 3000);
        in[i].price_per_hour = (double)rng_below(rng, 3);
        in[i].prompt_load = rng_f64(rng) * 1.5;
    }
    rig->view.has_load = rng_below(rng, 4) > 0;
    rig->view.load = rng_f64(rng) * 1.5;
    rig->req.prompt_tokens = 1 + (uint32_t)rng_below(rng, 4000);
    rig->req.prefix_hash = rng_below(rng, 8);
    rig->req.tenant = rng_below(rng, 5);
    rig->req.output_mean = 1 + (double)rng_below(rng, 500);
    rig->now_us += (int64_t)rng_below(rng, 3000000);
}

static void tell_outcome(struct route_rig *rig, const struct route_verdict *v, struct rng *rng)
{
    struct route_event ev = { .instance_id = v->instance_id,
                              .tenant = rig->req.tenant,
                              .prompt_tokens = rig->req.prompt_tokens,
                              .generated = 1 + (uint32_t)rng_below(rng, 500),
                              .ttft_s = rng_f64(rng),
                              .tpot_s = rng_f64(rng) / 10,
                              .work_s = rng_f64(rng),
                              .at_us = rig->now_us };
    memcpy(ev.scratch, v->scratch, sizeof ev.scratch);
    for (ev.kind = ROUTE_SENT; ev.kind < ROUTE_EVENT_COUNT; ev.kind++)
        route_rig_tell(rig, &ev);
}

static bool may_take(const struct route_rig *rig, uint32_t id)
{
    for (uint32_t i = 0; i < rig->view.instance_count; i++) {
        if (rig->view.instance[i].id == id) return route_takes(&rig->view.instance[i]);
    }
    return false;
}

/* 2,000 random questions a row: an instance that takes work is named whenever there is one (work
 * conservation), no other ever; and a copy of the state and of the chance answers alike from then
 * on, with nothing but those bytes behind it. */
static void every_row_places_when_it_can_and_is_its_state(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < route_count; p++) {
        struct route_rig rig, twin;
        struct route_instance *in = route_rig_init(&rig, route_table[p]->name, 6);
        assert_true(rig.row->state_size <= ROUTE_STATE_BYTES_MAX);
        struct rng rng;
        rng_seed(&rng, 11 + p);
        for (uint32_t i = 0; i < 2000; i++) {
            random_view(&rng, in, 6, &rig);
            bool some = false;
            for (uint32_t k = 0; k < 6; k++)
                some |= route_takes(&in[k]);
            if (i >= 1000) {
                twin.view = rig.view;
                twin.req = rig.req;
                twin.now_us = rig.now_us;
            }
            struct route_verdict v = route_rig_ask(&rig);
            if ((v.instance_id != ROUTE_NONE) != some) fail_msg("%s", rig.row->name);
            if (some && !may_take(&rig, v.instance_id)) fail_msg("%s", rig.row->name);
            struct rng outcome = rng;
            if (some) tell_outcome(&rig, &v, &rng);
            if (i < 1000) {
                if (i == 999) twin = rig;
                continue;
            }
            struct route_verdict w = route_rig_ask(&twin);
            if (some) tell_outcome(&twin, &w, &outcome);
            assert_int_equal(v.instance_id, w.instance_id);
            assert_memory_equal(rig.state, twin.state, rig.row->state_size);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preble_exploits_a_holder_until_it_is_overloaded),
        cmocka_unit_test(preble_remembers_three_minutes_of_prefill),
        cmocka_unit_test(d2lpm_follows_the_prefix_while_there_is_credit),
        cmocka_unit_test(d2lpm_spreads_a_heavy_tenant),
        cmocka_unit_test(intelligent_router_prices_mixing),
        cmocka_unit_test(tetri_prefers_room_then_fewer_long_answers),
        cmocka_unit_test(tetri_names_who_decodes_where_roles_are_split),
        cmocka_unit_test(learned_latency_learns_what_a_feature_costs),
        cmocka_unit_test(learned_latency_learns_the_pace_of_an_instance),
        cmocka_unit_test(every_row_places_when_it_can_and_is_its_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_route_properties.c - tests policies with memory, and what holds for every route policy: equal
 * state gives equal verdicts, and random views break no rule. */
#include "tests/unit/policies/route_rig.h"

/* ---- policies that remember, and rules on hand-made views ---- */

static void preble_exploits_a_holder_until_it_is_overloaded(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "preble", 2);
    in[0].hit_tokens = 400; /* less than half is cached: the cheapest instance */
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
    rig.now_us = 1800 * 1000000LL; /* both are forgotten after half an hour */
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
    route_rig_tell(&rig, &ev); /* more than the quantum: tenant 1 is in debt at instance 0 */
    ASSERT_ROUTED(&rig, 1);
    rig.req.tenant = 2; /* another tenant's credit is unchanged */
    ASSERT_ROUTED(&rig, 0);
    rig.req.tenant = 1;
    ev = (struct route_event){
        .kind = ROUTE_FINISHED, .tenant = 1, .instance_id = 1, .generated = 30000
    };
    route_rig_tell(&rig, &ev); /* now at both: the smaller debt is paid first */
    ASSERT_ROUTED(&rig, 0);
}

/* All prompts of a tenant have their longest prefix at one of four instances: over a long run the
 * others get work too, and the one with the prefix about twice as much. */
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

/* The true TTFT depends on the queue and the prompt alone, with the same costs at both
 * instances. */
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
    in[1].waiting = 19; /* irrelevant, as it has learned */
    uint32_t shorter = 0;
    for (int i = 0; i < 100; i++)
        shorter += route_rig_ask(&rig).instance_id == 1;
    assert_true(shorter >= 95);
    /* An event without features, from another decision, teaches nothing. */
    uint64_t copy[ROUTE_STATE_BYTES_MAX / 8];
    memcpy(copy, rig.state, sizeof copy);
    struct route_event strange = { .kind = ROUTE_FIRST_TOKEN, .ttft_s = 99 };
    route_rig_tell(&rig, &strange);
    assert_memory_equal(copy, rig.state, sizeof copy);
}

/* Instance 1 takes three times as long for the same work: it is chosen only where the other's queue
 * is more than three times as long, and for a share of one in 50 to keep learning. */
static void learned_latency_learns_the_pace_of_an_instance(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "learned_latency", 2);
    rig.req.output_mean = 1; /* no tokens follow the first */
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

/* ---- every policy ---- */

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

/* On 2,000 random requests a policy names an accepting instance whenever there is one (work
 * conservation) and never another; a copy of state and randomness decides alike from then on, so
 * nothing but those bytes counts. */
static void every_row_places_when_it_can_and_is_its_state(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < route_count; p++) {
        struct route_rig rig, twin;
        struct route_instance *in = route_rig_init(&rig, route_table[p]->name, 6);
        assert_true(rig.policy->state_size <= ROUTE_STATE_BYTES_MAX);
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
            if ((v.instance_id != ROUTE_NONE) != some) fail_msg("%s", rig.policy->name);
            if (some && !may_take(&rig, v.instance_id)) fail_msg("%s", rig.policy->name);
            struct rng outcome = rng;
            if (some) tell_outcome(&rig, &v, &rng);
            if (i < 1000) {
                if (i == 999) twin = rig;
                continue;
            }
            struct route_verdict w = route_rig_ask(&twin);
            if (some) tell_outcome(&twin, &w, &outcome);
            assert_int_equal(v.instance_id, w.instance_id);
            assert_memory_equal(rig.state, twin.state, rig.policy->state_size);
        }
    }
}

static int route_state_tests(void)
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
    return cmocka_run_group_tests_name("route_state", tests, NULL, NULL);
}

/* ---- every route policy on thousands of random views, wild ones among them ----
 *
 * A named instance may be named, estimates are numbers, equal state and randomness give equal
 * verdicts, and the order in which a view lists its instances does not matter. */

enum { VIEWS = 3000 };

/* Returns mostly a usual number, now and then none, one, or more than possible. */
static uint64_t wild(struct rng *rng, uint64_t usual, uint64_t most)
{
    switch (rng_below(rng, 24)) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return most;
    default:
        return rng_below(rng, usual);
    }
}

static double wild_length(struct rng *rng)
{
    static const double odd[] = { 0, -5, 1e18, (double)NAN, (double)INFINITY };
    return rng_below(rng, 5) ? 1 + rng_f64(rng) * 800 : odd[rng_below(rng, COUNT_OF(odd))];
}

/* Returns coefficients that perf_coef_valid accepts: no term below 0, not all of them 0. */
static struct perf_coef wild_perf(struct rng *rng)
{
    struct perf_coef p = { .prefill_token_s = 1e-5 + rng_f64(rng) * 1e-3 };
    if (rng_below(rng, 4)) p.step_s = rng_f64(rng) * 0.05;
    if (rng_below(rng, 4)) p.decode_seq_s = rng_f64(rng) * 0.01;
    if (rng_below(rng, 4)) p.kv_read_s = rng_f64(rng) * 1e-7;
    return p;
}

static struct route_instance wild_instance(struct rng *rng, uint32_t id)
{
    static const enum role roles[] = { ROLE_BOTH, ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE };
    struct route_instance in = route_rig_instance(id);
    in.accepts = rng_below(rng, 4) > 0;
    in.role = roles[rng_below(rng, COUNT_OF(roles))];
    in.has_perf = rng_below(rng, 3) > 0;
    in.perf = wild_perf(rng);
    in.token_budget = 1 + (uint32_t)wild(rng, 4096, UINT32_MAX - 1);
    in.seqs_max = 1 + (uint32_t)wild(rng, 64, UINT32_MAX - 1);
    in.in_flight = (uint32_t)wild(rng, 100, UINT32_MAX);
    in.waiting = (uint32_t)rng_below(rng, (uint64_t)in.in_flight + 1);
    in.tenant_waiting = (uint32_t)rng_below(rng, (uint64_t)in.waiting + 1);
    in.decoding = in.in_flight - in.waiting;
    in.heavy = (uint32_t)rng_below(rng, (uint64_t)in.in_flight + 1);
    in.kv_tokens = wild(rng, 200000, UINT64_MAX);
    in.active_tokens = wild(rng, 200000, UINT64_MAX);
    in.kv_tokens_max = wild(rng, 400000, UINT64_MAX);
    in.output_left = (double)wild(rng, 5000, UINT64_MAX);
    in.prefill_tokens = wild(rng, 20000, UINT64_MAX);
    in.slot_wait_s = rng_below(rng, 3) ? 0 : rng_f64(rng) * 5;
    in.hit_tokens = (uint32_t)wild(rng, 4000, UINT32_MAX);
    in.prompt_load = rng_f64(rng) * 1.5;
    in.price_per_hour = (double)rng_below(rng, 4);
    return in;
}

static void wild_view(struct rng *rng, struct route_rig *rig)
{
    static const double loads[] = { -1, 0, 1e9, (double)NAN, (double)INFINITY };
    rig->view.instance_count = (uint32_t)rng_below(rng, ROUTE_RIG_INSTANCES + 1);
    uint32_t id = (uint32_t)rng_below(rng, ROUTE_INSTANCES_MAX / ROUTE_RIG_INSTANCES);
    for (uint32_t i = 0; i < rig->view.instance_count; i++) {
        rig->in[i] = wild_instance(rng, id);
        id += 1 + (uint32_t)rng_below(rng, ROUTE_INSTANCES_MAX / ROUTE_RIG_INSTANCES - 1);
    }
    rig->view.has_load = rng_below(rng, 3) > 0;
    rig->view.load = rng_below(rng, 4) ? rng_f64(rng) : loads[rng_below(rng, COUNT_OF(loads))];
    rig->view.link_bytes_s = rng_below(rng, 2) ? 0 : 1 + rng_f64(rng) * 1e10;
    rig->view.kv_bytes_per_token = (uint32_t)wild(rng, 1 << 17, UINT32_MAX);
    rig->req = (struct route_req){ .prompt_tokens = 1 + (uint32_t)wild(rng, 4000, UINT32_MAX - 1),
                                   .prefix_hash = rng_below(rng, 8),
                                   .tenant = wild(rng, 5, UINT64_MAX),
                                   .output_mean = wild_length(rng),
                                   .output_p50 = wild_length(rng),
                                   .output_p90 = wild_length(rng),
                                   .slo_ttft_s = rng_below(rng, 2) ? 0 : rng_f64(rng) * 4,
                                   .slo_tpot_s = rng_below(rng, 2) ? 0 : rng_f64(rng) * 0.1 };
    /* The clock is set back now and then. */
    rig->now_us += (int64_t)wild(rng, 3000000, 1ull << 50);
    if (rng_below(rng, 10) == 0) rig->now_us = (int64_t)rng_below(rng, 1ull << 40);
}

static double wild_seconds(struct rng *rng)
{
    static const double odd[] = { -1, 0, 1e6, (double)NAN, (double)INFINITY };
    return rng_below(rng, 8) ? rng_f64(rng) * 3 : odd[rng_below(rng, COUNT_OF(odd))];
}

static void wild_outcome(struct rng *rng, struct route_rig *rig, const struct route_verdict *v)
{
    struct route_event ev = { .instance_id = v->instance_id,
                              .tenant = rig->req.tenant,
                              .prompt_tokens = rig->req.prompt_tokens,
                              .hit_tokens = (uint32_t)wild(rng, 4000, UINT32_MAX),
                              .generated = (uint32_t)wild(rng, 1000, UINT32_MAX),
                              .ttft_s = wild_seconds(rng),
                              .tpot_s = wild_seconds(rng) / 30,
                              .work_s = wild_seconds(rng),
                              .at_us = rig->now_us };
    memcpy(ev.scratch, v->scratch, sizeof ev.scratch);
    for (ev.kind = ROUTE_SENT; ev.kind < ROUTE_EVENT_COUNT; ev.kind++)
        route_rig_tell(rig, &ev);
}

static const struct route_instance *by_id(const struct route_rig *rig, uint32_t id)
{
    for (uint32_t i = 0; i < rig->view.instance_count; i++) {
        if (rig->in[i].id == id) return &rig->in[i];
    }
    return NULL;
}

static bool is_nobody_or_takes(const struct route_rig *rig, uint32_t id)
{
    const struct route_instance *in = by_id(rig, id);
    return id == ROUTE_NONE || (in && route_takes(in));
}

static bool fetch_is_sound(const struct route_rig *rig, const struct route_verdict *v)
{
    if (v->fetch_from_id == ROUTE_NONE) return v->fetch_tokens == 0;
    const struct route_instance *from = by_id(rig, v->fetch_from_id);
    return from && from->accepts && v->fetch_from_id != v->instance_id && v->fetch_tokens > 0 &&
           v->fetch_tokens <= route_hit_tokens(from, &rig->req);
}

/* Checks that no instance is named only where none accepts, or where the policy refuses a request
 * with an SLO. */
static void check(const struct route_rig *rig, const struct route_verdict *v)
{
    const char *name = rig->policy->name;
    bool some = false, promised = rig->req.slo_ttft_s > 0 || rig->req.slo_tpot_s > 0;
    for (uint32_t i = 0; i < rig->view.instance_count; i++)
        some |= route_takes(&rig->in[i]);
    if (!is_nobody_or_takes(rig, v->instance_id)) fail_msg("%s names %u", name, v->instance_id);
    if (v->reject && (v->instance_id != ROUTE_NONE || !promised || !(v->retry_after_s > 0))) {
        fail_msg("%s refuses without a reason", name);
    }
    if (some && v->instance_id == ROUTE_NONE && !v->reject) fail_msg("%s starves one", name);
    if (!is_nobody_or_takes(rig, v->runner_up_id)) fail_msg("%s: runner-up", name);
    if (v->instance_id != ROUTE_NONE && v->runner_up_id == v->instance_id) {
        fail_msg("%s comes second to itself", name);
    }
    if (isnan(v->estimate_s) || isnan(v->runner_up_s)) fail_msg("%s: no number", name);
    if (!fetch_is_sound(rig, v)) fail_msg("%s fetches from %u", name, v->fetch_from_id);
    const struct route_instance *decodes = by_id(rig, v->decode_id);
    if (v->decode_id != ROUTE_NONE && (!decodes || !decodes->accepts)) {
        fail_msg("%s: decode at %u", name, v->decode_id);
    }
}

static bool alike(const struct route_verdict *a, const struct route_verdict *b)
{
    return a->instance_id == b->instance_id && a->runner_up_id == b->runner_up_id &&
           a->estimate_s == b->estimate_s && a->fetch_from_id == b->fetch_from_id &&
           a->fetch_tokens == b->fetch_tokens && a->decode_id == b->decode_id &&
           a->reject == b->reject && memcmp(a->scratch, b->scratch, sizeof a->scratch) == 0;
}

static void every_row_stands_what_chance_shows_it(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < route_count; p++) {
        struct route_rig rig;
        struct rng rng;
        route_rig_init(&rig, route_table[p]->name, 0);
        rng_seed(&rng, 100 + p);
        for (uint32_t i = 0; i < VIEWS; i++) {
            wild_view(&rng, &rig);
            struct route_rig twin = rig; /* only the bytes of the state count */
            twin.view.instance = twin.in;
            struct route_verdict v = route_rig_ask(&rig), w = route_rig_ask(&twin);
            check(&rig, &v);
            if (!alike(&v, &w)) fail_msg("%s: a copy answers otherwise", rig.policy->name);
            assert_memory_equal(rig.state, twin.state, rig.policy->state_size);
            if (v.instance_id != ROUTE_NONE) wild_outcome(&rng, &rig, &v);
        }
    }
}

/* Makes all hits and queues different, because chance decides between equal ones. */
static void distinct_view(struct rng *rng, struct route_rig *rig)
{
    for (uint32_t i = 0; i < ROUTE_RIG_INSTANCES; i++) {
        struct route_instance *in = &rig->in[i];
        *in = wild_instance(rng, 7 * i + 3);
        in->in_flight = 6 * (uint32_t)rng_below(rng, 20) + i;
        in->waiting = 6 * (uint32_t)rng_below(rng, in->in_flight / 6 + 1);
        in->decoding = in->in_flight - in->waiting;
        in->hit_tokens = 6 * (uint32_t)rng_below(rng, 300) + i;
        in->prefill_tokens = 6 * rng_below(rng, 3000) + i;
        in->active_tokens = in->kv_tokens = 6 * rng_below(rng, 10000) + i;
    }
    rig->view.instance_count = ROUTE_RIG_INSTANCES;
    rig->req = (struct route_req){ .prompt_tokens = 2000,
                                   .prefix_hash = rng_below(rng, 1000),
                                   .tenant = rng_below(rng, 3),
                                   .output_mean = 1 + rng_f64(rng) * 500,
                                   .output_p50 = 100,
                                   .output_p90 = 300 };
    rig->now_us += (int64_t)rng_below(rng, 1000000);
}

static void the_order_of_a_view_is_of_no_consequence(void **state)
{
    (void)state;
    static const char *const drawn[] = { "random", "power_of_two", "tetri_p2c", "learned_latency" };
    for (uint32_t p = 0; p < route_count; p++) {
        bool draws = false;
        for (uint32_t i = 0; i < COUNT_OF(drawn); i++)
            draws |= strcmp(route_table[p]->name, drawn[i]) == 0;
        if (draws) continue;
        struct route_rig rig;
        struct rng rng;
        route_rig_init(&rig, route_table[p]->name, ROUTE_RIG_INSTANCES);
        rng_seed(&rng, 200 + p);
        for (uint32_t i = 0; i < VIEWS / 3; i++) {
            distinct_view(&rng, &rig);
            struct route_rig turned = rig;
            turned.view.instance = turned.in;
            for (uint32_t k = 0; k < ROUTE_RIG_INSTANCES; k++)
                turned.in[k] = rig.in[(k + 1 + i) % ROUTE_RIG_INSTANCES];
            struct route_verdict v = route_rig_ask(&rig), w = route_rig_ask(&turned);
            if (v.instance_id != w.instance_id) fail_msg("%s: view %u", rig.policy->name, i);
        }
    }
}

/* A tenant with the largest possible debt is served at once, and shared fairly again after as many
 * quanta as the debt may hold. */
static void no_debt_keeps_d2lpm_from_placing(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "d2lpm", 2);
    struct route_event ev = { .kind = ROUTE_FINISHED, .tenant = 1, .generated = UINT32_MAX };
    for (uint32_t i = 0; i < 20; i++) {
        ev.instance_id = i % 2;
        route_rig_tell(&rig, &ev);
    }
    in[0].hit_tokens = 900;
    ASSERT_ROUTED(&rig, 0);
    ev = (struct route_event){ .kind = ROUTE_SENT, .tenant = 1, .prompt_tokens = 20000 };
    route_rig_tell(&rig, &ev);
    ASSERT_ROUTED(&rig, 1);
}

/* After the clock was set back an hour the memory is not frozen for that hour, nor does what was
 * noted before grow. */
static void preble_outlives_a_clock_that_is_set_back(void **state)
{
    (void)state;
    struct route_rig rig;
    struct route_instance *in = route_rig_init(&rig, "preble", 2);
    in[1].accepts = false;
    rig.now_us = 3600 * 1000000LL;
    ASSERT_ROUTED(&rig, 0); /* a second of prefill is noted */
    in[1].accepts = true;
    rig.now_us = 0;
    in[1].output_left = 90; /* .9 s of decode against that second, not against e^20 seconds */
    ASSERT_ROUTED(&rig, 1);
    in[1].output_left = 500;
    ASSERT_ROUTED(&rig, 0);
}

static int route_properties_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_stands_what_chance_shows_it),
        cmocka_unit_test(the_order_of_a_view_is_of_no_consequence),
        cmocka_unit_test(no_debt_keeps_d2lpm_from_placing),
        cmocka_unit_test(preble_outlives_a_clock_that_is_set_back),
    };
    return cmocka_run_group_tests_name("route_properties", tests, NULL, NULL);
}

int main(void)
{
    return route_state_tests() + route_properties_tests();
}

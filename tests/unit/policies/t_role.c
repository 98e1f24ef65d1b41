/* t_role.c - tests roles of prefill and decode: the closed form, and every policy on small
 * fleets. */
#include "base/core/bits.h"
#include "policies/role/role.h"
#include "policies/route/pd_handoff.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define ROLE_RIG_FLEET 4
#define SECOND ((int64_t)1000000)

struct role_fleet {
    struct role_instance instance[64];
    struct role_view view;
};

/* Returns about an A100 with a 13B model: 25 ms a step, 4 ms for a hundred prompt tokens. */
static struct role_instance role_rig_instance(uint32_t id)
{
    return (struct role_instance){
        .id = id,
        .ready = true,
        .has_perf = true,
        .perf = { .step_s = 0.016,
                  .prefill_token_s = 1.1e-4,
                  .decode_seq_s = 1e-4,
                  .kv_read_s = 4.5e-7,
                  .attend_s = 1e-8 },
        .token_budget = 2048,
        .seqs_max = 256,
        .kv_tokens_max = 200000,
    };
}

/* Fills the caller's `f` with `count` such instances and a demand of 1000 prompt and 200 output
 * tokens. */
static struct role_view *role_rig_fleet(struct role_fleet *f, uint32_t count)
{
    memset(f, 0, sizeof *f);
    for (uint32_t i = 0; i < count; i++)
        f->instance[i] = role_rig_instance(i);
    f->view = (struct role_view){
        .instance = f->instance,
        .instance_count = count,
        .demand = { .present = true,
                    .prompt_mean = 1000,
                    .prompt_m2 = 2e6,
                    .output_mean = 200,
                    .output_m2 = 7e4 },
        .ttft_slo_s = 2,
        .tpot_slo_s = 0.1,
        .attainment = 0.9,
        .link_bytes_s = 25e9,
        .token_bytes = 819200,
        .evaluator = &role_closed_form,
    };
    return &f->view;
}

/* Returns the verdict of the policy with this name; `state` NULL: an empty one. */
static struct role_verdict role_rig_decide(const char *name, const struct role_view *view,
                                           void *state)
{
    static _Alignas(8) unsigned char zero[ROLE_STATE_BYTES_MAX];
    struct role_verdict v;
    struct rng rng;
    rng_seed(&rng, 1);
    const struct role_policy *p = role_find(str_from(name));
    assert_non_null(p);
    memset(zero, 0, sizeof zero);
    memset(&v, 0x5a, sizeof v);
    role_decide(p, state ? state : zero, view, 1000, &rng, &v);
    return v;
}

static uint32_t role_rig_count(const struct role_view *view, const struct role_verdict *v,
                               enum role role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->instance_count; i++)
        n += v->role[i] == role;
    return n;
}

/* Returns the goodput with the first `prefill` instances in the order of roles for prefill and
 * `decode` for decode; the rest do both. */
static double role_rig_goodput(const struct role_view *view, uint32_t prefill, uint32_t decode)
{
    enum role role[ROLE_INSTANCES_MAX];
    uint32_t order[ROLE_INSTANCES_MAX], count = role_order(view, order);
    role_assign(view, order, count, prefill, decode, role);
    return view->evaluator->goodput_rps(view->evaluator->ctx, view, role);
}

/* ---- what every role policy keeps to ---- */

/* ---- the closed form ---- */

static void goodput_moves_the_right_way(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, ROLE_RIG_FLEET);
    double together = role_rig_goodput(v, 0, 0), split = role_rig_goodput(v, 2, 2);
    assert_true(together > 0.5 && together < 40 && split > 0.1);
    assert_true(role_rig_goodput(v, 0, 4) == 0 &&
                role_rig_goodput(v, 4, 0) == 0); /* one phase alone serves no request */

    v->ttft_slo_s = 0.4;
    assert_true(role_rig_goodput(v, 0, 0) < together && role_rig_goodput(v, 2, 2) < split);
    v->ttft_slo_s = 2, v->tpot_slo_s = 0.05;
    assert_true(role_rig_goodput(v, 0, 0) < together && role_rig_goodput(v, 2, 2) < split);
    v->tpot_slo_s = 0.01; /* less than an empty step takes */
    assert_true(role_rig_goodput(v, 0, 0) == 0 && role_rig_goodput(v, 1, 3) == 0);
    v->tpot_slo_s = 0.1;
    v->attainment = 0.99;
    assert_true(role_rig_goodput(v, 0, 0) < together);
    v->attainment = 0.9;
    v->demand.prompt_m2 = 8e6; /* as long on average, but with more variance */
    assert_true(role_rig_goodput(v, 0, 0) < together);
    v->demand.prompt_m2 = 2e6;
    v->link_bytes_s = 0;
    assert_true(role_rig_goodput(v, 0, 0) == together && role_rig_goodput(v, 1, 3) == 0);
    v->link_bytes_s = 25e9;
    f.instance[0].perf.prefill_token_s *= 2;
    assert_true(role_rig_goodput(v, 0, 0) < together);
    f.instance[0].ready = false;
    assert_true(fabs(role_rig_goodput(v, 0, 0) - together * 3 / 4) < 1e-6);
}

/* A decode instance alone, by hand: B = rate out a / (1 - rate out (c + d ctx)), and the step at B
 * + 1.28 sqrt(B) takes the TPOT. */
static void the_decode_rate_is_the_formulas(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, 1);
    const struct perf_coef *p = &f.instance[0].perf;
    v->tpot_slo_s = 0.05;
    v->link_bytes_s = 1e15;
    double rate = role_decode_rps(v, &f.instance[0]);
    double each = p->decode_seq_s + p->kv_read_s * (1000 + 7e4 / 400);
    double batch = rate * 200 * p->step_s / (1 - rate * 200 * each);
    assert_true(fabs(p->step_s + each * (batch + 1.2816 * sqrt(batch)) - 0.05) < 1e-4);
    f.instance[0].seqs_max = 8;
    assert_true(role_decode_rps(v, &f.instance[0]) < rate);
    f.instance[0].seqs_max = 256;
    f.instance[0].kv_tokens_max = 4000;
    assert_true(role_decode_rps(v, &f.instance[0]) < rate);
}

/* ---- policies ---- */

static void every_row_names_a_role_for_everybody(void **state)
{
    (void)state;
    struct role_fleet f;
    assert_non_null(role_find(STR(ROLE_DEFAULT)));
    for (uint32_t r = 0; r < role_count; r++) {
        assert_true(role_table[r]->state_size <= ROLE_STATE_BYTES_MAX);
        for (uint32_t count = 1; count <= 40; count += 3) {
            struct role_view *v = role_rig_fleet(&f, count);
            v->tpot_slo_s = 0.03;
            struct role_verdict a = role_rig_decide(role_table[r]->name, v, NULL);
            struct role_verdict b = role_rig_decide(role_table[r]->name, v, NULL);
            uint32_t n[ROLE_COUNT] = { role_rig_count(v, &a, ROLE_BOTH),
                                       role_rig_count(v, &a, ROLE_PREFILL),
                                       role_rig_count(v, &a, ROLE_DECODE) };
            assert_int_equal(n[0] + n[1] + n[2], count);
            assert_true(n[ROLE_PREFILL] == 0 || n[ROLE_DECODE] + n[ROLE_BOTH] > 0);
            assert_true(n[ROLE_DECODE] == 0 || n[ROLE_PREFILL] + n[ROLE_BOTH] > 0);
            assert_int_equal(a.changes, count - n[ROLE_BOTH]);
            assert_memory_equal(a.role, b.role, count * sizeof *a.role);
            assert_true(a.again_us > 1000 && a.reason);
        }
    }
}

static void what_cannot_change_does_not(void **state)
{
    (void)state;
    struct role_fleet f;
    for (uint32_t r = 0; r < role_count; r++) {
        struct role_view *v = role_rig_fleet(&f, 6);
        v->tpot_slo_s = 0.03;
        f.instance[1].ready = false;
        f.instance[1].role = ROLE_DECODE;
        f.instance[2].changing = true;
        f.instance[2].role = ROLE_PREFILL;
        f.instance[4].has_perf = false;
        struct role_verdict a = role_rig_decide(role_table[r]->name, v, NULL);
        assert_int_equal(a.role[1], ROLE_DECODE);
        assert_int_equal(a.role[2], ROLE_PREFILL);
        assert_int_equal(a.role[4], ROLE_BOTH);
        v->demand.present = false;
        if (role_table[r] == role_find(STR("colocated"))) continue; /* decides without demand too */
        a = role_rig_decide(role_table[r]->name, v, NULL);
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(a.role[i], f.instance[i].role);
        assert_int_equal(a.changes, 0);
    }
}

/* Pinned roles stay, whatever the policy chooses for the others. */
static void what_is_pinned_stays(void **state)
{
    (void)state;
    struct role_fleet f;
    for (uint32_t r = 0; r < role_count; r++) {
        struct role_view *v = role_rig_fleet(&f, 8);
        v->tpot_slo_s = 0.03;
        for (uint32_t i = 0; i < 4; i++) {
            f.instance[i].pinned = true;
            f.instance[i].role = i == 0 ? ROLE_PREFILL : ROLE_DECODE;
        }
        uint32_t order[ROLE_INSTANCES_MAX];
        assert_int_equal(role_order(v, order), 4);
        for (int look = 0; look < 3; look++) {
            struct role_verdict a = role_rig_decide(role_table[r]->name, v, NULL);
            for (uint32_t i = 0; i < 8; i++) {
                if (i < 4) assert_int_equal(a.role[i], f.instance[i].role);
                f.instance[i].role = a.role[i];
            }
        }
        /* Pinned instances alone are all of one phase, so they serve whole requests. */
        v->instance = &f.instance[1];
        v->instance_count = 3;
        struct role_verdict a = role_rig_decide(role_table[r]->name, v, NULL);
        assert_int_equal(role_rig_count(v, &a, ROLE_BOTH), 3);
    }
}

/* Without a policy too, a phase left without instances makes the others serve both, and they return
 * to their roles when it is back. */
static void held_roles_leave_no_phase_to_nobody(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_verdict a;
    struct role_view *v = role_rig_fleet(&f, 3);
    f.instance[0].role = ROLE_PREFILL;
    f.instance[1].role = f.instance[2].role = ROLE_DECODE;
    role_hold(v, "as they are", 1000, &a);
    assert_int_equal(a.changes, 0);
    assert_string_equal(a.reason, "as they are");
    f.instance[0].ready = false;
    role_hold(v, "as they are", 1000, &a);
    assert_int_equal(a.changes, 2);
    assert_int_equal(a.role[0], ROLE_PREFILL);
    assert_int_equal(a.role[1], ROLE_BOTH);
    assert_int_equal(a.role[2], ROLE_BOTH);
    f.instance[0].ready = true, f.instance[1].ready = f.instance[2].ready = false;
    role_hold(v, "as they are", 1000, &a);
    assert_int_equal(a.role[0], ROLE_BOTH);
    f.instance[2].ready = true;
    role_hold(v, "as they are", 1000, &a);
    assert_int_equal(a.changes, 0);
}

/* Looks are at least a second apart, and the state is kept between them. */
static void a_look_keeps_its_distance(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_look l = { .policy = role_find(STR("splitwise")) };
    struct role_view *v = role_rig_fleet(&f, 4);
    struct role_verdict a;
    rng_seed(&l.rng, 1);
    role_look(&l, v, 5 * SECOND, &a);
    assert_true(l.again_us >= 6 * SECOND);
    assert_int_equal(role_rig_count(v, &a, ROLE_BOTH), 0);
    static const unsigned char zero[ROLE_STATE_BYTES_MAX];
    assert_memory_not_equal(l.state, zero, l.policy->state_size);
}

/* A loss leaves only instances of one phase, with demand or without: some take the other phase. */
static void nobody_is_left_for_the_other_phase(void **state)
{
    (void)state;
    struct role_fleet f;
    for (uint32_t r = 0; r < role_count; r++) {
        for (int only = ROLE_PREFILL; only <= ROLE_DECODE; only++) {
            struct role_view *v = role_rig_fleet(&f, 4);
            for (uint32_t i = 0; i < 4; i++)
                f.instance[i].role = (enum role)only;
            f.instance[0].ready = false; /* it starts, so it serves nothing yet */
            f.instance[0].role = only == ROLE_DECODE ? ROLE_PREFILL : ROLE_DECODE;
            v->demand.present = false;
            struct role_verdict a = role_rig_decide(role_table[r]->name, v, NULL);
            assert_int_equal(role_rig_count(v, &a, ROLE_BOTH), 3);
            assert_int_equal(a.changes, 3);
            v->demand.present = true;
            a = role_rig_decide(role_table[r]->name, v, NULL);
            assert_true(role_rig_count(v, &a, (enum role)only) < 3);
        }
    }
}

/* Neighbours in this chain of speeds are a few per cent apart, its ends are not. */
static void the_order_is_not_the_views(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, 7);
    uint32_t order[ROLE_INSTANCES_MAX], first[7];
    static const uint32_t mixed[7] = { 3, 6, 0, 5, 2, 4, 1 };
    for (uint32_t i = 0; i < 7; i++) {
        f.instance[i].perf.prefill_token_s *= 1 + 0.03 * i;
        f.instance[i].role = i % 2 ? ROLE_PREFILL : ROLE_DECODE;
    }
    assert_int_equal(role_order(v, order), 7);
    for (uint32_t i = 0; i < 7; i++)
        first[i] = f.instance[order[i]].id;
    struct role_instance was[7];
    memcpy(was, f.instance, sizeof was);
    for (uint32_t i = 0; i < 7; i++)
        f.instance[i] = was[mixed[i]];
    assert_int_equal(role_order(v, order), 7);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(f.instance[order[i]].id, first[i]);
    assert_int_equal(first[0], 1); /* as good as the best, and a prefill instance already */
}

/* ---- the decode instance after a prefill instance: the one whose step slows the least ---- */

static void the_least_slowed_goes_on(void **state)
{
    (void)state;
    struct route_instance in[3] = { 0 };
    for (uint32_t i = 0; i < 3; i++) {
        in[i] =
            (struct route_instance){ .id = i, .accepts = true, .has_perf = true, .seqs_max = 8 };
        in[i].perf = role_rig_instance(i).perf;
        in[i].in_flight = 4;
        in[i].kv_tokens = 8000;
    }
    struct route_view view = { .instance = in, .instance_count = 3 };
    const struct route_req req = { .prompt_tokens = 1000 };
    struct rng rng;
    rng_seed(&rng, 1);
    in[1].kv_tokens = 4000;
    assert_int_equal(handoff_pick(&view, &req, &rng), 1);
    in[1].in_flight = 8; /* no slot */
    in[2].perf.step_s *= 0.5;
    assert_int_equal(handoff_pick(&view, &req, &rng), 2);
    in[2].accepts = false;
    assert_int_equal(handoff_pick(&view, &req, &rng), 0);
    in[0].in_flight = 8; /* no slots anywhere: still the least slowed */
    assert_int_equal(handoff_pick(&view, &req, &rng), 1);
    in[0].accepts = in[1].accepts = false;
    assert_int_equal(handoff_pick(&view, &req, &rng), ROUTE_NONE);
}

static int role_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodput_moves_the_right_way),
        cmocka_unit_test(the_decode_rate_is_the_formulas),
        cmocka_unit_test(every_row_names_a_role_for_everybody),
        cmocka_unit_test(what_cannot_change_does_not),
        cmocka_unit_test(what_is_pinned_stays),
        cmocka_unit_test(held_roles_leave_no_phase_to_nobody),
        cmocka_unit_test(a_look_keeps_its_distance),
        cmocka_unit_test(nobody_is_left_for_the_other_phase),
        cmocka_unit_test(the_order_is_not_the_views),
        cmocka_unit_test(the_least_slowed_goes_on),
    };
    return cmocka_run_group_tests_name("role", tests, NULL, NULL);
}

/* ---- each role policy's verdict on a fleet ---- */

/* With one possible choice there is no runner-up. */
static void the_planners_runner_up_is_another(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, 1);
    assert_true(role_rig_decide("planner", v, NULL).runner_up_rps < 0);
}

/* The planner's goodput is below the best of all choices by no more than its margin. */
static void the_planner_finds_the_best_split(void **state)
{
    (void)state;
    struct role_fleet f;
    static const double slo[][2] = { { 1, 0.1 },  { 2, 0.04 }, { 0.5, 0.03 },
                                     { 4, 0.05 }, { 1, 0.2 },  { 2, 0.025 } };
    uint32_t splits = 0;
    for (size_t i = 0; i < COUNT_OF(slo); i++) {
        struct role_view *v = role_rig_fleet(&f, ROLE_RIG_FLEET);
        v->ttft_slo_s = slo[i][0], v->tpot_slo_s = slo[i][1];
        struct role_verdict got = role_rig_decide("planner", v, NULL);
        double best = role_rig_goodput(v, 0, 0);
        for (uint32_t p = 1; p < ROLE_RIG_FLEET; p++)
            best = fmax(best, role_rig_goodput(v, p, ROLE_RIG_FLEET - p));
        assert_true(got.goodput_rps * 1.05 >= best);
        assert_true(got.goodput_rps >= role_rig_goodput(v, 0, 0));
        splits += role_rig_count(v, &got, ROLE_PREFILL) > 0;
    }
    assert_true(splits > 0 && splits < COUNT_OF(slo)); /* some cases split and some do not */
}

static void the_planner_stays_where_it_is_near_the_best(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, ROLE_RIG_FLEET);
    v->tpot_slo_s = 0.025;
    struct role_verdict first = role_rig_decide("planner", v, NULL);
    assert_true(first.changes > 0);
    for (uint32_t i = 0; i < ROLE_RIG_FLEET; i++)
        f.instance[i].role = first.role[i];
    struct role_verdict again = role_rig_decide("planner", v, NULL);
    assert_true(again.runner_up_rps >= 0); /* that of another choice */
    assert_true(again.runner_up_rps < again.goodput_rps);
    v->demand.prompt_mean *= 1.03;
    assert_int_equal(role_rig_decide("planner", v, NULL).changes, 0);
    v->tpot_slo_s = 0.2; /* disaggregation is no longer needed */
    struct role_verdict back = role_rig_decide("planner", v, NULL);
    assert_int_equal(role_rig_count(v, &back, ROLE_BOTH), ROLE_RIG_FLEET);
}

static void distserve_matches_the_phases(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, 8);
    v->tpot_slo_s = 0.04;
    struct role_verdict got = role_rig_decide("distserve", v, NULL);
    uint32_t prefill = role_rig_count(v, &got, ROLE_PREFILL);
    assert_int_equal(prefill + role_rig_count(v, &got, ROLE_DECODE), 8);
    for (uint32_t p = 1; p < 8; p++)
        assert_true(got.goodput_rps >= role_rig_goodput(v, p, 8 - p) * 0.999);
    v->link_bytes_s = 1e8; /* eight seconds for a prompt's KV */
    got = role_rig_decide("distserve", v, NULL);
    assert_int_equal(role_rig_count(v, &got, ROLE_BOTH), 8);
}

/* n_p mu_p = n_d mu_d holds within one instance, and a split fleet changes one at a time. */
static void pd_serve_keeps_the_ratio(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, 20);
    struct role_verdict got = role_rig_decide("pd_serve", v, NULL);
    uint32_t prefill = role_rig_count(v, &got, ROLE_PREFILL);
    assert_true(prefill > 1 && prefill < 19);
    v->demand.output_mean = 40, v->demand.output_m2 = 3e3;
    struct role_verdict fresh = role_rig_decide("pd_serve", v, NULL);
    assert_true(role_rig_count(v, &fresh, ROLE_PREFILL) > prefill + 1);
    for (uint32_t i = 0; i < 20; i++)
        f.instance[i].role = got.role[i];
    got = role_rig_decide("pd_serve", v, NULL);
    assert_int_equal(role_rig_count(v, &got, ROLE_PREFILL), prefill + 1);
    assert_int_equal(got.changes, 1);
}

/* The pools follow longer outputs, one machine a minute; the policy's knowledge is in its bytes. */
static void splitwise_sizes_its_pools_anew(void **state)
{
    (void)state;
    struct role_fleet f;
    const struct role_policy *p = role_find(STR("splitwise"));
    _Alignas(8) unsigned char bytes[ROLE_STATE_BYTES_MAX] = { 0 };
    struct role_view *v = role_rig_fleet(&f, 8);
    struct role_verdict got;
    struct rng rng;
    rng_seed(&rng, 1);
    v->demand.output_mean = 20;
    role_decide(p, bytes, v, SECOND, &rng, &got);
    uint32_t first = role_rig_count(v, &got, ROLE_DECODE), now = first;
    v->demand.output_mean = 400;
    for (int64_t at = 2; at <= 200; at++) {
        for (uint32_t i = 0; i < 8; i++)
            f.instance[i].role = got.role[i];
        role_decide(p, bytes, v, at * SECOND, &rng, &got);
        now = role_rig_count(v, &got, ROLE_DECODE);
        assert_int_equal(now, first + (uint32_t)((at - 1) / 60));
    }
    assert_int_equal(now, first + 3);
    role_decide(p, bytes, v, SECOND, &rng, &got); /* the clock is set back: a minute from there */
    assert_int_equal(got.changes, 0);
}

static void splitwise_borrows_and_gives_back(void **state)
{
    (void)state;
    struct role_fleet f;
    _Alignas(8) unsigned char bytes[ROLE_STATE_BYTES_MAX] = { 0 }, copy[ROLE_STATE_BYTES_MAX];
    struct role_view *v = role_rig_fleet(&f, 6);
    struct role_verdict got = role_rig_decide("splitwise", v, bytes);
    assert_int_equal(role_rig_count(v, &got, ROLE_BOTH), 0);
    for (uint32_t i = 0; i < 6; i++) {
        f.instance[i].role = got.role[i];
        f.instance[i].decode_pending = got.role[i] == ROLE_DECODE ? 1000 + i : 0;
    }
    assert_int_equal(role_rig_decide("splitwise", v, bytes).changes, 0);
    for (uint32_t i = 0; i < 6; i++)
        f.instance[i].prompt_pending = got.role[i] == ROLE_PREFILL ? 8193 : 0;
    memcpy(copy, bytes, sizeof copy);
    got = role_rig_decide("splitwise", v, bytes);
    assert_int_equal(got.changes, 1);
    uint32_t lent = 0;
    while (got.role[lent] != ROLE_BOTH)
        lent++;
    for (uint32_t i = 0; i < 6; i++) /* the decode machine with the least work */
        assert_true(f.instance[i].role != ROLE_DECODE ||
                    f.instance[i].decode_pending >= f.instance[lent].decode_pending);
    struct role_verdict again = role_rig_decide("splitwise", v, copy); /* the state is its bytes */
    assert_memory_equal(again.role, got.role, 6 * sizeof *got.role);

    f.instance[lent].role = ROLE_BOTH;
    f.instance[lent].prompt_pending = 500;
    for (uint32_t i = 0; i < 6; i++)
        if (f.instance[i].role == ROLE_PREFILL) f.instance[i].prompt_pending = 100;
    got = role_rig_decide("splitwise", v, bytes);
    assert_int_equal(got.role[lent], ROLE_BOTH); /* it still has a prompt */
    f.instance[lent].prompt_pending = 0;
    got = role_rig_decide("splitwise", v, bytes);
    assert_int_equal(got.role[lent], ROLE_DECODE);

    f.instance[lent].role = ROLE_DECODE;
    for (uint32_t i = 0; i < 6; i++) {
        if (f.instance[i].role == ROLE_DECODE)
            f.instance[i].decode_pending = f.instance[i].kv_tokens_max - 2000;
    }
    got = role_rig_decide("splitwise", v, bytes);
    assert_int_equal(got.changes, 1);
    assert_int_equal(role_rig_count(v, &got, ROLE_BOTH), 1);

    for (uint32_t i = 0; i < 6; i++) /* the prompt pool is lost: the others are split again */
        if (f.instance[i].role == ROLE_PREFILL) f.instance[i].ready = false;
    got = role_rig_decide("splitwise", v, bytes);
    uint32_t prompts = 0, tokens = 0;
    for (uint32_t i = 0; i < 6; i++) {
        prompts += f.instance[i].ready && got.role[i] == ROLE_PREFILL;
        tokens += f.instance[i].ready && got.role[i] == ROLE_DECODE;
    }
    assert_true(prompts > 0 && tokens > 0);
}

static void dynamo_trades_when_one_asks_and_the_other_allows(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        double prompts[2]; /* pending prefill in mean prompts, by prefill instance */
        double used[2];    /* used KV, by decode instance */
        bool changing;
        int prefill; /* change in prefill instances */
    } rows[] = {
        { "nothing to do", { 0.5, 0.5 }, { 0.7, 0.7 }, false, 0 },
        { "prompts wait, decoding has room", { 1.0, 0 }, { 0.5, 0.1 }, false, 1 },
        { "prompts wait, decoding is busy", { 3, 3 }, { 0.5, 0.7 }, false, 0 },
        { "decoding is full, prompts are few", { 0, 0.05 }, { 1.2, 0.4 }, false, -1 },
        { "decoding is full, prompts are not few", { 0, 0.2 }, { 1.2, 1.2 }, false, 0 },
        { "while something changes", { 2, 2 }, { 0, 0 }, true, 0 },
    };
    struct role_fleet f;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct role_view *v = role_rig_fleet(&f, 4);
        for (uint32_t k = 0; k < 4; k++) {
            f.instance[k].role = k < 2 ? ROLE_PREFILL : ROLE_DECODE;
            if (k < 2) f.instance[k].prompt_pending = (uint64_t)(rows[i].prompts[k] * 1000);
            if (k >= 2) f.instance[k].decode_pending = (uint64_t)(rows[i].used[k - 2] * 200000);
        }
        f.instance[3].changing = rows[i].changing;
        struct role_verdict got = role_rig_decide("dynamo_pd", v, NULL);
        int more = (int)role_rig_count(v, &got, ROLE_PREFILL) - 2;
        if (more != rows[i].prefill) fail_msg("%s: %d more", rows[i].why, more);
        assert_int_equal(got.again_us, 1000 + 5 * SECOND);
    }
}

/* On unlike machines the verdict is near the best of all choices of phases. */
static void thunderserve_is_near_the_best_of_all_phases(void **state)
{
    (void)state;
    uint32_t found = 0;
    struct role_fleet f;
    struct rng rng;
    rng_seed(&rng, 9);
    for (uint32_t round = 0; round < 30; round++) {
        struct role_view *v = role_rig_fleet(&f, 6);
        v->tpot_slo_s = 0.06;
        for (uint32_t i = 0; i < 6; i++) {
            double compute = 0.5 + rng_f64(&rng) * 2, memory = 0.5 + rng_f64(&rng) * 2;
            f.instance[i].perf.prefill_token_s *= compute;
            f.instance[i].perf.step_s *= memory;
            f.instance[i].perf.kv_read_s *= memory;
            f.instance[i].role = i < 3 ? ROLE_PREFILL : ROLE_DECODE;
        }
        struct role_verdict got = role_rig_decide("thunderserve", v, NULL);
        double best = 0;
        for (uint32_t mask = 1; mask < 63; mask++) {
            enum role role[6];
            for (uint32_t i = 0; i < 6; i++)
                role[i] = mask >> i & 1 ? ROLE_PREFILL : ROLE_DECODE;
            best = fmax(best, v->evaluator->goodput_rps(NULL, v, role));
        }
        if (got.goodput_rps < best * 0.95) fail_msg("%g of %g", got.goodput_rps, best);
        found += got.goodput_rps >= best / 1.021;          /* or too near to change a role for */
        assert_true(got.goodput_rps >= got.runner_up_rps); /* the choice it came from */
    }
    assert_true(found >= 27); /* of 30 */
}

static int role_rows_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_planners_runner_up_is_another),
        cmocka_unit_test(the_planner_finds_the_best_split),
        cmocka_unit_test(the_planner_stays_where_it_is_near_the_best),
        cmocka_unit_test(distserve_matches_the_phases),
        cmocka_unit_test(pd_serve_keeps_the_ratio),
        cmocka_unit_test(splitwise_sizes_its_pools_anew),
        cmocka_unit_test(splitwise_borrows_and_gives_back),
        cmocka_unit_test(dynamo_trades_when_one_asks_and_the_other_allows),
        cmocka_unit_test(thunderserve_is_near_the_best_of_all_phases),
    };
    return cmocka_run_group_tests_name("role_rows", tests, NULL, NULL);
}

int main(void)
{
    return role_tests() + role_rows_tests();
}

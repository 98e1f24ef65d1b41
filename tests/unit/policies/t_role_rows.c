/* t_role_rows.c - what each row of roles makes of a fleet. */
#include "base/core/bits.h"
#include "tests/unit/policies/role_rig.h"

#include <math.h>
#include <string.h>

/* Nobody is next best where there was one choice. */
static void the_planners_runner_up_is_another(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, 1);
    assert_true(role_rig_decide("planner", v, NULL).runner_up_rps < 0);
}

/* The planner is never below the best of all choices by more than its margin. */
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
    assert_true(splits > 0 && splits < COUNT_OF(slo)); /* an outcome, not a setting */
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
    assert_true(again.runner_up_rps >= 0); /* of another choice than the one that stays */
    assert_true(again.runner_up_rps < again.goodput_rps);
    v->demand.prompt_mean *= 1.03;
    assert_int_equal(role_rig_decide("planner", v, NULL).changes, 0);
    v->tpot_slo_s = 0.2; /* no need to part them any more */
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
    v->link_bytes_s = 1e8; /* eight seconds a prompt */
    got = role_rig_decide("distserve", v, NULL);
    assert_int_equal(role_rig_count(v, &got, ROLE_BOTH), 8);
}

/* n_p mu_p = n_d mu_d within one instance, and a split fleet moves one at a time. */
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

/* What outputs grow to is followed, one machine a minute; what the row knows is in its bytes. */
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
    for (uint32_t i = 0; i < 6; i++) /* the token machine with the least */
        assert_true(f.instance[i].role != ROLE_DECODE ||
                    f.instance[i].decode_pending >= f.instance[lent].decode_pending);
    struct role_verdict again = role_rig_decide("splitwise", v, copy); /* the state is its bytes */
    assert_memory_equal(again.role, got.role, 6 * sizeof *got.role);

    f.instance[lent].role = ROLE_BOTH;
    f.instance[lent].prompt_pending = 500;
    for (uint32_t i = 0; i < 6; i++)
        if (f.instance[i].role == ROLE_PREFILL) f.instance[i].prompt_pending = 100;
    got = role_rig_decide("splitwise", v, bytes);
    assert_int_equal(got.role[lent], ROLE_BOTH); /* a prompt is left there */
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

    for (uint32_t i = 0; i < 6; i++) /* the prompt pool is lost: the rest is parted anew */
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
        double prompts[2]; /* pending, in mean prompts, of the prefill instances */
        double used[2];    /* of the decode instances' KV */
        bool changing;
        int prefill; /* how many more */
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

/* Unlike machines: against every choice of phases, one by one. */
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
        found += got.goodput_rps >= best / 1.021;          /* or too little to flip for */
        assert_true(got.goodput_rps >= got.runner_up_rps); /* where it came from */
    }
    assert_true(found >= 27); /* of 30 */
}

int main(void)
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}

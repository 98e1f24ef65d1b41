/* t_role.c - the closed form, and what every row of roles keeps to. */
#include "policies/route/pd_handoff.h"
#include "tests/unit/policies/role_rig.h"

#include <math.h>
#include <string.h>

/* ---- the closed form ---- */

static void goodput_moves_the_right_way(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_view *v = role_rig_fleet(&f, ROLE_RIG_FLEET);
    double together = role_rig_goodput(v, 0, 0), split = role_rig_goodput(v, 2, 2);
    assert_true(together > 0.5 && together < 40 && split > 0.1);
    assert_true(role_rig_goodput(v, 0, 4) == 0 &&
                role_rig_goodput(v, 4, 0) == 0); /* one phase alone answers nothing */

    v->ttft_slo_s = 0.4;
    assert_true(role_rig_goodput(v, 0, 0) < together && role_rig_goodput(v, 2, 2) < split);
    v->ttft_slo_s = 2, v->tpot_slo_s = 0.05;
    assert_true(role_rig_goodput(v, 0, 0) < together && role_rig_goodput(v, 2, 2) < split);
    v->tpot_slo_s = 0.01; /* less than an empty step */
    assert_true(role_rig_goodput(v, 0, 0) == 0 && role_rig_goodput(v, 1, 3) == 0);
    v->tpot_slo_s = 0.1;
    v->attainment = 0.99;
    assert_true(role_rig_goodput(v, 0, 0) < together);
    v->attainment = 0.9;
    v->demand.prompt_m2 = 8e6; /* as long on average, but unequal */
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

/* A decode instance alone, by hand: B = rate out a / (1 - rate out (c + d ctx)), and the step at
 * B + 1.28 sqrt(B) is the TPOT. */
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

/* ---- rows ---- */

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
        if (role_table[r] == role_find(STR("colocated"))) continue; /* asks nobody */
        a = role_rig_decide(role_table[r]->name, v, NULL);
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(a.role[i], f.instance[i].role);
        assert_int_equal(a.changes, 0);
    }
}

/* What pools say stays as they say it, whoever chooses for the rest. */
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
        /* Alone they are of one phase: then they serve whole requests. */
        v->instance = &f.instance[1];
        v->instance_count = 3;
        struct role_verdict a = role_rig_decide(role_table[r]->name, v, NULL);
        assert_int_equal(role_rig_count(v, &a, ROLE_BOTH), 3);
    }
}

/* Without a row too: both ways, and back again when the other phase is there again. */
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

/* Whoever asks again and again is answered at least a second later, with the state kept between. */
static void a_look_keeps_its_distance(void **state)
{
    (void)state;
    struct role_fleet f;
    struct role_look l = { .row = role_find(STR("splitwise")) };
    struct role_view *v = role_rig_fleet(&f, 4);
    struct role_verdict a;
    rng_seed(&l.rng, 1);
    role_look(&l, v, 5 * SECOND, &a);
    assert_true(l.again_us >= 6 * SECOND);
    assert_int_equal(role_rig_count(v, &a, ROLE_BOTH), 0);
    static const unsigned char zero[ROLE_STATE_BYTES_MAX];
    assert_memory_not_equal(l.state, zero, l.row->state_size);
}

/* A fleet of decode instances alone, as a loss leaves it: with a demand or without. */
static void nobody_is_left_for_the_other_phase(void **state)
{
    (void)state;
    struct role_fleet f;
    for (uint32_t r = 0; r < role_count; r++) {
        for (int only = ROLE_PREFILL; only <= ROLE_DECODE; only++) {
            struct role_view *v = role_rig_fleet(&f, 4);
            for (uint32_t i = 0; i < 4; i++)
                f.instance[i].role = (enum role)only;
            f.instance[0].ready = false; /* starts, and serves nobody */
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

/* Hidden speeds a few per cent apart, a chain in which neighbours are alike and the ends are not. */
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
    assert_int_equal(first[0], 1); /* like the aptest, and a prefill instance already */
}

/* Which instance goes on after a prefill instance: the one whose step slows the least. */

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
    in[0].in_flight = 8; /* slots nowhere: the least slowed all the same */
    assert_int_equal(handoff_pick(&view, &req, &rng), 1);
    in[0].accepts = in[1].accepts = false;
    assert_int_equal(handoff_pick(&view, &req, &rng), ROUTE_NONE);
}

int main(void)
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}

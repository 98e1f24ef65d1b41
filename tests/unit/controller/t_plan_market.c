/* t_plan_market.c - tests plans over offers: what is sold out, what is paid for anyway, and the memory of stock. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/core/record.h"
#include "controller/core/stock.h"
#include "policies/place/place.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t launched_at(const struct scene *s, uint32_t offer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->plan.action_count; i++)
        n += s->plan.action[i].act == PLAN_LAUNCH && s->plan.action[i].offer == offer;
    return n;
}

/* s1 costs 1 and s2 1.2: the dearer one is taken while the cheaper one is likely to refuse. */
static void what_is_likely_sold_out_comes_later(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    double sold_out[3] = { 0 };
    s->service.place = place_find(STR("on_demand"));
    s->service.pool_count = 1;
    s->view.sold_out = sold_out;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    scene_decide(s);
    assert_int_equal(launched_at(s, 0), 1);
    sold_out[0] = 1; /* it then costs what the dearest does, and the earlier offer wins a tie */
    s->offer[1].price_h = 1.1;
    s->service.pool[0].offer[2] = 2;
    s->service.pool[0].offer_count = 3;
    scene_decide(s);
    assert_int_equal(launched_at(s, 1), 1);
    CLEANUP(buf_fini) struct buf text = { 0 };
    char ids[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { { 0 } };
    const char(*launched)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])ids;
    assert_int_equal(record_encode(&s->view, &s->plan, &s->plan.decision[0], launched, 0, &text),
                     0);
    assert_non_null(strstr(text.data, "\"sold_out\":[{\"offer\":\"s1\",\"chance\":1"));
    free(s);
}

/* Two of l1, the dearest, are paid for: they come first, no budget is in their way, and the third is not free. */
static void what_is_reserved_is_used_first(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    s->offer[2].reserved = 2;
    s->demand.sum.held = 1;
    s->demand.sum.idle_s = 0;
    s->service.budget_h = 0.5; /* nothing else can be had for it */
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(launched_at(s, 2), 1);
    assert_true(d->cost_h_after <= 0);
    s->service.pool[1].manual = 3;
    d = scene_decide(s);
    assert_int_equal(launched_at(s, 2), 2);
    assert_string_equal(d->blocked, PLAN_BLOCKED_BUDGET);
    s->service.budget_h = 2;
    d = scene_decide(s);
    assert_int_equal(launched_at(s, 2), 3);
    assert_true(fabs(d->cost_h_after - 1.9) < 1e-9);
    free(s);
}

/* A start that costs three dollars makes s1 the dearer one for an hour. */
static void what_a_start_pulls_is_priced(void **state)
{
    (void)state;
    static const char *const rows[] = { "joint", "on_demand" };
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct scene *s = scene_new();
        s->service.pool_count = 1;
        s->demand.sum.held = 1;
        s->demand.sum.idle_s = 0;
        s->service.place = place_find(str_from(rows[k]));
        s->offer[0].start_usd = 3;
        scene_decide(s);
        if (launched_at(s, 1) != 1) fail_msg("%s: %u at s1", rows[k], launched_at(s, 0));
        free(s);
    }
}

/* A policy that wants two of the large pool and none of the small one. */
static void wants_large(void *state, const struct scale_config *config,
                        const struct scale_view *view, int64_t now_us, struct rng *rng,
                        struct scale_verdict *ret)
{
    (void)state, (void)config, (void)view, (void)now_us, (void)rng;
    *ret = (struct scale_verdict){ .choice = { .want = { 0, 2 } },
                                   .estimate_s = -1,
                                   .reason = "test" };
}

/* Two instances of a pool are to be replaced by two of another, which is sold out at first. */
static void what_works_stays_until_its_replacement_is_ready(void **state)
{
    (void)state;
    static const struct scale_policy policy = { .name = "test", .decide = wants_large };
    struct scene *s = scene_new();
    s->service.policy = &policy;
    s->service.shape.down_window_s = 0;
    scene_busy(s, 1);
    for (int i = 0; i < 2; i++)
        scene_add(s, 0, PHASE_READY);
    for (int i = 0; i < 3; i++)
        s->offer[i].has_prior = false; /* as fast as each other */
    s->health[2].until_us = INT64_MAX; /* sold out */
    for (int k = 0; k < 20; k++, s->now += SECOND) {
        scene_decide(s);
        assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
    }
    s->health[2].until_us = 0;
    scene_decide(s);
    assert_int_equal(launched_at(s, 2), 2);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
    struct plan_instance *first = scene_add(s, 1, PHASE_STARTING);
    struct plan_instance *second = scene_add(s, 1, PHASE_STARTING);
    s->now += SECOND;
    const struct plan_decision *d = scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 0);
    assert_string_equal(d->blocked, "what would replace it is not ready yet");
    first->phase = PHASE_READY;
    s->now += SECOND;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 1);
    second->phase = PHASE_READY;
    s->now += SECOND;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 2);
    /* Where the budget has no room for both, what runs is not in the way. */
    s->view.instance_count = 2;
    s->service.budget_h = 2.5;
    s->now += SECOND;
    scene_decide(s);
    assert_int_equal(scene_count(s, PLAN_DRAIN), 2);
    free(s);
}

/* ---- the memory of stock ---- */

static void stock_decays_and_learns(void **state)
{
    (void)state;
    struct stocks all = { 0 };
    struct offer o = { .name = "a", .provider = "p", .zone = "z", .hardware = "h100" }, other = o;
    snprintf(other.name, sizeof other.name, "b"); /* another pool's offer of the same */
    struct stock *s = stock_of(&all, &o);
    assert_ptr_equal(stock_of(&all, &other), s);
    other.spot = true;
    assert_ptr_not_equal(stock_of(&all, &other), s);
    int64_t now = 1000 * SECOND, hour = 3600 * SECOND;
    struct stock_seen seen = { 0 };
    assert_false(stock_observe(s, &seen, 0, now));
    assert_true(stock_out(s, now) <= 0); /* never refused: nothing is known against it */
    seen.refused = 1;
    assert_true(stock_observe(s, &seen, 0, now));
    assert_true(stock_out(s, now) > 0.99);
    double half = stock_out(s, now + hour / 2), one = stock_out(s, now + hour);
    double day = stock_out(s, now + 24 * hour);
    assert_true(half < 0.7 && half > one && one > day && day < 0.2);
    /* It was there again after six hours, twice: its runs last longer, so the chance decays more slowly. */
    for (int k = 0; k < 2; k++) {
        seen.held = 0;
        seen.refused++;
        (void)stock_observe(s, &seen, 0, now += hour);
        seen.refused++;
        (void)stock_observe(s, &seen, 0, now += 6 * hour);
        seen.held = 1;
        assert_true(stock_observe(s, &seen, 0, now += 60 * SECOND));
        assert_true(stock_out(s, now) < 0.01);
    }
    seen.held = 0;
    seen.refused++;
    (void)stock_observe(s, &seen, 0, now);
    double slow = stock_out(s, now + hour / 2);
    assert_true(slow > half + 0.1);
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct stocks again;
    struct err err = { 0 };
    arena_init(&arena, (size_t)1 << 16);
    assert_int_equal(stocks_encode(&all, &text), 0);
    if (stocks_decode(buf_view(&text), &arena, &again, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(again.count, 1); /* of the other there is nothing to keep */
    assert_true(fabs(stock_out(stock_find(&again, &o), now + hour / 2) - slow) < 1e-6);
    assert_true(stocks_decode(STR("{\"v\":2}"), &arena, &again, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_likely_sold_out_comes_later),
        cmocka_unit_test(what_is_reserved_is_used_first),
        cmocka_unit_test(what_a_start_pulls_is_priced),
        cmocka_unit_test(what_works_stays_until_its_replacement_is_ready),
        cmocka_unit_test(stock_decays_and_learns),
    };
    return cmocka_run_group_tests_name("market", tests, NULL, NULL);
}

/* t_scale_trade.c - when a slow instance is traded for a new one, how that goes, and what ends it. */
#include "policies/scale_trade.h"
#include "tests/unit/unit.h"

#include <math.h>

#define SECOND ((int64_t)1000000)
#define FLEET 20
#define LEAD_S 10
#define SLOW_S 0.012 /* of the first; the others' mean is 0.010 */

struct rig {
    struct scale_view view;
    struct scale_instance in[FLEET + 2];
    struct trade trade;
    struct trade_ask ask;
    int64_t now_s;
};

static void show(struct rig *r, uint32_t ready, uint32_t starting)
{
    r->view.pool[0].ready = ready;
    r->view.pool[0].starting = starting;
    r->view.instance_count = ready + starting;
    for (uint32_t i = 0; i < ready + starting; i++)
        r->in[i].ready = i < ready;
}

/* Twenty, one of them slow; with a seventh more one fewer would do. */
static void open_rig(struct rig *r)
{
    *r = (struct rig){ 0 };
    for (uint32_t i = 0; i < FLEET + 2; i++)
        r->in[i] = (struct scale_instance){ .id = 100 + i,
                                            .price_h = 2,
                                            .read_s = i == 0  ? SLOW_S
                                                      : i % 2 ? 0.0099
                                                              : 0.0101 };
    r->view = (struct scale_view){ .pool_count = 1, .instance = r->in };
    r->view.pool[0] =
        (struct scale_pool){ .max = 64, .available = true, .price_h = 2, .lead_s = LEAD_S };
    r->ask = (struct trade_ask){ .view = &r->view, .need = FLEET, .lacking = 0.15, .life_s = 600 };
    show(r, FLEET, 0);
}

/* Asked each second; the last answer. */
static uint32_t pass(struct rig *r, uint32_t seconds)
{
    uint32_t want = 0;
    for (uint32_t i = 0; i < seconds; i++)
        want = trade_want(&r->trade, &r->ask, ++r->now_s * SECOND);
    return want;
}

/* The fleet after a trade in which instance `gone` went. */
static void give_up(struct rig *r, uint32_t gone)
{
    r->in[gone] = r->in[FLEET];
    show(r, FLEET, 0);
}

/* From the first wish until the new one has measured. */
static void trade_once(struct rig *r)
{
    for (uint32_t waited = 0; pass(r, 1) == FLEET; waited++)
        assert_true(waited < 2 * TRADE_PAUSE_S);
    assert_false(trade_extra(&r->trade, &r->view, 0));
    r->in[FLEET].id++;
    show(r, FLEET, 1);
    assert_int_equal(pass(r, LEAD_S), FLEET + 1);
    assert_true(trade_extra(&r->trade, &r->view, 0));
    r->in[FLEET].read_s = 0;
    show(r, FLEET + 1, 0);
    assert_int_equal(pass(r, 3), FLEET + 1);
    r->in[FLEET].read_s = 0.010;
    assert_int_equal(pass(r, 3), FLEET);
    assert_true(trade_extra(&r->trade, &r->view, 0));
}

static void a_slow_one_goes_when_a_new_one_has_measured(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r);
    assert_int_equal(pass(&r, (uint32_t)TRADE_QUIET_S - 1), FLEET);
    trade_once(&r);
    give_up(&r, 0);
    assert_int_equal(pass(&r, 1), FLEET);
    assert_false(trade_extra(&r.trade, &r.view, 0));
    assert_int_equal(pass(&r, 3600), FLEET); /* what is left is too alike to bring that */
}

/* The cloud gives the same machine again: each time twice as long passes until the next. */
static void a_new_one_that_goes_itself_makes_the_next_wait(void **state)
{
    (void)state;
    struct rig r;
    int64_t before_s = 0;
    open_rig(&r);
    for (int i = 0; i < 12; i++) {
        int64_t from_s = r.now_s;
        trade_once(&r);
        show(&r, FLEET, 0);
        pass(&r, 1);
        int64_t took_s = r.now_s - from_s;
        assert_true(took_s > before_s || took_s >= (int64_t)TRADE_PAUSE_S);
        assert_true(took_s < (int64_t)TRADE_PAUSE_S + 60);
        before_s = took_s;
    }
}

/* Each way in which one more would not pay, or could not be had. */
static void nothing_is_traded_where_it_does_not_pay(void **state)
{
    (void)state;
    enum { ALIKE, LACKING, LEAD, DEARER, UNMEASURED, BUDGET, FULL, GROWING, ALL };
    for (int what = 0; what < ALL; what++) {
        struct rig r;
        open_rig(&r);
        if (what == ALIKE) r.in[0].read_s = 0.0101;
        if (what == LACKING) r.ask.lacking = 0.9;
        if (what == LEAD) r.view.pool[0].lead_s = 300;
        if (what == DEARER) r.view.pool[0].price_h = 3;
        if (what == UNMEASURED) r.in[7].read_s = 0;
        if (what == BUDGET) r.view.budget_h = 2 * FLEET + 1;
        if (what == FULL) r.view.pool[0].max = FLEET;
        if (what == GROWING) show(&r, FLEET - 1, 1);
        for (int t = 0; t < 600; t++)
            assert_int_equal(pass(&r, 1), FLEET);
    }
}

/* It has to pay without a break. */
static void noise_is_no_reason(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r);
    for (int t = 0; t < 600; t++) {
        r.ask.lacking = t % 10 ? 0.15 : 0.9;
        assert_int_equal(pass(&r, 1), FLEET);
    }
}

static void a_trade_ends_when_demand_changes_or_nothing_comes(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r);
    while (pass(&r, 1) == FLEET)
        assert_true(r.now_s < 600);
    show(&r, FLEET, 1);
    r.ask.need = FLEET + 2;
    assert_int_equal(pass(&r, 1), FLEET + 2);
    assert_false(trade_extra(&r.trade, &r.view, 0));

    open_rig(&r);
    while (pass(&r, 1) == FLEET)
        assert_true(r.now_s < 600);
    assert_int_equal(pass(&r, LEAD_S + (uint32_t)TRADE_PATIENCE_S), FLEET + 1);
    assert_int_equal(pass(&r, 2), FLEET);
}

/* A clock that goes back begins the wait anew, and another main pool forgets the trade. */
static void clocks_and_pools_may_change(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r);
    r.now_s = 100000;
    pass(&r, 10);
    r.now_s = 50;
    assert_int_equal(pass(&r, (uint32_t)TRADE_QUIET_S), FLEET);
    while (pass(&r, 1) == FLEET)
        assert_true(r.now_s < 600);
    r.view.pool_count = 2;
    r.view.pool[1] = r.view.pool[0];
    r.ask.pool = 1;
    assert_int_equal(pass(&r, 1), FLEET);
    assert_false(trade_extra(&r.trade, &r.view, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_one_goes_when_a_new_one_has_measured),
        cmocka_unit_test(a_new_one_that_goes_itself_makes_the_next_wait),
        cmocka_unit_test(nothing_is_traded_where_it_does_not_pay),
        cmocka_unit_test(noise_is_no_reason),
        cmocka_unit_test(a_trade_ends_when_demand_changes_or_nothing_comes),
        cmocka_unit_test(clocks_and_pools_may_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_place.c - placement among a pool's offers: rows on hand-made views, and what holds for all. */
#include "base/core/bits.h"
#include "policies/layers/layers.h"
#include "policies/load/load.h"
#include "policies/mix/mix.h"
#include "policies/move/move.h"
#include "policies/place/hazard.h"
#include "tests/unit/policies/place_rig.h"

#include <math.h>
#include <string.h>

static void order_takes_the_first_that_may_be_asked(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(2, 3);
    struct place_verdict r = place_rig_ask(&place_order, &s, &v, 0);
    assert_int_equal(r.next, 0);
    assert_int_equal(r.want[0], 3);
    v.offer[0].usable = false;
    r = place_rig_ask(&place_order, &s, &v, 0);
    assert_int_equal(r.next, 1);
    v.offer[2].ready = 2; /* what runs stays */
    r = place_rig_ask(&place_order, &s, &v, 0);
    assert_int_equal(r.want[2], 2);
    assert_int_equal(r.want[1], 1);
    for (uint32_t i = 0; i < 3; i++)
        v.offer[i].usable = false;
    r = place_rig_ask(&place_order, &s, &v, 0);
    assert_int_equal(r.next, PLACE_NONE);
}

/* Times decide, prices only between equal ones; what runs stays, the slow goes first. */
static void serverlessllm_starts_where_it_is_ready_first(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(3, 3);
    static const double lead_s[] = { 40, 90, 15, 40 };
    for (uint32_t i = 0; i < 4; i++)
        v.offer[i].lead_s = lead_s[i];
    struct place_verdict r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.next, 2);
    assert_int_equal(r.want[2], 3);
    v.offer[2].usable = false; /* 0 costs 1, 3 costs 0.35, and both take as long */
    r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.next, 3);
    v.offer[3].usable = false;
    r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.next, 0);
    for (uint32_t i = 0; i < 4; i++)
        v.offer[i].usable = true;
    v.offer[1].ready = 1, v.offer[0].starting = 1; /* what runs stays */
    r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.want[1], 1);
    assert_int_equal(r.want[0], 1);
    assert_int_equal(r.want[2], 1);
    v.offer[2].ready = 2; /* one too many: the slow one */
    r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.want[1], 0);
    assert_int_equal(r.want[0], 1);
    assert_int_equal(r.want[2], 2);
    for (uint32_t i = 0; i < 4; i++)
        v.offer[i].usable = false;
    v.target = 9;
    assert_int_equal(place_rig_ask(&place_serverlessllm, &s, &v, 0).next, PLACE_NONE);
}

static void on_demand_takes_the_cheapest_that_stays(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(3, 4);
    v.offer[2].spot = false;
    v.offer[2].price_h = 0.9;
    struct place_verdict r = place_rig_ask(&place_on_demand, &s, &v, 0);
    assert_int_equal(r.want[2], 4);
    assert_int_equal(place_rig_sum(&r, v.offer_count), 4);
    v.offer[0].usable = v.offer[2].usable = false;
    r = place_rig_ask(&place_on_demand, &s, &v, 0);
    assert_true(v.offer[r.next].spot);
}

static void spot_spreads_and_marks_zones(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(4, 3);
    struct place_verdict r = place_rig_ask(&place_spot, &s, &v, 0);
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(r.want[i], 1); /* three and one more, each in a zone of its own */
    assert_int_equal(r.want[0], 3);     /* until they are ready */
    place_rig_settle(&v, &r);
    r = place_rig_ask(&place_spot, &s, &v, 60 * SECOND);
    assert_int_equal(r.want[0], 0);
    v.offer[2].ready = 0;
    v.offer[2].lost = 1;
    r = place_rig_ask(&place_spot, &s, &v, 120 * SECOND);
    assert_int_equal(r.want[2], 0); /* marked */
    assert_int_equal(r.want[1], 2);
    assert_int_equal(r.want[0], 1); /* one spot instance is missing */
    v.offer[1].lost = v.offer[3].lost = 1;
    v.offer[1].ready = v.offer[3].ready = 0;
    r = place_rig_ask(&place_spot, &s, &v,
                      180 * SECOND); /* one active zone left: all are forgiven */
    assert_int_equal(r.want[1], 1);
    assert_int_equal(r.want[2], 1);
    assert_int_equal(r.want[3], 1);
}

static void a_hazard_is_learned_and_its_zone_left(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(2, 4);
    int64_t now = HOUR;
    uint32_t in_first = 0;
    for (int tick = 0; tick < 4000; tick++, now += 60 * SECOND) {
        struct place_verdict r = place_rig_ask(&place_joint, &s, &v, now);
        assert_true(place_rig_sum(&r, v.offer_count) >= v.target);
        place_rig_settle(&v, &r);
        if (tick >= 2000) in_first += v.offer[1].ready > 0;
        bool drop = tick % 60 == 0; /* the first zone goes every hour, the second never */
        if (drop && v.offer[1].ready > 0) {
            v.offer[1].lost += v.offer[1].ready;
            v.offer[1].ready = 0;
        }
    }
    assert_true(in_first < 20);
    assert_int_equal(v.offer[2].ready, 4);
    assert_int_equal(v.offer[0].ready, 0);
}

static void hazard_is_a_posterior_mean(void **state)
{
    (void)state;
    struct hazard h = { 0 };
    struct place_offer o = { .spot = true };
    int64_t now = HOUR;
    hazard_observe(&h, &o, 0, now);
    assert_true(fabs(hazard_rate_h(&h) - 1 / HAZARD_PRIOR_H) < 1e-12);
    for (int i = 0; i < 100; i++) { /* fifty hours of holding, each ended by a loss */
        o.ready = 1;
        hazard_observe(&h, &o, i == 0 ? 0 : 1, now += HOUR);
        if (i % 2 == 0) continue;
        o.ready = 0;
        o.lost++;
        hazard_observe(&h, &o, 0, now);
        assert_true(hazard_up(&h, now) < 1e-9);
        assert_true(hazard_up(&h, now + HOUR) > 0.3);
        now += HOUR / 2;
    }
    assert_true(fabs(hazard_rate_h(&h) - 51 / (HAZARD_PRIOR_H + 50)) < 1e-6);
}

/* Absent an hour ahead of a clock that is set back: not for longer than an absence takes. Counters
 * that begin anew are no losses. */
static void hazard_outlives_clocks_and_counters(void **state)
{
    (void)state;
    struct hazard h = { 0 };
    struct place_offer o = { .spot = true, .refused = 1, .lost = 7 };
    hazard_observe(&h, &o, 0, 100 * HOUR);
    double up = hazard_up(&h, 101 * HOUR);
    assert_true(up > 0.3);
    hazard_observe(&h, &o, 0, 50 * HOUR);
    assert_true(fabs(hazard_up(&h, 51 * HOUR) - up) < 1e-9);
    o.ready = 1;
    hazard_observe(&h, &o, 0, 52 * HOUR);
    double rate = hazard_rate_h(&h);
    o.refused = o.lost = 0;
    hazard_observe(&h, &o, 0, 52 * HOUR);
    assert_true(hazard_rate_h(&h) <= rate && !h.down);
}

static void counters_that_begin_anew_mark_no_zone(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(3, 2);
    for (uint32_t i = 1; i <= 3; i++)
        v.offer[i].lost = 4;
    place_rig_ask(&place_spot, &s, &v, 0); /* all marked, and all forgiven */
    v.offer[1].lost = 0;
    struct place_verdict r = place_rig_ask(&place_spot, &s, &v, 60 * SECOND);
    assert_int_equal(r.want[1], 1);
}

static void on_demand_ends_no_stand_in_for_a_cheaper_one(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(2, 3);
    v.offer[0].usable = false;
    v.offer[1].ready = 2;
    v.offer[2].price_h = 0.2;
    struct place_verdict r = place_rig_ask(&place_on_demand, &s, &v, 0);
    assert_int_equal(r.want[1], 2);
    assert_int_equal(r.want[2], 1);
    v.offer[0].usable = true;
    r = place_rig_ask(&place_on_demand, &s, &v, 0);
    assert_int_equal(r.want[0], 3);
    assert_int_equal(r.want[1] + r.want[2], 0);
}

static void draw_view(struct rng *rng, struct place_view *v)
{
    v->offer_count = 1 + (uint32_t)rng_below(rng, PLACE_OFFERS_MAX);
    v->target = (uint32_t)rng_below(rng, 12);
    v->availability = 0.9 + 0.0999 * rng_f64(rng);
    for (uint32_t i = 0; i < v->offer_count; i++) {
        struct place_offer *o = &v->offer[i];
        o->usable = rng_below(rng, 4) > 0;
        o->spot = rng_below(rng, 2);
        o->price_h = 0.1 + rng_f64(rng);
        o->lead_s = 300 * rng_f64(rng);
        o->ready = (uint32_t)rng_below(rng, 4);
        o->starting = (uint32_t)rng_below(rng, 4);
        o->lost += (uint32_t)rng_below(rng, 2);
        o->refused += (uint32_t)rng_below(rng, 2);
    }
}

/* Whatever is seen: nothing is launched where nothing can be had, the target is reached where it
 * can be, equal state and view give equal answers, and a copied state goes on alike. */
static void promises_of_all_rows(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < place_count; k++) {
        const struct place_policy *p = place_table[k];
        assert_ptr_equal(place_find(str_from(p->name)), p);
        assert_true(p->choose && p->about && p->source && p->state_size <= PLACE_STATE_BYTES_MAX);
        struct place_memory s = { { 0 } }, copy;
        struct place_view v = { 0 };
        struct rng rng;
        rng_seed(&rng, 11 + k);
        int64_t now = HOUR;
        for (int i = 0; i < 5000; i++, now += (int64_t)rng_below(&rng, 600) * SECOND) {
            draw_view(&rng, &v);
            copy = s;
            struct place_verdict a = place_rig_ask(p, &s, &v, now),
                                 b = place_rig_ask(p, &copy, &v, now);
            assert_memory_equal(a.want, b.want, sizeof a.want);
            assert_memory_equal(&s, &copy, sizeof s);
            bool any = false;
            for (uint32_t o = 0; o < v.offer_count; o++) {
                const struct place_offer *at = &v.offer[o];
                any |= at->usable;
                if (!at->usable) assert_true(a.want[o] <= place_have(at));
            }
            bool full = place_rig_sum(&a, v.offer_count) >= v.target;
            assert_true(full || !any);
            if (a.next != PLACE_NONE) assert_true(v.offer[a.next].usable);
            assert_true(a.reason != NULL);
        }
    }
    assert_non_null(place_find(str_from(PLACE_DEFAULT)));
    assert_null(place_find(STR("joints")));
}

#define CHECK_KIND(kind, KIND, slot)                                                               \
    do {                                                                                           \
        assert_non_null(kind##_find(STR(KIND##_DEFAULT)));                                         \
        assert_null(kind##_find(STR("nosuch")));                                                   \
        for (uint32_t k = 0; k < kind##_count; k++) {                                              \
            assert_true(kind##_table[k]->slot &&kind##_table[k]->about &&kind##_table[k]->source); \
            assert_ptr_equal(kind##_find(str_from(kind##_table[k]->name)), kind##_table[k]);       \
        }                                                                                          \
    } while (0)

/* Each kind's table is complete, and its policies are found by their names. */
static void planners_are_found_by_name(void **state)
{
    (void)state;
    CHECK_KIND(mix, MIX, choose);
    CHECK_KIND(layers, LAYERS, lay);
    CHECK_KIND(move, MOVE, map);
    CHECK_KIND(load, LOAD, choose);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hazard_outlives_clocks_and_counters),
        cmocka_unit_test(counters_that_begin_anew_mark_no_zone),
        cmocka_unit_test(on_demand_ends_no_stand_in_for_a_cheaper_one),
        cmocka_unit_test(order_takes_the_first_that_may_be_asked),
        cmocka_unit_test(serverlessllm_starts_where_it_is_ready_first),
        cmocka_unit_test(on_demand_takes_the_cheapest_that_stays),
        cmocka_unit_test(spot_spreads_and_marks_zones),
        cmocka_unit_test(a_hazard_is_learned_and_its_zone_left),
        cmocka_unit_test(hazard_is_a_posterior_mean),
        cmocka_unit_test(promises_of_all_rows),
        cmocka_unit_test(planners_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

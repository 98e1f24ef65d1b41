/* t_place.c - tests placement among a pool's offers, on hand-made views, and what holds for every
 * policy. */
#include "base/core/bits.h"
#include "policies/layers/layers.h"
#include "policies/load/load.h"
#include "policies/mix/mix.h"
#include "policies/move/move.h"
#include "policies/place/place.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define SECOND ((int64_t)1000000)
#define HOUR (3600 * SECOND)

struct place_memory {
    _Alignas(8) char bytes[PLACE_STATE_BYTES_MAX];
};

/* Returns a view with offer 0 on demand at 1 dollar, the others spot zones at 0.35. */
static struct place_view place_rig_view(uint32_t zones, uint32_t target)
{
    struct place_view v = { .offer_count = zones + 1, .target = target, .availability = 0.99 };
    for (uint32_t i = 0; i <= zones; i++)
        v.offer[i] = (struct place_offer){
            .usable = true, .spot = i > 0, .price_h = i > 0 ? 0.35 : 1, .lead_s = 120
        };
    return v;
}

static struct place_verdict place_rig_ask(const struct place_policy *p, struct place_memory *s,
                                          const struct place_view *v, int64_t now_us)
{
    struct rng rng;
    struct place_verdict r;
    rng_seed(&rng, 1);
    p->choose(s->bytes, v, now_us, &rng, &r);
    return r;
}

/* Makes all that is wanted ready. */
static void place_rig_settle(struct place_view *v, const struct place_verdict *r)
{
    for (uint32_t i = 0; i < v->offer_count; i++) {
        v->offer[i].ready = r->want[i];
        v->offer[i].starting = 0;
    }
}

/* Returns the instances wanted of the first `count` offers. */
static uint32_t place_rig_sum(const struct place_verdict *r, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += r->want[i];
    return n;
}

/* Two instances run on demand, and a zone sells spot again: the move is made where the price saved until the next
 * expected loss is more than a drain and a lost cache. */
static void a_return_to_spot_is_priced(void **state)
{
    (void)state;
    static const struct {
        double spot_price, leave_s, losses;
        uint32_t back;
        const char *why;
    } rows[] = {
        { 0.35, 0, 0, 2, "nothing is lost" },
        { 0.35, 600, 0, 2, "ten minutes of one are saved in sixteen" },
        { 0.85, 36000, 0, 0, "a day's cache for a few cents an hour" },
        { 0.35, 14400, 0, 2, "four hours of work, for the eight until the next loss" },
        { 0.35, 14400, 40, 0, "four hours of work, for a quarter of one" },
    };
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct place_memory m = { 0 };
        struct place_view v = place_rig_view(1, 2);
        v.offer[1].price_h = rows[k].spot_price;
        v.offer[1].lead_s = 1; /* so that the gaps of losses do not decide */
        v.offer[0].ready = 2;
        v.offer[0].leave_s = rows[k].leave_s;
        int64_t now = HOUR;
        v.offer[1].usable = false;
        for (int n = 0; n < 100; n++, now += HOUR / 20) { /* the zone's losses are learned */
            v.offer[1].lost += n < rows[k].losses;
            (void)place_rig_ask(&place_joint, &m, &v, now);
        }
        v.offer[1].usable = true;
        struct place_verdict r = place_rig_ask(&place_joint, &m, &v, now);
        if (r.want[1] != rows[k].back)
            fail_msg("%s: %u on demand, %u spot", rows[k].why, r.want[0], r.want[1]);
        assert_int_equal(r.want[0], 2); /* what works stays until the others are ready */
    }
    const uint32_t back[PLACE_OFFERS_MAX] = { 0, 2 }, none[PLACE_OFFERS_MAX] = { 0 };
    struct place_view v = place_rig_view(1, 2);
    v.offer[0].ready = 2;
    v.offer[0].leave_s = 1800;
    assert_true(fabs(place_moved(&v, back, 2) - 0.5) <
                1e-9); /* two halves of a dollar, in two hours */
    assert_true(place_moved(&v, none, 2) <= 0);
}

/* ---- placement among offers ---- */

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
    v.offer[2].ready = 2; /* running instances stay */
    r = place_rig_ask(&place_order, &s, &v, 0);
    assert_int_equal(r.want[2], 2);
    assert_int_equal(r.want[1], 1);
    for (uint32_t i = 0; i < 3; i++)
        v.offer[i].usable = false;
    r = place_rig_ask(&place_order, &s, &v, 0);
    assert_int_equal(r.next, PLACE_NONE);
}

/* The lead time decides, the price only between equal ones; running instances stay, and the slowest
 * goes first. */
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
    v.offer[2].usable = false; /* 0 costs 1, 3 costs 0.35, with equal lead times */
    r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.next, 3);
    v.offer[3].usable = false;
    r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.next, 0);
    for (uint32_t i = 0; i < 4; i++)
        v.offer[i].usable = true;
    v.offer[1].ready = 1, v.offer[0].starting = 1; /* running instances stay */
    r = place_rig_ask(&place_serverlessllm, &s, &v, 0);
    assert_int_equal(r.want[1], 1);
    assert_int_equal(r.want[0], 1);
    assert_int_equal(r.want[2], 1);
    v.offer[2].ready = 2; /* one too many: the slow one goes */
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
        assert_int_equal(r.want[i], 1); /* three and one spare, each in its own zone */
    assert_int_equal(r.want[0], 3);     /* until they are ready */
    place_rig_settle(&v, &r);
    r = place_rig_ask(&place_spot, &s, &v, 60 * SECOND);
    assert_int_equal(r.want[0], 0);
    v.offer[2].ready = 0;
    v.offer[2].lost = 1;
    r = place_rig_ask(&place_spot, &s, &v, 120 * SECOND);
    assert_int_equal(r.want[2], 0); /* this zone is marked */
    assert_int_equal(r.want[1], 2);
    assert_int_equal(r.want[0], 1); /* one spot instance is missing */
    v.offer[1].lost = v.offer[3].lost = 1;
    v.offer[1].ready = v.offer[3].ready = 0;
    r = place_rig_ask(&place_spot, &s, &v,
                      180 * SECOND); /* one active zone left: all marks are cleared */
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
        bool drop = tick % 60 == 0; /* the first zone is lost every hour, the second never */
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
    for (int i = 0; i < 100; i++) { /* fifty hours of holding, with fifty losses */
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

/* A zone seen absent an hour ahead of a clock that is then set back counts as absent no longer than
 * usual. Counters that restart are no losses. */
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
    place_rig_ask(&place_spot, &s, &v, 0); /* all marked, so all cleared */
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

/* Every policy launches only where something can be had, reaches the target where it can be
 * reached, decides alike on equal state and view, and continues alike on a copied state. */
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

/* Each kind's table is complete, and its policies are found by name. */
static void planners_are_found_by_name(void **state)
{
    (void)state;
    CHECK_KIND(mix, MIX, choose);
    CHECK_KIND(layers, LAYERS, lay);
    CHECK_KIND(move, MOVE, map);
    CHECK_KIND(load, LOAD, choose);
}

static int place_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_return_to_spot_is_priced),
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
    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}

/* ---- the joint choice among on demand and spot zones ---- */

static void joint_falls_back_and_comes_back(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(2, 2);
    int64_t now = HOUR;
    struct place_verdict r = place_rig_ask(&place_joint, &s, &v, now);
    assert_true(v.offer[r.next].spot);
    v.offer[1].refused = v.offer[2].refused = 1; /* no capacity anywhere */
    r = place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    assert_int_equal(r.want[0], 2);
    v.offer[0].ready = 2; /* the zones still have no capacity */
    r = place_rig_ask(&place_joint, &s, &v, now += 60 * SECOND);
    assert_int_equal(r.want[0], 2); /* nothing ends before its replacement stands */
    assert_true(r.want[1] + r.want[2] > 0);
    uint32_t zone = r.want[1] ? 1 : 2;
    v.offer[zone].starting = 2;
    r = place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    assert_int_equal(r.want[0], 2);
    v.offer[zone].starting = 0;
    v.offer[zone].ready = 2;
    r = place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    assert_int_equal(r.want[0], 0);
    assert_int_equal(r.want[zone], 2);
}

/* The only offer is tried again whenever it may be, however often it was lost and refused. */
static void joint_never_gives_up_its_only_offer(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = { .offer_count = 1, .target = 4, .availability = 0.99 };
    struct place_offer *o = &v.offer[0];
    *o = (struct place_offer){ .usable = true, .spot = true, .price_h = 0.35, .lead_s = 120 };
    int64_t now = HOUR;
    for (int loss = 0; loss < 200; loss++) {
        for (int refusal = 0; refusal < loss % 7; refusal++) {
            struct place_verdict r = place_rig_ask(&place_joint, &s, &v, now += 60 * SECOND);
            assert_int_equal(r.want[0], 4);
            assert_int_equal(r.next, 0);
            o->refused++;
            o->usable = false; /* in back-off */
            r = place_rig_ask(&place_joint, &s, &v, now += 20 * SECOND);
            assert_int_equal(r.next, PLACE_NONE);
            o->usable = true;
        }
        struct place_verdict r = place_rig_ask(&place_joint, &s, &v, now += 60 * SECOND);
        assert_int_equal(r.next, 0);
        o->ready = 4;
        place_rig_ask(&place_joint, &s, &v, now += 5 * 60 * SECOND);
        o->ready = 0;
        o->lost += 4;
    }
}

/* The cheapest zone is full, and spares in the other zones are still weighed. */
static void joint_sees_past_a_zone_that_is_full(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(4, 8);
    v.availability = 0.999;
    v.offer[0].price_h = 4;
    v.offer[1].price_h = 0.3;
    v.offer[1].ready = 1;
    v.offer[1].usable = false;
    struct place_verdict r = place_rig_ask(&place_joint, &s, &v, HOUR);
    assert_true(r.want[2] > 0 && r.want[3] > 0 && r.want[4] > 0);
    assert_true(place_rig_sum(&r, v.offer_count) > 8);
    assert_int_equal(r.want[0], 0);
}

/* A zone refuses a part: its running instances stay and the rest comes from elsewhere. */
static void joint_patches_what_a_zone_cannot_give(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(1, 6);
    v.offer[1].ready = 4;
    v.offer[1].refused = 1;
    v.offer[1].usable = false;
    struct place_verdict r = place_rig_ask(&place_joint, &s, &v, HOUR);
    assert_int_equal(r.want[1], 4);
    assert_int_equal(r.want[0], 2);
}

/* After a loss the next zone may lack capacity: others are asked at the same time, on demand only
 * where all may refuse; the surplus ends as soon as the replies are in. */
static void joint_asks_several_at_once_when_short(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(3, 2);
    int64_t now = HOUR;
    v.offer[1].ready = 2;
    place_rig_ask(&place_joint, &s, &v, now);
    v.offer[1].ready = 0;
    v.offer[1].lost = 2;
    struct place_verdict r = place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    assert_int_equal(r.want[1], 0);
    assert_int_equal(r.want[2], 2);
    assert_int_equal(r.want[3], 2);
    assert_int_equal(r.want[0], 0);
    v.offer[2].starting = v.offer[3].starting = 2;
    r = place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    assert_int_equal(r.want[2] + r.want[3], 2);
    v.offer[2].starting = v.offer[3].starting = 0; /* both refused */
    v.offer[2].refused = v.offer[3].refused = 1;
    v.offer[2].usable = v.offer[3].usable = false;
    r = place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    assert_int_equal(r.want[0], 2); /* besides the first zone, which has just gone */
}

/* With unreliable zones and a missed SLO any one zone may go and the target still stands. */
static void joint_spreads_when_the_slo_is_missed(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(5, 8);
    int64_t now = HOUR;
    uint32_t spread = 0;
    for (int tick = 0; tick < 3000; tick++, now += 30 * SECOND) {
        struct place_verdict r = place_rig_ask(&place_joint, &s, &v, now);
        bool still = true; /* no launch is under way */
        uint32_t most = 0, all = place_rig_sum(&r, 6);
        for (uint32_t i = 0; i < 6; i++) {
            still &= v.offer[i].ready == r.want[i];
            most = max_u32(most, i > 0 ? r.want[i] : 0);
        }
        if (still && all > 8) {
            assert_true(all - most >= 8);
            spread++;
        }
        place_rig_settle(&v, &r);
        if (tick % 120 != 119) continue; /* each hour the fullest zone goes for five minutes */
        for (uint32_t i = 1; i <= 5; i++) {
            if (v.offer[i].ready < most) continue;
            v.offer[i].lost += most;
            v.offer[i].ready = 0;
            break;
        }
        for (int gap = 0; all - most < 8 && gap < 10; gap++)
            place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    }
    assert_true(spread > 300);
}

/* Returns the instances that joint keeps beyond the target or on demand, after `quiet_h` without a
 * loss and then two losses of all spot instances within the hour. */
static uint32_t kept_beyond_bare(double quiet_h)
{
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(3, 5);
    struct place_verdict r = { 0 };
    int64_t now = HOUR;
    int quiet = (int)(quiet_h * 120);
    for (int tick = 0; tick < quiet + 90; tick++, now += 30 * SECOND) {
        r = place_rig_ask(&place_joint, &s, &v, now);
        place_rig_settle(&v, &r);
        if (tick < quiet || (tick - quiet) % 40 != 39) continue;
        for (uint32_t i = 1; i <= 3; i++) {
            v.offer[i].lost += v.offer[i].ready;
            v.offer[i].ready = 0;
        }
        for (int gap = 0; gap < 4; gap++)
            place_rig_ask(&place_joint, &s, &v, now += 30 * SECOND);
    }
    return place_rig_sum(&r, v.offer_count) - 5 + r.want[0];
}

/* Four minutes of loss are a tenth of the life of a fleet that is forty minutes old, and less than
 * a third of a day's allowance of one that was quiet till then. */
static void joint_heeds_early_losses_of_a_young_fleet(void **state)
{
    (void)state;
    uint32_t young = kept_beyond_bare(0), old = kept_beyond_bare(48);
    print_message("kept beyond a bare zone: %u in the first hour, %u after two days\n", young, old);
    assert_true(young > 0);
    assert_int_equal(old, 0);
}

static void joint_buys_a_spare_where_one_zone_is_too_shaky(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(5, 10);
    v.availability = 0.9999;
    struct place_verdict r = place_rig_ask(&place_joint, &s, &v, HOUR);
    assert_true(r.want[0] == 10 || place_rig_sum(&r, v.offer_count) > 10);
    v.availability = 0.99;
    memset(&s, 0, sizeof s);
    r = place_rig_ask(&place_joint, &s, &v, HOUR);
    place_rig_settle(&v, &r);
    r = place_rig_ask(&place_joint, &s, &v, HOUR + 30 * SECOND);
    assert_int_equal(place_rig_sum(&r, v.offer_count), 10);
    assert_true(r.missing > 0 && r.missing < 0.01);
}

/* A surplus launch has two minutes until its replacement counts, whether the clock counts since
 * 1970 or since the run began; then only as many stay as are missing. */
static void joint_is_patient_from_its_first_question_on(void **state)
{
    (void)state;
    static const int64_t began[] = { 1, 1700000000 * SECOND };
    for (size_t i = 0; i < COUNT_OF(began); i++) {
        struct place_memory s = { { 0 } };
        struct place_view v = place_rig_view(2, 2);
        v.offer[1].starting = 3;
        v.offer[1].price_h = 0.9;
        struct place_verdict r = place_rig_ask(&place_joint, &s, &v, began[i]);
        assert_int_equal(r.want[2], 2);
        assert_int_equal(r.want[1], 3);
        int64_t back_us = began[i] - 3600 * SECOND; /* it waits again, but no longer */
        r = place_rig_ask(&place_joint, &s, &v, back_us);
        assert_int_equal(r.want[1], 3);
        r = place_rig_ask(&place_joint, &s, &v, back_us + 130 * SECOND);
        assert_int_equal(r.want[2], 2);
        assert_int_equal(r.want[1], 2);
    }
}

static int place_joint_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joint_falls_back_and_comes_back),
        cmocka_unit_test(joint_never_gives_up_its_only_offer),
        cmocka_unit_test(joint_sees_past_a_zone_that_is_full),
        cmocka_unit_test(joint_patches_what_a_zone_cannot_give),
        cmocka_unit_test(joint_asks_several_at_once_when_short),
        cmocka_unit_test(joint_spreads_when_the_slo_is_missed),
        cmocka_unit_test(joint_heeds_early_losses_of_a_young_fleet),
        cmocka_unit_test(joint_buys_a_spare_where_one_zone_is_too_shaky),
        cmocka_unit_test(joint_is_patient_from_its_first_question_on),
    };
    return cmocka_run_group_tests_name("place_joint", tests, NULL, NULL);
}

int main(void)
{
    return place_tests() + place_joint_tests();
}

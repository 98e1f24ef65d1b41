/* t_place_joint.c - the joint choice among on demand and spot zones, on hand-made views. */
#include "base/core/bits.h"
#include "tests/unit/policies/place_rig.h"

#include <string.h>

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
    v.offer[0].ready = 2; /* the zones still have nothing */
    r = place_rig_ask(&place_joint, &s, &v, now += 60 * SECOND);
    assert_int_equal(r.want[0], 2); /* nothing is given up for a hope */
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

/* The only offer, lost and refused however often, is asked again whenever it may be. */
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
            o->usable = false; /* backed off from */
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

/* The best zone can give no more: spares over the others are weighed all the same. */
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

/* Part of a zone is refused: what runs there stays and the rest comes from elsewhere. */
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

/* After a loss the next zone is not sure to have capacity: others are asked with it, on demand only
 * where all may refuse; what is too much ends as soon as the answers are in. */
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
    assert_int_equal(r.want[0], 2); /* beside the first zone, which has just gone */
}

/* Shaky zones and a broken promise: any one zone may go and the target still stands. */
static void joint_spreads_when_the_promise_is_missed(void **state)
{
    (void)state;
    struct place_memory s = { { 0 } };
    struct place_view v = place_rig_view(5, 8);
    int64_t now = HOUR;
    uint32_t spread = 0;
    for (int tick = 0; tick < 3000; tick++, now += 30 * SECOND) {
        struct place_verdict r = place_rig_ask(&place_joint, &s, &v, now);
        bool still = true; /* nothing is under way */
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

/* Instances that joint keeps beyond the bare zone, or on demand, after `quiet_h` without a loss and then
 * two losses of all there is within the hour. */
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

/* Four minutes are a tenth of what a fleet has lived that is forty minutes old, and less than a third
 * of what a day may miss of one that was quiet till then. */
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

/* What starts and is not needed has two minutes until what replaces it is promised, where the clock
 * counts since 1970 as where it began with the run; then only as much stays as is missing. */
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
        int64_t back_us = began[i] - 3600 * SECOND; /* it waits anew, and no longer */
        r = place_rig_ask(&place_joint, &s, &v, back_us);
        assert_int_equal(r.want[1], 3);
        r = place_rig_ask(&place_joint, &s, &v, back_us + 130 * SECOND);
        assert_int_equal(r.want[2], 2);
        assert_int_equal(r.want[1], 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joint_falls_back_and_comes_back),
        cmocka_unit_test(joint_never_gives_up_its_only_offer),
        cmocka_unit_test(joint_sees_past_a_zone_that_is_full),
        cmocka_unit_test(joint_patches_what_a_zone_cannot_give),
        cmocka_unit_test(joint_asks_several_at_once_when_short),
        cmocka_unit_test(joint_spreads_when_the_promise_is_missed),
        cmocka_unit_test(joint_heeds_early_losses_of_a_young_fleet),
        cmocka_unit_test(joint_buys_a_spare_where_one_zone_is_too_shaky),
        cmocka_unit_test(joint_is_patient_from_its_first_question_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

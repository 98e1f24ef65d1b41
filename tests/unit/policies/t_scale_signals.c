/* t_scale_signals.c - tests signals that follow a number, on views whose right result is their
 * source's formula worked out by hand. Signals that go step by step or forecast are in
 * t_scale_steps.c, rules for all policies in t_scale_properties.c. */
#include "base/core/bits.h"
#include "tests/unit/policies/scale_rig.h"

#include <math.h>

static void queue_follows_waiting(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_keda_queue, 2);
    r.v.pool_count = 2;
    r.v.pool[1] = rig_pool(1.8);
    r.v.demand.waiting = 14, r.v.demand.held = 6; /* 20 / 5 */
    assert_int_equal(rig_ask(&r, 0), 4);
    assert_int_equal(r.got.choice.want[0], 4); /* the cheaper pool */
    r.v.demand.waiting = 100;
    assert_int_equal(rig_ask(&r, 14), 4); /* the HPA's period is 15 s */
    assert_int_equal(rig_ask(&r, 15), 22);

    static const struct {
        uint32_t have, waiting, want;
        double idle_s;
        const char *why;
    } rows[] = {
        { 10, 54, 10, 0, "10.8 is within a tenth of 10" },
        { 10, 46, 10, 0, "and so is 9.2" },
        { 10, 56, 12, 0, "11.2 is not" },
        { 10, 44, 9, 0, "nor is 8.8" },
        { 3, 0, 1, 0, "nobody waits: one stays" },
        { 3, 0, 1, 299, "within the cooldown" },
        { 3, 0, 0, 301, "behind it" },
        { 0, 1, 1, 0, "one that waits wakes one" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        rig_init(&r, &scale_keda_queue, rows[i].have);
        r.v.demand.waiting = rows[i].waiting;
        r.v.demand.idle_s = rows[i].idle_s;
        if (rows[i].idle_s > 0) r.v.demand.arrivals_s = 0, r.v.demand.in_flight = 0;
        if (rig_ask(&r, 100) != rows[i].want)
            fail_msg("%s: want %u", rows[i].why, r.got.choice.want[0]);
    }
}

static void tokens_count_and_not_requests(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_token_aware, 2);
    r.in[0].prefill_tokens = r.in[1].prefill_tokens = 5000; /* 10,000 / 2,000 / 1.5 = 3.33 */
    rig_load(&r, 900, 0);                                   /* 1.8 / 0.8 = 2.25 */
    assert_int_equal(rig_ask(&r, 0), 4);
    assert_string_equal(r.got.reason, "prompt tokens in line");
    r.in[0].prefill_tokens = r.in[1].prefill_tokens = 0;
    assert_int_equal(rig_ask(&r, 10), 4); /* polled every 15 s */
    assert_int_equal(rig_ask(&r, 15), 3);
    assert_string_equal(r.got.reason, "KV memory in use");
    r.v.demand.held_prompt_tokens = 13000; /* held by routers, in line too: 4.33 */
    assert_int_equal(rig_ask(&r, 30), 5);

    rig_init(&r, &scale_token_aware, 10);
    rig_load(&r, 860, 0); /* 10.75: within the HPA's tenth of 10 */
    assert_int_equal(rig_ask(&r, 0), 10);
    r.v.demand.waiting = 1000; /* the number of requests plays no part */
    assert_int_equal(rig_ask(&r, 15), 10);
    r.in[0].kv_tokens_max = 0;
    for (uint32_t i = 1; i < 10; i++)
        r.in[i].fresh = false;
    rig_fleet(&r, 10, 0);
    r.v.pool[0].ready = 10, r.v.pool[0].starting = 0;
    assert_int_equal(rig_ask(&r, 30), 10); /* no reports: keep */
}

static void latency_against_the_slo(void **state)
{
    (void)state;
    static const struct {
        uint32_t have, ready;
        double ttft, tpot; /* against 2 s and 100 ms */
        uint32_t want;
        const char *why;
    } rows[] = {
        { 4, 4, 1.5, 0.01, 6, "s .75: 4 + ceil(1.45)" },
        { 4, 4, 0.1, 0.075, 6, "the larger of the two counts" },
        { 4, 3, 1.5, 0.01, 5, "c .75: 4 + ceil(.09)" },
        { 4, 2, 1.5, 0.01, 4, "c .5: what starts is enough; never below n" },
        { 4, 4, 100, 0.01, 15, "s is cut at 2: 4 + ceil(10.5)" },
        { 4, 4, 1.0, 0.01, 4, "s .5 lies between" },
        { 4, 4, 0.4, 0.01, 2, "s .2: 4 - floor(2)" },
        { 4, 4, 0.7, 0.01, 4, "s .35: 4 - floor(.5)" },
    };
    struct rig r;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        rig_init(&r, &scale_slo_aware, 0);
        rig_fleet(&r, rows[i].have, rows[i].ready);
        r.v.demand.ttft_known = r.v.demand.tpot_known = true;
        r.v.demand.ttft_s = rows[i].ttft;
        r.v.demand.tpot_s = rows[i].tpot;
        if (rig_ask(&r, 100) != rows[i].want)
            fail_msg("%s: want %u", rows[i].why, r.got.choice.want[0]);
    }
    /* The mean of 45 s: 30 at .2 and 15 at 1.1 are .5, 29 and 16 just above it. */
    rig_init(&r, &scale_slo_aware, 4);
    r.v.demand.ttft_known = true;
    r.v.demand.ttft_s = 0.4;
    rig_ask_each(&r, 0, 60);
    r.v.demand.ttft_s = 2.2;
    assert_int_equal(rig_ask_each(&r, 60, 75), 4);
    assert_true(fabs(r.got.load - 0.5) < 1e-6);
    assert_int_equal(rig_ask_each(&r, 75, 78), 5); /* .56: 4 + ceil(.07) */
    rig_init(&r, &scale_slo_aware, 4);
    assert_int_equal(rig_ask(&r, 0), 4); /* no measurement */
}

static void concurrency_panics_and_calms(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_kpa, 1);
    r.config.concurrency = 8; /* 70 % of it: 5.6 */
    r.v.demand.in_flight = 5;
    assert_int_equal(rig_ask_each(&r, 0, 60), 1);
    r.v.pool[0].ready = 2;
    r.v.demand.in_flight = 10; /* 10 / 5.6 */
    assert_int_equal(rig_ask_each(&r, 60, 120), 2);

    r.v.demand.in_flight = 60; /* panic fills within six seconds: 60 / 5.6 = 10.7 */
    assert_int_equal(rig_ask_each(&r, 120, 126), 11);
    r.v.demand.in_flight = 0; /* in panic the count never falls */
    assert_int_equal(rig_ask_each(&r, 126, 156), 11);
    assert_int_equal(rig_ask_each(&r, 156, 276), 1); /* one stays after a recent request */

    r.v.demand.in_flight = 14;
    assert_int_equal(rig_ask_each(&r, 276, 290), 1); /* three for two ready ones is no panic */
    assert_int_equal(rig_ask_each(&r, 290, 340), 3);

    rig_init(&r, &scale_kpa, 6); /* with six it begins in panic: they stay a minute */
    r.config.concurrency = 8;
    assert_int_equal(rig_ask_each(&r, 0, 60), 6);
    assert_int_equal(rig_ask_each(&r, 60, 62), 1);

    rig_init(&r, &scale_kpa, 0); /* from none: ready counts as one */
    r.config.concurrency = 8;
    r.v.demand.in_flight = 0, r.v.demand.held = 12;
    assert_int_equal(rig_ask(&r, 0), 3);
    r.v.demand.held = 0, r.v.demand.in_flight = 1;
    assert_int_equal(rig_ask_each(&r, 1, 60), 3); /* that was panic too */
}

static void ongoing_with_delays(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_ray_serve, 2);
    r.v.demand.in_flight = 15, r.v.demand.held = 4; /* 19 / 2 */
    assert_int_equal(rig_ask_each(&r, 0, 30), 2);
    assert_int_equal(rig_ask(&r, 30), 10);
    rig_fleet(&r, 10, 10);
    r.v.demand.in_flight = 36;                      /* its count starts anew */
    assert_int_equal(rig_ask_each(&r, 31, 70), 10); /* above it since the sample at 40 s */
    assert_int_equal(rig_ask(&r, 70), 20);
    assert_int_equal(rig_ask(&r, 71), 10);
    rig_fleet(&r, 20, 20);
    r.v.demand.in_flight = 2, r.v.demand.held = 0;
    assert_int_equal(rig_ask_each(&r, 72, 680), 20);
    assert_int_equal(rig_ask(&r, 680), 1);

    rig_init(&r, &scale_ray_serve, 0); /* from none at once */
    r.v.demand.in_flight = 0, r.v.demand.held = 7;
    assert_int_equal(rig_ask(&r, 0), 4);

    rig_init(&r, &scale_ray_serve, 4); /* the mean of three samples, ten seconds apart */
    r.v.demand.in_flight = 8;
    rig_ask_each(&r, 0, 21);
    r.v.demand.in_flight = 20;
    rig_ask_each(&r, 21, 31); /* 8, 8, 20 */
    assert_true(fabs(r.got.load - 6) < 1e-9);
}

static void rate_with_counters(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_skyserve, 1);
    int t = 0;
    for (; t < 320; t++) { /* 2 and 3 a second are above 1 from the look at 40 s on */
        r.v.demand.arrivals_total = 3 * (uint64_t)t;
        assert_int_equal(rig_ask(&r, t), 1);
    }
    r.v.demand.arrivals_total = 3 * (uint64_t)t;
    assert_int_equal(rig_ask(&r, t), 3); /* the fifteenth look in a row */
    rig_fleet(&r, 3, 3);
    r.v.demand.arrivals_s = 0, r.v.demand.in_flight = 0;
    for (t = 321; t < 1520; t++) { /* two a second at 340 */
        r.v.demand.idle_s = t - 320;
        assert_int_equal(rig_ask(&r, t), 3);
    }
    assert_int_equal(rig_ask(&r, 1520), 0); /* the sixtieth; a long silence */
    rig_fleet(&r, 0, 0);
    assert_int_equal(rig_ask(&r, 1541), 0);
    r.v.demand.arrivals_total++, r.v.demand.held = 1, r.v.demand.idle_s = 0;
    assert_int_equal(rig_ask(&r, 1542), 1);
    rig_init(&r, &scale_skyserve, 1);
    r.config.qps_target = 0.25; /* an operator's value */
    r.v.demand.arrivals_total = 0;
    rig_ask(&r, 0);
    r.v.demand.arrivals_total = 60;
    rig_ask(&r, 60);
    assert_true(fabs(r.got.load - 4) < 1e-9);
}

static void kv_share_with_both_stabilisers(void **state)
{
    (void)state;
    static const struct {
        uint64_t kv;
        uint32_t want;
        const char *why;
    } rows[] = {
        { 800, 7, "4 x 1.6 = 6.4" },      { 540, 4, "within a tenth of the target" },
        { 460, 4, "and below it" },       { 560, 5, "1.12 is outside" },
        { 1200, 8, "at most twice" },     { 300, 3, "2.4" },
        { 10, 2, "at least half of it" },
    };
    struct rig r;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        for (int fixed = 0; fixed < 2; fixed++) {
            rig_init(&r, fixed ? &scale_apa_fixed : &scale_aibrix_apa, 4);
            rig_load(&r, rows[i].kv, 0);
            if (rig_ask(&r, 0) != rows[i].want)
                fail_msg("%s: want %u", rows[i].why, r.got.choice.want[0]);
        }
    }
    /* 8 wanted at first, 4 once, then 7: as shipped the policy goes to 4 and stays with it;
     * corrected it stays at 8 until that has left the window of 300 s, then at 7. */
    struct rig s;
    rig_init(&s, &scale_aibrix_apa, 8);
    rig_init(&r, &scale_apa_fixed, 8);
    static const uint64_t kv[] = { 500, 250, 400 };
    static const uint32_t shipped[] = { 8, 4, 4 };
    for (int k = 0; k < 3; k++) {
        rig_load(&s, kv[k], 0);
        rig_load(&r, kv[k], 0);
        assert_int_equal(rig_ask(&s, 10 * k), shipped[k]);
        assert_int_equal(rig_ask(&r, 10 * k), 8);
    }
    for (int t = 30; t < 300; t += 10)
        assert_int_equal(rig_ask(&r, t), 8);
    assert_int_equal(rig_ask(&r, 300), 7);
}

static void bounds_of_memory_and_line(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_blitzscale, 3);
    rig_load(&r, 900, 0); /* 2.7: from ceil(2.84) to ceil(3.6) */
    assert_int_equal(rig_ask(&r, 0), 3);
    r.in[0].prefill_tokens = 10000; /* 5 s: from ceil(6.25) to 10; the middle, 8.5, up */
    assert_int_equal(rig_ask(&r, 0.333), 9);
    r.in[0].prefill_tokens = 0;
    r.v.demand.held_prompt_tokens = 10000;
    assert_int_equal(rig_ask(&r, 0.666), 9);

    rig_init(&r, &scale_blitzscale, 6);
    rig_load(&r, 100, 0); /* 0.6: 1 to 1 */
    assert_int_equal(rig_ask(&r, 1), 6);
    assert_int_equal(rig_ask(&r, 1.3), 6);
    assert_int_equal(rig_ask(&r, 1.34), 5); /* too many for 333 ms */
    rig_fleet(&r, 5, 5);
    rig_load(&r, 100, 0);
    assert_int_equal(rig_ask(&r, 1.6), 5); /* one in 333 ms */
    assert_int_equal(rig_ask(&r, 1.7), 4);
}

static void static_is_a_number(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_static, 1);
    r.config.count = 7;
    assert_int_equal(rig_ask(&r, 0), 7);
    r.v.demand.present = false;
    assert_int_equal(rig_ask(&r, 1), 7);
    r.v.pool[0].max = 5;
    assert_int_equal(rig_ask(&r, 2), 5);
}

/* After an hour back a hold of a minute, or of ten, lasts no longer than that again. */
static void a_clock_that_goes_back_holds_nothing_up(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &scale_kpa, 6); /* it begins in panic, for a minute */
    rig_ask(&r, 7200);
    rig_ask_each(&r, 3600, 3661);
    assert_int_equal(rig_ask(&r, 3662), 1);

    rig_init(&r, &scale_ray_serve, 2);
    r.v.demand.in_flight = 20;
    rig_ask(&r, 7200);
    assert_int_equal(rig_ask(&r, 3600), 2);
    assert_int_equal(rig_ask(&r, 3631), 10);

    rig_init(&r, &scale_blitzscale, 6);
    rig_ask(&r, 7200);
    assert_int_equal(rig_ask(&r, 3600), 6);
    assert_int_equal(rig_ask(&r, 3600.4), 5);

    rig_init(&r, &scale_keda_queue, 1);
    r.v.demand.waiting = 0;
    rig_ask(&r, 7200);
    r.v.demand.waiting = 50;
    assert_int_equal(rig_ask(&r, 3600), 10);
}

/* Three at 3.43 cost a little more than 10.29 in binary. */
static void a_budget_of_whole_instances_is_used_up(void **state)
{
    (void)state;
    static const struct scale_policy *const rows[] = { &scale_keda_queue, &scale_wva_v2,
                                                       &scale_work, &scale_static };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct rig r;
        rig_init(&r, rows[i], 1);
        r.config.count = 9;
        r.v.pool[0] = rig_pool(3.43);
        rig_fleet(&r, 1, 1);
        rig_load(&r, 1000, 90);
        r.v.budget_h = 10.29;
        r.v.demand.waiting = r.v.demand.in_flight = 100;
        r.v.demand.arrivals_s = 1000;
        uint32_t want = rig_ask(&r, 100);
        if (want != 3) fail_msg("%s: %u for what three cost", rows[i]->name, want);
        r.v.budget_h = 10.2;
        want = rig_ask(&r, 200);
        if (want != 2) fail_msg("%s: %u for less than three cost", rows[i]->name, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_follows_waiting),
        cmocka_unit_test(tokens_count_and_not_requests),
        cmocka_unit_test(latency_against_the_slo),
        cmocka_unit_test(concurrency_panics_and_calms),
        cmocka_unit_test(ongoing_with_delays),
        cmocka_unit_test(rate_with_counters),
        cmocka_unit_test(kv_share_with_both_stabilisers),
        cmocka_unit_test(bounds_of_memory_and_line),
        cmocka_unit_test(static_is_a_number),
        cmocka_unit_test(a_clock_that_goes_back_holds_nothing_up),
        cmocka_unit_test(a_budget_of_whole_instances_is_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_gate_year.c - runs the controller over generated spot markets of three providers, through the drivers of EC2,
 * Compute Engine and Azure against their fakes, in virtual time: no rule is broken, and what it has and pays is held
 * against the need and a clairvoyant.
 *
 *     t_gate_year              all of it: rules through the drivers, and the claims, on ten seeds each
 *     t_gate_year quick        the market itself, and a day of one seed through the drivers
 *     t_gate_year rules A B D  seeds A to B of D days through the drivers, rules only
 */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "simulator/stats.h"
#include "tests/fakes/cloud/market_stalls.h"
#include "tests/sim_gates/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEAK_S 60.0 /* through drivers: ten instances or so, of which fakes list few */
#define BUDGET_H 60.0
#define MARGIN 1.03
#define SEEDS 10
#define DAYS 4
/* Held by whole intervals, but for the cost, which does not hold. Measured on these ten seeds, four days each: 99.30
 * +-0.27 % of the time, 99.61 +-0.09 % of the requests, 1.36 +-0.15 of the clairvoyant's cost. */
#define AVAILABLE 99.0
#define SERVED 99.3
#define RATIO 1.4

static uint64_t first_seed = 1, last_seed = 10, rule_days = 2;
static bool quick;

/* ---- the market is as published ---- */

/* Counts, of a line of capacity, the share of time that it is there and how often it goes. */
static void watch(const struct market *m, uint32_t pool, uint32_t zone, int64_t days,
                  double *ret_up, double *ret_drops)
{
    bool was = false;
    *ret_up = *ret_drops = 0;
    for (int64_t at_s = 0; at_s < days * 86400; at_s += 300) { /* as the traces were taken */
        bool is = market_has(m, pool, zone, true, at_s);
        *ret_up += is;
        *ret_drops += was && !is;
        was = is;
    }
    *ret_up /= (double)(days * 288);
}

/* Nine zones of V100 in 45.5 days: there for 17 to 91 % of the time, 94 to 343 drops. */
static void zones_are_as_the_public_traces(void **state)
{
    (void)state;
    double least = 1, most = 0, fewest = 1e9, highest = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct market *m = market_new(seed, 182);
        assert_non_null(m);
        for (uint32_t k = 0; k < MARKET_POOLS; k++)
            for (uint32_t z = 0; z < MARKET_ZONES; z++) {
                double up, drops;
                watch(m, k, z, 182, &up, &drops);
                if (market_pool[k].stocked_h > 0)
                    continue; /* those are away for another cause too */
                least = fmin(least, up);
                most = fmax(most, up);
                fewest = fmin(fewest, drops / 4);
                highest = fmax(highest, drops / 4);
            }
        market_free(m);
    }
    gate_within("the worst zone's availability", least, 0.17, 0.3);
    gate_within("the best zone's availability", most, 0.91, 0.05);
    gate_within("fewest drops in 45.5 days", fewest, 94, 0.25);
    gate_within("most drops in 45.5 days", highest, 343, 0.25);
}

/* Two zones of a region lose a type in the same five minutes more often than two of different providers. */
static void zones_of_a_region_go_together(void **state)
{
    (void)state;
    double together = 0, apart = 0, drops = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct market *m = market_new(seed, 182);
        assert_non_null(m);
        bool was[3] = { false };
        for (int64_t at_s = 0; at_s < (int64_t)182 * 86400; at_s += 300) {
            bool is[3] = { market_has(m, 1, 0, true, at_s), market_has(m, 1, 1, true, at_s),
                           market_has(m, 3, 0, true, at_s) };
            bool gone[3];
            for (int i = 0; i < 3; i++) {
                gone[i] = was[i] && !is[i];
                was[i] = is[i];
            }
            drops += gone[0];
            together += gone[0] && gone[1];
            apart += gone[0] && gone[2];
        }
        market_free(m);
    }
    gate_above("losses that a zone of the region shares, of those that one elsewhere shares",
               together, 2 * apart + 1);
    assert_true(drops > 100);
}

/* A market is a function of its seed, and a longer one begins as a shorter one. */
static void a_longer_market_begins_alike(void **state)
{
    (void)state;
    struct market *a = market_new(5, 30), *b = market_new(5, 60), *c = market_new(6, 30);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    uint32_t same = 0, others = 0;
    for (int64_t at_s = 0; at_s < 29 * 86400; at_s += 600)
        for (uint32_t k = 0; k < MARKET_POOLS; k++) {
            assert_int_equal(market_has(a, k, 1, true, at_s), market_has(b, k, 1, true, at_s));
            same += market_has(a, k, 1, true, at_s) == market_has(c, k, 1, true, at_s);
            others++;
        }
    assert_true(same < others);
    market_free(a);
    market_free(b);
    market_free(c);
}

/* Whoever buys on demand alone pays for all that is needed, at the cheapest price for its work at least: also in hours in
 * which nothing more is sold, and where other pools may not be bought from. */
static void a_clairvoyant_pays_for_what_it_holds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct market *m = market_new(seed, 28);
        struct market_need need;
        assert_non_null(m);
        assert_true(market_need_init(&need, seed, 28, 200));
        double work = 0; /* requests, in steps of a rate */
        for (uint32_t i = 0; i + 1 < need.count; i++)
            work += (double)need.rate_s[i] * MARKET_NEED_STEP_S / 3600;
        struct market_choice all = { .no_spot = true }, one = { .no_spot = true };
        double cheapest = 1e9;
        for (uint32_t k = 0; k < MARKET_POOLS; k++) {
            all.rate_s[k] = clouds_rate_s(k);
            cheapest = fmin(cheapest, market_pool[k].price_h / all.rate_s[k]);
        }
        one.rate_s[0] = all.rate_s[0]; /* it is never sold out */
        double least = work * market_pool[0].price_h / one.rate_s[0];
        assert_true(market_layers_cost(m, &need, &one) > 0.98 * least); /* layers round the need */
        /* MARKET_UNITS are coarse for it: 2.3 count as 3, in the clairvoyant's favour */
        assert_true(market_whole_cost(m, &need, &one) > 0.66 * least);
        assert_true(market_layers_cost(m, &need, &all) > 0.98 * work * cheapest);
        assert_true(market_whole_cost(m, &need, &all) > 0.92 * work * cheapest); /* 11.3 as 12 */
        market_need_fini(&need);
        market_free(m);
    }
}

/* ---- runs ---- */

struct year {
    struct clouds_result r;
    double least; /* dollars, of the clairvoyant */
    uint32_t bad_forms;
};

static void run(uint64_t seed, uint32_t days, double peak_s, bool drivers, double budget_h,
                struct year *ret)
{
    struct clouds_seller sellers[MARKET_PROVIDERS];
    struct clouds_shops *shops = NULL;
    struct market_stalls *stalls = NULL;
    struct err err = { 0 };
    struct market *m = market_new(seed, days);
    struct market_need need;
    assert_non_null(m);
    assert_true(market_need_init(&need, seed, days, peak_s));
    if (drivers)
        stalls = market_stalls_new(m, sellers);
    else
        assert_int_equal(clouds_shops_new(m, &shops, sellers, &err), 0);
    struct clouds_setup setup = { .seed = seed,
                                  .days = days,
                                  .market = m,
                                  .need = &need,
                                  .seller = sellers,
                                  .budget_h = budget_h,
                                  .mix = &mix_joint,
                                  .scale = &scale_static,
                                  .margin = MARGIN };
    struct market_choice all = { 0 };
    for (uint32_t k = 0; k < MARKET_POOLS; k++) {
        setup.pool[k] = true;
        all.rate_s[k] = clouds_rate_s(k);
    }
    if (clouds_run(&setup, &ret->r, &err) < 0) fail_msg("seed %d: %s", (int)seed, err.text);
    ret->least = market_clairvoyant(m, &need, &all);
    const char *last = "";
    ret->bad_forms = stalls ? market_stalls_bad_forms(stalls, &last) : 0;
    if (ret->bad_forms > 0) fail_msg("seed %d: a wrong request: %s", (int)seed, last);
    if (stalls) market_stalls_free(stalls);
    clouds_shops_free(shops);
    market_need_fini(&need);
    market_free(m);
}

static uint32_t broken(const struct clouds_result *r)
{
    return r->doubled + r->orphans + r->over_budget + r->too_soon;
}

static void no_rule_is_broken_through_the_drivers(void **state)
{
    (void)state;
    double hours = 0, ticks = 0, launches = 0, lost = 0;
    uint32_t days = quick ? 1 : (uint32_t)rule_days;
    uint64_t last = quick ? first_seed : last_seed;
    for (uint64_t seed = first_seed; seed <= last; seed++) {
        struct year y;
        run(seed, days, PEAK_S, true, BUDGET_H, &y);
        hours += y.r.hours;
        ticks += (double)y.r.ticks;
        launches += y.r.launches;
        lost += y.r.lost;
        if (broken(&y.r) > 0)
            fail_msg("seed %d: %u times: %s", (int)seed, broken(&y.r), y.r.broken);
        assert_true(y.r.cost_h_most > 0);
    }
    print_message("seeds %u to %u, %u days each, through the drivers: %.0f ticks, %.0f launches, "
                  "%.0f taken, no rule broken\n",
                  (unsigned)first_seed, (unsigned)last, days, ticks, launches, lost);
    assert_true(launches > 0 && hours > 0);
}

static void what_is_needed_is_there_and_costs_little_more(void **state)
{
    (void)state;
    double available[SEEDS], served[SEEDS], ratio[SEEDS];
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct year y;
        run(100 + seed, DAYS, 200, false, 0, &y);
        available[seed - 1] = 100 * (1 - y.r.short_h / y.r.hours);
        served[seed - 1] = 100 * (1 - y.r.unserved / y.r.requests);
        ratio[seed - 1] = y.r.cost / y.least;
        if (broken(&y.r) > 0) fail_msg("seed %d: %s", (int)seed, y.r.broken);
    }
    gate_interval_above("available, % of the time", stats_mean(available, SEEDS), AVAILABLE);
    gate_interval_above("served, % of the requests", stats_mean(served, SEEDS), SERVED);
    gate_interval_below("cost, of a clairvoyant's", stats_mean(ratio, SEEDS), RATIO);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zones_are_as_the_public_traces),
        cmocka_unit_test(zones_of_a_region_go_together),
        cmocka_unit_test(a_longer_market_begins_alike),
        cmocka_unit_test(a_clairvoyant_pays_for_what_it_holds),
        cmocka_unit_test(no_rule_is_broken_through_the_drivers),
        cmocka_unit_test(what_is_needed_is_there_and_costs_little_more),
    };
    log_set_level(LOG_ERROR);
    quick = argc == 2 && strcmp(argv[1], "quick") == 0;
    if (argc == 5 && strcmp(argv[1], "rules") == 0) {
        if (str_to_u64(str_from(argv[2]), &first_seed) < 0 ||
            str_to_u64(str_from(argv[3]), &last_seed) < 0 ||
            str_to_u64(str_from(argv[4]), &rule_days) < 0 || rule_days < 1 || rule_days > 60)
            fail_msg("rules FIRST LAST DAYS are numbers, days from 1 to 60");
        const struct CMUnitTest rules[] = { cmocka_unit_test(
            no_rule_is_broken_through_the_drivers) };
        return cmocka_run_group_tests(rules, NULL, NULL);
    }
    if (!quick) return cmocka_run_group_tests(tests, NULL, NULL);
    const struct CMUnitTest few[] = { cmocka_unit_test(zones_are_as_the_public_traces),
                                      cmocka_unit_test(zones_of_a_region_go_together),
                                      cmocka_unit_test(a_longer_market_begins_alike),
                                      cmocka_unit_test(a_clairvoyant_pays_for_what_it_holds),
                                      cmocka_unit_test(no_rule_is_broken_through_the_drivers) };
    return cmocka_run_group_tests(few, NULL, NULL);
}

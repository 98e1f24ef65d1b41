/* t_gate_margins.c - Azure conv superposed ten times: ours keeps the promise in every world, nowhere for
 * more than the whole number of instances that is best there, and for less in the mean of them.
 * Superposed thirty times: what trading slow machines saves. `bench_margins` compares with other rows.
 *
 *     t_gate_margins [WORLDS [LEAD_S]]
 */
#include "base/core/bits.h"
#include "simulator/stats.h"
#include "tests/sim_gates/margin.h"

#include <stdio.h>
#include <stdlib.h>

#define WORLDS_MAX 20
#define FLEETS_MAX 5     /* of whole numbers tried */
#define DEARER_MAX 0.005 /* of the cost: three minutes of one instance */

static uint32_t worlds = 6;
static double lead_s = 100;

static void ours_against_the_best_whole_number(void **state)
{
    (void)state;
    double ratio[WORLDS_MAX];
    struct margin_bed bed =
        margin_open("--trace azure-2023-conv.csv --fleet 1-9-50xa100@3.43 --scale 10 "
                    "--scale-policy work --drain 60s",
                    1e6);
    for (uint32_t w = 0; w < worlds; w++) {
        struct margin_point own = margin_at(&bed, scale_find(STR("work")), lead_s, w + 1, 1), still;
        assert_true(
            margin_cheapest(&bed, scale_find(STR("static")), lead_s, w + 1, FLEETS_MAX, 0, &still));
        printf("lead %.0f s, world %u: work %.4f with %.3f instances, static %.4f with %.0f\n",
               lead_s, w + 1, own.attainment, own.instances, still.attainment, still.instances);
        assert_true(own.attainment >= MARGIN_ATTAINMENT);
        ratio[w] = own.cost / still.cost;
        assert_true(ratio[w] <= 1 + DEARER_MAX);
    }
    struct stats_mean mean = stats_mean(ratio, worlds);
    printf("cost over that of the best whole number: %.3f +- %.3f\n", mean.mean, mean.half);
    assert_true(mean.mean < 1);
    margin_close(&bed);
}

/* Thirty times the trace for half an hour, where one of 27 is a small step: with a life of a second
 * nothing new pays, so nothing is traded. */
static void slow_machines_are_traded(void **state)
{
    (void)state;
    static const uint64_t seed[] = { 3, 4, 7 };
    double ratio[COUNT_OF(seed)];
    struct margin_bed bed =
        margin_open("--trace azure-2023-conv.csv --fleet 1-27-150xa100@3.43 --scale 30 "
                    "--scale-policy work --drain 60s",
                    1800);
    double *life_s = &bed.gate.arms.arm[0].control.service[0].scale.life_s,
           life_default_s = *life_s;
    for (uint32_t w = 0; w < COUNT_OF(seed); w++) {
        struct margin_point traded = margin_at(&bed, scale_find(STR("work")), 10, seed[w], 1);
        *life_s = 1;
        struct margin_point kept = margin_at(&bed, scale_find(STR("work")), 10, seed[w], 1);
        *life_s = life_default_s;
        printf("world %u: %.4f with %.3f instances, %.4f with %.3f without trades\n",
               (unsigned)seed[w], traded.attainment, traded.instances, kept.attainment,
               kept.instances);
        assert_true(traded.attainment >= MARGIN_ATTAINMENT);
        ratio[w] = traded.cost / kept.cost;
    }
    struct stats_mean mean = stats_mean(ratio, COUNT_OF(seed));
    printf("cost with trades: %.3f +- %.3f of that without\n", mean.mean, mean.half);
    assert_true(mean.mean < 1);
    margin_close(&bed);
}

int main(int argc, char **argv)
{
    gate_need_data();
    if (argc > 1) worlds = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) lead_s = strtod(argv[2], NULL);
    if (worlds < 2 || worlds > WORLDS_MAX || !(lead_s > 0)) return 2;
    const struct CMUnitTest tests[] = { cmocka_unit_test(ours_against_the_best_whole_number),
                                        cmocka_unit_test(slow_machines_are_traded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

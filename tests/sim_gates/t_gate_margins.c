/* t_gate_margins.c - judges the cost of `work` against the best fixed fleet known only in hindsight.
 *
 * On Azure's conversation trace superposed ten times `work` keeps the SLO in every world, and costs at
 * most 1.5 % more than the best whole number of instances there, in each world and at the end of the
 * interval. `bench_margins` compares with other policies.
 *
 *     t_gate_margins [WORLDS [LEAD_S]]
 */
#include "base/core/bits.h"
#include "simulator/stats.h"
#include "tests/sim_gates/margin.h"

#include <stdio.h>
#include <stdlib.h>

#define WORLDS_MAX 20
#define WORLD_FIRST 21   /* no constant of `work` was chosen or tried on these worlds */
#define FLEETS_MAX 5     /* whole numbers tried */
#define DEARER_MAX 0.015 /* of the cost, in the worst of ten worlds; 0.006 when it was set */

static uint32_t worlds = 10;
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
        struct margin_point own = margin_at(&bed, scale_find(STR("work")), lead_s, WORLD_FIRST + w,
                                            1),
                            still;
        assert_true(margin_cheapest(&bed, scale_find(STR("static")), lead_s, WORLD_FIRST + w,
                                    FLEETS_MAX, 0, &still));
        printf("lead %.0f s, world %u: work %.4f with %.3f instances, static %.4f with %.0f\n",
               lead_s, WORLD_FIRST + w, own.attainment, own.instances, still.attainment,
               still.instances);
        assert_true(own.attainment >= MARGIN_ATTAINMENT);
        ratio[w] = own.cost / still.cost;
        assert_true(ratio[w] <= 1 + DEARER_MAX);
    }
    struct stats_mean mean = stats_mean(ratio, worlds);
    printf("cost over that of the best whole number: %.3f +- %.3f\n", mean.mean, mean.half);
    /* 0.990 +- 0.019 when it was set. The claim was below 1 before policies saw routers' windows of
     * fifteen seconds, on worlds that constants had been chosen on. */
    assert_true(mean.mean + mean.half < 1 + DEARER_MAX);
    margin_close(&bed);
}

int main(int argc, char **argv)
{
    if (argc > 1) worlds = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) lead_s = strtod(argv[2], NULL);
    if (worlds < 2 || worlds > WORLDS_MAX || !(lead_s > 0)) return 2;
    const struct CMUnitTest tests[] = { cmocka_unit_test(ours_against_the_best_whole_number) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

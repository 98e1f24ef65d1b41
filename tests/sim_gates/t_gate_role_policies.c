/* t_gate_role_policies.c - judges policies that split a running fleet into prefill and decode instances
 * against colocated serving and against the best of all fixed splits.
 *
 * Four A100 with Llama-3-8B serve two loads; the best split is 1P3D on one and 3P1D on the other, and
 * cannot be known beforehand. The policies begin colocated, learn the demand while they serve it and
 * pay for their mistakes. Worlds 11 to 20; loads and SLOs were chosen on
 * worlds 1 to 3.
 *
 * Not claimed, because it does not hold: dynamo_pd on the first load (its thresholds do not know the
 * TPOT) and splitwise on the second (one prompt is most of its threshold, so that it always borrows);
 * docs/systems/transfer.md has their figures.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#define OUTPUTS                                                                           \
    "--trace gen:poisson,rate=4,prompt=lognormal(1000,1),output=lognormal(200,1),n=3000 " \
    "--slo-ttft 2s --slo-tpot 12ms --seed 41 --seeds 10 "
#define PROMPTS                                                                            \
    "--trace gen:poisson,rate=5,prompt=lognormal(6000,0.5),output=lognormal(40,1),n=3000 " \
    "--slo-ttft 4s --slo-tpot 20ms --seed 41 --seeds 10 "
#define POLICIES      \
    "--fleet 4xa100 " \
    "--compare role=colocated,planner,distserve,splitwise,pd_serve,dynamo_pd,thunderserve"
#define SPLITS                                                                   \
    "--compare fleet=1xa100:prefill+3xa100:decode,2xa100:prefill+2xa100:decode," \
    "3xa100:prefill+1xa100:decode"
#define WITHIN "slo.attainment"
#define NEAR 0.05 /* behind the best split, which is known only afterwards */

/* distserve and pd_serve need not stay within NEAR on the first load: they first decide with the
 * controller's first ticks, as in the product, on a handful of arrivals, where the simulator used to
 * wait five seconds. On these seeds, on which nothing was chosen, they are 3.3 +-4.0 and 8.1 +-7.6 %
 * behind (docs/systems/transfer.md). */

static const struct gate_effects effects[] = {
    { "long outputs under a tight TPOT: one prefill instance and three for decode",
      OUTPUTS POLICIES, .beside = OUTPUTS SPLITS,
      .effect =
      {
          { "role=planner", "role=colocated", WITHIN, .bound = 0.40, .measured = 1.44 },
          { "role=distserve", "role=colocated", WITHIN, .bound = 0.35, .measured = 1.17 },
          { "role=splitwise", "role=colocated", WITHIN, .bound = 0.35, .measured = 1.22 },
          { "role=pd_serve", "role=colocated", WITHIN, .bound = 0.35, .measured = 0.94 },
          { "role=thunderserve", "role=colocated", WITHIN, .bound = 0.40, .measured = 1.46 },
          { "role=planner", GATE_BEST, WITHIN, .behind_max = NEAR, .measured = GATE_NEVER },
          { "role=splitwise", GATE_BEST, WITHIN, .behind_max = NEAR, .measured = 0.017 },
          { "role=thunderserve", GATE_BEST, WITHIN, .behind_max = NEAR, .measured = GATE_NEVER },
      } },
    { "long prompts: three prefill instances and one for decode",
      PROMPTS POLICIES, .beside = PROMPTS SPLITS,
      .effect =
      {
          { "role=planner", "role=colocated", WITHIN, .bound = 0.60, .measured = 0.83 },
          { "role=distserve", "role=colocated", WITHIN, .bound = 0.60, .measured = 0.83 },
          { "role=pd_serve", "role=colocated", WITHIN, .bound = 0.50, .measured = 0.68 },
          { "role=dynamo_pd", "role=colocated", WITHIN, .bound = 0.60, .measured = 0.83 },
          { "role=thunderserve", "role=colocated", WITHIN, .bound = 0.60, .measured = 0.83 },
          { "role=planner", GATE_BEST, WITHIN, .behind_max = NEAR, .measured = GATE_NEVER },
          { "role=distserve", GATE_BEST, WITHIN, .behind_max = NEAR, .measured = GATE_NEVER },
          { "role=dynamo_pd", GATE_BEST, WITHIN, .behind_max = NEAR, .measured = GATE_NEVER },
          { "role=thunderserve", GATE_BEST, WITHIN, .behind_max = NEAR, .measured = 0.003 },
      } },
};

static void policies_are_worth_what_is_claimed(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
}

static void every_policy_is_held_against_something(void **state)
{
    (void)state;
    assert_int_equal(judged_missed("role", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_worth_what_is_claimed),
        cmocka_unit_test(every_policy_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

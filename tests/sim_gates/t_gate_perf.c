/* t_gate_perf.c - judges models of an instance's step time in a world where its speed is hidden.
 *
 * Each instance is faster or slower than its hardware by a lognormal factor with a sigma of 0.3.
 * Routing, chunks and admission use the estimates. Three of the models learn from steps; they differ
 * from each other by less than the interval (docs/systems/performance-model.md).
 *
 * The claim is the mean JCT. It was attainment until the default routing policy weighed decoding by the
 * time of each phase: since then wrong estimates cost little attainment on equal hardware (learning
 * gains 1.1 +-1.8 %, was 9.6 +-3.4), and on mixed hardware worlds differ too much (+23 +-23 %).
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#define MODELS "--bias 0.3 --seeds 10 --compare perf=roofline,roofline_residual,linear,table"
#define JCT "jct_s.mean"

static const struct gate_effects effects[] = {
    { "equal hardware: the closed form corrected by steps, or learned from them",
      "--trace azure-2023-conv.csv --fleet 8xa100 --speed 7 " MODELS,
      {
          { "perf=roofline_residual", "perf=roofline", JCT, -0.08, .measured = -0.16 },
          { "perf=linear", "perf=roofline", JCT, -0.08, .measured = -0.15 },
          { "perf=table", "perf=roofline", JCT, -0.08, .measured = -0.16 },
      } },
    { "mixed hardware",
      "--trace azure-2023-conv.csv --fleet 4xa100,8xl4 --speed 5 " MODELS,
      {
          { "perf=roofline_residual", "perf=roofline", JCT, -0.08, .measured = -0.24 },
          { "perf=linear", "perf=roofline", JCT, -0.08, .measured = -0.24 },
          { "perf=table", "perf=roofline", JCT, -0.08, .measured = -0.28 },
      } },
};

static void learning_from_steps_makes_outputs_end_sooner(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
    assert_int_equal(judged_missed("perf", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        learning_from_steps_makes_outputs_end_sooner) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_gate_perf.c - what instances believe of their speed, in a world where it is hidden.
 *
 * Each instance is faster or slower than its hardware by a lognormal factor with a sigma of 0.3.
 * Routing, chunks and admission live on the estimates. Three of the models learn from steps; they
 * differ from each other by less than the interval (docs/systems/performance-model.md).
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#define MODELS "--bias 0.3 --seeds 10 --compare perf=roofline,roofline_residual,linear,table"
#define WITHIN "slo.attainment"

static const struct gate_effects effects[] = {
    { "equal hardware: the closed form corrected by steps, or learned from them",
      "--trace azure-2023-conv.csv --fleet 8xa100 --speed 7 " MODELS,
      {
          { "perf=roofline_residual", "perf=roofline", WITHIN, 0.03, .measured = 0.096 },
          { "perf=linear", "perf=roofline", WITHIN, 0.03, .measured = 0.09 },
          { "perf=table", "perf=roofline", WITHIN, 0.03, .measured = 0.09 },
      } },
    { "mixed hardware",
      "--trace azure-2023-conv.csv --fleet 4xa100,8xl4 --speed 5 " MODELS,
      {
          { "perf=roofline_residual", "perf=roofline", WITHIN, 0.10, .measured = 0.41 },
          { "perf=linear", "perf=roofline", WITHIN, 0.10, .measured = 0.39 },
      } },
};

static void learning_from_steps_keeps_more_promises(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
    assert_int_equal(judged_missed("perf", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(learning_from_steps_keeps_more_promises) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

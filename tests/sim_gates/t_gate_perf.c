/* t_gate_perf.c - what instances believe of their speed, in a world where it is hidden.
 *
 * Each instance is faster or slower than its hardware by a lognormal factor with a sigma of 0.3.
 * Routing, chunks and admission live on the estimates. */
#include "base/core/bits.h"
#include "tests/sim_gates/gate.h"

static void check(const char *command, double loss)
{
    struct gate g = gate_run(command);
    struct stats_mean closed = gate_difference(&g, "perf=roofline", "slo.attainment");
    struct stats_mean linear = gate_difference(&g, "perf=linear", "slo.attainment");
    gate_below("the closed form alone, attainment against the corrected", closed.mean, -loss);
    gate_below("linear, attainment against the corrected", linear.mean, 0.02);
    gate_free(&g);
}

static void corrections_pay_on_equal_hardware(void **state)
{
    (void)state;
    check("--trace azure-2023-conv.csv --fleet 8xa100 --speed 7 --bias 0.3 "
          "--compare perf=roofline_residual,roofline,linear --seeds 5",
          0.04);
}

static void corrections_pay_on_mixed_hardware(void **state)
{
    (void)state;
    check("--trace azure-2023-conv.csv --fleet 4xa100,8xl4 --speed 5 --bias 0.3 "
          "--compare perf=roofline_residual,roofline,linear --seeds 5",
          0.10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corrections_pay_on_equal_hardware),
        cmocka_unit_test(corrections_pay_on_mixed_hardware),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

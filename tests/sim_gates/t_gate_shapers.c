/* t_gate_shapers.c - judges what each shaper and forecast is worth against its simple alternative,
 * behind the same signal. Ten paired seeds; the machine and the loads are as in t_gate_signals.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#define MACHINE "measured:a=0.03:b=4e-4:c=0.001@1 --kv-tokens 40000 --slo-tpot 150ms "
#define WORDS "prompt=lognormal(1000,1),output=lognormal(150,1) "

/* Bounds set anew when policies began to see routers' windows of fifteen seconds instead of one of a
 * minute (measured then: window -31 +-15 % of the actions, hpa +34 +-11 % of the cost, constant
 * against arima -30 +-18, kalman -20 +-16, holt -36 +-17 % of the attainment). */
static const struct gate_effects shapers[] = {
    { "a queue that empties: forgotten at once, after a minute, after five",
      "--trace gen:poisson,rate=steps(1:300,5:300,1:600)," WORDS "--fleet 1-12x" MACHINE
      "--slo-ttft 3s --lead-time 30s --scale-policy keda_queue --seeds 10 "
      "--compare shaper=none,window,hpa",
      {
          { "shaper=window", "shaper=none", "slo.attainment", 0.10, .measured = 0.215 },
          { "shaper=window", "shaper=none", "scale_actions", -0.15, .measured = -0.419 },
          { "shaper=hpa", "shaper=window", "slo.attainment", 0.08, .measured = 0.140 },
      } },
    { "outputs of half a second: halves every two seconds serve some that `none` leaves waiting",
      "--trace gen:poisson,rate=steps(2:200,12:1200),prompt=100,output=4 --slo-ttft 1s "
      "--slo-tpot 300ms --lead-time 20s --fleet 1-20xmeasured:a=0.05:b=2e-3:c=0.001@1 "
      "--kv-tokens 40000 --scale-policy keda_queue --seeds 10 --compare shaper=none,kpa",
      { { "shaper=kpa", "shaper=none", "ttft_s.mean", -0.02, .measured = -0.101 } } },
};

static const struct gate_effects forecasts[] = {
    { "half a request a second more every three minutes",
      "--trace gen:poisson,rate=steps(0.5:360,1:180,1.5:180,2:180,2.5:180,3:180,3.5:180,4:180,"
      "4.5:180,5:180,5.5:180,6:180)," WORDS "--slo-ttft 3s --lead-time 30s --fleet 1-16x" MACHINE
      "--scale-policy dynamo_throughput --seeds 10 "
      "--compare forecast=constant,arima,kalman,holt",
      {
          { "forecast=constant", "forecast=arima", "slo.attainment", -0.10, .measured = -0.294 },
          { "forecast=constant", "forecast=kalman", "slo.attainment", -0.03, .measured = -0.239 },
          { "forecast=constant", "forecast=holt", "slo.attainment", -0.15, .measured = -0.347 },
      } },
};

static void shapers_are_worth_what_is_claimed(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(shapers, COUNT_OF(shapers)), 0);
    assert_int_equal(judged_missed("shaper", NULL), 0);
}

static void forecasts_carry_a_trend_on(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(forecasts, COUNT_OF(forecasts)), 0);
    assert_int_equal(judged_missed("forecast", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapers_are_worth_what_is_claimed),
        cmocka_unit_test(forecasts_carry_a_trend_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

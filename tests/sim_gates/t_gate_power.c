/* t_gate_power.c - judges that slower clocks save energy where the SLO leaves room, and that caps hold.
 *
 * Eight A100 with Llama-3-8B serve the Azure chat trace at half of their capacity, and four with more
 * slack, where both policies must reach the least of mu-Serve's published savings, 1.2 to 2.6 times. */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#define WORLD "--trace azure-2023-conv.csv --fleet 8xa100 --slo-tpot 80ms "

#define ENERGY "energy_kwh"
#define WITHIN "slo.attainment"

static const struct gate_effects effects[] = {
    { "eight A100 at half of what they could do",
      WORLD "--speed 3 --compare power=max,mu_serve,dynamollm --seeds 10",
      {
          { "power=mu_serve", "power=max", ENERGY, -0.20, .measured = -0.252 },
          { "power=dynamollm", "power=max", ENERGY, -0.15, .measured = -0.184 },
          { "power=mu_serve", "power=max", WITHIN, .behind_max = 0.01, .measured = GATE_NEVER },
          { "power=dynamollm", "power=max", WITHIN, .behind_max = 0.01, .measured = GATE_NEVER },
      } },
    { "four with more slack: mu-Serve's published 1.2 times at least",
      "--trace azure-2023-conv.csv --fleet 4xa100 --speed 2 --requests 12000 --slo-ttft 2s "
      "--slo-tpot 100ms --compare power=max,mu_serve,dynamollm --seeds 10",
      {
          { "power=mu_serve", "power=max", ENERGY, 1 / 1.2 - 1, .measured = -0.251 },
          /* Was -0.28 and bounded the mean of five seeds; now it bounds the interval's end (1.7 %). */
          { "power=dynamollm", "power=max", ENERGY, -0.26, .measured = -0.294 },
          { "power=mu_serve", "power=max", WITHIN, .behind_max = 0.01, .measured = 0.001 },
          { "power=dynamollm", "power=max", WITHIN, .behind_max = 0.01, .measured = GATE_NEVER },
      } },
    { "a limit that bursts reach: less energy, and nearly everything still in time",
      WORLD "--speed 6 --power-limit-watts 2400 --compare power=max,polca --seeds 10",
      {
          { "power=polca", "power=max", ENERGY, -0.01, .measured = -0.064 },
          { "power=polca", "power=max", WITHIN, .behind_max = 0.01, .measured = GATE_NEVER },
      } },
};

static void slower_clocks_save_energy_within_the_slo(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
    assert_int_equal(judged_missed("power", NULL), 0);
}

/* Two services behind a breaker that their peaks overdraw. With equal priorities the policy brakes
 * both; with one of low priority the other hardly notices the breaker. */
#define TWO_SERVICES                                                                    \
    "--trace gen:poisson,rate=26,prompt=lognormal(1200,1.2),output=lognormal(220,1.2)," \
    "services=2,n=15000 --slo-tpot 80ms --power polca --power-limit-watts 2100 --seeds 10 "

static void work_that_can_wait_takes_the_caps(void **state)
{
    (void)state;
    struct gate alike = gate_run(TWO_SERVICES "--fleet 4xa100:service0,4xa100:service1");
    struct gate apart = gate_run(TWO_SERVICES "--fleet 4xa100:service0,4xa100:service1:low");
    gate_interval_below("attainment, all alike", gate_mean(&alike, NULL, "slo.attainment"), 0.95);
    struct stats_mean kept = gate_mean(&apart, NULL, "slo.attainment");
    /* Was 0.99 until policies saw tails as routers report them, over two minutes, instead of the last
     * 512 responses: since then 0.9895, and 0.9882 in one world for the service of high priority. */
    gate_above("attainment, one service of low priority", kept.mean - kept.half, 0.985);
    for (uint32_t s = 0; s < apart.arms.seeds; s++)
        gate_above("of the other", apart.arms.arm[0].run[s].service[0].attainment, 0.98);
    gate_free(&alike);
    gate_free(&apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slower_clocks_save_energy_within_the_slo),
        cmocka_unit_test(work_that_can_wait_takes_the_caps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_gate_power.c - slower clocks save energy where the promise leaves room, and caps hold.
 *
 * Eight A100 with Llama-3-8B and the Azure chat trace at half of what they could do, and four with
 * more slack, where mu-Serve's published saving of 1.2 to 2.6 times is asked of both rows. */
#include "base/core/bits.h"
#include "tests/sim_gates/gate.h"

#define WORLD "--trace azure-2023-conv.csv --fleet 8xa100 --slo-tpot 80ms "

static void clocks_follow_the_promise(void **state)
{
    (void)state;
    struct gate g = gate_run(WORLD "--speed 3 --compare power=max,mu_serve,dynamollm --seeds 10");
    gate_below("mu_serve, energy", gate_relative(&g, "power=mu_serve", "energy_kwh"), -0.20);
    gate_above("mu_serve, attainment", gate_mean(&g, "power=mu_serve", "slo.attainment").mean,
               0.99);
    gate_below("dynamollm, energy", gate_relative(&g, "power=dynamollm", "energy_kwh"), -0.15);
    gate_above("dynamollm, attainment", gate_mean(&g, "power=dynamollm", "slo.attainment").mean,
               0.99);
    gate_free(&g);
}

/* Without load there is more to save; a promise that is kept is kept on quiet days too. */
static void loose_promises_save_more(void **state)
{
    (void)state;
    struct gate g = gate_run("--trace azure-2023-conv.csv --fleet 4xa100 --speed 2 "
                             "--requests 12000 --slo-ttft 2s --slo-tpot 100ms "
                             "--compare power=max,mu_serve,dynamollm --seeds 5");
    gate_below("mu_serve, energy", gate_relative(&g, "power=mu_serve", "energy_kwh"), 1 / 1.2 - 1);
    gate_above("mu_serve, attainment", gate_mean(&g, "power=mu_serve", "slo.attainment").mean,
               0.99);
    gate_below("dynamollm, energy", gate_relative(&g, "power=dynamollm", "energy_kwh"), -0.30);
    gate_above("dynamollm, attainment", gate_mean(&g, "power=dynamollm", "slo.attainment").mean,
               0.99);
    gate_free(&g);
}

/* A limit that bursts reach: less energy, and nearly everything still in time. */
static void a_cap_costs_little_while_it_is_near_the_peak(void **state)
{
    (void)state;
    struct gate g =
        gate_run(WORLD "--speed 6 --row-watts 2400 --compare power=max,polca --seeds 5");
    gate_below("polca, energy", gate_relative(&g, "power=polca", "energy_kwh"), -0.01);
    gate_above("polca, attainment", gate_mean(&g, "power=polca", "slo.attainment").mean, 0.99);
    gate_free(&g);
}

int main(void)
{
    gate_need_data();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_follow_the_promise),
        cmocka_unit_test(loose_promises_save_more),
        cmocka_unit_test(a_cap_costs_little_while_it_is_near_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

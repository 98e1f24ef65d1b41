/* t_gate_chunks.c - the default chunk row keeps at least as many SLOs as the best of the others.
 *
 * Which other is the best depends on load, hardware and SLO: small chunks where the first token
 * may take its time, large ones where it may not or where the machine is at its limit. The default is
 * given no setting for any of it, so it is held to the best one everywhere, less half a point. */
#include "base/core/bits.h"
#include "tests/sim_gates/gate.h"

#include <stdio.h>

#define POINTS_LESS 0.5
#define CONV "--trace azure-2023-conv.csv --slo-tpot 50ms --seeds 10 "
#define ROWS "--compare chunk=deadline,slack,budget,whole"

static void the_default_keeps_the_most_slos(void **state)
{
    (void)state;
    static const char *const other[] = { "chunk=slack", "chunk=budget", "chunk=whole" };
    static const char *const commands[] = {
        CONV "--requests 5000 --fleet 1xa100 --speed 0.6 --slo-ttft 500ms " ROWS,
        CONV "--fleet 1xa100 --speed 0.8 --slo-ttft 1s " ROWS,
        CONV "--requests 5000 --fleet 1xa100 --speed 0.8 --slo-ttft 3s " ROWS,
        CONV "--requests 5000 --fleet 1xa40 --speed 0.2 --slo-ttft 1s " ROWS,
    };
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        struct gate g = gate_run(commands[i]);
        for (size_t k = 0; k < COUNT_OF(other); k++) {
            double points = 100 * gate_difference(&g, other[k], "slo.attainment").mean;
            gate_below(other[k], points, POINTS_LESS);
        }
        gate_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_default_keeps_the_most_slos) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

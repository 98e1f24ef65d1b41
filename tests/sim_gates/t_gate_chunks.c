/* t_gate_chunks.c - judges that the default chunk policy keeps at least as many SLOs as the best other.
 *
 * The best other depends on load, hardware and SLO: small chunks where the first token may be late,
 * large ones where it may not or where the machine is at its limit. The default has no setting for any
 * of this, so it must match the best one everywhere, less half a point. */
#include "base/core/bits.h"
#include "tests/sim_gates/gate.h"

#include <stdio.h>

#define LESS 0.005
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
            struct stats_mean more = gate_difference(&g, other[k], "slo.attainment");
            gate_interval_below(other[k], more, LESS);
        }
        gate_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_default_keeps_the_most_slos) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

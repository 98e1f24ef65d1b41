/* simulate.c - measures the simulator's speed by five runs of the speed claim's command line. */
#include "tests/sim_gates/gate.h"

#include <stdio.h>
#include <stdlib.h>

#define WORKLOAD \
    "--trace azure-2023-conv.csv --model llama-3-8b --fleet 16xa100 --speed 12 --seeds 5 --jobs 1"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    struct gate g = gate_run(WORKLOAD);
    double rate[5], steps[5];
    for (uint32_t i = 0; i < g.arms.seeds; i++) {
        const struct report *r = &g.arms.arm[0].run[i];
        rate[i] = 60 * r->offered / r->cpu_s;
        steps[i] = (double)r->steps / r->cpu_s;
    }
    qsort(rate, g.arms.seeds, sizeof *rate, by_value);
    qsort(steps, g.arms.seeds, sizeof *steps, by_value);
    printf("requests a core-minute: median %.0f, least %.0f; steps a core-second: median %.0f\n",
           rate[2], rate[0], steps[2]);
    gate_free(&g);
    return 0;
}

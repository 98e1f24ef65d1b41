/* gpipe.c - lays layers in equal contiguous stages, one on each device, in the order of the
 * devices.
 *
 *     stage i holds layers [i L / n, (i + 1) L / n)
 *
 * This is GPipe's partition without profiles (arXiv 1811.06965, section 2) and the baseline of the
 * other layouts. It is right where devices and layers are alike. */
#include "policies/layers/layers.h"

static void lay(const struct layers_problem *problem, struct layers_memory *work, struct rng *rng,
                struct layers_layout *ret)
{
    (void)rng;
    uint32_t n = problem->device_count < problem->layers ? problem->device_count : problem->layers;
    *ret = (struct layers_layout){ .part_count = n, .why = "equal stages" };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = i * problem->layers / n, end = (i + 1) * problem->layers / n;
        ret->part[i] = (struct layers_part){ first, end - first, 1u << i };
    }
    layers_flow(problem, work, ret);
    if (!ret->found) ret->why = "an equal share does not fit every device";
}

const struct layers_policy layers_gpipe = {
    .name = "gpipe",
    .about = "planner: equal pipeline stages, one a device",
    .source = "GPipe (arXiv 1811.06965)",
    .lay = lay,
};

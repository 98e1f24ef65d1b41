/* pipedream.c - finds the pipeline whose slowest stage or link is fastest, by dynamic programming.
 *
 *     best(i, l) = max over the first layer s of the last stage and the device j before it of
 *                  min( best(j, s), link j -> i, rate of [s, l) on i )
 *
 * The objective is PipeDream's (SOSP 2019, section 3.1: the slowest of compute and transfer).
 * Devices differ here, so their order matters: up to ORDER_DEVICES of them are tried in every
 * order, which makes the result exact, more only in the order of their speed. Deviations: no
 * replicated stages (helix has parts with the same layers), and nothing that serves training only. */
#include "policies/layers/layers.h"

#define ORDER_DEVICES 5 /* 120 orders */

static void try_order(const struct layers_problem *p, const uint32_t order[LAYERS_DEVICES_MAX],
                      struct layers_memory *work, double *rate, struct layers_layout *ret)
{
    uint32_t group[LAYERS_DEVICES_MAX];
    for (uint32_t i = 0; i < p->device_count; i++)
        group[i] = 1u << order[i];
    work->trial = (struct layers_layout){ 0 };
    double through = layers_chain(p, group, p->device_count, work, &work->trial);
    if (through <= *rate) return;
    *rate = through;
    *ret = work->trial;
}

/* Steps to the next order, lexicographically; returns false after the last. */
static bool next_order(uint32_t *order, uint32_t count)
{
    uint32_t i = count;
    while (i > 1 && order[i - 2] > order[i - 1])
        i--;
    if (i <= 1) return false;
    uint32_t j = count;
    while (order[j - 1] < order[i - 2])
        j--;
    uint32_t swap = order[i - 2];
    order[i - 2] = order[j - 1];
    order[j - 1] = swap;
    for (uint32_t a = i - 1, b = count - 1; a < b; a++, b--) {
        swap = order[a];
        order[a] = order[b];
        order[b] = swap;
    }
    return true;
}

static void lay(const struct layers_problem *problem, struct layers_memory *work, struct rng *rng,
                struct layers_layout *ret)
{
    (void)rng;
    uint32_t order[LAYERS_DEVICES_MAX];
    double rate = 0;
    *ret = (struct layers_layout){ .why = "no pipeline of these devices holds the model" };
    if (problem->device_count <= ORDER_DEVICES) {
        for (uint32_t i = 0; i < problem->device_count; i++)
            order[i] = i;
        do
            try_order(problem, order, work, &rate, ret);
        while (next_order(order, problem->device_count));
    } else {
        layers_by_speed(problem, order);
        try_order(problem, order, work, &rate, ret);
    }
    if (rate <= 0) return;
    ret->why = "the pipeline whose slowest stage is fastest";
    layers_flow(problem, work, ret);
}

const struct layers_policy layers_pipedream = {
    .name = "pipedream",
    .about = "planner: one pipeline whose slowest stage is fastest, by dynamic programming",
    .source = "PipeDream (SOSP 2019)",
    .lay = lay,
};

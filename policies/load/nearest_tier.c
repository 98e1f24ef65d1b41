/* nearest_tier.c - loads a model at a machine that has it nearest: in memory, else on disk, else
 * anywhere; among those, at the one with the shortest queue of loads.
 *
 * It is the simple alternative that uses the place of copies: it waits in any queue for a copy in
 * memory. */
#include "policies/load/load.h"

/* Returns the tier plus a fraction below 1 for the queue, so that queues decide only within a
 * tier. */
static double distance(const struct load_problem *problem, uint32_t server)
{
    double queue_s = load_queue_s(problem, server);
    return (double)problem->server[server].tier + queue_s / (1 + queue_s);
}

static void choose(const struct load_problem *problem, struct load_verdict *ret)
{
    load_least(problem, distance, ret);
}

const struct load_policy load_nearest_tier = {
    .name = "nearest_tier",
    .about = "planner: weights are loaded where the model lies nearest, in memory before on disk",
    .source = "baseline of load-time-aware placement",
    .choose = choose,
};

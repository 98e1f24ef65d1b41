/* least_loaded.c - loads a model at the machine with the shortest queue of loads.
 *
 *     queue(s) = sum over tiers of queued bytes / bandwidth of the tier
 *
 * It is the simple alternative that balances load, and ignores where copies of the model are. */
#include "policies/load/load.h"

static void choose(const struct load_problem *problem, struct load_verdict *ret)
{
    load_least(problem, load_queue_s, ret);
}

const struct load_policy load_least_loaded = {
    .name = "least_loaded",
    .about = "planner: weights are loaded where the queue of loads is shortest",
    .source = "baseline of load-time-aware placement",
    .choose = choose,
};

/* least_loaded.c - load a model at the machine whose queue of loads is over first.
 *
 *     queue(s) = sum over tiers of queued bytes / bandwidth of the tier
 *
 * The simple alternative that balances: where the model lies already plays no part. */
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

/* place_least_loaded.c - load a model at the machine whose queue of loads is over first.
 *
 *     queue(s) = sum over tiers of queued bytes / bandwidth of the tier
 *
 * The simple alternative that balances: where the model lies already plays no part. */
#include "policies/place_move.h"
#include "policies/place_rows.h"

static void load(const struct place_load *problem, struct place_load_verdict *ret)
{
    load_least(problem, load_queue_s, ret);
}

const struct place_policy place_least_loaded = {
    .name = "least_loaded",
    .about = "planner: weights are loaded where the queue of loads is shortest",
    .source = "baseline of load-time-aware placement",
    .load = load,
};

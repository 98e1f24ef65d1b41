/* shortest_ttft.c - send the request where its first token is expected soonest.
 *
 *     wait = queued work in seconds + seconds for the uncached part of this prompt
 *
 * A hit and a short queue are traded in one unit, seconds, instead of by a tuned weight. A hot
 * prefix therefore spreads by itself: when its owner's queue costs more than recomputing, another
 * instance wins and becomes a second owner.
 *
 * An instance of unknown speed is estimated with the mean of the known speeds, so that a new
 * instance gets its share at once; when none is known, tokens stand in for seconds (route_wait_s).
 */
#include "policies/route/route.h"

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct perf_coef fleet;
    const struct perf_coef *speed = route_fleet_perf(view, &fleet) ? &fleet : NULL;
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        route_best_offer(&best, i, route_wait_s(in, req, speed), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_shortest_ttft = {
    .name = "shortest_ttft",
    .about = "lowest predicted time to first token: queued seconds plus the uncached prompt",
    .source = "Mooncake (FAST'25) section 6, with measured step-time coefficients",
    .decide = decide,
};

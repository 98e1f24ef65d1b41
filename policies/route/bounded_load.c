/* bounded_load.c - hash the prompt's beginning consistently, with bounded loads.
 *
 *     most = ceil(c * (in flight + 1) / instances), c = 1.25
 *     the first instance in the order of this prefix with in-flight + 1 <= most
 *
 * Deviation: the order is that of highest random weight instead of clockwise on a ring; both give
 * each prefix a fixed order of instances, ours without virtual nodes. The load is the number of
 * requests in flight, as in HAProxy's hash-balance-factor and KubeAI. The key is the request's
 * prefix_hash: the first two blocks of a prompt where blocks are known.
 * Source: Mirrokni, Thorup, Zadimoghaddam (SODA 2018).
 */
#include "policies/route/route.h"

#include <math.h>

#define BOUND 1.25

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    double in_flight = 1, count = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        in_flight += (double)view->instance[i].in_flight;
        count += 1;
    }
    double most = count > 0 ? ceil(BOUND * in_flight / count) : 0;
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        /* Some instance is always at or below the mean, so the bound never empties the list. */
        if (!route_takes(in) || (double)in->in_flight + 1 > most) continue;
        route_best_offer(&best, i, -route_hash_weight(in, req), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_bounded_load = {
    .name = "bounded_load",
    .about = "consistent hashing of the prompt's first blocks, no instance above 1.25 x the mean",
    .source = "CHWBL (SODA 2018); HAProxy hash-balance-factor, KubeAI",
    .decide = decide,
};

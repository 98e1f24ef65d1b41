/* consistent_hash.c - send prompts with the same beginning to the same instance.
 *
 * Highest random weight (Thaler and Ravishankar 1998): every instance scores H(prefix, instance)
 * and the highest wins. Unlike a ring it needs no virtual nodes, and when an instance leaves only
 * its own prefixes move. The policy ignores load.
 */
#include "policies/route/route.h"

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        route_best_offer(&best, i, -route_hash_weight(in, req), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_consistent_hash = {
    .name = "consistent_hash",
    .about = "one instance for each beginning of a prompt, by highest random weight",
    .source = "Thaler and Ravishankar, IEEE/ACM ToN 1998",
    .decide = decide,
};

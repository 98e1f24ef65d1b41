/* least_request.c - take the fewest requests in flight, whatever their sizes and prefixes. */
#include "policies/route/route.h"

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in)) route_best_offer(&best, i, (double)in->in_flight, rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_least_request = {
    .name = "least_request",
    .about = "fewest requests in flight",
    .source = "HAProxy leastconn, Envoy least_request",
    .decide = decide,
};

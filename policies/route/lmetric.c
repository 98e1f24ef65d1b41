/* lmetric.c - take the least product of new prefill tokens and batch size, which has no weight to tune.
 *
 *     score = (queued prefill + uncached part of this prompt) * (requests in flight + 1)
 *
 * A product needs no exchange rate between its factors: scaling either leaves the order alone.
 * Source: LMetric (OSDI'26, arXiv 2603.15202); Dynamo ships it as `lmetric`.
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
        double tokens =
            (double)in->prefill_tokens + (double)(req->prompt_tokens - route_hit_tokens(in, req));
        route_best_offer(&best, i, tokens * ((double)in->in_flight + 1), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_lmetric = {
    .name = "lmetric",
    .about = "fewest new prefill tokens times requests in flight",
    .source = "LMetric (OSDI'26)",
    .decide = decide,
};

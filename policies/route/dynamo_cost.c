/* dynamo_cost.c - take the least cost as Dynamo has it: blocks of prefill to do plus blocks of KV held.
 *
 *     cost = 1.0 * (active prefill + prompt - 1.0 * hits) + decode blocks
 *     decode blocks = KV blocks of all in flight there, this prompt included
 *
 * All terms are in blocks of 16 tokens; the least cost wins, router_temperature 0.
 * Deviations: its credit of 0.75 for hits in host memory and 0.25 for those on disk is left out,
 * because engines announce what their device holds; no credit decay and no modelled decay of
 * prefill, both off by default there; active prefill is our ledger's, which already counts a
 * prompt's progress.
 * Source: ai-dynamo/dynamo, docs/components/router and lib/kv-router.
 */
#include "policies/route/route.h"

#define BLOCK 16.0 /* tokens */

static double cost(const struct route_instance *in, const struct route_req *req)
{
    double prompt = (double)req->prompt_tokens;
    double prefill = (double)in->prefill_tokens + prompt - (double)route_hit_tokens(in, req);
    return prefill / BLOCK + ((double)in->active_tokens + prompt) / BLOCK;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in)) route_best_offer(&best, i, cost(in, req), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_dynamo_cost = {
    .name = "dynamo_cost",
    .about = "fewest blocks of prefill to compute plus KV held, cached ones credited",
    .source = "NVIDIA Dynamo KV router, defaults",
    .decide = decide,
};

/* route_shortest_ttft.c - send the request where its first token is expected soonest.
 *
 *     wait = queued work in seconds + seconds for the uncached part of this prompt
 *
 * A hit and a short queue are traded in one unit, seconds, instead of by a tuned weight. A hot
 * prefix therefore spreads by itself: when its owner's queue costs more than recomputing, another
 * instance wins and becomes a second owner.
 *
 * An instance whose speed nobody has measured yet is estimated with the mean of those measured,
 * so that a fresh instance gets its share at once; when none is measured, uncached tokens queued
 * stand in for seconds.
 */
#include "policies/route.h"

static double score(const struct route_instance *in, const struct route_req *req,
                    const struct perf_coef *fleet)
{
    if (in->has_perf) return route_ttft_s(in, req);
    if (!fleet) {
        return (double)in->prefill_tokens + (double)in->decoding +
               (double)(req->prompt_tokens - route_hit_tokens(in, req));
    }
    struct route_instance guess = *in;
    guess.perf = *fleet;
    guess.has_perf = true;
    return route_ttft_s(&guess, req);
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct perf_coef fleet;
    bool has_fleet = route_fleet_perf(view, &fleet);
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        route_best_offer(&best, i, score(in, req, has_fleet ? &fleet : NULL), rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_shortest_ttft = {
    .name = "shortest_ttft",
    .about = "lowest predicted time to first token: queued seconds plus the uncached prompt",
    .source = "Mooncake (FAST'25) section 6, with measured step-time coefficients",
    .decide = decide,
};

/* route_prefix_affinity.c - the SGLang router's cache_aware rule, for comparison.
 *
 *     imbalanced = max - min > 64 and max > 1.5 * min           (requests in flight)
 *     imbalanced            -> fewest requests in flight
 *     best match / prompt > 0.3 -> the instance with the longest match
 *     otherwise             -> fewest requests in flight
 *
 * Constants are that router's defaults (balance_abs_threshold, balance_rel_threshold,
 * cache_threshold). Ties go to the first in the order of ids, as there.
 */
#include "policies/route.h"

#define BALANCE_ABS 64
#define BALANCE_REL 1.5
#define CACHE_RATIO 0.3

struct extremes {
    uint32_t least, most, longest; /* view indices; ROUTE_NONE while nothing accepts */
};

static struct extremes find_extremes(const struct route_view *view, const struct route_req *req)
{
    struct extremes e = { ROUTE_NONE, ROUTE_NONE, ROUTE_NONE };
    const struct route_instance *at = view->instance;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&at[i])) continue;
        if (e.least == ROUTE_NONE || at[i].in_flight < at[e.least].in_flight) e.least = i;
        if (e.most == ROUTE_NONE || at[i].in_flight > at[e.most].in_flight) e.most = i;
        if (e.longest == ROUTE_NONE ||
            route_hit_tokens(&at[i], req) > route_hit_tokens(&at[e.longest], req)) {
            e.longest = i;
        }
    }
    return e;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us, (void)rng;
    struct extremes e = find_extremes(view, req);
    uint32_t index = e.least;
    if (index != ROUTE_NONE) {
        double most = view->instance[e.most].in_flight, least = view->instance[e.least].in_flight;
        double match = (double)route_hit_tokens(&view->instance[e.longest], req);
        bool imbalanced = most - least > BALANCE_ABS && most > BALANCE_REL * least;
        if (!imbalanced && match / (double)req->prompt_tokens > CACHE_RATIO) index = e.longest;
    }
    route_answer(view, req, index, index == e.least ? e.longest : e.least, ret);
}

const struct route_policy route_prefix_affinity = {
    .name = "prefix_affinity",
    .about = "longest cached prefix unless the load is uneven (the SGLang router's rule)",
    .source = "SGLang router cache_aware, defaults of v1.9",
    .decide = decide,
};

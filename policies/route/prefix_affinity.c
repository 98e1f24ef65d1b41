/* prefix_affinity.c - apply the SGLang router's cache_aware rule, for comparison.
 *
 *     imbalanced = max - min > 64 and max > 1.5 * min           (requests in flight)
 *     imbalanced            -> fewest requests in flight
 *     best match / prompt > 0.3 -> the instance with the longest match
 *     otherwise             -> fewest requests in flight
 *
 * Constants are that router's defaults (balance_abs_threshold, balance_rel_threshold,
 * cache_threshold). Ties go to the lowest id, where that router takes the first worker.
 */
#include "base/core/bits.h"
#include "policies/route/route.h"

#define BALANCE_ABS 64
#define BALANCE_REL 1.5
#define CACHE_RATIO 0.3

struct extremes {
    uint32_t least, longest; /* view indices; ROUTE_NONE while nothing accepts */
    uint32_t most;           /* in flight */
};

static struct extremes find_extremes(const struct route_view *view, const struct route_req *req)
{
    struct extremes e = { ROUTE_NONE, ROUTE_NONE, 0 };
    const struct route_instance *at = view->instance;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&at[i])) continue;
        if (e.least == ROUTE_NONE) e.least = e.longest = i;
        const struct route_instance *least = &at[e.least], *longest = &at[e.longest];
        uint32_t hit = route_hit_tokens(&at[i], req), hit_most = route_hit_tokens(longest, req);
        bool lower = at[i].in_flight == least->in_flight && at[i].id < least->id;
        if (at[i].in_flight < least->in_flight || lower) e.least = i;
        if (hit > hit_most || (hit == hit_most && at[i].id < longest->id)) e.longest = i;
        e.most = max_u32(e.most, at[i].in_flight);
    }
    return e;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us, (void)rng;
    struct extremes e = find_extremes(view, req);
    uint32_t index = e.least, other = e.longest;
    if (index != ROUTE_NONE) {
        double most = e.most, least = view->instance[e.least].in_flight;
        double match = (double)route_hit_tokens(&view->instance[e.longest], req);
        bool imbalanced = most - least > BALANCE_ABS && most > BALANCE_REL * least;
        if (!imbalanced && match / (double)req->prompt_tokens > CACHE_RATIO) {
            index = e.longest;
            other = e.least;
        }
    }
    route_answer(view, req, index, other == index ? ROUTE_NONE : other, ret);
}

const struct route_policy route_prefix_affinity = {
    .name = "prefix_affinity",
    .about = "longest cached prefix unless the load is uneven (the SGLang router's rule)",
    .source = "SGLang router cache_aware, defaults of v1.9",
    .decide = decide,
};

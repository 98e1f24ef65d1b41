/* power_of_two.c - take of two instances drawn at random the one with fewer requests in flight.
 *
 * Mitzenmacher 2001: two choices bring the longest queue from log n / log log n to log log n, and
 * stale views herd less than with the strict minimum.
 */
#include "policies/route/route.h"

/* Returns the view index of the `nth` accepting instance. */
static uint32_t accepting_at(const struct route_view *view, uint64_t nth)
{
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (route_takes(&view->instance[i]) && nth-- == 0) return i;
    }
    return ROUTE_NONE;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    uint64_t accepting = 0;
    for (uint32_t i = 0; i < view->instance_count; i++)
        accepting += route_takes(&view->instance[i]);

    uint64_t first = rng_below(rng, accepting);
    struct route_best best = ROUTE_BEST_INIT;
    uint32_t index = accepting_at(view, first);
    if (index != ROUTE_NONE) {
        route_best_offer(&best, index, (double)view->instance[index].in_flight, rng);
    }
    if (accepting > 1) {
        /* Drawn without replacement: the second choice skips the first. */
        uint64_t second = rng_below(rng, accepting - 1);
        index = accepting_at(view, second + (second >= first));
        route_best_offer(&best, index, (double)view->instance[index].in_flight, rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
}

const struct route_policy route_power_of_two = {
    .name = "power_of_two",
    .about = "of two instances drawn at random, the one with fewer requests in flight",
    .source = "Mitzenmacher, IEEE TPDS 2001",
    .decide = decide,
};

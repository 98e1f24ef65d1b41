/* random.c - take any accepting instance with equal chance: the other baseline. */
#include "policies/route/route.h"

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)state, (void)now_us;
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (route_takes(&view->instance[i])) route_best_offer(&best, i, 0, rng);
    }
    route_answer(view, req, best.index, ROUTE_NONE, ret);
}

const struct route_policy route_random = {
    .name = "random",
    .about = "any instance with equal chance",
    .source = "baseline",
    .decide = decide,
};

/* round_robin.c - take one instance after the other, whatever its load and cache: the baseline.
 *
 * The state is the id that got the last request; the next accepting id above it is taken, so the
 * turn survives instances that come and go.
 */
#include "policies/route/route.h"

struct turn {
    uint32_t last_id;
    uint32_t started;
};

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)now_us, (void)rng;
    struct turn *turn = state;
    uint32_t lowest = ROUTE_NONE, next = ROUTE_NONE;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        if (lowest == ROUTE_NONE || in->id < view->instance[lowest].id) lowest = i;
        if (turn->started && in->id <= turn->last_id) continue;
        if (next == ROUTE_NONE || in->id < view->instance[next].id) next = i;
    }
    uint32_t index = next != ROUTE_NONE ? next : lowest;
    if (index != ROUTE_NONE) *turn = (struct turn){ view->instance[index].id, 1 };
    route_answer(view, req, index, ROUTE_NONE, ret);
}

const struct route_policy route_round_robin = {
    .name = "round_robin",
    .about = "one instance after the other",
    .source = "baseline",
    .state_size = sizeof(struct turn),
    .decide = decide,
};

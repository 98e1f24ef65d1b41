/* route_preble.c - Preble's E2: exploit the holder when most is cached, else explore the cheapest.
 *
 *     cached > uncached somewhere: the cheapest of those that hold the longest run,
 *                                  unless its load is above 1.5 x the least one's
 *     else                         the cheapest of all
 *     cost = seconds of prefill sent in the last 3 minutes
 *          + answers in flight * mean output * TPOT + this prompt's own prefill
 *
 * Deviations: the window is an exponential one of 3 minutes; TPOT and prefill come from the
 * instance's step model; the cost of evicting is left out, because a router does not know what a
 * foreign cache would evict; no autoscaling of hot prefixes beside the shift of load.
 * Source: Preble (ICLR'25), algorithm E2, and its code's window and ratio.
 */
#include "policies/route.h"

#include <math.h>

#define WINDOW_US 180000000
#define REBALANCE 1.5

struct window {
    double prefill_s[ROUTE_INSTANCES_MAX]; /* decayed, each to its own at_us */
    int64_t at_us[ROUTE_INSTANCES_MAX];
};

static double lately_s(const struct window *w, uint32_t id, int64_t now_us)
{
    return route_faded(w->prefill_s[id], w->at_us[id], now_us, WINDOW_US);
}

static double load_s(const struct window *w, const struct route_instance *in, int64_t now_us)
{
    double tpot_s =
        in->perf.a + in->perf.c * (double)in->decoding + in->perf.d * (double)in->kv_tokens;
    return lately_s(w, in->id, now_us) + (in->has_perf ? in->output_left * tpot_s : 0);
}

static double own_s(const struct route_instance *in, const struct route_req *req)
{
    uint32_t uncached = req->prompt_tokens - route_hit_tokens(in, req);
    if (!in->has_perf) return (double)uncached * 1e-4; /* any speed: all are priced alike */
    return (double)uncached * (in->perf.b + in->perf.a / (double)in->token_budget);
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    struct window *w = state;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in) && route_hit_tokens(in, req) > longest)
            longest = route_hit_tokens(in, req);
    }
    struct route_best all = ROUTE_BEST_INIT, holders = ROUTE_BEST_INIT;
    double least_s = (double)INFINITY;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        double now_s = load_s(w, in, now_us), cost = now_s + own_s(in, req);
        least_s = fmin(least_s, now_s);
        route_best_offer(&all, i, cost, rng);
        if (route_hit_tokens(in, req) == longest) route_best_offer(&holders, i, cost, rng);
    }
    bool exploit = 2 * longest > req->prompt_tokens && holders.index != ROUTE_NONE &&
                   load_s(w, &view->instance[holders.index], now_us) <= REBALANCE * least_s;
    uint32_t index = exploit ? holders.index : all.index;
    route_answer(view, req, index, index == all.index ? all.second_index : all.index, ret);
    if (index == ROUTE_NONE) return;
    const struct route_instance *in = &view->instance[index];
    w->prefill_s[in->id] = lately_s(w, in->id, now_us) + own_s(in, req);
    w->at_us[in->id] = now_us;
}

const struct route_policy route_preble = {
    .name = "preble",
    .about = "the cheapest holder when most is cached, else the cheapest of all",
    .source = "Preble (ICLR'25), E2",
    .state_size = sizeof(struct window),
    .decide = decide,
};

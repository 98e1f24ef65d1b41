/* preble.c - Preble's E2: exploit a holder when most of the prompt is cached, else explore the cheapest.
 *
 *     cached > uncached somewhere: the cheapest of those that hold the longest run,
 *                                  unless its load is above 1.5 x the least one's
 *     else                         the cheapest of all
 *     load = seconds of prefill sent in the last 3 minutes + tokens left to generate * TPOT
 *     cost = load + this prompt's own prefill
 *
 * Deviations: the window is an exponential one of 3 minutes; TPOT and prefill come from the
 * instance's step model; the tokens left are the predicted ones of those in flight, where the paper
 * multiplies their number by a mean; the cost of evicting is left out, because a router does not
 * know what a foreign cache would evict; no autoscaling of hot prefixes beside the shift of load.
 * Where no speed is known the load leaves out decoding.
 * Source: Preble (ICLR'25), algorithm E2, and its code's window and ratio.
 */
#include "base/core/bits.h"
#include "policies/route/route.h"

#include <math.h>

#define WINDOW_US 180000000
#define REBALANCE 1.5
#define ANY_SPEED_S 1e-4 /* a token, where no speed is known: all are priced alike */

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
    double tpot_s = in->perf.step_s + in->perf.decode_seq_s * (double)in->decoding +
                    in->perf.kv_read_s * (double)in->kv_tokens;
    return lately_s(w, in->id, now_us) + (in->has_perf ? in->output_left * tpot_s : 0);
}

static double own_s(const struct route_instance *in, const struct route_req *req)
{
    uint32_t uncached = req->prompt_tokens - route_hit_tokens(in, req);
    if (!in->has_perf) return (double)uncached * ANY_SPEED_S;
    return (double)uncached *
           (in->perf.prefill_token_s + in->perf.step_s / (double)in->token_budget);
}

static uint32_t longest_hit(const struct route_view *view, const struct route_req *req)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (route_takes(in)) longest = max_u32(longest, route_hit_tokens(in, req));
    }
    return longest;
}

static void note(struct window *w, uint32_t id, double prefill_s, int64_t now_us)
{
    w->prefill_s[id] = lately_s(w, id, now_us) + prefill_s;
    w->at_us[id] = max_i64(w->at_us[id], now_us);
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    struct window *w = state;
    uint32_t longest = longest_hit(view, req);
    struct perf_coef fleet;
    const struct perf_coef *speed = route_fleet_perf(view, &fleet) ? &fleet : NULL;
    struct route_best all = ROUTE_BEST_INIT, holders = ROUTE_BEST_INIT;
    double least_s = (double)INFINITY;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        struct route_instance in = route_known(&view->instance[i], speed);
        double now_s = load_s(w, &in, now_us), cost = now_s + own_s(&in, req);
        least_s = fmin(least_s, now_s);
        route_best_offer(&all, i, cost, rng);
        if (route_hit_tokens(&in, req) == longest) route_best_offer(&holders, i, cost, rng);
    }
    if (all.index == ROUTE_NONE) {
        route_answer(view, req, ROUTE_NONE, ROUTE_NONE, ret);
        return;
    }
    struct route_instance holder = route_known(&view->instance[holders.index], speed);
    bool exploit =
        longest > req->prompt_tokens - longest && load_s(w, &holder, now_us) <= REBALANCE * least_s;
    uint32_t index = exploit ? holders.index : all.index;
    route_answer(view, req, index, index == all.index ? all.second_index : all.index, ret);
    struct route_instance in = route_known(&view->instance[index], speed);
    note(w, in.id, own_s(&in, req), now_us);
}

const struct route_policy route_preble = {
    .name = "preble",
    .about = "the cheapest holder when most is cached, else the cheapest of all",
    .source = "Preble (ICLR'25), E2",
    .state_size = sizeof(struct window),
    .decide = decide,
};

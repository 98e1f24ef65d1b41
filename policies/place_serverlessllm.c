/* place_serverlessllm.c - load a model where it is ready first.
 *
 *     ready(s) = sum over tiers of queued bytes / bandwidth of the tier
 *              + model bytes / bandwidth of the nearest tier that has it + start of the engine
 *
 * ServerlessLLM (OSDI 2024, section 5.1): queueing time plus loading time, so that a server with the
 * model on its disk and an empty queue may beat one that has it in memory behind others. Deviation:
 * live migration of what runs there is migrate's, not this row's.
 *
 * Of a pool's offers nobody tells us disks and queues, but what they come to is learned from every
 * launch (offer.lead_s): that time is the estimate there, as ServerlessLLM too corrects its own by
 * the loads that it has seen. Prices decide between equal times alone. What runs stays; of what is too
 * much those go whose offer would be slowest to bring them back. */
#include "base/core/bits.h"
#include "policies/place_move.h"
#include "policies/place_rows.h"

static void load(const struct place_load *problem, struct place_load_verdict *ret)
{
    load_least(problem, load_ready_s, ret);
}

static bool is_sooner(const struct place_offer *a, const struct place_offer *b)
{
    if (a->lead_s < b->lead_s || a->lead_s > b->lead_s) return a->lead_s < b->lead_s;
    return a->price_h < b->price_h;
}

/* The offers, the soonest first; as listed where they are alike. */
static void by_lead(const struct place_view *view, uint32_t ret[PLACE_OFFERS_MAX])
{
    for (uint32_t i = 0; i < view->offer_count; i++) {
        uint32_t at = i;
        for (; at > 0 && is_sooner(&view->offer[i], &view->offer[ret[at - 1]]); at--)
            ret[at] = ret[at - 1];
        ret[at] = i;
    }
}

static void choose(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret)
{
    (void)state, (void)now_us, (void)rng;
    struct place_verdict v = { .reason = "where it is ready first", .missing = -1 };
    uint32_t order[PLACE_OFFERS_MAX], left = view->target;
    by_lead(view, order);
    for (uint32_t i = 0; i < view->offer_count; i++) {
        v.want[order[i]] = min_u32(place_have(&view->offer[order[i]]), left);
        left -= v.want[order[i]];
    }
    for (uint32_t i = 0; i < view->offer_count && left > 0; i++) {
        if (!view->offer[order[i]].usable) continue;
        v.want[order[i]] += left;
        left = 0;
    }
    if (left > 0) v.reason = "no offer of the pool can be had now";
    place_finish(view, &v);
    *ret = v;
}

const struct place_policy place_serverlessllm = {
    .name = "serverlessllm",
    .about =
        "instances start where they are ready first; planner: weights are loaded where queue and "
        "bandwidth make them ready first",
    .source = "ServerlessLLM (OSDI 2024)",
    .choose = choose,
    .load = load,
};

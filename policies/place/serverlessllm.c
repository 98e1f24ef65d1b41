/* serverlessllm.c - start an instance at the offer whose launches are ready soonest.
 *
 *     the offer with the least lead_s, the learned mean time from launch to ready;
 *     between equal leads the cheaper one
 *
 * ServerlessLLM (OSDI 2024, section 5.1) loads a model where queueing plus loading time is least.
 * The disks and queues behind a provider's offer are not known here, but every launch measures the
 * time that they take in total; ServerlessLLM too corrects its estimates by measured loads. The load
 * policy of the same name chooses among known machines. Running instances stay; when there are too
 * many, those at the slowest offer end first. */
#include "base/core/bits.h"
#include "policies/place/place.h"

static bool is_sooner(const struct place_offer *a, const struct place_offer *b)
{
    if (a->lead_s < b->lead_s || a->lead_s > b->lead_s) return a->lead_s < b->lead_s;
    return a->price_h < b->price_h;
}

/* Sorts the offers, the soonest first; equal ones stay as listed. */
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
    .about = "instances start at the offer whose launches are ready soonest",
    .source = "ServerlessLLM (OSDI 2024)",
    .choose = choose,
};

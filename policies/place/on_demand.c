/* on_demand.c - place all instances at the cheapest on-demand offer, which is never taken away.
 *
 * This is the baseline of the spot policies: never interrupted, at the full price. Running instances
 * stay. While no on-demand offer may be asked, the cheapest spot offer serves too, beside the spot
 * instances that already run. */
#include "base/core/bits.h"
#include "policies/place/place.h"

static void choose(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret)
{
    (void)state, (void)now_us, (void)rng;
    struct place_verdict v = { .reason = "the cheapest offer on demand", .missing = -1 };
    bool fits[PLACE_OFFERS_MAX];
    for (uint32_t i = 0; i < view->offer_count; i++)
        fits[i] = !view->offer[i].spot;
    uint32_t at = place_cheapest(view, fits);
    bool others = at == PLACE_NONE;
    if (others) {
        at = place_cheapest(view, NULL);
        v.reason = "no offer on demand can be had: the cheapest of the others";
    }
    uint32_t left = view->target;
    for (int turn = 0; turn < (others ? 2 : 1); turn++)
        for (uint32_t i = 0; i < view->offer_count; i++) { /* on-demand instances first */
            if (fits[i] != (turn == 0)) continue;
            v.want[i] = min_u32(place_have(&view->offer[i]), left);
            left -= v.want[i];
        }
    if (at != PLACE_NONE) v.want[at] += left;
    if (at == PLACE_NONE && left > 0) v.reason = "no offer of the pool can be had now";
    place_finish(view, &v);
    *ret = v;
}

const struct place_policy place_on_demand = {
    .name = "on_demand",
    .about = "the cheapest offer that is never taken away",
    .source = "baseline of spot placement",
    .choose = choose,
};

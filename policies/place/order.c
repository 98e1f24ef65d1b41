/* order.c - launch missing instances at the first offer that may be asked, in the order of the
 * configuration. Running instances stay where they are; surplus ones end from the last offer on.
 *
 * This is the simple alternative to every other policy. It knows neither prices nor risk. */
#include "base/core/bits.h"
#include "policies/place/place.h"

static void choose(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret)
{
    (void)state, (void)now_us, (void)rng;
    struct place_verdict v = { .reason = "the first offer that may be asked", .missing = -1 };
    uint32_t left = view->target;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        v.want[i] = min_u32(place_have(&view->offer[i]), left);
        left -= v.want[i];
    }
    for (uint32_t i = 0; i < view->offer_count && left > 0; i++) {
        if (!view->offer[i].usable) continue;
        v.want[i] += left;
        left = 0;
    }
    if (left > 0) v.reason = "no offer of the pool can be had now";
    place_finish(view, &v);
    *ret = v;
}

const struct place_policy place_order = {
    .name = "order",
    .about = "the first offer of a pool that may be asked, as listed",
    .source = "this project",
    .choose = choose,
};

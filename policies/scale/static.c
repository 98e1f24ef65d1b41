/* static.c - keep a fixed number of instances.
 *
 *     want = count
 *
 * This is the baseline that every other policy must beat, and the right choice for hardware that is
 * paid for anyway. With the count that the peak needs it is the static peak of comparisons. */
#include "policies/scale/scale.h"

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)state, (void)rng;
    struct scale_verdict v = { .reason = "a fixed count is configured",
                               .load = config->count,
                               .estimate_s = -1,
                               .again_us = now_us + 60 * (int64_t)1000000 };
    scale_spread(view, config->count, &v.choice);
    *ret = v;
}

const struct scale_policy scale_static = {
    .name = "static",
    .about = "a fixed number of instances",
    .source = "baseline",
    .shaper = "window",
    .decide = decide,
};

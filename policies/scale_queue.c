/* scale_queue.c - instances in proportion to the requests that wait.
 *
 *     want = ceil((waiting + held) / queue_target)          the external metric of KEDA's scalers
 *     want = have  while |waiting / (have * target) - 1| <= 0.1      (the HPA's tolerance)
 *
 * What most operators run today. It knows neither how long a request is nor how long an instance
 * takes to come, and it falls to the minimum as soon as nobody waits, however busy the fleet is:
 * the shaper's window is all that keeps it from flapping. */
#include "policies/scale_rows.h"

#include <math.h>

#define TOLERANCE 0.1
#define AGAIN_US (15 * (int64_t)1000000) /* the HPA's period */

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)state, (void)rng;
    const struct scale_demand *d = &view->demand;
    if (!d->present) {
        scale_keep(view, "no router has reported its demand: keep what there is", ret);
        ret->again_us = now_us + AGAIN_US;
        return;
    }

    uint32_t have = 0;
    for (uint32_t i = 0; i < view->pool_count; i++)
        have += scale_have(&view->pool[i]);
    double waiting = (double)d->waiting + d->held;
    double load = waiting / config->queue_target;
    double total = ceil(load);
    if (have > 0 && fabs(load / have - 1) <= TOLERANCE) total = have;
    if (total < 1 && scale_is_awake(config, view)) total = 1;

    struct scale_verdict v = { .reason = total > have ? "more requests wait than the target allows"
                                                      : "waiting requests are within the target",
                               .load = load,
                               .estimate_s = -1,
                               .again_us = now_us + AGAIN_US };
    scale_spread(view, (uint32_t)fmin(total, SCALE_COUNT_MAX * SCALE_POOLS_MAX), &v.choice);
    *ret = v;
}

const struct scale_policy scale_queue = {
    .name = "queue",
    .about = "waiting requests divided by a target per instance",
    .source = "KEDA scalers behind the HPA's tolerance",
    .decide = decide,
};

/* distserve.c - compute the goodput of one instance in each phase, then match their numbers.
 *
 *     g_p = requests a second of one prefill instance within the TTFT
 *     g_d = ... of one decode instance within the TPOT
 *     n_p = n g_d / (g_p + g_d), rounded down or up, whichever the evaluator predicts more from
 *
 * This is DistServe (OSDI'24) algorithm 2 without its search over parallelism, which belongs to
 * placement. Where the link cannot carry the K and V in time (either goodput is 0), all instances
 * serve whole requests. */
#include "base/core/bits.h"
#include "policies/role/role.h"

#define AGAIN_US 60000000

static void decide(void *state, const struct role_view *view, int64_t now_us, struct rng *rng,
                   struct role_verdict *ret)
{
    (void)state, (void)rng;
    if (!role_known(view)) {
        role_keep(view, "no demand is known", now_us, ret);
        return;
    }
    uint32_t order[ROLE_INSTANCES_MAX];
    uint32_t count = role_order(view, order);
    double prefill_rps = 0, decode_rps = 0;
    for (uint32_t i = 0; i < count; i++) {
        prefill_rps += role_prefill_rps(view, &view->instance[order[i]]);
        decode_rps += role_decode_rps(view, &view->instance[order[i]]);
    }
    if (count < 2 || !(prefill_rps > 0) || !(decode_rps > 0)) {
        role_assign(view, order, count, 0, 0, ret->role);
        role_answer(view, "no split of the phases keeps the SLO", now_us + AGAIN_US, ret);
        return;
    }
    double ideal = count * decode_rps / (prefill_rps + decode_rps);
    uint32_t low = min_u32(max_u32((uint32_t)ideal, 1), count - 1);
    uint32_t high = min_u32(low + 1, count - 1);
    role_assign(view, order, count, low, count - low, ret->role);
    role_answer(view, "as many of each as match their goodput", now_us + AGAIN_US, ret);
    struct role_verdict other;
    role_assign(view, order, count, high, count - high, other.role);
    role_answer(view, ret->reason, now_us + AGAIN_US, &other);
    if (other.goodput_rps > ret->goodput_rps) {
        other.runner_up_rps = ret->goodput_rps;
        *ret = other;
    } else {
        ret->runner_up_rps = other.goodput_rps;
    }
}

const struct role_policy role_distserve = {
    .name = "distserve",
    .about = "as many prefill and decode instances as match in goodput under the SLO",
    .source = "DistServe (OSDI'24) section 4",
    .decide = decide,
};

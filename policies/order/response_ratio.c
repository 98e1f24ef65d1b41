/* response_ratio.c - admits the highest response ratio, on predicted work (Brinch Hansen 1971).
 *
 *     rank = -(wait_s + work_s) / work_s = -1 - wait_s / work_s
 *
 * wait_s is the time since arrival, work_s the remaining work. Short sessions pass long ones, and a
 * second of waiting counts for more the shorter the work is, so no constant has to be tuned and no
 * tail grows without bound. Magnus (2024) orders batches so; ours orders sessions, and by work
 * instead of by length: where prefill is the bottleneck, the output length alone says next to
 * nothing. */
#include "policies/order/order.h"

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->base = -1;
    ret->slope = -1 / session->work_s;
}

const struct order_policy order_response_ratio = {
    .name = "response_ratio",
    .about = "highest (wait + work) / work first",
    .source = "Brinch Hansen 1971; Magnus (arXiv 2406.04785)",
    .rank = rank,
};

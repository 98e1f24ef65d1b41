/* order_response_ratio.c - highest response ratio next, on predicted work (Brinch Hansen 1971).
 *
 *     rank = -(wait_s + work_s) / work_s
 *
 * Short sessions pass long ones, but every second of waiting counts for more the shorter the
 * work is, so no constant has to be tuned and no tail grows without bound. */
#include "policies/order.h"

extern const struct order_policy order_response_ratio;

static double rank(const struct step_session *session, int64_t now_us)
{
    double wait_s = (double)(now_us - session->arrival_us) * 1e-6;
    return -(wait_s + session->work_s) / session->work_s;
}

const struct order_policy order_response_ratio = {
    .name = "response_ratio",
    .about = "highest (wait + work) / work first",
    .rank = rank,
};

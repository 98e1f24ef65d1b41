/* order_fcfs.c - first come, first served: the baseline, and the one nobody has to explain.
 *
 * A preempted session keeps its arrival and so stands at the head again. */
#include "policies/order.h"

extern const struct order_policy order_fcfs;

static double rank(const struct step_session *session, int64_t now_us)
{
    (void)now_us;
    return (double)session->arrival_us;
}

const struct order_policy order_fcfs = {
    .name = "fcfs",
    .about = "first come, first served",
    .rank = rank,
};

/* round_robin.c - admits the session that has waited longest since it last ran (the pool of SCLS).
 *
 * All ranks are equal; the tie is the time at which a session last began to wait. For a session
 * that never ran this is its arrival; one that returns from a slice (chunk scls) goes to the end.
 * With fcfs it would go to the front, and slices would have no effect. */
#include "policies/order/order.h"

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->tie_us = session->waiting_us;
}

const struct order_policy order_round_robin = {
    .name = "round_robin",
    .about = "the longest wait since the session last ran first; for outputs in slices",
    .source = "SCLS (arXiv 2406.13511)",
    .rank = rank,
};

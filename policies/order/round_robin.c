/* round_robin.c - the session first that has waited longest since it ran: the pool of slice-level scheduling.
 *
 * All ranks are equal; the tie is when a session last began to wait. For those that wait for the
 * first time this is arrival; one that comes back from a slice (chunk scls) stands at the end, where
 * fcfs would put it in front again and make slices mean nothing. */
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

/* srtf.c - admits the session with the least remaining work first and preempts only sessions early
 * in their output (TRAIL, arXiv 2410.01035).
 *
 *     rank = work_s - seconds since arrival / ORDER_AGE       work_s: the remaining work
 *     a running session yields while  generated < 0.8 * predicted
 *
 * Preempting a session near its end frees its pages a moment before it would have freed them
 * itself; the ratio C = 0.8 is the paper's. Two deviations: ranks are remaining seconds instead of
 * remaining tokens, as in sjf_work, and they age, or a long session may starve. A running session
 * keeps its age, or it would yield again a step later. Without a prediction a session's output is
 * taken as the mean, so the session no longer yields after 0.8 of the mean. */
#include "policies/order/order.h"

#define RATIO 0.8

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->base = session->work_s;
    ret->slope = -1 / ORDER_AGE;
}

static bool yields(const void *state, const struct step_session *running)
{
    (void)state;
    double generated = (double)running->generated;
    double predicted = running->predicted_mean  ? (double)running->predicted_mean
                       : running->predicted_p50 ? (double)running->predicted_p50
                                                : generated + running->remaining;
    return generated < RATIO * predicted;
}

const struct order_policy order_srtf = {
    .name = "srtf",
    .about = "shortest remaining work first; preempts those in the first 0.8 of their output",
    .source = "TRAIL (arXiv 2410.01035)",
    .preempts = true,
    .rank = rank,
    .yields = yields,
};

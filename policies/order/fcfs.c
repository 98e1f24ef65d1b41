/* fcfs.c - admits sessions in the order of arrival; the baseline.
 *
 * All ranks are equal, so the tie, which is the arrival, decides. A preempted session keeps its
 * arrival and so returns to the head of the queue. */
#include "policies/order/order.h"

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)session, (void)now_us;
    ret->base = 0;
}

const struct order_policy order_fcfs = {
    .name = "fcfs",
    .about = "first come, first served",
    .source = "the usual queue: vLLM, SGLang, TensorRT-LLM by default",
    .rank = rank,
};

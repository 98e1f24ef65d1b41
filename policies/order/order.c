/* order.c - the table of order policies, and the order of arrival. */
#include "policies/order/order.h"

#include "base/core/bits.h"

const struct order_policy *const order_table[] = {
#define POLICY(name) &order_##name,
#include "policies/order/order.def"
#undef POLICY
};
const uint32_t order_count = COUNT_OF(order_table);

const struct order_policy *order_find(struct str name)
{
    for (uint32_t i = 0; i < order_count; i++) {
        if (str_eq(str_from(order_table[i]->name), name)) return order_table[i];
    }
    return NULL;
}

void order_rank_of(const struct order_policy *policy, void *state,
                   const struct step_session *session, int64_t now_us, struct order_rank *ret)
{
    *ret = (struct order_rank){ .from_us = session->arrival_us,
                                .tie_us = session->arrival_us,
                                .again_us = INT64_MAX };
    policy->rank(state, session, now_us, ret);
}

/* Admits sessions in the order of arrival; the baseline.
 *
 * All ranks are equal, so the tie, which is the arrival, decides. A preempted session keeps its
 * arrival and so returns to the head of the queue. */
static void rank_fcfs(void *state, const struct step_session *session, int64_t now_us,
                      struct order_rank *ret)
{
    (void)state, (void)session, (void)now_us;
    ret->base = 0;
}

const struct order_policy order_fcfs = {
    .name = "fcfs",
    .about = "first come, first served",
    .source = "the usual queue: vLLM, SGLang, TensorRT-LLM by default",
    .rank = rank_fcfs,
};

/* order.c - the table of order rows. */
#include "policies/order.h"

#include "base/core/bits.h"

extern const struct order_policy order_fcfs, order_sjf_prompt, order_sjf_output, order_sjf_work,
    order_srtf, order_mlfq, order_response_ratio, order_learned_rank, order_skip_predict,
    order_batch_llm, order_prefill_sjf, order_longest_prefix, order_largest_first,
    order_round_robin;

const struct order_policy *const order_table[] = {
    &order_response_ratio, &order_fcfs,        &order_sjf_prompt,  &order_sjf_output,
    &order_sjf_work,       &order_srtf,        &order_mlfq,        &order_learned_rank,
    &order_skip_predict,   &order_batch_llm,   &order_prefill_sjf, &order_longest_prefix,
    &order_largest_first,  &order_round_robin,
};
const uint32_t order_count = COUNT_OF(order_table);

const struct order_policy *order_find(struct str name)
{
    for (uint32_t i = 0; i < order_count; i++) {
        if (str_eq(str_from(order_table[i]->name), name)) return order_table[i];
    }
    return NULL;
}

void order_rank_of(const struct order_policy *row, void *state, const struct step_session *session,
                   int64_t now_us, struct order_rank *ret)
{
    *ret = (struct order_rank){ .from_us = session->arrival_us,
                                .tie_us = session->arrival_us,
                                .again_us = INT64_MAX };
    row->rank(state, session, now_us, ret);
}

/* sjf_prompt.c - admits the session with the least prefill first, with ageing.
 *
 *     rank = prefill_s - wait_s / ORDER_AGE
 *
 * SGLang and TensorRT-LLM order by the prompt tokens that are not in the cache; here they are
 * seconds of the performance model. No prediction is needed. The ageing term bounds the wait of a
 * long prompt: after ORDER_AGE times its work it passes everything that arrives. */
#include "policies/order/order.h"

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->base = session->prefill_s;
    ret->slope = -1 / ORDER_AGE;
}

const struct order_policy order_sjf_prompt = {
    .name = "sjf_prompt",
    .about = "least prefill seconds first, with ageing",
    .source = "SGLang PR 30806; TensorRT-LLM PR 12428",
    .rank = rank,
};

/* sjf_work.c - admits the session with the least predicted work first, with ageing.
 *
 *     rank = work_s - wait_s / ORDER_AGE
 *
 * Work is seconds of the performance model, prompt and predicted output together: where prefill is
 * the bottleneck, an order by output length alone gains next to nothing. The ageing term bounds the
 * wait of a long session: after ORDER_AGE times its work it passes everything that arrives. */
#include "policies/order/order.h"

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->base = session->work_s;
    ret->slope = -1 / ORDER_AGE;
}

const struct order_policy order_sjf_work = {
    .name = "sjf_work",
    .about = "least predicted seconds of work first, with ageing",
    .source = "shortest job first, on the step model's seconds",
    .rank = rank,
};

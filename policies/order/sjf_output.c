/* sjf_output.c - admits the session with the shortest predicted rest of output first, with ageing.
 *
 *     rank = decode_s - wait_s / ORDER_AGE
 *
 * SSJF and other length predictors order so: by the rest of the output alone, here in seconds of
 * the performance model. Without a prediction every session gets the running mean of outputs, and
 * the order is that of arrival. */
#include "policies/order/order.h"

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->base = session->decode_s;
    ret->slope = -1 / ORDER_AGE;
}

const struct order_policy order_sjf_output = {
    .name = "sjf_output",
    .about = "shortest predicted output first, with ageing",
    .source = "SSJF (arXiv 2404.08509)",
    .rank = rank,
};

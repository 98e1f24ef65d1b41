/* sjf.c - admits the shortest session first, with ageing: by its prefill, its output, or both.
 *
 *     rank = size_s - wait_s / ORDER_AGE
 *
 * Sizes are seconds of the performance model. The ageing term bounds the wait of a long session: after ORDER_AGE times
 * its work it passes everything that arrives. */
#include "policies/order/order.h"

static void shortest(double size_s, struct order_rank *ret)
{
    ret->base = size_s;
    ret->slope = -1 / ORDER_AGE;
}

/* Admits the session with the least prefill first.
 *
 * SGLang and TensorRT-LLM order by the prompt tokens that are not in the cache. No prediction is needed. */
static void rank_prompt(void *state, const struct step_session *session, int64_t now_us,
                        struct order_rank *ret)
{
    (void)state, (void)now_us;
    shortest(session->prefill_s, ret);
}

const struct order_policy order_sjf_prompt = {
    .name = "sjf_prompt",
    .about = "least prefill seconds first, with ageing",
    .source = "SGLang PR 30806; TensorRT-LLM PR 12428",
    .rank = rank_prompt,
};

/* Admits the session with the shortest predicted rest of output first.
 *
 * SSJF and other length predictors order so. Without a prediction every session gets the running mean of outputs, and
 * the order is that of arrival. */
static void rank_output(void *state, const struct step_session *session, int64_t now_us,
                        struct order_rank *ret)
{
    (void)state, (void)now_us;
    shortest(session->decode_s, ret);
}

const struct order_policy order_sjf_output = {
    .name = "sjf_output",
    .about = "shortest predicted output first, with ageing",
    .source = "SSJF (arXiv 2404.08509)",
    .rank = rank_output,
};

/* Admits the session with the least predicted work first, prompt and output together: where prefill is the bottleneck, an
 * order by output length alone gains next to nothing. */
static void rank_work(void *state, const struct step_session *session, int64_t now_us,
                      struct order_rank *ret)
{
    (void)state, (void)now_us;
    shortest(session->work_s, ret);
}

const struct order_policy order_sjf_work = {
    .name = "sjf_work",
    .about = "least predicted seconds of work first, with ageing",
    .source = "shortest job first, on the step model's seconds",
    .rank = rank_work,
};

/* prefill_sjf.c - ranks prompts by shortest prefill and decodes by feedback queues.
 *
 *     no token yet:  rank = prefill_s - wait_s / ORDER_AGE - 1e6     (before any decode)
 *     decoding:      rank = level;  first level = the lowest i with 512 * 2^i >= its KV tokens;
 *                    levels, quanta and the promotion after 3 s of waiting are those of mlfq
 *
 * It is made for prefill/decode disaggregation: a prefill instance holds only sessions of the first
 * kind and so runs the shortest uncached prompt first, a decode instance only those of the second.
 * A session with a large KV starts at a low priority because each of its tokens reads all of it.
 * The survey names no source for the pair; LAPS and Kairos are close. On an instance that does
 * both, decodes starve while prompts keep coming: promotion reorders only the decodes. */
#include "policies/order/order.h"

#define KV_TOKENS 512
#define PROMOTE_US 3000000

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state;
    if (session->generated == 0) {
        ret->base = session->prefill_s - 1e6;
        ret->slope = -1 / ORDER_AGE;
        return;
    }
    uint32_t level = 0, tokens = session->prompt_tokens + session->generated;
    if (session->scratch->order[0] == 0) {
        while (level < MLFQ_LEVELS - 1 && ((uint64_t)KV_TOKENS << level) < tokens)
            level++;
        mlfq_start(session, level);
    }
    int64_t promote_us = session->waiting_us + PROMOTE_US;
    if (!session->running && now_us < promote_us) ret->again_us = promote_us;
    if (!session->running && now_us >= promote_us && mlfq_level(session) > 0) {
        mlfq_start(session, 0);
    }
    ret->base = (double)mlfq_level(session);
}

/* A begun prompt is finished: it holds pages and has given no token for them. */
static bool yields(const void *state, const struct step_session *running)
{
    (void)state;
    return running->generated > 0;
}

static bool observe(void *state, const struct step_event *event)
{
    (void)state;
    if (event->kind == STEP_RAN && event->session->generated > 0) {
        mlfq_ran(event->session, event->seconds);
    }
    return false;
}

const struct order_policy order_prefill_sjf = {
    .name = "prefill_sjf",
    .about = "shortest uncached prompt first, decodes by feedback queues; for split pools",
    .source = "skip-join MLFQ of FastServe on decode pools; LAPS, Kairos on prefill pools",
    .preempts = true,
    .rank = rank,
    .yields = yields,
    .observe = observe,
};

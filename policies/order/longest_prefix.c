/* longest_prefix.c - admits the session with the longest cached prefix first (SGLang's LPM).
 *
 *     rank = -(known tokens - uncached tokens)
 *
 * It uses cached prefixes while they are there, and starves sessions that share nothing, which is
 * why a fair policy (dlpm) chooses the tenant first. Ours ages by a thousand tokens a second of
 * waiting. */
#include "policies/order/order.h"

#define AGE_TOKENS 1000.0

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->base =
        (double)session->uncached - (double)session->prompt_tokens - (double)session->generated;
    ret->slope = -AGE_TOKENS;
}

const struct order_policy order_longest_prefix = {
    .name = "longest_prefix",
    .about = "longest cached beginning first, with ageing",
    .source = "SGLang (arXiv 2312.07104), longest prefix match",
    .uses_hits = true,
    .rank = rank,
};

/* largest_first.c - admits the session with the most expected tokens first.
 *
 *     rank = -(prompt + expected output) - wait_s * 1000
 *
 * Bins fill best when the large pieces go in first; with an admission policy that tries the next
 * session when one does not fit (s3), this is decreasing first fit. It packs memory; it does not
 * shorten waits. */
#include "policies/order/order.h"

#define AGE_TOKENS 1000.0

static void rank(void *state, const struct step_session *session, int64_t now_us,
                 struct order_rank *ret)
{
    (void)state, (void)now_us;
    ret->base = -((double)session->prompt_tokens + (double)session->generated + session->remaining);
    ret->slope = -AGE_TOKENS;
}

const struct order_policy order_largest_first = {
    .name = "largest_first",
    .about = "most expected tokens first, with ageing; packs memory together with admit s3",
    .source = "S3 (arXiv 2306.06000), decreasing first fit",
    .rank = rank,
};

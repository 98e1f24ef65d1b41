/* least_computed.c - preempts the session with the fewest computed tokens.
 *
 * The victim's computed tokens are the cost of the preemption: they are computed again, or copied
 * (rule of InferMax). The session with the most is never a victim and therefore finishes. */
#include "policies/preempt/preempt.h"

static double rank(const struct step_session *session)
{
    return -(double)session->computed;
}

const struct preempt_policy preempt_least_computed = {
    .name = "least_computed",
    .about = "the session that loses the fewest computed tokens",
    .source = "InferMax (arXiv 2411.07447)",
    .rank = rank,
};

/* least_computed.c - the session with the fewest computed tokens gives way.
 *
 * What is computed again, or copied, are the victim's computed tokens: they are its cost (rule of
 * InferMax). The one with the most is never a victim and therefore finishes. */
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

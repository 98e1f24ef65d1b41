/* preempt_least_computed.c - the session with the fewest computed tokens gives way.
 *
 * Preemption is by recompute, so the victim's computed tokens are what it costs (the rule of
 * InferMax). The one with the most is never a victim and therefore finishes. */
#include "policies/preempt.h"

extern const struct preempt_policy preempt_least_computed;

static double rank(const struct step_session *session)
{
    return -(double)session->computed;
}

const struct preempt_policy preempt_least_computed = {
    .name = "least_computed",
    .about = "the session that loses the fewest computed tokens",
    .rank = rank,
};

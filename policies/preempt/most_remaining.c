/* most_remaining.c - preempts the session with the most work left.
 *
 *     rank = work_s
 *
 * It is the counterpart of shortest remaining time: pages go to the session that gives them back
 * first. The session with the least work left is never a victim and therefore finishes. */
#include "policies/preempt/preempt.h"

static double rank(const struct step_session *session)
{
    return session->work_s;
}

const struct preempt_policy preempt_most_remaining = {
    .name = "most_remaining",
    .about = "the session with the most predicted work left",
    .source = "shortest remaining time first, seen from the other end",
    .rank = rank,
};

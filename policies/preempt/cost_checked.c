/* cost_checked.c - preempts the session with the most work left, and only if that pays.
 *
 *     for a waiting session:  by swap, if  victim's work_s - newcomer's work_s > swap_s * (1 + running)
 *     for a running session:  the cheaper of swap and recompute
 *
 * Letting the shorter session go first saves it the difference in work; the copies, out and in,
 * delay every session of the step. Recomputing under memory pressure never pays, because tokens
 * computed twice take capacity when it is scarcest; so without swap space no session is preempted
 * for a waiting one. */
#include "policies/preempt/preempt.h"

static double rank(const struct step_session *session)
{
    return session->work_s;
}

static enum preempt_how how(const struct preempt_view *view)
{
    if (!view->newcomer) return preempt_cheaper(view);
    if (!view->can_swap) return PREEMPT_NOT;
    double saved_s = view->victim->work_s - view->newcomer->work_s;
    double cost_s = view->swap_s * (1 + (double)view->running);
    return saved_s > cost_s ? PREEMPT_SWAP : PREEMPT_NOT;
}

const struct preempt_policy preempt_cost_checked = {
    .name = "cost_checked",
    .about = "the most work left, by swap, and only if the saved wait exceeds the copies",
    .source = "our own",
    .rank = rank,
    .how = how,
};

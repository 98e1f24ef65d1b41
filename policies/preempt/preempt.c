/* preempt.c - the table of preemption policies, and those that rank sessions by one number each. */
#include "policies/preempt/preempt.h"

#include "base/core/bits.h"

const struct preempt_policy *const preempt_table[] = {
#define POLICY(name) &preempt_##name,
#include "policies/preempt/preempt.def"
#undef POLICY
};
const uint32_t preempt_count = COUNT_OF(preempt_table);

const struct preempt_policy *preempt_find(struct str name)
{
    for (uint32_t i = 0; i < preempt_count; i++) {
        if (str_eq(str_from(preempt_table[i]->name), name)) return preempt_table[i];
    }
    return NULL;
}

enum preempt_how preempt_cheaper(const struct preempt_view *view)
{
    return view->can_swap && view->swap_s <= view->recompute_s ? PREEMPT_SWAP : PREEMPT_RECOMPUTE;
}

/* Preempts the session that arrived last: with fcfs no session is ever overtaken. */
static double rank_newest(const struct step_session *session)
{
    return (double)session->arrival_us;
}

const struct preempt_policy preempt_newest = {
    .name = "newest",
    .about = "the session that arrived last",
    .source = "vLLM (arXiv 2309.06180): last in, first out",
    .rank = rank_newest,
};

/* Preempts the session with the fewest computed tokens.
 *
 * The victim's computed tokens are the cost of the preemption: they are computed again, or copied
 * (rule of InferMax). The session with the most is never a victim and therefore finishes. */
static double rank_least_computed(const struct step_session *session)
{
    return -(double)session->computed;
}

const struct preempt_policy preempt_least_computed = {
    .name = "least_computed",
    .about = "the session that loses the fewest computed tokens",
    .source = "InferMax (arXiv 2411.07447)",
    .rank = rank_least_computed,
};

/* Preempts the session with the most work left.
 *
 *     rank = work_s
 *
 * It is the counterpart of shortest remaining time: pages go to the session that gives them back
 * first. The session with the least work left is never a victim and therefore finishes. */
static double rank_most_remaining(const struct step_session *session)
{
    return session->work_s;
}

const struct preempt_policy preempt_most_remaining = {
    .name = "most_remaining",
    .about = "the session with the most predicted work left",
    .source = "shortest remaining time first, seen from the other end",
    .rank = rank_most_remaining,
};

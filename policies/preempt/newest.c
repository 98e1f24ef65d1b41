/* newest.c - preempts the session that arrived last: with fcfs no session is ever overtaken. */
#include "policies/preempt/preempt.h"

static double rank(const struct step_session *session)
{
    return (double)session->arrival_us;
}

const struct preempt_policy preempt_newest = {
    .name = "newest",
    .about = "the session that arrived last",
    .source = "vLLM (arXiv 2309.06180): last in, first out",
    .rank = rank,
};

/* fit.c - admits a session whose present tokens fit; later growth is left to preemption.
 *
 * One page for every running session stays free, so that a new session is not preempted in the very
 * next step by the growth of those before it. */
#include "policies/admit/admit.h"

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return (uint64_t)view->pages_needed + view->running <= view->pages_available;
}

const struct admit_policy admit_fit = {
    .name = "fit",
    .about = "admit what fits now; preempt later if needed",
    .source = "vLLM (arXiv 2309.06180)",
    .decide = decide,
};

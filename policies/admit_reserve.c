/* admit_reserve.c - admit only what will still fit when answers have grown to their P90.
 *
 *     needed + peak growth + running <= available
 *
 * Preempting costs more than the wait it saves once memory is the bottleneck, so a session starts
 * when there is room for its predicted end and for that of all before it. They do not all end at
 * once: short ones give back before long ones have grown, so what is kept free is the peak of the
 * sum over time, not the sum of the peaks, which left an L4 half empty. LightLLM's Past-Future
 * scheduler looks at the same peak. A page for each that runs makes up for pages being whole and for
 * prompts that take several steps; with lengths known nobody is then preempted. Without a prediction the P90 of an exponential with the running
 * mean of answers stands in. */
#include "policies/admit.h"

extern const struct admit_policy admit_reserve;

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return (uint64_t)view->pages_needed + view->peak_growth + view->running <=
           view->pages_available;
}

const struct admit_policy admit_reserve = {
    .name = "reserve",
    .about = "admit what fits at the worst moment with every answer at its predicted P90 length",
    .source = "our own, after S3, InferMax and LightLLM's Past-Future (arXiv 2507.10150)",
    .decide = decide,
};

/* reserve.c - admit only what will still fit when answers have grown to their expected lengths.
 *
 *     needed + peak growth + running <= available,   growth to  tokens so far + expected to come
 *
 * A session starts when there is room for its expected end and for that of all before it. They do
 * not all end at once: short ones give back before long ones have grown, so what is kept free is the
 * peak of the sum over time, not the sum of the peaks, which left an L4 half empty. LightLLM's
 * Past-Future scheduler looks at the same peak. A page for each that runs makes up for pages being
 * whole and for prompts that take several steps; with lengths known nobody is then preempted.
 *
 * Means, not P90s (reserve_p90): that each answer is as long as one in ten is, all at once, hardly
 * happens, and memory kept for it is lost to those who wait. Where lengths are hard to tell that cost
 * far more than the preemptions it saved. */
#include "policies/admit/admit.h"

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_peak(view);
}

const struct admit_policy admit_reserve = {
    .name = "reserve",
    .about = "admit what fits at the worst moment with every answer at its expected length",
    .source = "our own, after S3, InferMax and LightLLM's Past-Future (arXiv 2507.10150)",
    .decide = decide,
};

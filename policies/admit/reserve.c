/* reserve.c - admits what still fits when all outputs have grown to their expected lengths.
 *
 *     needed + peak growth + running <= available,   growth to  tokens so far + expected to come
 *
 * A session starts when there is room for its expected length and for those of all running
 * sessions. They do not all end at once: short ones return their pages before long ones have grown.
 * The policy therefore keeps free the peak over time of the summed growth; the sum of the peaks
 * left an L4 half empty. LightLLM's Past-Future scheduler looks at the same peak. One page for each
 * running session makes up for pages being whole and for prompts that take several steps; with
 * known lengths no session is then preempted.
 *
 * The expected length is a mean. A P90 (reserve_p90) keeps memory for the case that all outputs are
 * as long as the longest tenth at the same time, which hardly happens, and waiting sessions lose
 * that memory. Where lengths are hard to predict, this cost far more than the preemptions it
 * saved. */
#include "policies/admit/admit.h"

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_peak(view);
}

const struct admit_policy admit_reserve = {
    .name = "reserve",
    .about = "admit what fits at the worst moment with every output at its expected length",
    .source = "our own, after S3, InferMax and LightLLM's Past-Future (arXiv 2507.10150)",
    .decide = decide,
};

/* reserve.c - admits what still fits when all outputs have grown: to their expected lengths (reserve), to their P90s
 * (reserve_p90), or to their limits (max_reserve).
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

static bool decide_peak(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_peak(view);
}

const struct admit_policy admit_reserve = {
    .name = "reserve",
    .about = "admit what fits at the worst moment with every output at its expected length",
    .source = "our own, after S3, InferMax and LightLLM's Past-Future (arXiv 2507.10150)",
    .decide = decide_peak,
};

/* Admits a session if all outputs still fit when each has grown to its P90.
 *
 *     needed + peak growth + running <= available,   growth to the predicted P90
 *
 * It is the cautious form of reserve: sessions are hardly ever preempted, and many wait that could
 * have run. Without a prediction it takes the P90 of an exponential distribution with the expected
 * total output as its mean. */
#define P90_RATIO 2.3026 /* P90 over mean of an exponential: ln 10 */

static uint32_t length_p90(const void *state, const struct step_session *session)
{
    (void)state;
    if (session->predicted_p90) return session->predicted_p90;
    return (uint32_t)(P90_RATIO * ((double)session->generated + session->remaining));
}

const struct admit_policy admit_reserve_p90 = {
    .name = "reserve_p90",
    .about = "admit what fits at the worst moment with every output at its predicted P90 length",
    .source = "our own, as reserve",
    .decide = decide_peak,
    .reserve = length_p90,
};

/* Admits a session if all outputs fit at their own limits (Orca, OSDI 2022).
 *
 * Memory is set aside for the most tokens a request may ask for, so no session is ever preempted
 * and most of the memory is never used: paged memory was invented to avoid that waste. */
static bool decide_grown(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_grown(view);
}

static uint32_t length_max(const void *state, const struct step_session *session)
{
    (void)state;
    return session->output_max;
}

const struct admit_policy admit_max_reserve = {
    .name = "max_reserve",
    .about = "admit what fits with every output at the request's own limit",
    .source = "Orca (OSDI 2022)",
    .decide = decide_grown,
    .reserve = length_max,
};

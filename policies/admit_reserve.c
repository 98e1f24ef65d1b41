/* admit_reserve.c - admit only what will still fit when answers have grown to their P90.
 *
 * Preempting by recompute costs more than the wait it saves once memory is the bottleneck, so a
 * session starts when there is room for its predicted end and for that of all before it. Without
 * a prediction the P90 of an exponential with the running mean of answers stands in. */
#include "policies/admit.h"

extern const struct admit_policy admit_reserve;

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_grown(view);
}

const struct admit_policy admit_reserve = {
    .name = "reserve",
    .about = "admit what fits with every answer at its predicted P90 length",
    .source = "our own, after S3 and InferMax",
    .decide = decide,
};

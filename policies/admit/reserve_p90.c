/* reserve_p90.c - admits a session if all outputs still fit when each has grown to its P90.
 *
 *     needed + peak growth + running <= available,   growth to the predicted P90
 *
 * It is the cautious form of reserve: sessions are hardly ever preempted, and many wait that could
 * have run. Without a prediction it takes the P90 of an exponential distribution with the expected
 * total output as its mean. */
#include "policies/admit/admit.h"

#define P90_RATIO 2.3026 /* P90 over mean of an exponential: ln 10 */

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_peak(view);
}

static uint32_t reserve(const void *state, const struct step_session *session)
{
    (void)state;
    if (session->predicted_p90) return session->predicted_p90;
    return (uint32_t)(P90_RATIO * ((double)session->generated + session->remaining));
}

const struct admit_policy admit_reserve_p90 = {
    .name = "reserve_p90",
    .about = "admit what fits at the worst moment with every output at its predicted P90 length",
    .source = "our own, as reserve",
    .decide = decide,
    .reserve = reserve,
};

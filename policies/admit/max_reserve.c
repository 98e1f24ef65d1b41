/* max_reserve.c - admits a session if all outputs fit at their own limits (Orca, OSDI 2022).
 *
 * Memory is set aside for the most tokens a request may ask for, so no session is ever preempted
 * and most of the memory is never used: paged memory was invented to avoid that waste. */
#include "policies/admit/admit.h"

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_grown(view);
}

static uint32_t reserve(const void *state, const struct step_session *session)
{
    (void)state;
    return session->output_max;
}

const struct admit_policy admit_max_reserve = {
    .name = "max_reserve",
    .about = "admit what fits with every output at the request's own limit",
    .source = "Orca (OSDI 2022)",
    .decide = decide,
    .reserve = reserve,
};

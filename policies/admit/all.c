/* all.c - admits the next session as long as there is a place in the batch.
 *
 * It suits settings in which memory is no concern; elsewhere the preemption policy has much to do. */
#include "policies/admit/admit.h"

static bool decide(void *state, const struct admit_view *view)
{
    (void)state, (void)view;
    return true;
}

const struct admit_policy admit_all = {
    .name = "all",
    .about = "admit every next session; only places in the batch are counted",
    .source = "the baseline of simulations without memory",
    .decide = decide,
};

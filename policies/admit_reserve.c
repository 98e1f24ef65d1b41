/* admit_reserve.c - admit only what will still fit when answers have grown to their P90.
 *
 * Preempting by recompute costs more than the wait it saves once memory is the bottleneck, so a
 * session starts when there is room for its predicted end and for that of all before it. */
#include "policies/admit.h"

extern const struct admit_policy admit_reserve;

static bool decide(const struct admit_view *view)
{
    uint64_t wanted = (uint64_t)view->pages_needed + view->pages_growth + view->running_growth;
    return wanted <= view->pages_available;
}

const struct admit_policy admit_reserve = {
    .name = "reserve",
    .about = "admit what fits with every answer at its predicted P90 length",
    .decide = decide,
};

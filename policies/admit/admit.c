/* admit.c - the table of admission policies, the two tests of memory that they share, and the policy without one. */
#include "policies/admit/admit.h"

#include "base/core/bits.h"

const struct admit_policy *const admit_table[] = {
#define POLICY(name) &admit_##name,
#include "policies/admit/admit.def"
#undef POLICY
};
const uint32_t admit_count = COUNT_OF(admit_table);

const struct admit_policy *admit_find(struct str name)
{
    for (uint32_t i = 0; i < admit_count; i++) {
        if (str_eq(str_from(admit_table[i]->name), name)) return admit_table[i];
    }
    return NULL;
}

bool admit_fits_grown(const struct admit_view *view)
{
    uint64_t wanted = (uint64_t)view->pages_needed + view->pages_growth + view->running_growth;
    return wanted <= view->pages_available;
}

bool admit_fits_peak(const struct admit_view *view)
{
    uint64_t wanted = (uint64_t)view->pages_needed + view->peak_growth + view->running;
    return wanted <= view->pages_available;
}

/* Admits the next session as long as there is a place in the batch.
 *
 * It suits settings in which memory is no concern; elsewhere the preemption policy has much to do. */
static bool decide_all(void *state, const struct admit_view *view)
{
    (void)state, (void)view;
    return true;
}

const struct admit_policy admit_all = {
    .name = "all",
    .about = "admit every next session; only places in the batch are counted",
    .source = "the baseline of simulations without memory",
    .decide = decide_all,
};

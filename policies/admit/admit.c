/* admit.c - the table of admission policies, and the two tests of memory that they share. */
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

/* perf_model.c - the table of performance models, and what they share. */
#include "policies/perf/perf_model.h"

#include "base/core/bits.h"

#include <math.h>

#define RATIO_RATE 0.02 /* step of the running quantile, relative */
#define RATIO_QUANTILE 0.9

const struct perf_policy *const perf_table[] = {
#define POLICY(name) &perf_##name,
#include "policies/perf/perf.def"
#undef POLICY
};
const uint32_t perf_count = COUNT_OF(perf_table);

const struct perf_policy *perf_find(struct str name)
{
    for (uint32_t i = 0; i < perf_count; i++) {
        if (str_eq(str_from(perf_table[i]->name), name)) return perf_table[i];
    }
    return NULL;
}

void perf_track_p90(double *p90, double ratio)
{
    *p90 *= 1 + RATIO_RATE * (ratio > *p90 ? RATIO_QUANTILE : RATIO_QUANTILE - 1);
}

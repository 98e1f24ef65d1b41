/* mix.h - the cheapest whole numbers of instances that together do a rate.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "policies/scale/scale.h"

struct scale_mixed {
    struct scale_choice best, second; /* second: the runner-up */
    bool covers, second_covers;       /* false: bounds, offers or budget allow no more */
    bool has_second;
};

/* sum(n * rate) >= need at the least cost, with min <= n <= reach and within the budget. rate is
 * what one instance of each pool does; 0: it cannot be used. */
void scale_mix(const struct scale_config *config, const struct scale_view *view,
               const double rate[SCALE_POOLS_MAX], double need, struct scale_mixed *ret);

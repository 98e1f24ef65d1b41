/* mix.h - finds the cheapest whole numbers of instances of all pools that together serve a rate.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "policies/scale/scale.h"

struct scale_mixed {
    struct scale_choice best, second; /* second: the runner-up */
    bool covers, second_covers;       /* the need; false: bounds, offers or budget allow no more */
    bool has_second;
};

/* Finds n of each pool with sum(n * rate) >= need at the least cost, min <= n <= reach and within the
 * budget. rate[i] is the requests a second of one instance of pool i; 0: it cannot be used. */
void scale_mix(const struct scale_config *config, const struct scale_view *view,
               const double rate[SCALE_POOLS_MAX], double need, struct scale_mixed *ret);

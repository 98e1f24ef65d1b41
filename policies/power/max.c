/* max.c - the policy `max`: run every instance at its full clock, always.
 *
 *     clock = 1
 *
 * This is the baseline without power management that the other policies are measured against. */
#include "policies/power/power.h"

#define AGAIN_US (60 * 1000000ll)

static void decide(void *state, const struct power_view *view, int64_t now_us,
                   struct power_verdict *ret)
{
    (void)state;
    for (uint32_t i = 0; i < view->count; i++)
        ret->clock[i] = 1;
    ret->reason = "power is not managed";
    ret->again_us = now_us + AGAIN_US;
}

const struct power_policy power_max = {
    .name = "max",
    .about = "full clock, always",
    .source = "none: what is done without power management",
    .decide = decide,
};

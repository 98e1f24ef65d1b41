/* role_view.c - demand and speeds for role policies. */
#include "fleet/role_view.h"

struct role_demand role_demand_of(const struct scale_demand *d)
{
    const struct lengths *l = &d->expected;
    return (struct role_demand){ .present = d->present && l->count > 0,
                                 .prompt_mean = l->prompt,
                                 .prompt_m2 = l->prompt_sq,
                                 .output_mean = l->output,
                                 .output_m2 = l->output_sq };
}

void role_lend_speeds(struct role_instance *instance, const uint32_t *offer, uint32_t count,
                      const struct perf_coef **prior, uint32_t offer_count)
{
    for (uint32_t i = 0; i < count; i++)
        if (instance[i].has_perf && offer[i] < offer_count) prior[offer[i]] = &instance[i].perf;
    for (uint32_t i = 0; i < count; i++) {
        struct role_instance *in = &instance[i];
        if (in->has_perf || offer[i] >= offer_count || !prior[offer[i]]) continue;
        in->has_perf = true;
        in->perf = *prior[offer[i]];
    }
}

/* power.c - the table of power rows, and what they share. */
#include "policies/power.h"

#include "base/core/bits.h"

#include <math.h>

extern const struct power_policy power_max, power_mu_serve, power_dynamollm, power_polca;

const struct power_policy *const power_table[] = { &power_max, &power_mu_serve, &power_dynamollm,
                                                   &power_polca };
const uint32_t power_count = COUNT_OF(power_table);

const struct power_policy *power_find(struct str name)
{
    for (uint32_t i = 0; i < power_count; i++) {
        if (str_eq(str_from(power_table[i]->name), name)) return power_table[i];
    }
    return NULL;
}

static bool is_idle(const struct power_instance *in)
{
    return in->shape.prefill_tokens == 0 && in->shape.decoding_seqs == 0;
}

double power_stretch(const struct power_instance *in, double clock)
{
    if (!in->roofline || is_idle(in)) return 1;
    return roofline_step_clock_s(in->roofline, &in->shape, clock) /
           roofline_step_clock_s(in->roofline, &in->shape, in->clock);
}

double power_busy(const struct power_instance *in, double clock)
{
    return in->busy * power_stretch(in, clock);
}

double power_watts(const struct power_instance *in, double clock)
{
    if (!in->roofline) return 0;
    double busy = fmin(1, power_busy(in, clock)), idle = in->roofline->watts_idle;
    return idle + busy * (roofline_watts(in->roofline, &in->shape, clock) - idle);
}

void power_decide(const struct power_policy *p, void *state, const struct power_view *view,
                  int64_t now_us, struct power_verdict *ret)
{
    p->decide(state, view, now_us, ret);
    ret->watts = ret->watts_full = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        /* Just below a rung is that rung: sums of 0.05 are not exact. */
        double rungs = ceil(ret->clock[i] / POWER_RUNG - 1e-9);
        ret->clock[i] = fmin(1, fmax(POWER_CLOCK_MIN, rungs * POWER_RUNG));
        ret->watts += power_watts(&view->instance[i], ret->clock[i]);
        ret->watts_full += power_watts(&view->instance[i], 1);
    }
}

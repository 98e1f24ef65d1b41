/* power_mu_serve.c - the row `mu_serve`: feed the SLO's slack back into the clock.
 *
 *     slack = min(1 - ttft / ttft_slo, 1 - tpot / tpot_slo), of each instance
 *     slack < 0, or requests wait while slack < low:  clock = 1
 *     slack < low (0.15):   one rung up
 *     slack > high (0.35):  one rung down
 *
 * Down slowly and up at once: a rung too low costs requests, a rung too high some watts. Between
 * the marks the clock rests, so that it does not swing. Nothing is predicted: where the latency
 * reacts late (queues), so does this.
 *
 * Source: mu-Serve, USENIX ATC 2024: the lowest frequency at which the SLO is attained. Marks and
 * step sizes are ours; its placement of operators by their sensitivity to frequency is not here. */
#include "policies/power.h"

#include <math.h>

#define LOW 0.15
#define HIGH 0.35
#define AGAIN_US (5 * 1000000ll) /* a window must hold enough answers */

extern const struct power_policy power_mu_serve;

static double choose(const struct power_instance *in, const struct power_view *view)
{
    if (!in->roofline) return 1;
    if (!in->tail_known) return in->clock;
    double slack = fmin(1 - in->ttft_s / view->ttft_slo_s, 1 - in->tpot_s / view->tpot_slo_s);
    if (slack < 0 || (slack < LOW && in->waiting > 0)) return 1;
    if (slack < LOW) return in->clock + POWER_RUNG;
    return slack > HIGH ? in->clock - POWER_RUNG : in->clock;
}

static void decide(void *state, const struct power_view *view, int64_t now_us,
                   struct power_verdict *ret)
{
    (void)state;
    for (uint32_t i = 0; i < view->count; i++)
        ret->clock[i] = choose(&view->instance[i], view);
    ret->reason = "clocks follow the SLO's slack";
    ret->again_us = now_us + AGAIN_US;
}

const struct power_policy power_mu_serve = {
    .name = "mu_serve",
    .about = "a rung down while the SLO has slack, full clock when it has none",
    .source = "mu-Serve, USENIX ATC 2024",
    .decide = decide,
};

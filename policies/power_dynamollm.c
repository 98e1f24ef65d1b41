/* power_dynamollm.c - the row `dynamollm`: the clock of least energy among those that keep the SLO.
 *
 *     busy(c) = busy * step(c) / step(now)                        the same work takes longer
 *     tpot(c) = tpot * step(c) / step(now)
 *     ttft(c) = ttft * step(c) / step(now) * (1 - busy) / (1 - busy(c))      and so does its queue
 *     allowed: busy(c) <= 0.85, tpot(c) and ttft(c) <= 0.9 of their limits
 *     choose:  least watts(c) = idle + busy(c) (watts of a step at c - idle)
 *
 * Work of a window is given, so least mean watts is least energy. It is not always the lowest clock
 * that is allowed: below some clock steps stretch more than their power falls. An instance with no
 * clock allowed runs at full speed.
 *
 * Source: DynamoLLM, HPCA 2025 (arXiv 2408.00741): per-instance frequency every 5 s from a profile
 * of energy and latency, under the SLO. Profile: our roofline with the watts of power.h instead of
 * a measured one. Its pools by request length and its choice of parallelism are not clocks: they
 * are not here. */
#include "policies/power.h"

#include <math.h>

#define BUSY_MAX 0.85
#define SLO_PART 0.9
#define AGAIN_US (5 * 1000000ll)

extern const struct power_policy power_dynamollm;

static bool is_allowed(const struct power_instance *in, const struct power_view *view, double clock)
{
    double stretch = power_stretch(in, clock), busy = in->busy * stretch;
    if (busy > BUSY_MAX) return false;
    /* A backlog that does not clear is no steady state: the formula of ttft knows nothing of it. */
    if (in->waiting > 0 && clock < in->clock) return false;
    double queue = (1 - in->busy) / (1 - busy);
    return in->tpot_s * stretch <= SLO_PART * view->tpot_slo_s &&
           in->ttft_s * stretch * fmax(queue, 0) <= SLO_PART * view->ttft_slo_s;
}

static double choose(const struct power_instance *in, const struct power_view *view)
{
    if (!in->roofline) return 1;
    if (!in->tail_known) return in->clock;
    double best = 1, best_watts = power_watts(in, 1);
    for (double clock = 1 - POWER_RUNG; clock >= POWER_CLOCK_MIN - 1e-9; clock -= POWER_RUNG) {
        double at = fmax(clock, POWER_CLOCK_MIN);
        if (!is_allowed(in, view, at)) break; /* a lower one is slower still */
        double watts = power_watts(in, at);
        if (watts < best_watts) best = at, best_watts = watts;
    }
    return best;
}

static void decide(void *state, const struct power_view *view, int64_t now_us,
                   struct power_verdict *ret)
{
    (void)state;
    for (uint32_t i = 0; i < view->count; i++)
        ret->clock[i] = choose(&view->instance[i], view);
    ret->reason = "least predicted watts within the SLO";
    ret->again_us = now_us + AGAIN_US;
}

const struct power_policy power_dynamollm = {
    .name = "dynamollm",
    .about = "the clock of least predicted energy that keeps the SLO",
    .source = "DynamoLLM, HPCA 2025",
    .decide = decide,
};

/* dynamollm.c - the policy `dynamollm`: choose the clock of least energy among those that keep the SLO.
 *
 *     point(c) = steady state at clock c with the same requests arriving (power.h)
 *     tpot(c)  = tpot * stretch(c)
 *     ttft(c)  = ttft * stretch(c) * max(1, (1 - load(now)) / (1 - load(c)))  the queue grows too
 *     allowed:   point(c) is stable, load(c) <= 0.7, tpot(c) and ttft(c) <= 0.7 of their limits
 *     choose:    least watts(c)
 *
 * The work of a window is given, so least mean watts is least energy. The best clock is not always
 * the lowest one allowed: below some clock steps stretch more than their power falls. The 0.7 leaves
 * room for demand that arrives before the next decision. An instance with no clock allowed, or with
 * more than 4 requests waiting, runs at full speed.
 *
 * Source: DynamoLLM, HPCA 2025 (arXiv 2408.00741): per-instance frequency every 5 s from a profile
 * of energy and latency, under the SLO. Deviation: the profile is our roofline with its watts, not a
 * measured one. Its pools by request length and its choice of parallelism are not here. */
#include "policies/power/power.h"

#include <math.h>

#define LOAD_MAX 0.7
#define SLO_PART 0.7
#define WAITING_MAX 4
#define GAIN_MIN 1e-9 /* where a clock changes no watts, rounding must not choose it */
#define AGAIN_US (5 * 1000000ll)

static bool is_allowed(const struct power_instance *in, const struct power_view *view,
                       const struct power_point *now, const struct power_point *then)
{
    if (!then->stable || then->load > LOAD_MAX) return false;
    double queue = fmax(1, (1 - now->load) / (1 - then->load));
    return in->tpot_s * then->stretch <= SLO_PART * view->tpot_slo_s &&
           in->ttft_s * then->stretch * queue <= SLO_PART * view->ttft_slo_s;
}

static double choose(const struct power_instance *in, const struct power_view *view)
{
    if (!in->roofline || in->waiting > WAITING_MAX) return 1;
    if (!in->tail_known) return in->clock;
    struct power_point now, then;
    power_point_at(in, in->clock, &now);
    power_point_at(in, 1, &then);
    double best = 1, best_watts = then.watts;
    for (int rung = (int)(1 / POWER_RUNG) - 1; rung * POWER_RUNG >= POWER_CLOCK_MIN - 1e-9;
         rung--) {
        double clock = rung * POWER_RUNG;
        power_point_at(in, clock, &then);
        if (!is_allowed(in, view, &now, &then)) break; /* a lower one is slower still */
        if (then.watts < best_watts * (1 - GAIN_MIN)) best = clock, best_watts = then.watts;
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

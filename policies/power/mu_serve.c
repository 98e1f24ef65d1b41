/* mu_serve.c - the policy `mu_serve`: feed the SLO's slack back into the clock.
 *
 *     slack = min(1 - ttft / ttft_slo, 1 - tpot / tpot_slo), of each instance
 *     slack < 0.2, or requests wait:                  clock = 1, and for ten minutes no clock is
 *                                                     below two rungs above the one that failed
 *     (1 - slack) (c / (c - rung))^2 < 0.65:          a rung down
 *
 * Clocks go down slowly and up at once: a rung too low costs requests, a rung too high some watts.
 * The square bounds the effect of a rung on latency: the step takes longer and so does its queue.
 * Tails describe requests that began minutes ago; therefore steps down are spaced, and a clock that
 * failed is remembered. Nothing is predicted.
 *
 * Source: mu-Serve, USENIX ATC 2024: the lowest frequency at which the SLO is attained. The
 * thresholds, steps and memory are ours; its placement of operators by their sensitivity to
 * frequency is not here. */
#include "policies/power/power.h"

#include <math.h>

#define SLACK_MIN 0.2
#define LATENCY_MAX 0.65 /* latency that a step down may lead to, as a share of the SLO */
#define WAITING_MAX 4
#define AGAIN_US (20 * 1000000ll) /* a window must hold outputs of its own clock */
#define FLOOR_US (600 * 1000000ll)

struct state {
    double floor;     /* the lowest clock allowed */
    int64_t until_us; /* end of the floor's time; 0: never set */
};

static double slack_of(const struct power_instance *in, const struct power_view *view)
{
    return fmin(1 - in->ttft_s / view->ttft_slo_s, 1 - in->tpot_s / view->tpot_slo_s);
}

/* Returns true if too many requests wait, or the tails leave too little slack. */
static bool is_short(const struct power_instance *in, const struct power_view *view)
{
    if (in->waiting > WAITING_MAX) return true;
    return in->tail_known && slack_of(in, view) < SLACK_MIN;
}

static double choose(const struct power_instance *in, const struct power_view *view, double floor)
{
    if (!in->roofline || is_short(in, view)) return 1;
    if (!in->tail_known) return in->clock;
    double lower = in->clock - POWER_RUNG;
    if (lower < fmax(floor, POWER_CLOCK_MIN) - 1e-9) return fmax(in->clock, floor);
    double worse = in->clock / lower * (in->clock / lower);
    return (1 - slack_of(in, view)) * worse < LATENCY_MAX ? lower : in->clock;
}

static void decide(void *state, const struct power_view *view, int64_t now_us,
                   struct power_verdict *ret)
{
    struct state *s = state;
    /* After a wall clock went back, until_us is further off than it was ever set: the floor ends. */
    if (now_us >= s->until_us || s->until_us - now_us > FLOOR_US) s->floor = POWER_CLOCK_MIN;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct power_instance *in = &view->instance[i];
        if (!in->roofline || in->clock >= 1 || !is_short(in, view)) continue;
        s->floor = fmin(1, fmax(s->floor, in->clock + 2 * POWER_RUNG));
        s->until_us = now_us + FLOOR_US;
    }
    for (uint32_t i = 0; i < view->count; i++)
        ret->clock[i] = choose(&view->instance[i], view, s->floor);
    ret->reason = "clocks follow the SLO's slack";
    ret->again_us = now_us + AGAIN_US;
}

const struct power_policy power_mu_serve = {
    .name = "mu_serve",
    .about = "a rung down while the SLO has slack, full clock when it has none",
    .source = "mu-Serve, USENIX ATC 2024",
    .state_size = sizeof(struct state),
    .decide = decide,
};

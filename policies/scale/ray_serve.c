/* ray_serve.c - size the fleet by requests in flight over a target, with delays in both directions.
 *
 *     desired = ceil(ready * (ongoing / (target * ready))) = ceil(ongoing / target)
 *     ongoing = mean over the last 30 s of samples taken every 10 s; target 2
 *     up when it was desired for 30 s without a break, down after 600 s, then counted anew; at least
 *     1, and from none at once
 *
 * This is Ray Serve's default policy with smoothing factor 1. It knows neither a model of the engine
 * nor the lengths of requests. */
#include "base/core/bits.h"
#include "policies/scale/scale.h"

#include <math.h>

#define SAMPLES 3
#define SAMPLE_S 10
#define UP_DELAY_S 30
#define DOWN_DELAY_S 600
#define SECOND_US ((int64_t)1000000)

struct ray {
    int64_t sample_us, since_us; /* since_us: of the unbroken wish to change */
    double ongoing[SAMPLES];
    uint32_t samples;
    int32_t wish; /* 1: up, -1: down */
};

static double look_back(struct ray *r, double ongoing, int64_t now_us)
{
    if (scale_due(&r->sample_us, SAMPLE_S, now_us)) r->ongoing[r->samples++ % SAMPLES] = ongoing;
    uint32_t n = min_u32(r->samples, SAMPLES);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += r->ongoing[i];
    return n ? sum / n : ongoing;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct ray *r = state;
    const struct scale_demand *d = &view->demand;
    uint32_t have = scale_have_all(view);
    if (!d->present) {
        scale_keep(view, "no router has reported its demand: keep what there is", ret);
        ret->again_us = now_us + SECOND_US;
        return;
    }
    double ongoing = config->margin * look_back(r, (double)d->in_flight + d->held, now_us);
    double want = fmax(ceil(ongoing / config->ongoing_target), have > 1 ? 1 : 0);
    int32_t wish = want > have ? 1 : want < have ? -1 : 0;
    if (wish != r->wish || r->since_us > now_us) r->since_us = now_us; /* or time went back */
    r->wish = wish;
    double held_s = (double)(now_us - r->since_us) / 1e6;
    bool delayed = have > 0 && held_s < (wish > 0 ? UP_DELAY_S : DOWN_DELAY_S);
    if (wish == 0 || delayed)
        want = have;
    else
        r->since_us = now_us;
    scale_answer(config, view, want,
                 delayed && wish ? "the change has not been wanted for long enough"
                                 : "requests under way against the target",
                 ret);
    ret->load = ongoing / config->ongoing_target;
    ret->again_us = now_us + SECOND_US;
}

const struct scale_policy scale_ray_serve = {
    .name = "ray_serve",
    .about = "requests under way divided by a target, 30 s up, 600 s down",
    .source = "Ray Serve's default autoscaling policy",
    .shaper = "none",
    .state_size = sizeof(struct ray),
    .decide = decide,
};

/* roofline.c - the policy `roofline`, which uses the closed form without correction by steps.
 *
 *     step_s = roofline(shape)
 *
 * It is the estimate before the first step, and the baseline of roofline_residual. Only the
 * quantile of its error is learnt. Source: base/perf/roofline.c. */
#include "base/core/err.h"
#include "policies/perf/perf_model.h"

#include <math.h>
#include <string.h>

struct state {
    struct roofline roofline;
    struct perf_coef coef;
};

static void init(void *state, const struct perf_setup *setup)
{
    struct state *s = state;
    must(setup->roofline);
    memset(s, 0, sizeof *s);
    s->roofline = *setup->roofline;
    roofline_linear(&s->roofline, ROOFLINE_POINT_DEFAULT, &s->coef);
}

static void observe(void *state, const struct perf_shape *shape, double seconds)
{
    struct state *s = state;
    if (perf_shape_empty(shape) || !isfinite(seconds) || seconds <= 0) return;
    perf_track_p90(&s->coef.ratio_p90, seconds / roofline_step_s(&s->roofline, shape));
    s->coef.samples += 1;
}

static double step_s(const void *state, const struct perf_shape *shape)
{
    const struct state *s = state;
    return roofline_step_s(&s->roofline, shape);
}

static void coef(const void *state, struct perf_coef *ret)
{
    const struct state *s = state;
    *ret = s->coef;
}

static double watts(const void *state, const struct perf_shape *shape, double clock)
{
    const struct state *s = state;
    return roofline_watts(&s->roofline, shape, clock);
}

const struct perf_policy perf_roofline = {
    .name = "roofline",
    .about = "closed form of batch shape, model and hardware",
    .source = "roofline model, Williams et al. 2009; constants fitted to measured tables",
    .state_size = sizeof(struct state),
    .needs_roofline = true,
    .init = init,
    .observe = observe,
    .step_s = step_s,
    .coef = coef,
    .watts = watts,
};

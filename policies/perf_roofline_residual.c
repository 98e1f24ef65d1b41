/* perf_roofline_residual.c - the row `roofline_residual`: the closed form, corrected by the steps.
 *
 *     step_s = sum over parts of k_part * roofline_part(shape)
 *     parts: matrices and small kernels; reading for decoding; attention of chunks; host; sessions
 *
 * The roofline gives the shape of the answer, steps give the size of each part: five factors by
 * least squares (perf_rls.c), starting at 1. What no step has spoken about yet stays as the closed
 * form has it, where a fit without one knows nothing; and the corrected parts are again a
 * roofline, so that a step of another shape, a clock or watts can be asked of it.
 *
 * Source: the survey's roofline-driven latency prediction (a roofline estimate and a learnt
 * residual). Ours: factors by part instead of one residual network over the batch. */
#include "base/core/err.h"
#include "policies/perf_rls.h"
#include "policies/perf_row.h"

#include <math.h>
#include <string.h>

extern const struct perf_policy perf_roofline_residual;

#define PRIOR_STEPS \
    0.3 /* the closed form is worth a third of a step: a wrong one is left at once */

_Static_assert((int)ROOFLINE_PARTS == PERF_TERMS, "a factor a part");

struct state {
    struct roofline closed, corrected;
    struct perf_rls fit;
};

static void init(void *state, const struct perf_setup *setup)
{
    static const double as_it_is[PERF_TERMS] = { 1, 1, 1, 1, 1 };
    struct state *s = state;
    must(setup->roofline);
    memset(s, 0, sizeof *s);
    s->closed = s->corrected = *setup->roofline;
    perf_rls_init(&s->fit, as_it_is, PRIOR_STEPS);
}

static void observe(void *state, const struct perf_shape *shape, double seconds)
{
    struct state *s = state;
    if (perf_shape_empty(shape) || !isfinite(seconds) || seconds <= 0) return;
    double parts[ROOFLINE_PARTS];
    roofline_parts(&s->closed, shape, parts);
    perf_rls_observe(&s->fit, parts, seconds);
    s->corrected = s->closed;
    roofline_scale(&s->corrected, s->fit.value);
}

static double step_s(const void *state, const struct perf_shape *shape)
{
    const struct state *s = state;
    return roofline_step_s(&s->corrected, shape);
}

static void coef(const void *state, struct perf_coef *ret)
{
    const struct state *s = state;
    roofline_linear(&s->corrected, ROOFLINE_POINT_DEFAULT, ret);
    ret->samples = s->fit.samples;
    ret->ratio_p90 = s->fit.ratio_p90;
}

static double watts(const void *state, const struct perf_shape *shape, double clock)
{
    const struct state *s = state;
    return roofline_watts(&s->corrected, shape, clock);
}

const struct perf_policy perf_roofline_residual = {
    .name = "roofline_residual",
    .about = "closed form, its parts corrected by the steps of this instance",
    .source = "roofline-driven latency prediction; factors by part are ours",
    .state_size = sizeof(struct state),
    .needs_roofline = true,
    .init = init,
    .observe = observe,
    .step_s = step_s,
    .coef = coef,
    .watts = watts,
};

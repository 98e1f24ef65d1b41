/* roofline_residual.c - the policy `roofline_residual`, which corrects the closed form by observed
 * steps.
 *
 *     step_s = sum over parts of k_part * roofline_part(shape)
 *     parts: matrices and small kernels; reading for decoding; attention of chunks; host; sessions
 *
 * The roofline gives the form of the estimate and steps give the size of each part: five factors by
 * least squares (perf_model.c), starting at 1. A part that no step has informed yet stays as in the
 * closed form, where a fit without one knows nothing. The corrected parts are again a roofline, so
 * it also estimates other shapes, other clocks and watts. The coefficients for readers are taken at
 * the batch shape at which the instance works, because a line agrees with a curve in one place
 * only.
 *
 * Source: the survey's roofline-driven latency prediction (a roofline estimate and a learnt
 * residual). Ours: factors by part instead of one residual network over the batch. */
#include "base/core/err.h"
#include "policies/perf/perf_model.h"

#include <math.h>
#include <string.h>

/* The closed form is worth a third of a step: a wrong one is left at once. */
#define PRIOR_STEPS 0.3

#define POINT_RATE 0.02 /* coef follows about the last fifty steps */

_Static_assert((int)ROOFLINE_PARTS == PERF_TERMS, "a factor a part");

struct state {
    struct roofline closed, corrected;
    struct perf_rls fit;
    double seqs, context, chunk; /* running means over the steps that have them; coef's point */
};

static void init(void *state, const struct perf_setup *setup)
{
    static const double as_it_is[PERF_TERMS] = { 1, 1, 1, 1, 1 };
    struct state *s = state;
    must(setup->roofline);
    memset(s, 0, sizeof *s);
    s->closed = s->corrected = *setup->roofline;
    perf_rls_init(&s->fit, as_it_is, PRIOR_STEPS);
    s->seqs = ROOFLINE_POINT_DEFAULT.decoding_seqs;
    s->context = ROOFLINE_POINT_DEFAULT.context_tokens;
    s->chunk = ROOFLINE_POINT_DEFAULT.chunk_tokens;
}

static void follow(double *mean, double value)
{
    *mean += POINT_RATE * (value - *mean);
}

static void follow_point(struct state *s, const struct perf_shape *shape)
{
    if (shape->prefill_chunks) follow(&s->chunk, (double)shape->prefill_tokens);
    if (!shape->decoding_seqs) return;
    follow(&s->seqs, shape->decoding_seqs);
    follow(&s->context, (double)shape->kv_tokens_decoding / shape->decoding_seqs);
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
    follow_point(s, shape);
}

static double step_s(const void *state, const struct perf_shape *shape)
{
    const struct state *s = state;
    return roofline_step_s(&s->corrected, shape);
}

static void coef(const void *state, struct perf_coef *ret)
{
    const struct state *s = state;
    const struct roofline_point here = { (uint32_t)fmax(2, s->seqs), (uint32_t)fmax(1, s->context),
                                         (uint32_t)fmax(1, s->chunk) };
    roofline_linear(&s->corrected, here, ret);
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

/* linear.c - the policy `linear`, which learns coefficients of tokens, sessions and cached tokens.
 *
 *     step_s = a + b prefill + c decoding + d read by decoding + e attended to by chunks
 *
 * It needs no knowledge of hardware or model. Every policy is reported to other processes in this
 * form. Source: ours; least squares as in perf_model.c. */
#include "policies/perf/linear.h"

#include "policies/perf/perf_model.h"

#include <math.h>

#define PRIOR_STEPS 0.02 /* the prior weighs as much as a fiftieth of a step */

/* Terms are scaled to about 1 so that the 5 x 5 solve is well conditioned. */
static const double term_scale[PERF_TERMS] = { 1.0, 1e-2, 1e-1, 1e-4, 1e-4 };

/* A model of 7 M parameters on one CPU core; elsewhere it is wrong by a factor, which 20 steps
 * correct. */
static const struct perf_coef prior_default = { .step_s = 2e-3,
                                                .prefill_token_s = 2e-4,
                                                .decode_seq_s = 5e-4,
                                                .kv_read_s = 2e-7,
                                                .attend_s = 2e-7 };

void perf_linear_init(struct perf_linear *p, const struct perf_coef *prior)
{
    p->coef = prior ? *prior : prior_default;
    p->coef.samples = 0;
    p->coef.ratio_p90 = 1.0;
    double value[PERF_TERMS] = { p->coef.step_s, p->coef.prefill_token_s, p->coef.decode_seq_s,
                                 p->coef.kv_read_s, p->coef.attend_s };
    for (int i = 0; i < PERF_TERMS; i++)
        value[i] /= term_scale[i];
    perf_rls_init(&p->fit, value, PRIOR_STEPS);
}

void perf_linear_observe(struct perf_linear *p, const struct perf_shape *shape, double seconds)
{
    if (perf_shape_empty(shape) || !isfinite(seconds) || seconds <= 0) return;
    const double x[PERF_TERMS] = {
        term_scale[0],
        term_scale[1] * (double)shape->prefill_tokens,
        term_scale[2] * (double)shape->decoding_seqs,
        term_scale[3] * (double)shape->kv_tokens_decoding,
        term_scale[4] * (double)(shape->kv_tokens_read - shape->kv_tokens_decoding),
    };
    perf_rls_observe(&p->fit, x, seconds);
    const double *value = p->fit.value;
    p->coef = (struct perf_coef){ .step_s = value[0] * term_scale[0],
                                  .prefill_token_s = value[1] * term_scale[1],
                                  .decode_seq_s = value[2] * term_scale[2],
                                  .kv_read_s = value[3] * term_scale[3],
                                  .attend_s = value[4] * term_scale[4],
                                  .samples = p->fit.samples,
                                  .ratio_p90 = p->fit.ratio_p90 };
}

static void init(void *state, const struct perf_setup *setup)
{
    perf_linear_init(state, setup->prior);
}

static void observe(void *state, const struct perf_shape *shape, double seconds)
{
    perf_linear_observe(state, shape, seconds);
}

static double step_s(const void *state, const struct perf_shape *shape)
{
    const struct perf_linear *p = state;
    return perf_step_s(&p->coef, shape);
}

static void coef(const void *state, struct perf_coef *ret)
{
    const struct perf_linear *p = state;
    *ret = p->coef;
}

const struct perf_policy perf_linear = {
    .name = "linear",
    .about = "five coefficients, learnt from the steps; needs no hardware",
    .source = "ours",
    .state_size = sizeof(struct perf_linear),
    .init = init,
    .observe = observe,
    .step_s = step_s,
    .coef = coef,
};

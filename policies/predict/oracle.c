/* oracle.c - predicts the true length: a bound, for the simulator only. */
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    (void)state;
    double tokens = length_clamp((double)f->truth_tokens, f->output_max);
    *ret = (struct predict_verdict){ .mean = tokens, .p50 = tokens, .p90 = tokens, .samples = 1 };
}

static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    (void)state;
    double left = length_clamp((double)f->truth_tokens, f->output_max) - (double)generated;
    return left > 1 ? left : 1;
}

const struct predict_policy predict_oracle = {
    .name = "oracle",
    .about = "the true length: a bound, in the simulator alone",
    .source = "a bound",
    .needs = PREDICT_TRUTH,
    .state_size = sizeof(struct predict_nothing),
    .init = predict_init_nothing,
    .decide = decide,
    .observe = predict_observe_nothing,
    .merge = predict_merge_nothing,
    .remaining = remaining,
};

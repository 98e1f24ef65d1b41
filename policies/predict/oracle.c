/* oracle.c - predicts the true length, bare or with noise: bounds, for the simulator only. */
#include "base/core/hash.h"
#include "base/core/rng.h"
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

#include <math.h>

static void decide_truth(const void *state, const struct predict_features *f,
                         struct predict_verdict *ret)
{
    (void)state;
    double tokens = length_clamp((double)f->truth_tokens, f->output_max);
    *ret = (struct predict_verdict){ .mean = tokens, .p50 = tokens, .p90 = tokens, .samples = 1 };
}

static double left_truth(const void *state, const struct predict_features *f, uint32_t generated)
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
    .decide = decide_truth,
    .observe = predict_observe_nothing,
    .merge = predict_merge_nothing,
    .remaining = left_truth,
};

/* Predicts the true length times lognormal noise: a bound, for the simulator only.
 *
 *     P50 = truth * exp(SIGMA * N(0, 1)), SIGMA = 0.9, P90 at the matching quantile
 *
 * SIGMA is the deviation of the logarithm at which a good prompt-only predictor orders chat
 * traffic. The noise is a function of the request, so a request gets the same prediction each time. */
#define SIGMA 0.9
#define NORMAL_P90 1.2815515655446004
#define NOISE_SEED 0x6f7261636c65ULL

static void decide_noisy(const void *state, const struct predict_features *f,
                         struct predict_verdict *ret)
{
    (void)state;
    const uint64_t part[] = { f->truth_tokens, f->prompt_tokens, f->tenant, f->prefix, f->ask };
    struct rng rng;
    rng_seed(&rng, hash64(part, sizeof part, hash64(f->text.data, f->text.len, NOISE_SEED)));
    double p50 = (double)f->truth_tokens * exp(SIGMA * rng_normal(&rng));
    *ret = (struct predict_verdict){
        .mean = length_clamp(p50, f->output_max),
        .p50 = length_clamp(p50, f->output_max),
        .p90 = length_clamp(p50 * exp(SIGMA * NORMAL_P90), f->output_max),
        .samples = 1,
    };
}

const struct predict_policy predict_noisy_oracle = {
    .name = "noisy_oracle",
    .about = "the true length times lognormal noise of deviation 0.9, in the simulator alone",
    .source = "a bound",
    .needs = PREDICT_TRUTH,
    .state_size = sizeof(struct predict_nothing),
    .init = predict_init_nothing,
    .decide = decide_noisy,
    .observe = predict_observe_nothing,
    .merge = predict_merge_nothing,
};

/* oracle.c - predicts the true length: a bound, in the simulator alone. */
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

struct nothing {
    uint32_t unused; /* a state of no bytes could not be saved */
};

static void init(void *state)
{
    memset(state, 0, sizeof(struct nothing));
}

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

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    (void)state, (void)f, (void)tokens, (void)censored; /* nothing to learn */
}

static void merge(void *state, const void *other)
{
    (void)state, (void)other;
}

const struct predict_policy predict_oracle = {
    .name = "oracle",
    .about = "the true length: a bound, in the simulator alone",
    .source = "a bound",
    .needs = PREDICT_TRUTH,
    .state_size = sizeof(struct nothing),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
    .remaining = remaining,
};

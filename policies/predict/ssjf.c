/* ssjf.c - predicts tokens by regression under the squared error, as SSJF does.
 *
 *     tokens / UNIT = sum of weights / sqrt(n)
 *
 * The paper's proxy is BERT-base with a two-layer head; ours is linear over hashed words (text.h).
 * It differs from `ngram` in the loss: a squared error on tokens follows the longest outputs,
 * Huber's loss on the logarithm follows typical ones.
 */
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"
#include "policies/predict/text.h"

#include <math.h>

#define SLOTS 32768u
#define UNIT 100.0
#define RATE 0.15
#define STEP_MAX 10.0 /* of the gradient: one endless output must not undo the rest */

struct ssjf {
    float weight[SLOTS * 2];
    double finished;
    struct length_band band;
};

static double estimate(const struct ssjf *s, const struct text_features *t)
{
    double tokens = UNIT * linear_dot(s->weight, 2, SLOTS - 1, t);
    return s->finished == 0 ? LENGTH_FIRST_GUESS : fmax(1, tokens);
}

static void init(void *state)
{
    struct ssjf *s = state;
    memset(s, 0, sizeof *s);
    length_band_init(&s->band);
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct ssjf *s = state;
    struct text_features t;
    text_features(f, &t);
    length_band_verdict(&s->band, estimate(s, &t), f->output_max, ret);
    ret->samples = s->finished;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct ssjf *s = state;
    struct text_features t;
    text_features(f, &t);
    double said = estimate(s, &t);
    length_band_observe(&s->band, said, (double)tokens, censored);
    if (censored && (double)tokens <= said) return;
    double error = linear_dot(s->weight, 2, SLOTS - 1, &t) - (double)tokens / UNIT;
    s->finished++;
    linear_step(s->weight, 2, SLOTS - 1, &t, fmax(-STEP_MAX, fmin(STEP_MAX, error)), RATE);
}

static void merge(void *state, const void *other)
{
    struct ssjf *s = state;
    const struct ssjf *o = other;
    linear_merge(s->weight, o->weight, SLOTS);
    s->finished += o->finished;
    length_band_merge(&s->band, &o->band);
}

const struct predict_policy predict_ssjf = {
    .name = "ssjf",
    .about = "regression on tokens under the squared error",
    .source = "SSJF (2404.08509), on hashed words instead of BERT",
    .needs = PREDICT_TEXT,
    .state_size = sizeof(struct ssjf),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
};

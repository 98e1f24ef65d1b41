/* prompt_histogram.c - predicts from the prompt's length alone.
 *
 *     bucket = floor(8 log2(prompt + 1))
 *
 * InferMax keys its mean by int(log2(prompt)); real chat traffic has structure finer than an
 * octave, so ours has eight buckets an octave, each shrunk towards its octave, and the octave
 * towards all lengths (lengths.h).
 */
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

#include <math.h>

#define OCTAVES 24
#define EIGHTHS (8 * OCTAVES)

struct prompt_histogram {
    struct length_offset p90;
    struct length_hist all, octave[OCTAVES], eighth[EIGHTHS];
};

static uint32_t eighth_of(const struct predict_features *f)
{
    double at = log2((double)f->prompt_tokens + 1) * 8;
    return at < EIGHTHS ? (uint32_t)at : EIGHTHS - 1;
}

static void estimate(const struct prompt_histogram *p, uint32_t eighth, struct length_estimate *ret)
{
    length_prior(ret);
    length_shrink(ret, &p->all);
    length_shrink(ret, &p->octave[eighth / 8]);
    length_shrink(ret, &p->eighth[eighth]);
}

static void init(void *state)
{
    memset(state, 0, sizeof(struct prompt_histogram));
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct prompt_histogram *p = state;
    struct length_estimate e;
    estimate(p, eighth_of(f), &e);
    length_verdict(&e, &p->p90, f->output_max, ret);
}

static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    struct length_estimate e;
    estimate(state, eighth_of(f), &e);
    return length_left(&e, f->output_max, generated);
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct prompt_histogram *p = state;
    struct length_estimate e;
    struct predict_verdict said;
    uint32_t eighth = eighth_of(f);
    estimate(p, eighth, &e);
    length_verdict(&e, &p->p90, UINT32_MAX, &said);
    length_offset_observe(&p->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    length_learn(&p->all, length);
    length_learn(&p->octave[eighth / 8], length);
    length_learn(&p->eighth[eighth], length);
}

static void merge(void *state, const void *other)
{
    struct prompt_histogram *p = state;
    const struct prompt_histogram *o = other;
    length_offset_merge(&p->p90, &o->p90);
    length_merge(&p->all, &o->all);
    for (uint32_t i = 0; i < OCTAVES; i++)
        length_merge(&p->octave[i], &o->octave[i]);
    for (uint32_t i = 0; i < EIGHTHS; i++)
        length_merge(&p->eighth[i], &o->eighth[i]);
}

const struct predict_policy predict_prompt_histogram = {
    .name = "prompt_histogram",
    .about = "histogram of lengths for each eighth of an octave of the prompt",
    .source = "InferMax (2411.07447), keyed finer",
    .state_size = sizeof(struct prompt_histogram),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
    .remaining = remaining,
};

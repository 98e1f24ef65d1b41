/* ngram.c - predicts by a linear model over hashed words and pairs of words, learned online.
 *
 *     log length = log_mean + sum of weights / sqrt(n)
 *     log P50, log P90 = log length + sums of weights of their own
 *
 * One head learns the mean under Huber's loss (delta 1 on the logarithm); two learn the distance of
 * P50 and P90 from it under the pinball loss. Each output is one AdaGrad step on 196,608 floats.
 * The mean of lengths is exp of the first head times a ratio learnt online, because the mean of a
 * logarithm is not the logarithm of the mean; P90 is moved by the conformal offset, as in other
 * predictors. A censored output steps only upwards. The intercept is the mean logarithm of the
 * first outputs and then stays fixed.
 */
#include "policies/predict/ngram.h"

#include "policies/predict/predict.h"
#include "policies/predict/text.h"

#include <math.h>

#define RATE 0.15
#define HUBER 1.0
#define RATIO_KEEP 0.998 /* of the ratio's sums, an output: half gone after 350 */
#define FIRST_ENDS 64    /* outputs that set the intercept */
#define LOG_MAX 13.8     /* a million tokens */

struct guess {
    double mean, p50, p90; /* logarithms */
};

static double clamp_log(double z)
{
    return fmax(0, fmin(LOG_MAX, z));
}

static void guess(const struct ngram *n, const struct text_features *t, struct guess *ret)
{
    double at[NGRAM_HEADS] = { 0 };
    for (uint32_t i = 0; i < t->count; i++) {
        const float *slot = n->weight + (size_t)(t->at[i] & (NGRAM_SLOTS - 1)) * NGRAM_STRIDE;
        for (uint32_t h = 0; h < NGRAM_HEADS; h++)
            at[h] += (double)slot[2 * h];
    }
    double scale = 1 / sqrt((double)t->count);
    ret->mean = clamp_log(n->log_mean + at[NGRAM_MEAN] * scale);
    ret->p50 = clamp_log(ret->mean + at[NGRAM_P50] * scale);
    ret->p90 = clamp_log(ret->mean + at[NGRAM_P90] * scale);
}

static void init(void *state)
{
    struct ngram *n = state;
    memset(n, 0, sizeof *n);
    n->log_mean = log(LENGTH_FIRST_GUESS);
    n->tokens = n->guessed = 1;
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct ngram *n = state;
    struct text_features t;
    struct guess z;
    text_features(f, &t);
    guess(n, &t, &z);
    *ret = (struct predict_verdict){
        .mean = length_clamp(exp(z.mean) * n->tokens / n->guessed, f->output_max),
        .p50 = length_clamp(exp(z.p50), f->output_max),
        .p90 = length_clamp(exp(z.p90 + (double)n->p90.value), f->output_max),
        .samples = n->finished,
    };
    if (ret->p90 < ret->p50) ret->p90 = ret->p50;
}

static double pinball(double q, double error)
{
    return error > 0 ? 1 - q : -q;
}

/* Steps the heads. A censored output moves only the heads that lie below it. */
static void learn(struct ngram *n, const struct text_features *t, const struct guess *z, double y,
                  bool censored)
{
    const double error[] = { z->mean - y, z->p50 - y, z->p90 - y };
    const double gradient[] = { fmax(-HUBER, fmin(HUBER, error[0])), pinball(0.5, error[1]),
                                pinball(0.9, error[2]) };
    for (uint32_t h = 0; h < NGRAM_HEADS; h++) {
        if (censored && error[h] >= 0) continue;
        linear_step(n->weight + 2 * h, NGRAM_STRIDE, NGRAM_SLOTS - 1, t, gradient[h], RATE);
    }
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct ngram *n = state;
    struct text_features t;
    struct guess z;
    double y = log((double)(tokens > 0 ? tokens : 1));
    text_features(f, &t);
    guess(n, &t, &z);
    length_offset_observe(&n->p90, 0.9, exp(z.p90 + (double)n->p90.value), (double)tokens,
                          censored);
    if (!censored) {
        n->finished++;
        if (n->finished <= FIRST_ENDS) n->log_mean += (y - n->log_mean) / n->finished;
        n->tokens = RATIO_KEEP * n->tokens + (double)tokens;
        n->guessed = RATIO_KEEP * n->guessed + exp(z.mean);
    }
    learn(n, &t, &z, y, censored);
}

static void merge(void *state, const void *other)
{
    struct ngram *n = state;
    const struct ngram *o = other;
    double all = n->finished + o->finished;
    if (o->finished == 0) return;
    linear_merge(n->weight, o->weight, NGRAM_SLOTS * NGRAM_HEADS);
    n->log_mean = (n->log_mean * n->finished + o->log_mean * o->finished) / all;
    n->finished = all;
    n->tokens += o->tokens;
    n->guessed += o->guessed;
    length_offset_merge(&n->p90, &o->p90);
}

const struct predict_policy predict_ngram = {
    .name = "ngram",
    .about = "linear model over hashed words and pairs of words, with heads for P50 and P90",
    .source = "ours; hashing after Weinberger 2009, AdaGrad, pinball loss (Koenker 1978)",
    .needs = PREDICT_TEXT,
    .state_size = sizeof(struct ngram),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
};

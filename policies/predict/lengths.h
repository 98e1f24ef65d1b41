/* lengths.h - histograms of lengths, calibrated bounds and a regression on one number, which the
 * predictors share.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 *
 * A histogram has 16 bins; bin b begins at 1.75^b, so the last one begins at 4,421 tokens and has
 * no end. An estimate is a mean and a probability for each bin. A key's own histogram is mixed into
 * the estimate of more general keys with the weight of its samples:
 *
 *     estimate = (n * own + LENGTH_SHRINK * parent's estimate) / (n + LENGTH_SHRINK)
 */
#pragma once
#include "policies/predict/predict.h"

#define LENGTH_BINS 16
#define LENGTH_GROWTH 1.75
#define LENGTH_SHRINK 4.0
#define LENGTH_COUNT_MAX 64.0    /* older lengths fade once a key has seen this many */
#define LENGTH_FIRST_GUESS 128.0 /* tokens, before any output ended */

struct length_hist {
    float count, mean;
    float bin[LENGTH_BINS];
};

struct length_estimate {
    double mean, samples;
    double bin[LENGTH_BINS]; /* probabilities */
};

void length_learn(struct length_hist *h, double tokens);
void length_merge(struct length_hist *h, const struct length_hist *other);
void length_prior(struct length_estimate *e); /* the estimate before any output ended */
void length_shrink(struct length_estimate *e, const struct length_hist *own);

/* Returns P(L > above) and E[L | L > above] of a histogram; log-linear within a bin. */
void length_tail(const double bin[LENGTH_BINS], double above, double *ret_share, double *ret_mean);

/* Returns E[L | L > generated] - generated from the histogram, at least 1. */
double length_left(const struct length_estimate *e, uint32_t output_max, uint32_t generated);

/* Returns the length to learn from an ended output: its tokens or, if it was censored, the expected
 * length of outputs that reached so many tokens; 0 if the cut came below `p50` and says nothing. */
double length_to_learn(const struct length_estimate *e, double p50, uint32_t tokens, bool censored);
double length_clamp(double tokens, uint32_t output_max);

/* An offset that keeps a share q of outputs below a bound. It is added to the logarithm of the
 * bound and moved after every output: up by step * q if the output ended above the bound, else down
 * by step * (1 - q) (adaptive conformal inference, Gibbs and Candes 2021). */
struct length_offset {
    float value;
};

void length_offset_observe(struct length_offset *o, double q, double bound, double tokens,
                           bool censored);

void length_offset_merge(struct length_offset *o, const struct length_offset *other);

/* Turns an estimate into a verdict: mean and quantiles of the estimate, the P90 moved by the
 * offset. */
void length_verdict(const struct length_estimate *e, const struct length_offset *p90,
                    uint32_t output_max, struct predict_verdict *ret);

/* P50 and P90 for policies that estimate one number: each is that number times a factor, and the
 * factors are moved so that the shares hold. */
struct length_band {
    struct length_offset p50, p90;
};

void length_band_init(struct length_band *b);

void length_band_verdict(const struct length_band *b, double tokens, uint32_t output_max,
                         struct predict_verdict *ret);

void length_band_observe(struct length_band *b, double estimate, double tokens, bool censored);
void length_band_merge(struct length_band *b, const struct length_band *other);

struct length_line {
    double n, x, y, xx, xy;  /* decayed sums; x and y are logarithms */
    double none_n, none_log; /* count and log-mean of outputs without the number */
    struct length_band band;
};

void length_line_init(struct length_line *l);
double length_line_at(const struct length_line *l, uint32_t number); /* number 0: absent */
void length_line_observe(struct length_line *l, uint32_t number, uint32_t tokens, bool censored);
void length_line_merge(struct length_line *l, const struct length_line *other);

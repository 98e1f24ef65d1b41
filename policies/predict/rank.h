/* rank.h - a learned score that only orders requests, and the lengths that go with scores.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 *
 * A score has no unit. Its place among recent scores, Phi((score - mean) / deviation), falls into
 * one of RANK_BINS bins, each with a histogram of the lengths seen there. A request's mean is
 * interpolated between its two nearest bins, so that means have the order of scores.
 */
#pragma once
#include "policies/predict/lengths.h"
#include "policies/predict/text.h"

#define RANK_SLOTS 32768u
#define RANK_WINDOW 32
#define RANK_BINS 16

struct rank_item {
    struct text_features features;
    float tokens;
};

struct rank_model {
    float weight[RANK_SLOTS * 2];
    struct rank_item window[RANK_WINDOW];
    uint32_t filled; /* outputs put into the window since the start */
    uint32_t unused; /* padding: no byte of a state is undefined */
    double finished, score_mean, score_var;
    struct length_offset p90;
    struct length_hist all, bin[RANK_BINS];
};

double rank_score(const struct rank_model *m, const struct text_features *t);

/* Functions of a policy with a rank_model as its state. */
void rank_init(void *state);
void rank_decide(const void *state, const struct predict_features *f, struct predict_verdict *ret);
void rank_merge(void *state, const void *from);

/* Calibrates on a finished request and puts it into the window; returns false if it taught nothing.
 * The caller steps the weights. */
bool rank_observe(struct rank_model *m, const struct text_features *t, uint32_t tokens,
                  bool censored);

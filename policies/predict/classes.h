/* classes.h - a classifier of output lengths, for policies that predict a class.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 *
 * Each class has a linear score over hashed words (text.h), learnt by softmax, cross entropy and
 * AdaGrad, and a histogram of the lengths that fell into it. The estimate mixes the histograms by
 * the probability of their class. (The papers take the likeliest class; all requests of a class
 * then tie, which gives them no order.) The policies differ in the edges of classes: fixed ones, or
 * quantiles followed online.
 */
#pragma once
#include "policies/predict/lengths.h"
#include "policies/predict/text.h"

#define CLASSES_MAX 12
#define CLASS_SLOTS 16384u
#define CLASS_STRIDE (2 * CLASSES_MAX)

struct class_model {
    float weight[CLASS_SLOTS * CLASS_STRIDE];
    double finished;
    uint32_t count;
    uint32_t unused;          /* padding: no byte of a state is undefined */
    double edge[CLASSES_MAX]; /* class c ends below edge[c]; the last class has no end */
    struct length_offset p90;
    struct length_hist all, hist[CLASSES_MAX];
};

/* The members that are equal in all policies of classes; `set_edges` is their init. */
#define CLASS_POLICY(set_edges)                                                         \
    .needs = PREDICT_TEXT, .state_size = sizeof(struct class_model), .init = set_edges, \
    .decide = class_decide, .merge = class_merge, .remaining = class_remaining

void class_init(struct class_model *m, const double *edges, uint32_t edge_count);
void class_decide(const void *state, const struct predict_features *f, struct predict_verdict *ret);
double class_remaining(const void *state, const struct predict_features *f, uint32_t generated);
void class_observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored);
void class_merge(void *state, const void *other);

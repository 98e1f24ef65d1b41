/* classes.h - which class of lengths will the output be in? For policies that classify.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 *
 * One linear score a class over hashed words (predict_text.h), softmax, cross entropy, AdaGrad.
 * Each class keeps a histogram of the lengths that fell into it; the estimate mixes them by
 * probability. (The papers take the likeliest class; all requests of a class then tie, and ties
 * order nothing.) The policies differ in where classes end: fixed edges, or quantiles followed on
 * line.
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
    uint32_t unused;          /* no byte of a state is undefined */
    double edge[CLASSES_MAX]; /* class c ends below edge[c]; the last class has no end */
    struct length_offset p90;
    struct length_hist all, hist[CLASSES_MAX];
};

/* What is alike in all policies of classes; `init` sets the edges. */
#define CLASS_ROW                                                                  \
    .needs = PREDICT_TEXT, .state_size = sizeof(struct class_model), .init = init, \
    .decide = class_decide, .merge = class_merge, .remaining = class_remaining

void class_init(struct class_model *m, const double *edges, uint32_t edge_count);
void class_decide(const void *state, const struct predict_features *f, struct predict_verdict *ret);
double class_remaining(const void *state, const struct predict_features *f, uint32_t generated);
void class_observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored);
void class_merge(void *state, const void *other);

/* text.h - a request as a list of hashed features, for the rows that learn weights.
 *
 * Layer:   policies (base/core)
 * Threads: pure; no allocation; the last TEXT_BYTES_MAX bytes of text are read, by text_ask and
 *          text_last_sentence as much as it takes to find where the line or sentence begins
 *
 * What is asked stands at the end, so the last sentence gives words, pairs of neighbours and its
 * first words; what stands before gives single words only. A number is replaced by the quarter
 * octave it lies in: "count to 37" and "count to 38" are one, "count to 99" is another. Behind the
 * text come the lengths, the tenant, the prefix, the task, the previous output. Every feature
 * counts 1 / sqrt(number of features), so long prompts do not shout.
 */
#pragma once
#include "policies/predict/predict.h"

#define TEXT_BYTES_MAX 512
#define TEXT_FEATURES_MAX 128

struct text_features {
    uint32_t count;
    uint32_t at[TEXT_FEATURES_MAX]; /* 32-bit hashes; a row masks them to its size */
};

void text_features(const struct predict_features *f, struct text_features *ret);

/* The first TEXT_ASK_WORDS words of the last line: in lower case, one '0' for every digit, single
 * blanks. So "Count to 12" and "Count to 37" are one question, "Count to 3700" is another. 0: none. */
#define TEXT_ASK_WORDS 3
uint64_t text_ask(struct str text);

/* The largest number in the last sentence; -1: none. */
double text_number(struct str text);
struct str text_last_sentence(struct str text);

/* The first `words` words of the last sentence, hashed; 0: none. */
uint32_t text_head(struct str text, uint32_t words);

/* Weights with their AdaGrad sums (Duchi 2011): w[slot * stride] is the weight, the next float the
 * sum of squared gradients. `mask` is slots - 1. */
double linear_dot(const float *w, uint32_t stride, uint32_t mask, const struct text_features *t);
void linear_step(float *w, uint32_t stride, uint32_t mask, const struct text_features *t,
                 double gradient, double rate);

/* Weights of two models, weighted by what each has seen. `count` pairs of floats. */
void linear_merge(float *w, const float *other, uint32_t count);

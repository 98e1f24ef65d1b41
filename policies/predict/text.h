/* text.h - turns a request into a list of hashed features, for policies that learn weights.
 *
 * Layer:   policies (base/core)
 * Threads: pure; no allocation; the last TEXT_BYTES_MAX bytes of text are read, by text_ask and
 *          text_last_sentence as much as it takes to find where the line or sentence begins
 *
 * The question stands at the end, so the last sentence gives words, pairs of neighbours and its
 * first words; the text before it gives single words only. A number is replaced by the quarter
 * octave it lies in: "count to 37" and "count to 38" are one, "count to 99" is another. Further
 * features are the lengths, the tenant, the prefix, the task and the previous output. Every feature
 * counts 1 / sqrt(number of features), so that long prompts do not weigh more.
 */
#pragma once
#include "policies/predict/predict.h"

#define TEXT_BYTES_MAX 512
#define TEXT_FEATURES_MAX 128

struct text_features {
    uint32_t count;
    uint32_t at[TEXT_FEATURES_MAX]; /* 32-bit hashes; a policy masks them to its size */
};

void text_features(const struct predict_features *f, struct text_features *ret);

/* Returns the hash of the first TEXT_ASK_WORDS words of the last line, in lower case, with '0' for
 * every digit and single blanks; 0: none. So "Count to 12" and "Count to 37" are one question,
 * "Count to 3700" is another. */
#define TEXT_ASK_WORDS 3
uint64_t text_ask(struct str text);

/* Returns the largest number in the last sentence; -1: none. */
double text_number(struct str text);
struct str text_last_sentence(struct str text);

/* Returns the hash of the first `words` words of the last sentence; 0: none. */
uint32_t text_head(struct str text, uint32_t words);

/* Linear models: w[slot * stride] is a weight and the next float its AdaGrad sum of squared
 * gradients (Duchi 2011). `mask` is slots - 1. */
double linear_dot(const float *w, uint32_t stride, uint32_t mask, const struct text_features *t);
void linear_step(float *w, uint32_t stride, uint32_t mask, const struct text_features *t,
                 double gradient, double rate);

/* Averages two models, weighted by their AdaGrad sums. `count` pairs of floats. */
void linear_merge(float *w, const float *other, uint32_t count);

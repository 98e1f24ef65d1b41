/* ngram.h - the state of the n-gram model, for policies that build on it.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 */
#pragma once
#include "policies/predict/lengths.h"

#define NGRAM_SLOTS 32768u
enum ngram_head { NGRAM_MEAN, NGRAM_P50, NGRAM_P90, NGRAM_HEADS };
#define NGRAM_STRIDE (2 * NGRAM_HEADS)

struct ngram {
    float weight[NGRAM_SLOTS * NGRAM_STRIDE]; /* by slot and head, each with its AdaGrad sum */
    double finished;
    double log_mean;        /* of the first lengths: the intercept of the heads */
    double tokens, guessed; /* decayed sums of lengths and of exp(guess) */
    struct length_offset p90;
};

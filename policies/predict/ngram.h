/* ngram.h - the n-gram model's state, for policies that are built on it.
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
    float weight[NGRAM_SLOTS * NGRAM_STRIDE]; /* a slot's heads, each with its sum */
    double finished;
    double log_mean;        /* of the first lengths: where the heads start from */
    double tokens, guessed; /* decayed sums of lengths and of exp(guess) */
    struct length_offset p90;
};

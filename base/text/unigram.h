/* unigram.h - splits a word into the tokens with the greatest sum of scores.
 *
 * Layer:  base/text, private to the tokenizer
 * Paper:  Kudo, "Subword Regularization" (2018), section 3.2: the most probable segmentation by Viterbi
 * Memory: scratch grows to the longest word so far; { 0 } is empty
 */
#pragma once
#include "base/text/tokenizer.h"

struct unigram_node;

struct unigram_scratch {
    struct unigram_node *nodes; /* one for each byte, and one */
    size_t cap;
};

void unigram_scratch_fini(struct unigram_scratch *s);

/* Appends the ids of `word` (1 to TOKENIZER_WORD_BYTES_MAX bytes). O(n * longest token). */
int unigram_encode(const struct vocab *v, struct unigram_scratch *scratch, struct str word,
                   struct ids *out);

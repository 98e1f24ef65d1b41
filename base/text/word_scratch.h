/* word_scratch.h - the memory in which words are turned into ids, of whatever kind the vocabulary is.
 *
 * Layer: base/text, private to the tokenizer
 */
#pragma once
#include "base/text/bpe.h"
#include "base/text/unigram.h"

/* { 0 } is empty. */
struct word_scratch {
    struct bpe_scratch bpe;
    struct unigram_scratch unigram;
};

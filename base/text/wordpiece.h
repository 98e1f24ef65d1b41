/* wordpiece.h - splits a word into the longest pieces from its start.
 *
 * Layer: base/text, private to the tokenizer
 * Paper: Schuster and Nakajima, "Japanese and Korean Voice Search" (2012); the greedy form of BERT
 */
#pragma once
#include "base/text/tokenizer.h"

/* Appends the ids of `word` (1 to TOKENIZER_WORD_BYTES_MAX bytes); a word that cannot be written, or with
 * more characters than the vocabulary takes, is the unknown token. O(n * longest token). */
int wordpiece_encode(const struct vocab *v, struct str word, struct ids *out);

/* Appends the id of the word that is one token, or the unknown token. */
int wordlevel_encode(const struct vocab *v, struct str word, struct ids *out);

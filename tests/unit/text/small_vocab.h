/* small_vocab.h - builds a vocabulary for tests: all bytes, some merges, markers.
 *
 *     0 <|begin|>  1 <|end|>  2 <|system|>  3 <|user|>  4 <|assistant|>   control
 *     5 <think>                                                           user-defined
 *     6..261 the bytes 00..FF, then one token for each merge
 */
#pragma once
#include "base/text/vocab.h"

enum {
    SMALL_BEGIN,
    SMALL_END,
    SMALL_SYSTEM,
    SMALL_USER,
    SMALL_ASSISTANT,
    SMALL_THINK,
    SMALL_BYTE0
};

/* Builds the vocabulary, with `pre` as in vocab_parts. Aborts the test when that fails. */
struct vocab *small_vocab(const char *pre);

/* Returns the arrays it is built from, for tests that break one of them. They live in static
 * memory, for one user at a time. */
struct vocab_parts small_vocab_parts(const char *pre);

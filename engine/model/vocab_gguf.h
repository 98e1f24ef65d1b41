/* vocab_gguf.h - reads the vocabulary of a GGUF file and hands it to base/text.
 *
 * Layer: engine/model (base/text)
 */
#pragma once
#include "base/text/vocab.h"
#include "engine/model/gguf.h"

/* Reads the keys tokenizer.ggml.*; *ret is NULL for tokenizer.ggml.model "no_vocab". The counts
 * and contents are checked here as far as the file goes, and by vocab_build for the rest. */
int vocab_from_gguf(const struct gguf *g, struct vocab **ret, struct err *err);

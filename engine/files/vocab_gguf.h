/* vocab_gguf.h - reads the vocabulary of a GGUF file and hands it to base/text, and writes one.
 *
 * Layer: engine/files (base/text)
 */
#pragma once
#include "base/text/chat_template.h"
#include "base/text/vocab.h"
#include "engine/files/gguf_write.h"

/* Reads the keys tokenizer.ggml.*; *ret is NULL for tokenizer.ggml.model "no_vocab". The counts
 * and contents are checked here as far as the file goes, and by vocab_build for the rest. */
int vocab_from_gguf(const struct gguf *g, struct vocab **ret, struct err *err);

/* Puts a vocabulary, and a template unless it is NULL, as tokenizer.* of a file. -ENOTSUP with a sentence for what
 * these keys cannot say: kinds other than byte-level BPE, word rules without a name, normalizers, tokens that take
 * white space with them, frames beside begin and end tokens, and more ends than eos, eot and eom. */
int vocab_to_gguf(const struct vocab *v, const struct chat_template *t, struct gguf_writer *w,
                  struct err *err);

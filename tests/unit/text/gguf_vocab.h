/* gguf_vocab.h - reads a tokenizer from a GGUF file, and no more of it.
 *
 * The engine's loader belongs to a layer above; a reader of its own also checks that loader's reading.
 */
#pragma once
#include "base/text/vocab.h"

/* Returns NULL, with a message on stderr, when the file cannot be read or built. */
struct vocab *gguf_vocab_load(const char *path);

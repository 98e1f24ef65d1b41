/* gguf_vocab.h - just enough of GGUF to read a tokenizer in a test.
 *
 * The engine's loader is another layer's; a reader of its own also checks that one's reading.
 */
#pragma once
#include "base/text/vocab.h"

/* NULL and a message on stderr when the file cannot be read or built. */
struct vocab *gguf_vocab_load(const char *path);

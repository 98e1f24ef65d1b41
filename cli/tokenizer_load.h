/* tokenizer_load.h - reads the tokenizer of a model: from a GGUF file, or from a file of `muster tokenizer`.
 *
 * Layer:   cli (engine/model, agent)
 * Threads: any
 */
#pragma once
#include "agent/tokenizer.h"

/* Is a tokenizer_load_fn. -EINVAL, -ENOENT ... with a sentence that names the file. */
int tokenizer_load(const char *path, struct tokenizer_source *ret, struct err *err);

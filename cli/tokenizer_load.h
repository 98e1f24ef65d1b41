/* tokenizer_load.h - reads the tokenizer of a model: from a GGUF file, a folder of a Hugging Face repository, or a
 * file of `muster tokenizer`.
 *
 * Layer:   cli (engine/model, agent)
 * Threads: any
 */
#pragma once
#include "agent/tokenizer.h"

/* Is a tokenizer_load_fn. -EINVAL, -ENOENT ... with a sentence that names the file. It reads the weights, too,
 * for their digest. */
int tokenizer_load(const char *path, struct tokenizer_source *ret, struct err *err);

/* Reads the tokenizer alone (*ret_template is NULL if there is none); both are the caller's. `path` may also be
 * a tokenizer.json. */
int tokenizer_read(const char *path, struct vocab **ret, struct chat_template **ret_template,
                   struct err *err);

/* tokenizer.h - holds the tokenizer of an engine that exports none, for routers to fetch.
 *
 * Layer: agent (base/text, base/core)
 * Rules: a router tokenises for the engine with it, so it must be the model's own: prompts are still sent
 *        as text, and a wrong one costs only predictions
 * Files: a bundle of ours (`muster tokenizer` writes it), which has the digest of the weights beside the
 *        tokenizer; or a GGUF file, which the program reads through tokenizer_load_fn, as agents do not
 *        know model files
 */
#pragma once
#include "base/text/bundle.h"

#define TOKENIZER_MAGIC "muster-tokenizer 1\n" /* then "weights HEX\n", then the bundle */

struct tokenizer_source {
    struct buf bundle; /* encoded */
    char weights[SHA256_HEX + 1];
    char digest[SHA256_HEX + 1]; /* of both: what endpoints carry */
};

void tokenizer_source_fini(struct tokenizer_source *t);

/* Reads a file of either kind; blocks, and takes seconds for a large model. */
typedef int tokenizer_load_fn(const char *path, struct tokenizer_source *ret, struct err *err);

/* Completes a source whose weights and bundle are set: checks the bundle and makes the digest. */
int tokenizer_source_seal(struct tokenizer_source *t, struct err *err);

/* Parses and writes the first form. */
int tokenizer_source_parse(struct str bytes, struct tokenizer_source *ret, struct err *err);
int tokenizer_source_print(const struct tokenizer_source *t, struct buf *out);

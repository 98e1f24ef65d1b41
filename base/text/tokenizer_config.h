/* tokenizer_config.h - reads what the files beside a tokenizer.json say of its tokens: tokenizer_config.json of special
 * tokens and the chat template, config.json and generation_config.json of ids.
 *
 * Layer:   base/text (base/core)
 * Threads: pure
 * Format:  tokenizer_config.json of `transformers`; members that are of Python's classes are passed over
 * Trust:   none. Texts are compared with the vocabulary by the caller
 */
#pragma once

#include "base/core/arena.h"
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/text/vocab.h"

#define TOKENIZER_CONFIG_BYTES_MAX ((size_t)4 << 20)

/* Says if the file wants a token at an edge of the text. */
enum config_edge { EDGE_UNSAID, EDGE_ADDED, EDGE_BARE };

struct tokenizer_config {
    struct str bos, eos, pad; /* texts, of the arena; empty: not named */
    enum config_edge add_bos, add_eos;
    struct str chat_template; /* raw: a text, or a list of named ones; borrowed from the file */
};

/* Reads the text; an empty one says nothing. -EINVAL: malformed, -ENOTSUP: a member of a token that is not known,
 * -E2BIG: a bound, -ENOMEM; the sentence names the key. */
int tokenizer_config_read(struct str text, struct arena *arena, struct tokenizer_config *ret,
                          struct err *err);

/* Reads the chat template, or of several the one named "default"; empty: there is none. Errors as above. */
int tokenizer_config_template(const struct tokenizer_config *c, struct arena *arena,
                              struct str *ret, struct err *err);

/* The tokens that the model's own files name.
 *
 * Format:  config.json and generation_config.json of `transformers`: vocab_size, bos_token_id,
 *          eos_token_id (a number, or a list of them)
 * Trust:   none. Other keys are passed over; ids are compared with the vocabulary by the caller */

#define CONFIG_JSON_BYTES_MAX ((size_t)4 << 20)

struct config_json {
    uint32_t vocab_size; /* rows of the embedding; 0: the file does not say */
    uint32_t bos;        /* VOCAB_NONE: none */
    uint32_t eos[VOCAB_ENDS_MAX], eos_count;
};

/* Reads the text; an empty one says nothing. -EINVAL: malformed, or a key that is no id; -E2BIG: a bound.
 * The sentence names the key. On failure nothing is written. */
int config_json_read(struct str text, struct config_json *ret, struct err *err);

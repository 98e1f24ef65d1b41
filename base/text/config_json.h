/* config_json.h - reads what the model's files of a Hugging Face repository say of its tokens.
 *
 * Layer:   base/text (base/core)
 * Threads: pure
 * Format:  config.json and generation_config.json of `transformers`: vocab_size, bos_token_id,
 *          eos_token_id (a number, or a list of them)
 * Trust:   none. Other keys are passed over; ids are compared with the vocabulary by the caller
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/text/vocab.h"

#define CONFIG_JSON_BYTES_MAX ((size_t)4 << 20)

struct config_json {
    uint32_t vocab_size; /* rows of the embedding; 0: the file does not say */
    uint32_t bos;        /* VOCAB_NONE: none */
    uint32_t eos[VOCAB_ENDS_MAX], eos_count;
};

/* Reads the text; an empty one says nothing. -EINVAL: malformed, or a key that is no id; -E2BIG: a bound.
 * The sentence names the key. On failure nothing is written. */
int config_json_read(struct str text, struct config_json *ret, struct err *err);

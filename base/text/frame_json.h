/* frame_json.h - converts post_processor of a tokenizer.json to the tokens before and behind a text.
 *
 * Layer:  base/text, private to the reader of tokenizer.json
 * Rules:  what would change the ids of one text and is not supported is refused by name (-ENOTSUP); offsets, and what
 *         is said of pairs of texts, are passed over
 */
#pragma once
#include "base/text/json_fields.h"
#include "base/text/vocab.h"

/* Reads a post-processor into `before` and `after` of *parts; an empty `raw` is one that the file leaves out. -EINVAL,
 * -ENOTSUP, -E2BIG: more than VOCAB_FRAME_MAX tokens, -ENOMEM; err names the path. */
int frame_json_read(const struct json_place *at, struct str raw, struct vocab_parts *parts,
                    struct err *err);

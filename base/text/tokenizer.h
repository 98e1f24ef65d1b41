/* tokenizer.h - converts text to token ids.
 *
 * Layer:    base/text (base/core)
 * Threads:  stateless over an immutable vocab: any thread
 * Memory:   scratch for the longest word only: at most 32 bytes for each byte of it, so 2 MiB; with a
 *           normalizer 8 bytes for each byte of the text
 * Rules:    (1) every text has ids, invalid UTF-8 included. With byte-level BPE, and with byte fallback
 *               unless the normalizer changes it, decoding them gives its bytes; only a byte for which
 *               the vocabulary has no token becomes U+FFFD. Other kinds read bad UTF-8 as U+FFFD
 *           (2) with parse_special false no text gives an id of type TOKEN_CONTROL: a user cannot
 *               write a control token
 *           (3) user-defined tokens are plain text and are always recognised
 *           (4) no begin or end token is added: tokenizer_encode_prompt does that
 */
#pragma once
#include "base/text/vocab.h"

#include <stddef.h>

/* Byte ranges of a text: they list the parts of a prompt that came from a user.
 *
 * Rules: ascending, disjoint, none empty; a range that touches the last one is joined to it
 */

#define TEXT_SPANS_MAX ((size_t)1 << 20)

struct text_span {
    size_t start, len;
};

/* { 0 } is empty. */
struct text_spans {
    struct text_span *data;
    size_t count, cap;
};

void text_spans_fini(struct text_spans *s);

/* Adds a span; `start` is at or behind the end of the last one. -E2BIG at TEXT_SPANS_MAX, -ENOMEM. */
int text_spans_add(struct text_spans *s, size_t start, size_t len);

#define TOKENIZER_TEXT_BYTES_MAX ((size_t)64 << 20)
#define TOKENIZER_WORD_BYTES_MAX ((size_t)64 << 10) /* longer words are cut, between characters */

/* A growing array of ids up to a bound. { 0 } is empty and bounded by IDS_MAX. */
#define IDS_MAX ((size_t)16 << 20)

struct ids {
    uint32_t *data;
    size_t count, cap;
    size_t max; /* 0: IDS_MAX */
};

void ids_fini(struct ids *ids);
void ids_clear(struct ids *ids); /* empties, keeps the memory */
int ids_push_slow(struct ids *ids, uint32_t id);

/* Appends an id. -E2BIG at the bound, -ENOMEM. Inline, because it is called once for each token. */
static inline int ids_push(struct ids *ids, uint32_t id)
{
    const size_t max = ids->max ? ids->max : IDS_MAX;
    if (ids->count >= ids->cap || ids->count >= max) return ids_push_slow(ids, id);
    ids->data[ids->count++] = id;
    return 0;
}

/* Appends the ids of `text`. With parse_special, control tokens written in the text become their
 * ids (for trusted text only). On failure (-E2BIG: more than out->max ids or a text beyond
 * TOKENIZER_TEXT_BYTES_MAX; -ENOMEM) `out` holds a prefix. */
int tokenizer_encode(const struct vocab *v, struct str text, bool parse_special, struct ids *out,
                     struct err *err);

/* Does the same for a rendered chat template: a control token is recognised only if no byte of it lies
 * in `content` (the ranges that came from messages). If the content names no control token, the ids
 * are those of parse_special = true: words still join across the borders of spans. */
int tokenizer_encode_spans(const struct vocab *v, struct str text, const struct text_spans *content,
                           struct ids *out, struct err *err);

/* Encodes a raw prompt (of a completion): adds begin and end tokens as the vocab asks, and recognises no
 * control tokens in the text. */
int tokenizer_encode_prompt(const struct vocab *v, struct str text, struct ids *out,
                            struct err *err);

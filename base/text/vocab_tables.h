/* vocab_tables.h - the inside of a vocab, for the files that encode with it.
 *
 * Layer: base/text, private: included by vocab.c, tokenizer.c, bundle.c and their tests only
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/map.h"
#include "base/text/pretokenizer.h"
#include "base/text/vocab.h"

struct vocab_token {
    const char *text, *bytes;
    uint32_t text_len, bytes_len; /* bytes may be text itself */
    uint8_t type;
};

/* One way of building words from tokens. `finish` checks what only this kind asks for and makes
 * its tables. */
struct vocab_kind {
    const char *name; /* tokenizer.ggml.model */
    const char *about;
    int (*finish)(struct vocab *v, struct err *err);
};

/* The two tokens that are joined and the token they become; its place in the list is its rank. */
struct vocab_merge {
    uint32_t left, right, joined;
};

struct vocab {
    struct arena arena; /* all below that is not a map */
    const struct vocab_kind *kind;
    const struct pretokenizer *pre;
    struct vocab_token *tokens;
    uint32_t token_count;
    float *scores; /* NULL when the file had none */
    struct vocab_merge *merges;
    uint32_t merge_count;
    struct vocab_special special;

    uint32_t *by_text; /* open addressing: token ids, VOCAB_NONE where empty */
    uint32_t by_text_mask;
    struct map pair_rank;     /* {left id, right id} -> uint32_t rank, pairs that may be joined */
    uint32_t byte_token[256]; /* VOCAB_NONE where the vocabulary has no token for the byte */
    uint32_t word_bytes_max;  /* of the longest normal token */
    uint32_t token_bytes_max; /* of the longest of all, at least 1 */

    /* Tokens that are looked for as they stand in a text, sorted bytewise: an implicit trie. */
    uint32_t *markers;
    uint32_t marker_count;
    bool marker_starts[256]; /* some marker begins with that byte */
};

/* The canonical contents, as the bundle carries them: equal for equal vocabularies. */
int vocab_write(const struct vocab *v, struct buf *out);

static inline struct str vocab_token_text(const struct vocab_token *t)
{
    return (struct str){ t->text, t->text_len };
}

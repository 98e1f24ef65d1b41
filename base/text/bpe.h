/* bpe.h - joins the bytes or characters of one word into tokens, best merge first.
 *
 * Layer:  base/text, private to the tokenizer
 * Memory: scratch grows to the longest word so far; { 0 } is empty
 */
#pragma once
#include "base/text/tokenizer.h"

struct bpe_symbol {
    uint32_t id;   /* VOCAB_NONE once joined into its left neighbour */
    uint32_t rank; /* of the merge with the right neighbour; BPE_NO_RANK: none */
    uint32_t prev, next;
};

#define BPE_NO_RANK UINT32_MAX

struct bpe_scratch {
    struct str word; /* the one at work, and its first symbol */
    uint32_t first;
    struct bpe_symbol *symbols;
    uint64_t *heap; /* rank << 32 | position of the left symbol */
    size_t heap_len;
    size_t cap; /* symbols; the heap has room for twice as many */
};

void bpe_scratch_fini(struct bpe_scratch *s);

/* Appends the ids of `word` (1 to TOKENIZER_WORD_BYTES_MAX bytes). O(n log n). */
int bpe_encode(const struct vocab *v, struct bpe_scratch *scratch, struct str word,
               struct ids *out);

/* bpe.c - merges byte pairs with a heap.
 *
 * The rule: of all neighbouring pairs join the one with the lowest rank, of equal ranks the
 * leftmost, until no pair has a rank. Scanning for the minimum after each join is quadratic (a
 * megabyte of one letter took minutes in servers that did so); a heap of (rank, position) makes
 * it n log n. Entries are never removed: an entry is stale, and skipped, when the symbol at its
 * position is gone or has another rank by now. A stale entry that is right again may be used. Each
 * join adds at most two entries and takes one, so room for 2 n entries suffices.
 */
#include "base/text/bpe.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/vocab_tables.h"

#include <stdlib.h>

#define NOWHERE UINT32_MAX

void bpe_scratch_fini(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    *s = (struct bpe_scratch){ 0 };
}

static int reserve(struct bpe_scratch *s, size_t count)
{
    if (count <= s->cap) return 0;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < count)
        cap *= 2;
    struct bpe_symbol *symbols = realloc(s->symbols, cap * sizeof *symbols);
    if (symbols) s->symbols = symbols;
    uint64_t *heap = realloc(s->heap, 2 * cap * sizeof *heap);
    if (heap) s->heap = heap;
    if (!symbols || !heap) return -ENOMEM;
    s->cap = cap;
    return 0;
}

static void push(struct bpe_scratch *s, uint64_t key)
{
    size_t at = s->heap_len++;
    uint64_t moved = 1;
    for (; at > 0 && s->heap[(at - 1) / 2] > key; moved++) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = key;
    work_add(moved);
}

static uint64_t pop(struct bpe_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->heap_len];
    size_t at = 0;
    uint64_t moved = 1;
    for (;; moved++) {
        size_t child = 2 * at + 1;
        if (child >= s->heap_len) break;
        if (child + 1 < s->heap_len && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    work_add(moved);
    return top;
}

/* Sets the rank of the pair that starts at `at` and queues it when it has one. */
static void rate(const struct vocab *v, struct bpe_scratch *s, uint32_t at)
{
    struct bpe_symbol *left = &s->symbols[at];
    left->rank = BPE_NO_RANK;
    if (left->next == NOWHERE) return;
    left->rank = vocab_pair_rank(v, left->id, s->symbols[left->next].id);
    if (left->rank != BPE_NO_RANK) push(s, (uint64_t)left->rank << 32 | at);
}

static void join(const struct vocab *v, struct bpe_scratch *s, uint32_t at)
{
    struct bpe_symbol *left = &s->symbols[at], *right = &s->symbols[left->next];
    left->id = v->merges[left->rank].joined;
    left->next = right->next;
    right->id = VOCAB_NONE;
    if (left->next != NOWHERE) s->symbols[left->next].prev = at;
    rate(v, s, at);
    if (left->prev != NOWHERE) rate(v, s, left->prev);
}

/* Makes one symbol for each byte; a byte without a token becomes the three symbols of U+FFFD. */
static uint32_t first_symbols(const struct vocab *v, struct bpe_scratch *s, struct str word)
{
    static const uint8_t replacement[] = { 0xEF, 0xBF, 0xBD };
    uint32_t count = 0;
    for (size_t i = 0; i < word.len; i++) {
        uint32_t id = v->byte_token[(unsigned char)word.data[i]];
        size_t copies = id == VOCAB_NONE ? sizeof replacement : 1;
        for (size_t k = 0; k < copies; k++) {
            uint32_t part = copies == 1 ? id : v->byte_token[replacement[k]];
            s->symbols[count] = (struct bpe_symbol){ .id = part, .prev = count - 1 };
            s->symbols[count].next = count + 1;
            count++;
        }
    }
    s->symbols[0].prev = NOWHERE;
    s->symbols[count - 1].next = NOWHERE;
    return count;
}

int bpe_encode(const struct vocab *v, struct bpe_scratch *s, struct str word, struct ids *out)
{
    must(word.len > 0 && word.len <= TOKENIZER_WORD_BYTES_MAX);
    size_t missing = 0;
    for (size_t i = 0; i < word.len; i++)
        missing += v->byte_token[(unsigned char)word.data[i]] == VOCAB_NONE;
    work_add(word.len);
    int rc = reserve(s, word.len + 2 * missing);
    if (rc < 0) return rc;
    uint32_t count = first_symbols(v, s, word);
    s->heap_len = 0;
    for (uint32_t i = 0; i < count; i++)
        rate(v, s, i);
    while (s->heap_len > 0) {
        uint64_t top = pop(s);
        uint32_t at = (uint32_t)top;
        const struct bpe_symbol *symbol = &s->symbols[at];
        if (symbol->id != VOCAB_NONE && symbol->rank == (uint32_t)(top >> 32)) join(v, s, at);
    }
    for (uint32_t at = 0; at != NOWHERE && rc == 0; at = s->symbols[at].next)
        rc = ids_push(out, s->symbols[at].id);
    return rc;
}

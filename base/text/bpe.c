/* bpe.c - merges byte pairs with a heap.
 *
 * The rule: of all neighbouring pairs join the one with the lowest rank, of equal ranks the
 * leftmost, until no pair has a rank. Scanning for the minimum after each join is quadratic (a
 * megabyte of one letter took minutes in servers that did so); a heap of (rank, position) makes
 * it n log n. Entries are never removed: an entry is stale, and skipped, when the symbol at its
 * position is gone or has another rank by now. A stale entry that is right again may be used. Each
 * join adds at most two entries and takes one, so room for 2 n entries suffices.
 *
 * Three kinds differ only in where they begin and in what a pair's rank is. gpt2 begins with bytes and bpe
 * with characters, and both look the pair up in the list of merges; llama begins with characters, joins
 * any two whose text together is a token, and the rank is the place of that token's score. Symbols of
 * characters lie at their byte's place in the word, so that their text is known without being kept.
 */
#include "base/text/bpe.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/unicode.h"
#include "base/text/vocab_tables.h"

#include <stdlib.h>

#define NOWHERE UINT32_MAX
#define UNKNOWN (UINT32_MAX - 1) /* id of a symbol without a token */

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

/* Returns the token that is the text of two neighbours together, or VOCAB_NONE. */
static uint32_t joined_text(const struct vocab *v, const struct bpe_scratch *s, uint32_t at)
{
    const uint32_t right = s->symbols[at].next, behind = s->symbols[right].next;
    const size_t len = (behind == NOWHERE ? s->word.len : behind) - at;
    if (len > v->token_bytes_max) return VOCAB_NONE;
    work_add(1 + len / 8);
    uint32_t id = vocab_find(v, str_of(s->word.data + at, len));
    return id != VOCAB_NONE && vocab_is_word_part(v, id) ? id : VOCAB_NONE;
}

static uint32_t rank_of(const struct vocab *v, const struct bpe_scratch *s, uint32_t at)
{
    const uint32_t left = s->symbols[at].id, right = s->symbols[s->symbols[at].next].id;
    if (v->score_rank) {
        uint32_t id = joined_text(v, s, at);
        return id == VOCAB_NONE ? BPE_NO_RANK : v->score_rank[id];
    }
    if (left == UNKNOWN || right == UNKNOWN) return BPE_NO_RANK;
    return vocab_pair_rank(v, left, right);
}

/* Sets the rank of the pair that starts at `at` and queues it when it has one. */
static void rate(const struct vocab *v, struct bpe_scratch *s, uint32_t at)
{
    struct bpe_symbol *left = &s->symbols[at];
    left->rank = BPE_NO_RANK;
    if (left->next == NOWHERE) return;
    left->rank = rank_of(v, s, at);
    if (left->rank != BPE_NO_RANK) push(s, (uint64_t)left->rank << 32 | at);
}

static void join(const struct vocab *v, struct bpe_scratch *s, uint32_t at)
{
    struct bpe_symbol *left = &s->symbols[at], *right = &s->symbols[left->next];
    left->id = v->score_rank ? joined_text(v, s, at) : v->merges[left->rank].joined;
    left->next = right->next;
    right->id = VOCAB_NONE;
    if (left->next != NOWHERE) s->symbols[left->next].prev = at;
    rate(v, s, at);
    if (left->prev != NOWHERE) rate(v, s, left->prev);
}

/* Makes one symbol for each byte; a byte without a token becomes the three symbols of U+FFFD. */
static void first_symbols(const struct vocab *v, struct bpe_scratch *s, struct str word)
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
    s->first = 0;
    s->symbols[0].prev = NOWHERE;
    s->symbols[count - 1].next = NOWHERE;
}

static bool bytes_known(const struct vocab *v, struct str bytes)
{
    if (!(v->flags & VOCAB_BYTE_FALLBACK)) return false;
    for (size_t i = 0; i < bytes.len; i++)
        if (v->byte_token[(unsigned char)bytes.data[i]] == VOCAB_NONE) return false;
    return true;
}

/* Appends a symbol for [at, at + len) behind the one at *last. */
static void append(struct bpe_scratch *s, uint32_t at, uint32_t id, uint32_t *last)
{
    s->symbols[at] = (struct bpe_symbol){ .id = id, .prev = *last, .next = NOWHERE };
    *(*last == NOWHERE ? &s->first : &s->symbols[*last].next) = at;
    *last = at;
}

/* Makes one symbol for each character, at its byte's place. In a list of merges the bytes of an unknown
 * character are symbols by themselves, and without a token for the unknown it is left out; by scores it
 * stays one symbol, as its text may be a part of a token's. */
static void char_symbols(const struct vocab *v, struct bpe_scratch *s)
{
    const struct str word = s->word;
    uint32_t last = NOWHERE;
    for (uint32_t at = 0; at < word.len; at++) /* places inside a character hold no symbol */
        s->symbols[at].id = VOCAB_NONE;
    for (uint32_t at = 0, len; at < word.len; at += len) {
        uint32_t cp;
        len = (uint32_t)unicode_next(str_of(word.data + at, word.len - at), &cp);
        const struct str text = { word.data + at, len };
        uint32_t id = vocab_find(v, text);
        if (id != VOCAB_NONE && vocab_is_word_part(v, id)) {
            append(s, at, id, &last);
        } else if (!v->score_rank && bytes_known(v, text)) {
            for (uint32_t i = 0; i < len; i++)
                append(s, at + i, v->byte_token[(unsigned char)text.data[i]], &last);
        } else {
            bool fused = v->flags & VOCAB_FUSE_UNKNOWN && last != NOWHERE && !v->score_rank &&
                         s->symbols[last].id == UNKNOWN;
            bool written = v->score_rank || v->special.unk != VOCAB_NONE;
            if (written && !fused) append(s, at, UNKNOWN, &last);
        }
    }
}

/* Appends the ids of an unknown symbol: its bytes' tokens, else the unknown token if there is one. */
static int put_unknown(const struct vocab *v, struct str text, struct ids *out)
{
    int rc = 0;
    if (!bytes_known(v, text))
        return v->special.unk == VOCAB_NONE ? 0 : ids_push(out, v->special.unk);
    for (size_t i = 0; i < text.len && rc == 0; i++)
        rc = ids_push(out, v->byte_token[(unsigned char)text.data[i]]);
    return rc;
}

static int put_symbols(const struct vocab *v, const struct bpe_scratch *s, struct ids *out)
{
    int rc = 0;
    for (uint32_t at = s->first, next; at != NOWHERE && rc == 0; at = next) {
        next = s->symbols[at].next;
        if (s->symbols[at].id != UNKNOWN) {
            rc = ids_push(out, s->symbols[at].id);
            continue;
        }
        size_t end = next == NOWHERE ? s->word.len : next;
        rc = put_unknown(v, str_of(s->word.data + at, end - at), out);
    }
    return rc;
}

static int begin(const struct vocab *v, struct bpe_scratch *s, struct str word)
{
    size_t missing = 0;
    s->word = word;
    s->heap_len = 0;
    s->first = NOWHERE;
    work_add(word.len);
    for (size_t i = 0; v->kind->alphabet && i < word.len; i++)
        missing += v->byte_token[(unsigned char)word.data[i]] == VOCAB_NONE;
    int rc = reserve(s, word.len + 2 * missing);
    if (rc < 0) return rc;
    if (v->kind->alphabet)
        first_symbols(v, s, word);
    else
        char_symbols(v, s);
    return 0;
}

int bpe_encode(const struct vocab *v, struct bpe_scratch *s, struct str word, struct ids *out)
{
    must(word.len > 0 && word.len <= TOKENIZER_WORD_BYTES_MAX);
    if (v->flags & VOCAB_WHOLE_WORDS && !v->kind->alphabet) {
        uint32_t id = vocab_find(v, word);
        if (id != VOCAB_NONE && vocab_is_word_part(v, id)) return ids_push(out, id);
    }
    int rc = begin(v, s, word);
    if (rc < 0) return rc;
    for (uint32_t at = s->first; at != NOWHERE; at = s->symbols[at].next)
        rate(v, s, at);
    while (s->heap_len > 0) {
        uint64_t top = pop(s);
        uint32_t at = (uint32_t)top;
        const struct bpe_symbol *symbol = &s->symbols[at];
        if (symbol->id != VOCAB_NONE && symbol->rank == (uint32_t)(top >> 32)) join(v, s, at);
    }
    return put_symbols(v, s, out);
}

/* unigram.c - finds the best path through a word.
 *
 * best[i] is the greatest sum of scores of tokens that end at byte i. Each token that begins at i and ends
 * at k offers best[i] + score to best[k]; the first of equal sums stays. A character that is no token by
 * itself costs the lowest score of the vocabulary minus 10, so unknown characters are taken only where no
 * token fits. Sums are doubles, as in `tokenizers`.
 */
#include "base/text/unigram.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/unicode.h"
#include "base/text/vocab_tables.h"

#include <stdlib.h>

struct unigram_node {
    double best;
    uint32_t start; /* of the token that ends here; UINT32_MAX: none does */
    uint32_t id;    /* VOCAB_NONE: an unknown character */
    uint32_t next;  /* where the token of the best path that begins here ends */
};

void unigram_scratch_fini(struct unigram_scratch *s)
{
    free(s->nodes);
    *s = (struct unigram_scratch){ 0 };
}

static int reserve(struct unigram_scratch *s, size_t count)
{
    if (count <= s->cap) return 0;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < count)
        cap *= 2;
    struct unigram_node *nodes = realloc(s->nodes, cap * sizeof *nodes);
    if (!nodes) return -ENOMEM;
    s->nodes = nodes;
    s->cap = cap;
    return 0;
}

static void offer(struct unigram_node *node, uint32_t start, uint32_t id, double sum)
{
    if (node->start != UINT32_MAX && sum <= node->best) return;
    *node = (struct unigram_node){ sum, start, id, 0 };
}

/* Offers all tokens that begin at `at`, and the unknown character if none is exactly the character. */
static void leave(const struct vocab *v, struct unigram_node *nodes, struct str word, uint32_t at)
{
    uint32_t cp;
    const double sum = nodes[at].best;
    const size_t len = unicode_next(str_of(word.data + at, word.len - at), &cp);
    struct lexicon_walk w;
    bool known = false;
    bool on = lexicon_begin(&v->lexicon, &w, (unsigned char)word.data[at]);
    for (size_t end = at + 1; on; end++) {
        const struct lexicon_entry *e = lexicon_here(&v->lexicon, &w);
        if (e) offer(&nodes[end], at, e->id, sum + v->scores[e->id]);
        if (e && end - at == len) known = true;
        on = end < word.len && lexicon_step(&v->lexicon, &w, (unsigned char)word.data[end]);
    }
    work_add(w.depth);
    if (!known) offer(&nodes[at + len], at, VOCAB_NONE, sum + v->score_unknown);
}

/* Appends the byte tokens of an unknown piece, or the unknown token. */
static int put_unknown(const struct vocab *v, struct str piece, struct ids *out)
{
    int rc = 0;
    bool bytes = v->flags & VOCAB_BYTE_FALLBACK;
    for (size_t i = 0; i < piece.len && bytes; i++)
        bytes = v->byte_token[(unsigned char)piece.data[i]] != VOCAB_NONE;
    if (!bytes) return v->special.unk == VOCAB_NONE ? 0 : ids_push(out, v->special.unk);
    for (size_t i = 0; i < piece.len && rc == 0; i++)
        rc = ids_push(out, v->byte_token[(unsigned char)piece.data[i]]);
    return rc;
}

int unigram_encode(const struct vocab *v, struct unigram_scratch *s, struct str word,
                   struct ids *out)
{
    const uint32_t len = (uint32_t)word.len;
    int rc = reserve(s, word.len + 1);
    if (rc < 0) return rc;
    struct unigram_node *n = s->nodes;
    for (uint32_t i = 0; i <= len; i++)
        n[i].start = UINT32_MAX;
    n[0] = (struct unigram_node){ .best = 0 };
    for (uint32_t at = 0; at < len; at++)
        if (n[at].start != UINT32_MAX) leave(v, n, word, at);
    for (uint32_t at = len; at > 0; at = n[at].start) /* the best path, from its end */
        n[n[at].start].next = at;
    for (uint32_t at = 0, end; at < len && rc == 0; at = end) {
        end = n[at].next;
        if (n[end].id != VOCAB_NONE) {
            rc = ids_push(out, n[end].id);
            continue;
        }
        while (v->flags & VOCAB_FUSE_UNKNOWN && end < len && n[n[end].next].id == VOCAB_NONE)
            end = n[end].next;
        rc = put_unknown(v, str_of(word.data + at, end - at), out);
    }
    return rc;
}

/* tokenizer.c - finds markers first, then words, then merges.
 *
 *     text -> [markers]  -> stretches between them -> [pre-tokenizer] -> words -> [bpe] -> ids
 *
 * Markers are the tokens that are searched for literally: control tokens where the caller allows
 * them, user-defined ones always. They are sorted, which makes the array a trie: each further byte
 * of the text narrows a range by binary search, so a position costs the depth of the deepest marker
 * that begins there. The leftmost, then longest marker wins.
 */
#include "base/text/tokenizer.h"

#include "base/core/err.h"
#include "base/core/work.h"
#include "base/text/bpe.h"
#include "base/text/vocab_tables.h"

#include <stdlib.h>

void ids_fini(struct ids *ids)
{
    free(ids->data);
    *ids = (struct ids){ .max = ids->max };
}

void ids_clear(struct ids *ids)
{
    ids->count = 0;
}

int ids_push_slow(struct ids *ids, uint32_t id)
{
    if (ids->count >= (ids->max ? ids->max : IDS_MAX)) return -E2BIG;
    if (ids->count == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 64;
        uint32_t *data = realloc(ids->data, cap * sizeof *data);
        if (!data) return -ENOMEM;
        ids->data = data;
        ids->cap = cap;
    }
    ids->data[ids->count++] = id;
    return 0;
}

#define BYTES_PER_ID 3 /* a little less than in English text */
#define PENDING 8      /* words with a prefetch under way */

struct pending {
    struct str word;
    struct vocab_key key;
};

struct encoder {
    const struct vocab *v;
    struct pending pending[PENDING];
    uint32_t first, last;
    struct ids *out;
    struct bpe_scratch scratch;
    bool control; /* control tokens are recognised outside of content */
    const struct text_span *content;
    size_t content_left;
};

/* Returns the first marker of [low, high) with a byte of at least `byte` at `depth`, or high. All
 * markers of [low, high) share their first `depth` bytes. */
static uint32_t narrow(const struct vocab *v, uint32_t low, uint32_t high, size_t depth,
                       unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct vocab_token *t = &v->tokens[v->markers[middle]];
        bool below = t->text_len <= depth || (unsigned char)t->text[depth] < byte;
        if (below)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool touches_content(struct encoder *e, size_t start, size_t end)
{
    while (e->content_left > 0 && e->content->start + e->content->len <= start)
        e->content++, e->content_left--;
    return e->content_left > 0 && e->content->start < end;
}

static bool marker_allowed(struct encoder *e, uint32_t id, size_t start, size_t end)
{
    if (e->v->tokens[id].type == TOKEN_USER_DEFINED) return true;
    return e->control && !touches_content(e, start, end);
}

/* Returns the longest allowed marker at `at`, or VOCAB_NONE. */
static uint32_t marker_at(struct encoder *e, struct str text, size_t at)
{
    const struct vocab *v = e->v;
    uint32_t found = VOCAB_NONE, low = 0, high = v->marker_count;
    size_t depth = 0;
    for (; at + depth < text.len && low < high; depth++) {
        unsigned byte = (unsigned char)text.data[at + depth];
        low = narrow(v, low, high, depth, byte);
        high = narrow(v, low, high, depth, byte + 1);
        /* A marker that ends here is the first of the range: a prefix sorts before longer markers. */
        if (low == high || v->tokens[v->markers[low]].text_len != depth + 1) continue;
        if (marker_allowed(e, v->markers[low], at, at + depth + 1)) found = v->markers[low];
    }
    work_add(1 + 2 * depth * WORK_STEP); /* two binary searches for each byte */
    return found;
}

/* Returns the length of the first part of a word: all, or if that is too long, a cut between characters. */
static size_t cut_length(struct str word)
{
    if (word.len <= TOKENIZER_WORD_BYTES_MAX) return word.len;
    size_t len = str_utf8_complete(str_of(word.data, TOKENIZER_WORD_BYTES_MAX));
    return len > 0 ? len : TOKENIZER_WORD_BYTES_MAX;
}

static int merge_word(struct encoder *e, struct str word)
{
    int rc = 0;
    while (rc == 0 && word.len > 0) {
        size_t len = cut_length(word);
        rc = bpe_encode(e->v, &e->scratch, str_of(word.data, len), e->out);
        word = str_of(word.data + len, word.len - len);
    }
    return rc;
}

/* Fills a memo with the ids of a word; false if it is taken. A memo never changes afterwards: a client that
 * sends many made-up words can fill all memos, but only loses the saved merging of later words. */
static bool remember(struct vocab_memo *memo, struct str word, const uint32_t *ids, size_t count)
{
    uint8_t empty = MEMO_EMPTY;
    if (!atomic_compare_exchange_strong(&memo->state, &empty, MEMO_WRITTEN)) return false;
    memo->len = (uint8_t)word.len;
    memo->count = (uint8_t)count;
    memcpy(memo->word, word.data, word.len);
    memcpy(memo->ids, ids, count * sizeof *ids);
    atomic_store_explicit(&memo->state, MEMO_READY, memory_order_release);
    return true;
}

static bool is_of(struct vocab_memo *memo, struct str word)
{
    return atomic_load_explicit(&memo->state, memory_order_acquire) == MEMO_READY &&
           str_eq(str_of(memo->word, memo->len), word);
}

static int push_all(struct ids *out, const uint32_t *ids, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ids_push(out, ids[i]);
    return rc;
}

/* Encodes a word that is no token, that merging does not join to its token, or that was not merged yet. */
static int encode_merged(struct encoder *e, struct str word, uint64_t hash, struct vocab_word *w,
                         uint32_t token)
{
    for (uint32_t way = 0; way < 2; way++) {
        struct vocab_memo *memo = vocab_memo(e->v, hash, way);
        if (is_of(memo, word)) return push_all(e->out, memo->ids, memo->count);
    }
    size_t before = e->out->count;
    int rc = merge_word(e, word);
    if (rc < 0) return rc;
    const uint32_t *made = e->out->data + before, id = token & VOCAB_WORD_ID_MASK;
    bool whole = w && e->out->count == before + 1 && made[0] == id;
    uint32_t state = whole ? WORD_WHOLE : WORD_IN_PARTS;
    if (w) atomic_store_explicit(&w->token, id | state << VOCAB_STATE_SHIFT, memory_order_relaxed);
    size_t count = e->out->count - before;
    if (whole || word.len > VOCAB_MEMO_BYTES || count > VOCAB_MEMO_IDS) return 0;
    if (!remember(vocab_memo(e->v, hash, 0), word, made, count))
        (void)remember(vocab_memo(e->v, hash, 1), word, made, count);
    return 0;
}

/* Encodes a word. Most words of a text are one token. The first merge of a word shows whether it gives that
 * token; from then on the token is looked up, as the ids of other words are. Some pre-tokenizers take the
 * token of the whole word without merging. */
static int encode_word(struct encoder *e, const struct pending *p)
{
    struct vocab_word *w = vocab_word_slot(e->v, p->word, &p->key);
    const uint32_t token = atomic_load_explicit(&w->token, memory_order_relaxed);
    if (token == VOCAB_NONE) return encode_merged(e, p->word, p->key.hash, NULL, token);
    if (e->v->pre->whole_word_first || token >> VOCAB_STATE_SHIFT == WORD_WHOLE)
        return ids_push(e->out, token & VOCAB_WORD_ID_MASK);
    return encode_merged(e, p->word, p->key.hash, w, token);
}

static int encode_first(struct encoder *e)
{
    return encode_word(e, &e->pending[e->first++ % PENDING]);
}

/* Prefetches a word's place in the table and queues the word, to be looked up after the next ones: the
 * places are spread over megabytes, and eight cache misses at once take as long as one. */
static int take_word(void *arg, struct str word)
{
    struct encoder *e = arg;
    const struct vocab_key key = vocab_key_of(word);
    vocab_word_fetch(e->v, key.hash);
    int rc = e->last - e->first == PENDING ? encode_first(e) : 0;
    e->pending[e->last++ % PENDING] = (struct pending){ word, key };
    return rc;
}

static int encode_words(struct encoder *e, struct str text)
{
    int rc = pretokenizer_run(e->v->pre, text, take_word, e);
    while (rc == 0 && e->first != e->last)
        rc = encode_first(e);
    return rc;
}

/* Returns the first position from `at` where a marker may begin; in most vocabularies all begin with '<'. */
static size_t next_start(const struct vocab *v, struct str text, size_t at)
{
    if (v->marker_start_count == 1) {
        const char *found = memchr(text.data + at, v->marker_start, text.len - at);
        return found ? (size_t)(found - text.data) : text.len;
    }
    while (at < text.len && !v->marker_starts[(unsigned char)text.data[at]])
        at++;
    return at;
}

static int encode_all(struct encoder *e, struct str text)
{
    size_t done = 0;
    int rc = 0;
    work_add(text.len);
    for (size_t at = next_start(e->v, text, 0); at < text.len && rc == 0;
         at = next_start(e->v, text, at)) {
        uint32_t marker = marker_at(e, text, at);
        if (marker == VOCAB_NONE) {
            at++;
            continue;
        }
        rc = encode_words(e, str_of(text.data + done, at - done));
        if (rc == 0) rc = ids_push(e->out, marker);
        at += e->v->tokens[marker].text_len;
        done = at;
    }
    if (rc == 0) rc = encode_words(e, str_of(text.data + done, text.len - done));
    return rc;
}

/* Reserves room for the ids of common text at once, instead of by doubling. Without memory for that, the
 * array grows as ids come. */
static void expect_ids(struct ids *out, size_t bytes)
{
    size_t max = out->max ? out->max : IDS_MAX, count = out->count + bytes / BYTES_PER_ID + 16;
    if (count > max || count <= out->cap) return;
    uint32_t *data = realloc(out->data, count * sizeof *data);
    if (!data) return;
    out->data = data;
    out->cap = count;
}

static int encode(struct encoder *e, struct str text, struct err *err)
{
    if (text.len > TOKENIZER_TEXT_BYTES_MAX)
        return err_set(err, -E2BIG, "a text of %zu bytes: at most %zu", text.len,
                       TOKENIZER_TEXT_BYTES_MAX);
    expect_ids(e->out, text.len);
    int rc = encode_all(e, text);
    bpe_scratch_fini(&e->scratch);
    if (rc == -E2BIG)
        return err_set(err, rc, "the text has more than %zu tokens",
                       e->out->max ? e->out->max : IDS_MAX);
    return rc < 0 ? err_set(err, rc, "no memory to tokenise %zu bytes", text.len) : 0;
}

int tokenizer_encode(const struct vocab *v, struct str text, bool parse_special, struct ids *out,
                     struct err *err)
{
    struct encoder e = { .v = v, .out = out, .control = parse_special };
    return encode(&e, text, err);
}

int tokenizer_encode_spans(const struct vocab *v, struct str text, const struct text_spans *content,
                           struct ids *out, struct err *err)
{
    struct encoder e = { .v = v,
                         .out = out,
                         .control = true,
                         .content = content->data,
                         .content_left = content->count };
    return encode(&e, text, err);
}

int tokenizer_encode_prompt(const struct vocab *v, struct str text, struct ids *out,
                            struct err *err)
{
    const struct vocab_special *s = vocab_special(v);
    int rc = s->add_bos ? ids_push(out, s->bos) : 0;
    if (rc < 0) return err_set(err, rc, "no room for the begin token");
    rc = tokenizer_encode(v, text, false, out, err);
    if (rc < 0 || !s->add_eos) return rc;
    rc = ids_push(out, s->eos);
    return rc < 0 ? err_set(err, rc, "no room for the end token") : 0;
}

/* The functions below keep a list of byte ranges. */

void text_spans_fini(struct text_spans *s)
{
    free(s->data);
    *s = (struct text_spans){ 0 };
}

int text_spans_add(struct text_spans *s, size_t start, size_t len)
{
    if (len == 0) return 0;
    if (s->count > 0) {
        struct text_span *last = &s->data[s->count - 1];
        must(start >= last->start + last->len);
        if (start == last->start + last->len) {
            last->len += len;
            return 0;
        }
    }
    if (s->count == TEXT_SPANS_MAX) return -E2BIG;
    if (s->count == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 16;
        struct text_span *data = realloc(s->data, cap * sizeof *data);
        if (!data) return -ENOMEM;
        s->data = data;
        s->cap = cap;
    }
    s->data[s->count++] = (struct text_span){ start, len };
    return 0;
}

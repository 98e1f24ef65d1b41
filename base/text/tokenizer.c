/* tokenizer.c - finds markers first, then words, then the ids of words.
 *
 *     text -> [markers] -> stretches between them -> [normalizer] -> [normal markers] -> stretches
 *          -> [pre-tokenizer or cutter] -> words -> [the kind: bpe, unigram, wordpiece] -> ids
 *
 * Markers are the tokens that are searched for literally: control tokens where the caller allows
 * them, user-defined ones always. The leftmost, then longest marker wins. Most vocabularies have no
 * normalizer and no normal markers, and those steps cost them nothing.
 */
#include "base/text/tokenizer.h"

#include "base/core/err.h"
#include "base/core/work.h"
#include "base/text/cutter.h"
#include "base/text/normalizer.h"
#include "base/text/unicode.h"
#include "base/text/vocab_tables.h"
#include "base/text/vocab_words.h"
#include "base/text/word_scratch.h"

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

/* The ranges of content in a text, walked from its start. */
struct content {
    const struct text_span *at;
    size_t left;
};

struct encoder {
    const struct vocab *v;
    struct pending pending[PENDING];
    uint32_t first, last;
    struct ids *out;
    struct word_scratch scratch;
    struct normal_text normal;
    struct cutter cutter;
    struct text_spans slice; /* content of the stretch that is normalised */
    bool control;            /* control tokens are recognised outside of content */
    struct content content;  /* of the whole text */
};

static void encoder_fini(struct encoder *e)
{
    bpe_scratch_fini(&e->scratch.bpe);
    unigram_scratch_fini(&e->scratch.unigram);
    normal_text_fini(&e->normal);
    cutter_fini(&e->cutter);
    text_spans_fini(&e->slice);
}

/* A search for markers of one list in one text. */
struct search {
    const struct lexicon *markers;
    struct str text;
    struct content content;
    bool first; /* the text begins a prompt */
    int (*stretch)(struct encoder *e, struct str text, size_t start, bool first);
};

static bool touches_content(struct content *c, size_t start, size_t end)
{
    while (c->left > 0 && c->at->start + c->at->len <= start)
        c->at++, c->left--;
    return c->left > 0 && c->at->start < end;
}

static bool marker_allowed(const struct encoder *e, struct search *s, uint32_t id, size_t start,
                           size_t end)
{
    if (e->v->tokens[id].type == TOKEN_USER_DEFINED) return true;
    return e->control && !touches_content(&s->content, start, end);
}

/* Returns the longest allowed marker at `at`, or NULL. */
static const struct lexicon_entry *marker_at(const struct encoder *e, struct search *s, size_t at)
{
    const struct lexicon_entry *found = NULL;
    struct lexicon_walk w;
    bool on = lexicon_begin(s->markers, &w, (unsigned char)s->text.data[at]);
    while (on) {
        const struct lexicon_entry *m = lexicon_here(s->markers, &w);
        if (m && marker_allowed(e, s, m->id, at, at + m->len)) found = m;
        size_t next = at + w.depth;
        on = next < s->text.len && lexicon_step(s->markers, &w, (unsigned char)s->text.data[next]);
    }
    work_add(1 + w.depth);
    return found;
}

static size_t char_before(struct str text, size_t at, uint32_t *ret)
{
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && ((unsigned char)text.data[start] & 0xC0) == 0x80)
        start--;
    size_t len = unicode_next(str_of(text.data + start, at - start), ret);
    if (len == at - start) return len;
    *ret = UNICODE_BAD;
    return 1;
}

static bool stands_alone(struct str text, size_t start, size_t end)
{
    uint32_t cp;
    if (start > 0 && char_before(text, start, &cp) > 0 && unicode_is_word(cp)) return false;
    if (end == text.len) return true;
    unicode_next(str_of(text.data + end, text.len - end), &cp);
    return !unicode_is_word(cp);
}

static bool is_white(uint32_t cp)
{
    return cp != UNICODE_BAD && unicode_classes(cp) & UNICODE_WHITE;
}

/* Extends a marker over the white space that it takes, back to `done` at most. */
static void take_white(struct str text, uint8_t added, size_t done, size_t *start, size_t *end)
{
    uint32_t cp;
    while (added & TOKEN_LSTRIP && *start > done) {
        size_t len = char_before(text, *start, &cp);
        if (!is_white(cp)) break;
        *start -= len;
    }
    while (added & TOKEN_RSTRIP && *end < text.len) {
        size_t len = unicode_next(str_of(text.data + *end, text.len - *end), &cp);
        if (!is_white(cp)) break;
        *end += len;
    }
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
        rc = e->v->kind->encode(e->v, &e->scratch, str_of(word.data, len), e->out);
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
    if (count > 0) memcpy(memo->ids, ids, count * sizeof *ids);
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
    if (vocab_whole_words(e->v) || token >> VOCAB_STATE_SHIFT == WORD_WHOLE)
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

/* Encodes the words of a cutter, whose text the next word may overwrite. */
static int take_cut(void *arg, struct str word)
{
    struct encoder *e = arg;
    return encode_word(e, &(struct pending){ word, vocab_key_of(word) });
}

/* Returns where the first blank's mark stands behind another character, or the end. */
static size_t blank_break(struct str word)
{
    static const struct str mark = STR(VOCAB_BLANK_MARK);
    for (size_t at = 1; at < word.len;) {
        size_t next = str_find(str_of(word.data + at, word.len - at), mark);
        if (next == SIZE_MAX) break;
        at += next;
        if (at < mark.len || !str_starts(str_of(word.data + at - mark.len, mark.len), mark))
            return at;
        at += mark.len;
    }
    return word.len;
}

static int take_text(void *arg, struct str text)
{
    struct encoder *e = arg;
    int rc = 0;
    work_add(text.len);
    while (rc == 0 && text.len > 0) {
        size_t len = blank_break(text);
        rc = take_cut(e, str_of(text.data, len));
        text = str_of(text.data + len, text.len - len);
    }
    return rc;
}

/* Encodes a stretch without markers, normalised. */
static int encode_words(struct encoder *e, struct str text, size_t start, bool first)
{
    (void)start;
    if (!e->v->pre) {
        e->cutter.rules = e->v->cut;
        e->cutter.word = e->v->blank_breaks ? take_text : take_cut;
        e->cutter.arg = e;
        return cutter_run(&e->cutter, text, first);
    }
    int rc = pretokenizer_run(e->v->pre, text, take_word, e);
    while (rc == 0 && e->first != e->last)
        rc = encode_first(e);
    return rc;
}

/* Returns the first position from `at` where a marker may begin; in most vocabularies all begin with '<'. */
static size_t next_start(const struct lexicon *l, struct str text, size_t at)
{
    if (l->count == 0 || at >= text.len) return text.len;
    if (l->first_bytes == 1) {
        const char *found = memchr(text.data + at, l->first_byte, text.len - at);
        return found ? (size_t)(found - text.data) : text.len;
    }
    for (; at < text.len; at++) {
        unsigned char byte = (unsigned char)text.data[at];
        if (l->starts[byte] < l->starts[byte + 1u]) break;
    }
    return at;
}

static int pass_stretch(struct encoder *e, const struct search *s, size_t start, size_t end)
{
    if (start == end) return 0;
    return s->stretch(e, str_of(s->text.data + start, end - start), start, s->first && start == 0);
}

/* Passes on the stretches between markers, and appends the markers. */
static int run_search(struct encoder *e, struct search *s)
{
    size_t done = 0;
    int rc = 0;
    work_add(s->text.len);
    for (size_t at = next_start(s->markers, s->text, 0); at < s->text.len && rc == 0;
         at = next_start(s->markers, s->text, at)) {
        const struct lexicon_entry *m = marker_at(e, s, at);
        if (!m) {
            at++;
            continue;
        }
        const uint8_t added = e->v->tokens[m->id].added;
        size_t start = at, end = at + m->len;
        at = end;
        if (added & TOKEN_SINGLE_WORD && !stands_alone(s->text, start, end)) continue;
        take_white(s->text, added, done, &start, &end);
        rc = pass_stretch(e, s, done, start);
        if (rc == 0) rc = ids_push(e->out, m->id);
        at = end;
        done = end;
    }
    return rc == 0 ? pass_stretch(e, s, done, s->text.len) : rc;
}

/* Makes e->slice the content of [start, start + len) of the whole text, counted from `start`. */
static int slice_content(struct encoder *e, size_t start, size_t len)
{
    struct content c = e->content;
    int rc = 0;
    e->slice.count = 0;
    for (; c.left > 0 && c.at->start < start + len && rc == 0; c.at++, c.left--) {
        size_t from = max_size(c.at->start, start);
        size_t to = min_size(c.at->start + c.at->len, start + len);
        if (from < to) rc = text_spans_add(&e->slice, from - start, to - from);
    }
    return rc;
}

/* Normalises a stretch of the text, and searches it for normal markers. */
static int encode_stretch(struct encoder *e, struct str text, size_t start, bool first)
{
    const struct vocab *v = e->v;
    const bool tainted = e->control && v->normal_markers.count > 0;
    struct search s = { &v->normal_markers, text, { 0 }, first, encode_words };
    (void)touches_content(&e->content, start, start); /* drops what is behind */
    int rc = tainted ? slice_content(e, start, text.len) : 0;
    if (rc < 0) return rc;
    s.content = (struct content){ e->slice.data, tainted ? e->slice.count : 0 };
    if (!normalizer_leaves(v->normal, text) || (!v->keep_bytes && !str_utf8_valid(text))) {
        rc = normalizer_run(v->normal, text, tainted ? &e->slice : NULL, v->keep_bytes, &e->normal);
        if (rc < 0) return rc;
        s.text = buf_view(&e->normal.text);
        s.content = (struct content){ e->normal.content.data, e->normal.content.count };
    }
    if (s.text.len == 0) return 0; /* the normalizer left nothing */
    return s.markers->count > 0 ? run_search(e, &s) : encode_words(e, s.text, 0, first);
}

static int encode_all(struct encoder *e, struct str text)
{
    const bool direct = normalizer_leaves(e->v->normal, text) && e->v->normal_markers.count == 0 &&
                        e->v->keep_bytes;
    struct search s = { &e->v->markers, text, e->content, true,
                        direct ? encode_words : encode_stretch };
    return run_search(e, &s);
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
    encoder_fini(e);
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
    struct encoder e = {
        .v = v, .out = out, .control = true, .content = { content->data, content->count }
    };
    return encode(&e, text, err);
}

int tokenizer_encode_prompt(const struct vocab *v, struct str text, struct ids *out,
                            struct err *err)
{
    const uint32_t *frame;
    size_t count = vocab_before(v, &frame);
    int rc = push_all(out, frame, count);
    if (rc < 0) return err_set(err, rc, "no room for the begin token");
    rc = tokenizer_encode(v, text, false, out, err);
    count = vocab_after(v, &frame);
    if (rc < 0) return rc;
    rc = push_all(out, frame, count);
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

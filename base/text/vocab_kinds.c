/* vocab_kinds.c - makes the tables of each kind of vocabulary, and lists the kinds.
 *
 * A kind is one row: the checks and tables that only it needs, and the function that turns a word into
 * ids (bpe.c, unigram.c, wordpiece.c). Only normal tokens take part, so no text becomes a control token.
 */
#include "base/text/bpe.h"
#include "base/text/unigram.h"
#include "base/text/vocab_tables.h"
#include "base/text/vocab_words.h"
#include "base/text/word_scratch.h"
#include "base/text/wordpiece.h"

#include <stdlib.h>

/* A user-defined token is found in the text before, but not where it must stand alone, nor where only a
 * normalised text has it. */
bool vocab_is_word_part(const struct vocab *v, uint32_t id)
{
    const uint8_t type = v->tokens[id].type;
    if (v->tokens[id].added & TOKEN_OUTSIDE) return false;
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED;
}

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << VOCAB_ID_BITS | right;
}

/* Returns the slot that holds the pair, or the empty one where it would go. */
static uint64_t *pair_slot(const struct vocab *v, uint64_t pair)
{
    size_t mask = (UINT64_C(1) << (64 - v->pair_shift)) - 1;
    size_t at = (size_t)((pair * UINT64_C(0x9E3779B97F4A7C15)) >> v->pair_shift);
    uint64_t probes = 1;
    while (v->pairs[at] != VOCAB_PAIR_NONE && v->pairs[at] >> VOCAB_RANK_BITS != pair) {
        at = (at + 1) & mask;
        probes++;
    }
    work_add(probes);
    return &v->pairs[at];
}

uint32_t vocab_pair_rank(const struct vocab *v, uint32_t left, uint32_t right)
{
    uint64_t found = *pair_slot(v, pair_of(left, right));
    return found == VOCAB_PAIR_NONE ? UINT32_MAX : found & ((1u << VOCAB_RANK_BITS) - 1);
}

/* Indexes the pairs that may be joined. A pair is one word of memory, so that a search for a pair that may
 * not be joined, as most are, costs one cache line. */
static int index_pairs(struct vocab *v, struct err *err)
{
    uint32_t bits = 4;
    while (UINT64_C(1) << bits < 2 * (uint64_t)v->merge_count)
        bits++;
    v->pair_shift = 64 - bits;
    v->pairs = arena_array(&v->arena, (size_t)1 << bits, sizeof *v->pairs);
    if (!v->pairs) return err_set(err, -ENOMEM, "no memory for the merges");
    memset(v->pairs, 0xFF, sizeof *v->pairs << bits);
    for (uint32_t i = 0; i < v->merge_count; i++) {
        const struct vocab_merge *m = &v->merges[i];
        if (!vocab_is_word_part(v, m->left) || !vocab_is_word_part(v, m->right) ||
            !vocab_is_word_part(v, m->joined))
            continue;
        uint64_t pair = pair_of(m->left, m->right), *slot = pair_slot(v, pair);
        if (*slot == VOCAB_PAIR_NONE) /* of two equal pairs the better rank counts */
            *slot = pair << VOCAB_RANK_BITS | i;
    }
    return 0;
}

static int index_words(struct vocab *v, struct err *err)
{
    uint32_t slots = 4;
    while (v->kind->alphabet && slots < 2 * v->token_count)
        slots *= 2;
    v->words = arena_array(&v->arena, slots, sizeof *v->words);
    v->memos = arena_array(&v->arena, VOCAB_MEMOS, sizeof *v->memos);
    if (!v->words || !v->memos) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    memset(v->words, 0xFF, slots * sizeof *v->words);
    v->word_mask = slots - 1;
    memset(v->memos, 0, VOCAB_MEMOS * sizeof *v->memos);
    for (uint32_t i = 0; v->kind->alphabet && i < v->token_count; i++) {
        const struct vocab_token *t = &v->tokens[i];
        /* No merge makes a token that is not written in the alphabet. */
        if (t->type != TOKEN_NORMAL || t->bytes == t->text) continue;
        struct str word = vocab_bytes(v, i);
        if (word.len == 0) continue;
        const struct vocab_key key = vocab_key_of(word);
        struct vocab_word *w = vocab_word_slot(v, word, &key);
        *w = (struct vocab_word){ .tail = key.tail, .head = key.head };
        atomic_init(&w->token, i | (uint32_t)WORD_UNKNOWN << VOCAB_STATE_SHIFT);
    }
    return 0;
}

/* Makes the tables of byte-level BPE. Merging starts from tokens of one byte and joins pairs; only normal
 * tokens take part, so no sequence of merges ends in a control token. */
static int finish_gpt2(struct vocab *v, struct err *err)
{
    memset(v->byte_token, 0xFF, sizeof v->byte_token);
    for (uint32_t i = 0; i < v->token_count; i++) {
        const struct vocab_token *t = &v->tokens[i];
        bool one = t->bytes_len == 1 && (t->type == TOKEN_NORMAL || t->type == TOKEN_BYTE);
        uint32_t *at = one ? &v->byte_token[(unsigned char)t->bytes[0]] : NULL;
        if (at && (*at == VOCAB_NONE || t->type == TOKEN_NORMAL)) *at = i;
    }
    /* A byte that has no token is encoded as U+FFFD, so at least that must have its bytes. */
    static const uint8_t replacement[] = { 0xEF, 0xBF, 0xBD };
    for (size_t i = 0; i < sizeof replacement; i++)
        if (v->byte_token[replacement[i]] == VOCAB_NONE)
            return err_set(err, -EINVAL, "no token for the byte %02x", replacement[i]);
    int rc = index_pairs(v, err);
    return rc < 0 ? rc : index_words(v, err);
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the vocabulary");
}

/* Learns the tokens <0xNN>; false if one is missing. */
static bool find_byte_tokens(struct vocab *v)
{
    bool all = true;
    memset(v->byte_token, 0xFF, sizeof v->byte_token);
    for (uint32_t i = 0; i < v->token_count; i++)
        if (v->tokens[i].type == TOKEN_BYTE)
            v->byte_token[(unsigned char)v->tokens[i].bytes[0]] = i;
    for (size_t i = 0; i < COUNT_OF(v->byte_token); i++)
        all = all && v->byte_token[i] != VOCAB_NONE;
    return all;
}

static bool crosses_to_blank(struct str text)
{
    bool other = false;
    for (size_t at = 0; at < text.len;) {
        bool mark = str_starts(str_of(text.data + at, text.len - at), STR(VOCAB_BLANK_MARK));
        if (mark && other) return true;
        other = !mark;
        at += mark ? sizeof VOCAB_BLANK_MARK - 1 : 1;
    }
    return false;
}

/* Text of SentencePiece is one long word. If no token crosses from another character to a blank's mark, a cut
 * there changes nothing, and short words can be kept. */
static void find_blank_breaks(struct vocab *v)
{
    uint32_t mark = vocab_find(v, STR(VOCAB_BLANK_MARK));
    v->blank_breaks = mark != VOCAB_NONE && vocab_is_word_part(v, mark);
    for (uint32_t i = 0; i < v->token_count && v->blank_breaks; i++)
        if (vocab_is_word_part(v, i) && crosses_to_blank(vocab_token_text(&v->tokens[i])))
            v->blank_breaks = false;
}

static int need_bytes(struct vocab *v, struct err *err)
{
    bool all = find_byte_tokens(v);
    if (!(v->flags & VOCAB_BYTE_FALLBACK) || all || v->special.unk != VOCAB_NONE) return 0;
    return err_set(err, -EINVAL, "a byte has no token <0xNN>, and there is no unknown token");
}

static int finish_bpe(struct vocab *v, struct err *err)
{
    int rc = need_bytes(v, err);
    if (rc == 0) rc = index_pairs(v, err);
    if (rc == 0) rc = index_words(v, err);
    if (rc == 0 && !(v->flags & VOCAB_WHOLE_WORDS)) find_blank_breaks(v);
    return rc;
}

static int need_scores(const struct vocab *v, struct err *err)
{
    return v->scores ? 0
                     : err_set(err, -EINVAL, "a vocabulary of kind %s needs scores", v->kind->name);
}

static int compare_scores(const void *a, const void *b, void *context)
{
    const double *scores = context, x = scores[*(const uint32_t *)a],
                 y = scores[*(const uint32_t *)b];
    return (x < y) - (x > y);
}

/* Ranks tokens by falling score. */
static int rank_scores(struct vocab *v, struct err *err)
{
    uint32_t *order = malloc((v->token_count + 1) * sizeof *order);
    v->score_rank = arena_array(&v->arena, v->token_count, sizeof *v->score_rank);
    if (!order || !v->score_rank) {
        free(order);
        return no_memory(err);
    }
    for (uint32_t i = 0; i < v->token_count; i++)
        order[i] = i;
    qsort_r(order, v->token_count, sizeof *order, compare_scores, v->scores);
    for (uint32_t i = 0, rank = 0; i < v->token_count; i++) {
        rank += i > 0 && v->scores[order[i]] < v->scores[order[i - 1]];
        v->score_rank[order[i]] = rank;
    }
    free(order);
    return 0;
}

static int finish_llama(struct vocab *v, struct err *err)
{
    int rc = need_scores(v, err);
    if (rc == 0) rc = need_bytes(v, err);
    if (rc == 0) rc = rank_scores(v, err);
    if (rc == 0) rc = index_words(v, err);
    if (rc == 0) find_blank_breaks(v);
    return rc;
}

#define UNKNOWN_PENALTY 10.0 /* below the lowest score: SentencePiece's */

static int finish_t5(struct vocab *v, struct err *err)
{
    int rc = need_scores(v, err);
    if (rc == 0) rc = need_bytes(v, err);
    if (rc == 0) rc = index_words(v, err);
    if (rc < 0) return rc;
    if (lexicon_init(&v->lexicon, &v->arena, v->token_count) < 0) return no_memory(err);
    double lowest = 0;
    for (uint32_t i = 0, seen = 0; i < v->token_count; i++) {
        if (!vocab_is_word_part(v, i) || v->tokens[i].text_len == 0) continue;
        if (seen++ == 0 || v->scores[i] < lowest) lowest = v->scores[i];
        lexicon_add(&v->lexicon, vocab_token_text(&v->tokens[i]), i);
    }
    lexicon_sort(&v->lexicon);
    v->score_unknown = lowest - UNKNOWN_PENALTY;
    find_blank_breaks(v);
    return 0;
}

/* Adds a piece without its mark: the continuing ones have one (tokenizer.json), or the others (GGUF). A word
 * that begins with the mark of continuing ones, "##a", is found as such a token, as `tokenizers` does. */
static void add_piece(struct vocab *v, uint32_t id)
{
    struct str text = vocab_token_text(&v->tokens[id]), mark = v->continuing_mark;
    bool inverted = mark.len == 0;
    if (inverted) mark = STR(VOCAB_BLANK_MARK);
    bool marked = str_starts(text, mark);
    if (marked && !inverted) lexicon_add(&v->lexicon, text, id);
    if (marked) text = str_of(text.data + mark.len, text.len - mark.len);
    if (text.len > 0) lexicon_add(marked == inverted ? &v->lexicon : &v->continuing, text, id);
}

static int finish_bert(struct vocab *v, struct err *err)
{
    int rc = index_words(v, err);
    if (rc == 0) rc = lexicon_init(&v->lexicon, &v->arena, v->token_count);
    if (rc == 0) rc = lexicon_init(&v->continuing, &v->arena, v->token_count);
    if (rc < 0) return no_memory(err);
    for (uint32_t i = 0; i < v->token_count; i++)
        if (vocab_is_word_part(v, i)) add_piece(v, i);
    lexicon_sort(&v->lexicon);
    lexicon_sort(&v->continuing);
    if (v->special.unk != VOCAB_NONE) return 0;
    return err_set(err, -EINVAL, "a vocabulary of word pieces needs an unknown token");
}

static int encode_bert(const struct vocab *v, struct word_scratch *s, struct str word,
                       struct ids *out)
{
    (void)s;
    return wordpiece_encode(v, word, out);
}

static int encode_wordlevel(const struct vocab *v, struct word_scratch *s, struct str word,
                            struct ids *out)
{
    (void)s;
    return wordlevel_encode(v, word, out);
}

static int encode_t5(const struct vocab *v, struct word_scratch *s, struct str word,
                     struct ids *out)
{
    return unigram_encode(v, &s->unigram, word, out);
}

static int encode_bpe(const struct vocab *v, struct word_scratch *s, struct str word,
                      struct ids *out)
{
    return bpe_encode(v, &s->bpe, word, out);
}

static const struct vocab_kind kinds[] = {
    { "gpt2", "byte-level byte-pair encoding", finish_gpt2, encode_bpe, true },
    { "bpe", "byte-pair encoding of characters by merges", finish_bpe, encode_bpe, false },
    { "llama", "byte-pair encoding of characters by scores", finish_llama, encode_bpe, false },
    { "t5", "Unigram", finish_t5, encode_t5, false },
    { "bert", "WordPiece", finish_bert, encode_bert, false },
    { "wordlevel", "whole words", index_words, encode_wordlevel, false },
};

const char *vocab_kind_name(size_t index)
{
    return index < COUNT_OF(kinds) ? kinds[index].name : NULL;
}

const struct vocab_kind *vocab_kind_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (str_eq(name, str_from(kinds[i].name))) return &kinds[i];
    return NULL;
}

/* ---- what a kind of GGUF implies ---- */

void vocab_rules_of_gguf(struct vocab_parts *p, const struct vocab_gguf_switches *switches,
                         struct vocab_gguf_rules *r)
{
    const struct str mark = STR(VOCAB_BLANK_MARK), blank = STR(" ");
    const bool bert = str_eq(p->kind, STR("bert")), t5 = str_eq(p->kind, STR("t5"));
    size_t normal = 0, decode = 0;
    if (!bert && !t5 && !str_eq(p->kind, STR("llama"))) return;
    if (t5 && switches->charsmap.len > 0)
        r->normal[normal++] = (struct text_rule){ .kind = RULE_CHARSMAP, .a = switches->charsmap };
    if (t5 && switches->remove_extra_whitespaces)
        r->normal[normal++] = (struct text_rule){ .kind = RULE_COLLAPSE };
    if (bert)
        r->normal[normal++] =
            (struct text_rule){ .kind = RULE_BERT,
                                .flags = RULE_CLEAN | RULE_HAN | RULE_ACCENTS | RULE_LOWERCASE };
    if (!bert && switches->add_space_prefix)
        r->normal[normal++] = (struct text_rule){ .kind = RULE_PREPEND, .a = blank };
    if (!bert)
        r->normal[normal++] = (struct text_rule){ .kind = RULE_REPLACE, .a = blank, .b = mark };
    r->decode[decode++] = (struct text_rule){ .kind = RULE_REPLACE, .a = mark, .b = blank };
    if (bert || switches->add_space_prefix)
        r->decode[decode++] = (struct text_rule){ .kind = RULE_STRIP_TEXT };
    p->normal = (struct text_rules){ r->normal, normal };
    p->decode = (struct text_rules){ r->decode, decode };
    if (bert) {
        r->cut[0] = (struct text_rule){ .kind = RULE_WHITE, .behavior = BEHAVIOR_REMOVED };
        r->cut[1] = (struct text_rule){ .kind = RULE_PUNCTUATION };
        p->cut = (struct text_rules){ r->cut, 2 };
    } else {
        p->flags |= VOCAB_BYTE_FALLBACK;
    }
    if (t5) p->flags |= VOCAB_FUSE_UNKNOWN;
}

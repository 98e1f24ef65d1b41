/* vocab.c - checks the arrays of a model file and makes the tables that encoding needs.
 *
 * Order: counts -> names -> token texts and types -> text index -> merges -> special ids -> markers ->
 * the kind's own tables. Everything lives in one arena with a bound that follows from the checked
 * sizes, so a hostile file cannot make it allocate more than in proportion to its length.
 */
#include "base/text/vocab.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/work.h"
#include "base/text/vocab_tables.h"

#include <limits.h>
#include <stdlib.h>

static int finish_gpt2(struct vocab *v, struct err *err);

static const struct vocab_kind kinds[] = {
    { "gpt2", "byte-level byte-pair encoding", finish_gpt2 },
};

/* The usual names of the end-of-turn token, for files that name only the end of text. */
static const char *const eot_names[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|EOT|>",
};

const char *vocab_kind_name(size_t index)
{
    return index < COUNT_OF(kinds) ? kinds[index].name : NULL;
}

const char *vocab_pre_name(size_t index)
{
    return pretokenizer_name(index);
}

static int unknown_name(const char *what, struct str name, const char *(*name_at)(size_t),
                        struct err *err)
{
    CLEANUP(buf_fini) struct buf names = { 0 };
    for (size_t i = 0; name_at(i); i++)
        buf_printf(&names, "%s%s", i ? ", " : "", name_at(i));
    return err_set(err, -ENOTSUP, "%s \"" STR_FMT "\" is not known; known: %s", what,
                   (int)min_size(name.len, 64), name.data, names.data ? names.data : "none");
}

static int find_names(struct vocab *v, const struct vocab_parts *parts, struct err *err)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (str_eq(parts->kind, str_from(kinds[i].name))) v->kind = &kinds[i];
    if (!v->kind) return unknown_name("tokenizer model", parts->kind, vocab_kind_name, err);
    v->pre = pretokenizer_find(parts->pre);
    if (!v->pre) return unknown_name("pre-tokenizer", parts->pre, vocab_pre_name, err);
    return 0;
}

static int check_counts(const struct vocab_parts *p, struct err *err)
{
    if (p->token_count == 0) return err_set(err, -EINVAL, "the vocabulary has no tokens");
    if (p->token_count > VOCAB_TOKENS_MAX)
        return err_set(err, -E2BIG, "%zu tokens: at most %u", p->token_count, VOCAB_TOKENS_MAX);
    if (p->merge_count > VOCAB_MERGES_MAX)
        return err_set(err, -E2BIG, "%zu merges: at most %u", p->merge_count, VOCAB_MERGES_MAX);
    if (p->type_count != 0 && p->type_count != p->token_count)
        return err_set(err, -EINVAL, "%zu token types for %zu tokens", p->type_count,
                       p->token_count);
    if (p->score_count != 0 && p->score_count != p->token_count)
        return err_set(err, -EINVAL, "%zu token scores for %zu tokens", p->score_count,
                       p->token_count);
    size_t bytes = 0;
    for (size_t i = 0; i < p->token_count; i++) {
        if (p->tokens[i].len > VOCAB_TOKEN_BYTES_MAX)
            return err_set(err, -E2BIG, "token %zu has %zu bytes: at most %d", i, p->tokens[i].len,
                           VOCAB_TOKEN_BYTES_MAX);
        bytes += p->tokens[i].len;
    }
    if (bytes > VOCAB_TEXT_BYTES_MAX)
        return err_set(err, -E2BIG, "tokens of %zu bytes: at most %u", bytes, VOCAB_TEXT_BYTES_MAX);
    return 0;
}

/* Decodes "<0x4E>", with exactly two hex digits. */
static bool byte_name_decode(struct str text, char *ret)
{
    uint8_t byte;
    if (text.len != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return false;
    if (hex_to(str_of(text.data + 3, 2), &byte, 1) < 0) return false;
    *ret = (char)byte;
    return true;
}

static bool looks_like_marker(struct str text)
{
    static const struct str opens[] = { STR("<|"), STR("<\xEF\xBD\x9C") };
    static const struct str closes[] = { STR("|>"), STR("\xEF\xBD\x9C>") };
    for (size_t i = 0; i < COUNT_OF(opens); i++)
        if (text.len >= opens[i].len + closes[i].len && str_starts(text, opens[i]) &&
            str_ends(text, closes[i]))
            return true;
    return false;
}

static int set_bytes(struct vocab *v, struct vocab_token *t, uint32_t id, struct err *err)
{
    t->bytes = t->text;
    t->bytes_len = t->text_len;
    if (t->type != TOKEN_NORMAL && t->type != TOKEN_BYTE) return 0;
    char *bytes = arena_alloc(&v->arena, t->text_len + 1);
    if (!bytes) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    if (t->type == TOKEN_BYTE) {
        if (!byte_name_decode(vocab_token_text(t), bytes))
            return err_set(err, -EINVAL, "token %u is a byte token but not written <0xNN>", id);
        t->bytes_len = 1;
    } else if (!byte_alphabet_decode(vocab_token_text(t), bytes, &t->bytes_len)) {
        return 0; /* not in the alphabet: its bytes are its text, and no merge reaches it */
    }
    t->bytes = bytes;
    return 0;
}

static int copy_tokens(struct vocab *v, const struct vocab_parts *p, struct err *err)
{
    v->tokens = arena_array(&v->arena, p->token_count, sizeof *v->tokens);
    if (!v->tokens) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    for (uint32_t i = 0; i < p->token_count; i++) {
        struct vocab_token *t = &v->tokens[i];
        uint8_t type = p->type_count ? p->types[i] : TOKEN_NORMAL;
        if (type < TOKEN_NORMAL || type >= TOKEN_TYPE_COUNT)
            return err_set(err, -EINVAL, "token %u has type %u: known are 1 to %d", i, type,
                           TOKEN_TYPE_COUNT - 1);
        if (!str_utf8_valid(p->tokens[i]))
            return err_set(err, -EINVAL, "token %u is not valid UTF-8", i);
        struct str text = arena_str(&v->arena, p->tokens[i]);
        if (!text.data) return err_set(err, -ENOMEM, "no memory for the vocabulary");
        t->text = text.data;
        t->text_len = (uint32_t)text.len;
        t->type = type == TOKEN_USER_DEFINED && looks_like_marker(text) ? TOKEN_CONTROL : type;
        int rc = set_bytes(v, t, i, err);
        if (rc < 0) return rc;
    }
    v->token_count = (uint32_t)p->token_count;
    v->token_bytes_max = 1;
    for (uint32_t i = 0; i < v->token_count; i++)
        v->token_bytes_max =
            max_u32(v->token_bytes_max, max_u32(v->tokens[i].text_len, v->tokens[i].bytes_len));
    if (p->score_count == 0) return 0;
    v->scores = arena_array(&v->arena, p->score_count, sizeof *v->scores);
    if (!v->scores) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    memcpy(v->scores, p->scores, p->score_count * sizeof *v->scores);
    return 0;
}

/* Returns the slot of `text`, or the empty one where it would go. */
static uint32_t text_slot(const struct vocab *v, struct str text)
{
    uint32_t slot = (uint32_t)hash64(text.data, text.len, 0) & v->by_text_mask;
    while (v->by_text[slot] != VOCAB_NONE &&
           !str_eq(vocab_token_text(&v->tokens[v->by_text[slot]]), text))
        slot = (slot + 1) & v->by_text_mask;
    return slot;
}

static int index_texts(struct vocab *v, struct err *err)
{
    uint32_t slots = 4;
    while (slots < 2 * v->token_count)
        slots *= 2;
    v->by_text = arena_array(&v->arena, slots, sizeof *v->by_text);
    if (!v->by_text) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    memset(v->by_text, 0xFF, slots * sizeof *v->by_text);
    v->by_text_mask = slots - 1;
    for (uint32_t i = 0; i < v->token_count; i++) {
        struct str text = vocab_token_text(&v->tokens[i]);
        uint32_t slot = text_slot(v, text);
        if (v->by_text[slot] != VOCAB_NONE)
            return err_set(err, -EINVAL, "tokens %u and %u are both \"" STR_FMT "\"",
                           v->by_text[slot], i, (int)min_size(text.len, 64), text.data);
        v->by_text[slot] = i;
    }
    return 0;
}

static int split_merge(const struct vocab *v, struct str merge, uint32_t rank,
                       struct vocab_merge *ret, struct err *err)
{
    /* The separator is the first space behind the first byte: tokens in the alphabet hold no
     * space. */
    const char *space = merge.len > 2 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    if (!space)
        return err_set(err, -EINVAL, "merge %u is not two tokens with a space between", rank);
    struct str left = str_of(merge.data, (size_t)(space - merge.data));
    struct str right = str_of(space + 1, merge.len - left.len - 1);
    ret->left = vocab_find(v, left);
    ret->right = vocab_find(v, right);
    if (ret->left == VOCAB_NONE || ret->right == VOCAB_NONE)
        return err_set(err, -EINVAL, "merge %u (\"" STR_FMT "\") names a token that is not there",
                       rank, (int)min_size(merge.len, 64), merge.data);
    return 0;
}

static int join_merge(const struct vocab *v, uint32_t rank, struct vocab_merge *m, struct err *err)
{
    char joined[2 * VOCAB_TOKEN_BYTES_MAX];
    const struct vocab_token *left = &v->tokens[m->left], *right = &v->tokens[m->right];
    memcpy(joined, left->text, left->text_len);
    memcpy(joined + left->text_len, right->text, right->text_len);
    m->joined = vocab_find(v, str_of(joined, (size_t)left->text_len + right->text_len));
    if (m->joined != VOCAB_NONE) return 0;
    return err_set(err, -EINVAL, "merge %u: what tokens %u and %u join to is no token", rank,
                   m->left, m->right);
}

static int copy_merges(struct vocab *v, const struct vocab_parts *p, struct err *err)
{
    v->merges = arena_array(&v->arena, p->merge_count, sizeof *v->merges);
    if (!v->merges) return err_set(err, -ENOMEM, "no memory for the merges");
    for (uint32_t i = 0; i < p->merge_count; i++) {
        struct vocab_merge *m = &v->merges[i];
        int rc = 0;
        if (p->merge_ids) {
            *m = (struct vocab_merge){ p->merge_ids[2 * i], p->merge_ids[2 * i + 1], 0 };
            if (m->left >= v->token_count || m->right >= v->token_count)
                rc = err_set(err, -EINVAL, "merge %u names a token that is not there", i);
        } else {
            rc = split_merge(v, p->merges[i], i, m, err);
        }
        if (rc == 0) rc = join_merge(v, i, m, err);
        if (rc < 0) return rc;
    }
    v->merge_count = (uint32_t)p->merge_count;
    return 0;
}

static int copy_special(struct vocab *v, const struct vocab_special *s, struct err *err)
{
    const struct {
        const char *name;
        uint32_t id;
    } ids[] = { { "bos", s->bos },
                { "eos", s->eos },
                { "eot", s->eot },
                { "pad", s->pad },
                { "unk", s->unk } };
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        if (ids[i].id != VOCAB_NONE && ids[i].id >= v->token_count)
            return err_set(err, -EINVAL, "the %s token is %u, but there are %u tokens", ids[i].name,
                           ids[i].id, v->token_count);
    if ((s->add_bos && s->bos == VOCAB_NONE) || (s->add_eos && s->eos == VOCAB_NONE))
        return err_set(err, -EINVAL, "the vocabulary asks for a %s token and names none",
                       s->add_bos && s->bos == VOCAB_NONE ? "begin" : "end");
    v->special = *s;
    for (size_t i = 0; v->special.eot == VOCAB_NONE && i < COUNT_OF(eot_names); i++) {
        uint32_t id = vocab_find(v, str_from(eot_names[i]));
        if (id != VOCAB_NONE && v->tokens[id].type == TOKEN_CONTROL) v->special.eot = id;
    }
    return 0;
}

static int compare_markers(const void *a, const void *b, void *context)
{
    const struct vocab *v = context;
    return str_cmp(vocab_token_text(&v->tokens[*(const uint32_t *)a]),
                   vocab_token_text(&v->tokens[*(const uint32_t *)b]));
}

static bool is_marker(const struct vocab_token *t)
{
    return t->text_len > 0 &&
           (t->type == TOKEN_CONTROL || t->type == TOKEN_USER_DEFINED || t->type == TOKEN_UNKNOWN);
}

static int sort_markers(struct vocab *v, struct err *err)
{
    for (uint32_t i = 0; i < v->token_count; i++)
        v->marker_count += is_marker(&v->tokens[i]);
    v->markers = arena_array(&v->arena, v->marker_count, sizeof *v->markers);
    if (!v->markers) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->token_count; i++) {
        if (!is_marker(&v->tokens[i])) continue;
        v->markers[count++] = i;
        v->marker_start = (unsigned char)v->tokens[i].text[0];
        v->marker_start_count += !v->marker_starts[v->marker_start];
        v->marker_starts[v->marker_start] = true;
    }
    qsort_r(v->markers, count, sizeof *v->markers, compare_markers, v);
    return 0;
}

static bool is_word_part(const struct vocab *v, uint32_t id)
{
    return v->tokens[id].type == TOKEN_NORMAL;
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
        if (!is_word_part(v, m->left) || !is_word_part(v, m->right) || !is_word_part(v, m->joined))
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
    while (slots < 2 * v->token_count)
        slots *= 2;
    v->words = arena_array(&v->arena, slots, sizeof *v->words);
    v->memos = arena_array(&v->arena, VOCAB_MEMOS, sizeof *v->memos);
    if (!v->words || !v->memos) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    memset(v->words, 0xFF, slots * sizeof *v->words);
    v->word_mask = slots - 1;
    memset(v->memos, 0, VOCAB_MEMOS * sizeof *v->memos);
    for (uint32_t i = 0; i < v->token_count; i++) {
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

static void put_str(struct buf *out, struct str s)
{
    buf_u32(out, (uint32_t)s.len);
    buf_str(out, s);
}

int vocab_write(const struct vocab *v, struct buf *out)
{
    put_str(out, vocab_kind(v));
    put_str(out, vocab_pre(v));
    buf_u32(out, v->token_count);
    for (uint32_t i = 0; i < v->token_count; i++)
        put_str(out, vocab_token_text(&v->tokens[i]));
    for (uint32_t i = 0; i < v->token_count; i++)
        buf_byte(out, (char)v->tokens[i].type);
    buf_u32(out, v->scores ? v->token_count : 0);
    if (v->scores) buf_append(out, v->scores, v->token_count * sizeof *v->scores);
    buf_u32(out, v->merge_count);
    for (uint32_t i = 0; i < v->merge_count; i++) {
        buf_u32(out, v->merges[i].left);
        buf_u32(out, v->merges[i].right);
    }
    const struct vocab_special *s = &v->special;
    const uint32_t ids[] = { s->bos, s->eos, s->eot, s->pad, s->unk };
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        buf_u32(out, ids[i]);
    buf_byte(out, (char)s->add_bos);
    buf_byte(out, (char)s->add_eos);
    return out->rc;
}

/* Returns the bound of the arena: each token twice with padding, the arrays, the indexes. */
static size_t arena_bound(const struct vocab_parts *p)
{
    size_t text = 0;
    for (size_t i = 0; i < p->token_count; i++)
        text += 2 * p->tokens[i].len;
    size_t merge = sizeof(struct vocab_merge) + 4 * sizeof(uint64_t);
    return text + p->token_count * 352 + p->merge_count * merge + (1u << 20);
}

int vocab_build(const struct vocab_parts *parts, struct vocab **ret, struct err *err)
{
    int rc = check_counts(parts, err);
    if (rc < 0) return rc;
    CLEANUP(vocab_freep) struct vocab *v = calloc(1, sizeof *v);
    if (!v) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    arena_init(&v->arena, arena_bound(parts));
    rc = find_names(v, parts, err);
    if (rc == 0) rc = copy_tokens(v, parts, err);
    if (rc == 0) rc = index_texts(v, err);
    if (rc == 0) rc = copy_merges(v, parts, err);
    if (rc == 0) rc = copy_special(v, &parts->special, err);
    if (rc == 0) rc = sort_markers(v, err);
    if (rc == 0) rc = v->kind->finish(v, err);
    if (rc < 0) return rc;
    *ret = TAKE(v);
    return 0;
}

void vocab_free(struct vocab *v)
{
    if (!v) return;
    arena_fini(&v->arena);
    free(v);
}

uint32_t vocab_count(const struct vocab *v)
{
    return v->token_count;
}

uint32_t vocab_token_bytes_max(const struct vocab *v)
{
    return v->token_bytes_max;
}

const struct vocab_special *vocab_special(const struct vocab *v)
{
    return &v->special;
}

struct str vocab_kind(const struct vocab *v)
{
    return str_from(v->kind->name);
}

struct str vocab_pre(const struct vocab *v)
{
    return str_from(v->pre->name);
}

struct str vocab_text(const struct vocab *v, uint32_t id)
{
    if (id >= v->token_count) return (struct str){ 0 };
    return vocab_token_text(&v->tokens[id]);
}

struct str vocab_bytes(const struct vocab *v, uint32_t id)
{
    if (id >= v->token_count) return (struct str){ 0 };
    return str_of(v->tokens[id].bytes, v->tokens[id].bytes_len);
}

enum token_type vocab_type(const struct vocab *v, uint32_t id)
{
    return id < v->token_count ? (enum token_type)v->tokens[id].type : TOKEN_UNUSED;
}

uint32_t vocab_find(const struct vocab *v, struct str text)
{
    return v->by_text[text_slot(v, text)];
}

/* The byte alphabet is computed from ranges; a table of 256 entries would do the same. */

#define FIRST_MOVED 256u
#define MOVED_COUNT 68u
#define LOW_MOVED 33u  /* 00..20 come first */
#define HIGH_MOVED 34u /* then 7F..A0; AD is the last */

static bool is_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

/* Returns the byte for which the code point stands, or -1. */
static int byte_of(uint32_t cp)
{
    if (cp < 256) return is_itself(cp) ? (int)cp : -1;
    uint32_t n = cp - FIRST_MOVED;
    if (n >= MOVED_COUNT) return -1;
    if (n < LOW_MOVED) return (int)n;
    if (n < LOW_MOVED + HIGH_MOVED) return (int)(n - LOW_MOVED + 0x7F);
    return 0xAD;
}

static uint32_t code_point_of(unsigned char byte)
{
    if (is_itself(byte)) return byte;
    if (byte < LOW_MOVED) return FIRST_MOVED + byte;
    if (byte != 0xAD) return FIRST_MOVED + LOW_MOVED + byte - 0x7Fu;
    return FIRST_MOVED + MOVED_COUNT - 1;
}

bool byte_alphabet_decode(struct str text, char *out, uint32_t *ret_len)
{
    uint32_t len = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;
        size_t step = utf8_decode(str_of(text.data + at, text.len - at), &cp);
        int byte = step ? byte_of(cp) : -1;
        if (byte < 0) return false;
        out[len++] = (char)byte;
        at += step;
    }
    *ret_len = len;
    return true;
}

struct str byte_alphabet_encode(struct str bytes, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < bytes.len; i++)
        len += utf8_encode(code_point_of((unsigned char)bytes.data[i]), out + len);
    return str_of(out, len);
}

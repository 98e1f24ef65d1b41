/* vocab.c - checks the arrays of a model file and makes the tables that encoding needs.
 *
 * Order: counts -> names -> token texts and types -> text index -> merges -> special ids -> markers ->
 * the kind's own tables. Everything lives in one arena with a bound that follows from the checked
 * sizes, so a hostile file cannot make it allocate more than in proportion to its length.
 */
#include "base/text/vocab.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/text/normalizer.h"
#include "base/text/vocab_tables.h"

#include <math.h>
#include <stdlib.h>

/* The usual names of the end-of-turn token, for files that name only the end of text. */
static const char *const eot_names[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|EOT|>",
};

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
    v->kind = vocab_kind_find(parts->kind);
    if (!v->kind) return unknown_name("tokenizer model", parts->kind, vocab_kind_name, err);
    if (!v->kind->alphabet || parts->flags & VOCAB_CUT_RULES) return 0;
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
    if (p->added_count != 0 && p->added_count != p->token_count)
        return err_set(err, -EINVAL, "%zu kinds of added token for %zu tokens", p->added_count,
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

static void decode_replace(const struct text_rule *r, struct str from, struct buf *to)
{
    for (size_t at = 0; at < from.len;) {
        struct str rest = { from.data + at, from.len - at };
        bool here = str_starts(rest, r->a);
        if (here)
            buf_str(to, r->b);
        else
            buf_byte(to, rest.data[0]);
        at += here ? r->a.len : 1;
    }
}

/* Writes a word piece: a blank before one that begins a word, and none before marks if the rule cleans up. */
static void decode_wordpiece(const struct text_rule *r, struct str from, struct buf *to)
{
    static const char *const clean[][2] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };
    if (str_starts(from, r->a)) {
        buf_append(to, from.data + r->a.len, from.len - r->a.len);
    } else {
        buf_byte(to, ' ');
        buf_str(to, from);
    }
    for (size_t i = 0; r->flags & RULE_CLEAN_UP && i < COUNT_OF(clean); i++) {
        CLEANUP(buf_fini) struct buf made = { 0 };
        const struct text_rule replace = { .kind = RULE_REPLACE,
                                           .a = str_from(clean[i][0]),
                                           .b = str_from(clean[i][1]) };
        if (str_find(buf_view(to), replace.a) == SIZE_MAX) continue;
        decode_replace(&replace, buf_view(to), &made);
        buf_clear(to);
        buf_str(to, buf_view(&made));
    }
}

/* Applies one decode rule to the bytes of a token. */
static void decode_by(const struct text_rule *r, struct str from, struct buf *to)
{
    if (r->kind == RULE_REPLACE) {
        decode_replace(r, from, to);
    } else if (r->kind == RULE_WORDPIECE) {
        decode_wordpiece(r, from, to);
    } else { /* the others but RULE_BLANK are of the whole text */
        if (r->kind == RULE_BLANK) buf_byte(to, ' ');
        buf_str(to, from);
    }
}

#define DECODED_GROWTH 4 /* a token's bytes are at most so many times its text, and a few */
#define DECODED_MORE 16

/* A token that is found by its normalised form is written by it, too. */
static bool is_normalized(const struct vocab_token *t)
{
    return t->added & TOKEN_NORMALIZED && t->type != TOKEN_NORMAL && t->type != TOKEN_BYTE;
}

static int decode_token(struct vocab *v, struct vocab_token *t, uint32_t id, struct err *err)
{
    CLEANUP(normal_text_fini) struct normal_text normal = { 0 };
    CLEANUP(buf_fini) struct buf a = { 0 };
    CLEANUP(buf_fini) struct buf b = { 0 };
    struct str text = vocab_token_text(t);
    if (is_normalized(t)) {
        int rc = normalizer_run(v->normal, text, NULL, v->keep_bytes, &normal);
        if (rc < 0) return err_set(err, rc, "token %u cannot be normalised", id);
        text = buf_view(&normal.text);
    }
    buf_str(&a, text);
    for (size_t i = 0; i < v->decode.count && a.rc == 0; i++) {
        buf_clear(&b);
        decode_by(&v->decode.list[i], buf_view(&a), &b);
        struct buf made = b;
        b = a;
        a = made;
    }
    if (a.rc < 0) return err_set(err, a.rc, "no memory for the vocabulary");
    if (a.len > (size_t)DECODED_GROWTH * t->text_len + DECODED_MORE)
        return err_set(err, -E2BIG, "token %u of %u bytes decodes to %zu", id, t->text_len, a.len);
    struct str bytes = arena_str(&v->arena, buf_view(&a));
    if (!bytes.data) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    t->bytes = bytes.data;
    t->bytes_len = (uint32_t)bytes.len;
    return 0;
}

static int set_bytes(struct vocab *v, struct vocab_token *t, uint32_t id, struct err *err)
{
    const bool in_alphabet = v->kind->alphabet && t->type == TOKEN_NORMAL;
    t->bytes = t->text;
    t->bytes_len = t->text_len;
    if (t->type != TOKEN_BYTE && !in_alphabet)
        return v->decode.count > 0 || is_normalized(t) ? decode_token(v, t, id, err) : 0;
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
        t->added = p->added_count ? p->added[i] : 0;
        if (t->added & ~TOKEN_ADDED_FLAGS)
            return err_set(err, -EINVAL, "token %u is added with unknown flags %u", i, t->added);
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
    for (uint32_t i = 0; i < v->token_count; i++)
        if (!isfinite(v->scores[i]))
            return err_set(err, -EINVAL, "the score of token %u is no number", i);
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
        if (text.len == 0 && v->tokens[i].type == TOKEN_UNUSED) continue; /* a gap between ids */
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
    /* A user's text may give the unknown token; a control token it may not. */
    if (s->unk != VOCAB_NONE && !v->kind->alphabet && v->tokens[s->unk].type == TOKEN_CONTROL)
        v->tokens[s->unk].type = TOKEN_UNKNOWN;
    for (size_t i = 0; v->special.eot == VOCAB_NONE && i < COUNT_OF(eot_names); i++) {
        uint32_t id = vocab_find(v, str_from(eot_names[i]));
        if (id != VOCAB_NONE && v->tokens[id].type == TOKEN_CONTROL) v->special.eot = id;
    }
    return 0;
}

static void add_end(struct vocab *v, uint32_t id)
{
    for (uint32_t i = 0; i < v->end_count; i++)
        if (v->ends[i] == id) return;
    if (id != VOCAB_NONE) v->ends[v->end_count++] = id;
}

/* Collects what ends an output; eos and eot are known by now. */
static int copy_ends(struct vocab *v, const struct vocab_parts *p, struct err *err)
{
    if (p->end_count > VOCAB_ENDS_MAX)
        return err_set(err, -E2BIG, "more than %d tokens that end an output", VOCAB_ENDS_MAX);
    add_end(v, v->special.eos);
    add_end(v, v->special.eot);
    v->special_ends = v->end_count;
    for (uint32_t i = 0; i < p->end_count; i++) {
        if (p->ends[i] >= v->token_count)
            return err_set(err, -EINVAL, "token %u, which ends an output, is not there: %u are",
                           p->ends[i], v->token_count);
        add_end(v, p->ends[i]);
    }
    return 0;
}

/* Copies the frame of a raw prompt; begin and end tokens that the file asks for stand outermost. */
static int copy_frame(struct vocab *v, const struct vocab_parts *p, struct err *err)
{
    if (p->before_count > VOCAB_FRAME_MAX || p->after_count > VOCAB_FRAME_MAX)
        return err_set(err, -E2BIG, "more than %d tokens before or behind a prompt",
                       VOCAB_FRAME_MAX);
    for (uint32_t i = 0; i < p->before_count + p->after_count; i++) {
        uint32_t id = i < p->before_count ? p->before[i] : p->after[i - p->before_count];
        if (id >= v->token_count)
            return err_set(err, -EINVAL, "token %u of a prompt's frame is not there", id);
    }
    const struct vocab_special *s = &v->special;
    memcpy(v->before, p->before, sizeof v->before);
    memcpy(v->after, p->after, sizeof v->after);
    v->before_count = p->before_count;
    v->after_count = p->after_count;
    if (s->add_bos) v->frame_before[v->frame_before_count++] = s->bos;
    for (uint32_t i = 0; i < p->before_count; i++)
        v->frame_before[v->frame_before_count++] = p->before[i];
    for (uint32_t i = 0; i < p->after_count; i++)
        v->frame_after[v->frame_after_count++] = p->after[i];
    if (s->add_eos) v->frame_after[v->frame_after_count++] = s->eos;
    return 0;
}

static bool is_marker(const struct vocab_token *t)
{
    return t->text_len > 0 &&
           (t->type == TOKEN_CONTROL || t->type == TOKEN_USER_DEFINED || t->type == TOKEN_UNKNOWN);
}

/* Adds a marker; one that is searched for in the normalised text is normalised itself. */
static int add_marker(struct vocab *v, uint32_t id, struct err *err)
{
    const struct vocab_token *t = &v->tokens[id];
    if (!(t->added & TOKEN_NORMALIZED)) {
        lexicon_add(&v->markers, vocab_token_text(t), id);
        return 0;
    }
    CLEANUP(normal_text_fini) struct normal_text normal = { 0 };
    int rc = normalizer_run(v->normal, vocab_token_text(t), NULL, v->keep_bytes, &normal);
    if (rc < 0) return err_set(err, rc, "token %u cannot be normalised", id);
    if (normal.text.len == 0) return 0; /* nothing is left to search for */
    if (normal.text.len > (size_t)DECODED_GROWTH * t->text_len + DECODED_MORE)
        return err_set(err, -E2BIG, "token %u of %u bytes is %zu when normalised", id, t->text_len,
                       normal.text.len);
    struct str text = arena_str(&v->arena, buf_view(&normal.text));
    if (!text.data) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    lexicon_add(&v->normal_markers, text, id);
    return 0;
}

static int sort_markers(struct vocab *v, struct err *err)
{
    uint32_t raw = 0, normal = 0;
    for (uint32_t i = 0; i < v->token_count; i++) {
        if (!is_marker(&v->tokens[i])) continue;
        *(v->tokens[i].added & TOKEN_NORMALIZED ? &normal : &raw) += 1;
    }
    int rc = lexicon_init(&v->markers, &v->arena, raw);
    if (rc == 0) rc = lexicon_init(&v->normal_markers, &v->arena, normal);
    if (rc < 0) return err_set(err, rc, "no memory for the vocabulary");
    for (uint32_t i = 0; i < v->token_count; i++) {
        rc = is_marker(&v->tokens[i]) ? add_marker(v, i, err) : 0;
        if (rc < 0) return rc;
    }
    lexicon_sort(&v->markers);
    lexicon_sort(&v->normal_markers);
    return 0;
}

/* ---- rules ---- */

static int copy_rule_list(struct vocab *v, enum text_rules_use use, struct text_rules from,
                          struct text_rules *to, struct err *err)
{
    int rc = text_rules_check(use, from, err);
    if (rc < 0) return rc;
    struct text_rule *list = arena_array(&v->arena, from.count, sizeof *list);
    if (!list) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    for (size_t i = 0; i < from.count; i++) {
        list[i] = from.list[i];
        list[i].a = arena_str(&v->arena, from.list[i].a);
        list[i].b = arena_str(&v->arena, from.list[i].b);
        if (!list[i].a.data || !list[i].b.data)
            return err_set(err, -ENOMEM, "no memory for the vocabulary");
    }
    *to = (struct text_rules){ list, from.count };
    return 0;
}

static int copy_rules(struct vocab *v, const struct vocab_parts *p, struct err *err)
{
    if (p->flags & ~VOCAB_FLAGS)
        return err_set(err, -EINVAL, "the vocabulary has unknown flags %x", p->flags);
    if (p->word_chars_max > VOCAB_WORD_CHARS_MAX)
        return err_set(err, -E2BIG, "words of %u characters: at most %d", p->word_chars_max,
                       VOCAB_WORD_CHARS_MAX);
    if (p->continuing.len > TEXT_RULE_TEXT_MAX)
        return err_set(err, -E2BIG, "a mark of %zu bytes for word pieces", p->continuing.len);
    v->flags = p->flags;
    v->keep_bytes = v->kind->alphabet || v->flags & VOCAB_BYTE_FALLBACK;
    v->word_chars_max = p->word_chars_max ? p->word_chars_max : UINT32_MAX;
    v->continuing_mark = arena_str(&v->arena, p->continuing);
    if (!v->continuing_mark.data) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    int rc = copy_rule_list(v, TEXT_RULES_NORMAL, p->normal, &v->normal, err);
    if (rc == 0) rc = copy_rule_list(v, TEXT_RULES_CUT, p->cut, &v->cut, err);
    if (rc == 0) rc = copy_rule_list(v, TEXT_RULES_DECODE, p->decode, &v->decode, err);
    for (size_t i = 0; i < v->decode.count && rc == 0; i++) {
        uint8_t kind = v->decode.list[i].kind;
        if (kind == RULE_STRIP_TEXT) v->lead = LEAD_STRIP_TEXT;
        if (kind == RULE_DROP_FIRST) v->lead = LEAD_DROP_FIRST;
        if (kind == RULE_WORDPIECE || kind == RULE_BLANK) v->first_as_written = true;
    }
    return rc;
}

/* Returns true if no word longer than its normalised form by more than some factor exists, so that the
 * number of ids bounds the bytes of a text. */
static bool shrinks_little(const struct text_rule *r)
{
    if (r->kind >= RULE_NFC && r->kind <= RULE_LOWER) return true;
    if (r->kind == RULE_REPLACE) return !(r->flags & RULE_RUNS) && r->b.len >= r->a.len;
    return r->kind == RULE_PREPEND;
}

#define SHRINK_MAX 4 /* four bytes become one: a mathematical letter */

static void bound_text(struct vocab *v)
{
    bool bounded = v->keep_bytes && !(v->flags & VOCAB_FUSE_UNKNOWN);
    uint32_t factor = 1;
    for (size_t i = 0; i < v->normal.count; i++) {
        bounded = bounded && shrinks_little(&v->normal.list[i]);
        factor = SHRINK_MAX;
    }
    for (size_t i = 0; i < v->cut.count; i++)
        if (v->cut.list[i].behavior == BEHAVIOR_REMOVED) bounded = false;
    for (uint32_t i = 0; i < v->token_count; i++)
        if (v->tokens[i].added & (TOKEN_LSTRIP | TOKEN_RSTRIP)) bounded = false;
    v->text_bytes_max = bounded ? factor * v->token_bytes_max : UINT32_MAX;
}

static void put_str(struct buf *out, struct str s)
{
    buf_u32(out, (uint32_t)s.len);
    buf_str(out, s);
}

static void put_rules(struct buf *out, struct text_rules rules)
{
    buf_u32(out, (uint32_t)rules.count);
    for (size_t i = 0; i < rules.count; i++) {
        const struct text_rule *r = &rules.list[i];
        buf_byte(out, (char)r->kind);
        buf_byte(out, (char)r->flags);
        buf_byte(out, (char)r->behavior);
        put_str(out, r->a);
        put_str(out, r->b);
    }
}

static void put_ids(struct buf *out, const uint32_t *ids, uint32_t count)
{
    buf_u32(out, count);
    for (uint32_t i = 0; i < count; i++)
        buf_u32(out, ids[i]);
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
    for (uint32_t i = 0; i < v->token_count; i++)
        buf_byte(out, (char)v->tokens[i].added);
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
    buf_u32(out, v->flags);
    put_rules(out, v->normal);
    put_rules(out, v->cut);
    put_rules(out, v->decode);
    put_str(out, v->continuing_mark);
    buf_u32(out, v->word_chars_max == UINT32_MAX ? 0 : v->word_chars_max);
    put_ids(out, v->before, v->before_count);
    put_ids(out, v->after, v->after_count);
    if (v->end_count > v->special_ends)
        put_ids(out, v->ends + v->special_ends, v->end_count - v->special_ends);
    return out->rc;
}

static size_t rules_bytes(struct text_rules rules)
{
    size_t bytes = 0;
    for (size_t i = 0; i < min_size(rules.count, TEXT_RULES_MAX); i++)
        bytes += sizeof(struct text_rule) + rules.list[i].a.len + rules.list[i].b.len + 64;
    return bytes;
}

/* Returns the bound of the arena: each token with what it decodes to and its normalised form, the arrays,
 * the indexes. */
static size_t arena_bound(const struct vocab_parts *p)
{
    size_t text = 0;
    for (size_t i = 0; i < p->token_count; i++)
        text += (1 + 2 * DECODED_GROWTH) * p->tokens[i].len;
    size_t merge = sizeof(struct vocab_merge) + 4 * sizeof(uint64_t);
    size_t rules = rules_bytes(p->normal) + rules_bytes(p->cut) + rules_bytes(p->decode);
    return text + rules + p->token_count * 512 + p->merge_count * merge + (1u << 20);
}

int vocab_build(const struct vocab_parts *parts, struct vocab **ret, struct err *err)
{
    int rc = check_counts(parts, err);
    if (rc < 0) return rc;
    CLEANUP(vocab_freep) struct vocab *v = calloc(1, sizeof *v);
    if (!v) return err_set(err, -ENOMEM, "no memory for the vocabulary");
    arena_init(&v->arena, arena_bound(parts));
    rc = find_names(v, parts, err);
    if (rc == 0) rc = copy_rules(v, parts, err);
    if (rc == 0) rc = copy_tokens(v, parts, err);
    if (rc == 0) rc = index_texts(v, err);
    if (rc == 0) rc = copy_merges(v, parts, err);
    if (rc == 0) rc = copy_special(v, &parts->special, err);
    if (rc == 0) rc = copy_ends(v, parts, err);
    if (rc == 0) rc = copy_frame(v, parts, err);
    if (rc == 0) rc = sort_markers(v, err);
    if (rc == 0) rc = v->kind->finish(v, err);
    if (rc < 0) return rc;
    bound_text(v);
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
    return v->text_bytes_max;
}

size_t vocab_ends(const struct vocab *v, const uint32_t **ret)
{
    *ret = v->ends;
    return v->end_count;
}

bool vocab_is_end(const struct vocab *v, uint32_t id)
{
    for (size_t i = 0; i < v->end_count; i++)
        if (v->ends[i] == id) return true;
    return false;
}

size_t vocab_before(const struct vocab *v, const uint32_t **ret)
{
    *ret = v->frame_before;
    return v->frame_before_count;
}

size_t vocab_after(const struct vocab *v, const uint32_t **ret)
{
    *ret = v->frame_after;
    return v->frame_after_count;
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
    return v->pre ? str_from(v->pre->name) : (struct str){ 0 };
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

uint32_t vocab_added(const struct vocab *v, uint32_t id)
{
    return id < v->token_count ? v->tokens[id].added : 0;
}

size_t vocab_merge_count(const struct vocab *v)
{
    return v->merge_count;
}

void vocab_merge(const struct vocab *v, size_t i, uint32_t ret_pair[2])
{
    must(i < v->merge_count);
    ret_pair[0] = v->merges[i].left;
    ret_pair[1] = v->merges[i].right;
}

bool vocab_has_rules(const struct vocab *v)
{
    return v->normal.count > 0 || v->cut.count > 0 || v->decode.count > 0;
}

bool vocab_whole_words(const struct vocab *v)
{
    return v->flags & VOCAB_WHOLE_WORDS || (v->pre && v->pre->whole_word_first);
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

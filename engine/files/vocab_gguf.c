/* vocab_gguf.c - reads tokenizer.ggml.* into struct vocab_parts, and writes them.
 *
 * Optional keys may be absent, but a file is refused if a key is there with another type:
 * a tokenizer that is slightly wrong gives output that is slightly wrong. */
#include "engine/files/vocab_gguf.h"

#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/text/pretokenizer.h"

#include <stdlib.h>

struct arrays {
    uint8_t *types;
    double *scores;
    char *charsmap;
    struct vocab_gguf_rules rules;
};

static void arrays_fini(struct arrays *a)
{
    free(a->types);
    free(a->scores);
    free(a->charsmap);
}

static int absent_is_fine(int rc)
{
    return rc == -ENOENT ? 0 : rc;
}

static int read_texts(const struct gguf *g, const char *key, const struct str **ret, size_t *count,
                      struct err *err)
{
    const struct gguf_value *v;
    int rc = gguf_get_array(g, key, GGUF_STRING, &v, err);
    if (rc < 0) return rc;
    *ret = v->array.texts;
    *count = v->array.count;
    return 0;
}

static int read_types(const struct gguf *g, struct vocab_parts *parts, struct arrays *a,
                      struct err *err)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_value *v;
    int rc = gguf_get_array(g, key, GGUF_I32, &v, err);
    if (rc < 0) return absent_is_fine(rc);
    a->types = malloc(v->array.count + 1);
    if (!a->types) return err_set(err, -ENOMEM, "no memory for %zu token types", v->array.count);
    for (size_t i = 0; i < v->array.count; i++) {
        uint32_t type = load_u32(v->array.items + i * sizeof type);
        if (type < TOKEN_NORMAL || type >= TOKEN_TYPE_COUNT)
            return err_set(err, -EINVAL, STR_FMT ": key '%s': token %zu has type %d, 1 to %d exist",
                           STR_ARG(g->file), key, i, (int)type, TOKEN_TYPE_COUNT - 1);
        a->types[i] = (uint8_t)type;
    }
    parts->types = a->types;
    parts->type_count = v->array.count;
    return 0;
}

static int read_scores(const struct gguf *g, struct vocab_parts *parts, struct arrays *a,
                       struct err *err)
{
    const struct gguf_value *v;
    int rc = gguf_get_array(g, "tokenizer.ggml.scores", GGUF_F32, &v, err);
    if (rc < 0) return absent_is_fine(rc);
    a->scores = calloc(v->array.count + 1, sizeof *a->scores);
    if (!a->scores) return err_set(err, -ENOMEM, "no memory for %zu scores", v->array.count);
    for (size_t i = 0; i < v->array.count; i++) {
        float score;
        memcpy(&score, v->array.items + i * sizeof score, sizeof score);
        a->scores[i] = score;
    }
    parts->scores = a->scores;
    parts->score_count = v->array.count;
    return 0;
}

/* Fills the special tokens that files of a kind leave out. */
static void default_special(struct str kind, struct vocab_special *s)
{
    if (str_eq(kind, STR("llama")))
        *s = (struct vocab_special){ 1, 2, VOCAB_NONE, VOCAB_NONE, 0, true, false };
    if (str_eq(kind, STR("t5")))
        *s = (struct vocab_special){ VOCAB_NONE, 1, VOCAB_NONE, 0, 2, false, true };
}

static int read_special(const struct gguf *g, struct vocab_special *s, struct err *err)
{
    const struct {
        const char *key;
        uint32_t *to;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", &s->bos },
        { "tokenizer.ggml.eos_token_id", &s->eos },
        { "tokenizer.ggml.eot_token_id", &s->eot },
        { "tokenizer.ggml.padding_token_id", &s->pad },
        { "tokenizer.ggml.unknown_token_id", &s->unk },
    };
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(ids) && rc == 0; i++)
        rc = absent_is_fine(gguf_get_u32(g, ids[i].key, ids[i].to, err));
    if (rc == 0)
        rc = absent_is_fine(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &s->add_bos, err));
    if (rc == 0)
        rc = absent_is_fine(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &s->add_eos, err));
    return rc;
}

/* Reads an optional id of a frame and appends it. */
static int read_frame(const struct gguf *g, const char *key, uint32_t *ids, uint32_t *count,
                      struct err *err)
{
    int rc = gguf_get_u32(g, key, &ids[*count], err);
    if (rc == 0) *count += 1;
    return absent_is_fine(rc);
}

/* The end of a message that hands over to a tool. */
static int read_further_end(const struct gguf *g, struct vocab_parts *p, struct err *err)
{
    uint32_t eom = VOCAB_NONE;
    int rc = absent_is_fine(gguf_get_u32(g, "tokenizer.ggml.eom_token_id", &eom, err));
    if (rc == 0 && eom != VOCAB_NONE && eom != p->special.eos && eom != p->special.eot)
        p->ends[p->end_count++] = eom;
    return rc;
}

/* Takes a token of a frame where no key of its own says which: the begin or end token, or by its usual name. */
static void find_frame(const struct vocab_parts *p, uint32_t special, struct str name,
                       uint32_t *ids, uint32_t *count)
{
    for (size_t i = 0; i < p->token_count && special == VOCAB_NONE && *count == 0; i++)
        if (str_eq(p->tokens[i], name)) special = (uint32_t)i;
    if (*count == 0 && special != VOCAB_NONE) ids[(*count)++] = special;
}

/* A BERT prompt stands between two tokens; the second key is spelled so in the files. Newer ones name the
 * first as the begin token. */
static int read_bert_frame(const struct gguf *g, struct vocab_parts *p, struct err *err)
{
    if (!str_eq(p->kind, STR("bert"))) return 0;
    int rc = read_frame(g, "tokenizer.ggml.cls_token_id", p->before, &p->before_count, err);
    if (rc == 0)
        rc = read_frame(g, "tokenizer.ggml.seperator_token_id", p->after, &p->after_count, err);
    find_frame(p, p->special.bos, STR("[CLS]"), p->before, &p->before_count);
    find_frame(p, p->special.eos, STR("[SEP]"), p->after, &p->after_count);
    p->special.add_bos = p->special.add_eos = false;
    return rc;
}

static int read_charsmap(const struct gguf *g, struct vocab_gguf_switches *switches,
                         struct arrays *a, struct err *err)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_value *v = gguf_find(g, str_from(key));
    if (!v) return 0;
    bool bytes = v->type == GGUF_ARRAY && (v->array.type == GGUF_U8 || v->array.type == GGUF_I8);
    if (!bytes)
        return err_set(err, -EINVAL, STR_FMT ": key '%s' is no array of bytes", STR_ARG(g->file),
                       key);
    a->charsmap = malloc(v->array.count + 1);
    if (!a->charsmap) return err_set(err, -ENOMEM, "no memory for the character map");
    memcpy(a->charsmap, v->array.items, v->array.count);
    switches->charsmap = str_of(a->charsmap, v->array.count);
    return 0;
}

/* Reads the switches of the kinds of SentencePiece and BERT. */
static int read_rules(const struct gguf *g, struct vocab_parts *p, struct arrays *a,
                      struct err *err)
{
    struct vocab_gguf_switches switches = { .add_space_prefix = true,
                                            .remove_extra_whitespaces = true };
    const char *suffix = "tokenizer.ggml.treat_whitespace_as_suffix";
    bool as_suffix = false;
    int rc = absent_is_fine(
        gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &switches.add_space_prefix, err));
    if (rc == 0)
        rc = absent_is_fine(gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces",
                                          &switches.remove_extra_whitespaces, err));
    if (rc == 0) rc = absent_is_fine(gguf_get_bool(g, suffix, &as_suffix, err));
    if (rc == 0 && as_suffix)
        rc = err_set(err, -ENOTSUP, STR_FMT ": key '%s': true is not supported", STR_ARG(g->file),
                     suffix);
    if (rc == 0) rc = read_charsmap(g, &switches, a, err);
    if (rc == 0) vocab_rules_of_gguf(p, &switches, &a->rules);
    return rc;
}

int vocab_from_gguf(const struct gguf *g, struct vocab **ret, struct err *err)
{
    CLEANUP(arrays_fini) struct arrays a = { 0 };
    struct vocab_parts parts = { 0 };
    int rc = gguf_get_str(g, "tokenizer.ggml.model", &parts.kind, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    if (str_eq(parts.kind, STR("no_vocab"))) {
        *ret = NULL;
        return 0;
    }
    parts.special = VOCAB_SPECIAL_NONE;
    default_special(parts.kind, &parts.special);
    rc = read_texts(g, "tokenizer.ggml.tokens", &parts.tokens, &parts.token_count, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    rc = absent_is_fine(gguf_get_str(g, "tokenizer.ggml.pre", &parts.pre, err));
    if (rc == 0)
        rc = absent_is_fine(
            read_texts(g, "tokenizer.ggml.merges", &parts.merges, &parts.merge_count, err));
    if (rc == 0) rc = read_types(g, &parts, &a, err);
    if (rc == 0) rc = read_scores(g, &parts, &a, err);
    if (rc == 0) rc = read_special(g, &parts.special, err);
    if (rc == 0) rc = read_further_end(g, &parts, err);
    if (rc == 0) rc = read_bert_frame(g, &parts, err);
    if (rc == 0) rc = read_rules(g, &parts, &a, err);
    if (rc < 0) return rc;
    rc = vocab_build(&parts, ret, err);
    return rc < 0 ? err_prefix(err, rc, STR_FMT ": vocabulary", STR_ARG(g->file)) : 0;
}

/* ---- writing ---- */

/* Returns the name of the rule for words, as files have it; NULL when they have none. */
static const char *pre_name(const struct vocab *v)
{
    const struct pretokenizer *pre = pretokenizer_find(vocab_pre(v));
    return pre ? pretokenizer_alias(pre, vocab_whole_words(v)) : NULL;
}

static int check_sayable(const struct vocab *v, struct err *err)
{
    const char *problem = NULL;
    const struct vocab_special *s = vocab_special(v);
    const uint32_t *first, *last, *ends;
    size_t before = vocab_before(v, &first), after = vocab_after(v, &last);
    if (!str_eq(vocab_kind(v), STR("gpt2")))
        problem = "it is no byte-level BPE";
    else if (!pre_name(v))
        problem = "its rule for words has no name there";
    else if (vocab_has_rules(v))
        problem = "it normalises texts";
    else if (before > 1 || (before == 1 && first[0] != s->bos) || after > 1 ||
             (after == 1 && last[0] != s->eos))
        problem = "a prompt stands between other tokens than a begin and an end token";
    else if (vocab_ends(v, &ends) >
             (size_t)(s->eos != VOCAB_NONE) + (s->eot != VOCAB_NONE && s->eot != s->eos) + 1)
        problem = "more tokens end an output than a file has places for";
    for (uint32_t i = 0; i < vocab_count(v) && !problem; i++)
        if (vocab_added(v, i) & (TOKEN_LSTRIP | TOKEN_RSTRIP | TOKEN_SINGLE_WORD))
            problem = "some of its tokens take white space with them, or only stand alone";
    if (!problem) return 0;
    return err_set(err, -ENOTSUP,
                   "the tokenizer cannot be said in a GGUF file: %s; serve the folder as it is",
                   problem);
}

static void put_special(const struct vocab *v, struct gguf_writer *w)
{
    const struct vocab_special *s = vocab_special(v);
    const uint32_t *ends;
    uint32_t eom = VOCAB_NONE;
    for (size_t i = 0, count = vocab_ends(v, &ends); i < count; i++)
        if (ends[i] != s->eos && ends[i] != s->eot) eom = ends[i];
    const struct {
        const char *key;
        uint32_t id;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", s->bos },
        { "tokenizer.ggml.eos_token_id", s->eos },
        { "tokenizer.ggml.eot_token_id", s->eot },
        { "tokenizer.ggml.eom_token_id", eom },
        { "tokenizer.ggml.padding_token_id", s->pad },
        { "tokenizer.ggml.unknown_token_id", s->unk },
    };
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        if (ids[i].id != VOCAB_NONE) gguf_put_u32(w, ids[i].key, ids[i].id);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", vocab_before(v, &ends) > 0);
    gguf_put_bool(w, "tokenizer.ggml.add_eos_token", vocab_after(v, &ends) > 0);
}

static void put_list(struct gguf_writer *w, const char *key, const struct str *texts, size_t count)
{
    struct gguf_value value = { .key = str_from(key), .type = GGUF_ARRAY };
    value.array.type = GGUF_STRING;
    value.array.count = count;
    value.array.texts = texts;
    gguf_put_value(w, &value);
}

/* The arrays that the values point to until they are put. */
struct lists {
    struct str *tokens, *merges;
    uint32_t *types;
    struct arena text;
};

static void lists_fini(struct lists *l)
{
    free(l->tokens);
    free(l->merges);
    free(l->types);
    arena_fini(&l->text);
}

/* "left right" */
static struct str merge_text(struct lists *l, const struct vocab *v, size_t i)
{
    uint32_t pair[2];
    vocab_merge(v, i, pair);
    struct str left = vocab_text(v, pair[0]), right = vocab_text(v, pair[1]);
    char *text = arena_alloc(&l->text, left.len + 1 + right.len);
    if (!text) return (struct str){ 0 };
    memcpy(text, left.data, left.len);
    text[left.len] = ' ';
    memcpy(text + left.len + 1, right.data, right.len);
    return str_of(text, left.len + 1 + right.len);
}

int vocab_to_gguf(const struct vocab *v, const struct chat_template *t, struct gguf_writer *w,
                  struct err *err)
{
    CLEANUP(lists_fini) struct lists l = { 0 };
    const size_t tokens = vocab_count(v), merges = vocab_merge_count(v);
    int rc = check_sayable(v, err);
    if (rc < 0) return rc;
    arena_init(&l.text, VOCAB_TEXT_BYTES_MAX);
    l.tokens = calloc(tokens + 1, sizeof *l.tokens);
    l.types = calloc(tokens + 1, sizeof *l.types);
    l.merges = calloc(merges + 1, sizeof *l.merges);
    if (!l.tokens || !l.types || !l.merges)
        return err_set(err, -ENOMEM, "no memory for %zu tokens", tokens);
    for (uint32_t i = 0; i < tokens; i++) {
        l.tokens[i] = vocab_text(v, i);
        l.types[i] = vocab_type(v, i);
    }
    for (size_t i = 0; i < merges; i++) {
        l.merges[i] = merge_text(&l, v, i);
        if (l.merges[i].len == 0) return err_set(err, -ENOMEM, "no memory for %zu merges", merges);
    }
    gguf_put_str(w, "tokenizer.ggml.model", vocab_kind(v));
    gguf_put_str(w, "tokenizer.ggml.pre", str_from(pre_name(v)));
    put_list(w, "tokenizer.ggml.tokens", l.tokens, tokens);
    struct gguf_value types = { .key = STR("tokenizer.ggml.token_type"), .type = GGUF_ARRAY };
    types.array.type = GGUF_I32;
    types.array.count = tokens;
    types.array.items = (const char *)l.types;
    gguf_put_value(w, &types);
    put_list(w, "tokenizer.ggml.merges", l.merges, merges);
    put_special(v, w);
    if (t) gguf_put_str(w, "tokenizer.chat_template", chat_template_source(t));
    return 0;
}

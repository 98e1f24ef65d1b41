/* tokenizer_json.c - reads model and added tokens, and joins them with rules, frame and special tokens.
 *
 *     model.vocab, added_tokens -> tokens, types    normalizer, pre_tokenizer, decoder -> rules (rules_json)
 *     model.merges              -> merge_ids        post_processor -> frame (frame_json)
 *     tokenizer_config, config, generation_config   -> special ids
 *
 * Ids come from the file in any order and may have gaps; a gap becomes an unused token without text. All
 * memory is of one arena whose bound follows from the file's length, and of arrays by id.
 */
#include "base/text/tokenizer_json.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/text/frame_json.h"
#include "base/text/rules_json.h"
#include "base/text/tokenizer_config.h"

#include <stdlib.h>

/* Tokens by id, while they are collected; and where a text's id is found. */
/* Ids without a token are allowed, as vocabularies are filled up for the hardware; a short file with a huge id would
 * have tables of that size made. */
#define GAPS_MAX 8192u
#define TOKEN_BYTES_MIN 5 /* "":0, */

struct tokens {
    struct str *text;
    uint8_t *types, *added;
    double *scores;
    uint32_t count, cap;
    uint64_t ids_max;  /* of this file */
    uint32_t *by_text; /* open addressing: ids; made when the model's tokens are all there */
    uint32_t mask;
};

struct reader {
    struct arena arena;
    struct tokens tokens;
    struct json_rules rules;
    uint32_t *merges; /* left, right, ... */
    size_t merge_count, merge_cap;
    struct vocab_parts parts;
    struct str unk; /* text of the unknown token */
};

static void reader_fini(struct reader *r)
{
    free(r->tokens.text);
    free(r->tokens.types);
    free(r->tokens.added);
    free(r->tokens.scores);
    free(r->tokens.by_text);
    free(r->merges);
    arena_fini(&r->arena);
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the tokenizer");
}

/* ---- tokens by id ---- */

static bool grow(void **array, size_t count, size_t size)
{
    void *made = realloc(*array, count * size);
    if (made) *array = made;
    return made != NULL;
}

static int reserve(struct tokens *t, uint32_t count, struct err *err)
{
    if (count <= t->cap) return 0;
    uint32_t cap = t->cap ? t->cap : 1024;
    while (cap < count)
        cap *= 2;
    if (!grow((void **)&t->text, cap, sizeof *t->text) || !grow((void **)&t->types, cap, 1) ||
        !grow((void **)&t->added, cap, 1) || !grow((void **)&t->scores, cap, sizeof *t->scores))
        return no_memory(err);
    t->cap = cap;
    return 0;
}

/* Adds unused tokens until there are `count`. */
static int add_gaps(struct tokens *t, uint32_t count, struct err *err)
{
    int rc = reserve(t, count, err);
    if (rc < 0) return rc;
    for (; t->count < count; t->count++) {
        t->text[t->count] = (struct str){ 0 };
        t->types[t->count] = TOKEN_UNUSED;
        t->added[t->count] = 0;
        t->scores[t->count] = 0;
    }
    return 0;
}

/* Sets a token; the ids before it that are not there yet are gaps. */
static int set_token(struct tokens *t, const struct json_place *at, uint32_t id, struct str text,
                     double score, struct err *err)
{
    if (id >= VOCAB_TOKENS_MAX)
        return json_bad(at, -E2BIG, err, "token id %u: below %u are allowed", id, VOCAB_TOKENS_MAX);
    if (id >= t->ids_max)
        return json_bad(at, -EINVAL, err, "token id %u: more than %u ids before it have no token",
                        id, GAPS_MAX);
    int rc = add_gaps(t, id + 1, err);
    if (rc < 0) return rc;
    if (t->types[id] != TOKEN_UNUSED)
        return json_bad(at, -EINVAL, err, "two tokens have the id %u", id);
    t->text[id] = text;
    t->types[id] = TOKEN_NORMAL;
    t->scores[id] = score;
    return 0;
}

static uint32_t slot_of(const struct tokens *t, struct str text)
{
    uint32_t slot = (uint32_t)hash64(text.data, text.len, 0) & t->mask;
    while (t->by_text[slot] != VOCAB_NONE && !str_eq(t->text[t->by_text[slot]], text))
        slot = (slot + 1) & t->mask;
    return slot;
}

static int index_tokens(struct tokens *t, struct err *err)
{
    uint32_t slots = 16;
    while (slots < 2 * t->count)
        slots *= 2;
    t->by_text = malloc(slots * sizeof *t->by_text);
    if (!t->by_text) return no_memory(err);
    memset(t->by_text, 0xFF, slots * sizeof *t->by_text);
    t->mask = slots - 1;
    for (uint32_t id = 0; id < t->count; id++)
        if (t->types[id] != TOKEN_UNUSED) t->by_text[slot_of(t, t->text[id])] = id;
    return 0;
}

static uint32_t find_token(const struct tokens *t, struct str text)
{
    return t->by_text[slot_of(t, text)];
}

/* ---- the model ---- */

enum {
    M_TYPE,
    M_VOCAB,
    M_MERGES,
    M_UNK_TOKEN,
    M_UNK_ID,
    M_BYTES,
    M_FUSE,
    M_IGNORE,
    M_PREFIX,
    M_SUFFIX,
    M_DROPOUT,
    M_CHARS,
    M_FIELDS
};

/* Reads {"token": id, ...}. */
static int read_vocab_object(struct reader *r, const struct json_place *at,
                             const struct json_field *f, struct err *err)
{
    const struct json_place here = json_member(at, f->name);
    struct json_reader in;
    json_reader_init(&in, f->raw);
    in.keys_max = VOCAB_TOKENS_MAX;
    if (json_next(&in) != JSON_OBJECT) return json_bad(&here, -EINVAL, err, "want an object");
    while (json_next(&in) == JSON_KEY) {
        struct str text;
        uint64_t id;
        if (json_text_arena(&in, &r->arena, &text) < 0) return no_memory(err);
        json_next(&in);
        if (json_u64(&in, &id) < 0 || id > UINT32_MAX)
            return json_bad(&here, -EINVAL, err, "the id of \"%.*s\" is no id",
                            (int)min_size(text.len, 64), text.data);
        int rc = set_token(&r->tokens, &here, (uint32_t)id, text, 0, err);
        if (rc < 0) return rc;
    }
    return in.token == JSON_OBJECT_END ? 0 : json_fail(&in, err, here.path);
}

static int read_piece(void *ctx, const struct json_place *at, struct str raw, struct err *err)
{
    struct reader *r = ctx;
    struct json_reader in;
    struct str text;
    double score;
    json_reader_init(&in, raw);
    if (json_next(&in) != JSON_ARRAY || json_next(&in) != JSON_STRING)
        return json_bad(at, -EINVAL, err, "want [text, score]");
    if (json_text_arena(&in, &r->arena, &text) < 0) return no_memory(err);
    json_next(&in);
    if (json_f64(&in, &score) < 0 || json_next(&in) != JSON_ARRAY_END)
        return json_bad(at, -EINVAL, err, "want [text, score]");
    return set_token(&r->tokens, at, r->tokens.count, text, score, err);
}

static int merge_of(const struct reader *r, const struct json_place *at, struct str left,
                    struct str right, uint32_t *ret, struct err *err)
{
    ret[0] = find_token(&r->tokens, left);
    ret[1] = find_token(&r->tokens, right);
    if (ret[0] != VOCAB_NONE && ret[1] != VOCAB_NONE) return 0;
    return json_bad(at, -EINVAL, err, "\"%.*s\" + \"%.*s\" names a token that is not there",
                    (int)min_size(left.len, 40), left.data, (int)min_size(right.len, 40),
                    right.data);
}

/* Reads "left right" or ["left", "right"]. */
static int read_merge(void *ctx, const struct json_place *at, struct str raw, struct err *err)
{
    struct reader *r = ctx;
    struct json_reader in;
    struct str left = { 0 }, right = { 0 };
    json_reader_init(&in, raw);
    bool pair = json_next(&in) == JSON_ARRAY;
    if (pair) json_next(&in);
    if (in.token != JSON_STRING) return json_bad(at, -EINVAL, err, "want two tokens");
    if (json_text_arena(&in, &r->arena, &left) < 0) return no_memory(err);
    if (pair && json_next(&in) != JSON_STRING) return json_bad(at, -EINVAL, err, "want two tokens");
    if (pair && json_text_arena(&in, &r->arena, &right) < 0) return no_memory(err);
    if (pair && json_next(&in) != JSON_ARRAY_END)
        return json_bad(at, -EINVAL, err, "want two tokens");
    if (!pair) {
        right = left;
        left = str_cut(&right, ' ');
    }
    if (r->merge_count == VOCAB_MERGES_MAX)
        return json_bad(at, -E2BIG, err, "more than %u merges", VOCAB_MERGES_MAX);
    if (r->merge_count == r->merge_cap) {
        size_t cap = r->merge_cap ? 2 * r->merge_cap : 1024;
        if (!grow((void **)&r->merges, cap, 2 * sizeof *r->merges)) return no_memory(err);
        r->merge_cap = cap;
    }
    int rc = merge_of(r, at, left, right, r->merges + 2 * r->merge_count, err);
    if (rc == 0) r->merge_count++;
    return rc;
}

/* Refuses a text member that must be absent or empty. */
static int must_be_empty(const struct json_place *at, const struct json_field *f, struct err *err)
{
    struct str text = { 0 };
    int rc = json_field_text(at, f, &text, err);
    const struct json_place here = json_member(at, f->name);
    if (rc < 0 || text.len == 0) return rc;
    return json_bad(&here, -ENOTSUP, err, "\"%.*s\" is not supported", (int)min_size(text.len, 64),
                    text.data);
}

static int read_bpe(struct reader *r, const struct json_place *at, const struct json_field *f,
                    struct err *err)
{
    bool bytes = false, fuse = false, ignore = false;
    int rc = read_vocab_object(r, at, &f[M_VOCAB], err);
    if (rc == 0) rc = index_tokens(&r->tokens, err);
    if (rc == 0) rc = json_items(at, &f[M_MERGES], read_merge, r, err);
    if (rc == 0) rc = json_field_text(at, &f[M_UNK_TOKEN], &r->unk, err);
    if (rc == 0) rc = json_field_bool(at, &f[M_BYTES], &bytes, err);
    if (rc == 0) rc = json_field_bool(at, &f[M_FUSE], &fuse, err);
    if (rc == 0) rc = json_field_bool(at, &f[M_IGNORE], &ignore, err);
    if (rc == 0) rc = must_be_empty(at, &f[M_PREFIX], err);
    if (rc == 0) rc = must_be_empty(at, &f[M_SUFFIX], err);
    if (rc < 0) return rc;
    struct str dropout = f[M_DROPOUT].raw;
    if (dropout.len > 0 && !str_eq(dropout, STR("0")) && !str_eq(dropout, STR("0.0")))
        return json_bad(at, -ENOTSUP, err, "dropout makes ids a matter of chance");
    r->parts.kind = r->rules.byte_level ? STR("gpt2") : STR("bpe");
    if (bytes) r->parts.flags |= VOCAB_BYTE_FALLBACK;
    if (fuse) r->parts.flags |= VOCAB_FUSE_UNKNOWN;
    if (ignore) r->parts.flags |= VOCAB_WHOLE_WORDS;
    return 0;
}

static int read_wordpiece(struct reader *r, const struct json_place *at, const struct json_field *f,
                          struct err *err)
{
    r->parts.kind = STR("bert");
    r->parts.continuing = STR("##");
    r->parts.word_chars_max = 100;
    r->unk = STR("[UNK]");
    int rc = read_vocab_object(r, at, &f[M_VOCAB], err);
    if (rc == 0) rc = index_tokens(&r->tokens, err);
    if (rc == 0) rc = json_field_text(at, &f[M_UNK_TOKEN], &r->unk, err);
    if (rc == 0) rc = json_field_text(at, &f[M_PREFIX], &r->parts.continuing, err);
    if (rc == 0) rc = json_field_u32(at, &f[M_CHARS], &r->parts.word_chars_max, err);
    if (rc == 0 && (r->parts.continuing.len == 0 || r->parts.word_chars_max == 0))
        rc = json_bad(at, -ENOTSUP, err,
                      "an empty continuing_subword_prefix, or words of no characters");
    return rc;
}

static int read_unigram(struct reader *r, const struct json_place *at, const struct json_field *f,
                        struct err *err)
{
    bool bytes = false;
    uint32_t unk = VOCAB_NONE;
    r->parts.kind = STR("t5");
    r->parts.flags |= VOCAB_FUSE_UNKNOWN;
    int rc = json_items(at, &f[M_VOCAB], read_piece, r, err);
    if (rc == 0) rc = index_tokens(&r->tokens, err);
    if (rc == 0) rc = json_field_u32(at, &f[M_UNK_ID], &unk, err);
    if (rc == 0) rc = json_field_bool(at, &f[M_BYTES], &bytes, err);
    if (rc < 0) return rc;
    if (unk != VOCAB_NONE && unk >= r->tokens.count)
        return json_bad(at, -EINVAL, err, "unk_id %u is no token", unk);
    if (unk != VOCAB_NONE) r->unk = r->tokens.text[unk];
    if (bytes) r->parts.flags |= VOCAB_BYTE_FALLBACK;
    r->parts.scores = r->tokens.scores;
    return 0;
}

static int read_wordlevel(struct reader *r, const struct json_place *at, const struct json_field *f,
                          struct err *err)
{
    r->parts.kind = STR("wordlevel");
    int rc = read_vocab_object(r, at, &f[M_VOCAB], err);
    if (rc == 0) rc = index_tokens(&r->tokens, err);
    return rc < 0 ? rc : json_field_text(at, &f[M_UNK_TOKEN], &r->unk, err);
}

static int read_model(struct reader *r, struct str raw, struct err *err)
{
    struct json_place at = { "model", &r->arena };
    struct json_field f[M_FIELDS] = {
        [M_TYPE] = { .name = "type" },
        [M_VOCAB] = { .name = "vocab" },
        [M_MERGES] = { .name = "merges" },
        [M_UNK_TOKEN] = { .name = "unk_token" },
        [M_UNK_ID] = { .name = "unk_id" },
        [M_BYTES] = { .name = "byte_fallback" },
        [M_FUSE] = { .name = "fuse_unk" },
        [M_IGNORE] = { .name = "ignore_merges" },
        [M_PREFIX] = { .name = "continuing_subword_prefix" },
        [M_SUFFIX] = { .name = "end_of_word_suffix" },
        [M_DROPOUT] = { .name = "dropout" },
        [M_CHARS] = { .name = "max_input_chars_per_word" },
    };
    struct str type = { 0 };
    int rc = json_fields(&at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(&at, &f[M_TYPE], &type, err);
    if (rc < 0) return rc;
    if (type.len == 0 && f[M_MERGES].raw.len > 0)
        type = STR("BPE"); /* files of 2020 have no type */
    if (f[M_VOCAB].raw.len == 0) return json_bad(&at, -EINVAL, err, "has no vocab");
    if (str_eq(type, STR("BPE"))) return read_bpe(r, &at, f, err);
    if (str_eq(type, STR("WordPiece"))) return read_wordpiece(r, &at, f, err);
    if (str_eq(type, STR("Unigram"))) return read_unigram(r, &at, f, err);
    if (str_eq(type, STR("WordLevel"))) return read_wordlevel(r, &at, f, err);
    return json_bad(&at, -ENOTSUP, err, "type \"%.*s\" is not supported",
                    (int)min_size(type.len, 64), type.data);
}

/* ---- added tokens ---- */

static int place_added(struct reader *r, const struct json_place *at, uint32_t id, struct str text,
                       struct err *err)
{
    const uint32_t known = find_token(&r->tokens, text);
    if (known == id) return 0;
    if (known != VOCAB_NONE)
        return json_bad(at, -EINVAL, err, "has the id %u, but \"%.*s\" is token %u", id,
                        (int)min_size(text.len, 64), text.data, known);
    int rc = set_token(&r->tokens, at, id, text, 0, err);
    if (rc == 0) r->tokens.added[id] = TOKEN_OUTSIDE;
    return rc;
}

static int read_added(void *ctx, const struct json_place *at, struct str raw, struct err *err)
{
    struct reader *r = ctx;
    struct json_field f[] = { { .name = "id" },          { .name = "content" },
                              { .name = "lstrip" },      { .name = "rstrip" },
                              { .name = "single_word" }, { .name = "normalized" },
                              { .name = "special" } };
    static const uint8_t bits[] = { TOKEN_LSTRIP, TOKEN_RSTRIP, TOKEN_SINGLE_WORD,
                                    TOKEN_NORMALIZED };
    bool on[COUNT_OF(bits)] = { false }, special = false;
    uint32_t id = VOCAB_NONE;
    struct str text = { 0 };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_u32(at, &f[0], &id, err);
    if (rc == 0) rc = json_field_text(at, &f[1], &text, err);
    for (size_t i = 0; i < COUNT_OF(bits) && rc == 0; i++)
        rc = json_field_bool(at, &f[i + 2], &on[i], err);
    if (rc == 0) rc = json_field_bool(at, &f[6], &special, err);
    if (rc == 0 && id == VOCAB_NONE) rc = json_bad(at, -EINVAL, err, "has no id");
    if (rc == 0 && text.len == 0) rc = json_bad(at, -EINVAL, err, "has no content");
    if (rc == 0) rc = place_added(r, at, id, text, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < COUNT_OF(bits); i++)
        if (on[i]) r->tokens.added[id] |= bits[i];
    r->tokens.types[id] = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    return 0;
}

/* Marks the tokens <0xNN> of a vocabulary that falls back to bytes. */
static void mark_bytes(struct reader *r)
{
    if (!(r->parts.flags & VOCAB_BYTE_FALLBACK) && !r->rules.byte_fallback) return;
    for (uint32_t byte = 0; byte < 256; byte++) {
        static const char digits[] = "0123456789ABCDEF";
        const char name[] = { '<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>' };
        uint32_t id = find_token(&r->tokens, str_of(name, sizeof name));
        if (id != VOCAB_NONE && r->tokens.types[id] == TOKEN_NORMAL)
            r->tokens.types[id] = TOKEN_BYTE;
    }
}

/* Passes on the arrays, which may have moved. */
static void give_tokens(struct reader *r)
{
    r->parts.tokens = r->tokens.text;
    r->parts.token_count = r->tokens.count;
    r->parts.types = r->tokens.types;
    r->parts.type_count = r->tokens.count;
    r->parts.added = r->tokens.added;
    r->parts.added_count = r->tokens.count;
    r->parts.score_count = r->parts.scores ? r->tokens.count : 0;
    if (r->parts.scores) r->parts.scores = r->tokens.scores;
}

static int read_tokens(struct reader *r, const struct json_field *added, struct err *err)
{
    const struct json_place top = { "", &r->arena };
    int rc = json_items(&top, added, read_added, r, err);
    if (rc < 0) return rc;
    free(r->tokens.by_text); /* the added ones, too */
    r->tokens.by_text = NULL;
    rc = index_tokens(&r->tokens, err);
    if (rc < 0) return rc;
    mark_bytes(r);
    r->parts.special.unk = r->unk.len > 0 ? find_token(&r->tokens, r->unk) : VOCAB_NONE;
    if (r->unk.len > 0 && r->parts.special.unk == VOCAB_NONE)
        return err_set(err, -EINVAL, "model: the unknown token \"%.*s\" is no token",
                       (int)min_size(r->unk.len, 64), r->unk.data);
    give_tokens(r);
    r->parts.merge_ids = r->merges;
    r->parts.merge_count = r->merge_count;
    return 0;
}

/* ---- tokenizer_config.json ---- */

static int config_token(const struct reader *r, struct str text, const char *name, uint32_t *ret,
                        struct err *err)
{
    if (text.len == 0) return 0;
    uint32_t id = find_token(&r->tokens, text);
    if (id == VOCAB_NONE)
        return err_set(err, -EINVAL, "%s: \"%.*s\" is no token", name, (int)min_size(text.len, 64),
                       text.data);
    *ret = id;
    return 0;
}

/* Makes the frame begin (end) with the token, or not, as the file says. */
static void set_edge(enum config_edge edge, uint32_t id, bool at_start, uint32_t *ids,
                     uint32_t *count)
{
    const bool add = edge == EDGE_ADDED;
    const uint32_t last = at_start || *count == 0 ? 0 : *count - 1;
    const bool there = *count > 0 && ids[last] == id;
    if (edge == EDGE_UNSAID || id == VOCAB_NONE || there == add) return;
    if (add && *count < VOCAB_FRAME_MAX) {
        const uint32_t at = at_start ? 0 : *count;
        memmove(&ids[at + 1], &ids[at], (*count - at) * sizeof *ids);
        ids[at] = id;
        *count += 1;
    } else if (!add) {
        memmove(&ids[last], &ids[last + 1], (*count - last - 1) * sizeof *ids);
        *count -= 1;
    }
}

static int read_config(struct reader *r, struct str text, struct tokenizer_config *c,
                       struct err *err)
{
    struct vocab_special *s = &r->parts.special;
    int rc = tokenizer_config_read(text, &r->arena, c, err);
    if (rc == 0) rc = config_token(r, c->bos, "bos_token", &s->bos, err);
    if (rc == 0) rc = config_token(r, c->eos, "eos_token", &s->eos, err);
    return rc < 0 ? rc : config_token(r, c->pad, "pad_token", &s->pad, err);
}

/* ---- config.json and generation_config.json ---- */

static int read_ids(struct reader *r, struct str text, const char *file, struct config_json *ret,
                    struct err *err)
{
    int rc = config_json_read(text, ret, err);
    if (rc < 0) return err_prefix(err, rc, "%s", file);
    uint32_t worst = ret->bos == VOCAB_NONE ? 0 : ret->bos;
    for (uint32_t i = 0; i < ret->eos_count; i++)
        worst = max_u32(worst, ret->eos[i]);
    if (worst >= r->parts.token_count)
        return err_set(err, -EINVAL, "%s: a special token has the id %u, but there are %zu tokens",
                       file, worst, r->parts.token_count);
    return 0;
}

/* Adds unused tokens for the rows of the embedding that no token has. */
static int pad_tokens(struct reader *r, uint32_t rows, struct err *err)
{
    int rc = add_gaps(&r->tokens, rows, err);
    if (rc == 0) give_tokens(r);
    return rc;
}

/* Fills in what tokenizer_config.json left open. */
static int read_model_files(struct reader *r, const struct tokenizer_texts *texts, struct err *err)
{
    struct vocab_special *s = &r->parts.special;
    struct config_json model, generation;
    int rc = read_ids(r, texts->generation, "generation_config.json", &generation, err);
    if (rc == 0) rc = read_ids(r, texts->model, "config.json", &model, err);
    if (rc < 0) return rc;
    if (s->bos == VOCAB_NONE) s->bos = generation.bos == VOCAB_NONE ? model.bos : generation.bos;
    const struct config_json *ends = generation.eos_count > 0 ? &generation : &model;
    if (s->eos == VOCAB_NONE && ends->eos_count > 0) s->eos = ends->eos[0];
    memcpy(r->parts.ends, ends->eos, sizeof ends->eos);
    r->parts.end_count = ends->eos_count;
    return pad_tokens(r, model.vocab_size, err);
}

/* Compiles the template: the file's own, or the one in the configuration. */
static int make_template(struct reader *r, const struct tokenizer_texts *texts,
                         const struct tokenizer_config *c, struct chat_template **ret,
                         struct err *err)
{
    struct str source = texts->chat_template;
    int rc = source.len > 0 ? 0 : tokenizer_config_template(c, &r->arena, &source, err);
    if (rc < 0) return err_prefix(err, rc, "tokenizer_config.json");
    if (source.len == 0) return 0;
    rc = chat_template_compile(source, ret, err);
    return rc < 0 ? err_prefix(err, rc, "the chat template") : 0;
}

/* ---- all together ---- */

enum {
    T_VERSION,
    T_TRUNCATION,
    T_PADDING,
    T_ADDED,
    T_NORMALIZER,
    T_PRE,
    T_POST,
    T_DECODER,
    T_MODEL,
    T_FIELDS
};

/* Byte-level BPE has its decoder built in, and a word rule of one stage is its pre-tokenizer. */
static int join_rules(struct reader *r, struct err *err)
{
    const struct json_rules *rules = &r->rules;
    const bool gpt2 = str_eq(r->parts.kind, STR("gpt2"));
    const struct text_rule *only = &rules->cut.list[0];
    if (rules->byte_level && !gpt2)
        return err_set(err, -ENOTSUP,
                       "pre_tokenizer: ByteLevel is supported with the model BPE only");
    if (gpt2 != rules->byte_decoder || (gpt2 && rules->decode.count > 0))
        return err_set(err, -ENOTSUP,
                       "decoder: ByteLevel belongs to the pre-tokenizer ByteLevel, by itself");
    r->parts.normal = (struct text_rules){ rules->normal.list, rules->normal.count };
    r->parts.decode = (struct text_rules){ rules->decode.list, rules->decode.count };
    if (gpt2 && rules->cut.count == 1 && only->kind == RULE_WORDS && only->flags == 0 &&
        only->behavior == BEHAVIOR_ISOLATED) {
        r->parts.pre = only->a;
        return 0;
    }
    r->parts.flags |= VOCAB_CUT_RULES;
    r->parts.cut = (struct text_rules){ rules->cut.list, rules->cut.count };
    return 0;
}

static int read_all(struct reader *r, struct str text, struct err *err)
{
    const struct json_place top = { "", &r->arena };
    struct json_field f[T_FIELDS] = {
        [T_VERSION] = { .name = "version" },       [T_TRUNCATION] = { .name = "truncation" },
        [T_PADDING] = { .name = "padding" },       [T_ADDED] = { .name = "added_tokens" },
        [T_NORMALIZER] = { .name = "normalizer" }, [T_PRE] = { .name = "pre_tokenizer" },
        [T_POST] = { .name = "post_processor" },   [T_DECODER] = { .name = "decoder" },
        [T_MODEL] = { .name = "model" },
    };
    const struct json_place normalizer = json_member(&top, "normalizer"),
                            pre = json_member(&top, "pre_tokenizer"),
                            post = json_member(&top, "post_processor"),
                            decoder = json_member(&top, "decoder");
    struct str version = STR("1.0");
    int rc = json_fields(&top, text, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(&top, &f[T_VERSION], &version, err);
    if (rc == 0 && !str_eq(version, STR("1.0")))
        rc = err_set(err, -ENOTSUP, "version: %.*s is not 1.0", (int)min_size(version.len, 16),
                     version.data);
    if (rc == 0) rc = rules_json_normal(&normalizer, f[T_NORMALIZER].raw, &r->rules, err);
    if (rc == 0) rc = rules_json_cut(&pre, f[T_PRE].raw, &r->rules, err);
    if (rc == 0) rc = rules_json_decode(&decoder, f[T_DECODER].raw, &r->rules, err);
    if (rc == 0) rc = read_model(r, f[T_MODEL].raw, err);
    if (rc == 0) rc = join_rules(r, err);
    if (rc == 0) rc = read_tokens(r, &f[T_ADDED], err);
    return rc < 0 ? rc : frame_json_read(&post, f[T_POST].raw, &r->parts, err);
}

int tokenizer_json_load(const struct tokenizer_texts *texts, struct vocab **ret,
                        struct chat_template **ret_template, struct err *err)
{
    if (texts->tokenizer.len > TOKENIZER_JSON_BYTES_MAX)
        return err_set(err, -E2BIG, "tokenizer.json: %zu bytes, at most %zu", texts->tokenizer.len,
                       TOKENIZER_JSON_BYTES_MAX);
    CLEANUP(reader_fini)
    struct reader r = {
        .tokens = { .ids_max = texts->tokenizer.len / TOKEN_BYTES_MIN + GAPS_MAX },
        .parts = { .special = VOCAB_SPECIAL_NONE },
    };
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    struct tokenizer_config config;
    /* Each text is copied once; the shortest item of the file takes 4 bytes and 16 of the arena. */
    arena_init(&r.arena, 8 * (texts->tokenizer.len + texts->config.len) + (1u << 20));
    int rc = read_all(&r, texts->tokenizer, err);
    if (rc < 0) return err_prefix(err, rc, "tokenizer.json");
    rc = read_config(&r, texts->config, &config, err);
    if (rc < 0) return err_prefix(err, rc, "tokenizer_config.json");
    rc = read_model_files(&r, texts, err);
    if (rc < 0) return rc;
    set_edge(config.add_bos, r.parts.special.bos, true, r.parts.before, &r.parts.before_count);
    set_edge(config.add_eos, r.parts.special.eos, false, r.parts.after, &r.parts.after_count);
    rc = vocab_build(&r.parts, &vocab, err);
    if (rc < 0) return err_prefix(err, rc, "tokenizer.json");
    rc = make_template(&r, texts, &config, &template, err);
    if (rc < 0) return rc;
    *ret = TAKE(vocab);
    *ret_template = TAKE(template);
    return 0;
}

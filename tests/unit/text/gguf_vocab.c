/* gguf_vocab.c - walks a GGUF file's key-value section once. Files are trusted test data, yet each
 * read is checked against the end. */
#include "tests/unit/text/gguf_vocab.h"

#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/buf.h"

#include <stdio.h>

enum { U32 = 4, BOOL = 7, STRING = 8, ARRAY = 9, TYPE_COUNT = 13 };
static const uint8_t sizes[TYPE_COUNT] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

struct walk {
    struct str left;
    bool failed;
};

static const char *get(struct walk *w, uint64_t len)
{
    if (w->failed || len > w->left.len) {
        w->failed = true;
        return "\0\0\0\0\0\0\0";
    }
    const char *at = w->left.data;
    w->left = str_of(at + len, w->left.len - (size_t)len);
    return at;
}

static struct str get_string(struct walk *w)
{
    uint64_t len = load_u64(get(w, 8));
    const char *at = get(w, len);
    return w->failed ? (struct str){ 0 } : str_of(at, (size_t)len);
}

static const struct str *get_strings(struct walk *w, struct arena *arena, size_t count)
{
    struct str *strings =
        count <= w->left.len / 8 ? arena_array(arena, count, sizeof *strings) : NULL;
    if (!strings) w->failed = true;
    for (size_t i = 0; i < count && !w->failed; i++)
        strings[i] = get_string(w);
    return strings;
}

static void read_scores(const char *data, struct arena *arena, size_t count, struct vocab_parts *p)
{
    double *scores = arena_array(arena, count, sizeof *scores);
    for (size_t i = 0; i < count; i++) {
        float score;
        memcpy(&score, data + 4 * i, sizeof score);
        scores[i] = score;
    }
    p->scores = scores, p->score_count = count;
}

static void read_array(struct walk *w, struct arena *arena, struct str key, struct vocab_parts *p)
{
    uint32_t type = load_u32(get(w, 4));
    size_t count = load_u64(get(w, 8));
    if (type == STRING) {
        const struct str *strings = get_strings(w, arena, count);
        if (str_eq(key, STR("tokenizer.ggml.tokens"))) p->tokens = strings, p->token_count = count;
        if (str_eq(key, STR("tokenizer.ggml.merges"))) p->merges = strings, p->merge_count = count;
        return;
    }
    const char *data = get(w, type < TYPE_COUNT ? count * sizes[type] : UINT64_MAX);
    if (!w->failed && str_eq(key, STR("tokenizer.ggml.scores"))) read_scores(data, arena, count, p);
    if (w->failed || !str_eq(key, STR("tokenizer.ggml.token_type"))) return;
    uint8_t *types = arena_alloc(arena, count);
    for (size_t i = 0; i < count; i++)
        types[i] = (uint8_t)load_u32(data + 4 * i);
    p->types = types, p->type_count = count;
}

static void read_value(struct walk *w, struct arena *arena, struct str key, struct vocab_parts *p)
{
    uint32_t type = load_u32(get(w, 4));
    if (type == ARRAY) {
        read_array(w, arena, key, p);
        return;
    }
    if (type == STRING) {
        struct str value = get_string(w);
        if (str_eq(key, STR("tokenizer.ggml.model"))) p->kind = value;
        if (str_eq(key, STR("tokenizer.ggml.pre"))) p->pre = value;
        return;
    }
    const char *data = get(w, type < TYPE_COUNT ? sizes[type] : UINT64_MAX);
    const struct {
        const char *key;
        uint32_t *id;
    } ids[] = { { "tokenizer.ggml.bos_token_id", &p->special.bos },
                { "tokenizer.ggml.eos_token_id", &p->special.eos },
                { "tokenizer.ggml.padding_token_id", &p->special.pad },
                { "tokenizer.ggml.unknown_token_id", &p->special.unk } };
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        if (type == U32 && str_eq(key, str_from(ids[i].key))) *ids[i].id = load_u32(data);
    if (type == BOOL && str_eq(key, STR("tokenizer.ggml.add_bos_token")))
        p->special.add_bos = *data;
}

static struct vocab *build(struct str file, const char *path)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, (size_t)256 << 20);
    struct walk w = { .left = file };
    struct vocab_parts parts = { .special = VOCAB_SPECIAL_NONE };
    get(&w, 16); /* magic, version, tensor count */
    for (uint64_t n = load_u64(get(&w, 8)); n > 0 && !w.failed; n--) {
        struct str key = get_string(&w);
        read_value(&w, &arena, key, &parts);
    }
    struct vocab_gguf_rules rules;
    vocab_rules_of_gguf(&parts, &(struct vocab_gguf_switches){ .add_space_prefix = true }, &rules);
    struct vocab *v = NULL;
    struct err err = { "cut short" };
    if (w.failed || vocab_build(&parts, &v, &err) < 0) fprintf(stderr, "%s: %s\n", path, err.text);
    return v;
}

struct vocab *gguf_vocab_load(const char *path)
{
    CLEANUP(buf_fini) struct buf file = { 0 };
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char chunk[65536];
    size_t len;
    while ((len = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(&file, chunk, len);
    fclose(f);
    return build(buf_view(&file), path);
}

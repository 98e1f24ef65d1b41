/* vocab_gguf.c - reads tokenizer.ggml.* into struct vocab_parts.
 *
 * Optional keys may be absent, but a file is refused if a key is there with another type:
 * a tokenizer that is slightly wrong gives output that is slightly wrong. */
#include "engine/model/vocab_gguf.h"

#include "base/core/bits.h"

#include <stdlib.h>

struct arrays {
    uint8_t *types;
    float *scores;
};

static void arrays_fini(struct arrays *a)
{
    free(a->types);
    free(a->scores);
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
    size_t bytes = v->array.count * sizeof *a->scores;
    a->scores = malloc(bytes + 1);
    if (!a->scores) return err_set(err, -ENOMEM, "no memory for %zu scores", v->array.count);
    memcpy(a->scores, v->array.items, bytes);
    parts->scores = a->scores;
    parts->score_count = v->array.count;
    return 0;
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
    *s = VOCAB_SPECIAL_NONE;
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(ids) && rc == 0; i++)
        rc = absent_is_fine(gguf_get_u32(g, ids[i].key, ids[i].to, err));
    if (rc == 0)
        rc = absent_is_fine(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &s->add_bos, err));
    if (rc == 0)
        rc = absent_is_fine(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &s->add_eos, err));
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
    rc = read_texts(g, "tokenizer.ggml.tokens", &parts.tokens, &parts.token_count, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    rc = absent_is_fine(gguf_get_str(g, "tokenizer.ggml.pre", &parts.pre, err));
    if (rc == 0)
        rc = absent_is_fine(
            read_texts(g, "tokenizer.ggml.merges", &parts.merges, &parts.merge_count, err));
    if (rc == 0) rc = read_types(g, &parts, &a, err);
    if (rc == 0) rc = read_scores(g, &parts, &a, err);
    if (rc == 0) rc = read_special(g, &parts.special, err);
    if (rc < 0) return rc;
    rc = vocab_build(&parts, ret, err);
    return rc < 0 ? err_prefix(err, rc, STR_FMT ": vocabulary", STR_ARG(g->file)) : 0;
}

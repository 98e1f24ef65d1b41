/* hf_encoder.c - knows the names of encoders in folders, and which parts of sentence-transformers they use.
 *
 * A cross-encoder's head is a hidden layer with tanh and an output. RoBERTa has both in "classifier"; of
 * BERT the hidden layer is the pooler. GGUF files call them cls and cls.output. */
#include "engine/files/hf_encoder.h"

#include "base/core/json.h"
#include "engine/files/hf_folder.h"

#include <stdio.h>

#define PATH_BYTES_MAX 64 /* of a module's folder */

/* ---- names */

/* clang-format off */
static const struct hf_row top_rows[] = {
    { "embeddings.word_embeddings.weight", "token_embd.weight" },
    { "embeddings.position_embeddings.weight", "position_embd.weight" },
    { "embeddings.token_type_embeddings.weight", "token_types.weight" },
    { "embeddings.LayerNorm.weight", "token_embd_norm.weight" },
    { "embeddings.LayerNorm.bias", "token_embd_norm.bias" },
    { "pooler.dense.weight", "cls.weight" },
    { "pooler.dense.bias", "cls.bias" },
    { "classifier.weight", "cls.output.weight" },
    { "classifier.bias", "cls.output.bias" },
    { "classifier.dense.weight", "cls.weight" },
    { "classifier.dense.bias", "cls.bias" },
    { "classifier.out_proj.weight", "cls.output.weight" },
    { "classifier.out_proj.bias", "cls.output.bias" },
}, layer_rows[] = {
    { "attention.self.query.weight", "attn_q.weight" },
    { "attention.self.query.bias", "attn_q.bias" },
    { "attention.self.key.weight", "attn_k.weight" },
    { "attention.self.key.bias", "attn_k.bias" },
    { "attention.self.value.weight", "attn_v.weight" },
    { "attention.self.value.bias", "attn_v.bias" },
    { "attention.output.dense.weight", "attn_output.weight" },
    { "attention.output.dense.bias", "attn_output.bias" },
    { "attention.output.LayerNorm.weight", "attn_output_norm.weight" },
    { "attention.output.LayerNorm.bias", "attn_output_norm.bias" },
    { "intermediate.dense.weight", "ffn_up.weight" },
    { "intermediate.dense.bias", "ffn_up.bias" },
    { "output.dense.weight", "ffn_down.weight" },
    { "output.dense.bias", "ffn_down.bias" },
    { "output.LayerNorm.weight", "layer_output_norm.weight" },
    { "output.LayerNorm.bias", "layer_output_norm.bias" },
};
/* clang-format on */

static const char *find_row(const struct hf_row *rows, size_t count, struct str name)
{
    for (size_t i = 0; i < count; i++)
        if (str_eq(name, str_from(rows[i].from))) return rows[i].to;
    return NULL;
}

/* Models with a head have the encoder below its name. */
static struct str below_encoder(struct str name)
{
    static const struct str prefixes[] = { { "bert.", 5 }, { "roberta.", 8 } };
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (str_starts(name, prefixes[i]))
            return (struct str){ name.data + prefixes[i].len, name.len - prefixes[i].len };
    return name;
}

bool hf_encoder_tensor(struct str name, char ret[GGUF_NAME_BYTES_MAX + 1])
{
    const struct str layers = STR("encoder.layer.");
    struct str rest = below_encoder(name);
    const char *to = find_row(top_rows, COUNT_OF(top_rows), rest);
    if (to) {
        snprintf(ret, GGUF_NAME_BYTES_MAX + 1, "%s", to);
        return true;
    }
    if (!str_starts(rest, layers)) return false;
    rest = (struct str){ rest.data + layers.len, rest.len - layers.len };
    struct str digits = str_cut(&rest, '.');
    uint64_t layer = 0;
    if (str_to_u64(digits, &layer) < 0 || layer > UINT32_MAX) return false;
    to = find_row(layer_rows, COUNT_OF(layer_rows), rest);
    if (to) snprintf(ret, GGUF_NAME_BYTES_MAX + 1, "blk.%u.%s", (uint32_t)layer, to);
    return to != NULL;
}

bool hf_encoder_is_spare(const struct hf_config *c, struct str name)
{
    static const char *const spare[] = { "embeddings.position_ids", "embeddings.token_type_ids",
                                         "cls.predictions.", "cls.seq_relationship.", "lm_head." };
    const struct str rest = below_encoder(name);
    for (size_t i = 0; i < COUNT_OF(spare); i++)
        if (str_starts(rest, str_from(spare[i]))) return true;
    return !c->classifies && str_starts(rest, STR("pooler."));
}

/* ---- config.json */

/* Takes the last part of a name as "torch.nn.modules.activation.Sigmoid". */
static struct str last_part(struct str name)
{
    size_t from = name.len;
    while (from > 0 && name.data[from - 1] != '.')
        from--;
    return (struct str){ name.data + from, name.len - from };
}

/* Reads the function that turns the head's number into a score, by sentence-transformers: a sigmoid by default. */
static int take_activation(struct hf_config *c, struct json_reader *r, struct err *err)
{
    if (r->token == JSON_NULL) return 0;
    const struct str name = last_part(r->raw);
    if (r->token == JSON_STRING && str_eq(name, STR("Sigmoid"))) return 0;
    if (r->token != JSON_STRING || !str_eq(name, STR("Identity")))
        return err_set(err, -ENOTSUP, "scores by '" STR_FMT "'; Sigmoid and Identity are computed",
                       STR_ARG(name));
    struct gguf_value *v = hf_config_put(c, "classifier.activation", GGUF_STRING);
    v->text = STR("identity");
    return 0;
}

static int take_section(struct hf_config *c, struct json_reader *r, struct err *err)
{
    int rc = 0;
    if (r->token != JSON_OBJECT) return 0;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        const bool activation = json_key_is(r, "activation_fn");
        json_next(r);
        if (activation) rc = take_activation(c, r, err);
        json_skip_rest(r);
    }
    return rc;
}

static int take_architectures(struct hf_config *c, struct json_reader *r)
{
    if (r->token != JSON_ARRAY) return 0;
    while (json_next(r) != JSON_ARRAY_END && r->token != JSON_ERROR) {
        if (r->token == JSON_STRING && str_ends(r->raw, STR("ForSequenceClassification")))
            c->classifies = true;
        json_skip_rest(r);
    }
    return 0;
}

/* Keys of what an encoder never is here. */
static int check_fixed(const struct json_reader *r, const char *name, struct err *err)
{
    const bool text = r->token == JSON_STRING && str_eq(r->raw, STR("absolute"));
    if (r->token == JSON_NULL || r->token == JSON_FALSE || text) return 0;
    return err_set(err, -ENOTSUP, "key '%s' asks for something that is not computed for encoders",
                   name);
}

static int take_key(struct hf_config *c, struct json_reader *r, uint64_t *pad, struct err *err)
{
    static const char *const fixed[] = { "is_decoder", "add_cross_attention",
                                         "position_embedding_type" };
    double eps = 0;
    for (size_t i = 0; i < COUNT_OF(fixed); i++) {
        if (!json_key_is(r, fixed[i])) continue;
        json_next(r);
        return check_fixed(r, fixed[i], err);
    }
    if (json_key_is(r, "layer_norm_eps")) {
        json_next(r);
        if (json_f64(r, &eps) < 0)
            return err_set(err, -EINVAL, "key 'layer_norm_eps' is no number");
        hf_config_put(c, "attention.layer_norm_epsilon", GGUF_F64)->f = eps;
    } else if (json_key_is(r, "pad_token_id")) {
        json_next(r);
        if (r->token != JSON_NULL && json_u64(r, pad) < 0)
            return err_set(err, -EINVAL, "key 'pad_token_id' is no number");
    } else if (json_key_is(r, "architectures")) {
        json_next(r);
        return take_architectures(c, r);
    } else if (json_key_is(r, "sbert_ce_default_activation_function")) {
        json_next(r);
        return take_activation(c, r, err);
    } else if (json_key_is(r, "sentence_transformers")) {
        json_next(r);
        return take_section(c, r, err);
    } else {
        json_next(r);
    }
    return 0;
}

/* RoBERTa counts positions from behind its padding token; the rows before are left out. */
static int skip_positions(struct hf_config *c, uint64_t pad, struct err *err)
{
    if (pad + 1 >= c->context)
        return err_set(
            err, -EINVAL,
            "key 'max_position_embeddings' is %u; positions begin behind pad_token_id, %llu",
            c->context, (unsigned long long)pad);
    c->position_skip = (uint32_t)pad + 1;
    for (uint32_t i = 0; i < c->value_count; i++)
        if (str_eq(c->values[i].key, STR("context_length"))) c->values[i].u -= c->position_skip;
    return 0;
}

int hf_encoder_keys(struct hf_config *c, struct str text, struct err *err)
{
    struct json_reader r;
    uint64_t pad = 1; /* as in RoBERTa's own configuration */
    int rc = 0;
    json_reader_init(&r, text);
    json_next(&r); /* the object, which hf_config.c has read already */
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        rc = take_key(c, &r, &pad, err);
        if (rc == 0 && (r.token == JSON_OBJECT || r.token == JSON_ARRAY)) json_skip_rest(&r);
    }
    if (rc == 0 && c->family->padded_positions) rc = skip_positions(c, pad, err);
    return rc;
}

/* ---- modules.json */

struct module {
    struct str type, path;
};

/* Reads one module; the current token is its opening bracket. */
static int read_module(struct json_reader *r, struct arena *a, struct module *ret, struct err *err)
{
    *ret = (struct module){ { "", 0 }, { "", 0 } };
    if (r->token != JSON_OBJECT) return err_set(err, -EINVAL, "a module is no object");
    while (json_next(r) == JSON_KEY) {
        struct str *to = json_key_is(r, "type")   ? &ret->type
                         : json_key_is(r, "path") ? &ret->path
                                                  : NULL;
        json_next(r);
        if (!to) {
            json_skip_rest(r);
            continue;
        }
        int rc = json_text_arena(r, a, to);
        if (rc < 0) return err_set(err, rc, "a module's type or path is no text");
    }
    return r->token == JSON_OBJECT_END ? 0 : json_fail(r, err, "a module");
}

/* Reads which pooling the flags of a module's configuration, or the name in newer ones, choose. */
static int take_pooling(struct json_reader *r, uint32_t *ret, struct err *err)
{
    static const struct {
        const char *flag, *name;
        uint32_t type;
    } rows[] = {
        { "pooling_mode_cls_token", "cls", GGUF_POOLING_CLS },
        { "pooling_mode_mean_tokens", "mean", GGUF_POOLING_MEAN },
        { "pooling_mode_lasttoken", "lasttoken", GGUF_POOLING_LAST },
    };
    uint32_t chosen = 0;
    *ret = GGUF_POOLING_NONE;
    if (json_next(r) != JSON_OBJECT) return json_fail(r, err, "the configuration");
    while (json_next(r) == JSON_KEY) {
        const struct str key = r->raw;
        const bool named = json_key_is(r, "pooling_mode");
        const bool flag = !named && str_starts(key, STR("pooling_mode_"));
        json_next(r);
        if ((named && r->token == JSON_STRING) || (flag && r->token == JSON_TRUE)) {
            chosen++;
            for (size_t i = 0; i < COUNT_OF(rows); i++)
                if (str_eq(named ? r->raw : key, str_from(named ? rows[i].name : rows[i].flag)))
                    *ret = rows[i].type;
        }
        json_skip_rest(r);
    }
    if (r->token != JSON_OBJECT_END) return json_fail(r, err, "the configuration");
    if (chosen == 1 && *ret != GGUF_POOLING_NONE) return 0;
    return err_set(err, -ENOTSUP,
                   "it chooses %u poolings, or one that is not computed; one of cls, mean and "
                   "lasttoken is",
                   chosen);
}

static int read_pooling(const char *folder, struct str path, uint32_t *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[PATH_BYTES_MAX + 16];
    struct json_reader r;
    bool plain = path.len > 0 && path.len <= PATH_BYTES_MAX && path.data[0] != '.';
    for (size_t i = 0; i < path.len; i++)
        plain = plain && path.data[i] != '/' && path.data[i] != 0;
    if (!plain) return err_set(err, -EINVAL, "the folder of its pooling is no plain name");
    snprintf(name, sizeof name, STR_FMT "/config.json", STR_ARG(path));
    int rc = hf_folder_read(folder, name, HF_MODULES_BYTES_MAX, &text, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    json_reader_init(&r, buf_view(&text));
    rc = take_pooling(&r, ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s", name) : 0;
}

/* Goes through the modules: the model, its pooling, and a length of 1, which vectors have anyway. */
static int read_modules(const char *folder, struct str text, struct arena *a, uint32_t *ret,
                        struct err *err)
{
    struct json_reader r;
    struct module m;
    int rc = 0;
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_ARRAY) return json_fail(&r, err, "the list of modules");
    while (rc == 0 && json_next(&r) != JSON_ARRAY_END) {
        if (r.token == JSON_ERROR) return json_fail(&r, err, "the list of modules");
        rc = read_module(&r, a, &m, err);
        if (rc < 0) return rc;
        const struct str type = last_part(m.type);
        if (str_eq(type, STR("Pooling")))
            rc = read_pooling(folder, m.path, ret, err);
        else if (!str_eq(type, STR("Transformer")) && !str_eq(type, STR("Normalize")))
            rc = err_set(err, -ENOTSUP,
                         "module '" STR_FMT "'; computed are Transformer, Pooling and Normalize",
                         STR_ARG(type));
    }
    return rc;
}

int hf_pooling_read(const char *folder, uint32_t *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct arena arena;
    *ret = GGUF_POOLING_NONE;
    int rc = hf_folder_read(folder, "modules.json", HF_MODULES_BYTES_MAX, &text, err);
    if (rc < 0) return rc == -ENOENT ? 0 : rc;
    arena_init(&arena, 4 * HF_MODULES_BYTES_MAX);
    rc = read_modules(folder, buf_view(&text), &arena, ret, err);
    arena_fini(&arena);
    return rc < 0 ? err_prefix(err, rc, "%s/modules.json", folder) : 0;
}

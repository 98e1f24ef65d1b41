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
static const struct hf_row bert_top[] = {
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
    { NULL, NULL },
}, bert_layer[] = {
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
    { NULL, NULL },
}, modern_top[] = {
    { "embeddings.tok_embeddings.weight", "token_embd.weight" },
    { "embeddings.norm.weight", "token_embd_norm.weight" },
    { "final_norm.weight", "output_norm.weight" },
    { "head.dense.weight", "cls.weight" },
    { "head.norm.weight", "cls.norm.weight" },
    { "classifier.weight", "cls.output.weight" },
    { "classifier.bias", "cls.output.bias" },
    { NULL, NULL },
}, modern_layer[] = {
    { "attn_norm.weight", "attn_norm.weight" },
    { "attn.Wqkv.weight", "attn_qkv.weight" },
    { "attn.Wo.weight", "attn_output.weight" },
    { "mlp_norm.weight", "ffn_norm.weight" },
    { "mlp.Wi.weight", "ffn_up.weight" },
    { "mlp.Wo.weight", "ffn_down.weight" },
    { NULL, NULL },
}, nomic_top[] = {
    { "embeddings.word_embeddings.weight", "token_embd.weight" },
    { "embeddings.token_type_embeddings.weight", "token_types.weight" },
    { "emb_ln.weight", "token_embd_norm.weight" },
    { "emb_ln.bias", "token_embd_norm.bias" },
    { NULL, NULL },
}, nomic_layer[] = {
    { "attn.Wqkv.weight", "attn_qkv.weight" },
    { "attn.out_proj.weight", "attn_output.weight" },
    { "norm1.weight", "attn_output_norm.weight" },
    { "norm1.bias", "attn_output_norm.bias" },
    { "mlp.fc11.weight", "ffn_up.weight" },
    { "mlp.fc12.weight", "ffn_gate.weight" },
    { "mlp.fc2.weight", "ffn_down.weight" },
    { "norm2.weight", "layer_output_norm.weight" },
    { "norm2.bias", "layer_output_norm.bias" },
    { NULL, NULL },
};

/* Names of parts, as the files of an architecture have them. */
static const struct encoder_names {
    const char *arch, *layers;
    const struct hf_row *top, *layer;
} encoder_names[] = {
    { "bert", "encoder.layer.", bert_top, bert_layer },
    { "modern-bert", "layers.", modern_top, modern_layer },
    { "nomic-bert", "encoder.layers.", nomic_top, nomic_layer },
};
/* clang-format on */

static const struct encoder_names *names_of(const struct hf_family *f)
{
    size_t i = 0;
    while (i + 1 < COUNT_OF(encoder_names) && strcmp(encoder_names[i].arch, f->arch) != 0)
        i++;
    return &encoder_names[i];
}

static bool is_modern(const struct hf_config *c)
{
    return strcmp(c->family->arch, "modern-bert") == 0;
}

static bool is_nomic(const struct hf_config *c)
{
    return strcmp(c->family->arch, "nomic-bert") == 0;
}

static const char *find_row(const struct hf_row *rows, struct str name)
{
    for (; rows->from; rows++)
        if (str_eq(name, str_from(rows->from))) return rows->to;
    return NULL;
}

/* Models with a head have the encoder below its name. */
static struct str below_encoder(struct str name)
{
    static const struct str prefixes[] = {
        { "bert.", 5 }, { "roberta.", 8 }, { "model.", 6 }, { "nomic_bert.", 11 }
    };
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (str_starts(name, prefixes[i]))
            return (struct str){ name.data + prefixes[i].len, name.len - prefixes[i].len };
    return name;
}

bool hf_encoder_tensor(const struct hf_family *f, struct str name,
                       char ret[GGUF_NAME_BYTES_MAX + 1])
{
    const struct encoder_names *names = names_of(f);
    const struct str layers = str_from(names->layers);
    struct str rest = below_encoder(name);
    const char *to = find_row(names->top, rest);
    if (to) {
        snprintf(ret, GGUF_NAME_BYTES_MAX + 1, "%s", to);
        return true;
    }
    if (!str_starts(rest, layers)) return false;
    rest = (struct str){ rest.data + layers.len, rest.len - layers.len };
    struct str digits = str_cut(&rest, '.');
    uint64_t layer = 0;
    if (str_to_u64(digits, &layer) < 0 || layer > UINT32_MAX) return false;
    to = find_row(names->layer, rest);
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
    if (is_modern(c) && str_starts(rest, STR("decoder."))) return true;
    return !c->classifies && str_starts(rest, is_modern(c) ? STR("head.") : STR("pooler."));
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

/* Keys of each form: EPS and PAD of all, the others of one architecture. */
enum encoder_key {
    KEY_EPS,
    KEY_PAD,
    KEY_ARCHITECTURES,
    KEY_ACTIVATION,
    KEY_SECTION,
    KEY_FIXED,     /* null, false, and "absolute" */
    KEY_NUMBER,    /* a number for `to` */
    KEY_THETA,     /* a real for `to` */
    KEY_ACT,       /* "gelu", or "swiglu" of nomic */
    KEY_ONE,       /* null and 1 */
    KEY_EVERY,     /* which layers see all tokens */
    KEY_HEAD_POOL, /* cls, mean */
    KEY_CONTEXT,   /* the smaller of two counts */
};

/* clang-format off */
static const struct encoder_row {
    const char *arch; /* NULL: of all */
    const char *name;
    enum encoder_key key;
    const char *to;
} key_rows[] = {
    { NULL, "layer_norm_eps", KEY_EPS, NULL },
    { NULL, "pad_token_id", KEY_PAD, NULL },
    { NULL, "architectures", KEY_ARCHITECTURES, NULL },
    { NULL, "sbert_ce_default_activation_function", KEY_ACTIVATION, NULL },
    { NULL, "sentence_transformers", KEY_SECTION, NULL },
    { NULL, "is_decoder", KEY_FIXED, NULL },
    { NULL, "add_cross_attention", KEY_FIXED, NULL },
    { NULL, "position_embedding_type", KEY_FIXED, NULL },
    { "modern-bert", "norm_eps", KEY_EPS, NULL },
    { "modern-bert", "norm_bias", KEY_FIXED, NULL },
    { "modern-bert", "classifier_bias", KEY_FIXED, NULL },
    { "modern-bert", "classifier_activation", KEY_ACT, "gelu" },
    { "modern-bert", "classifier_pooling", KEY_HEAD_POOL, NULL },
    { "modern-bert", "local_attention", KEY_NUMBER, "attention.sliding_window" },
    { "modern-bert", "global_attn_every_n_layers", KEY_EVERY, NULL },
    { "modern-bert", "global_rope_theta", KEY_THETA, "rope.freq_base" },
    { "modern-bert", "local_rope_theta", KEY_THETA, "rope.freq_base_swa" },
    { "nomic-bert", "n_embd", KEY_NUMBER, "embedding_length" },
    { "nomic-bert", "n_layer", KEY_NUMBER, "block_count" },
    { "nomic-bert", "n_head", KEY_NUMBER, "attention.head_count" },
    { "nomic-bert", "n_inner", KEY_NUMBER, "feed_forward_length" },
    { "nomic-bert", "n_positions", KEY_CONTEXT, NULL },
    { "nomic-bert", "max_trained_positions", KEY_CONTEXT, NULL },
    { "nomic-bert", "layer_norm_epsilon", KEY_EPS, NULL },
    { "nomic-bert", "rotary_emb_base", KEY_THETA, "rope.freq_base" },
    { "nomic-bert", "rotary_emb_fraction", KEY_ONE, NULL },
    { "nomic-bert", "activation_function", KEY_ACT, "swiglu" },
    { "nomic-bert", "rotary_emb_interleaved", KEY_FIXED, NULL },
    { "nomic-bert", "rotary_emb_scale_base", KEY_FIXED, NULL },
    { "nomic-bert", "rotary_scaling_factor", KEY_FIXED, NULL },
    { "nomic-bert", "prenorm", KEY_FIXED, NULL },
    { "nomic-bert", "causal", KEY_FIXED, NULL },
    { "nomic-bert", "parallel_block", KEY_FIXED, NULL },
    { "nomic-bert", "use_rms_norm", KEY_FIXED, NULL },
    { "nomic-bert", "qkv_proj_bias", KEY_FIXED, NULL },
    { "nomic-bert", "mlp_fc1_bias", KEY_FIXED, NULL },
    { "nomic-bert", "mlp_fc2_bias", KEY_FIXED, NULL },
    { "nomic-bert", "moe_every_n_layers", KEY_FIXED, NULL },
};
/* clang-format on */

/* Numbers of keys that become other keys at the end. */
struct encoder_keys {
    uint64_t pad;     /* as in RoBERTa's own configuration, if it is not said */
    uint64_t period;  /* of layers; 0: not said */
    uint64_t context; /* 0: not said */
};

/* Files that say a thing under both of its names are read by the first. */
static bool has_key(const struct hf_config *c, const char *key)
{
    for (uint32_t i = 0; i < c->value_count; i++)
        if (str_eq(c->values[i].key, str_from(key))) return true;
    return false;
}

static int take_number(struct hf_config *c, struct json_reader *r, const struct encoder_row *row,
                       struct err *err)
{
    double real = 0;
    uint64_t count = 0;
    if (has_key(c, row->to ? row->to : "attention.layer_norm_epsilon")) return 0;
    if (row->key != KEY_NUMBER) {
        if (json_f64(r, &real) < 0)
            return err_set(err, -EINVAL, "key '%s' is no number", row->name);
        hf_config_put(c, row->to ? row->to : "attention.layer_norm_epsilon", GGUF_F64)->f = real;
        return 0;
    }
    if (json_u64(r, &count) < 0 || count > UINT32_MAX)
        return err_set(err, -EINVAL, "key '%s' is no number from 0 to %u", row->name, UINT32_MAX);
    if (str_eq(str_from(row->to), STR("attention.head_count"))) c->heads = (uint32_t)count;
    hf_config_put(c, row->to, GGUF_U32)->u = count;
    return 0;
}

/* Keys of which one value is computed. */
static int take_only(struct json_reader *r, const struct encoder_row *row, struct err *err)
{
    double real = 0;
    bool fits = r->token == JSON_NULL;
    if (row->key == KEY_ACT)
        fits = fits || (r->token == JSON_STRING && str_eq(r->raw, str_from(row->to)));
    else if (row->key == KEY_ONE)
        fits = fits || (json_f64(r, &real) == 0 && real >= 1 && real <= 1);
    else
        fits = fits || (json_f64(r, &real) == 0 && real >= 0 && real <= 0); /* moe_every_n_layers */
    return fits ? 0 : check_fixed(r, row->name, err);
}

static int take_head_pooling(struct hf_config *c, struct json_reader *r, struct err *err)
{
    const bool text = r->token == JSON_STRING, mean = text && str_eq(r->raw, STR("mean"));
    if (!mean && !(text && str_eq(r->raw, STR("cls"))))
        return err_set(err, -ENOTSUP, "key 'classifier_pooling' is neither cls nor mean");
    hf_config_put(c, "classifier.pooling_type", GGUF_U32)->u =
        mean ? GGUF_POOLING_MEAN : GGUF_POOLING_CLS;
    return 0;
}

/* Takes a count that is to be kept, or the smaller of two. */
static int take_least(struct json_reader *r, const char *name, uint64_t *ret, struct err *err)
{
    uint64_t count = 0;
    if (r->token == JSON_NULL) return 0;
    if (json_u64(r, &count) < 0 || count == 0 || count > UINT32_MAX)
        return err_set(err, -EINVAL, "key '%s' is no number from 1 to %u", name, UINT32_MAX);
    if (*ret == 0 || count < *ret) *ret = count;
    return 0;
}

static int take_key(struct hf_config *c, struct json_reader *r, struct encoder_keys *k,
                    struct err *err)
{
    const struct encoder_row *row = key_rows;
    while (row < key_rows + COUNT_OF(key_rows) &&
           ((row->arch && strcmp(row->arch, c->family->arch) != 0) || !json_key_is(r, row->name)))
        row++;
    json_next(r);
    if (row == key_rows + COUNT_OF(key_rows)) return 0;
    switch (row->key) {
    case KEY_EPS:
    case KEY_NUMBER:
    case KEY_THETA:
        return take_number(c, r, row, err);
    case KEY_PAD:
        if (r->token != JSON_NULL && json_u64(r, &k->pad) < 0)
            return err_set(err, -EINVAL, "key 'pad_token_id' is no number");
        return 0;
    case KEY_ARCHITECTURES:
        return take_architectures(c, r);
    case KEY_ACTIVATION:
        return take_activation(c, r, err);
    case KEY_SECTION:
        return take_section(c, r, err);
    case KEY_HEAD_POOL:
        return take_head_pooling(c, r, err);
    case KEY_EVERY:
        return take_least(r, row->name, &k->period, err);
    case KEY_CONTEXT:
        return take_least(r, row->name, &k->context, err);
    case KEY_FIXED:
    case KEY_ACT:
    case KEY_ONE:
        break;
    }
    return take_only(r, row, err);
}

/* Says which layers have a window: all but every `period`th. A list of layers, in newer files, must be of that kind. */
static int put_layers(struct hf_config *c, uint64_t period, struct err *err)
{
    for (uint32_t i = 1; c->layer_windows && i < c->layers && period == 0; i++)
        if (!c->layer_windows[i]) period = i;
    if (period == 0) period = c->layer_windows ? c->layers : 3;
    if (period > c->layers) period = c->layers > 0 ? c->layers : 1;
    for (uint32_t i = 0; c->layer_windows && i < c->layers; i++)
        if ((c->layer_windows[i] != 0) != (i % period != 0))
            return err_set(err, -ENOTSUP,
                           "key 'layer_types': layer %u; computed is full_attention in every "
                           "layer of a fixed distance from the first one on",
                           i);
    hf_config_put(c, "attention.sliding_window_pattern", GGUF_U32)->u = period;
    return 0;
}

/* Writes what RoPE's section says; the other form has keys of their own. */
static int put_rope(struct hf_config *c, struct err *err)
{
    if (c->rope.type != HF_ROPE_DEFAULT || c->local_rope.type != HF_ROPE_DEFAULT)
        return err_set(err, -ENOTSUP, "encoders are computed with positions that are not scaled");
    if (c->rope.has_theta && !has_key(c, "rope.freq_base"))
        hf_config_put(c, "rope.freq_base", GGUF_F64)->f = c->rope.theta;
    if (c->local_rope.has_theta && !has_key(c, "rope.freq_base_swa"))
        hf_config_put(c, "rope.freq_base_swa", GGUF_F64)->f = c->local_rope.theta;
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
    struct encoder_keys k = { .pad = 1 };
    int rc = 0;
    json_reader_init(&r, text);
    json_next(&r); /* the object, which hf_config.c has read already */
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        rc = take_key(c, &r, &k, err);
        if (rc == 0 && (r.token == JSON_OBJECT || r.token == JSON_ARRAY)) json_skip_rest(&r);
    }
    if (rc < 0) return rc;
    if (c->heads == 0) return err_set(err, -EINVAL, "key 'num_attention_heads' is missing or 0");
    if (c->family->padded_positions) rc = skip_positions(c, k.pad, err);
    if (rc == 0 && is_modern(c)) rc = put_layers(c, k.period, err);
    if (rc == 0 && (is_modern(c) || is_nomic(c))) rc = put_rope(c, err);
    if (k.context > 0 && !has_key(c, "context_length"))
        hf_config_put(c, "context_length", GGUF_U32)->u = k.context;
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

/* hf_config.c - takes the keys in any order, then writes those of the family's GGUF files.
 *
 * Names differ between families and between versions of one: rope_scaling became rope_parameters,
 * sliding_window_pattern became layer_types. All forms are read. */
#include "engine/files/hf_config.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "engine/files/hf_encoder.h"
#include "engine/kernels/op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define HF_LAYERS_MAX 1024u
#define NOPE_INTERVAL 4u /* of SmolLM 3's files */

enum form {
    COUNT, /* a number for a key, or for the reader */
    REAL,  /* likewise; null as if it were absent */
    TYPE,  /* model_type */
    ACTIVATION,
    NOT,     /* only null and false are computed */
    YES,     /* only null and true are */
    ONE,     /* only null and 1 are */
    NONE_OF, /* only null and an empty list are */
    TIED,
    SWITCH, /* use_sliding_window */
    ROPE,
    THETA,
    LOCAL_THETA,
    PARTIAL,
    LAYER_TYPES,
    NOPE, /* a list of 1 and 0 */
    QUERY_SCALAR,
    BIASED, /* attention_bias */
    QUANT,
    GATE, /* only the gate's own constant is computed */
    WORD, /* for hf_latent.h, as is NORM */
    NORM,
};

/* clang-format off */
#define AT(member) (offsetof(struct hf_config, member))
/* Keys that say what is computed. `at`: the member that also gets a COUNT; 0: none does (the family comes
 * first in the struct). */
static const struct config_row { const char *name; enum form form; const char *key; size_t at; } rows[] = {
    { "model_type",                 TYPE,  NULL, 0 },
    { "hidden_size",                COUNT, "embedding_length", AT(width) },
    { "num_hidden_layers",          COUNT, "block_count", AT(layers) },
    { "intermediate_size",          COUNT, "feed_forward_length", AT(ff) },
    { "num_attention_heads",        COUNT, "attention.head_count", AT(heads) },
    { "num_key_value_heads",        COUNT, "attention.head_count_kv", AT(kv_heads) },
    { "head_dim",                   COUNT, NULL, AT(head_dim) },
    { "max_position_embeddings",    COUNT, "context_length", AT(context) },
    { "vocab_size",                 COUNT, "vocab_size", 0 },
    { "rms_norm_eps",               REAL,  "attention.layer_norm_rms_epsilon", 0 },
    { "rope_theta",                 THETA, NULL, 0 },
    { "rope_local_base_freq",       LOCAL_THETA, NULL, 0 },
    { "rope_scaling",               ROPE,  NULL, 0 },
    { "rope_parameters",            ROPE,  NULL, 0 },
    { "partial_rotary_factor",      PARTIAL, NULL, 0 },
    { "original_max_position_embeddings", COUNT, NULL, AT(original) },
    { "hidden_act",                 ACTIVATION, NULL, 0 },
    { "hidden_activation",          ACTIVATION, NULL, 0 },
    { "tie_word_embeddings",        TIED,  NULL, 0 },
    { "attention_bias",             BIASED, NULL, 0 },
    { "mlp_bias",                   NOT,   NULL, 0 },
    { "quantization_config",        QUANT, NULL, 0 },
    { "swiglu_limit",               GATE,  NULL, 0 },
    { "swiglu_alpha",               GATE,  NULL, 0 },
    { "use_bidirectional_attention", NOT,  NULL, 0 },
    { "sliding_window",             COUNT, NULL, AT(window) },
    { "use_sliding_window",         SWITCH, NULL, 0 },
    { "max_window_layers",          COUNT, NULL, AT(window_first) },
    { "sliding_window_pattern",     COUNT, NULL, AT(window_period) },
    { "layer_types",                LAYER_TYPES, NULL, 0 },
    { "no_rope_layers",             NOPE,  NULL, 0 },
    { "query_pre_attn_scalar",      QUERY_SCALAR, "attention.scale", 0 },
    { "attn_logit_softcapping",     REAL,  "attn_logit_softcapping", 0 },
    { "final_logit_softcapping",    REAL,  "final_logit_softcapping", 0 },
    { "num_local_experts",          COUNT, "expert_count", AT(experts) },
    { "num_experts",                COUNT, "expert_count", AT(experts) },
    { "num_experts_per_tok",        COUNT, "expert_used_count", 0 },
    { "moe_intermediate_size",      COUNT, "expert_feed_forward_length", 0 },
    { "norm_topk_prob",             NORM,  NULL, 0 },
    { "decoder_sparse_step",        ONE,   NULL, 0 },
    { "mlp_only_layers",            NONE_OF, NULL, 0 },
    { "q_lora_rank",                COUNT, "attention.q_lora_rank", 0 },
    { "kv_lora_rank",               COUNT, "attention.kv_lora_rank", 0 },
    { "qk_nope_head_dim",           COUNT, NULL, AT(latent.plain) },
    { "qk_rope_head_dim",           COUNT, NULL, AT(latent.turned) },
    { "v_head_dim",                 COUNT, NULL, AT(latent.value) },
    { "rope_interleave",            YES,   NULL, 0 },
    { "first_k_dense_replace",      COUNT, "leading_dense_block_count", 0 },
    { "moe_layer_freq",             ONE,   NULL, 0 },
    { "n_routed_experts",           COUNT, "expert_count", AT(experts) },
    { "n_shared_experts",           COUNT, "expert_shared_count", 0 },
    { "n_group",                    COUNT, NULL, AT(latent.groups) },
    { "topk_group",                 COUNT, NULL, AT(latent.groups_used) },
    { "topk_method",                WORD,  NULL, AT(latent.method) },
    { "scoring_func",               WORD,  NULL, AT(latent.scoring) },
    { "routed_scaling_factor",      REAL,  "expert_weights_scale", 0 },
    { "num_nextn_predict_layers",   COUNT, NULL, AT(latent.further_layers) },
};
/* clang-format on */

/* Keys get their prefix when the family is known. */
struct gguf_value *hf_config_put(struct hf_config *c, const char *key, enum gguf_type type)
{
    must(c->value_count < HF_VALUES_MAX);
    struct gguf_value *v = &c->values[c->value_count++];
    *v = (struct gguf_value){ .key = str_from(key), .type = type };
    return v;
}

/* ---- values of one key */

static int take_count(struct json_reader *r, struct hf_config *c, const struct config_row *row,
                      struct err *err)
{
    uint64_t count = 0;
    if (json_u64(r, &count) < 0 || count > UINT32_MAX)
        return err_set(err, -EINVAL, "key '%s' is no number from 0 to %u", row->name, UINT32_MAX);
    if (row->key) hf_config_put(c, row->key, GGUF_U32)->u = count;
    const uint32_t value = (uint32_t)count;
    if (row->at > 0) memcpy((char *)c + row->at, &value, sizeof value);
    return 0;
}

static int take_real(struct json_reader *r, struct hf_config *c, const struct config_row *row,
                     struct err *err)
{
    double real = 0;
    if (json_f64(r, &real) < 0) return err_set(err, -EINVAL, "key '%s' is no number", row->name);
    struct hf_rope *rope = row->form == LOCAL_THETA ? &c->local_rope : &c->rope;
    if (row->form == GATE) {
        const float want = strcmp(row->name, "swiglu_limit") == 0 ? GATE_LIMIT : GATE_ALPHA;
        if (!(fabs(real - (double)want) < 1e-6))
            return err_set(err, -ENOTSUP, "key '%s' is %g; computed is %g", row->name, real,
                           (double)want);
    } else if (row->form == PARTIAL) {
        rope->partial = real;
    } else if (row->form == QUERY_SCALAR) {
        if (!(real > 0)) return err_set(err, -EINVAL, "key '%s' is %g", row->name, real);
        hf_config_put(c, row->key, GGUF_F64)->f = 1 / sqrt(real);
    } else if (row->form == REAL) {
        hf_config_put(c, row->key, GGUF_F64)->f = real;
    } else if (rope->has_theta) {
        return err_set(err, -EINVAL, "%s is there twice", row->name);
    } else {
        rope->has_theta = true;
        rope->theta = real;
    }
    return 0;
}

static int take_word(struct json_reader *r, struct hf_config *c, struct arena *arena,
                     const struct config_row *row, struct str *ret, struct err *err)
{
    struct str text = { "", 0 };
    char names[HF_FAMILY_NAMES_BYTES];
    int rc = json_text_arena(r, arena, &text);
    if (rc == -ENOMEM) return err_set(err, rc, "no memory for the configuration");
    *ret = text;
    if (row->form == WORD) memcpy((char *)c + row->at, &text, sizeof text);
    if (row->form != TYPE) return 0;
    c->family = hf_family_of(text);
    if (c->family) return 0;
    hf_family_names(names);
    return err_set(err, -ENOTSUP, "key '%s' is '" STR_FMT "'; computed are %s", row->name,
                   STR_ARG(text), names);
}

/* Reads a list of what each layer has: 1 for a window (or, of NOPE, for RoPE), 0 for none. */
static int take_layers(struct json_reader *r, struct arena *arena, const struct config_row *row,
                       uint32_t **ret, uint32_t *ret_count, struct err *err)
{
    uint32_t *list = arena_array(arena, HF_LAYERS_MAX, sizeof *list), count = 0;
    if (!list) return err_set(err, -ENOMEM, "no memory for the layers");
    if (r->token != JSON_ARRAY) return err_set(err, -EINVAL, "key '%s' is no list", row->name);
    while (json_next(r) != JSON_ARRAY_END) {
        uint64_t number = 2;
        if (row->form == LAYER_TYPES && r->token == JSON_STRING)
            number = str_eq(r->raw, STR("sliding_attention")) ? 1
                     : str_eq(r->raw, STR("full_attention"))  ? 0
                                                              : 2;
        else if (row->form == NOPE && json_u64(r, &number) < 0)
            number = 2;
        if (number > 1 || count == HF_LAYERS_MAX)
            return err_set(err, -ENOTSUP,
                           "key '%s' has something that is not computed at layer %u, or more than "
                           "%u layers",
                           row->name, count, HF_LAYERS_MAX);
        list[count++] = (uint32_t)number;
    }
    *ret = list;
    *ret_count = count;
    return 0;
}

/* SmolLM 3's GGUF files do not say which layers have no RoPE; they all have every fourth. */
static int check_nope(const uint32_t *list, uint32_t count, struct hf_config *c, struct err *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i] != ((i + 1) % NOPE_INTERVAL != 0))
            return err_set(err, -ENOTSUP,
                           "key 'no_rope_layers' is %u at layer %u; computed is 0 in every fourth "
                           "layer, and 1 in others",
                           list[i], i);
    c->nope_count = count;
    return 0;
}

static int take_fixed(struct json_reader *r, const struct config_row *row, struct err *err)
{
    uint64_t count = 0;
    bool fits = row->form == YES   ? r->token == JSON_TRUE
                : row->form == NOT ? r->token == JSON_FALSE
                : row->form == ONE ? json_u64(r, &count) == 0 && count == 1
                                   : r->token == JSON_ARRAY && json_next(r) == JSON_ARRAY_END;
    if (fits) return 0;
    return err_set(err, -ENOTSUP,
                   "key '%s' asks for something that is not computed for safetensors", row->name);
}

static int take_value(struct json_reader *r, struct hf_config *c, struct arena *arena,
                      const struct config_row *row, struct str *activation, struct err *err)
{
    uint32_t *list = NULL, count = 0;
    struct str text;
    int rc = 0;
    if (r->token == JSON_NULL) return 0; /* as if it were absent */
    switch (row->form) {
    case COUNT:
        return take_count(r, c, row, err);
    case REAL:
    case THETA:
    case LOCAL_THETA:
    case PARTIAL:
    case QUERY_SCALAR:
    case GATE:
        return take_real(r, c, row, err);
    case TYPE:
    case WORD:
        return take_word(r, c, arena, row, &text, err);
    case ACTIVATION:
        return take_word(r, c, arena, row, activation, err);
    case QUANT:
        return hf_quant_read(r, &c->quant, err);
    case TIED:
    case SWITCH:
    case BIASED:
    case NORM:
        if (row->form == NORM) c->latent.norm_said = true;
        if (json_bool(r, row->form == TIED     ? &c->tied
                         : row->form == BIASED ? &c->biased
                         : row->form == NORM   ? &c->latent.norm
                                               : &c->uses_window) < 0)
            rc = err_set(err, -EINVAL, "key '%s' is neither true nor false", row->name);
        return rc;
    case ROPE:
        return hf_rope_read(r, row->name, arena, &c->rope, &c->local_rope, err);
    case LAYER_TYPES:
        return take_layers(r, arena, row, &c->layer_windows, &c->layer_window_count, err);
    case NOPE:
        rc = take_layers(r, arena, row, &list, &count, err);
        return rc < 0 ? rc : check_nope(list, count, c, err);
    case NOT:
    case YES:
    case ONE:
    case NONE_OF:
        break;
    }
    return take_fixed(r, row, err);
}

static int check_keys(const struct hf_config *c, struct str activation, struct err *err)
{
    if (!c->family) return err_set(err, -EINVAL, "key 'model_type' is missing");
    if (activation.len > 0 && !str_eq(activation, str_from(c->family->activation)))
        return err_set(err, -ENOTSUP,
                       "key 'hidden_act' or 'hidden_activation' is '" STR_FMT "'; computed is '%s'",
                       STR_ARG(activation), c->family->activation);
    if (c->biased && !c->family->biased)
        return err_set(err, -ENOTSUP,
                       "key 'attention_bias' asks for something that is not computed for %s",
                       c->family->model_type);
    if (c->quant.method == HF_QUANT_MXFP4 && !c->family->stacks)
        return err_set(err, -ENOTSUP, "quant_method mxfp4 is read for gpt_oss only");
    if (c->latent.norm_said && !c->latent.norm && !c->family->latent)
        return err_set(err, -ENOTSUP,
                       "key 'norm_topk_prob' asks for something that is not computed for %s",
                       c->family->model_type);
    if (c->heads == 0 && !c->family->encoder)
        return err_set(err, -EINVAL, "key 'num_attention_heads' is missing or 0");
    if (c->layer_windows && c->layer_window_count != c->layers)
        return err_set(err, -EINVAL, "key 'layer_types' has %u items, there are %u layers",
                       c->layer_window_count, c->layers);
    return 0;
}

static int read_keys(struct hf_config *c, struct str text, struct arena *arena, struct err *err)
{
    struct json_reader r;
    struct str activation = { "", 0 };
    uint64_t seen = 0;
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the configuration");
    while (json_next(&r) == JSON_KEY) {
        size_t i = 0;
        while (i < COUNT_OF(rows) && !json_key_is(&r, rows[i].name))
            i++;
        if (i == COUNT_OF(rows)) {
            json_skip(&r);
            continue;
        }
        if (seen >> i & 1u) return err_set(err, -EINVAL, "key '%s' is there twice", rows[i].name);
        seen |= (uint64_t)1 << i;
        json_next(&r);
        int rc = take_value(&r, c, arena, &rows[i], &activation, err);
        if (rc < 0) return rc;
        if (r.token == JSON_OBJECT || r.token == JSON_ARRAY) json_skip_rest(&r);
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the configuration");
    return check_keys(c, activation, err);
}

/* ---- keys of the GGUF file */

static int put_windows(struct hf_config *c, struct arena *arena, struct err *err)
{
    bool switched_off = c->family->windows_by_switch && !c->uses_window;
    if (c->window == 0 || switched_off) return 0;
    hf_config_put(c, "attention.sliding_window", GGUF_U32)->u = c->window;
    if (!c->layer_windows && !c->family->windows_by_switch) {
        if (c->window_period > 0)
            hf_config_put(c, "attention.sliding_window_pattern", GGUF_U32)->u = c->window_period;
        return 0;
    }
    if (c->layers > HF_LAYERS_MAX)
        return err_set(err, -EINVAL, "key 'num_hidden_layers' is %u, at most %u are computed",
                       c->layers, HF_LAYERS_MAX);
    char *list = arena_array(arena, c->layers + 1, sizeof *list);
    if (!list) return err_set(err, -ENOMEM, "no memory for the layers");
    for (uint32_t i = 0; i < c->layers; i++)
        list[i] = c->layer_windows ? c->layer_windows[i] != 0 : i >= c->window_first;
    struct gguf_value *v = hf_config_put(c, "attention.sliding_window_pattern", GGUF_ARRAY);
    v->array.type = GGUF_BOOL;
    v->array.count = c->layers;
    v->array.items = list;
    return 0;
}

uint32_t hf_config_pairs(const struct hf_config *c)
{
    double head = c->head_dim ? c->head_dim : c->width / c->heads;
    return (uint32_t)(head * (c->rope.partial > 0 ? c->rope.partial : 1)) / 2;
}

static void put_rope(struct hf_config *c)
{
    const struct hf_rope *rope = &c->rope;
    hf_config_put(c, "rope.freq_base", GGUF_F64)->f = rope->theta;
    if (c->local_rope.has_theta)
        hf_config_put(c, "rope.freq_base_swa", GGUF_F64)->f = c->local_rope.theta;
    if (rope->partial > 0)
        hf_config_put(c, "rope.dimension_count", GGUF_U32)->u = 2 * hf_config_pairs(c);
    if (rope->type == HF_ROPE_LINEAR || rope->type == HF_ROPE_YARN) {
        hf_config_put(c, "rope.scaling.type", GGUF_STRING)->text =
            rope->type == HF_ROPE_YARN ? STR("yarn") : STR("linear");
        hf_config_put(c, "rope.scaling.factor", GGUF_F64)->f = rope->factor;
    }
    if (rope->type == HF_ROPE_YARN || rope->type == HF_ROPE_LONG) {
        double original = rope->original > 0 ? rope->original : c->original;
        hf_config_put(c, "rope.scaling.original_context_length", GGUF_U32)->u = (uint64_t)original;
        if (rope->attention_factor > 0)
            hf_config_put(c, "rope.scaling.attn_factor", GGUF_F64)->f = rope->attention_factor;
    }
    if (rope->beta_fast > 0)
        hf_config_put(c, "rope.scaling.yarn_beta_fast", GGUF_F64)->f = rope->beta_fast;
    if (rope->beta_slow > 0)
        hf_config_put(c, "rope.scaling.yarn_beta_slow", GGUF_F64)->f = rope->beta_slow;
}

/* Gives every key the architecture's name in front. */
static int add_prefix(struct hf_config *c, struct arena *arena, struct err *err)
{
    for (uint32_t i = 0; i < c->value_count; i++) {
        char key[128];
        snprintf(key, sizeof key, "%s." STR_FMT, c->family->arch, STR_ARG(c->values[i].key));
        c->values[i].key = arena_str(arena, str_from(key));
        if (!c->values[i].key.data) return err_set(err, -ENOMEM, "no memory for the keys");
    }
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return str_cmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int check_rope(const struct hf_config *c, struct err *err)
{
    const struct hf_rope *rope = &c->rope;
    double original = rope->original > 0 ? rope->original : c->original;
    if (!(rope->partial >= 0 && rope->partial <= 1))
        return err_set(err, -EINVAL, "key 'partial_rotary_factor' is %g, it lies within 0 and 1",
                       rope->partial);
    if (rope->exact != (rope->type == HF_ROPE_YARN && c->family->yarn_exact))
        return err_set(err, -ENOTSUP, "truncate: %s of YaRN is not computed for %s",
                       rope->exact ? "false" : "true", c->family->model_type);
    if ((rope->mscale > 0 || rope->mscale_all_dim > 0) && !c->family->latent)
        return err_set(err, -ENOTSUP, "mscale and mscale_all_dim of YaRN are not computed for %s",
                       c->family->model_type);
    if (c->local_rope.type != HF_ROPE_DEFAULT)
        return err_set(err, -ENOTSUP, "sliding_attention scales positions; computed is default");
    if (rope->type == HF_ROPE_LONG && strcmp(c->family->arch, "phi3") != 0)
        return err_set(err, -ENOTSUP, "longrope is computed for phi3 only");
    if (rope->type == HF_ROPE_LONG || rope->type == HF_ROPE_YARN)
        if (!(original >= 1 && original < UINT32_MAX))
            return err_set(err, -EINVAL, "original_max_position_embeddings is missing or %g",
                           original);
    if (rope->type == HF_ROPE_LONG &&
        (rope->short_count != hf_config_pairs(c) || rope->long_count != hf_config_pairs(c)))
        return err_set(err, -EINVAL, "lists of %u and %u factors, there are %u pairs",
                       rope->short_count, rope->long_count, hf_config_pairs(c));
    return 0;
}

static int put_decoder(struct hf_config *c, struct arena *arena, struct err *err)
{
    int rc = check_rope(c, err);
    if (rc == 0) rc = put_windows(c, arena, err);
    if (rc == 0 && c->family->latent) rc = hf_latent_keys(c, err);
    if (rc < 0) return rc;
    put_rope(c);
    if (c->head_dim > 0 && !c->family->latent)
        hf_config_put(c, "attention.key_length", GGUF_U32)->u = c->head_dim;
    if (c->family->expert_ff) hf_config_put(c, "expert_feed_forward_length", GGUF_U32)->u = c->ff;
    return 0;
}

int hf_config_read(struct hf_config *c, struct str text, struct arena *arena, struct err *err)
{
    c->rope.theta = 10000;
    c->local_rope.theta = 10000;
    int rc = read_keys(c, text, arena, err);
    if (rc == 0)
        rc = c->family->encoder ? hf_encoder_keys(c, text, err) : put_decoder(c, arena, err);
    if (rc < 0) return rc;
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->pooling_type > 0) hf_config_put(c, "pooling_type", GGUF_U32)->u = c->pooling_type;
    rc = add_prefix(c, arena, err);
    hf_config_put(c, "general.architecture", GGUF_STRING)->text = str_from(c->family->arch);
    hf_config_put(c, "tokenizer.ggml.model", GGUF_STRING)->text = STR("no_vocab");
    qsort(c->values, c->value_count, sizeof *c->values, by_key);
    for (uint32_t i = 1; i < c->value_count && rc == 0; i++)
        if (str_eq(c->values[i - 1].key, c->values[i].key))
            rc = err_set(err, -EINVAL, "two keys mean '" STR_FMT "'", STR_ARG(c->values[i].key));
    return rc;
}

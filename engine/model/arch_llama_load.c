/* arch_llama_load.c - a Llama from its file: geometry, rotary angles, weights.
 *
 * Linear scaling and a table of factors (rope_freqs.weight) are computed into the angles; other
 * scalings are refused. */
#include "engine/model/arch_llama.h"

#include <math.h>
#include <stdio.h>

#define HEADS_MAX 4096u

/* clang-format off */
static const struct key_rule key_rules[] = {
    { "vocab_size", KEY_READ },
    { "context_length", KEY_READ },
    { "embedding_length", KEY_READ },
    { "block_count", KEY_READ },
    { "feed_forward_length", KEY_READ },
    { "attention.head_count", KEY_READ },
    { "attention.head_count_kv", KEY_READ },
    { "attention.key_length", KEY_READ },
    { "attention.value_length", KEY_READ },
    { "attention.layer_norm_rms_epsilon", KEY_READ },
    { "rope.dimension_count", KEY_READ },
    { "rope.freq_base", KEY_READ },
    { "rope.scaling.type", KEY_READ },
    { "rope.scaling.factor", KEY_READ },
    { "rope.scaling.original_context_length", KEY_IGNORED }, /* linear scaling does not use it */
    { "rope.scaling.finetuned", KEY_IGNORED },
    { "tensor_data_layout", KEY_IGNORED },
    { "expert_count", KEY_ZERO },
    { "expert_used_count", KEY_ZERO },
};
/* clang-format on */

static int load_heads(struct loader *l, struct model_info *info, struct err *err)
{
    info->n_kv_heads = info->n_heads;
    int rc = loader_u32(l, "attention.head_count_kv", false, 1, HEADS_MAX, &info->n_kv_heads, err);
    if (rc < 0) return rc;
    if (info->n_heads % info->n_kv_heads != 0)
        return err_set(err, -EINVAL, "%s: %u heads cannot share %u KV heads evenly",
                       l->source->name, info->n_heads, info->n_kv_heads);
    info->head_dim = info->n_embd % info->n_heads == 0 ? info->n_embd / info->n_heads : 0;
    rc = loader_u32(l, "attention.key_length", info->head_dim == 0, 1, KV_HEAD_DIM_MAX,
                    &info->head_dim, err);
    uint32_t value_length = info->head_dim;
    if (rc == 0)
        rc = loader_u32(l, "attention.value_length", false, 1, KV_HEAD_DIM_MAX, &value_length, err);
    if (rc < 0) return rc;
    if (value_length != info->head_dim)
        return err_set(err, -ENOTSUP, "%s: keys of %u and values of %u; they must be equal here",
                       l->source->name, info->head_dim, value_length);
    if (info->head_dim % TILE_ROWS != 0 || info->head_dim > KV_HEAD_DIM_MAX)
        return err_set(err, -ENOTSUP, "%s: heads of %u; multiples of %d up to %d are computed",
                       l->source->name, info->head_dim, TILE_ROWS, KV_HEAD_DIM_MAX);
    return 0;
}

static int load_geometry(struct loader *l, struct model_info *info, struct llama *m,
                         struct err *err)
{
    int rc = loader_u32(l, "embedding_length", true, 1, MODEL_EMBD_MAX, &info->n_embd, err);
    if (rc == 0) rc = loader_u32(l, "block_count", true, 1, MODEL_LAYERS_MAX, &info->n_layers, err);
    if (rc == 0) rc = loader_u32(l, "feed_forward_length", true, 1, OP_COLS_MAX, &info->n_ff, err);
    if (rc == 0)
        rc = loader_u32(l, "attention.head_count", true, 1, HEADS_MAX, &info->n_heads, err);
    if (rc == 0)
        rc =
            loader_u32(l, "context_length", true, 1, MODEL_CONTEXT_MAX, &info->context_length, err);
    if (rc == 0) rc = loader_f32(l, "attention.layer_norm_rms_epsilon", true, &m->eps, err);
    if (rc < 0) return rc;
    if (!(m->eps > 0 && m->eps < 1))
        return err_set(err, -EINVAL,
                       "%s: key 'llama.attention.layer_norm_rms_epsilon' is %g, it "
                       "must lie between 0 and 1",
                       l->source->name, (double)m->eps);
    rc = load_heads(l, info, err);
    if (rc == 0) m->scale = (float)(1 / sqrt((double)info->head_dim));
    return rc;
}

/* The factor by which positions shrink: 1, or linear scaling's. */
static int load_scaling(struct loader *l, double *ret, struct err *err)
{
    struct str type = STR("none");
    float factor = 1;
    int rc = loader_str(l, "rope.scaling.type", &type, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.factor", false, &factor, err);
    if (rc < 0) return rc;
    bool linear = str_eq(type, STR("linear"));
    if (!linear && !str_eq(type, STR("none")) && type.len > 0)
        return err_set(err, -ENOTSUP,
                       "%s: key 'llama.rope.scaling.type' is '" STR_FMT "'; none "
                       "and linear are computed",
                       l->source->name, STR_ARG(type));
    if (linear && !(factor >= 1))
        return err_set(err, -EINVAL,
                       "%s: key 'llama.rope.scaling.factor' is %g, it must be at "
                       "least 1",
                       l->source->name, (double)factor);
    *ret = linear ? (double)factor : 1;
    return 0;
}

static int load_rope(struct loader *l, const struct model_info *info, struct llama *m,
                     struct err *err)
{
    uint32_t dims = info->head_dim;
    float base = 10000;
    double scaling = 1;
    const float *factors = NULL;
    int rc = loader_u32(l, "rope.dimension_count", false, 2, info->head_dim, &dims, err);
    if (rc == 0) rc = loader_f32(l, "rope.freq_base", false, &base, err);
    if (rc == 0) rc = load_scaling(l, &scaling, err);
    if (rc < 0) return rc;
    if (dims % 2 != 0 || !(base >= 1))
        return err_set(err, -EINVAL,
                       "%s: RoPE over %u dimensions with base %g: the first must be "
                       "even, the second at least 1",
                       l->source->name, dims, (double)base);
    m->pairs = dims / 2;
    if (loader_has(l, "rope_freqs.weight"))
        rc = loader_vector(l, "rope_freqs.weight", m->pairs, &factors, err);
    if (rc < 0) return rc;
    m->angle_step = arena_array(&l->model->arena, m->pairs, sizeof *m->angle_step);
    if (!m->angle_step) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t i = 0; i < m->pairs; i++) {
        double factor = factors ? (double)factors[i] : 1;
        if (!(factor > 0))
            return err_set(err, -EINVAL, "%s: tensor 'rope_freqs.weight' has a factor of %g",
                           l->source->name, factor);
        m->angle_step[i] = pow((double)base, -2.0 * i / dims) / (factor * scaling);
    }
    return 0;
}

static int load_vocab_size(struct loader *l, struct model_info *info, struct err *err)
{
    const struct gguf_value *tokens = gguf_find(l->gguf, STR("tokenizer.ggml.tokens"));
    bool counted = tokens && tokens->type == GGUF_ARRAY && tokens->array.count > 0 &&
                   tokens->array.count <= VOCAB_TOKENS_MAX;
    uint32_t count = counted ? (uint32_t)tokens->array.count : 0;
    info->vocab_size = count;
    int rc = loader_u32(l, "vocab_size", !counted, 1, VOCAB_TOKENS_MAX, &info->vocab_size, err);
    if (rc < 0) return rc;
    if (counted && info->vocab_size != count)
        return err_set(err, -EINVAL, "%s: key 'llama.vocab_size' is %u, but there are %u tokens",
                       l->source->name, info->vocab_size, count);
    return 0;
}

static int load_layer(struct loader *l, const struct model_info *info, uint32_t index,
                      struct llama_layer *layer, struct err *err)
{
    uint32_t q_rows = info->n_heads * info->head_dim, kv_rows = info->n_kv_heads * info->head_dim;
    const struct {
        const char *name;
        struct weight *to;
        uint32_t rows, cols;
    } matrix[] = {
        { "attn_q", &layer->q, q_rows, info->n_embd },
        { "attn_k", &layer->k, kv_rows, info->n_embd },
        { "attn_v", &layer->v, kv_rows, info->n_embd },
        { "attn_output", &layer->out, info->n_embd, q_rows },
        { "ffn_gate", &layer->gate, info->n_ff, info->n_embd },
        { "ffn_up", &layer->up, info->n_ff, info->n_embd },
        { "ffn_down", &layer->down, info->n_embd, info->n_ff },
    };
    char name[GGUF_NAME_BYTES_MAX + 1];
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(matrix) && rc == 0; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", index, matrix[i].name);
        rc = loader_matrix(l, name, matrix[i].rows, matrix[i].cols, matrix[i].to, err);
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", index);
    if (rc == 0) rc = loader_vector(l, name, info->n_embd, &layer->attn_norm, err);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", index);
    if (rc == 0) rc = loader_vector(l, name, info->n_embd, &layer->ffn_norm, err);
    return rc;
}

int llama_load(struct loader *l, struct model *model, struct err *err)
{
    struct model_info *info = &model->info;
    struct llama *m = arena_alloc(&model->arena, sizeof *m);
    if (!m) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    int rc = loader_check_keys(l, key_rules, COUNT_OF(key_rules), err);
    if (rc == 0) rc = load_geometry(l, info, m, err);
    if (rc == 0) rc = load_rope(l, info, m, err);
    if (rc == 0) rc = load_vocab_size(l, info, err);
    if (rc == 0)
        rc = loader_matrix(l, "token_embd.weight", info->vocab_size, info->n_embd, &m->embedding,
                           err);
    if (rc == 0) rc = loader_vector(l, "output_norm.weight", info->n_embd, &m->output_norm, err);
    if (rc < 0) return rc;
    m->output = m->embedding;
    if (loader_has(l, "output.weight"))
        rc = loader_matrix(l, "output.weight", info->vocab_size, info->n_embd, &m->output, err);
    m->layers = arena_array(&model->arena, info->n_layers, sizeof *m->layers);
    if (rc == 0 && !m->layers) rc = err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t i = 0; i < info->n_layers && rc == 0; i++)
        rc = load_layer(l, info, i, &m->layers[i], err);
    if (rc == 0) model->arch_model = m;
    return rc;
}

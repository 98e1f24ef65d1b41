/* decoder_load.c - reads geometry and tensors of the decoders of decoder.h. */
#include "engine/model/decoder.h"
#include "engine/model/latent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- geometry */

static int load_heads(struct loader *l, struct model_info *info, struct err *err)
{
    info->n_kv_heads = info->n_heads;
    int rc = loader_u32(l, "attention.head_count_kv", false, 1, DECODER_HEADS_MAX,
                        &info->n_kv_heads, err);
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

static int load_geometry(struct loader *l, struct model_info *info, struct decoder *d,
                         struct err *err)
{
    int rc = loader_u32(l, "embedding_length", true, 1, MODEL_EMBD_MAX, &info->n_embd, err);
    if (rc == 0) rc = loader_u32(l, "block_count", true, 1, MODEL_LAYERS_MAX, &info->n_layers, err);
    if (rc == 0) rc = loader_u32(l, "feed_forward_length", true, 1, OP_COLS_MAX, &info->n_ff, err);
    if (rc == 0)
        rc = loader_u32(l, "attention.head_count", true, 1, DECODER_HEADS_MAX, &info->n_heads, err);
    if (rc == 0)
        rc =
            loader_u32(l, "context_length", true, 1, MODEL_CONTEXT_MAX, &info->context_length, err);
    if (rc == 0) rc = loader_f32(l, "attention.layer_norm_rms_epsilon", true, &d->eps, err);
    if (rc < 0) return rc;
    if (!(d->eps > 0 && d->eps < 1))
        return err_set(err, -EINVAL,
                       "%s: key '%s.attention.layer_norm_rms_epsilon' is %g, it "
                       "must lie between 0 and 1",
                       l->source->name, l->arch, (double)d->eps);
    if (d->form->latent) return latent_geometry(l, d, info, err);
    rc = load_heads(l, info, err);
    if (rc == 0) d->scale = (float)(1 / sqrt((double)info->head_dim));
    return rc;
}

/* Causal embedders say how their vectors are made; the state of the first token alone says nothing of a
 * text that it does not see. */
static int decoder_pooling(struct loader *l, struct model_info *info, struct err *err)
{
    uint32_t type = GGUF_POOLING_NONE;
    int rc = loader_u32(l, "pooling_type", false, 0, UINT32_MAX, &type, err);
    if (rc < 0) return rc;
    if (type != GGUF_POOLING_NONE && type != GGUF_POOLING_MEAN && type != GGUF_POOLING_LAST)
        return err_set(err, -ENOTSUP,
                       "%s: key '%s.pooling_type' is %u; of a decoder, %d (mean) and %d (last "
                       "token) are computed",
                       l->source->name, l->arch, type, GGUF_POOLING_MEAN, GGUF_POOLING_LAST);
    info->pooling = type == GGUF_POOLING_MEAN ? POOLING_MEAN : POOLING_LAST;
    return 0;
}

/* ---- windows and experts */

bool decoder_layer_has_window(const struct gguf_value *list, uint32_t period, uint32_t layer)
{
    if (!list) return period == 0 || layer % period + 1 < period;
    uint32_t bytes = gguf_type_bytes(list->array.type);
    bool has = false; /* any bit of the little-endian number or bool */
    for (uint32_t b = 0; b < bytes; b++)
        has = has || list->array.items[(size_t)layer * bytes + b] != 0;
    return has;
}

int decoder_windows(struct loader *l, struct decoder *d, const struct model_info *info,
                    struct err *err)
{
    char key[128];
    uint32_t window = 0, period = d->form->window_period;
    int rc = loader_u32(l, "attention.sliding_window", false, 0, MODEL_CONTEXT_MAX, &window, err);
    if (rc < 0) return rc;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", l->arch);
    const struct gguf_value *list = gguf_find(l->gguf, str_from(key));
    if (list && list->type != GGUF_ARRAY) list = NULL;
    if (!list)
        rc = loader_u32(l, "attention.sliding_window_pattern", false, 0, MODEL_LAYERS_MAX, &period,
                        err);
    else if (list->array.count != info->n_layers || !list->array.items)
        rc = err_set(err, -EINVAL, "%s: key '" STR_FMT "' has %zu items, there are %u layers",
                     l->source->name, STR_ARG(list->key), list->array.count, info->n_layers);
    for (uint32_t i = 0; i < info->n_layers && rc == 0; i++)
        d->layers[i].window = decoder_layer_has_window(list, period, i) ? window : 0;
    return rc;
}

int decoder_expert_keys(struct loader *l, struct decoder *d, const struct model_info *info,
                        bool own_ff, struct err *err)
{
    d->expert_ff = info->n_ff;
    int rc = loader_u32(l, "expert_count", false, 0, DECODER_EXPERTS_MAX, &d->n_experts, err);
    if (rc == 0 && own_ff)
        rc = loader_u32(l, "expert_feed_forward_length", true, 1, OP_COLS_MAX, &d->expert_ff, err);
    if (rc < 0) return rc;
    uint32_t most = min_u32(d->n_experts, DECODER_EXPERTS_USED_MAX);
    return loader_u32(l, "expert_used_count", d->n_experts > 0, most > 0, most, &d->experts_used,
                      err);
}

/* ---- tensors */

#define LAYER_NAME(name, index, tensor) \
    snprintf(name, GGUF_NAME_BYTES_MAX + 1, "blk.%u.%s", index, tensor)

/* The order of rows of `heads` heads, when the file's RoPE turns halves. */
static struct row_order order_of(const struct decoder *d, const struct model_info *info,
                                 uint32_t heads)
{
    return (struct row_order){ .rows = d->form->halves ? heads * info->head_dim : 0,
                               .head_rows = info->head_dim,
                               .pairs = d->pairs };
}

/* A matrix of `rows` rows, and where in it they begin. */
static struct weight weight_part(const struct weight *w, uint32_t first, uint32_t rows)
{
    struct weight part = *w;
    part.rows = rows;
    part.tiles += (size_t)(first / TILE_ROWS) * weight_tile_bytes(w);
    return part;
}

static int load_fused(struct loader *l, const struct decoder *d, const struct model_info *info,
                      uint32_t index, struct decoder_layer *layer, struct err *err)
{
    uint32_t q = info->n_heads * info->head_dim, kv = info->n_kv_heads * info->head_dim;
    struct row_order order = order_of(d, info, info->n_heads + info->n_kv_heads);
    char name[GGUF_NAME_BYTES_MAX + 1];
    struct weight all;
    LAYER_NAME(name, index, "attn_qkv.weight");
    int rc = loader_matrix(l, name, q + 2 * kv, info->n_embd, &order, &all, err);
    if (rc < 0) return rc;
    layer->q = weight_part(&all, 0, q);
    layer->k = weight_part(&all, q, kv);
    layer->v = weight_part(&all, q + kv, kv);
    if (info->n_ff % TILE_ROWS != 0)
        return err_set(err, -ENOTSUP,
                       "%s: gate and up in one tensor, of %u rows each; multiples of %d are read",
                       l->source->name, info->n_ff, TILE_ROWS);
    LAYER_NAME(name, index, "ffn_up.weight");
    rc = loader_matrix(l, name, 2 * info->n_ff, info->n_embd, NULL, &all, err);
    if (rc < 0) return rc;
    layer->gate = weight_part(&all, 0, info->n_ff);
    layer->up = weight_part(&all, info->n_ff, info->n_ff);
    return 0;
}

static int load_matrices(struct loader *l, const struct decoder *d, const struct model_info *info,
                         uint32_t index, struct decoder_layer *layer, struct err *err)
{
    uint32_t q_rows = info->n_heads * info->head_dim, kv_rows = info->n_kv_heads * info->head_dim;
    bool fused = d->form->fused, plain = !fused && !d->form->latent;
    bool dense = d->n_experts == 0 || index < d->dense_layers;
    bool shared = !dense && d->shared_ff > 0;
    uint32_t out_cols = d->form->latent ? info->n_heads * d->latent.value : q_rows;
    struct row_order q = order_of(d, info, info->n_heads);
    struct row_order k = order_of(d, info, info->n_kv_heads);
    const struct {
        bool has;
        const char *name;
        struct weight *to;
        uint32_t rows, cols;
        const struct row_order *order;
    } matrix[] = {
        { plain, "attn_q.weight", &layer->q, q_rows, info->n_embd, &q },
        { plain, "attn_k.weight", &layer->k, kv_rows, info->n_embd, &k },
        { plain, "attn_v.weight", &layer->v, kv_rows, info->n_embd, NULL },
        { true, "attn_output.weight", &layer->out, info->n_embd, out_cols, NULL },
        { dense && !fused, "ffn_gate.weight", &layer->gate, info->n_ff, info->n_embd, NULL },
        { dense && !fused, "ffn_up.weight", &layer->up, info->n_ff, info->n_embd, NULL },
        { dense, "ffn_down.weight", &layer->down, info->n_embd, info->n_ff, NULL },
        { shared, "ffn_gate_shexp.weight", &layer->gate, d->shared_ff, info->n_embd, NULL },
        { shared, "ffn_up_shexp.weight", &layer->up, d->shared_ff, info->n_embd, NULL },
        { shared, "ffn_down_shexp.weight", &layer->down, info->n_embd, d->shared_ff, NULL },
    };
    int rc = fused             ? load_fused(l, d, info, index, layer, err)
             : d->form->latent ? latent_tensors(l, d, info, index, layer, err)
                               : 0;
    for (size_t i = 0; i < COUNT_OF(matrix) && rc == 0; i++) {
        char name[GGUF_NAME_BYTES_MAX + 1];
        if (!matrix[i].has) continue;
        LAYER_NAME(name, index, matrix[i].name);
        rc = loader_matrix(l, name, matrix[i].rows, matrix[i].cols, matrix[i].order, matrix[i].to,
                           err);
    }
    return rc;
}

static int load_vectors(struct loader *l, const struct decoder *d, const struct model_info *info,
                        uint32_t index, struct decoder_layer *layer, struct err *err)
{
    const struct decoder_form *f = d->form;
    uint32_t q_rows = info->n_heads * info->head_dim, kv_rows = info->n_kv_heads * info->head_dim;
    struct row_order q = order_of(d, info, info->n_heads);
    struct row_order k = order_of(d, info, info->n_kv_heads);
    struct row_order head = order_of(d, info, 1);
    const struct {
        bool has;
        const char *name;
        const float **to;
        uint32_t count;
        const struct row_order *order;
    } vector[] = {
        { true, "attn_norm.weight", &layer->attn_norm, info->n_embd, NULL },
        { true, f->ffn_norm, &layer->ffn_norm, info->n_embd, NULL },
        { f->attn_post_norm != NULL, f->attn_post_norm, &layer->attn_post_norm, info->n_embd,
          NULL },
        { f->ffn_post_norm != NULL, f->ffn_post_norm, &layer->ffn_post_norm, info->n_embd, NULL },
        { f->qk_norm, "attn_q_norm.weight", &layer->q_norm, info->head_dim, &head },
        { f->qk_norm, "attn_k_norm.weight", &layer->k_norm, info->head_dim, &head },
        { f->qkv_bias, "attn_q.bias", &layer->q_bias, q_rows, &q },
        { f->qkv_bias, "attn_k.bias", &layer->k_bias, kv_rows, &k },
        { f->qkv_bias, "attn_v.bias", &layer->v_bias, kv_rows, NULL },
        { f->out_bias, "attn_output.bias", &layer->out_bias, info->n_embd, NULL },
        { f->sinks, "attn_sinks.weight", &layer->sinks, info->n_heads, NULL },
    };
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(vector) && rc == 0; i++) {
        char name[GGUF_NAME_BYTES_MAX + 1];
        if (!vector[i].has) continue;
        LAYER_NAME(name, index, vector[i].name);
        rc = loader_vector(l, name, vector[i].count, vector[i].order, vector[i].to, err);
    }
    return rc;
}

static int load_experts(struct loader *l, const struct decoder *d, const struct model_info *info,
                        uint32_t index, struct decoder_experts *e, struct err *err)
{
    uint32_t count = d->n_experts, ff = d->expert_ff;
    const struct {
        const char *name, *bias;
        struct weight **to;
        const float **to_bias;
        uint32_t rows, cols;
    } stack[] = {
        { "ffn_gate_exps.weight", "ffn_gate_exps.bias", &e->gate, &e->gate_bias, ff, info->n_embd },
        { "ffn_up_exps.weight", "ffn_up_exps.bias", &e->up, &e->up_bias, ff, info->n_embd },
        { "ffn_down_exps.weight", "ffn_down_exps.bias", &e->down, &e->down_bias, info->n_embd, ff },
    };
    char name[GGUF_NAME_BYTES_MAX + 1];
    LAYER_NAME(name, index, "ffn_gate_inp.weight");
    int rc = loader_matrix(l, name, count, info->n_embd, NULL, &e->router, err);
    LAYER_NAME(name, index, "ffn_gate_inp.bias");
    if (rc == 0 && d->form->experts_bias)
        rc = loader_vector(l, name, count, NULL, &e->router_bias, err);
    LAYER_NAME(name, index, "exp_probs_b.bias");
    if (rc == 0 && d->router.sigmoid)
        rc = loader_vector(l, name, count, NULL, &e->choice_bias, err);
    for (size_t i = 0; i < COUNT_OF(stack) && rc == 0; i++) {
        LAYER_NAME(name, index, stack[i].name);
        rc = loader_stack(l, name, count, stack[i].rows, stack[i].cols, stack[i].to, err);
        LAYER_NAME(name, index, stack[i].bias);
        if (rc == 0 && d->form->experts_bias)
            rc = loader_table(l, name, count, stack[i].rows, stack[i].to_bias, err);
    }
    return rc;
}

static int load_layer(struct loader *l, const struct decoder *d, const struct model_info *info,
                      uint32_t index, struct err *err)
{
    struct decoder_layer *layer = &d->layers[index];
    int rc = load_matrices(l, d, info, index, layer, err);
    if (rc == 0) rc = load_vectors(l, d, info, index, layer, err);
    if (rc == 0 && d->n_experts > 0 && index >= d->dense_layers)
        rc = load_experts(l, d, info, index, &layer->experts, err);
    return rc;
}

static int load_tensors(struct loader *l, struct model_info *info, struct decoder *d,
                        struct err *err)
{
    int rc = loader_matrix(l, "token_embd.weight", info->vocab_size, info->n_embd, NULL,
                           &d->embedding, err);
    if (rc == 0)
        rc = loader_vector(l, "output_norm.weight", info->n_embd, NULL, &d->output_norm, err);
    if (rc < 0) return rc;
    d->output = d->embedding;
    info->tied = !loader_has(l, "output.weight");
    if (!info->tied)
        info->table_bytes = weight_tiles(&d->embedding) * weight_tile_bytes(&d->embedding);
    if (!info->tied)
        rc = loader_matrix(l, "output.weight", info->vocab_size, info->n_embd, NULL, &d->output,
                           err);
    for (uint32_t i = 0; i < info->n_layers && rc == 0; i++)
        rc = load_layer(l, d, info, i, err);
    return rc;
}

/* Gives layers their places in a page of KV. A window that no context outgrows is none. */
static void place_layers(struct decoder *d, struct model_info *info)
{
    uint32_t full = 0, most = 0;
    for (uint32_t i = 0; i < info->n_layers; i++) {
        if (d->layers[i].window >= info->context_length) d->layers[i].window = 0;
        full += d->layers[i].window == 0;
        most = max_u32(most, d->layers[i].window);
    }
    info->kv_window = most;
    info->kv_window_layers = info->n_layers - full;
    for (uint32_t i = 0, behind = full, before = 0; i < info->n_layers; i++)
        d->layers[i].kv_place = d->layers[i].window > 0 ? behind++ : before++;
}

int decoder_load(struct loader *l, struct model *model, struct err *err)
{
    const struct decoder_form *form = model->arch->form;
    struct model_info *info = &model->info;
    float base = 10000;
    struct decoder *d = arena_alloc(&model->arena, sizeof *d);
    if (!d) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    *d = (struct decoder){ .form = form };
    int rc = loader_check_keys(l, form->keys, form->key_count, err);
    if (rc == 0) rc = load_geometry(l, info, d, err);
    if (rc == 0) rc = loader_f32(l, "rope.freq_base", false, &base, err);
    if (rc == 0) rc = decoder_rope_load(l, d, info, 0, base, true, err);
    if (rc == 0) rc = loader_vocab_size(l, &info->vocab_size, err);
    if (rc == 0) rc = decoder_pooling(l, info, err);
    if (rc < 0) return rc;
    d->layers = arena_array(&model->arena, info->n_layers, sizeof *d->layers);
    if (!d->layers) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    if (form->adjust) rc = form->adjust(l, d, info, err);
    place_layers(d, info);
    if (rc == 0) rc = load_tensors(l, info, d, err);
    if (rc == 0) model->arch_model = d;
    return rc;
}

decoder_gate_fn decoder_gate(const struct decoder *d, const struct ops *ops)
{
    return d->form->gate == GATE_GELU      ? ops->gelu_mul
           : d->form->gate == GATE_CLAMPED ? ops->clamped_mul
                                           : ops->silu_mul;
}

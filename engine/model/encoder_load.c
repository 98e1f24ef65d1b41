/* encoder_load.c - reads geometry and tensors of the encoders of encoder.h. */
#include "engine/model/encoder.h"

#include <math.h>
#include <stdio.h>

/* ---- geometry */

static int load_heads(struct loader *l, struct model_info *info, struct err *err)
{
    if (info->n_embd % info->n_heads != 0)
        return err_set(err, -EINVAL, "%s: %u heads cannot share %u numbers evenly", l->source->name,
                       info->n_heads, info->n_embd);
    info->head_dim = info->n_embd / info->n_heads;
    info->n_kv_heads = info->n_heads;
    if (info->head_dim % TILE_ROWS == 0 && info->head_dim <= KV_HEAD_DIM_MAX) return 0;
    return err_set(err, -ENOTSUP, "%s: heads of %u; multiples of %d up to %d are computed",
                   l->source->name, info->head_dim, TILE_ROWS, KV_HEAD_DIM_MAX);
}

static int load_geometry(struct loader *l, struct model_info *info, struct encoder *e,
                         struct err *err)
{
    int rc = loader_u32(l, "embedding_length", true, 1, MODEL_EMBD_MAX, &info->n_embd, err);
    if (rc == 0) rc = loader_u32(l, "block_count", true, 1, MODEL_LAYERS_MAX, &info->n_layers, err);
    if (rc == 0) rc = loader_u32(l, "feed_forward_length", true, 1, OP_COLS_MAX, &info->n_ff, err);
    if (rc == 0)
        rc = loader_u32(l, "attention.head_count", true, 1, ENCODER_HEADS_MAX, &info->n_heads, err);
    if (rc == 0)
        rc =
            loader_u32(l, "context_length", true, 1, MODEL_CONTEXT_MAX, &info->context_length, err);
    if (rc == 0) rc = loader_f32(l, "attention.layer_norm_epsilon", true, &e->eps, err);
    if (rc < 0) return rc;
    if (!(e->eps > 0 && e->eps < 1))
        return err_set(
            err, -EINVAL,
            "%s: key '%s.attention.layer_norm_epsilon' is %g, it must lie between 0 and 1",
            l->source->name, l->arch, (double)e->eps);
    rc = load_heads(l, info, err);
    if (rc == 0) e->scale = (float)(1 / sqrt((double)info->head_dim));
    return rc < 0 ? rc : loader_vocab_size(l, &info->vocab_size, err);
}

/* ---- what is made of the states */

/* A head makes it a cross-encoder; llama.cpp calls its pooling "rank". */
static int load_task(struct loader *l, struct model_info *info, struct err *err)
{
    static const enum pooling poolings[] = { [GGUF_POOLING_NONE] = POOLING_MEAN,
                                             [GGUF_POOLING_MEAN] = POOLING_MEAN,
                                             [GGUF_POOLING_CLS] = POOLING_CLS,
                                             [GGUF_POOLING_LAST] = POOLING_LAST,
                                             [GGUF_POOLING_RANK] = POOLING_CLS };
    const bool head = loader_has(l, "cls.output.weight");
    uint32_t type = GGUF_POOLING_NONE;
    struct str activation = STR("sigmoid");
    int rc = loader_u32(l, "pooling_type", false, 0, GGUF_POOLING_RANK, &type, err);
    if (rc == 0) rc = loader_str(l, "classifier.activation", &activation, err);
    if (rc < 0) return rc;
    if (type == GGUF_POOLING_RANK && !head)
        return err_set(err, -EINVAL,
                       "%s: key '%s.pooling_type' says that it ranks, but tensor "
                       "'cls.output.weight' is missing",
                       l->source->name, l->arch);
    info->pooling = poolings[type];
    info->task = head ? MODEL_SCORE : MODEL_EMBED;
    info->score_is_plain = str_eq(activation, STR("identity"));
    if (info->score_is_plain || str_eq(activation, STR("sigmoid"))) return 0;
    return err_set(err, -ENOTSUP, "%s: scores by '" STR_FMT "'; sigmoid and identity are computed",
                   l->source->name, STR_ARG(activation));
}

/* ---- tensors */

static int load_norm(struct loader *l, const char *name, uint32_t width, struct encoder_norm *ret,
                     struct err *err)
{
    char tensor[GGUF_NAME_BYTES_MAX + 1];
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    int rc = loader_vector(l, tensor, width, NULL, &ret->weight, err);
    snprintf(tensor, sizeof tensor, "%s.bias", name);
    return rc < 0 ? rc : loader_vector(l, tensor, width, NULL, &ret->bias, err);
}

static int load_linear(struct loader *l, const char *name, uint32_t rows, uint32_t cols,
                       struct encoder_linear *ret, struct err *err)
{
    char tensor[GGUF_NAME_BYTES_MAX + 1];
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    int rc = loader_matrix(l, tensor, rows, cols, NULL, &ret->w, err);
    snprintf(tensor, sizeof tensor, "%s.bias", name);
    return rc < 0 ? rc : loader_vector(l, tensor, rows, NULL, &ret->bias, err);
}

static int load_layer(struct loader *l, const struct model_info *info, uint32_t index,
                      struct encoder_layer *layer, struct err *err)
{
    const uint32_t width = info->n_embd;
    const struct {
        const char *name;
        struct encoder_linear *to;
        uint32_t rows, cols;
    } linear[] = {
        { "attn_q", &layer->q, width, width },
        { "attn_k", &layer->k, width, width },
        { "attn_v", &layer->v, width, width },
        { "attn_output", &layer->out, width, width },
        { "ffn_up", &layer->up, info->n_ff, width },
        { "ffn_down", &layer->down, width, info->n_ff },
    };
    char name[40];
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(linear) && rc == 0; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", index, linear[i].name);
        rc = load_linear(l, name, linear[i].rows, linear[i].cols, linear[i].to, err);
    }
    snprintf(name, sizeof name, "blk.%u.attn_output_norm", index);
    if (rc == 0) rc = load_norm(l, name, width, &layer->attn_norm, err);
    snprintf(name, sizeof name, "blk.%u.layer_output_norm", index);
    return rc < 0 ? rc : load_norm(l, name, width, &layer->ffn_norm, err);
}

static int load_head(struct loader *l, struct model *m, struct encoder_head *head, struct err *err)
{
    static const char *const name = "cls.output.weight";
    const uint32_t width = m->info.n_embd;
    const struct gguf_tensor *t = gguf_tensor_find(l->gguf, str_from(name));
    const float *bias = NULL;
    struct weight w;
    if (!t) return 0;
    if (t->n_dims == 2 && t->dims[1] != 1)
        return err_set(
            err, -ENOTSUP,
            "%s: a classifier of %llu labels; cross-encoders, which have one, are served",
            l->source->name, (unsigned long long)t->dims[1]);
    int rc = loader_matrix(l, name, 1, width, NULL, &w, err);
    if (rc == 0) rc = loader_vector(l, "cls.output.bias", 1, NULL, &bias, err);
    if (rc == 0 && loader_has(l, "cls.weight"))
        rc = load_linear(l, "cls", width, width, &head->dense, err);
    if (rc < 0) return rc;
    float *out = arena_array(&m->arena, width, sizeof *out);
    if (!out) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    weight_row(&w, 0, out);
    head->out = out;
    head->out_bias = bias[0];
    return 0;
}

/* The rows of token_types.weight are as many as there are types; without the tensor there are none. */
static int load_types(struct loader *l, struct model_info *info, struct encoder *e, struct err *err)
{
    static const char *const name = "token_types.weight";
    const struct gguf_tensor *t = gguf_tensor_find(l->gguf, str_from(name));
    if (!t) return 0;
    if (t->n_dims != 2 || t->dims[1] == 0 || t->dims[1] > ENCODER_TYPES_MAX)
        return err_set(
            err, -EINVAL, "%s: tensor '%s' has %u dimensions and %llu types, 1 to %u are read",
            l->source->name, name, t->n_dims, (unsigned long long)t->dims[1], ENCODER_TYPES_MAX);
    info->token_types = (uint32_t)t->dims[1];
    return loader_matrix(l, name, info->token_types, info->n_embd, NULL, &e->types, err);
}

int encoder_load(struct loader *l, struct model *m, struct err *err)
{
    struct model_info *info = &m->info;
    struct encoder *e = arena_alloc(&m->arena, sizeof *e);
    if (!e) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    *e = (struct encoder){ 0 };
    int rc = load_geometry(l, info, e, err);
    if (rc == 0) rc = load_task(l, info, err);
    if (rc < 0) return rc;
    e->layers = arena_array(&m->arena, info->n_layers, sizeof *e->layers);
    if (!e->layers) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    rc =
        loader_matrix(l, "token_embd.weight", info->vocab_size, info->n_embd, NULL, &e->words, err);
    if (rc == 0)
        rc = loader_matrix(l, "position_embd.weight", info->context_length, info->n_embd, NULL,
                           &e->positions, err);
    if (rc == 0) rc = load_types(l, info, e, err);
    if (rc == 0) rc = load_norm(l, "token_embd_norm", info->n_embd, &e->norm, err);
    for (uint32_t i = 0; i < info->n_layers && rc == 0; i++)
        rc = load_layer(l, info, i, &e->layers[i], err);
    if (rc == 0) rc = load_head(l, m, &e->head, err);
    if (rc < 0) return rc;
    info->table_bytes = weight_tiles(&e->words) * weight_tile_bytes(&e->words);
    m->arch_model = e;
    return 0;
}

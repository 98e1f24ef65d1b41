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

/* ---- positions and windows */

/* Reads by what angle each pair of a head is turned a position. */
static int load_angles(struct loader *l, const char *key, float base, struct encoder *e,
                       uint32_t index, struct err *err)
{
    const struct model_info *info = &l->model->info;
    const uint32_t pairs = info->head_dim / 2;
    int rc = loader_f32(l, key, false, &base, err);
    if (rc < 0) return rc;
    if (!(base > 1 && base < 1e12f))
        return err_set(err, -EINVAL, "%s: key '%s.%s' is %g, it must be above 1", l->source->name,
                       l->arch, key, (double)base);
    e->angle_step[index] = arena_array(&l->model->arena, pairs, sizeof *e->angle_step[index]);
    if (!e->angle_step[index]) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t i = 0; i < pairs; i++)
        e->angle_step[index][i] = pow((double)base, -2.0 * i / info->head_dim);
    return 0;
}

/* Reads which layers have a window: all but each `period`th from the first on. A token sees half of it on
 * either side. */
static int load_windows(struct loader *l, struct encoder *e, struct err *err)
{
    const struct model_info *info = &l->model->info;
    uint32_t window = 0, period = e->form->period;
    int rc = loader_u32(l, "attention.sliding_window", false, 0, MODEL_CONTEXT_MAX, &window, err);
    if (rc == 0)
        rc = loader_u32(l, "attention.sliding_window_pattern", false, 1, MODEL_LAYERS_MAX, &period,
                        err);
    if (rc < 0 || window == 0) return rc;
    if (window < 2)
        return err_set(err, -EINVAL, "%s: key '%s.attention.sliding_window' is %u, at least 2",
                       l->source->name, l->arch, window);
    for (uint32_t i = 0; i < info->n_layers; i++)
        if (i % period != 0) e->layers[i].reach = window / 2, e->layers[i].rope = 1;
    return 0;
}

static int load_positions(struct loader *l, struct encoder *e, struct err *err)
{
    const struct encoder_form *form = e->form;
    const struct model_info *info = &l->model->info;
    struct str scaling = STR("none");
    if (form->positions)
        return loader_matrix(l, "position_embd.weight", info->context_length, info->n_embd, NULL,
                             &e->positions, err);
    int rc = loader_str(l, "rope.scaling.type", &scaling, err);
    if (rc < 0) return rc;
    if (scaling.len > 0 && !str_eq(scaling, STR("none")))
        return err_set(err, -ENOTSUP,
                       "%s: key '%s.rope.scaling.type' is '" STR_FMT
                       "'; encoders are computed without scaling",
                       l->source->name, l->arch, STR_ARG(scaling));
    rc = load_angles(l, "rope.freq_base", form->freq_base, e, 0, err);
    if (rc == 0 && form->period > 0) rc = load_angles(l, "rope.freq_base_swa", 10000, e, 1, err);
    return rc < 0 || form->period == 0 ? rc : load_windows(l, e, err);
}

static int load_activation(struct loader *l, struct encoder *e, struct err *err)
{
    struct str name = e->form->silu ? STR("silu") : STR("gelu");
    int rc = loader_str(l, "hidden_activation", &name, err);
    if (rc < 0) return rc;
    e->silu = str_eq(name, STR("silu"));
    if (e->silu || str_eq(name, STR("gelu"))) return 0;
    return err_set(err, -ENOTSUP,
                   "%s: key '%s.hidden_activation' is '" STR_FMT "'; gelu and silu are computed",
                   l->source->name, l->arch, STR_ARG(name));
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

static int load_norm(struct loader *l, const struct encoder *e, const char *name, uint32_t width,
                     struct encoder_norm *ret, struct err *err)
{
    char tensor[GGUF_NAME_BYTES_MAX + 1];
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    int rc = loader_vector(l, tensor, width, NULL, &ret->weight, err);
    snprintf(tensor, sizeof tensor, "%s.bias", name);
    ret->bias = e->zeros;
    if (rc < 0 || !(e->form->biased || e->form->norm_bias)) return rc;
    return loader_vector(l, tensor, width, NULL, &ret->bias, err);
}

static int load_linear(struct loader *l, const struct encoder *e, const char *name, uint32_t rows,
                       uint32_t cols, const struct row_order *order, struct encoder_linear *ret,
                       struct err *err)
{
    char tensor[GGUF_NAME_BYTES_MAX + 1];
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    int rc = loader_matrix(l, tensor, rows, cols, order, &ret->w, err);
    snprintf(tensor, sizeof tensor, "%s.bias", name);
    if (rc < 0 || !e->form->biased) return rc;
    return loader_vector(l, tensor, rows, NULL, &ret->bias, err);
}

/* Cuts q, k and v, of `width` rows each, out of one matrix. */
static int load_fused(struct loader *l, const struct encoder *e, const char *name, uint32_t width,
                      struct encoder_layer *layer, struct err *err)
{
    const uint32_t head_dim = l->model->info.head_dim;
    const struct row_order order = { .rows = 2 * width, head_dim, head_dim / 2 };
    struct encoder_linear all = { 0 }, *const to[3] = { &layer->q, &layer->k, &layer->v };
    int rc = load_linear(l, e, name, 3 * width, width, &order, &all, err);
    for (uint32_t i = 0; i < 3 && rc == 0; i++) {
        *to[i] = all;
        to[i]->w.rows = width;
        to[i]->w.tiles += (size_t)(i * (width / TILE_ROWS)) * weight_tile_bytes(&all.w);
    }
    return rc;
}

static int load_layer(struct loader *l, const struct encoder *e, uint32_t index, struct err *err)
{
    const struct encoder_form *form = e->form;
    const struct model_info *info = &l->model->info;
    const uint32_t width = info->n_embd, ff = info->n_ff;
    struct encoder_layer *layer = &e->layers[index];
    const struct {
        bool has;
        const char *name;
        struct encoder_linear *to;
        uint32_t rows, cols;
    } linear[] = {
        { !form->fused, "attn_q", &layer->q, width, width },
        { !form->fused, "attn_k", &layer->k, width, width },
        { !form->fused, "attn_v", &layer->v, width, width },
        { true, "attn_output", &layer->out, width, width },
        { form->gated && !form->fused_gate, "ffn_gate", &layer->gate, ff, width },
        { true, "ffn_up", &layer->up, form->fused_gate ? 2 * ff : ff, width },
        { true, "ffn_down", &layer->down, width, ff },
    };
    const char *const first = form->pre_norm ? "attn_norm" : "attn_output_norm";
    const char *const second = form->pre_norm ? "ffn_norm" : "layer_output_norm";
    char name[40];
    int rc = 0;
    if (form->fused_gate && ff % TILE_ROWS != 0)
        return err_set(err, -ENOTSUP,
                       "%s: gate and up in one tensor, of %u rows each; multiples of %d are read",
                       l->source->name, ff, TILE_ROWS);
    snprintf(name, sizeof name, "blk.%u.attn_qkv", index);
    if (form->fused) rc = load_fused(l, e, name, width, layer, err);
    for (size_t i = 0; i < COUNT_OF(linear) && rc == 0; i++) {
        if (!linear[i].has) continue;
        snprintf(name, sizeof name, "blk.%u.%s", index, linear[i].name);
        rc = load_linear(l, e, name, linear[i].rows, linear[i].cols, NULL, linear[i].to, err);
    }
    snprintf(name, sizeof name, "blk.%u.%s", index, first);
    /* The first layer's would follow the embeddings' own. */
    if (rc == 0 && !(form->pre_norm && index == 0))
        rc = load_norm(l, e, name, width, &layer->attn_norm, err);
    snprintf(name, sizeof name, "blk.%u.%s", index, second);
    return rc < 0 ? rc : load_norm(l, e, name, width, &layer->ffn_norm, err);
}

/* Reads the state that the head judges: the first token's state, or, of files that say so, the mean of all. */
static int load_head_pooling(struct loader *l, struct encoder_head *head, struct err *err)
{
    uint32_t type = GGUF_POOLING_CLS;
    int rc = loader_u32(l, "classifier.pooling_type", false, 0, GGUF_POOLING_RANK, &type, err);
    if (rc < 0) return rc;
    head->of_mean = type == GGUF_POOLING_MEAN;
    if (head->of_mean || type == GGUF_POOLING_CLS) return 0;
    return err_set(err, -ENOTSUP,
                   "%s: key '%s.classifier.pooling_type' is %u; a head judges the mean (%u) or the "
                   "first token (%u)",
                   l->source->name, l->arch, type, GGUF_POOLING_MEAN, GGUF_POOLING_CLS);
}

static int load_head(struct loader *l, struct model *m, const struct encoder *e,
                     struct encoder_head *head, struct err *err)
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
        rc = load_linear(l, e, "cls", width, width, NULL, &head->dense, err);
    if (rc == 0 && e->form->gelu_head) rc = load_norm(l, e, "cls.norm", width, &head->norm, err);
    if (rc == 0 && e->form->gelu_head) rc = load_head_pooling(l, head, err);
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

static int load_tensors(struct loader *l, struct model *m, struct encoder *e, struct err *err)
{
    struct model_info *info = &m->info;
    const struct encoder_form *form = e->form;
    int rc =
        loader_matrix(l, "token_embd.weight", info->vocab_size, info->n_embd, NULL, &e->words, err);
    if (rc == 0) rc = load_positions(l, e, err);
    if (rc == 0 && !form->pre_norm) rc = load_types(l, info, e, err);
    if (rc == 0) rc = load_norm(l, e, "token_embd_norm", info->n_embd, &e->norm, err);
    for (uint32_t i = 0; i < info->n_layers && rc == 0; i++)
        rc = load_layer(l, e, i, err);
    if (rc == 0 && form->pre_norm)
        rc = load_norm(l, e, "output_norm", info->n_embd, &e->last_norm, err);
    return rc < 0 ? rc : load_head(l, m, e, &e->head, err);
}

int encoder_load(struct loader *l, struct model *m, struct err *err)
{
    struct model_info *info = &m->info;
    struct encoder *e = arena_alloc(&m->arena, sizeof *e);
    if (!e) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    *e = (struct encoder){ .form = m->arch->encoder };
    int rc = loader_check_keys(l, e->form->keys, e->form->key_count, err);
    if (rc == 0) rc = load_geometry(l, info, e, err);
    if (rc == 0) rc = load_task(l, info, err);
    if (rc == 0) rc = load_activation(l, e, err);
    if (rc < 0) return rc;
    e->layers = arena_array(&m->arena, info->n_layers, sizeof *e->layers);
    e->zeros = arena_array(&m->arena, max_u32(info->n_embd, info->n_ff), sizeof *e->zeros);
    if (!e->layers || !e->zeros) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    rc = load_tensors(l, m, e, err);
    if (rc < 0) return rc;
    info->table_bytes = weight_tiles(&e->words) * weight_tile_bytes(&e->words);
    m->arch_model = e;
    return 0;
}

/* latent_load.c - reads geometry and tensors of latent attention.
 *
 * Files say the sizes in two ways. Older ones have the lengths of a head's whole key and value
 * (attention.key_length, value_length) and one matrix that makes both of c (attn_kv_b); newer ones have the
 * lengths of what is stored there, those of heads in key_length_mla and value_length_mla, and two matrices
 * (attn_k_b, which is transposed for absorbing, and attn_v_b). Either form of tensors goes with either of keys. */
#include "engine/model/latent.h"

#include <math.h>
#include <stdio.h>

/* ---- geometry */

/* Reads the lengths of a head's key and value, as in files of before or after absorbing. */
static int read_lengths(struct loader *l, const struct decoder_latent_shape *s, uint32_t *ret_key,
                        uint32_t *ret_value, struct err *err)
{
    uint32_t key = 0, value = 0;
    const uint32_t stored = s->kv_rank + s->turned;
    int rc = loader_u32(l, "attention.key_length_mla", false, 1, KV_HEAD_DIM_MAX, ret_key, err);
    const bool absorbed = *ret_key > 0;
    if (rc == 0)
        rc = loader_u32(l, "attention.value_length_mla", absorbed, 1, KV_HEAD_DIM_MAX, ret_value,
                        err);
    if (rc == 0)
        rc = loader_u32(l, "attention.key_length", !absorbed, 1, KV_HEAD_DIM_MAX, &key, err);
    if (rc == 0)
        rc = loader_u32(l, "attention.value_length", !absorbed, 1, KV_HEAD_DIM_MAX, &value, err);
    if (rc < 0) return rc;
    if (!absorbed) {
        *ret_key = key;
        *ret_value = value;
    } else if ((key > 0 && key != stored) || (value > 0 && value != s->kv_rank)) {
        return err_set(err, -EINVAL,
                       "%s: attention.key_length and value_length are %u and %u; beside "
                       "key_length_mla they are what is stored, %u and %u",
                       l->source->name, key, value, stored, s->kv_rank);
    }
    return 0;
}

static int check_shape(const struct loader *l, const struct decoder_latent_shape *s, uint32_t key,
                       struct err *err)
{
    const struct {
        const char *what;
        uint32_t size;
    } tiled[] = {
        { "attention.kv_lora_rank", s->kv_rank },
        { "rope.dimension_count", s->turned },
        { "a head's value", s->value },
    };
    for (size_t i = 0; i < COUNT_OF(tiled); i++)
        if (tiled[i].size % TILE_ROWS != 0)
            return err_set(err, -ENOTSUP, "%s: %s is %u; multiples of %d are computed",
                           l->source->name, tiled[i].what, tiled[i].size, TILE_ROWS);
    if (s->kv_rank + s->turned > KV_HEAD_DIM_MAX)
        return err_set(err, -ENOTSUP, "%s: %u + %u numbers are stored for a token; up to %d are",
                       l->source->name, s->kv_rank, s->turned, KV_HEAD_DIM_MAX);
    if (key <= s->turned || (key - s->turned) % TILE_ROWS != 0)
        return err_set(
            err, -ENOTSUP,
            "%s: keys of %u, of which %u turn; the others must be a multiple of %d above "
            "0",
            l->source->name, key, s->turned, TILE_ROWS);
    return 0;
}

/* Old files give every head KV of its own, which it has before absorbing. */
static int check_kv_heads(struct loader *l, const struct model_info *info, struct err *err)
{
    uint32_t heads = 1;
    int rc = loader_u32(l, "attention.head_count_kv", false, 1, info->n_heads, &heads, err);
    if (rc < 0 || heads == 1 || heads == info->n_heads) return rc;
    return err_set(
        err, -EINVAL,
        "%s: key '%s.attention.head_count_kv' is %u; with latent attention it is 1 or %u, "
        "the number of heads",
        l->source->name, l->arch, heads, info->n_heads);
}

int latent_geometry(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    struct decoder_latent_shape *s = &d->latent;
    uint32_t key = 0;
    int rc = loader_u32(l, "attention.kv_lora_rank", true, 1, KV_HEAD_DIM_MAX, &s->kv_rank, err);
    if (rc == 0)
        rc = loader_u32(l, "attention.q_lora_rank", false, 1, MODEL_EMBD_MAX, &s->q_rank, err);
    if (rc == 0)
        rc = loader_u32(l, "rope.dimension_count", true, 2, KV_HEAD_DIM_MAX, &s->turned, err);
    if (rc == 0) rc = read_lengths(l, s, &key, &s->value, err);
    if (rc == 0) rc = check_shape(l, s, key, err);
    if (rc == 0) rc = check_kv_heads(l, info, err);
    if (rc < 0) return rc;
    s->plain = key - s->turned;
    info->n_kv_heads = 1;
    info->head_dim = s->kv_rank + s->turned;
    info->kv_latent = s->kv_rank;
    d->scale = (float)(1 / sqrt((double)key));
    return 0;
}

/* ---- tensors */

#define LAYER_NAME(name, index, tensor) \
    snprintf(name, GGUF_NAME_BYTES_MAX + 1, "blk.%u.%s", index, tensor)

/* Reads the matrices of heads, from one tensor or from two. */
static int load_heads(struct loader *l, const struct decoder *d, const struct model_info *info,
                      uint32_t index, struct decoder_latent *to, struct err *err)
{
    const struct decoder_latent_shape *s = &d->latent;
    char name[GGUF_NAME_BYTES_MAX + 1];
    LAYER_NAME(name, index, "attn_kv_b.weight");
    if (loader_has(l, name)) {
        const struct split_heads split = { info->n_heads, s->plain, s->value, s->kv_rank };
        return loader_split(l, name, &split, &to->k_b, &to->v_b, err);
    }
    LAYER_NAME(name, index, "attn_k_b.weight");
    if (!loader_has(l, name))
        return err_set(err, -EINVAL,
                       "%s: tensor '%s' is missing, and 'blk.%u.attn_kv_b.weight', too",
                       l->source->name, name, index);
    int rc = loader_stack(l, name, info->n_heads, s->kv_rank, s->plain, &to->k_b, err);
    LAYER_NAME(name, index, "attn_v_b.weight");
    if (rc == 0) rc = loader_stack(l, name, info->n_heads, s->value, s->kv_rank, &to->v_b, err);
    return rc;
}

int latent_tensors(struct loader *l, const struct decoder *d, const struct model_info *info,
                   uint32_t index, struct decoder_layer *layer, struct err *err)
{
    const struct decoder_latent_shape *s = &d->latent;
    struct decoder_latent *to = &layer->latent;
    const bool low = s->q_rank > 0;
    const struct {
        bool has;
        const char *name;
        struct weight *to;
        uint32_t rows, cols;
    } matrix[] = {
        { low, "attn_q_a.weight", &to->q_a, s->q_rank, info->n_embd },
        { true, low ? "attn_q_b.weight" : "attn_q.weight", &layer->q,
          info->n_heads * (s->plain + s->turned), low ? s->q_rank : info->n_embd },
        { true, "attn_kv_a_mqa.weight", &to->kv_a, info->head_dim, info->n_embd },
    };
    char name[GGUF_NAME_BYTES_MAX + 1];
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(matrix) && rc == 0; i++) {
        if (!matrix[i].has) continue;
        LAYER_NAME(name, index, matrix[i].name);
        rc = loader_matrix(l, name, matrix[i].rows, matrix[i].cols, NULL, matrix[i].to, err);
    }
    LAYER_NAME(name, index, "attn_q_a_norm.weight");
    if (rc == 0 && low) rc = loader_vector(l, name, s->q_rank, NULL, &to->q_norm, err);
    LAYER_NAME(name, index, "attn_kv_a_norm.weight");
    if (rc == 0) rc = loader_vector(l, name, s->kv_rank, NULL, &to->kv_norm, err);
    return rc < 0 ? rc : load_heads(l, d, info, index, to, err);
}

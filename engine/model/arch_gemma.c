/* arch_gemma.c - reads Gemma 2 and the text models of Gemma 3: norms behind both halves of a layer, and layers with a
 * window between layers that see all.
 *
 * Embeddings are multiplied by sqrt(width). Norm weights are stored as they are multiplied with: 1 + w of the checkpoint.
 * Scores are divided by sqrt(head_dim), in the largest model of each (46 and 62 layers) by sqrt(width / heads), unless
 * attention.scale says. */
#include "engine/model/decoder.h"

#include <math.h>

static int read_scales(struct loader *l, struct decoder *d, const struct model_info *info,
                       uint32_t layers_of_largest, struct err *err)
{
    d->embedding_scale = sqrtf((float)info->n_embd);
    if (info->n_layers == layers_of_largest)
        d->scale = 1 / sqrtf((float)info->n_embd / (float)info->n_heads);
    return loader_f32(l, "attention.scale", false, &d->scale, err);
}

/* ---- Gemma 2: capped scores and logits, and a window in every other layer ---- */

/* clang-format off */
static const struct key_rule gemma2_keys[] = {
    DECODER_KEYS,
    { "attention.sliding_window", KEY_READ },
    { "attention.sliding_window_pattern", KEY_READ },
    { "attn_logit_softcapping", KEY_READ },
    { "final_logit_softcapping", KEY_READ },
    { "attention.scale", KEY_READ },
};
/* clang-format on */

/* Reads a factor that the file may give, or 0. */
static int read_cap(struct loader *l, const char *name, float *ret, struct err *err)
{
    int rc = loader_f32(l, name, false, ret, err);
    if (rc == 0 && !(*ret >= 0))
        rc = err_set(err, -EINVAL, "%s: key '%s.%s' is %g, it must be at least 0", l->source->name,
                     l->arch, name, (double)*ret);
    return rc;
}

static int adjust_gemma2(struct loader *l, struct decoder *d, struct model_info *info,
                         struct err *err)
{
    int rc = read_scales(l, d, info, 46, err);
    if (rc == 0) rc = read_cap(l, "attn_logit_softcapping", &d->attn_cap, err);
    if (rc == 0) rc = read_cap(l, "final_logit_softcapping", &d->logit_cap, err);
    return rc < 0 ? rc : decoder_windows(l, d, info, err);
}

static const struct decoder_form gemma2_form = {
    .keys = gemma2_keys,
    .key_count = COUNT_OF(gemma2_keys),
    .halves = true,
    .ffn_norm = "ffn_norm.weight",
    .attn_post_norm = "post_attention_norm.weight",
    .ffn_post_norm = "post_ffw_norm.weight",
    .gate = GATE_GELU,
    .window_period = 2,
    .adjust = adjust_gemma2,
};

const struct model_arch arch_gemma2 = {
    .name = "gemma2",
    .about = "Gemma 2: post-norms, soft-caps, GELU, a window in every other layer",
    .form = &gemma2_form,
    DECODER,
};

/* ---- Gemma 3: norms of queries and keys too, five layers with a window for each that sees all ---- */

/* Layers with a window turn positions by their own base (10000), without scaling. No caps. */
/* clang-format off */
static const struct key_rule gemma3_keys[] = {
    DECODER_KEYS,
    { "attention.sliding_window", KEY_READ },
    { "attention.sliding_window_pattern", KEY_READ },
    { "rope.freq_base_swa", KEY_READ },
    { "attention.scale", KEY_READ },
    { "final_logit_softcapping", KEY_ZERO },
    { "attn_logit_softcapping", KEY_ZERO },
    { "mm.tokens_per_image", KEY_IGNORED },
};
/* clang-format on */

static int adjust_gemma3(struct loader *l, struct decoder *d, struct model_info *info,
                         struct err *err)
{
    float base = 10000;
    int rc = read_scales(l, d, info, 62, err);
    if (rc == 0) rc = loader_f32(l, "rope.freq_base_swa", false, &base, err);
    if (rc == 0) rc = decoder_rope_load(l, d, info, 1, base, false, err);
    if (rc == 0) rc = decoder_windows(l, d, info, err);
    for (uint32_t i = 0; i < info->n_layers; i++)
        d->layers[i].rope = d->layers[i].window > 0;
    return rc;
}

static const struct decoder_form gemma3_form = {
    .keys = gemma3_keys,
    .key_count = COUNT_OF(gemma3_keys),
    .halves = true,
    .qk_norm = true,
    .ffn_norm = "ffn_norm.weight",
    .attn_post_norm = "post_attention_norm.weight",
    .ffn_post_norm = "post_ffw_norm.weight",
    .gate = GATE_GELU,
    .window_period = 6,
    .adjust = adjust_gemma3,
};

const struct model_arch arch_gemma3 = {
    .name = "gemma3",
    .about = "Gemma 3, text: post-norms, norms of queries and keys, five local layers to one",
    .form = &gemma3_form,
    DECODER,
};

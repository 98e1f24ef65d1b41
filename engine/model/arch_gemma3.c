/* arch_gemma3.c - reads the text models of Gemma 3: norms behind both halves of a layer and of queries
 * and keys, five layers with a window for each that sees all.
 *
 * Layers with a window turn positions by their own base (10000), without scaling. The rest is as in
 * Gemma 2, without caps; the largest model has 62 layers. */
#include "engine/model/decoder.h"

#include <math.h>

/* clang-format off */
static const struct key_rule keys[] = {
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

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    float base = 10000;
    d->embedding_scale = sqrtf((float)info->n_embd);
    if (info->n_layers == 62) d->scale = 1 / sqrtf((float)info->n_embd / (float)info->n_heads);
    int rc = loader_f32(l, "attention.scale", false, &d->scale, err);
    if (rc == 0) rc = loader_f32(l, "rope.freq_base_swa", false, &base, err);
    if (rc == 0) rc = decoder_rope_load(l, d, info, 1, base, false, err);
    if (rc == 0) rc = decoder_windows(l, d, info, 6, err);
    for (uint32_t i = 0; i < info->n_layers; i++)
        d->layers[i].rope = d->layers[i].window > 0;
    return rc;
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .halves = true,
    .qk_norm = true,
    .ffn_norm = "ffn_norm.weight",
    .attn_post_norm = "post_attention_norm.weight",
    .ffn_post_norm = "post_ffw_norm.weight",
    .gate = GATE_GELU,
    .adjust = adjust,
};

const struct model_arch arch_gemma3 = {
    .name = "gemma3",
    .about = "Gemma 3, text: post-norms, norms of queries and keys, five local layers to one",
    .form = &form,
    DECODER,
};

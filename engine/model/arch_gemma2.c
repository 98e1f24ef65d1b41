/* arch_gemma2.c - reads Gemma 2: norms behind both halves of a layer, capped scores and logits, and a
 * window in every other layer.
 *
 * Embeddings are multiplied by sqrt(width). Norm weights are stored as they are multiplied with: 1 + w
 * of the checkpoint. Scores are divided by sqrt(head_dim), in the largest model (46 layers) by
 * sqrt(width / heads), unless attention.scale says. */
#include "engine/model/decoder.h"

#include <math.h>

/* clang-format off */
static const struct key_rule keys[] = {
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

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    d->embedding_scale = sqrtf((float)info->n_embd);
    if (info->n_layers == 46) d->scale = 1 / sqrtf((float)info->n_embd / (float)info->n_heads);
    int rc = loader_f32(l, "attention.scale", false, &d->scale, err);
    if (rc == 0) rc = read_cap(l, "attn_logit_softcapping", &d->attn_cap, err);
    if (rc == 0) rc = read_cap(l, "final_logit_softcapping", &d->logit_cap, err);
    return rc < 0 ? rc : decoder_windows(l, d, info, 2, err);
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .halves = true,
    .ffn_norm = "ffn_norm.weight",
    .attn_post_norm = "post_attention_norm.weight",
    .ffn_post_norm = "post_ffw_norm.weight",
    .gate = GATE_GELU,
    .adjust = adjust,
};

const struct model_arch arch_gemma2 = {
    .name = "gemma2",
    .about = "Gemma 2: post-norms, soft-caps, GELU, a window in every other layer",
    .form = &form,
    DECODER,
};

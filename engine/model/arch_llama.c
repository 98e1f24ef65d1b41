/* arch_llama.c - reads Llama 1 to 3, Mistral, SmolLM and Mixtral: what files call "llama".
 *
 * RoPE turns adjacent pairs: GGUF files of this architecture have the rows of Wq and Wk permuted
 * for that. Mistral 7B v0.1 has a sliding window in all layers; Mixtral's feed-forward networks are
 * experts. */
#include "engine/model/decoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    DECODER_KEYS,
    { "attention.sliding_window", KEY_READ },
    { "expert_count", KEY_READ },
    { "expert_used_count", KEY_READ },
};
/* clang-format on */

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    int rc = decoder_windows(l, d, info, err);
    return rc < 0 ? rc : decoder_expert_keys(l, d, info, false, err);
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust,
};

const struct model_arch arch_llama = {
    .name = "llama",
    .about = "Llama 1 to 3, Mistral, SmolLM, Mixtral: RMSNorm, RoPE, GQA, SwiGLU, experts",
    .form = &form,
    DECODER,
};

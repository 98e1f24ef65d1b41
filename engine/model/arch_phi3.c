/* arch_phi3.c - reads Phi 3, 3.5, 4 and 4-mini: Q, K and V in one tensor, gate and up in another, RoPE
 * over halves of a part of the head, LongRoPE for models of more than the original context. */
#include "engine/model/decoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    DECODER_KEYS,
    { "attention.sliding_window", KEY_READ },
    { "attention.sliding_window_pattern", KEY_READ },
};
/* clang-format on */

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    return decoder_windows(l, d, info, err);
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .halves = true,
    .fused = true,
    .long_rope = true,
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust,
};

const struct model_arch arch_phi3 = {
    .name = "phi3",
    .about = "Phi 3 and 4: fused tensors, LongRoPE",
    .form = &form,
    DECODER,
};

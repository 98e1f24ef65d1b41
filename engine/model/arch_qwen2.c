/* arch_qwen2.c - reads Qwen 2 and 2.5: a Llama whose queries, keys and values have biases.
 *
 * RoPE turns halves of a head. Files that ask for a sliding window name its layers in
 * attention.sliding_window_pattern, as config.json does with layer_types. */
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
    return decoder_windows(l, d, info, 0, err);
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .halves = true,
    .qkv_bias = true,
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust,
};

const struct model_arch arch_qwen2 = {
    .name = "qwen2",
    .about = "Qwen 2 and 2.5: biases of Q, K and V",
    .form = &form,
    DECODER,
};

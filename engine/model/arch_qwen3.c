/* arch_qwen3.c - reads Qwen 3: queries and keys are normalised, head by head, before they are turned.
 *
 * Heads may be wider than width / heads. RoPE turns halves. */
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
    .qk_norm = true,
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust,
};

const struct model_arch arch_qwen3 = {
    .name = "qwen3",
    .about = "Qwen 3: norms of queries and keys",
    .form = &form,
    DECODER,
};

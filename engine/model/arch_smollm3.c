/* arch_smollm3.c - reads SmolLM 3: a Llama that turns no positions in every fourth layer (NoPE,
 * Kazemnejad 2023; the interval is not in the file). */
#include "engine/model/decoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    DECODER_KEYS,
    { "attention.sliding_window", KEY_READ },
    { "attention.sliding_window_pattern", KEY_READ },
};
/* clang-format on */

#define NOPE_INTERVAL 4u

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    for (uint32_t i = NOPE_INTERVAL - 1; i < info->n_layers; i += NOPE_INTERVAL)
        d->layers[i].rope = DECODER_NO_ROPE;
    return decoder_windows(l, d, info, err);
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust,
};

const struct model_arch arch_smollm3 = {
    .name = "smollm3",
    .about = "SmolLM 3: every fourth layer without RoPE",
    .form = &form,
    DECODER,
};

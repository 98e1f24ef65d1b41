/* arch_nomic_bert.c - reads nomic-embed-text v1 and v1.5: a BERT whose positions RoPE turns, with a gated
 * feed-forward and without biases of products. */
#include "engine/model/encoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    ENCODER_KEYS,
    { "rope.freq_base", KEY_READ },
};
/* clang-format on */

static const struct encoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .norm_bias = true,
    .fused = true,
    .gated = true,
    .silu = true,
    .freq_base = 1000,
};

const struct model_arch arch_nomic_bert = {
    .name = "nomic-bert",
    .about = "nomic-embed-text: a BERT with RoPE and a gated feed-forward",
    .encoder = &form,
    ENCODER,
};

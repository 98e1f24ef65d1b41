/* arch_modern_bert.c - reads ModernBERT (Warner et al. 2024) and its kin: norms before each half, RoPE, a gated
 * feed-forward, and two layers of three whose tokens see those nearby. */
#include "engine/model/encoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    ENCODER_KEYS,
    { "rope.freq_base", KEY_READ },
    { "rope.freq_base_swa", KEY_READ },
    { "rope.scaling.type", KEY_READ },
    { "attention.sliding_window", KEY_READ },
    { "attention.sliding_window_pattern", KEY_READ },
    { "hidden_activation", KEY_READ },
    { "classifier.pooling_type", KEY_READ },
};
/* clang-format on */

static const struct encoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .pre_norm = true,
    .fused = true,
    .fused_gate = true,
    .gated = true,
    .freq_base = 160000,
    .gelu_head = true,
    .period = 3,
};

const struct model_arch arch_modern_bert = {
    .name = "modern-bert",
    .about = "ModernBERT: norms before each half, RoPE, layers with a window, and cross-encoders",
    .encoder = &form,
    ENCODER,
};

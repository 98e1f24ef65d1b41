/* arch_gpt_oss.c - reads gpt-oss: experts in MXFP4, attention with sinks, a window in every other layer.
 *
 * All products but the head have biases; gate and up are clamped. The norm before the experts is
 * called post_attention_norm. YaRN's bounds are not rounded (truncate: false in config.json). */
#include "engine/model/decoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    DECODER_KEYS,
    { "attention.sliding_window", KEY_READ },
    { "attention.sliding_window_pattern", KEY_READ },
    { "expert_count", KEY_READ },
    { "expert_used_count", KEY_READ },
    { "expert_feed_forward_length", KEY_READ },
};
/* clang-format on */

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    int rc = decoder_windows(l, d, info, err);
    if (rc == 0) rc = decoder_expert_keys(l, d, info, true, err);
    if (rc == 0 && d->n_experts == 0)
        rc = err_set(err, -EINVAL, "%s: key '%s.expert_count' is missing or 0", l->source->name,
                     l->arch);
    return rc;
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .halves = true,
    .qkv_bias = true,
    .out_bias = true,
    .sinks = true,
    .experts_bias = true,
    .yarn_exact = true,
    .ffn_norm = "post_attention_norm.weight",
    .gate = GATE_CLAMPED,
    .window_period = 2,
    .adjust = adjust,
};

const struct model_arch arch_gpt_oss = {
    .name = "gpt-oss",
    .about = "gpt-oss: sinks, experts in MXFP4, a window in every other layer",
    .form = &form,
    DECODER,
};

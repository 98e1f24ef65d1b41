/* arch_qwen3moe.c - reads Qwen 3 with routed experts: 8 of 128 a token in the published models.
 *
 * The weights of the chosen experts are divided by their sum (norm_topk_prob), which is a softmax
 * over the chosen. All layers have experts; feed_forward_length is not used. */
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
    int rc = decoder_windows(l, d, info, 0, err);
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
    .qk_norm = true,
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust,
};

const struct model_arch arch_qwen3moe = {
    .name = "qwen3moe",
    .about = "Qwen 3 with experts",
    .form = &form,
    DECODER,
};

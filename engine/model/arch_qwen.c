/* arch_qwen.c - reads Qwen 2 and 2.5, Qwen 3, and Qwen 3 with routed experts.
 *
 * Qwen 2 is a Llama whose queries, keys and values have biases. In Qwen 3 queries and keys are normalised, head by head,
 * before they are turned, and heads may be wider than width / heads. RoPE turns halves of a head. Files that ask for a
 * sliding window name its layers in attention.sliding_window_pattern, as config.json does with layer_types. */
#include "engine/model/decoder.h"

#define QWEN_KEYS                                           \
    DECODER_KEYS, { "attention.sliding_window", KEY_READ }, \
    {                                                       \
        "attention.sliding_window_pattern", KEY_READ        \
    }

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    return decoder_windows(l, d, info, err);
}

static const struct key_rule keys[] = { QWEN_KEYS };

static const struct decoder_form qwen2_form = {
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
    .form = &qwen2_form,
    DECODER,
};

static const struct decoder_form qwen3_form = {
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
    .form = &qwen3_form,
    DECODER,
};

/* ---- routed experts: 8 of 128 a token in the published models ---- */

/* The weights of the chosen experts are divided by their sum (norm_topk_prob), which is a softmax over the chosen. All
 * layers have experts; feed_forward_length is not used. */
static const struct key_rule moe_keys[] = {
    QWEN_KEYS,
    { "expert_count", KEY_READ },
    { "expert_used_count", KEY_READ },
    { "expert_feed_forward_length", KEY_READ },
};

static int adjust_moe(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    int rc = decoder_windows(l, d, info, err);
    if (rc == 0) rc = decoder_expert_keys(l, d, info, true, err);
    if (rc == 0 && d->n_experts == 0)
        rc = err_set(err, -EINVAL, "%s: key '%s.expert_count' is missing or 0", l->source->name,
                     l->arch);
    return rc;
}

static const struct decoder_form qwen3moe_form = {
    .keys = moe_keys,
    .key_count = COUNT_OF(moe_keys),
    .halves = true,
    .qk_norm = true,
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust_moe,
};

const struct model_arch arch_qwen3moe = {
    .name = "qwen3moe",
    .about = "Qwen 3 with experts",
    .form = &qwen3moe_form,
    DECODER,
};

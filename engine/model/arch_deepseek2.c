/* arch_deepseek2.c - reads DeepSeek-V2, V2-Lite, V3 and R1: latent attention, and experts beside shared ones.
 *
 * The first layers have one feed-forward network each; in the others some of it is shared by all tokens, and the
 * router adds some experts. V2 takes softmax over all experts, V3 the sigmoid of each, and chooses by that
 * plus a bias. With groups, experts come from the best of these: by the best expert (V2) or the sum of the best
 * two (V3). Files of before 2025's end do not say that there are groups; then all experts are one.
 *
 * YaRN stretches the angles only. The factor that keeps scores sharp is one of the scores here, squared, because it is
 * of queries and keys, also of what does not turn:
 *
 *     scale *= (1 + m ln(factor))^2       m = rope.scaling.yarn_log_multiplier, 0.1 * mscale_all_dim */
#include "engine/model/decoder.h"

#include <math.h>

enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 }; /* of expert_gating_func */

/* clang-format off */
static const struct key_rule keys[] = {
    DECODER_KEYS,
    { "attention.q_lora_rank", KEY_READ },
    { "attention.kv_lora_rank", KEY_READ },
    { "attention.key_length_mla", KEY_READ },
    { "attention.value_length_mla", KEY_READ },
    { "rope.scaling.yarn_log_multiplier", KEY_READ },
    { "leading_dense_block_count", KEY_READ },
    { "expert_count", KEY_READ },
    { "expert_used_count", KEY_READ },
    { "expert_shared_count", KEY_READ },
    { "expert_feed_forward_length", KEY_READ },
    { "expert_gating_func", KEY_READ },
    { "expert_weights_scale", KEY_READ },
    { "expert_weights_norm", KEY_READ },
    { "expert_group_count", KEY_READ },
    { "expert_group_used_count", KEY_READ },
    { "nextn_predict_layers", KEY_ZERO },
};
/* clang-format on */

static int read_groups(struct loader *l, struct decoder *d, struct err *err)
{
    struct decoder_router *r = &d->router;
    r->groups = r->groups_used = 1;
    int rc = loader_u32(l, "expert_group_count", false, 1, d->n_experts, &r->groups, err);
    if (rc == 0)
        rc = loader_u32(l, "expert_group_used_count", r->groups > 1, 1, r->groups, &r->groups_used,
                        err);
    if (rc < 0 || r->groups == 1) return rc;
    const uint32_t each = d->n_experts / r->groups;
    if (d->n_experts % r->groups != 0 || (r->sigmoid && each < 2))
        return err_set(err, -EINVAL,
                       "%s: %u experts cannot form %u groups: these are of one size%s",
                       l->source->name, d->n_experts, r->groups,
                       r->sigmoid ? ", at least 2, by whose sum they are chosen" : "");
    if (d->experts_used > each * r->groups_used)
        return err_set(
            err, -EINVAL, "%s: a token uses %u experts, but %u groups of %u have only %u",
            l->source->name, d->experts_used, r->groups_used, each, each * r->groups_used);
    return 0;
}

static int read_router(struct loader *l, struct decoder *d, struct err *err)
{
    struct decoder_router *r = &d->router;
    uint32_t gating = GATING_SOFTMAX;
    bool norm = false;
    float scale = 1;
    int rc =
        loader_u32(l, "expert_gating_func", false, GATING_SOFTMAX, GATING_SIGMOID, &gating, err);
    if (rc == 0) rc = loader_bool(l, "expert_weights_norm", &norm, err);
    if (rc == 0) rc = loader_f32(l, "expert_weights_scale", false, &scale, err);
    if (rc < 0) return rc;
    if (!(scale > 0))
        return err_set(err, -EINVAL, "%s: key '%s.expert_weights_scale' is %g, it must be above 0",
                       l->source->name, l->arch, (double)scale);
    r->sigmoid = gating == GATING_SIGMOID;
    r->plain = !norm;
    r->scale = scale;
    return read_groups(l, d, err);
}

static int read_experts(struct loader *l, struct decoder *d, const struct model_info *info,
                        struct err *err)
{
    uint32_t shared = 0;
    int rc = decoder_expert_keys(l, d, info, true, err);
    if (rc == 0 && d->n_experts == 0)
        rc = err_set(err, -EINVAL, "%s: key '%s.expert_count' is missing or 0", l->source->name,
                     l->arch);
    if (rc == 0)
        rc = loader_u32(l, "leading_dense_block_count", false, 0, info->n_layers, &d->dense_layers,
                        err);
    if (rc == 0)
        rc = loader_u32(l, "expert_shared_count", false, 0, OP_COLS_MAX / d->expert_ff, &shared,
                        err);
    if (rc < 0) return rc;
    d->shared_ff = shared * d->expert_ff;
    return read_router(l, d, err);
}

static int adjust(struct loader *l, struct decoder *d, struct model_info *info, struct err *err)
{
    struct str type = STR("none");
    float multiplier = 0, factor = 1;
    int rc = loader_str(l, "rope.scaling.type", &type, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.yarn_log_multiplier", false, &multiplier, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.factor", false, &factor, err);
    if (rc < 0) return rc;
    if (multiplier < 0 || multiplier > 1)
        return err_set(err, -EINVAL,
                       "%s: key '%s.rope.scaling.yarn_log_multiplier' is %g, it must lie within 0 "
                       "and 1",
                       l->source->name, l->arch, (double)multiplier);
    if (str_eq(type, STR("yarn"))) {
        const double sharper = 1 + (double)multiplier * log((double)factor);
        d->scale = (float)((double)d->scale * sharper * sharper);
    }
    return read_experts(l, d, info, err);
}

static const struct decoder_form form = {
    .keys = keys,
    .key_count = COUNT_OF(keys),
    .latent = true,
    .yarn_plain = true,
    .ffn_norm = "ffn_norm.weight",
    .adjust = adjust,
};

const struct model_arch arch_deepseek2 = {
    .name = "deepseek2",
    .about = "DeepSeek-V2, V3 and R1: latent attention, experts in groups",
    .form = &form,
    DECODER,
};

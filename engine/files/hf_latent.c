/* hf_latent.c - checks the words that choose experts, and adds up what GGUF files have as sums.
 *
 * Sizes are given as in files with attn_kv_b, which the folder's kv_b_proj is: latent_load.c says what others have.
 *
 * YaRN's two numbers mscale and mscale_all_dim make two factors (modeling_rope_utils.py of transformers):
 *
 *     f(m) = 1 + 0.1 m ln(factor)     cosine and sine: f(mscale) / f(mscale_all_dim), scores: f(mscale_all_dim)^2
 *
 * The first is 1 in all published models; without both numbers it is f(1). */
#include "engine/files/hf_latent.h"

#include "engine/files/hf_config.h"
#include "engine/kernels/kv_layout.h"

#include <math.h>

enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 };

static int check_words(const struct hf_config *c, bool *ret_groups, struct err *err)
{
    const struct hf_latent *s = &c->latent;
    const bool sigmoid = c->family->sigmoid;
    const struct str scoring = sigmoid ? STR("sigmoid") : STR("softmax");
    const struct str grouped = sigmoid ? STR("noaux_tc") : STR("group_limited_greedy");
    if (s->scoring.len > 0 && !str_eq(s->scoring, scoring))
        return err_set(err, -ENOTSUP,
                       "key 'scoring_func' is '" STR_FMT "'; computed for %s is " STR_FMT,
                       STR_ARG(s->scoring), c->family->model_type, STR_ARG(scoring));
    *ret_groups = s->method.len > 0 ? str_eq(s->method, grouped) : sigmoid;
    if (*ret_groups || s->method.len == 0 || (!sigmoid && str_eq(s->method, STR("greedy"))))
        return 0;
    return err_set(
        err, -ENOTSUP, "key 'topk_method' is '" STR_FMT "'; computed for %s is " STR_FMT "%s",
        STR_ARG(s->method), c->family->model_type, STR_ARG(grouped), sigmoid ? "" : " and greedy");
}

static void put_yarn(struct hf_config *c)
{
    struct hf_rope *rope = &c->rope;
    if (rope->type != HF_ROPE_YARN) return;
    const double log_factor = 0.1 * log(rope->factor);
    const bool both = rope->mscale > 0 && rope->mscale_all_dim > 0;
    if (!(rope->attention_factor > 0))
        rope->attention_factor = (1 + (both ? rope->mscale : 1) * log_factor) /
                                 (1 + (both ? rope->mscale_all_dim : 0) * log_factor);
    hf_config_put(c, "rope.scaling.yarn_log_multiplier", GGUF_F64)->f = 0.1 * rope->mscale_all_dim;
}

static int check_sizes(const struct hf_config *c, struct err *err)
{
    const struct hf_latent *s = &c->latent;
    const struct {
        const char *key;
        uint32_t size;
    } sizes[] = {
        { "qk_nope_head_dim", s->plain },
        { "qk_rope_head_dim", s->turned },
        { "v_head_dim", s->value },
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].size == 0 || sizes[i].size > KV_HEAD_DIM_MAX)
            return err_set(err, -EINVAL, "key '%s' is missing or %u; it must be 1 to %d",
                           sizes[i].key, sizes[i].size, KV_HEAD_DIM_MAX);
    if (c->rope.mscale < 0 || c->rope.mscale_all_dim < 0)
        return err_set(err, -EINVAL, "mscale and mscale_all_dim are %g and %g; they are at least 0",
                       c->rope.mscale, c->rope.mscale_all_dim);
    if (c->rope.partial > 0)
        return err_set(err, -ENOTSUP,
                       "key 'partial_rotary_factor' is not computed beside qk_rope_head_dim");
    /* In the first version weights that were divided by their sum were not multiplied by the factor. */
    if (s->norm && !c->family->sigmoid)
        return err_set(err, -ENOTSUP, "key 'norm_topk_prob' is true; computed for %s is false",
                       c->family->model_type);
    return 0;
}

int hf_latent_keys(struct hf_config *c, struct err *err)
{
    const struct hf_latent *s = &c->latent;
    bool groups = false;
    int rc = check_words(c, &groups, err);
    if (rc == 0) rc = check_sizes(c, err);
    if (rc < 0) return rc;
    hf_config_put(c, "attention.key_length", GGUF_U32)->u = s->plain + s->turned;
    hf_config_put(c, "attention.value_length", GGUF_U32)->u = s->value;
    hf_config_put(c, "rope.dimension_count", GGUF_U32)->u = s->turned;
    hf_config_put(c, "expert_gating_func", GGUF_U32)->u =
        c->family->sigmoid ? GATING_SIGMOID : GATING_SOFTMAX;
    hf_config_put(c, "expert_weights_norm", GGUF_BOOL)->u =
        s->norm_said ? s->norm : c->family->sigmoid;
    if (groups && s->groups > 0) {
        hf_config_put(c, "expert_group_count", GGUF_U32)->u = s->groups;
        hf_config_put(c, "expert_group_used_count", GGUF_U32)->u = s->groups_used;
    }
    put_yarn(c);
    return 0;
}

bool hf_latent_is_further(const struct hf_config *c, struct str name)
{
    uint32_t layer = 0;
    return c->family->latent && hf_family_layer(name, &layer) && layer >= c->layers &&
           layer - c->layers < c->latent.further_layers;
}

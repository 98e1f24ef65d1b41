/* hf_latent.h - makes keys of a GGUF file of what config.json says of latent attention and experts in groups.
 *
 * Layer:    engine/files
 * Families: deepseek_v2, deepseek_v3. hf_config.h reads the members of this struct
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

struct hf_config;

/* 0 and empty: not said. */
struct hf_latent {
    uint32_t plain, turned, value; /* of a head: qk_nope_head_dim, qk_rope_head_dim, v_head_dim */
    uint32_t groups, groups_used;
    uint32_t further_layers; /* behind the last, to predict further tokens */
    struct str method, scoring;
    bool norm_said, norm; /* norm_topk_prob; other families read it, too */
};

/* Puts the keys. -EINVAL and -ENOTSUP with a sentence that names the key of config.json. */
int hf_latent_keys(struct hf_config *c, struct err *err);

/* Returns true for a tensor of a layer that predicts further tokens: the model's own outputs do without. */
bool hf_latent_is_further(const struct hf_config *c, struct str name);

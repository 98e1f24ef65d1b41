/* hf_rope.h - reads how config.json turns positions into angles.
 *
 * Layer: engine/files (base/core)
 * Forms: "default", "linear", "llama3" (Llama 3.1 and later), "yarn" and "longrope", as
 *        {"rope_type": ..., ...}; rope_theta and partial_rotary_factor may be in it, too. With
 *        {"full_attention": {...}, "sliding_attention": {...}} layers with a window have their own
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/err.h"
#include "base/core/json.h"

#define HF_ROPE_FACTORS_MAX 1024u

enum hf_rope_type { HF_ROPE_DEFAULT, HF_ROPE_LINEAR, HF_ROPE_LLAMA3, HF_ROPE_YARN, HF_ROPE_LONG };

struct hf_rope {
    bool given, has_theta;
    enum hf_rope_type type;
    double theta; /* 10000 unless has_theta */
    double factor, low, high, original;
    double beta_fast, beta_slow, attention_factor, partial; /* 0: not said */
    double mscale, mscale_all_dim; /* of YaRN with latent attention; likewise */
    bool exact;                    /* truncate: false */
    float *short_factors, *long_factors;
    uint32_t short_count, long_count;
};

/* Reads the value of the key `name`, the reader's current token: an object, or null. Lists live in the
 * arena. -EINVAL: malformed or a number that cannot be; -ENOTSUP: another way of scaling. */
int hf_rope_read(struct json_reader *r, const char *name, struct arena *arena, struct hf_rope *rope,
                 struct hf_rope *local, struct err *err);

/* Computes by what the angle of each pair of a head is divided for "llama3": 1 for short waves, `factor` for
 * long ones, and between them, where `original` positions hold `low` to `high` waves, a blend that is linear
 * in the number of waves. That is what GGUF files keep as rope_freqs.weight. */
void hf_rope_factors(const struct hf_rope *rope, uint32_t pairs, float *ret);

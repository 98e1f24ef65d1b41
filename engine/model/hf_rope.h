/* hf_rope.h - reads how config.json of a Llama turns positions into angles.
 *
 * Layer: engine/model (base/core)
 * Forms: {"rope_type": "default"}, and "llama3" of Llama 3.1 and later (`factor`, `low_freq_factor`,
 *        `high_freq_factor`, `original_max_position_embeddings`); rope_theta may be in it, too
 */
#pragma once
#include "base/core/err.h"
#include "base/core/json.h"

struct hf_rope {
    bool given, has_theta, llama3;
    double theta; /* 10000 unless has_theta */
    double factor, low, high, original;
};

/* Reads the value of the key `name`, the reader's current token: an object, or null. -EINVAL: malformed or a
 * number that cannot be; -ENOTSUP: another way of scaling. */
int hf_rope_read(struct json_reader *r, const char *name, struct hf_rope *rope, struct err *err);

/* Computes by what the angle of each pair of a head is divided: 1 for short waves, `factor` for long ones,
 * and between them, where `original` positions hold `low` to `high` waves, a blend that is linear in the
 * number of waves. That is what GGUF files keep as rope_freqs.weight. */
void hf_rope_factors(const struct hf_rope *rope, uint32_t pairs, float *ret);

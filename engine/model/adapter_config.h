/* adapter_config.h - reads adapter_config.json of a LoRA adapter in PEFT's form.
 *
 * Layer:  engine/model (base/core)
 * Format: huggingface/peft, LoraConfig.to_dict
 * Trust:  none. A key that asks for something that is not computed is refused by its name. An unknown key
 *         passes only if it says nothing: null, false, or an empty list, object or text
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <stdint.h>

#define ADAPTER_CONFIG_BYTES_MAX ((size_t)1 << 20)
#define ADAPTER_RANK_MAX 512u

struct adapter_config {
    uint32_t rank; /* 1 .. ADAPTER_RANK_MAX */
    double scale;  /* lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora */
};

/* -EINVAL: malformed, or a value out of range; -ENOTSUP: something that is not computed. On failure nothing
 * is written. */
int adapter_config_read(struct str text, struct adapter_config *ret, struct err *err);

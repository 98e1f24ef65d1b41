/* adapter.h - loads LoRA adapters of a model: for some of its matrices W two small ones, A and B.
 *
 *     y = W x + scale B (A x)        A [rank][columns of W], B [rows of W][rank]
 *
 * Layer:    engine/model (engine/kernels, base/core)
 * Threads:  immutable after adapter_load: any thread may read it
 * Lifetime: it borrows nothing from the model; it must outlive the steps whose items name it
 * Files:    a folder of PEFT (adapter_config.json, adapter_model.safetensors), or a GGUF file as
 *           llama.cpp's convert_lora_to_gguf.py writes it
 * Targets:  the matrices of attention and of a dense feed-forward network, of every layer. Adapters of
 *           experts, of the embedding and of the output matrix are refused
 * Trust:    none. Shapes are compared with the model's before memory is taken, and every number is finite
 * Source:   Hu et al. 2021, arXiv 2106.09685
 */
#pragma once
#include "base/core/err.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "engine/kernels/weight.h"
#include "engine/model/adapter_config.h"

struct model;

enum adapter_slot {
    ADAPTER_Q,
    ADAPTER_K,
    ADAPTER_V,
    ADAPTER_OUT,
    ADAPTER_GATE,
    ADAPTER_UP,
    ADAPTER_DOWN,
    ADAPTER_SLOT_COUNT
};

struct adapter_part {
    struct weight a, b; /* a.rows 0: the layer has no such part */
    float scale;
};

struct adapter {
    char digest[SHA256_HEX + 1]; /* of what is computed: equal ones give equal outputs */
    uint32_t rank;               /* the largest of its parts */
    uint32_t matrices;           /* of the model that it changes */
    uint32_t layers;
    struct adapter_part *parts; /* [layers][ADAPTER_SLOT_COUNT] */
    char *memory;               /* one mapping for all packed matrices */
    size_t memory_bytes;
};

static inline const struct adapter_part *adapter_part(const struct adapter *a, uint32_t layer,
                                                      enum adapter_slot slot)
{
    return &a->parts[(size_t)layer * ADAPTER_SLOT_COUNT + slot];
}

/* Returns the most memory that an adapter of this model can take with ranks up to rank_max; 0 for a model that
 * takes none. */
uint64_t adapter_bytes_max(const struct model *m, uint32_t rank_max);

/* Loads the adapter at `path`, a folder or a .gguf file. -EINVAL: malformed, or it does not fit the model;
 * -ENOTSUP: something that is not computed; -E2BIG: a rank above rank_max, or another bound; -ENOMEM.
 * Sentences name the file and the key or tensor. */
int adapter_load(const char *path, const struct model *m, uint32_t rank_max, struct adapter **ret,
                 struct err *err);
void adapter_free(struct adapter *a);
CLEANUP_FREEP(adapter, struct adapter)

/* adapter_file.h - lists the matrices of an adapter's file, in PEFT's form and in GGUF's.
 *
 * Layer:    engine/model, private to the adapter's loader and its tests
 * Lifetime: the source is borrowed until adapter_file_fini
 * Trust:    none. Every tensor of the file is in the list, or the file is refused with its name
 */
#pragma once
#include "base/core/arena.h"
#include "engine/files/gguf.h"
#include "engine/model/adapter.h"

#define ADAPTER_FILE_MEMORY_MAX ((size_t)32 << 20) /* of the list */

/* A matrix of the model that files name, and the slots that its rows fill, one behind the other. */
struct adapter_target {
    const char *hf, *gguf; /* below model.layers.N. and blk.N. */
    bool fused;            /* of models with Q, K and V, or gate and up, in one matrix */
    enum adapter_slot first;
    uint32_t slots;
};

struct adapter_tensor {
    struct str name; /* as in the file */
    uint32_t layer;
    const struct adapter_target *target;
    bool is_b;
    enum weight_type_id type;
    uint64_t rows, cols;
    uint64_t offset, bytes;
};

struct adapter_file {
    const struct gguf_source *source;
    const struct adapter_tensor *tensors;
    uint32_t count;
    /* rows of Q and K lie as in a checkpoint, whatever GGUF files of the model have */
    bool hf_rows;
    double scale; /* of all parts; 0: alpha / rank, and 1 if alpha is 0 */
    float alpha;
    uint32_t rank; /* of all parts; 0: each has its own */
    struct arena arena;
};

/* Lists adapter_model.safetensors. */
int adapter_file_peft(const struct gguf_source *source, const struct adapter_config *config,
                      struct adapter_file *ret, struct err *err);

/* Lists a GGUF adapter for models of `arch`, whose matrices are fused or not. */
int adapter_file_gguf(const struct gguf_source *source, const char *arch, bool fused,
                      struct adapter_file *ret, struct err *err);
void adapter_file_fini(struct adapter_file *f);

/* Packs the matrices for the model; the digest is left empty. */
int adapter_pack(const struct adapter_file *f, const struct model *m, uint32_t rank_max,
                 struct adapter **ret, struct err *err);

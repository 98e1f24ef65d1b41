/* safetensors.h - parses the header of a safetensors file, fully checked.
 *
 * Layer:    engine/files (base/core)
 * Lifetime: everything lives until safetensors_free; the source is borrowed for the call
 * Format:   u64 length of the header, the header in JSON ({"NAME": {"dtype", "shape", "data_offsets"}},
 *           "__metadata__" with texts), then the data; huggingface/safetensors, format.md
 * Trust:    none, as gguf.h. Header and counts are bounded before memory is taken, all arithmetic is
 *           checked, names are unique, and the tensors cover the data without a hole or an overlap
 */
#pragma once
#include "base/core/arena.h"
#include "engine/files/gguf.h"

#define SAFETENSORS_HEADER_BYTES_MAX ((size_t)100 << 20)
#define SAFETENSORS_MEMORY_BYTES_MAX ((size_t)256 << 20)

enum safetensor_type {
    SAFETENSOR_F32,
    SAFETENSOR_F16,
    SAFETENSOR_BF16,
    SAFETENSOR_F8_E4M3,
    SAFETENSOR_U8, /* integers: of packed weights (hf_packed.h); counted positions */
    SAFETENSOR_I8,
    SAFETENSOR_I32,
    SAFETENSOR_I64
};

struct safetensor {
    struct str name;
    enum safetensor_type type;
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* slowest first, as in the file; 1 beyond n_dims */
    uint64_t elements;
    uint64_t offset; /* in the file */
    uint64_t bytes;
};

struct safetensors {
    const struct safetensor *tensors; /* sorted by name */
    uint32_t count;
    struct arena arena;
};

/* -EINVAL: not a well-formed file, with what and where; -ENOTSUP: an element type that is not read;
 * -E2BIG: a bound; -ENOMEM; or what the source's read returned. Sentences start with its name. */
int safetensors_parse(const struct gguf_source *source, struct safetensors **ret, struct err *err);
void safetensors_free(struct safetensors *s);
CLEANUP_FREEP(safetensors, struct safetensors)

/* Returns "F32", ... */
const char *safetensor_type_name(enum safetensor_type type);

/* Returns NULL if absent. */
const struct safetensor *safetensors_find(const struct safetensors *s, struct str name);

/* hf_parts.h - finds which tensors of a folder together are one matrix of weights with few bits.
 *
 * Layer: engine/files
 * Names: MODULE.qweight with .scales, .qzeros, .g_idx (GPTQ; AWQ has no g_idx); MODULE.weight_packed with
 *        .weight_scale, .weight_shape, .weight_zero_point, .weight_g_idx; MODULE.weight with .weight_scale or
 *        .weight_scale_inv. All may be in different files. Scales of inputs are passed over: activations are
 *        rounded by our kernels
 * Trust: none. Types and shapes are compared with each other and with config.json, groups with their number
 */
#pragma once
#include "base/core/arena.h"
#include "engine/files/hf_family.h"
#include "engine/files/hf_packed.h"
#include "engine/files/hf_quant.h"

enum hf_role {
    HF_WHOLE,  /* a tensor as it is */
    HF_SIDE,   /* belongs to another */
    HF_MATRIX, /* the first of a matrix */
};

/* Says what tensor `t` of file `index` is. For HF_MATRIX *ret describes the matrix and *ret_name is the name that it
 * would have unpacked; both may live in the arena. -EINVAL and -ENOTSUP with a sentence that names the tensor. */
int hf_parts_of(const struct hf_quant *q, const struct hf_files *files, uint32_t index,
                const struct safetensor *t, struct arena *arena, enum hf_role *ret_role,
                struct str *ret_name, struct hf_packed *ret, struct err *err);

/* Describes the weights or biases of the first expert of a row of hf_family_stack: those of expert e are
 * e * *ret_stride elements (of the tensor's own type) further. HF_SIDE: `t` belongs to another. A bias is one matrix
 * with a row for each expert; *ret_experts is 1 then. */
int hf_parts_stack(const struct hf_stack_row *row, struct str end, const struct hf_files *files,
                   uint32_t index, const struct safetensor *t, enum hf_role *ret_role,
                   struct hf_packed *ret, uint32_t *ret_experts, uint64_t *ret_stride,
                   struct err *err);

/* Returns true if the tensor has at most HF_ZEROS_MAX bytes and all are 0. Old GPTQ files have such biases for modules
 * without one. */
#define HF_ZEROS_MAX ((size_t)1 << 20)
bool hf_parts_zeros(const struct hf_file *file, const struct safetensor *t);

/* hf_packed.h - unpacks a matrix of a safetensors folder whose weights are stored with few bits, as rows of one of
 * our types.
 *
 * Layer:  engine/files
 * Result: GPTQ, AWQ, compressed-tensors of 4 bits   Q4_0 where all zero points are 8 (exact), else Q4_1 with
 *                                                   m = -scale * zero rounded to F16; columns whose groups are
 *                                                   scattered (act-order): rounded to Q8_0
 *         int8 with scales                          Q8_0, exact
 *         F8_E4M3 with scales                       F16, the product rounded
 *         MXFP4 of gpt-oss                          MXFP4, the same numbers
 *         Scales are F16 in the result: those in F16, and those in BF16 or F32 that F16 holds, stay as they are
 * Source: AutoGPTQ and GPTQModel (qweight [cols / 8][rows], zero points [groups][rows / 8]), AutoAWQ (qweight
 *         [cols][rows / 8], of each eight rows 0 2 4 6 1 3 5 7), compressed-tensors (pack_to_int32)
 * Memory: of one matrix in the result's type, its scales as F32, and a band of the source
 */
#pragma once
#include "engine/files/hf_files.h"

#define HF_PACKED_BYTES_MAX ((size_t)1 << 30) /* of one matrix in the result's type */
#define HF_PACKED_COLS_MAX (1u << 20)

enum hf_layout {
    HF_COLUMNS_PACKED, /* GPTQ: eight columns in an I32, rows beside each other */
    HF_ROWS_PACKED,    /* AWQ: eight rows in an I32 */
    HF_PACKED,         /* compressed-tensors: eight columns in an I32, columns beside each other */
    HF_INT8,
    HF_FLOAT8,
    HF_MICRO,  /* MXFP4: blocks of 16 bytes, and exponents */
    HF_TURNED, /* F32, F16, BF16: [cols][rows] */
    HF_EVERY,  /* likewise, [rows][cols]: some of the columns */
};

struct hf_packed {
    enum hf_layout layout;
    enum weight_type_id type; /* of the result */
    uint32_t rows, cols;
    struct hf_part weights, scales, zeros;
    uint32_t scale_rows, scale_cols; /* how many rows and columns share a scale */
    uint32_t scales_down, scales_across;
    bool zeros_less_one;
    const uint32_t *group_of; /* of each column, where groups are scattered; else NULL */
    uint64_t skip;            /* elements of `weights` before this matrix: of other experts */
    uint32_t first, step;     /* row (HF_EVERY: column) i is first + step * i of the tensor's */
    uint32_t all;             /* rows (HF_EVERY: columns) of the tensor */
};

/* Returns the bytes of a row of the result, and of all. */
size_t hf_packed_row_bytes(const struct hf_packed *p);
size_t hf_packed_bytes(const struct hf_packed *p);

/* Unpacks the matrix into `to`, of hf_packed_bytes. -EINVAL for a scale that is not finite or that F16 does not
 * hold and for a zero point that cannot be, -ENOMEM, or what reading returned; sentences name the tensor. */
int hf_packed_read(const struct hf_packed *p, char *to, struct err *err);

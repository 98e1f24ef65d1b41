/* weight.h - describes a matrix of the model in memory, and the table of element types.
 *
 * Layer:    engine/kernels (base/core)
 * Threads:  immutable once packed
 * Layout:   rows are taken in tiles of TILE_ROWS, so that one vector register holds the same k
 *           of 16 rows, an output element is one lane with one accumulator, and a sum needs no
 *           reduction across lanes. A tile takes exactly the bytes that its rows take in the
 *           file: for each block of the rows, for each field of the block (weight_field), the
 *           field's pieces in order, each piece 16 times, once a row. Fields follow each other as one
 *           token needs them, which is what prefetchers expect:
 *               F32, F16, BF16   [k][16 rows]
 *               Q8_0             for each block of 32 k: 16 scales (F16), then [8][16 rows][4] int8
 *               Q4_0             for each block: 16 scales, then [4][16 rows][4 bytes] of nibbles
 *               Q6_K             for each block of 256 k: d, scales, then low and high bits in turns
 *           The last tile is filled up with zero rows.
 */
#pragma once
#include "base/core/bits.h"
#include "base/core/str.h"
#include "engine/kernels/quant.h"

#define TILE_ROWS 16
#define WEIGHT_BLOCK_BYTES_MAX 256

enum weight_type_id {
    WEIGHT_F32,
    WEIGHT_F16,
    WEIGHT_BF16,
    WEIGHT_Q8_0,
    WEIGHT_Q4_0,
    WEIGHT_Q4_1,
    WEIGHT_Q5_0,
    WEIGHT_Q5_1,
    WEIGHT_Q2_K,
    WEIGHT_Q3_K,
    WEIGHT_Q4_K,
    WEIGHT_Q5_K,
    WEIGHT_Q6_K,
    WEIGHT_IQ4_NL,
    WEIGHT_MXFP4,
    WEIGHT_TYPE_COUNT
};

/* A run of bytes of a block, cut into pieces of 1, 2 or 4 bytes that stay together in a tile; fields are listed as they
 * lie there. */
struct weight_field {
    uint8_t bytes, piece;
    uint8_t from; /* its place in the block of the file */
};

#define WEIGHT_FIELDS_MAX 8

struct weight_type {
    const char *name;
    uint32_t gguf_id;
    uint32_t file_type; /* general.file_type of a GGUF file mostly of this type */
    uint32_t block_elements;
    uint32_t block_bytes;
    struct weight_field field[WEIGHT_FIELDS_MAX]; /* ends with { 0 } or at the end */
    /* Convert `count` elements of a row as in the file; a multiple of block_elements. */
    dequantise_fn to_f32;
    quantise_fn from_f32;
    quantise_weighted_fn from_f32_weighted; /* NULL: each element is rounded by itself */
};

extern const struct weight_type weight_types[WEIGHT_TYPE_COUNT];

/* Returns NULL for an id that is not in the table. */
const struct weight_type *weight_type_of_gguf(uint32_t gguf_id, enum weight_type_id *ret);

/* Finds a type by its name in any case, as "q4_0". Returns NULL if there is none. */
const struct weight_type *weight_type_named(struct str name, enum weight_type_id *ret);

/* Returns "F32, F16, BF16, Q8_0, ..." for messages. */
const char *weight_type_names(void);

struct weight {
    enum weight_type_id type;
    uint32_t rows, cols;
    const char *tiles; /* weight_tiles(w) * weight_tile_bytes(w) bytes, aligned to 64 */
};

static inline uint32_t weight_tiles(const struct weight *w)
{
    return ceil_div_u32(w->rows, TILE_ROWS);
}

static inline size_t weight_row_bytes(enum weight_type_id type, uint32_t cols)
{
    const struct weight_type *t = &weight_types[type];
    return (size_t)(cols / t->block_elements) * t->block_bytes;
}

static inline size_t weight_tile_bytes(const struct weight *w)
{
    return TILE_ROWS * weight_row_bytes(w->type, w->cols);
}

/* Packs `rows` (1..TILE_ROWS) rows of `cols` elements, as in the file, into one tile. */
void weight_pack(enum weight_type_id type, const char *data, uint32_t rows, uint32_t cols,
                 char *ret_tile);

/* Writes row `lane` of a tile, or of the blocks from `tile` on, as F32. */
void weight_tile_row(enum weight_type_id type, const char *tile, uint32_t lane, uint32_t cols,
                     float *ret);

/* Writes row `row` as F32, as for the embedding of a token. */
void weight_row(const struct weight *w, uint32_t row, float *ret);

/* weight.h - describes a matrix of the model in memory, and the table of element types.
 *
 * Layer:    engine/kernels (base/core)
 * Threads:  immutable once packed
 * Layout:   rows are taken in tiles of TILE_ROWS, so that one vector register holds the same k
 *           of 16 rows, an output element is one lane with one accumulator, and a sum needs no
 *           reduction across lanes. A tile takes exactly the bytes that its rows take in the
 *           file:
 *               F32, F16, BF16   [k][16 rows]
 *               Q8_0             for each block of 32 k: 16 scales (F16), then [32][16] int8
 *           The last tile is filled up with zero rows.
 */
#pragma once
#include "base/core/bits.h"
#include "base/core/str.h"

#define TILE_ROWS 16
#define Q8_BLOCK 32 /* elements that share a scale in Q8_0 */

enum weight_type_id { WEIGHT_F32, WEIGHT_F16, WEIGHT_BF16, WEIGHT_Q8_0, WEIGHT_TYPE_COUNT };

struct weight_type {
    const char *name;
    uint32_t gguf_id;
    uint32_t block_elements;
    uint32_t block_bytes;
    /* Converts `count` elements of a row as in the file; a multiple of block_elements. */
    void (*to_f32)(const char *row, uint32_t count, float *ret);
    /* Packs `rows` (1..TILE_ROWS) rows of `cols` elements, as in the file, into one tile. */
    void (*pack)(const char *data, uint32_t rows, uint32_t cols, char *ret_tile);
    /* Writes row `lane` of a tile as F32. */
    void (*tile_row)(const char *tile, uint32_t lane, uint32_t cols, float *ret);
};

extern const struct weight_type weight_types[WEIGHT_TYPE_COUNT];

/* Returns NULL for an id that is not in the table. */
const struct weight_type *weight_type_of_gguf(uint32_t gguf_id, enum weight_type_id *ret);

/* Returns "F32, F16, BF16, Q8_0", for messages. */
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

/* Writes row `row` as F32, as for the embedding of a token. */
void weight_row(const struct weight *w, uint32_t row, float *ret);

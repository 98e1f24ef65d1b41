/* dot_unpack.h - unpacks tiles of all quantised types into panels of bytes, for dot.c.
 *
 * Layer:  engine/kernels, for cpu/dot.c only
 * Format: a panel holds QUANT_SUPER columns of a tile, or the last of a row, each half eight rows. A register
 *         of q holds columns 4 i .. 4 i + 3 of the eight rows, and a weight is
 *
 *             scale[s] q - min[s]       s: the sub-block of the column, of 32 or 16 columns
 *
 * Kinds:  by how far sums of q times int8 can go before int16 overflows
 *             DOT_FIVE   0 .. 31, sub-blocks of 32: four registers (4 x 2 x 31 x 127 = 31,496)
 *             DOT_SIX    0 .. 63, sub-blocks of 16: two registers (2 x 2 x 63 x 127 = 32,004)
 *             DOT_SIGNED -128 .. 127, sub-blocks of 32, no min: one register (2 x 128 x 127 = 32,512)
 */
#pragma once
#include "engine/kernels/weight.h"

#include <immintrin.h>

#define DOT_ROWS 8 /* of a register */
#define DOT_HALVES (TILE_ROWS / DOT_ROWS)
#define DOT_PIECES (QUANT_SUPER / 4)

struct dot_half {
    __m256i q[DOT_PIECES];
    __m256 scale[QUANT_SUPER / 16], min[QUANT_SUPER / 16];
};

struct dot_panel {
    struct dot_half half[DOT_HALVES];
};

enum dot_kind { DOT_FIVE, DOT_SIX, DOT_SIGNED, DOT_KIND_COUNT };

struct dot_type {
    /* Unpacks `blocks` blocks of QUANT_BLOCK columns from `tile` on; whole blocks of the type. */
    void (*unpack)(const char *tile, uint32_t blocks, struct dot_panel *ret);
    enum dot_kind kind;
};

extern const struct dot_type dot_types[WEIGHT_TYPE_COUNT]; /* unpack is NULL for F32, F16, BF16 */

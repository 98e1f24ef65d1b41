/* weight.c - packs weights into tiles, by a table with one row a type.
 *
 * A new type takes an enumerator, a row and a name here and a loader in cpu/product.h; op_ref reads
 * every type through tile_row. */
#include "engine/kernels/weight.h"

#include "engine/kernels/half.h"

enum { Q8_BLOCK_BYTES = 2 + Q8_BLOCK, Q8_TILE_BLOCK_BYTES = TILE_ROWS * Q8_BLOCK_BYTES };

static uint16_t u16_at(const char *data, size_t index)
{
    return load_u16(data + index * sizeof(uint16_t));
}

static float f32_at(const char *data, size_t index)
{
    return f32_from_bits(load_u32(data + index * sizeof(uint32_t)));
}

static void f32_to_f32(const char *row, uint32_t count, float *ret)
{
    memcpy(ret, row, count * sizeof *ret);
}

static void f16_row_to_f32(const char *row, uint32_t count, float *ret)
{
    for (uint32_t i = 0; i < count; i++)
        ret[i] = f16_to_f32(u16_at(row, i));
}

static void bf16_row_to_f32(const char *row, uint32_t count, float *ret)
{
    for (uint32_t i = 0; i < count; i++)
        ret[i] = bf16_to_f32(u16_at(row, i));
}

static void q8_row_to_f32(const char *row, uint32_t count, float *ret)
{
    for (uint32_t b = 0; b < count / Q8_BLOCK; b++, row += Q8_BLOCK_BYTES, ret += Q8_BLOCK) {
        float scale = f16_to_f32(load_u16(row));
        for (uint32_t i = 0; i < Q8_BLOCK; i++)
            ret[i] = scale * (float)(int8_t)row[2 + i];
    }
}

static void pack_elements(const char *data, uint32_t rows, uint32_t cols, size_t element_bytes,
                          char *ret_tile)
{
    memset(ret_tile, 0, TILE_ROWS * cols * element_bytes);
    for (uint32_t r = 0; r < rows; r++) {
        const char *row = data + r * cols * element_bytes;
        for (uint32_t k = 0; k < cols; k++)
            memcpy(ret_tile + ((size_t)k * TILE_ROWS + r) * element_bytes, row + k * element_bytes,
                   element_bytes);
    }
}

static void pack_f32(const char *data, uint32_t rows, uint32_t cols, char *ret_tile)
{
    pack_elements(data, rows, cols, sizeof(uint32_t), ret_tile);
}

static void pack_16(const char *data, uint32_t rows, uint32_t cols, char *ret_tile)
{
    pack_elements(data, rows, cols, sizeof(uint16_t), ret_tile);
}

static void pack_q8(const char *data, uint32_t rows, uint32_t cols, char *ret_tile)
{
    uint32_t blocks = cols / Q8_BLOCK;
    memset(ret_tile, 0, (size_t)blocks * Q8_TILE_BLOCK_BYTES);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t b = 0; b < blocks; b++, data += Q8_BLOCK_BYTES) {
            char *block = ret_tile + (size_t)b * Q8_TILE_BLOCK_BYTES;
            char *quants = block + TILE_ROWS * sizeof(uint16_t);
            memcpy(block + r * sizeof(uint16_t), data, sizeof(uint16_t));
            for (uint32_t i = 0; i < Q8_BLOCK; i++)
                quants[i * TILE_ROWS + r] = data[2 + i];
        }
    }
}

static void f32_tile_row(const char *tile, uint32_t lane, uint32_t cols, float *ret)
{
    for (uint32_t k = 0; k < cols; k++)
        ret[k] = f32_at(tile, (size_t)k * TILE_ROWS + lane);
}

static void f16_tile_row(const char *tile, uint32_t lane, uint32_t cols, float *ret)
{
    for (uint32_t k = 0; k < cols; k++)
        ret[k] = f16_to_f32(u16_at(tile, (size_t)k * TILE_ROWS + lane));
}

static void bf16_tile_row(const char *tile, uint32_t lane, uint32_t cols, float *ret)
{
    for (uint32_t k = 0; k < cols; k++)
        ret[k] = bf16_to_f32(u16_at(tile, (size_t)k * TILE_ROWS + lane));
}

static void q8_tile_row(const char *tile, uint32_t lane, uint32_t cols, float *ret)
{
    for (uint32_t b = 0; b < cols / Q8_BLOCK; b++, tile += Q8_TILE_BLOCK_BYTES, ret += Q8_BLOCK) {
        float scale = f16_to_f32(u16_at(tile, lane));
        const char *quants = tile + TILE_ROWS * sizeof(uint16_t);
        for (uint32_t i = 0; i < Q8_BLOCK; i++)
            ret[i] = scale * (float)(int8_t)quants[i * TILE_ROWS + lane];
    }
}

/* clang-format off */
const struct weight_type weight_types[WEIGHT_TYPE_COUNT] = {
    /*                 name    gguf  block     bytes            to_f32           pack      tile_row */
    [WEIGHT_F32]  = { "F32",   0,    1,        4,               f32_to_f32,      pack_f32, f32_tile_row },
    [WEIGHT_F16]  = { "F16",   1,    1,        2,               f16_row_to_f32,  pack_16,  f16_tile_row },
    [WEIGHT_BF16] = { "BF16",  30,   1,        2,               bf16_row_to_f32, pack_16,  bf16_tile_row },
    [WEIGHT_Q8_0] = { "Q8_0",  8,    Q8_BLOCK, Q8_BLOCK_BYTES,  q8_row_to_f32,   pack_q8,  q8_tile_row },
};
/* clang-format on */

const struct weight_type *weight_type_of_gguf(uint32_t gguf_id, enum weight_type_id *ret)
{
    for (uint32_t i = 0; i < WEIGHT_TYPE_COUNT; i++) {
        if (weight_types[i].gguf_id != gguf_id) continue;
        *ret = (enum weight_type_id)i;
        return &weight_types[i];
    }
    return NULL;
}

const char *weight_type_names(void)
{
    return "F32, F16, BF16, Q8_0";
}

void weight_row(const struct weight *w, uint32_t row, float *ret)
{
    const char *tile = w->tiles + (size_t)(row / TILE_ROWS) * weight_tile_bytes(w);
    weight_types[w->type].tile_row(tile, row % TILE_ROWS, w->cols, ret);
}

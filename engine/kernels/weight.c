/* weight.c - names the types of weights in one table, and packs rows into tiles by its fields.
 *
 * A new type takes an enumerator and a row here, its conversion in dequantise.c, and a row of the tables in
 * cpu/: dot_product.h if it is quantised, product.h if not. */
#include "engine/kernels/weight.h"

#include <stdio.h>

/* clang-format off */
const struct weight_type weight_types[WEIGHT_TYPE_COUNT] = {
    /*                   name      gguf file block bytes  fields of a block in a tile: bytes, pieces, place in the file's */
    [WEIGHT_F32]    = { "F32",     0,   0,   1,   4,   { { 4, 4, 0 } },
                        dequantise_f32, quantise_f32, NULL },
    [WEIGHT_F16]    = { "F16",     1,   1,   1,   2,   { { 2, 2, 0 } },
                        dequantise_f16, quantise_f16, NULL },
    [WEIGHT_BF16]   = { "BF16",    30,  32,  1,   2,   { { 2, 2, 0 } },
                        dequantise_bf16, quantise_bf16, NULL },
    [WEIGHT_Q8_0]   = { "Q8_0",    8,   7,   32,  34,  { { 2, 2, 0 }, { 32, 4, 2 } },
                        dequantise_q8_0, quantise_q8_0, NULL },
    [WEIGHT_Q4_0]   = { "Q4_0",    2,   2,   32,  18,  { { 2, 2, 0 }, { 16, 4, 2 } },
                        dequantise_q4_0, quantise_q4_0, quantise_q4_0_weighted },
    [WEIGHT_Q4_1]   = { "Q4_1",    3,   3,   32,  20,  { { 4, 2, 0 }, { 16, 4, 4 } },
                        dequantise_q4_1, quantise_q4_1, quantise_q4_1_weighted },
    [WEIGHT_Q5_0]   = { "Q5_0",    6,   8,   32,  22,  { { 2, 2, 0 }, { 20, 4, 2 } },
                        dequantise_q5_0, quantise_q5_0, quantise_q5_0_weighted },
    [WEIGHT_Q5_1]   = { "Q5_1",    7,   9,   32,  24,  { { 4, 2, 0 }, { 20, 4, 4 } },
                        dequantise_q5_1, quantise_q5_1, quantise_q5_1_weighted },
    [WEIGHT_Q2_K]   = { "Q2_K",    10,  10,  256, 84,  { { 16, 1, 0 }, { 64, 4, 16 }, { 4, 2, 80 } },
                        dequantise_q2_k, quantise_q2_k, quantise_q2_k_weighted },
    [WEIGHT_Q3_K]   = { "Q3_K",    11,  12,  256, 110, { { 96, 4, 0 }, { 12, 1, 96 }, { 2, 2, 108 } },
                        dequantise_q3_k, quantise_q3_k, quantise_q3_k_weighted },
    [WEIGHT_Q4_K]   = { "Q4_K",    12,  14,  256, 144, { { 4, 2, 0 }, { 12, 1, 4 }, { 128, 4, 16 } },
                        dequantise_q4_k, quantise_q4_k, quantise_q4_k_weighted },
    [WEIGHT_Q5_K]   = { "Q5_K",    13,  16,  256, 176, { { 4, 2, 0 }, { 12, 1, 4 }, { 160, 4, 16 } },
                        dequantise_q5_k, quantise_q5_k, quantise_q5_k_weighted },
    [WEIGHT_Q6_K]   = { "Q6_K",    14,  18,  256, 210, { { 2, 2, 208 }, { 16, 1, 192 },
                                                         { 32, 4, 0 }, { 32, 4, 128 }, { 32, 4, 32 },
                                                         { 32, 4, 64 }, { 32, 4, 160 }, { 32, 4, 96 } },
                        dequantise_q6_k, quantise_q6_k, quantise_q6_k_weighted },
    [WEIGHT_IQ4_NL] = { "IQ4_NL",  20,  25,  32,  18,  { { 2, 2, 0 }, { 16, 4, 2 } },
                        dequantise_iq4_nl, quantise_iq4_nl, quantise_iq4_nl_weighted },
    [WEIGHT_MXFP4]  = { "MXFP4",   39,  38,  32,  17,  { { 1, 1, 0 }, { 16, 4, 1 } },
                        dequantise_mxfp4, quantise_mxfp4, quantise_mxfp4_weighted },
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

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

const struct weight_type *weight_type_named(struct str name, enum weight_type_id *ret)
{
    for (uint32_t i = 0; i < WEIGHT_TYPE_COUNT; i++) {
        struct str known = str_from(weight_types[i].name);
        size_t same = 0;
        while (same < known.len && same < name.len &&
               lower(name.data[same]) == lower(known.data[same]))
            same++;
        if (same != known.len || same != name.len) continue;
        *ret = (enum weight_type_id)i;
        return &weight_types[i];
    }
    return NULL;
}

const char *weight_type_names(void)
{
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, MXFP4";
}

/* ---- tiles */

/* Copies `bytes` in pieces between a row and the tile, where they lie TILE_ROWS pieces apart. The
 * sizes are constants in each loop, so that a piece is one load and one store. */
#define COPY_PIECES(size, to, to_step, from, from_step) \
    for (size_t i_ = 0; i_ < bytes / (size); i_++)      \
    memcpy((to) + i_ * (to_step), (from) + i_ * (from_step), (size))

static void put_pieces(const char *from, size_t bytes, uint32_t piece, uint32_t lane, char *to)
{
    to += (size_t)lane * piece;
    if (piece == 4)
        COPY_PIECES(4, to, 4 * TILE_ROWS, from, 4);
    else if (piece == 2)
        COPY_PIECES(2, to, 2 * TILE_ROWS, from, 2);
    else
        COPY_PIECES(1, to, TILE_ROWS, from, 1);
}

static void get_pieces(const char *from, size_t bytes, uint32_t piece, uint32_t lane, char *to)
{
    from += (size_t)lane * piece;
    if (piece == 4)
        COPY_PIECES(4, to, 4, from, 4 * TILE_ROWS);
    else if (piece == 2)
        COPY_PIECES(2, to, 2, from, 2 * TILE_ROWS);
    else
        COPY_PIECES(1, to, 1, from, TILE_ROWS);
}

#define EACH_FIELD(f, type)                            \
    for (const struct weight_field *f = (type)->field; \
         f < (type)->field + WEIGHT_FIELDS_MAX && f->bytes > 0; f++)

void weight_pack(enum weight_type_id type, const char *data, uint32_t rows, uint32_t cols,
                 char *ret_tile)
{
    const struct weight_type *t = &weight_types[type];
    size_t row_bytes = weight_row_bytes(type, cols);
    if (rows < TILE_ROWS) memset(ret_tile, 0, TILE_ROWS * row_bytes);
    if (t->block_elements == 1) { /* a row is one field */
        for (uint32_t r = 0; r < rows; r++)
            put_pieces(data + r * row_bytes, row_bytes, t->field[0].piece, r, ret_tile);
        return;
    }
    for (size_t block = 0; block < row_bytes; block += t->block_bytes) {
        size_t at = block;
        EACH_FIELD(field, t)
        {
            for (uint32_t r = 0; r < rows; r++)
                put_pieces(data + r * row_bytes + block + field->from, field->bytes, field->piece,
                           r, ret_tile + TILE_ROWS * at);
            at += field->bytes;
        }
    }
}

/* Collects one lane's blocks as they are in the file. */
static void get_blocks(const struct weight_type *t, const char *tile, uint32_t lane, size_t bytes,
                       char *ret)
{
    if (t->block_elements == 1) {
        get_pieces(tile, bytes, t->field[0].piece, lane, ret);
        return;
    }
    for (size_t block = 0; block < bytes; block += t->block_bytes) {
        size_t at = block;
        EACH_FIELD(field, t)
        {
            get_pieces(tile + TILE_ROWS * at, field->bytes, field->piece, lane,
                       ret + block + field->from);
            at += field->bytes;
        }
    }
}

void weight_tile_row(enum weight_type_id type, const char *tile, uint32_t lane, uint32_t cols,
                     float *ret)
{
    const struct weight_type *t = &weight_types[type];
    char raw[2 * WEIGHT_BLOCK_BYTES_MAX];
    uint32_t at_once = (uint32_t)sizeof raw / t->block_bytes * t->block_elements;
    for (uint32_t k = 0; k < cols; k += at_once) {
        uint32_t count = min_u32(at_once, cols - k);
        get_blocks(t, tile + TILE_ROWS * weight_row_bytes(type, k), lane,
                   weight_row_bytes(type, count), raw);
        t->to_f32(raw, count, ret + k);
    }
}

void weight_row(const struct weight *w, uint32_t row, float *ret)
{
    const char *tile = w->tiles + (size_t)(row / TILE_ROWS) * weight_tile_bytes(w);
    weight_tile_row(w->type, tile, row % TILE_ROWS, w->cols, ret);
}

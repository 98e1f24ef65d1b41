/* kernels_rig.h - what the tests of kernels share: memory, random inputs, distance from the truth, entries.
 *
 * Needs engine/kernels and base/core alone, so that the same tests run where nothing else is built
 * (tests/cross).
 */
#pragma once
#include "base/core/own.h"
#include "base/core/rng.h"
#include "engine/kernels/half.h"
#include "engine/kernels/op.h"
#include "tests/unit/engine/block_scales.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#define NMSE_MAX 1e-10 /* F32 against double: about 1e-14, more where one output cancels */

static inline void freep(void *p)
{
    free(*(void **)p);
}

#define OWNED CLEANUP(freep)

/* Returns zeroed memory aligned to cache lines; the caller frees. */
static inline void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

/* Returns a value between -2 and 2 that is not 0, the same on every processor: no function of libm rounds it. */
static inline float random_float(struct rng *rng)
{
    return (float)(rng_u64(rng) >> 41 << 1 | 1) * 0x1p-22f - 2;
}

static inline float *random_floats(size_t count, struct rng *rng)
{
    float *x = take(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = random_float(rng);
    return x;
}

/* Returns rows of random finite values in the file's form of a type. */
static inline char *random_rows(enum weight_type_id type, uint32_t rows, uint32_t cols,
                                struct rng *rng)
{
    size_t bytes = rows * weight_row_bytes(type, cols);
    char *data = take(bytes);
    const struct weight_type *t = &weight_types[type];
    for (size_t i = 0; i < bytes; i += t->block_bytes) {
        float value = random_float(rng);
        uint16_t half = f32_to_f16(value / 64);
        if (type == WEIGHT_F32) {
            memcpy(data + i, &value, sizeof value);
        } else if (type == WEIGHT_F16) {
            memcpy(data + i, &half, sizeof half);
        } else if (type == WEIGHT_BF16) {
            half = (uint16_t)(f32_bits(value) >> 16);
            memcpy(data + i, &half, sizeof half);
        } else {
            for (size_t j = 0; j < t->block_bytes; j++)
                data[i + j] = (char)rng_u64(rng);
            make_scales(type, data + i, value / 64);
        }
    }
    return data;
}

/* Packs rows into tiles, which the caller frees. */
static inline struct weight packed(enum weight_type_id type, const char *data, uint32_t rows,
                                   uint32_t cols)
{
    struct weight w = { .type = type, .rows = rows, .cols = cols };
    size_t row_bytes = weight_row_bytes(type, cols), tile_bytes = weight_tile_bytes(&w);
    char *tiles = take(weight_tiles(&w) * tile_bytes);
    for (uint32_t r = 0; r < rows; r += TILE_ROWS)
        weight_pack(type, data + r * row_bytes, min_u32(TILE_ROWS, rows - r), cols,
                    tiles + r / TILE_ROWS * tile_bytes);
    w.tiles = tiles;
    return w;
}

static inline double nmse(const float *got, const float *truth, size_t count)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)truth[i];
        off += d * d;
        all += (double)truth[i] * (double)truth[i];
    }
    return all > 0 ? off / all : off;
}

static inline bool is_fast(const struct ops *o)
{
    return o != &op_ref && o->supported();
}

#define EACH_FAST(o)                                                            \
    for (const struct ops *const *row_ = ops_table, *o = *row_; o; o = *++row_) \
        if (is_fast(o))

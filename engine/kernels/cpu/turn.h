/* turn.h - turns the tiles of a block of K, so that it can be read as V: d by token becomes token by d.
 *
 * Layer: engine/kernels, for cpu/ only. Plain C over vectors of 16 bytes, which every processor with an entry
 *        here has: elements are moved, not computed with, so that bits stay what they are.
 *
 * A square of n rows is turned by log2 n rounds, each of which interleaves row i with row i + n / 2. Rows are
 * copied one by one: one copy of 64 bytes, as AVX-512 has it, would wait for the stores of four.
 */
#pragma once
#include "engine/kernels/kv_layout.h"

#include <string.h>

/* clang-format off */
#define TURN_TILE(bits, n, low_lanes, high_lanes)                                            \
    typedef uint##bits##_t turn##bits __attribute__((vector_size(16)));                      \
    /* Turns one tile of 16 by 16. */                                                        \
    static inline void turn_tile##bits(const char *from, char *to)                           \
    {                                                                                        \
        const size_t row_bytes = KV_BLOCK * sizeof(uint##bits##_t);                          \
        for (uint32_t d = 0; d < KV_BLOCK; d += (n)) {                                       \
            for (uint32_t t = 0; t < KV_BLOCK; t += (n)) {                                   \
                turn##bits row[n], next[n];                                                  \
                for (uint32_t i = 0; i < (n); i++)                                           \
                    memcpy(&row[i], from + (d + i) * row_bytes + t * (bits) / 8, 16);        \
                for (uint32_t round = 1; round < (n); round *= 2) {                          \
                    for (uint32_t i = 0; i < (n) / 2; i++) {                                 \
                        next[2 * i] = __builtin_shufflevector(row[i], row[i + (n) / 2], low_lanes);      \
                        next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + (n) / 2], high_lanes); \
                    }                                                                        \
                    for (uint32_t i = 0; i < (n); i++)                                       \
                        row[i] = next[i];                                                    \
                }                                                                            \
                for (uint32_t i = 0; i < (n); i++)                                           \
                    memcpy(to + (t + i) * row_bytes + d * (bits) / 8, &row[i], 16);          \
            }                                                                                \
        }                                                                                    \
    }
#define LANES(...) __VA_ARGS__

TURN_TILE(32, 4, LANES(0, 4, 1, 5), LANES(2, 6, 3, 7))
TURN_TILE(16, 8, LANES(0, 8, 1, 9, 2, 10, 3, 11), LANES(4, 12, 5, 13, 6, 14, 7, 15))
TURN_TILE(8, 16, LANES(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
          LANES(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))
/* clang-format on */

/* Turns a group of Q4, whose bytes have other neighbours as K than as V (kv_layout.h). */
static inline void turn_q4_group(const char *from, char *to)
{
    char codes[2][KV_BLOCK * KV_BLOCK], turned[2][KV_BLOCK * KV_BLOCK];
    turn8 row, high;
    for (uint32_t i = 0; i < KV_BLOCK; i++) {
        char *at = codes[i / 8] + (size_t)(i % 8) * 2 * KV_BLOCK;
        memcpy(&row, from + (size_t)i * KV_BLOCK, sizeof row);
        high = row >> 4;
        row &= 15;
        memcpy(at, &row, sizeof row);
        memcpy(at + KV_BLOCK, &high, sizeof high);
    }
    turn_tile8(codes[0], turned[0]);
    turn_tile8(codes[1], turned[1]);
    for (uint32_t i = 0; i < KV_BLOCK; i++) {
        memcpy(&row, turned[0] + (size_t)i * KV_BLOCK, sizeof row);
        memcpy(&high, turned[1] + (size_t)i * KV_BLOCK, sizeof high);
        row |= high << 4;
        memcpy(to + (size_t)i * KV_BLOCK, &row, sizeof row);
    }
}

/* Writes the V of a latent block, without scales: kv_value_dim elements of each token, as V lies elsewhere. */
static void turn_block(const struct kv_layout *l, const char *k, char *ret)
{
    const size_t tile = KV_BLOCK * KV_BLOCK;
    if (l->type == KV_Q4) {
        for (uint32_t g = 0; g * KV_GROUP < l->latent; g++)
            turn_q4_group(k + g * tile, ret + g * tile);
        return;
    }
    for (uint32_t i = 0; i * KV_BLOCK < l->latent; i++) {
        if (l->type == KV_Q8)
            turn_tile8(k + i * tile, ret + i * tile);
        else if (l->type == KV_F16)
            turn_tile16(k + i * tile * 2, ret + i * tile * 2);
        else
            turn_tile32(k + i * tile * 4, ret + i * tile * 4);
    }
}

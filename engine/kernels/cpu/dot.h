/* dot.h - multiplies tiles of Q4_0, Q4_K and Q6_K by activations rounded to int8 (q8.h).
 *
 * Layer: engine/kernels, for cpu/ only. dot.c is compiled once, for AVX2 with FMA and F16C; both entries of
 * the table use it, since every processor with AVX-512 has these.
 */
#pragma once
#include "engine/kernels/op.h"

#define DOT_Q8_TYPES (1u << WEIGHT_Q4_0 | 1u << WEIGHT_Q4_K | 1u << WEIGHT_Q6_K)

/* As ops.gemm, for weights of DOT_Q8_TYPES. */
void dot_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch);

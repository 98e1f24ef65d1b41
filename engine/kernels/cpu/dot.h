/* dot.h - multiplies tiles of all quantised types by activations rounded to int8 (q8.h), and of BF16 by BF16.
 *
 * Layer: engine/kernels, for cpu/ only. dot_avx2.c is compiled for AVX2 with FMA and F16C, which every processor
 *        with AVX-512 has too; dot_avx2_vnni.c for AVX-VNNI beside them; dot_avx512.c for AVX-512 with VNNI
 *        and AMX; bf16_avx512.c and bf16_amx.c for AVX-512 with BF16, and AMX with it.
 * Equality: all of them give the same bits but the products of BF16, whose sums differ.
 */
#pragma once
#include "engine/kernels/op.h"
#include "engine/kernels/q8.h"

#define DOT_Q8_TYPES                                                                 \
    (1u << WEIGHT_Q8_0 | 1u << WEIGHT_Q4_0 | 1u << WEIGHT_Q4_1 | 1u << WEIGHT_Q5_0 | \
     1u << WEIGHT_Q5_1 | 1u << WEIGHT_Q2_K | 1u << WEIGHT_Q3_K | 1u << WEIGHT_Q4_K | \
     1u << WEIGHT_Q5_K | 1u << WEIGHT_Q6_K | 1u << WEIGHT_IQ4_NL | 1u << WEIGHT_MXFP4)

/* As ops.gemm, for weights of DOT_Q8_TYPES. */
void dot_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch);
void dot_gemm_avx2_vnni(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                        void *scratch);
void dot_gemm_vnni(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch);
void dot_gemm_amx(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch);

/* As ops.gemm, for weights of BF16: x is rounded to BF16 as well. */
void bf16_gemm_avx512(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                      void *scratch);
void bf16_gemm_amx(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch);
void bf16_round_amx(const float *x, uint32_t cols, uint16_t *ret); /* ops.bf16_round */

#ifdef MUSTER_NEON
void dot_gemm_dotprod(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                      void *scratch);
#endif

/* As q8_round, with the same bits. */
void dot_round(const float *x, uint32_t cols, struct q8_super *ret);

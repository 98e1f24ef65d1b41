/* ops_avx2.c - defines the entries of ops_table for AVX2 with FMA and F16C, alone and with AVX-VNNI.
 *
 * This file and dot_avx2*.c are compiled for these instruction sets; all that it needs but the products of quantised
 * weights is static. The entries differ in these products alone, and not in their bits. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx2.h"
#include "engine/kernels/cpu/attend.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/op.h"

static void vnni_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    if (DOT_Q8_TYPES >> g->w->type & 1)
        dot_gemm_avx2_vnni(g, tile_first, tile_count, scratch);
    else
        simd_gemm(g, tile_first, tile_count, scratch);
}

#define AVX2_OPS                                                                           \
    .numerics = "avx2-3", .q8_types = DOT_Q8_TYPES, .q8_round = dot_round,                 \
    .rms_norm = simd_rms_norm, .rope = simd_rope, .silu_mul = simd_silu_mul,               \
    .gelu_mul = simd_gelu_mul, .clamped_mul = simd_clamped_mul, .soft_cap = simd_soft_cap, \
    .kv_put = simd_kv_put, .attend_rows = BLOCK_TOKENS, .attend = simd_attend

const struct ops op_avx2 = {
    .name = "avx2",
    .about = "AVX2, FMA and F16C: 8 lanes, 12 accumulators",
    .supported = op_avx2_supported,
    .gemm = simd_gemm,
    AVX2_OPS,
};

const struct ops op_avx2_vnni = {
    .name = "avx2-vnni",
    .about = "AVX2 with AVX-VNNI: quantised weights by integer dot products",
    .supported = op_avx2_vnni_supported,
    .gemm = vnni_gemm,
    AVX2_OPS,
};

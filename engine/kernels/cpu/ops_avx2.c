/* ops_avx2.c - defines the entry of ops_table for AVX2 with FMA and F16C.
 *
 * Only this file and dot_avx2.c are compiled for that instruction set; all else that it needs is
 * static. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx2.h"
#include "engine/kernels/cpu/attend.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/op.h"

const struct ops op_avx2 = {
    .name = "avx2",
    .numerics = "avx2-2",
    .about = "AVX2, FMA and F16C: 8 lanes, 12 accumulators",
    .supported = op_avx2_supported,
    .q8_types = DOT_Q8_TYPES,
    .q8_round = dot_round,
    .gemm = simd_gemm,
    .rms_norm = simd_rms_norm,
    .rope = simd_rope,
    .silu_mul = simd_silu_mul,
    .gelu_mul = simd_gelu_mul,
    .clamped_mul = simd_clamped_mul,
    .soft_cap = simd_soft_cap,
    .kv_put = simd_kv_put,
    .attend_rows = BLOCK_TOKENS,
    .attend = simd_attend,
};

/* ops_avx512.c - defines the entry of ops_table for AVX-512 (F, BW, DQ, VL).
 *
 * Only this file is compiled for that instruction set; all that it needs but dot.c is static. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx512.h"
#include "engine/kernels/cpu/attend.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/op.h"

const struct ops op_avx512 = {
    .name = "avx512",
    .numerics = "avx512-2",
    .about = "AVX-512: 16 lanes, 24 accumulators",
    .supported = op_avx512_supported,
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

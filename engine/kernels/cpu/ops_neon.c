/* ops_neon.c - defines the entries of ops_table for AArch64: NEON alone, and with the dot products of Armv8.2.
 *
 * The entries differ in the products of quantised weights alone, and not in their bits, which are those of avx2. Their
 * numerics id is their own all the same: a sequence that moved between processors would also meet another C library,
 * whose sines make the tables of rotations. */
#define SIMD_HEADER "engine/kernels/cpu/simd_neon.h"
#include "engine/kernels/cpu/attend.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/op.h"

static void dotprod_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                         void *scratch)
{
    if (DOT_Q8_TYPES >> g->w->type & 1)
        dot_gemm_dotprod(g, tile_first, tile_count, scratch);
    else
        simd_gemm(g, tile_first, tile_count, scratch);
}

#define NEON_OPS                                                                           \
    .numerics = "neon-2", .q8_types = DOT_Q8_TYPES, .q8_round = dot_round,                 \
    .rms_norm = simd_rms_norm, .rope = simd_rope, .silu_mul = simd_silu_mul,               \
    .gelu_mul = simd_gelu_mul, .clamped_mul = simd_clamped_mul, .soft_cap = simd_soft_cap, \
    .kv_put = simd_kv_put, .attend_rows = BLOCK_TOKENS, .attend = simd_attend

const struct ops op_neon = {
    .name = "neon",
    .about = "NEON of AArch64: 8 lanes in two registers, 24 accumulators",
    .supported = op_neon_supported,
    .gemm = simd_gemm,
    NEON_OPS,
};

const struct ops op_neon_dotprod = {
    .name = "neon-dotprod",
    .about = "NEON with dot products (Armv8.2): quantised weights by sdot",
    .supported = op_neon_dotprod_supported,
    .gemm = dotprod_gemm,
    NEON_OPS,
};

/* ops_avx512.c - defines the entries of ops_table for AVX-512 (F, BW, DQ, VL), with VNNI, and with BF16 or AMX beside
 * it.
 *
 * Only this file, dot_avx512.c, bf16_avx512.c and bf16_amx.c are compiled for these instruction sets; all that it needs but the
 * products of quantised weights and of BF16 is static. The entries differ in these products alone, and in their bits
 * only where x is rounded to BF16. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx512.h"
#include "engine/kernels/cpu/attend.h"
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/op.h"

static void vnni_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    if (DOT_Q8_TYPES >> g->w->type & 1)
        dot_gemm_vnni(g, tile_first, tile_count, scratch);
    else
        simd_gemm(g, tile_first, tile_count, scratch);
}

static void bf16_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    if (g->w->type == WEIGHT_BF16)
        bf16_gemm_avx512(g, tile_first, tile_count, scratch);
    else
        vnni_gemm(g, tile_first, tile_count, scratch);
}

static void amx_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    if (DOT_Q8_TYPES >> g->w->type & 1)
        dot_gemm_amx(g, tile_first, tile_count, scratch);
    else if (g->w->type == WEIGHT_BF16)
        bf16_gemm_amx(g, tile_first, tile_count, scratch);
    else
        simd_gemm(g, tile_first, tile_count, scratch);
}

#define AVX512_OPS                                                                         \
    .numerics = "avx512-3", .q8_types = DOT_Q8_TYPES, .q8_round = dot_round,               \
    .rms_norm = simd_rms_norm, .rope = simd_rope, .silu_mul = simd_silu_mul,               \
    .gelu_mul = simd_gelu_mul, .clamped_mul = simd_clamped_mul, .soft_cap = simd_soft_cap, \
    .kv_put = simd_kv_put, .attend_rows = BLOCK_TOKENS, .attend = simd_attend

const struct ops op_avx512 = {
    .name = "avx512",
    .about = "AVX-512: 16 lanes, 24 accumulators",
    .supported = op_avx512_supported,
    .gemm = simd_gemm,
    AVX512_OPS,
};

const struct ops op_avx512_vnni = {
    .name = "avx512-vnni",
    .about = "AVX-512 with VNNI: quantised weights by integer dot products",
    .supported = op_avx512_vnni_supported,
    .gemm = vnni_gemm,
    AVX512_OPS,
};

const struct ops op_avx512_bf16 = {
    .name = "avx512-bf16",
    .about = "AVX-512 with VNNI and BF16: BF16 weights times activations rounded to BF16",
    .supported = op_avx512_bf16_supported,
    .bf16 = "+bf16",
    .gemm = bf16_gemm,
    AVX512_OPS,
};

const struct ops op_amx = {
    .name = "amx",
    .about = "AVX-512 with VNNI, and AMX: quantised weights times many tokens; BF16 weights times "
             "activations "
             "rounded to BF16",
    .supported = op_amx_supported,
    .bf16 = "+bf16-amx",
    .bf16_round = bf16_round_amx,
    .gemm = amx_gemm,
    AVX512_OPS,
};

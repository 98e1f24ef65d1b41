/* dot_avx2_vnni.c - multiplies quantised weights by activations of int8 by AVX-VNNI, vpdpbusd in 256 bits, which
 * processors without AVX-512 have. */
#define SIMD_HEADER "engine/kernels/cpu/ivec_avx2.h"
/* With 4 accumulators, 4 sums, x and a register of the block, 10 of 16 registers. */
#define DOT_TOKENS 4
#define DOT_PANELS 2 /* 12 KiB, beside 8 KiB of x */
#include "engine/kernels/cpu/simd.h"

ALWAYS_INLINE ivec ivec_dot(ivec sum, ivec q, ivec x)
{
    return _mm256_dpbusd_avx_epi32(sum, q, x);
}

#include "engine/kernels/cpu/dot_vnni.h"

void dot_gemm_avx2_vnni(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                        void *scratch)
{
    dot_product_vnni(g, tile_first, tile_count, scratch);
}

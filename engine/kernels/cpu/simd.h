/* simd.h - includes the vector of the instruction set and adds what all templates here share.
 *
 * Layer: engine/kernels, for cpu/ only. The including ops_*.c names its simd_*.h in SIMD_HEADER.
 *
 * The templates are product.h, element.h and attend.h: the operations of op.h, all static, compiled
 * once by each ops_*.c with -ffp-contract=off: a multiply-add is fused where it says vec_fma,
 * nowhere else.
 */
#pragma once
#include "engine/kernels/op.h"

#ifdef MUSTER_KERNELS_CHECKED /* instrumented copies, which only tests link: quick to compile instead */
#    define UNROLL
#elif defined(__clang__)
#    define UNROLL _Pragma("unroll")
#else
#    define UNROLL _Pragma("GCC unroll 16")
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#include SIMD_HEADER

static inline float lanes_sum(vec v)
{
    float lane[VEC_LANES];
    vec_store(lane, v);
    for (uint32_t half = VEC_LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static inline float lanes_max(vec v)
{
    float lane[VEC_LANES];
    vec_store(lane, v);
    for (uint32_t half = VEC_LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

#define EXP_MIN (-87.0f) /* the last whole x where e^x and its factor 2^n are not subnormal */
#define EXP_MAX 88.0f
#define LN2_HI 0x1.62e430p-1f
#define LN2_LO ((float)(0x1.62e42fefa39efp-1 - (double)LN2_HI))

/* Returns e^x, x held within EXP_MIN .. EXP_MAX: 2^n * e^r with n = round(x / ln 2) and
 * |r| <= ln 2 / 2; e^r is its Taylor series to r^7, with a remainder (< 6e-9) below half a step of
 * F32. */
ALWAYS_INLINE vec vec_exp(vec x)
{
    x = vec_min(vec_max(x, vec_set1(EXP_MIN)), vec_set1(EXP_MAX));
    vec n = vec_round(vec_mul(x, vec_set1(0x1.715476p+0f)));
    vec r = vec_fma(n, vec_set1(-LN2_HI), x);
    r = vec_fma(n, vec_set1(-LN2_LO), r);
    vec e = vec_set1(1.0f / 5040);
    e = vec_fma(e, r, vec_set1(1.0f / 720));
    e = vec_fma(e, r, vec_set1(1.0f / 120));
    e = vec_fma(e, r, vec_set1(1.0f / 24));
    e = vec_fma(e, r, vec_set1(1.0f / 6));
    e = vec_fma(e, r, vec_set1(0.5f));
    e = vec_fma(e, r, vec_set1(1.0f));
    e = vec_fma(e, r, vec_set1(1.0f));
    return vec_mul(e, vec_exp2_whole(n));
}

/* Returns 1 / (1 + e^-x). */
ALWAYS_INLINE vec vec_sigmoid(vec x)
{
    vec one = vec_set1(1.0f);
    return vec_div(one, vec_add(one, vec_exp(vec_sub(vec_zero(), x))));
}

/* Returns cap * tanh(x / cap), as cap * (1 - 2 / (e^(2x / cap) + 1)): near 0 that loses digits of
 * its own value, but it is off by less than cap * 2^-23. */
ALWAYS_INLINE vec vec_soft_cap(vec x, float cap)
{
    vec one = vec_set1(1.0f), two = vec_set1(2.0f);
    vec e = vec_exp(vec_mul(x, vec_set1(2.0f / cap)));
    return vec_mul(vec_set1(cap), vec_sub(one, vec_div(two, vec_add(e, one))));
}

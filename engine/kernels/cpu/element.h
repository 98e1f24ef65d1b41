/* element.h - computes the operations that go element by element: norm, rotation, gates, caps.
 *
 * Layer: engine/kernels. A template over the vector of simd.h.
 */
#pragma once
#include "engine/kernels/cpu/simd.h"

#include <math.h>

static void simd_rms_norm(const float *x, const float *w, float eps, uint32_t n, float *y)
{
    vec squares = vec_zero(), more = vec_zero();
    uint32_t i = 0;
    for (; i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES) {
        vec a = vec_load(x + i), b = vec_load(x + i + VEC_LANES);
        squares = vec_fma(a, a, squares);
        more = vec_fma(b, b, more);
    }
    float sum = lanes_sum(vec_add(squares, more));
    for (; i < n; i++)
        sum += x[i] * x[i];
    float factor = 1 / sqrtf(sum / (float)n + eps);
    for (i = 0; i < n; i++)
        y[i] = x[i] * factor * w[i];
}

static void simd_rope(float *x, uint32_t heads, uint32_t head_dim, const float *cos,
                      const float *sin, uint32_t pairs)
{
    for (uint32_t h = 0; h < heads; h++, x += head_dim) {
        for (uint32_t i = 0; i < pairs; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = a * cos[i] - b * sin[i];
            x[2 * i + 1] = a * sin[i] + b * cos[i];
        }
    }
}

static void simd_silu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        vec g = vec_load(gate + i);
        vec e = vec_exp(vec_sub(vec_zero(), g));
        vec silu = vec_div(g, vec_add(vec_set1(1.0f), e));
        vec_store(gate + i, vec_mul(silu, vec_load(up + i)));
    }
}

/* 0.5 (1 + tanh u) is sigmoid(2u). */
static void simd_gelu_mul(float *gate, const float *up, uint32_t n)
{
    const vec linear = vec_set1(0x1.988454p+0f), cubic = vec_set1(0x1.988454p+0f * 0.044715f);
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        vec g = vec_load(gate + i);
        vec twice = vec_mul(g, vec_fma(cubic, vec_mul(g, g), linear));
        vec gelu = vec_mul(g, vec_sigmoid(twice));
        vec_store(gate + i, vec_mul(gelu, vec_load(up + i)));
    }
}

/* min and max return their second operand when one is NaN: NaN stays NaN. */
static void simd_clamped_mul(float *gate, const float *up, uint32_t n)
{
    const vec limit = vec_set1(GATE_LIMIT), low = vec_set1(-GATE_LIMIT);
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        vec g = vec_min(limit, vec_load(gate + i));
        vec u = vec_max(low, vec_min(limit, vec_load(up + i)));
        vec glu = vec_mul(g, vec_sigmoid(vec_mul(g, vec_set1(GATE_ALPHA))));
        vec_store(gate + i, vec_fma(glu, u, glu));
    }
}

static void simd_soft_cap(float *x, float cap, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += VEC_LANES)
        vec_store(x + i, vec_soft_cap(vec_load(x + i), cap));
}

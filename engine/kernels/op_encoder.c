/* op_encoder.c - normalises and activates rows in plain C, in loops that compilers turn into vectors.
 *
 * Products take almost all of an encoder's time. What is left was erff of the C library, at a quarter
 * of the time of a small model: erf is a quotient of polynomials here instead, fitted to the relative
 * error 6e-8 on [-ERF_END, ERF_END]; beyond, erf is 1 within a float's precision. */
#include "engine/kernels/op_encoder.h"

#include "base/core/bits.h"

#include <math.h>

#define ERF_END 3.92f

static float sum_lanes(const float lane[OP_ENCODER_LANES])
{
    float sum = 0;
    for (uint32_t i = 0; i < OP_ENCODER_LANES; i++)
        sum += lane[i];
    return sum;
}

/* Sums x - from, or its squares. */
static float sum_of(const float *x, uint32_t n, float from, bool squares)
{
    float lane[OP_ENCODER_LANES] = { 0 };
    const uint32_t whole = n / OP_ENCODER_LANES * OP_ENCODER_LANES;
    for (uint32_t at = 0; at < whole; at += OP_ENCODER_LANES)
        for (uint32_t i = 0; i < OP_ENCODER_LANES; i++) {
            const float d = x[at + i] - from;
            lane[i] += squares ? d * d : d;
        }
    for (uint32_t i = whole; i < n; i++) {
        const float d = x[i] - from;
        lane[i - whole] += squares ? d * d : d;
    }
    return sum_lanes(lane);
}

void layer_norm(const float *x, const float *w, const float *b, float eps, uint32_t n, float *y)
{
    const float mean = sum_of(x, n, 0, false) / (float)n;
    const float factor = 1 / sqrtf(sum_of(x, n, mean, true) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * factor * w[i] + b[i];
}

/* erf(z) = z * p(z^2) / q(z^2); both polynomials from the highest power down. */
static float erf_of(float z)
{
    static const float p[] = { 1.992424216e-08f, -1.957830937e-06f, 1.418496206e-04f,
                               3.701578090e-03f, 5.057323426e-02f,  1.999238056e-01f,
                               1.128379109e+00f };
    static const float q[] = { 9.560311103e-04f, 1.435314232e-02f, 1.149981166e-01f,
                               5.105095149e-01f, 1 };
    z = z > ERF_END ? ERF_END : z < -ERF_END ? -ERF_END : z;
    const float u = z * z;
    const float above =
        (((((p[0] * u + p[1]) * u + p[2]) * u + p[3]) * u + p[4]) * u + p[5]) * u + p[6];
    const float below = (((q[0] * u + q[1]) * u + q[2]) * u + q[3]) * u + q[4];
    return z * above / below;
}

void gelu_erf_bias(float *x, const float *bias, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float v = x[i] + bias[i];
        x[i] = 0.5f * v * (1 + erf_of(v * 0.70710678f));
    }
}

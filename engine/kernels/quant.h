/* quant.h - converts rows of every tensor type to F32, and F32 to the types that we write.
 *
 * Layer:   engine/kernels (base/core)
 * Threads: pure functions
 * Shapes:  `count` is a multiple of the type's block (weight_types[].block_elements); a row holds
 *          count / block_elements blocks of block_bytes, little-endian, as in a GGUF file
 * Exact:   results equal those of the Python package `gguf` bit for bit, with NaN, infinite and
 *          subnormal scales (tests/vectors/quant): the products and sums below are in its order
 *
 * Formats (d, m: F16; q: unsigned unless said otherwise; the low nibbles of a block come first):
 *
 *     Q4_0   32: d, 16 bytes of nibbles                      d (q - 8)
 *     Q4_1   32: d, m, nibbles                               d q + m
 *     Q5_0   32: d, 4 bytes of fifth bits, nibbles           d (q - 16)
 *     Q5_1   32: d, m, fifth bits, nibbles                   d q + m
 *     Q8_0   32: d, 32 int8                                  d q
 *     Q2_K  256: 16 x (scale, min) nibbles, 64, d, m         (d s) q - (m t)      each 16
 *     Q3_K  256: 32 of third bits, 64, 12 of scales, d       (d (s - 32)) (q - 4) each 16
 *     Q4_K  256: d, m, 12 of (scale, min), 128               (d s) q - (m t)      each 32
 *     Q5_K  256: d, m, 12, 32 of fifth bits, 128             (d s) q - (m t)      each 32
 *     Q6_K  256: 128, 64 of high bits, 16 int8 scales, d     (d s) (q - 32)       each 16
 *     IQ4_NL 32: d, nibbles                                  d table[q]
 *     MXFP4  32: e (power of two, E8M0), nibbles             2^(e - 128) 2 E2M1[q]
 */
#pragma once
#include <stdint.h>

#define QUANT_BLOCK 32u  /* elements of a small block */
#define QUANT_SUPER 256u /* elements of a block of the K types */

typedef void (*dequantise_fn)(const char *row, uint32_t count, float *ret);

void dequantise_f32(const char *row, uint32_t count, float *ret);
void dequantise_f16(const char *row, uint32_t count, float *ret);
void dequantise_bf16(const char *row, uint32_t count, float *ret);
void dequantise_q4_0(const char *row, uint32_t count, float *ret);
void dequantise_q4_1(const char *row, uint32_t count, float *ret);
void dequantise_q5_0(const char *row, uint32_t count, float *ret);
void dequantise_q5_1(const char *row, uint32_t count, float *ret);
void dequantise_q8_0(const char *row, uint32_t count, float *ret);
void dequantise_q2_k(const char *row, uint32_t count, float *ret);
void dequantise_q3_k(const char *row, uint32_t count, float *ret);
void dequantise_q4_k(const char *row, uint32_t count, float *ret);
void dequantise_q5_k(const char *row, uint32_t count, float *ret);
void dequantise_q6_k(const char *row, uint32_t count, float *ret);
void dequantise_iq4_nl(const char *row, uint32_t count, float *ret);
void dequantise_mxfp4(const char *row, uint32_t count, float *ret);

/* The levels of IQ4_NL, and twice those of MXFP4. */
extern const int8_t quant_iq4_nl[16], quant_e2m1_doubled[16];

/* Round rows of finite floats. F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 equal `gguf` bit for bit; the others search
 * the scales of a block for the least squared error (quantise.c). */
typedef void (*quantise_fn)(const float *x, uint32_t count, char *ret);

void quantise_f32(const float *x, uint32_t count, char *ret);
void quantise_f16(const float *x, uint32_t count, char *ret);
void quantise_bf16(const float *x, uint32_t count, char *ret);
void quantise_q4_0(const float *x, uint32_t count, char *ret);
void quantise_q4_1(const float *x, uint32_t count, char *ret);
void quantise_q5_0(const float *x, uint32_t count, char *ret);
void quantise_q5_1(const float *x, uint32_t count, char *ret);
void quantise_q8_0(const float *x, uint32_t count, char *ret);
void quantise_q2_k(const float *x, uint32_t count, char *ret);
void quantise_q3_k(const float *x, uint32_t count, char *ret);
void quantise_q4_k(const float *x, uint32_t count, char *ret);
void quantise_q5_k(const float *x, uint32_t count, char *ret);
void quantise_q6_k(const float *x, uint32_t count, char *ret);
void quantise_mxfp4(const float *x, uint32_t count, char *ret);
void quantise_iq4_nl(const float *x, uint32_t count, char *ret);

/* Round with the squared error of element i weighted by w[i], finite and at least 0. No block has a larger weighted
 * error than its plain rounding. */
typedef void (*quantise_weighted_fn)(const float *x, const float *w, uint32_t count, char *ret);

void quantise_q4_0_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q4_1_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q5_0_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q5_1_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q2_k_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q3_k_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q4_k_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q5_k_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_q6_k_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_iq4_nl_weighted(const float *x, const float *w, uint32_t count, char *ret);
void quantise_mxfp4_weighted(const float *x, const float *w, uint32_t count, char *ret);

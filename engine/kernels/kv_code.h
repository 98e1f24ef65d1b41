/* kv_code.h - rounds K and V of a token to the codes and scales of Q8 and Q4, and reads them back.
 *
 * Layer:   engine/kernels (base/core)
 * Threads: pure; calls for different tokens may write to the same block at the same time
 * Q8:      one scale for a head and token, or for each 32 elements of a latent vector, the largest |x| / 127;
 *          codes are rounded to nearest
 * Q4:      a scale for each 32 elements of a head and token, the element of largest |x| (with its
 *          sign) / -127; a code is the nearest of the 16 values of IQ4_NL (quant.h)
 *
 * Scales are BF16: no head is too large or too small for the range of its exponent. The scale is
 * rounded first, and codes are chosen for the rounded one.
 *
 * Why so (the shipped model, root mean square of the error relative to K / to V, and how much perplexity
 * rises): one scale a head is as good as one for 32 elements with eight bits, 0.7 % / 0.6 % against
 * 0.6 % / 0.5 %, no rise that could be seen for either. With four bits, for 32 elements, the evenly spaced
 * codes of Q4_0 have 9.4 % / 8.5 % (0.4 %), scale and minimum 8.3 % / 7.8 % (0.2 %) at half a bit more,
 * IQ4_NL's values 8.4 % / 8.0 % (0.1 %); one scale a head of 64 9.6 % / 8.6 % (0.3 %). A search for the
 * scale of least error takes 15 times as long for 7.9 % / 7.4 %, and perplexity does not follow.
 */
#pragma once
#include "engine/kernels/kv_layout.h"

/* The values of the codes of Q4, times the scale: ascending. */
extern const int8_t kv_q4_values[16];

/* Writes K and V of one token and head, for a layout with groups, at `lane` of the given blocks; of a latent
 * layout K alone. NaN and
 * infinity make the scale NaN or infinite, so that everything read with it is NaN. */
void kv_code_put(const struct kv_layout *layout, const float *k, const float *v, uint32_t lane,
                 char *k_block, char *v_block);

/* Return element d of a token's K, or V, in a block. */

float kv_code_k(const struct kv_layout *layout, const char *k_block, uint32_t d, uint32_t lane);
float kv_code_v(const struct kv_layout *layout, const char *v_block, uint32_t d, uint32_t lane);

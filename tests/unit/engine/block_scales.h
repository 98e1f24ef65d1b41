/* block_scales.h - sets the scales of a block of random bits, so that its values are finite and of a known size. */
#pragma once
#include "engine/kernels/half.h"
#include "engine/kernels/weight.h"

#include <math.h>
#include <string.h>

/* Sets the F16 scales of a block (or the power of two of MXFP4) of any type with blocks. */
static inline void make_scales(enum weight_type_id type, char *block, float scale)
{
    static const uint8_t halves[WEIGHT_TYPE_COUNT][2] = {
        [WEIGHT_Q4_1] = { 0, 2 },     [WEIGHT_Q5_1] = { 0, 2 }, [WEIGHT_Q2_K] = { 80, 82 },
        [WEIGHT_Q4_K] = { 0, 2 },     [WEIGHT_Q5_K] = { 0, 2 }, [WEIGHT_Q3_K] = { 108, 108 },
        [WEIGHT_Q6_K] = { 208, 208 },
    };
    uint16_t half = f32_to_f16(scale);
    if (type == WEIGHT_MXFP4) {
        block[0] = (char)(127 + ilogbf(scale));
        return;
    }
    memcpy(block + halves[type][0], &half, sizeof half);
    memcpy(block + halves[type][1], &half, sizeof half);
}

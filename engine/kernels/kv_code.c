/* kv_code.c - rounds K and V of a token to codes and scales.
 *
 * All entries of ops_table round by this one function, so codes are the same in all of them. It is plain C
 * that the compiler turns into vectors: rounding a token's K and V takes less than a hundredth of the time
 * of its products. */
#include "engine/kernels/kv_code.h"

#include "engine/kernels/half.h"

const int8_t kv_q4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113 };

#define CODE_TOP 127.0f

/* Rounds to nearest, ties to even, for |x| below 2^22. */
static int32_t nearest(float x)
{
    return (int32_t)(f32_bits(x + 0x1.8p23f) - 0x4b400000u);
}

/* Returns the element of largest |x|. Bits of magnitudes compare as these do, with infinity and NaN at the
 * top: neither can hide. */
static float largest(const float *x, uint32_t count)
{
    uint32_t top = 0, sign = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = f32_bits(x[i]), magnitude = bits & 0x7fffffffu;
        if (magnitude <= top) continue;
        top = magnitude;
        sign = bits & 0x80000000u;
    }
    return f32_from_bits(top | sign);
}

/* Returns what elements are multiplied by to find their codes; 0 for a scale that has no inverse, so that
 * all codes are valid. */
static float inverse(float scale)
{
    float inverse = 1 / scale;
    uint32_t bits = f32_bits(inverse) & 0x7fffffffu;
    return bits < 0x7f800000u ? inverse : 0;
}

/* A finite element times 0 or a finite inverse; what is not finite becomes 0. */
static float scaled(float x, float inverse)
{
    float v = x * inverse;
    return v <= CODE_TOP + 1 ? (v >= -CODE_TOP - 1 ? v : -CODE_TOP) : (v > 0 ? CODE_TOP : 0);
}

static void round_q8(const float *x, uint32_t count, uint8_t *codes, uint16_t *scale)
{
    float top = largest(x, count);
    *scale = f32_to_bf16((top < 0 ? -top : top) / CODE_TOP);
    float inv = inverse(bf16_to_f32(*scale));
    for (uint32_t i = 0; i < count; i++) {
        int32_t code = nearest(scaled(x[i], inv));
        code = code > 127 ? 127 : code < -127 ? -127 : code;
        codes[i] = (uint8_t)code;
    }
}

/* The nearest value has as many midpoints below x as values before it; a midpoint belongs to the lower. */
static void round_q4(const float *x, uint32_t count, uint8_t *codes, uint16_t *scale)
{
    *scale = f32_to_bf16(largest(x, count) / -CODE_TOP);
    float inv = inverse(bf16_to_f32(*scale));
    for (uint32_t i = 0; i < count; i++) {
        float v = scaled(x[i], inv);
        uint8_t code = 0;
        for (uint32_t j = 0; j < 15; j++)
            code = (uint8_t)(code + (v > (float)(kv_q4_values[j] + kv_q4_values[j + 1]) / 2));
        codes[i] = code;
    }
}

/* ---- where a code lies ---- */

/* Return the byte of element d of a token. */

static size_t k_byte(enum kv_type type, uint32_t d, uint32_t lane)
{
    return (size_t)(type == KV_Q4 ? d / 2 : d) * KV_BLOCK + lane;
}

static size_t v_byte(enum kv_type type, uint32_t d, uint32_t lane)
{
    uint32_t tile = type == KV_Q4 ? d / KV_GROUP : d / 16;
    return ((size_t)tile * KV_BLOCK + lane) * 16 + d % 16;
}

/* Rounds a head of one token; codes behind its end, to the end of the last group, are 0. */
static void round_head(const struct kv_layout *l, const float *x, uint32_t lane, char *block,
                       uint8_t codes[KV_HEAD_DIM_MAX])
{
    uint16_t *scales = (uint16_t *)(void *)(block + kv_code_bytes(l)) + lane;
    const uint32_t group = kv_group_dim(l);
    for (uint32_t d = 0; d < l->head_dim; d += group, scales += KV_BLOCK) {
        uint32_t count = min_u32(group, l->head_dim - d);
        memset(codes + d, 0, group);
        (l->type == KV_Q8 ? round_q8 : round_q4)(x + d, count, codes + d, scales);
    }
}

static char pair_of(uint8_t low, uint8_t high)
{
    return (char)(low | high << 4);
}

void kv_code_put(const struct kv_layout *l, const float *k, const float *v, uint32_t lane,
                 char *k_block, char *v_block)
{
    uint8_t codes[KV_HEAD_DIM_MAX];
    const bool pairs = l->type == KV_Q4;
    round_head(l, k, lane, k_block, codes);
    for (uint32_t d = 0; d < l->head_dim; d += pairs ? 2 : 1)
        k_block[k_byte(l->type, d, lane)] =
            pairs ? pair_of(codes[d], codes[d + 1]) : (char)codes[d];
    if (l->latent > 0) return;
    round_head(l, v, lane, v_block, codes);
    for (uint32_t d = 0; d < l->head_dim; d += pairs ? KV_GROUP : 16) {
        char *row = v_block + v_byte(l->type, d, lane);
        for (uint32_t i = 0; i < 16; i++)
            row[i] = pairs ? pair_of(codes[d + i], codes[d + 16 + i]) : (char)codes[d + i];
    }
}

static float value_of(const struct kv_layout *l, const char *block, size_t byte, bool high,
                      uint32_t d, uint32_t lane)
{
    uint32_t group = d / kv_group_dim(l);
    uint16_t scale;
    memcpy(&scale, block + kv_code_bytes(l) + (group * KV_BLOCK + lane) * sizeof scale,
           sizeof scale);
    uint8_t code = (uint8_t)block[byte];
    int8_t value = l->type == KV_Q4 ? kv_q4_values[high ? code >> 4 : code & 15] : (int8_t)code;
    return bf16_to_f32(scale) * (float)value;
}

float kv_code_k(const struct kv_layout *l, const char *k_block, uint32_t d, uint32_t lane)
{
    return value_of(l, k_block, k_byte(l->type, d, lane), d % 2 == 1, d, lane);
}

float kv_code_v(const struct kv_layout *l, const char *v_block, uint32_t d, uint32_t lane)
{
    return value_of(l, v_block, v_byte(l->type, d, lane), d / 16 % 2 == 1, d, lane);
}

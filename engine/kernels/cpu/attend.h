/* attend.h - computes attention over blocks of keys and values, and stores K and V in them.
 *
 * Layer: engine/kernels. A template over the vector of simd.h; product.h's kernel does both halves,
 * scores and weighted values, a span of keys at a time. Where K and V are codes, kv_source.h reads them,
 * and their scales are applied here.
 */
#pragma once
#include "engine/kernels/cpu/element.h"
#include "engine/kernels/cpu/kv_source.h"
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/cpu/turn.h"

#include <float.h>

#define SPAN 64 /* keys of one step of the softmax */

_Static_assert(TILE_ROWS == KV_BLOCK, "a block of keys is shaped like a tile of weights");
_Static_assert(BLOCK_TOKENS <= ATTEND_ROWS_MAX, "attention's rows fit its scratch");

/* Writes 16 elements of F16 or F32. */
static void put_tile(enum kv_type type, const float *x, char *to)
{
    size_t bytes = kv_element_bytes(type);
    for (uint32_t i = 0; i < TILE_ROWS; i += VEC_LANES) {
        if (type == KV_F16)
            vec_store_f16(to + i * bytes, vec_load(x + i));
        else
            memcpy(to + i * bytes, x + i, VEC_LANES * bytes);
    }
}

static void simd_kv_put(const struct kv_layout *layout, const float *k, const float *v,
                        uint32_t lane, char *k_block, char *v_block)
{
    if (kv_groups(layout) > 0) {
        kv_code_put(layout, k, v, lane, k_block, v_block);
        return;
    }
    size_t bytes = kv_element_bytes(layout->type);
    for (uint32_t d = 0; d < layout->head_dim; d += TILE_ROWS) {
        char k_tile[TILE_ROWS * sizeof(float)];
        put_tile(layout->type, k + d, k_tile);
        for (uint32_t i = 0; i < TILE_ROWS; i++)
            memcpy(k_block + ((size_t)(d + i) * KV_BLOCK + lane) * bytes, k_tile + i * bytes,
                   bytes);
        if (layout->latent == 0)
            put_tile(layout->type, v + d, v_block + (size_t)(d + lane) * TILE_ROWS * bytes);
    }
}

#define HEAD_STRIDE (KV_HEAD_DIM_MAX + TILE_ROWS)

/* Scratch of one call, for each row: the query, scores and then weights of a span, the sum of
 * weighted V, and for the running softmax the largest score and the sum of weights, a lane for each
 * position % lanes. Behind the head's size q is not read; o has what the other half of a half group gives.
 */
struct attend_scratch {
    float q[ATTEND_ROWS_MAX][HEAD_STRIDE];
    float p[ATTEND_ROWS_MAX][SPAN + TILE_ROWS];
    float part[ATTEND_ROWS_MAX][SPAN + TILE_ROWS]; /* of codes: the scores of one group, unscaled */
    float scaled[ATTEND_ROWS_MAX][2 * KV_BLOCK];   /* the weights of a block times V's scales */
    float o[ATTEND_ROWS_MAX][HEAD_STRIDE];
    float weights[ATTEND_ROWS_MAX][VEC_LANES];
    char turned[KV_BLOCK * KV_HEAD_DIM_MAX * sizeof(float)]; /* V of a latent block */
    float top[ATTEND_ROWS_MAX];
    /* The row sees positions from .. seen of the span, none when these are equal. */
    uint32_t from[ATTEND_ROWS_MAX], seen[ATTEND_ROWS_MAX];
};
_Static_assert(sizeof(struct attend_scratch) <= OP_SCRATCH_BYTES, "fits");

static const struct fma_source *kv_source(const struct kv_layout *l)
{
    return &fma_sources[l->type == KV_F16 ? WEIGHT_F16 : WEIGHT_F32];
}

/* Returns the scales of a group, one for each lane of a block. */
static const char *scales_of(const struct kv_layout *l, const char *block, uint32_t group)
{
    return block + kv_code_bytes(l) + (size_t)group * KV_BLOCK * sizeof(uint16_t);
}

static const char *block_of(const struct attend *a, uint32_t block)
{
    return kv_block_at(a->layout, a->head, a->page_bytes, a->page_table, block);
}

/* p = (p +) scale * part, for a group of the K of `run` blocks. */
static void scale_scores(const struct attend *a, struct attend_scratch *s, const char *k,
                         uint32_t group, uint32_t b, uint32_t run)
{
    for (uint32_t i = 0; i < run * KV_BLOCK; i += VEC_LANES) {
        const char *block = k + i / KV_BLOCK * kv_block_bytes(a->layout);
        vec scale = vec_load_bf16(scales_of(a->layout, block, group) + i % KV_BLOCK * 2);
        for (uint32_t r = 0; r < a->row_count; r++) {
            float *p = s->p[r] + (size_t)b * KV_BLOCK + i;
            vec part = vec_load(s->part[r] + (size_t)b * KV_BLOCK + i);
            vec_store(p, group > 0 ? vec_fma(scale, part, vec_load(p)) : vec_mul(scale, part));
        }
    }
}

/* As span_scores for `run` blocks that follow each other from `k` on, of codes. */
static void code_scores(const struct attend *a, struct attend_scratch *s, const char *k, uint32_t b,
                        uint32_t run)
{
    const struct kv_layout *l = a->layout;
    const bool q4 = l->type == KV_Q4;
    const uint32_t size = kv_group_dim(l);
    for (uint32_t g = 0; g < kv_groups(l); g++) {
        struct fma_call c = {
            .x = s->q[0] + (size_t)g * size,
            .x_stride = HEAD_STRIDE,
            .y = s->part[0] + (size_t)b * KV_BLOCK,
            .y_stride = SPAN + TILE_ROWS,
            .k_count = min_u32(size, l->head_dim - g * size),
        };
        const char *codes = k + (size_t)g * size * KV_BLOCK / (q4 ? 2 : 1);
        fma_tiles(q4 ? &fma_q4_k : &fma_q8, &c, a->row_count, codes, kv_block_bytes(l), run);
        scale_scores(a, s, k, g, b, run);
    }
}

/* Computes p = q K for the blocks of the span that any row sees. Keys that a row does not see, and
 * lanes not yet written, give scores that span_softmax drops. */
static void span_scores(const struct attend *a, struct attend_scratch *s, uint32_t start,
                        uint32_t blocks)
{
    size_t block_bytes = kv_block_bytes(a->layout);
    uint32_t run;
    for (uint32_t b = 0; b < blocks; b += run) {
        const char *k = block_of(a, start / KV_BLOCK + b);
        /* Blocks that follow each other in memory go through the kernel together. */
        for (run = 1; b + run < blocks; run++)
            if (block_of(a, start / KV_BLOCK + b + run) != k + run * block_bytes) break;
        if (kv_groups(a->layout) > 0) {
            code_scores(a, s, k, b, run);
            continue;
        }
        struct fma_call c = {
            .x = s->q[0],
            .x_stride = HEAD_STRIDE,
            .y = s->p[0] + (size_t)b * KV_BLOCK,
            .y_stride = SPAN + TILE_ROWS,
            .k_count = a->layout->head_dim,
        };
        fma_tiles(kv_source(a->layout), &c, a->row_count, k, block_bytes, run);
    }
}

/* Turns row r's scores into weights relative to the new largest score, and scales the
 * earlier sums to match. */
static void span_softmax(const struct attend *a, struct attend_scratch *s, uint32_t r)
{
    float *p = s->p[r];
    if (a->cap > 0) simd_soft_cap(p, a->cap, SPAN);
    for (uint32_t i = 0; i < s->from[r]; i++)
        p[i] = -FLT_MAX;
    for (uint32_t i = s->seen[r]; i < SPAN; i++)
        p[i] = -FLT_MAX;
    vec top = vec_load(p);
    for (uint32_t i = VEC_LANES; i < SPAN; i += VEC_LANES)
        top = vec_max(top, vec_load(p + i));
    float highest = lanes_max(top);
    vec new_top = vec_max(vec_set1(highest), vec_set1(s->top[r]));
    vec shrink = vec_exp(vec_sub(vec_set1(s->top[r]), new_top));

    vec weights = vec_mul(vec_load(s->weights[r]), shrink);
    for (uint32_t i = 0; i < SPAN; i += VEC_LANES) {
        vec x = vec_sub(vec_load(p + i), new_top);
        vec weight = vec_keep_ge(vec_exp(x), x, vec_set1(EXP_MIN));
        weights = vec_add(weights, weight);
        vec_store(p + i, weight);
    }
    vec_store(s->weights[r], weights);
    s->top[r] = highest > s->top[r] ? highest : s->top[r];
    for (uint32_t d = 0; d < kv_value_dim(a->layout); d += VEC_LANES)
        vec_store(s->o[r] + d, vec_mul(vec_load(s->o[r] + d), shrink));
}

/* Keys [first, end) of the block that begins `in_span` keys behind the span's first. */
struct seen_keys {
    uint32_t in_span, first, end;
};

/* V of a block: elements or codes, and the block behind whose codes its scales lie. */
struct block_v {
    const char *at, *block;
};

/* Adds p V of these keys to o, for `rows` rows from r on. */
static void float_values(const struct attend *a, struct attend_scratch *s, struct block_v v,
                         struct seen_keys keys, uint32_t r, uint32_t rows)
{
    const struct kv_layout *l = a->layout;
    size_t row_bytes = TILE_ROWS * kv_element_bytes(l->type);
    struct fma_call c = {
        .x = s->p[r] + keys.in_span + keys.first,
        .x_stride = SPAN + TILE_ROWS,
        .y = s->o[r],
        .y_stride = HEAD_STRIDE,
        .k_count = keys.end - keys.first,
        .accumulate = true,
    };
    fma_tiles(kv_source(l), &c, rows, v.at + keys.first * row_bytes, KV_BLOCK * row_bytes,
              kv_value_dim(l) / TILE_ROWS);
}

/* Does the same with codes: weights are multiplied by the scales of a group, then by its codes. */
static void code_values(const struct attend *a, struct attend_scratch *s, struct block_v v,
                        struct seen_keys keys, uint32_t r, uint32_t rows)
{
    const struct kv_layout *l = a->layout;
    const bool q4 = l->type == KV_Q4;
    const uint32_t size = kv_group_dim(l), end = kv_value_dim(l);
    for (uint32_t g = 0; g * size < end; g++) {
        for (uint32_t i = 0; i < KV_BLOCK; i += VEC_LANES) {
            vec scale = vec_load_bf16(scales_of(l, v.block, g) + (size_t)i * 2);
            for (uint32_t j = r; j < r + rows; j++)
                vec_store(s->scaled[j] + i, vec_mul(vec_load(s->p[j] + keys.in_span + i), scale));
        }
        struct fma_call c = {
            .panel = { v.at + (size_t)g * size * KV_BLOCK / (q4 ? 2 : 1) + keys.first * TILE_ROWS },
            .x = s->scaled[r] + keys.first,
            .x_stride = 2 * KV_BLOCK,
            .y = s->o[r] + (size_t)g * size,
            .y_stride = HEAD_STRIDE,
            .k_count = keys.end - keys.first,
            .accumulate = true,
        };
        if (q4)
            fma_q4_values(&c, rows);
        else
            fma_tiles(&fma_q8, &c, rows, c.panel[0], KV_BLOCK * TILE_ROWS,
                      min_u32(size, end - g * size) / TILE_ROWS);
    }
}

/* Adds p V of one block to o. Only seen keys are read: an unwritten lane may hold a NaN, and weight
 * 0 times NaN is not 0. */
static void block_values(const struct attend *a, struct attend_scratch *s, struct block_v v,
                         uint32_t in_span)
{
    const bool codes = kv_groups(a->layout) > 0;
    bool all_seen = true;
    for (uint32_t r = 0; r < a->row_count; r++)
        all_seen &= s->from[r] <= in_span && s->seen[r] >= in_span + KV_BLOCK;
    uint32_t step = all_seen ? a->row_count : 1;
    for (uint32_t r = 0; r < a->row_count; r += step) {
        uint32_t first = s->from[r] > in_span ? s->from[r] - in_span : 0;
        uint32_t end = s->seen[r] > in_span ? min_u32(s->seen[r] - in_span, KV_BLOCK) : 0;
        if (first >= end) continue;
        const struct seen_keys keys = { in_span, first, end };
        (codes ? code_values : float_values)(a, s, v, keys, r, step);
    }
}

/* Loads the scaled queries and clears the sums. */
static void attend_begin(const struct attend *a, struct attend_scratch *s)
{
    uint32_t head_dim = a->layout->head_dim;
    for (uint32_t i = 0; i < a->row_count; i++) {
        uint32_t r = a->row_first + i;
        const float *q = a->q + r / a->group * a->q_stride + (size_t)(r % a->group) * head_dim;
        for (uint32_t d = 0; d < head_dim; d++)
            s->q[i][d] = q[d] * a->scale;
        memset(s->o[i], 0, sizeof s->o[i]);
        memset(s->weights[i], 0, sizeof s->weights[i]);
        s->top[i] = -FLT_MAX;
    }
}

static void attend_end(const struct attend *a, struct attend_scratch *s)
{
    uint32_t value_dim = kv_value_dim(a->layout);
    for (uint32_t i = 0; i < a->row_count; i++) {
        uint32_t r = a->row_first + i;
        float *out = a->out + r / a->group * a->out_stride + r % a->group * a->out_head;
        float weights = lanes_sum(vec_load(s->weights[i]));
        if (a->sinks) {
            float lane[VEC_LANES];
            vec_store(lane, vec_exp(vec_set1(a->sinks[r % a->group] - s->top[i])));
            weights += lane[0];
        }
        float factor = 1 / weights;
        for (uint32_t d = 0; d < value_dim; d++)
            out[d] = s->o[i][d] * factor;
    }
}

/* Return the positions [from, end) that row i of the call sees. */

static uint32_t sees_end(const struct attend *a, uint32_t i)
{
    return a->position + (a->row_first + i) / a->group + 1;
}

static uint32_t sees_from(const struct attend *a, uint32_t i)
{
    uint32_t end = sees_end(a, i);
    return a->window > 0 && end > a->window ? end - a->window : 0;
}

/* Returns V of the block whose K is at `k`. */
static struct block_v values_of(const struct attend *a, struct attend_scratch *s, const char *k)
{
    const char *v = k + kv_half_bytes(a->layout);
    if (a->layout->latent == 0) return (struct block_v){ v, v };
    turn_block(a->layout, k, s->turned);
    return (struct block_v){ s->turned, k };
}

static void simd_attend(const struct attend *a, void *scratch)
{
    struct attend_scratch *s = scratch;
    attend_begin(a, s);
    uint32_t end = sees_end(a, a->row_count - 1);
    for (uint32_t start = sees_from(a, 0) / SPAN * SPAN; start < end; start += SPAN) {
        uint32_t blocks = ceil_div_u32(min_u32(end - start, SPAN), KV_BLOCK);
        span_scores(a, s, start, blocks);
        for (uint32_t i = 0; i < a->row_count; i++) {
            uint32_t from = sees_from(a, i), sees = sees_end(a, i);
            s->from[i] = from > start ? min_u32(from - start, SPAN) : 0;
            s->seen[i] = sees > start ? min_u32(sees - start, SPAN) : 0;
            if (s->from[i] < s->seen[i]) span_softmax(a, s, i);
        }
        for (uint32_t b = 0; b < blocks; b++) {
            const char *k = block_of(a, start / KV_BLOCK + b);
            block_values(a, s, values_of(a, s, k), b * KV_BLOCK);
        }
    }
    attend_end(a, s);
}

/* dot_product.h - multiplies blocks of bytes by activations of int8: the kernels, and products built on them.
 *
 * Layer: engine/kernels. A template over the vector of simd.h; the including dot_*.c defines before
 *            DOT_TOKENS   of a kernel: what fits the registers
 *            DOT_PANELS   that stay in the first cache beside the activations of a kernel
 *        and defines dot_sums, which the kernels here call.
 *
 * The four int8 of x for a register's four columns are broadcast to all rows and multiplied. A sub-block's
 * integers are summed exactly, then scaled into one float accumulator an output, in ascending order of k, so
 * that the bits of an output depend on neither tokens nor tiles nor the instruction set.
 *
 *     one token       a tile at a time from memory; blocks are unpacked into registers and multiplied there
 *     more tokens     256 columns of a tile are unpacked into a panel in the first cache, which all tokens use
 */
#pragma once
#include "engine/kernels/cpu/dot.h"
#include "engine/kernels/cpu/dot_unpack.h"

/* Tiles that go through one part of x before the next part: their outputs and that part stay in the second
 * cache (256 tokens: 256 and 112 KiB). */
#define DOT_TILES 16
#define DOT_STREAM_TOKENS 8 /* up to here reading weights in order matters more */
/* Tokens that go through the panels before the next ones: their part of x stays in the first cache.
 */
#define DOT_GROUP 16

struct dot_panel {
    struct dot_block block[DOT_BLOCKS][DOT_HALVES];
};

#define DOT_SPARE_BYTES ((size_t)4096)

/* Of Q6_K a Zen 4 prefetches too little: one token asks for its blocks so many ahead, a half at a time. Asked for in
 * smaller parts, or into the first cache, they came later, and Q4_K lost a quarter by it. */
#define Q6_K_AHEAD 2
#define TO_SECOND_CACHE 2
#define CACHE_LINE ((size_t)64)

_Static_assert(DOT_PANELS * sizeof(struct dot_panel) + DOT_SPARE_BYTES <= OP_SCRATCH_BYTES,
               "panels fit");

/* Some tokens times one panel or tile. */
struct dot_call {
    const struct dot_panel *panel;
    uint32_t blocks; /* of the panel, or of the tile */
    const char *x;   /* struct q8_super of the first token */
    size_t x_stride;
    float *y;
    size_t y_stride;
    float centre; /* of kinds that have one */
    bool accumulate;
    void *spare; /* DOT_SPARE_BYTES of the thread, aligned to 64 */
};

typedef void (*dot_fn)(const struct dot_call *c);

ALWAYS_INLINE const struct q8_super *dot_row(const struct dot_call *c, uint32_t t)
{
    return (const struct q8_super *)(const void *)(c->x + t * c->x_stride);
}

/* Broadcasts the four int8 of token t for columns k .. k + 3 of 256. */
ALWAYS_INLINE ivec dot_x(const struct dot_call *c, uint32_t t, uint32_t k)
{
    return ivec_set1_32((int32_t)load_u32(dot_row(c, t)->q + k));
}

/* Sums registers [first, first + pieces) of block `b` over their columns, for each token; `w` is the block. */
ALWAYS_INLINE void dot_sums(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                            enum dot_kind kind, uint32_t first, uint32_t pieces, ivec *sum,
                            uint32_t tokens);

/* Adds sub-block `s` of block `b`, its integers summed, to the output of a token. What is subtracted of a sum for a
 * centre is exact, so that raised kinds, whose sums lack it already, give the same bits. */
ALWAYS_INLINE vec dot_scaled(vec acc, ivec sum, const struct dot_block *w, const struct q8_super *x,
                             uint32_t b, uint32_t s, enum dot_kind kind, float centre)
{
    vec whole = ivec_to_f32(sum), x_scale = vec_set1(x->scale[b]);
    vec x_sum = vec_set1(dot_halved(kind) ? x->half[2 * b + s] : x->sum[b]);
    if (kind == DOT_FIVE || kind == DOT_SIX)
        return vec_fma(vec_fnma(w->min[s], x_sum, vec_mul(w->scale[s], whole)), x_scale, acc);
    if (kind == DOT_FIVE_CENTRED || kind == DOT_SIX_CENTRED)
        whole = vec_fnma(vec_set1(centre), x_sum, whole);
    return vec_fma(whole, vec_mul(w->scale[s], x_scale), acc);
}

/* Adds block `b` to the outputs; `kind` and `tokens` are constants in every caller. */
ALWAYS_INLINE void dot_block_add(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                                 enum dot_kind kind, vec *acc, uint32_t tokens)
{
    const uint32_t subs = dot_halved(kind) ? 2 : 1, pieces = DOT_PIECES / subs;
    UNROLL
    for (uint32_t s = 0; s < subs; s++) {
        ivec sum[DOT_TOKENS];
        dot_sums(c, w, b, kind, s * pieces, pieces, sum, tokens);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            acc[t] = dot_scaled(acc[t], sum[t], w, dot_row(c, t), b, s, kind, c->centre);
    }
}

ALWAYS_INLINE void dot_panel_add(const struct dot_call *c, enum dot_kind kind, uint32_t tokens)
{
    for (uint32_t h = 0; h < DOT_HALVES; h++) {
        float *y = c->y + (size_t)h * VEC_LANES;
        vec acc[DOT_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            acc[t] = c->accumulate ? vec_load(y + t * c->y_stride) : vec_zero();
        for (uint32_t b = 0; b < c->blocks; b++)
            dot_block_add(c, &c->panel->block[b][h], b, kind, acc, tokens);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            vec_store(y + t * c->y_stride, acc[t]);
    }
}

/* clang-format off */
#define DOT_KERNEL(name, kind, tokens)                                                  \
    static void name##_##tokens(const struct dot_call *c)                               \
    {                                                                                   \
        dot_panel_add(c, kind, tokens);                                                 \
    }
#if DOT_TOKENS == 8
#    define DOT_KERNELS(name, kind)                                                     \
        DOT_KERNEL(name, kind, 1) DOT_KERNEL(name, kind, 2) DOT_KERNEL(name, kind, 3)   \
        DOT_KERNEL(name, kind, 4) DOT_KERNEL(name, kind, 5) DOT_KERNEL(name, kind, 6)   \
        DOT_KERNEL(name, kind, 7) DOT_KERNEL(name, kind, 8)
#    define DOT_ROW(name) { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8 }
#else
#    define DOT_KERNELS(name, kind)                                                     \
        DOT_KERNEL(name, kind, 1) DOT_KERNEL(name, kind, 2) DOT_KERNEL(name, kind, 3)   \
        DOT_KERNEL(name, kind, 4)
#    define DOT_ROW(name) { name##_1, name##_2, name##_3, name##_4 }
#endif

DOT_KERNELS(dot_five, DOT_FIVE)
DOT_KERNELS(dot_five_centred, DOT_FIVE_CENTRED)
DOT_KERNELS(dot_six, DOT_SIX)
DOT_KERNELS(dot_six_centred, DOT_SIX_CENTRED)
DOT_KERNELS(dot_signed, DOT_SIGNED)

static const dot_fn dot_kernels[][DOT_TOKENS] = {
    [DOT_FIVE]         = DOT_ROW(dot_five),
    [DOT_FIVE_CENTRED] = DOT_ROW(dot_five_centred),
    [DOT_SIX]          = DOT_ROW(dot_six),
    [DOT_SIX_CENTRED]  = DOT_ROW(dot_six_centred),
    [DOT_SIGNED]       = DOT_ROW(dot_signed),
};
/* clang-format on */

/* ---- types */

struct dot_type {
    /* Unpacks `blocks` blocks, whole ones of the type, of which DOT_BLOCKS fit a panel. */
    void (*unpack)(const char *tile, uint32_t blocks, struct dot_panel *ret);
    /* Multiplies one token by all columns of a tile. */
    void (*one)(const struct dot_call *c, const char *tile);
    enum dot_kind kind;
    uint8_t centre; /* of kinds that have one; else 0 */
};

typedef void (*dot_block_fn)(const char *tile, uint32_t b, uint32_t h, struct dot_block *to);

/* Multiplies one token by block `b` of the columns that begin at `tile`. */
ALWAYS_INLINE void dot_one_block(const struct dot_call *c, const char *tile, uint32_t b,
                                 dot_block_fn block, enum dot_kind kind, vec *acc)
{
    UNROLL
    for (uint32_t h = 0; h < DOT_HALVES; h++) {
        struct dot_block w;
        block(tile, b, h, &w);
        dot_block_add(c, &w, b, kind, &acc[h], 1);
    }
}

ALWAYS_INLINE void dot_prefetch(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch(from + i, 0, TO_SECOND_CACHE);
}

/* `super` is true for types whose blocks are 256 columns; `ahead`: so many of them are asked for, 0: none. */
ALWAYS_INLINE void dot_one(const struct dot_call *whole, const char *tile, size_t block_bytes,
                           bool super, uint32_t ahead, dot_block_fn block, enum dot_kind kind,
                           uint8_t centre)
{
    struct dot_call c = *whole;
    const size_t step = TILE_ROWS * block_bytes * (super ? 1 : DOT_BLOCKS);
    vec acc[DOT_HALVES];
    UNROLL
    for (uint32_t h = 0; h < DOT_HALVES; h++)
        acc[h] = c.accumulate ? vec_load(c.y + h * VEC_LANES) : vec_zero();
    c.centre = centre;
    for (uint32_t left = c.blocks; left > 0; tile += step, c.x += sizeof(struct q8_super)) {
        uint32_t count = min_u32(left, DOT_BLOCKS);
        if (super) {
            UNROLL
            for (uint32_t b = 0; b < DOT_BLOCKS; b++) {
                if (ahead > 0 && b % (DOT_BLOCKS / 2) == 0)
                    dot_prefetch(tile + ahead * step + step * b / DOT_BLOCKS, step / 2);
                dot_one_block(&c, tile, b, block, kind, acc);
            }
        } else {
            for (uint32_t b = 0; b < count; b++)
                dot_one_block(&c, tile, b, block, kind, acc);
        }
        left -= count;
    }
    UNROLL
    for (uint32_t h = 0; h < DOT_HALVES; h++)
        vec_store(c.y + h * VEC_LANES, acc[h]);
}

/* Each b is a constant if the loop unrolls, which it need not for small blocks. */
#define DOT_UNPACK_LOOP(name, count)              \
    for (uint32_t b = 0; b < (count); b++)        \
        for (uint32_t h = 0; h < DOT_HALVES; h++) \
            block_##name(tile, b, h, &ret->block[b][h]);

/* clang-format off */
/* type, name, kind, centre, bytes of a block, blocks of 256 columns, ahead */
#define DOT_EACH_TYPE(DO)                                         \
    DO(Q8_0,   q8_0,   DOT_SIGNED,       0,  34,  0, 0)           \
    DO(Q4_0,   q4_0,   DOT_FIVE_CENTRED, 8,  18,  0, 0)           \
    DO(Q4_1,   q4_1,   DOT_FIVE,         0,  20,  0, 0)           \
    DO(Q5_0,   q5_0,   DOT_FIVE_CENTRED, 16, 22,  0, 0)           \
    DO(Q5_1,   q5_1,   DOT_FIVE,         0,  24,  0, 0)           \
    DO(Q2_K,   q2_k,   DOT_SIX,          0,  84,  1, 0)           \
    DO(Q3_K,   q3_k,   DOT_SIX_CENTRED,  4,  110, 1, 0)           \
    DO(Q4_K,   q4_k,   DOT_FIVE,         0,  144, 1, 0)           \
    DO(Q5_K,   q5_k,   DOT_FIVE,         0,  176, 1, 0)           \
    DO(Q6_K,   q6_k,   DOT_SIX_CENTRED,  32, 210, 1, Q6_K_AHEAD)  \
    DO(IQ4_NL, iq4_nl, DOT_SIGNED,       0,  18,  0, 0)           \
    DO(MXFP4,  mxfp4,  DOT_FIVE_CENTRED, 12, 17,  0, 0)

#define DOT_TYPE(type, name, kind, centre, block_bytes, super, ahead)                      \
    static void unpack_##name(const char *tile, uint32_t blocks, struct dot_panel *ret)    \
    {                                                                                      \
        (void)blocks;                                                                      \
        DOT_UNPACK_##super(name)                                                           \
    }                                                                                      \
    static void one_##name(const struct dot_call *c, const char *tile)                     \
    {                                                                                      \
        dot_one(c, tile, block_bytes, super, ahead, block_##name, kind, centre);           \
    }
#define DOT_UNPACK_0(name) DOT_UNPACK_LOOP(name, blocks)
#define DOT_UNPACK_1(name) UNROLL DOT_UNPACK_LOOP(name, DOT_BLOCKS)

DOT_EACH_TYPE(DOT_TYPE)

#define DOT_TYPE_ROW(type, name, kind, centre, block_bytes, super, ahead) \
    [WEIGHT_##type] = { unpack_##name, one_##name, kind, centre },

static const struct dot_type dot_types[WEIGHT_TYPE_COUNT] = { DOT_EACH_TYPE(DOT_TYPE_ROW) };
/* clang-format on */

/* ---- products */

/* Multiplies `tokens` tokens, any number, by a panel. */
typedef void (*dot_rows_fn)(struct dot_call *c, enum dot_kind kind, uint32_t tokens);

/* Changes a panel for the tokens that use it, and returns its kind. */
typedef enum dot_kind (*dot_change_fn)(struct dot_panel *panel, uint32_t blocks,
                                       const struct dot_type *type);

static void dot_advance(struct dot_call *c, uint32_t tokens)
{
    c->x += tokens * c->x_stride;
    c->y += tokens * c->y_stride;
}

/* Multiplies by the kernels of one kind. */
static void dot_rows_by(const dot_fn kernel[DOT_TOKENS], struct dot_call *c, uint32_t tokens)
{
    /* Groups of even size: 9 rows as 5 + 4 rather than 8 + 1. */
    for (uint32_t groups = ceil_div_u32(tokens, DOT_TOKENS); groups > 0; groups--) {
        uint32_t rows = tokens / groups;
        kernel[rows - 1](c);
        dot_advance(c, rows);
        tokens -= rows;
    }
}

static void dot_rows(struct dot_call *c, enum dot_kind kind, uint32_t tokens)
{
    dot_rows_by(dot_kernels[kind], c, tokens);
}

/* Multiplies all tokens by columns k .. k + QUANT_SUPER, or those that are left, of up to DOT_PANELS tiles. */
static void dot_part(const struct gemm *g, uint32_t tile, uint32_t tiles, uint32_t k,
                     struct dot_panel *panels, dot_rows_fn rows, dot_change_fn change)
{
    const struct weight *w = g->w;
    const struct dot_type *type = &dot_types[w->type];
    const uint32_t blocks = min_u32(QUANT_SUPER, w->cols - k) / QUANT_BLOCK;
    enum dot_kind kind = type->kind;
    for (uint32_t i = 0; i < tiles; i++) {
        type->unpack(w->tiles + (tile + i) * weight_tile_bytes(w) +
                         TILE_ROWS * weight_row_bytes(w->type, k),
                     blocks, &panels[i]);
        if (change) kind = change(&panels[i], blocks, type);
    }
    const uint32_t at_once = tiles == 1 ? g->tokens : DOT_GROUP;
    for (uint32_t t = 0; t < g->tokens; t += at_once) {
        for (uint32_t i = 0; i < tiles; i++) {
            struct dot_call c = { .panel = &panels[i],
                                  .blocks = blocks,
                                  .x_stride = q8_row_bytes(w->cols),
                                  .y_stride = g->y_stride,
                                  .centre = type->centre,
                                  .accumulate = g->accumulate || k > 0,
                                  .spare = panels + DOT_PANELS };
            c.x = (const char *)(g->x_q8 + k / QUANT_SUPER) + t * c.x_stride;
            c.y = g->y + t * g->y_stride + (size_t)(tile + i) * TILE_ROWS;
            rows(&c, kind, min_u32(at_once, g->tokens - t));
        }
    }
}

static void dot_one_token(const struct gemm *g, uint32_t tile_first, uint32_t tile_count)
{
    const struct weight *w = g->w;
    for (uint32_t tile = tile_first; tile < tile_first + tile_count; tile++) {
        const struct dot_call c = { .blocks = w->cols / QUANT_BLOCK,
                                    .x = (const char *)g->x_q8,
                                    .y = g->y + (size_t)tile * TILE_ROWS,
                                    .accumulate = g->accumulate };
        dot_types[w->type].one(&c, w->tiles + tile * weight_tile_bytes(w));
    }
}

/* `change` may be NULL. */
static void dot_product(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                        void *scratch, dot_rows_fn rows, dot_change_fn change)
{
    if (g->tokens == 1) {
        dot_one_token(g, tile_first, tile_count);
        return;
    }
    bool stream = g->tokens <= DOT_STREAM_TOKENS;
    uint32_t group = stream ? 1 : DOT_TILES, panels = stream ? 1 : DOT_PANELS;
    for (uint32_t i = 0; i < tile_count; i += group) {
        uint32_t end = min_u32(i + group, tile_count);
        for (uint32_t k = 0; k < g->w->cols; k += QUANT_SUPER)
            for (uint32_t j = i; j < end; j += panels)
                dot_part(g, tile_first + j, min_u32(panels, end - j), k, scratch, rows, change);
    }
}

/* bf16_amx.c - multiplies BF16 weights by activations rounded to BF16, by tiles of AMX: a Xeon does sixteen times the work of
 * its vdpbf16ps, so that a prompt is limited by reading weights.
 *
 * tdpbf16ps multiplies up to 16 tokens by 32 columns of 16 rows. Even and odd columns have sums of their own, which it adds
 * to the output at its end. An output's columns are taken by 32 from the first on, whatever the number of tokens: its bits
 * depend on neither tokens nor tiles nor parts, but they are not those of bf16_avx512.c.
 *
 *     up to 32 tokens   columns are interleaved as they are read, and the outputs stay in tiles
 *     more tokens       512 columns of two tiles are interleaved into a panel, which all tokens use
 *
 * Columns that a row lacks are zero on both sides. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx512.h"
#include "engine/kernels/cpu/amx.h"
#include "engine/kernels/cpu/dot.h"
#include "engine/kernels/cpu/simd.h"

#define STEP_COLS 32 /* that a tile takes */
#define PAIR 2       /* tiles of weights, and of tokens, that are multiplied by one another */
#define PART_COLS 512
#define PART_STEPS (PART_COLS / STEP_COLS)
/* Go through a part of x before the next: with outputs 512 KiB of 256 tokens. */
#define PART_TILES 16
#define GROUP_TOKENS (PAIR * AMX_ROWS)
#define STREAMS 4 /* tiles of weights that few tokens read at once */
#define TURNS 4   /* places of the panel for each of them */
#define LINE 64   /* bytes of a cache line: two columns */
#define AHEAD 2 /* steps of each tile that few tokens ask for: the processor alone asks too late */
#define TO_SECOND_CACHE 2

/* Columns 2 p and 2 p + 1 of the rows, as tdpbf16ps takes them. */
struct bf16_block {
    uint32_t pair[STEP_COLS / 2][TILE_ROWS];
};

struct bf16_scratch {
    struct bf16_block panel[PAIR][PART_STEPS];
    char x[OP_SCRATCH_BYTES - PAIR * PART_STEPS * sizeof(struct bf16_block)];
};

_Static_assert(STREAMS / PAIR * TURNS <= PART_STEPS, "places fit");
_Static_assert(sizeof(struct bf16_scratch) == OP_SCRATCH_BYTES, "fits");
_Static_assert(sizeof(((struct bf16_scratch *)0)->x) >= 2 * OP_COLS_MAX + 64, "a row fits");
_Static_assert(sizeof(struct q8_super) == 2 * QUANT_SUPER,
               "BF16 takes the room of int8 and its sums");

/* Up to GROUP_TOKENS tokens times up to two tiles. */
struct bf16_call {
    const char *x; /* BF16 of the first token, at the first column */
    size_t x_stride;
    float *y;
    size_t y_stride;
    const char *tile[STREAMS]; /* at the first column */
    uint32_t cols;
    bool accumulate;
    struct bf16_block (*panel)[PART_STEPS];
};

/* ---- weights */

/* Lanes of 16 bits: row r of the first column, row r of the second. */
ALWAYS_INLINE __m512i bf16_order(void)
{
    const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_or_si512(
        row, _mm512_slli_epi32(_mm512_add_epi32(row, _mm512_set1_epi32(TILE_ROWS)), 16));
}

/* Interleaves `cols` columns, of which one tile takes up to STEP_COLS. */
ALWAYS_INLINE void bf16_interleave(const char *tile, uint32_t cols, struct bf16_block *ret)
{
    const __m512i order = bf16_order();
    for (uint32_t p = 0; p < STEP_COLS / 2; p++) {
        __m512i both;
        if (cols >= STEP_COLS) {
            both = _mm512_loadu_si512(tile + (size_t)p * LINE);
        } else { /* an odd column has no other */
            uint32_t left = cols > 2 * p ? cols - 2 * p : 0;
            __mmask16 there = left > 1 ? 0xffff : left > 0 ? 0xff : 0;
            both = _mm512_maskz_loadu_epi32(there, tile + (size_t)p * LINE);
        }
        _mm512_store_si512(ret->pair[p], _mm512_permutexvar_epi16(order, both));
    }
}

ALWAYS_INLINE void bf16_ask(const char *from, uint32_t lines)
{
    for (uint32_t i = 0; i < lines; i++)
        __builtin_prefetch(from + (size_t)i * LINE, 0, TO_SECOND_CACHE);
}

/* ---- tiles: 0 to 3 are outputs, 4 and 5 tokens, 6 and 7 weights. Up to 16 tokens take four tiles of weights, output i
 * being that of weights i; more take two of each, output 2 t + w being that of tokens t and weights w. */

static void bf16_configure(uint32_t tokens)
{
    struct amx_config config = { .palette = 1 };
    const uint32_t first = min_u32(tokens, AMX_ROWS);
    const uint32_t second = tokens > AMX_ROWS ? tokens - AMX_ROWS : first;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t rows = i >= 6 ? STEP_COLS / 2 : (i / 2 == 1 || i == 5) ? second : first;
        config.row_bytes[i] = AMX_ROW_BYTES;
        config.rows[i] = (uint8_t)rows;
    }
    amx_configure(&config);
}

/* `tokens` (1 or 2) and `tiles` (up to 4, or 2) count tiles and are constants in every caller. */

ALWAYS_INLINE void bf16_outputs_load(const struct bf16_call *c, uint32_t tokens, uint32_t tiles)
{
    const float *third = tokens > 1 ? c->y + AMX_ROWS * c->y_stride : c->y + (size_t)2 * TILE_ROWS;
    const size_t stride = c->y_stride * sizeof(float);
    if (!c->accumulate) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, c->y, stride);
    if (tiles > 1) _tile_loadd(1, c->y + TILE_ROWS, stride);
    if (tokens > 1 || tiles > 2) _tile_loadd(2, third, stride);
    if (tokens > 1 ? tiles > 1 : tiles > 3) _tile_loadd(3, third + TILE_ROWS, stride);
}

ALWAYS_INLINE void bf16_outputs_store(const struct bf16_call *c, uint32_t tokens, uint32_t tiles)
{
    float *third = tokens > 1 ? c->y + AMX_ROWS * c->y_stride : c->y + (size_t)2 * TILE_ROWS;
    const size_t stride = c->y_stride * sizeof(float);
    _tile_stored(0, c->y, stride);
    if (tiles > 1) _tile_stored(1, c->y + TILE_ROWS, stride);
    if (tokens > 1 || tiles > 2) _tile_stored(2, third, stride);
    if (tokens > 1 ? tiles > 1 : tiles > 3) _tile_stored(3, third + TILE_ROWS, stride);
}

/* Multiplies by columns of each tile of weights, w[i]. */
ALWAYS_INLINE void bf16_step(const struct bf16_call *c, uint32_t step,
                             const struct bf16_block *const *w, uint32_t tokens, uint32_t tiles)
{
    const char *x = c->x + (size_t)step * AMX_ROW_BYTES;
    _tile_loadd(4, x, c->x_stride);
    _tile_loadd(6, w[0], AMX_ROW_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    if (tiles > 1) {
        _tile_loadd(7, w[1], AMX_ROW_BYTES);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (tokens > 1) {
        _tile_loadd(5, x + AMX_ROWS * c->x_stride, c->x_stride);
        _tile_dpbf16ps(2, 5, 6);
        if (tiles > 1) _tile_dpbf16ps(3, 5, 7);
    } else if (tiles > 2) {
        _tile_loadd(6, w[2], AMX_ROW_BYTES);
        _tile_dpbf16ps(2, 4, 6);
        if (tiles > 3) {
            _tile_loadd(7, w[3], AMX_ROW_BYTES);
            _tile_dpbf16ps(3, 4, 7);
        }
    }
}

/* Multiplies by tiles whose columns are in the panel. */
ALWAYS_INLINE void bf16_by_panel(const struct bf16_call *c, uint32_t tokens, uint32_t tiles)
{
    bf16_outputs_load(c, tokens, tiles);
    for (uint32_t s = 0; s < ceil_div_u32(c->cols, STEP_COLS); s++) {
        const struct bf16_block *const w[PAIR] = { &c->panel[0][s], &c->panel[1][s] };
        /* The next step's, from the second cache. */
        for (uint32_t t = 0; t < tokens * AMX_ROWS; t++)
            __builtin_prefetch(c->x + t * c->x_stride + (s + 1) * AMX_ROW_BYTES);
        bf16_step(c, s, w, tokens, tiles);
    }
    bf16_outputs_store(c, tokens, tiles);
}

/* Multiplies by tiles as they lie in memory; steps take turns with places of the panel, and wait for no other. */
ALWAYS_INLINE void bf16_by_memory(const struct bf16_call *c, uint32_t tokens, uint32_t tiles)
{
    const size_t step_bytes = (size_t)STEP_COLS * TILE_ROWS * 2;
    bf16_outputs_load(c, tokens, tiles);
    for (uint32_t s = 0; s < ceil_div_u32(c->cols, STEP_COLS); s++) {
        const struct bf16_block *w[STREAMS];
        for (uint32_t i = 0; i < tiles; i++) {
            struct bf16_block *to = &c->panel[i % PAIR][i / PAIR * TURNS + s % TURNS];
            const char *from = c->tile[i] + s * step_bytes;
            bf16_ask(from + AHEAD * step_bytes, (uint32_t)(step_bytes / LINE));
            bf16_interleave(from, c->cols - s * STEP_COLS, to);
            w[i] = to;
        }
        amx_written(c->panel);
        bf16_step(c, s, w, tokens, tiles);
    }
    bf16_outputs_store(c, tokens, tiles);
}

typedef void (*bf16_fn)(const struct bf16_call *c);

/* clang-format off */
#define BF16_KERNEL(by, tokens, tiles)                                                  \
    static void bf16_##by##_##tokens##x##tiles(const struct bf16_call *c)               \
    {                                                                                   \
        bf16_by_##by(c, tokens, tiles);                                                 \
    }

BF16_KERNEL(panel, 1, 1) BF16_KERNEL(panel, 1, 2) BF16_KERNEL(panel, 2, 1) BF16_KERNEL(panel, 2, 2)
BF16_KERNEL(memory, 1, 1) BF16_KERNEL(memory, 1, 2) BF16_KERNEL(memory, 1, 3) BF16_KERNEL(memory, 1, 4)
BF16_KERNEL(memory, 2, 1) BF16_KERNEL(memory, 2, 2)

static const bf16_fn bf16_panel[PAIR][PAIR] = { { bf16_panel_1x1, bf16_panel_1x2 },
                                                { bf16_panel_2x1, bf16_panel_2x2 } };
static const bf16_fn bf16_memory[PAIR][STREAMS] = {
    { bf16_memory_1x1, bf16_memory_1x2, bf16_memory_1x3, bf16_memory_1x4 },
    { bf16_memory_2x1, bf16_memory_2x2 },
};
/* clang-format on */

/* ---- products */

/* Multiplies by one panel; what the next one is made of is asked for meanwhile. */
static void bf16_tokens(const struct gemm *g, struct bf16_call *c, uint32_t tiles, const char *next)
{
    const uint32_t groups = ceil_div_u32(g->tokens, GROUP_TOKENS);
    const uint32_t lines = ceil_div_u32(c->cols / 2, groups);
    const size_t tile_bytes = weight_tile_bytes(g->w);
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t tokens = min_u32(GROUP_TOKENS, g->tokens - i * GROUP_TOKENS);
        for (uint32_t j = 0; next && j < PAIR; j++)
            bf16_ask(next + j * tile_bytes + (size_t)i * lines * LINE, lines);
        if (tokens < GROUP_TOKENS) bf16_configure(tokens);
        bf16_panel[tokens > AMX_ROWS][tiles - 1](c);
        if (tokens < GROUP_TOKENS) bf16_configure(GROUP_TOKENS);
        c->x += GROUP_TOKENS * c->x_stride;
        c->y += GROUP_TOKENS * c->y_stride;
    }
}

/* Multiplies columns from k on of up to PART_TILES tiles. */
static void bf16_part(const struct gemm *g, uint32_t tile, uint32_t tiles, uint32_t k,
                      struct bf16_scratch *s)
{
    const size_t tile_bytes = weight_tile_bytes(g->w), at = (size_t)k * TILE_ROWS * 2;
    for (uint32_t i = 0; i < tiles; i += PAIR) {
        const uint32_t pair = min_u32(PAIR, tiles - i);
        struct bf16_call c = { .x = (const char *)(g->x_bf16 + k),
                               .x_stride = q8_row_bytes(g->w->cols),
                               .y = g->y + (size_t)(tile + i) * TILE_ROWS,
                               .y_stride = g->y_stride,
                               .cols = min_u32(PART_COLS, g->w->cols - k),
                               .accumulate = g->accumulate || k > 0,
                               .panel = s->panel };
        const char *first = g->w->tiles + (tile + i) * tile_bytes + at;
        for (uint32_t j = 0; j < pair; j++)
            for (uint32_t at_col = 0; at_col < c.cols; at_col += STEP_COLS)
                bf16_interleave(first + j * tile_bytes + (size_t)at_col * TILE_ROWS * 2,
                                c.cols - at_col, &s->panel[j][at_col / STEP_COLS]);
        amx_written(s);
        bf16_tokens(g, &c, pair, i + 2 * PAIR <= tiles ? first + PAIR * tile_bytes : NULL);
    }
}

/* Multiplies by tokens that fill two tiles at most. */
static void bf16_few(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                     struct bf16_scratch *s)
{
    const size_t tile_bytes = weight_tile_bytes(g->w);
    const uint32_t at_once = g->tokens > AMX_ROWS ? PAIR : STREAMS;
    bf16_configure(g->tokens);
    for (uint32_t i = 0; i < tile_count; i += at_once) {
        const uint32_t tiles = min_u32(at_once, tile_count - i);
        struct bf16_call c = { .x = (const char *)g->x_bf16,
                               .x_stride = q8_row_bytes(g->w->cols),
                               .y = g->y + (size_t)(tile_first + i) * TILE_ROWS,
                               .y_stride = g->y_stride,
                               .cols = g->w->cols,
                               .accumulate = g->accumulate,
                               .panel = s->panel };
        for (uint32_t j = 0; j < tiles; j++)
            c.tile[j] = g->w->tiles + (tile_first + i + j) * tile_bytes;
        bf16_memory[g->tokens > AMX_ROWS][tiles - 1](&c);
    }
}

static void bf16_rounded(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                         struct bf16_scratch *s)
{
    if (g->tokens <= GROUP_TOKENS) {
        bf16_few(g, tile_first, tile_count, s);
        return;
    }
    bf16_configure(GROUP_TOKENS);
    for (uint32_t i = 0; i < tile_count; i += PART_TILES)
        for (uint32_t k = 0; k < g->w->cols; k += PART_COLS)
            bf16_part(g, tile_first + i, min_u32(PART_TILES, tile_count - i), k, s);
}

void bf16_round_amx(const float *x, uint32_t cols, uint16_t *ret)
{
    const uint32_t end = ceil_div_u32(cols, STEP_COLS) * STEP_COLS;
    for (uint32_t k = 0; k < end; k += VEC_LANES) {
        uint32_t left = k < cols ? min_u32(VEC_LANES, cols - k) : 0;
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), x + k);
        _mm256_storeu_si256((__m256i_u *)(ret + k), (__m256i)_mm512_cvtneps_pbh(v));
    }
}

void bf16_gemm_amx(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    struct bf16_scratch *s = scratch;
    const size_t row_bytes = q8_row_bytes(g->w->cols);
    const uint32_t at_once =
        g->x_bf16 ? g->tokens : min_u32(g->tokens, (uint32_t)(sizeof s->x / row_bytes));
    for (uint32_t t = 0; t < g->tokens; t += at_once) {
        struct gemm part = *g;
        part.tokens = min_u32(at_once, g->tokens - t);
        part.y += t * g->y_stride;
        for (uint32_t i = 0; !g->x_bf16 && i < part.tokens; i++)
            bf16_round_amx(g->x + (t + i) * g->x_stride, g->w->cols,
                           (uint16_t *)(void *)(s->x + i * row_bytes));
        if (!g->x_bf16) part.x_bf16 = (const uint16_t *)(const void *)s->x;
        bf16_rounded(&part, tile_first, tile_count, s);
    }
    _tile_release(); /* without it the tiles would be saved at each switch of threads */
}

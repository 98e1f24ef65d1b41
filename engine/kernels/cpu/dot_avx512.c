/* dot_avx512.c - multiplies quantised weights by activations of int8 by VNNI, and by tiles of AMX.
 *
 * AMX multiplies the rows of x of 16 tokens, as they lie in memory, by a block as it lies in a panel, and leaves
 * one register of sums a token. Only the scaling is left to the vector units, which therefore set the pace:
 * reading and writing tiles goes on beside it. */
#define SIMD_HEADER "engine/kernels/cpu/ivec_avx512.h"
#define DOT_TOKENS 8 /* with 8 accumulators, 8 sums and a block, 26 of 32 registers */
#define DOT_PANELS 4 /* 24 KiB, beside 8 KiB of x */
#include "engine/kernels/cpu/amx.h"
#include "engine/kernels/cpu/simd.h"

ALWAYS_INLINE ivec ivec_dot(ivec sum, ivec q, ivec x)
{
    return _mm512_dpbusd_epi32(sum, q, x);
}

#include "engine/kernels/cpu/dot_vnni.h"

void dot_gemm_vnni(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    dot_product_vnni(g, tile_first, tile_count, scratch);
}

/* ---- tiles of AMX */

#define AMX_TOKENS 16

/* Registers 0 and 3: sums, 1 and 4: rows of x, 2 and 5: a sub-block of weights. */
static void amx_dot_configure(void)
{
    struct amx_config config = { .palette = 1 };
    for (uint32_t i = 0; i < 6; i++) {
        config.row_bytes[i] = i % 3 == 1 ? QUANT_BLOCK : TILE_ROWS * 4;
        config.rows[i] = i % 3 == 2 ? QUANT_BLOCK / 4 : AMX_TOKENS;
    }
    amx_configure(&config);
}

/* Sums of a block: [token][row]. */
typedef int32_t amx_sums[AMX_TOKENS][TILE_ROWS];

_Static_assert(2 * sizeof(amx_sums) <= DOT_SPARE_BYTES, "two of them fit");

#define AMX_MULTIPLY(sums, x, w)                                         \
    do {                                                                 \
        _tile_zero(sums);                                                \
        _tile_loadd(x, dot_row(c, 0)->q + b * QUANT_BLOCK, c->x_stride); \
        _tile_loadd(w, c->panel->block[b][0].q, sizeof(ivec));           \
        if (kind == DOT_SIGNED)                                          \
            _tile_dpbssd(sums, x, w);                                    \
        else                                                             \
            _tile_dpbsud(sums, x, w);                                    \
        _tile_stored(sums, to, sizeof **to);                             \
    } while (0)

/* Multiplies block `b` of the panel. Even and odd ones use registers and sums of their own. */
ALWAYS_INLINE void amx_multiply(const struct dot_call *c, enum dot_kind kind, size_t b, bool odd)
{
    amx_sums *to = (amx_sums *)c->spare + odd;
    if (odd)
        AMX_MULTIPLY(3, 4, 5);
    else
        AMX_MULTIPLY(0, 1, 2);
}

ALWAYS_INLINE void amx_scale(const struct dot_call *c, enum dot_kind kind, uint32_t b, bool odd,
                             vec *acc)
{
    amx_sums *sums = (amx_sums *)c->spare + odd;
    UNROLL
    for (uint32_t t = 0; t < AMX_TOKENS; t++)
        acc[t] = dot_scaled(acc[t], ivec_load((const char *)(*sums)[t]), &c->panel->block[b][0],
                            dot_row(c, t), b, 0, kind, c->centre);
}

/* While the sums of a block are scaled, the tiles multiply the next one. */
ALWAYS_INLINE void amx_panel_add(const struct dot_call *c, enum dot_kind kind)
{
    vec acc[AMX_TOKENS];
    UNROLL
    for (uint32_t t = 0; t < AMX_TOKENS; t++)
        acc[t] = c->accumulate ? vec_load(c->y + t * c->y_stride) : vec_zero();
    amx_multiply(c, kind, 0, false);
    for (uint32_t b = 0; b < c->blocks; b += 2) {
        if (b + 1 < c->blocks) amx_multiply(c, kind, b + 1, true);
        amx_scale(c, kind, b, false, acc);
        if (b + 2 < c->blocks) amx_multiply(c, kind, b + 2, false);
        if (b + 1 < c->blocks) amx_scale(c, kind, b + 1, true, acc);
    }
    UNROLL
    for (uint32_t t = 0; t < AMX_TOKENS; t++)
        vec_store(c->y + t * c->y_stride, acc[t]);
}

static void amx_rows(struct dot_call *c, enum dot_kind kind, uint32_t tokens)
{
    amx_written(c->panel);
    for (; tokens >= AMX_TOKENS; tokens -= AMX_TOKENS) {
        if (kind == DOT_SIGNED)
            amx_panel_add(c, DOT_SIGNED);
        else
            amx_panel_add(c, DOT_FIVE);
        dot_advance(c, AMX_TOKENS);
    }
    if (tokens > 0) dot_rows(c, kind, tokens);
}

/* Tiles multiply signed bytes as well: without their centre, weights save each token an instruction a block. */
static enum dot_kind amx_lower(struct dot_panel *panel, uint32_t blocks,
                               const struct dot_type *type)
{
    if (type->kind != DOT_FIVE_CENTRED) return type->kind;
    for (uint32_t b = 0; b < blocks; b++) {
        ivec *q = panel->block[b][0].q;
        for (uint32_t j = 0; j < DOT_PIECES; j++)
            q[j] = ivec_add_8(q[j], ivec_set1_8((char)-type->centre));
    }
    return DOT_SIGNED;
}

void dot_gemm_amx(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    /* Two scales a block leave the tiles half empty, and were no faster. */
    if (g->tokens < AMX_TOKENS || dot_halved(dot_types[g->w->type].kind)) {
        dot_gemm_vnni(g, tile_first, tile_count, scratch);
        return;
    }
    amx_dot_configure();
    dot_product(g, tile_first, tile_count, scratch, amx_rows, amx_lower);
    _tile_release(); /* without it the tiles would be saved at each switch of threads */
}

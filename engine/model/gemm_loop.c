/* gemm_loop.c - numbers units by product, then range of tiles; any thread claims any unit.
 *
 * Gate and up are computed range by range so that what the join reads is still in the cache. */
#include "engine/model/gemm_loop.h"

#include "engine/model/importance.h"

#define TILES_PER_UNIT 4 /* the least of a matrix that a thread claims: 64 rows */
#define CLAIMS 8         /* of a thread: they even out threads that lose their core for a while */
#define ROWS_PER_UNIT 8  /* of x, to be rounded */

static uint32_t units_of(const struct gemm_loop *l, uint32_t i)
{
    return ceil_div_u32(weight_tiles(l->gemm[i].w), l->tiles_per_unit);
}

static void compute(const struct gemm_loop *l, uint32_t i, uint32_t unit, uint32_t thread)
{
    uint32_t first = unit * l->tiles_per_unit;
    uint32_t tiles = min_u32(l->tiles_per_unit, weight_tiles(l->gemm[i].w) - first);
    struct gemm g = l->gemm[i];
    if (l->bf16) g.x_bf16 = (const uint16_t *)(const void *)g.x_q8;
    l->ops->gemm(&g, first, tiles, l->scratch[thread]);
}

static void product_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const struct gemm_loop *l = arg;
    uint32_t i = 0;
    for (; unit >= units_of(l, i); i++)
        unit -= units_of(l, i);
    compute(l, i, unit, thread);
}

static void joined_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const struct gemm_loop *l = arg;
    compute(l, 0, unit, thread);
    compute(l, 1, unit, thread);
    const struct gemm *gate = &l->gemm[0], *up = &l->gemm[1];
    uint32_t first = unit * l->tiles_per_unit;
    uint32_t tiles = min_u32(l->tiles_per_unit, weight_tiles(gate->w) - first);
    size_t column = (size_t)first * TILE_ROWS;
    for (uint32_t t = 0; t < gate->tokens; t++)
        l->join(gate->y + t * gate->y_stride + column, up->y + t * up->y_stride + column,
                tiles * TILE_ROWS);
}

static void round_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const struct gemm_loop *l = arg;
    const uint32_t cols = l->gemm[0].w->cols, end = min_u32((unit + 1) * ROWS_PER_UNIT, l->rows);
    (void)thread;
    for (uint32_t r = unit * ROWS_PER_UNIT; r < end; r++) {
        struct q8_super *to = q8_row_at(l->x_q8, cols, r);
        if (l->bf16)
            l->ops->bf16_round(l->x + r * l->x_stride, cols, (uint16_t *)(void *)to);
        else
            l->ops->q8_round(l->x + r * l->x_stride, cols, to);
    }
}

void gemm_loop_run(struct gemm_loop *l)
{
    uint32_t threads = workers_threads(l->workers), units = 0, tiles = 0;
    bool rounds = false;
    l->bf16 = l->ops->bf16_round != NULL;
    if (l->importance) importance_add(l->importance, l->workers, l->gemm, l->count);
    for (uint32_t i = 0; i < l->count; i++) {
        tiles += weight_tiles(l->gemm[i].w);
        rounds = rounds || ops_round(l->ops, l->gemm[i].w->type);
        l->bf16 = l->bf16 && l->gemm[i].w->type == WEIGHT_BF16;
    }
    if (rounds || l->bf16)
        workers_run(l->workers, ceil_div_u32(l->rows, ROWS_PER_UNIT), round_unit, l);
    l->tiles_per_unit =
        threads == 1 ? tiles
                     : ceil_div_u32(tiles, threads * CLAIMS * TILES_PER_UNIT) * TILES_PER_UNIT;
    for (uint32_t i = 0; i < (l->join ? 1 : l->count); i++)
        units += units_of(l, i);
    workers_run(l->workers, units, l->join ? joined_unit : product_unit, l);
}

/* adapter_step.c - runs the products of all groups as one loop for A, and one for B.
 *
 * Batching by adapter follows Punica (Chen et al. 2023, arXiv 2310.18547) and S-LoRA (Sheng et al. 2023,
 * arXiv 2311.03285): the base model's products are computed for all rows together, and only these small
 * ones by group. Their kernels gather a matrix for each row; here the rows of an adapter lie together
 * (decoder_step.c puts them so), and each matrix is read once.
 *
 * A has few rows (one or some tiles), so that large groups are cut into pieces of rows for the threads. */
#include "engine/model/adapter_step.h"

#include "engine/model/gemm_loop.h"

#include <stdlib.h>

#define PIECE_ROWS 64u

struct group {
    const struct adapter *adapter;
    uint32_t row, count;
};

struct adapter_step {
    struct group *groups;
    uint32_t group_count, groups_max;
    struct gemm *gemms;
    const struct adapter_part **parts; /* of each product */
    uint32_t gemms_max;
    float *inner; /* A x: a row for each row of the step */
    size_t inner_stride;
    uint32_t rows_max;
};

int adapter_step_new(uint32_t tokens_max, uint32_t seqs_max, uint32_t rank_max,
                     struct adapter_step **ret)
{
    struct adapter_step *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    void *inner = NULL;
    s->groups_max = seqs_max;
    s->rows_max = tokens_max;
    s->gemms_max =
        seqs_max + tokens_max / PIECE_ROWS; /* each group has one piece that is not whole */
    s->inner_stride = activation_stride(rank_max);
    s->groups = calloc(seqs_max, sizeof *s->groups);
    s->gemms = calloc(s->gemms_max, sizeof *s->gemms);
    s->parts = calloc(s->gemms_max, sizeof *s->parts);
    if (posix_memalign(&inner, 64, tokens_max * s->inner_stride * sizeof(float)) == 0)
        s->inner = inner;
    if (!s->groups || !s->gemms || !s->parts || !s->inner) {
        adapter_step_free(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void adapter_step_free(struct adapter_step *s)
{
    if (!s) return;
    free(s->groups);
    free(s->gemms);
    free(s->parts);
    free(s->inner);
    free(s);
}

void adapter_step_clear(struct adapter_step *s)
{
    s->group_count = 0;
}

void adapter_step_rows(struct adapter_step *s, const struct adapter *a, uint32_t row,
                       uint32_t count)
{
    struct group *last = s->group_count > 0 ? &s->groups[s->group_count - 1] : NULL;
    must(row + count <= s->rows_max);
    if (last && last->adapter == a && last->row + last->count == row) {
        last->count += count;
        return;
    }
    must(s->group_count < s->groups_max);
    s->groups[s->group_count++] = (struct group){ a, row, count };
}

bool adapter_step_has(const struct adapter_step *s, uint32_t layer, enum adapter_slot slot)
{
    for (uint32_t i = 0; i < s->group_count; i++)
        if (adapter_part(s->groups[i].adapter, layer, slot)->a.rows > 0) return true;
    return false;
}

/* Lists the products of A with x; returns how many. */
static uint32_t list_inner(struct adapter_step *s, uint32_t layer, enum adapter_slot slot,
                           const float *x, size_t x_stride)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->group_count; i++) {
        const struct group *g = &s->groups[i];
        const struct adapter_part *part = adapter_part(g->adapter, layer, slot);
        for (uint32_t at = 0; part->a.rows > 0 && at < g->count; at += PIECE_ROWS) {
            const size_t row = g->row + at;
            must(count < s->gemms_max && activation_stride(part->a.rows) <= s->inner_stride);
            s->parts[count] = part;
            s->gemms[count++] = (struct gemm){ .w = &part->a,
                                               .x = x + row * x_stride,
                                               .x_stride = x_stride,
                                               .y = s->inner + row * s->inner_stride,
                                               .y_stride = s->inner_stride,
                                               .tokens = min_u32(PIECE_ROWS, g->count - at) };
        }
    }
    return count;
}

static void run(const struct adapter_step *s, const struct ops *ops, const struct arch_step *step,
                uint32_t count)
{
    struct gemm_loop l = { .ops = ops,
                           .workers = step->workers,
                           .scratch = step->scratch,
                           .gemm = s->gemms,
                           .count = count };
    gemm_loop_run(&l);
}

static void scale_rows(const struct gemm *g, float scale)
{
    for (uint32_t t = 0; scale != 1 && t < g->tokens; t++)
        for (uint32_t i = 0; i < g->w->rows; i++)
            g->y[t * g->y_stride + i] *= scale;
}

void adapter_step_add(struct adapter_step *s, const struct ops *ops, const struct arch_step *step,
                      uint32_t layer, enum adapter_slot slot, const float *x, size_t x_stride,
                      float *y, size_t y_stride)
{
    const uint32_t count = list_inner(s, layer, slot, x, x_stride);
    if (count == 0) return;
    run(s, ops, step, count);
    for (uint32_t i = 0; i < count; i++) {
        struct gemm *g = &s->gemms[i];
        const size_t row = (size_t)(g->y - s->inner) / s->inner_stride;
        scale_rows(g, s->parts[i]->scale);
        *g = (struct gemm){ .w = &s->parts[i]->b,
                            .x = g->y,
                            .x_stride = s->inner_stride,
                            .y = y + row * y_stride,
                            .y_stride = y_stride,
                            .tokens = g->tokens,
                            .accumulate = true };
    }
    run(s, ops, step, count);
}

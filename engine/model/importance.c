/* importance.c - finds the tensor of a product by the place of its weights, and adds squares by ranges of columns.
 *
 * Kernels know weights by their address alone. The loader notes where it packs each tensor, so that neither the
 * architectures nor the kernels carry names for the sake of this. */
#include "engine/model/importance.h"

#include "engine/model/arch.h"

#include <stdlib.h>

#define COLUMNS_PER_UNIT 256 /* a thread's share of a product; a kilobyte of each row */

int importance_new(const struct model *m, struct importance **ret, struct err *err)
{
    if (m->info.task != MODEL_GENERATE)
        return err_set(err, -ENOTSUP,
                       "'%s' is an encoder: importance is gathered for models that generate",
                       m->arch->name);
    CLEANUP(importance_freep) struct importance *im = calloc(1, sizeof *im);
    size_t columns = 0, matrices = 0;
    for (uint32_t i = 0; i < m->matrix_count; i++) {
        columns += (size_t)m->matrices[i].cols * m->matrices[i].count;
        matrices += m->matrices[i].count;
    }
    if (im) {
        im->model = m;
        im->count = m->matrix_count;
        im->entries = calloc(im->count + 1, sizeof *im->entries);
        im->sums = calloc(columns + 1, sizeof *im->sums);
        im->rows = calloc(matrices + 1, sizeof *im->rows);
    }
    if (!im || !im->entries || !im->sums || !im->rows)
        return err_set(err, -ENOMEM, "no memory for the sums of %zu columns", columns);
    double *sums = im->sums;
    uint64_t *rows = im->rows;
    for (uint32_t i = 0; i < im->count; i++) {
        const struct model_matrix *of = &m->matrices[i];
        im->entries[i] = (struct importance_entry){ of->name, of->cols, of->count, sums, rows };
        sums += (size_t)of->cols * of->count;
        rows += of->count;
    }
    *ret = TAKE(im);
    return 0;
}

void importance_free(struct importance *im)
{
    if (!im) return;
    free(im->entries);
    free(im->sums);
    free(im->rows);
    free(im);
}

/* Finds the tensor and the index of the matrix in it whose weights begin at `tiles`. Returns false inside a matrix. */
static bool find_matrix(const struct importance *im, const char *tiles, uint32_t *ret_entry,
                        uint32_t *ret_index)
{
    const struct model *m = im->model;
    const size_t place = (size_t)(tiles - m->weights);
    uint32_t low = 0, high = m->matrix_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (m->matrices[middle].place <= place)
            low = middle;
        else
            high = middle;
    }
    const struct model_matrix *of = &m->matrices[low];
    const size_t index = (place - of->place) / of->stride;
    *ret_entry = low;
    *ret_index = (uint32_t)index;
    return index < of->count && (place - of->place) % of->stride == 0;
}

struct adding {
    const struct gemm *gemm;
    double *sums;
};

static void add_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const struct adding *a = arg;
    const uint32_t first = unit * COLUMNS_PER_UNIT;
    const uint32_t end = min_u32(first + COLUMNS_PER_UNIT, a->gemm->w->cols);
    (void)thread;
    for (uint32_t r = 0; r < a->gemm->tokens; r++) {
        const float *x = a->gemm->x + r * a->gemm->x_stride;
        for (uint32_t c = first; c < end; c++)
            a->sums[c] += (double)x[c] * (double)x[c];
    }
}

void importance_add(struct importance *im, struct workers *workers, const struct gemm *gemms,
                    uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t cols = gemms[i].w->cols;
        uint32_t entry, index;
        if (!find_matrix(im, gemms[i].w->tiles, &entry, &index)) continue;
        const struct importance_entry *e = &im->entries[entry];
        struct adding adding = { &gemms[i], e->sums + (size_t)index * cols };
        e->rows[index] += gemms[i].tokens;
        workers_run(workers, ceil_div_u32(cols, COLUMNS_PER_UNIT), add_unit, &adding);
    }
}

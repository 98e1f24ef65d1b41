/* gemm_loop.h - computes matrix products of a step on all threads, a range of tiles at a time.
 *
 * Layer:    engine/model (engine/kernels)
 * Threads:  gemm_loop_run is for the thread that runs the step; it returns when all is computed
 * Equality: an output element does not depend on how tiles are shared out
 */
#pragma once
#include "engine/kernels/op.h"
#include "engine/model/workers.h"

struct importance;

struct gemm_loop {
    const struct ops *ops;
    struct workers *workers;
    char *const *scratch; /* OP_SCRATCH_BYTES for each thread */
    const struct gemm *gemm;
    uint32_t count;
    /* The rows that the products read, all as wide as gemm[0].w has columns. They are rounded once, into x_q8 (rows
     * q8_row_bytes apart), to int8 if weights of a product ask for it, to BF16 if all weights are BF16 and kernels round. */
    const float *x;
    size_t x_stride;
    uint32_t rows;
    struct q8_super *x_q8;
    /* When given: gemm[0] and gemm[1] are gate and up of one shape, computed range by range, and
     * this joins them in gate's output. */
    void (*join)(float *gate, const float *up, uint32_t n);
    struct importance *importance; /* what the products read is added to it; NULL: nowhere */
    /* Chosen by gemm_loop_run: */
    uint32_t tiles_per_unit;
    bool bf16; /* x_q8 holds BF16 */
};

void gemm_loop_run(struct gemm_loop *l);

/* importance.h - gathers, while steps run, how large the inputs of a model's matrices are: the importance of their
 * columns to what a product gives.
 *
 *     sums[column] += x[column]^2        over all rows x that the matrix is multiplied with
 *
 * An error e of a matrix changes an output by sum(e x); with inputs that do not correlate, its square is on average
 * the sum of e^2 x^2, so that the mean of x^2 is the weight of a column's squared errors.
 *
 * Layer:    engine/model (engine/kernels, base/core)
 * Threads:  the thread that runs the steps; columns are shared out among its workers
 * Equality: a column adds its rows in the order in which they come, with any number of threads
 * Lifetime: it borrows the model
 * Memory:   8 bytes a column of each matrix of the model, and of each expert's
 * Cost:     a comparison a product for steps that do not gather
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "engine/kernels/op.h"
#include "engine/model/workers.h"

struct model;

/* A tensor: `count` matrices of `cols` columns. */
struct importance_entry {
    struct str name; /* as a GGUF file names it */
    uint32_t cols, count;
    double *sums;   /* [count][cols] */
    uint64_t *rows; /* [count]: that were added */
};

struct importance {
    const struct model *model;
    struct importance_entry *entries; /* of the model's matrices, as they lie in memory */
    uint32_t count;
    double *sums; /* of all entries */
    uint64_t *rows;
};

/* -ENOTSUP for an encoder, -ENOMEM. */
int importance_new(const struct model *m, struct importance **ret, struct err *err);
void importance_free(struct importance *im);
CLEANUP_FREEP(importance, struct importance)

/* Adds what some products read. Of several matrices in one tensor (Q, K and V of Phi) the first counts for all: they
 * read the same rows. */
void importance_add(struct importance *im, struct workers *workers, const struct gemm *gemms,
                    uint32_t count);

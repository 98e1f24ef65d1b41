/* f_imatrix.c - reads any bytes as an importance matrix and takes from it the weights of a small model's tensors: it is
 * refused with a sentence, or all weights are finite and above 0. */
#include "base/core/own.h"
#include "engine/model/imatrix.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/engine/gguf_make.h"

#include <math.h>
#include <stdlib.h>

const struct fuzz_cost fuzz_cost = { 100000, 200 };

/* A matrix, three experts and a vector. */
static void check_weights(const struct imatrix *im, struct err *err)
{
    const struct gguf_tensor tensors[] = {
        { STR("m"), 2, { 32, 4, 1, 1 }, WEIGHT_F32, 128, 0, 512 },
        { STR("e"), 3, { 32, 2, 3, 1 }, WEIGHT_F32, 192, 0, 768 },
        { STR("v"), 1, { 32, 1, 1, 1 }, WEIGHT_F32, 32, 0, 128 },
    };
    const struct gguf model = { .tensors = tensors, .tensor_count = 2 };
    err->text[0] = 0;
    bool sound = imatrix_check(im, &model, err) == 0;
    must(sound || err->text[0] != 0);
    for (uint32_t i = 0; i < COUNT_OF(tensors); i++) {
        float *w = NULL;
        uint32_t blank;
        const uint64_t matrices = tensors[i].dims[2];
        int rc = imatrix_weights(im, &tensors[i], &w, &blank, err);
        must(rc == 0 || (w == NULL && (!sound || tensors[i].n_dims == 1)));
        must(!w || blank <= matrices);
        for (uint64_t j = 0; w && j < matrices * 32; j++)
            must(isfinite(w[j]) && w[j] > 0);
        free(w);
    }
}

void fuzz_one(const uint8_t *data, size_t len)
{
    CLEANUP(imatrix_freep) struct imatrix *im = NULL;
    struct str file = str_of(data, len);
    struct gguf_source source = memory_source(&file);
    struct err err = { { 0 } };
    int rc = imatrix_parse(&source, &im, &err);
    must(rc == 0 ? im != NULL : im == NULL && err.text[0] != 0);
    if (im) check_weights(im, &err);
}

/* llama_truth.h - a Llama forward pass in double, from the file alone: independent of the
 * engine's graph, kernels, paging and packing. For tests.
 */
#pragma once
#include "tests/unit/engine/gguf_make.h"

/* Logits [count][vocab] after each of the ids; the caller frees. */
double *llama_truth(const struct gguf_make *file, const struct llama_shape *shape,
                    const uint32_t *ids, uint32_t count);

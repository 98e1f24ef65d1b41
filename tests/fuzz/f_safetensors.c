/* f_safetensors.c - reads any bytes as a safetensors file: the reader refuses them with a sentence or gives
 * tensors that cover the data, each found by its name. */
#include "base/core/err.h"
#include "engine/files/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/engine/gguf_make.h"

const struct fuzz_cost fuzz_cost = { 100000, 200 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct str file = str_of(data, len);
    struct gguf_source source = memory_source(&file);
    struct safetensors *s = NULL;
    struct err err = { { 0 } };
    int rc = safetensors_parse(&source, &s, &err);
    must(rc == 0 ? s != NULL : s == NULL && err.text[0] != 0);
    if (!s) return;
    uint64_t covered = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct safetensor *t = &s->tensors[i];
        must(t->offset <= len && t->bytes <= len - t->offset);
        must(t->n_dims >= 1 && t->n_dims <= GGUF_DIMS_MAX && t->elements >= 1);
        must(safetensors_find(s, t->name) == t);
        covered += t->bytes;
    }
    must(covered <= len);
    safetensors_free(s);
}

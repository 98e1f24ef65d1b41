/* f_gguf.c - reads any bytes as a model file: the reader refuses them with a sentence or gives a struct
 * that keeps its invariants. Files that parse go on to the vocabulary and the architecture. */
#include "base/core/err.h"
#include "engine/files/gguf.h"
#include "engine/files/vocab_gguf.h"
#include "engine/model/model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/engine/gguf_make.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOAD_BYTES_MAX ((size_t)1 << 16) /* larger files are not loaded as a model, to stay fast */

static void check_promises(const struct gguf *g, uint64_t file_bytes)
{
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        must(t->offset <= file_bytes && t->bytes <= file_bytes - t->offset);
        must(gguf_tensor_find(g, t->name) == t);
    }
    for (uint32_t i = 0; i < g->value_count; i++) {
        const struct gguf_value *v = &g->values[i];
        must(gguf_find(g, v->key) == v);
        must(v->type != GGUF_ARRAY || v->array.type != GGUF_STRING || v->array.count == 0 ||
             v->array.texts != NULL);
    }
}

static void load_as_model(const uint8_t *data, size_t len)
{
    int fd = memfd_create("fuzz.gguf", MFD_CLOEXEC);
    must(fd >= 0);
    must(write(fd, data, len) == (ssize_t)len);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct model *model = NULL;
    struct err err = { { 0 } };
    int rc = model_load(path, NULL, &model, &err);
    must(rc == 0 ? model != NULL : model == NULL && err.text[0] != 0);
    model_free(model);
    close(fd);
}

const struct fuzz_cost fuzz_cost = { 100000, 200 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct str file = str_of(data, len);
    struct gguf_source source = memory_source(&file);
    struct gguf *g = NULL;
    struct err err = { { 0 } };
    int rc = gguf_parse(&source, &g, &err);
    must(rc == 0 ? g != NULL : g == NULL && err.text[0] != 0);
    if (!g) return;
    check_promises(g, len);
    struct vocab *vocab = NULL;
    if (vocab_from_gguf(g, &vocab, &err) == 0) vocab_free(vocab);
    gguf_free(g);
    if (len <= LOAD_BYTES_MAX) load_as_model(data, len);
}

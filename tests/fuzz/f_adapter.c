/* f_adapter.c - reads any bytes as a LoRA adapter's configuration, its safetensors or its GGUF file: the reader
 * refuses them with a sentence or gives finite matrices of the model's shapes, within the bound of memory.
 *
 * The first byte says which of the three the rest is. */
#include "base/core/own.h"
#include "engine/kernels/op.h"
#include "engine/model/adapter_file.h"
#include "engine/model/decoder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/engine/gguf_make.h"

#include <math.h>

#define LAYERS 4u
#define RANK_MAX 8u

const struct fuzz_cost fuzz_cost = { 400000, 400 };

/* The shapes of tests/vectors/arch/llama; adapters are compared with these alone. */
static void make_model(struct model *m, struct decoder *d, struct decoder_layer layers[LAYERS])
{
    const struct weight square = { .rows = 64, .cols = 64 }, kv = { .rows = 32, .cols = 64 };
    const struct weight wide = { .rows = 96, .cols = 64 }, down = { .rows = 64, .cols = 96 };
    for (uint32_t i = 0; i < LAYERS; i++)
        layers[i] = (struct decoder_layer){
            .q = square, .k = kv, .v = kv, .out = square, .gate = wide, .up = wide, .down = down
        };
    *d = (struct decoder){ .form = arch_llama.form, .layers = layers, .pairs = 8 };
    *m = (struct model){ .ops = &op_ref, .arch = &arch_llama, .arch_model = d };
    m->info.n_layers = LAYERS;
    m->info.n_embd = 64;
    m->info.n_ff = 96;
    m->info.n_heads = 4;
    m->info.n_kv_heads = 2;
    m->info.head_dim = 16;
}

static void check_parts(const struct adapter *a)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < LAYERS; i++) {
        for (int slot = 0; slot < ADAPTER_SLOT_COUNT; slot++) {
            const struct adapter_part *p = adapter_part(a, i, (enum adapter_slot)slot);
            if (p->a.rows == 0) continue;
            float row[96];
            must(p->a.rows == p->b.cols && p->a.rows <= a->rank && isfinite(p->scale));
            for (uint32_t r = 0; r < p->a.rows; r++) {
                weight_row(&p->a, r, row);
                for (uint32_t k = 0; k < p->a.cols; k++)
                    must(isfinite(row[k]));
            }
            parts++;
        }
    }
    must(parts > 0 && parts == a->matrices);
}

void fuzz_one(const uint8_t *data, size_t len)
{
    struct fuzz_choices c = { data, len };
    const uint32_t kind = fuzz_below(&c, 3);
    struct str file = fuzz_bytes(&c, c.len);
    struct gguf_source source = memory_source(&file);
    struct decoder_layer layers[LAYERS];
    struct decoder d;
    struct model m;
    struct adapter_config config = { .rank = 2, .scale = 1 };
    struct err err = { { 0 } };
    if (kind == 0) {
        int rc = adapter_config_read(file, &config, &err);
        must(rc == 0 ? config.rank >= 1 && config.rank <= ADAPTER_RANK_MAX && config.scale > 0
                     : err.text[0] != 0);
        return;
    }
    CLEANUP(adapter_file_fini) struct adapter_file list = { 0 };
    CLEANUP(adapter_freep) struct adapter *a = NULL;
    make_model(&m, &d, layers);
    int rc = kind == 1 ? adapter_file_peft(&source, &config, &list, &err)
                       : adapter_file_gguf(&source, "llama", false, &list, &err);
    if (rc == 0) rc = adapter_pack(&list, &m, RANK_MAX, &a, &err);
    must(rc == 0 ? a != NULL : a == NULL && err.text[0] != 0);
    if (!a) return;
    must(a->rank >= 1 && a->rank <= RANK_MAX && a->memory_bytes <= adapter_bytes_max(&m, a->rank));
    check_parts(a);
}

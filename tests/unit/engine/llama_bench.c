/* llama_bench.c - holds a random llama, its pages and a runner; see llama_bench.h. */
#include "tests/unit/engine/llama_bench.h"

#include "tests/unit/unit.h"

#include <unistd.h>

/* clang-format off */
const struct llama_shape bench_shapes[BENCH_SHAPES] = {
    { .vocab = 50, .layers = 2, .embd = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ff = 96,
      .context = 128, .type = WEIGHT_Q8_0, .tied = true, .norm_offset = 1 },
    { .vocab = 33, .layers = 1, .embd = 32, .heads = 1, .kv_heads = 1, .head_dim = 32, .ff = 32,
      .context = 128, .type = WEIGHT_F32, .norm_offset = 1 },
    { .vocab = 97, .layers = 3, .embd = 40, .heads = 6, .kv_heads = 2, .head_dim = 48, .ff = 41,
      .context = 128, .type = WEIGHT_F16, .rope_dims = 20, .norm_offset = 0.5f },
    { .vocab = 64, .layers = 2, .embd = 96, .heads = 8, .kv_heads = 1, .head_dim = 16, .ff = 64,
      .context = 128, .type = WEIGHT_BF16, .tied = true, .rope_scale = 4, .rope_factors = true,
      .norm_offset = 1 },
};
/* clang-format on */

static void load(struct bench *b, const char *path, const char *kernels, enum kv_type kv_type)
{
    struct model_load_options opt = { .kv_type = kv_type, .kernels = kernels };
    struct err err = { { 0 } };
    if (model_load(path, &opt, &b->model, &err) != 0) fail_msg("%s", err.text);
    bench_runner(b, 16, 1);
}

void bench_init(struct bench *b, const struct llama_shape *shape, const char *kernels,
                enum kv_type kv_type)
{
    *b = (struct bench){ 0 };
    make_init(&b->file);
    make_llama(&b->file, shape, BENCH_SEED, NULL);
    char path[64];
    b->fd = make_path(&b->file, path);
    load(b, path, kernels, kv_type);
}

void bench_load(struct bench *b, const char *path, const char *kernels, enum kv_type kv_type)
{
    *b = (struct bench){ 0 };
    load(b, path, kernels, kv_type);
}

void bench_fini(struct bench *b)
{
    model_runner_free(b->runner);
    kv_store_free(b->kv);
    model_free(b->model);
    make_fini(&b->file);
    if (b->fd > 0) close(b->fd);
}

void bench_runner(struct bench *b, uint32_t page_tokens, uint32_t threads)
{
    model_runner_free(b->runner);
    kv_store_free(b->kv);
    b->runner = NULL, b->kv = NULL;
    struct model_runner_options opt = { .tokens_max = 300, .seqs_max = 8, .threads = threads };
    struct err err = { { 0 } };
    assert_int_equal(kv_store_new(b->model, PAGES, page_tokens, &b->kv, &err), 0);
    assert_int_equal(model_runner_new(b->model, b->kv, &opt, &b->runner, &err), 0);
}

void bench_ids(uint64_t seed, uint32_t vocab, uint32_t *ids, uint32_t count)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (uint32_t)rng_below(&rng, vocab);
}

void bench_step(struct bench *b, const struct batch_item *items, uint32_t count)
{
    struct err err = { { 0 } };
    if (model_step(b->runner, items, count, &err) != 0) fail_msg("%s", err.text);
}

void bench_feed(struct bench *b, const uint32_t *ids, uint32_t count, uint32_t chunk,
                const uint32_t *page_table, float *logits)
{
    for (uint32_t at = 0; at < count; at += chunk) {
        uint32_t n = min_u32(chunk, count - at);
        struct batch_item item = { .ids = ids + at,
                                   .count = n,
                                   .position = at,
                                   .page_table = page_table,
                                   .pages = PAGES,
                                   .want_logits = at + n == count,
                                   .logits = logits };
        bench_step(b, &item, 1);
    }
}

const uint32_t *bench_table_up(void)
{
    static uint32_t table[PAGES];
    for (uint32_t i = 0; i < PAGES; i++)
        table[i] = i;
    return table;
}

const uint32_t *bench_table_scattered(void)
{
    static uint32_t table[PAGES];
    for (uint32_t i = 0; i < PAGES; i++)
        table[i] = (i * 37 + 5) % PAGES;
    return table;
}

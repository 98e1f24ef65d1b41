/* llama_bench.h - holds a random llama, its pages and a runner, and feeds sequences to them. */
#pragma once
#include "engine/kernels/op.h"
#include "engine/model/model.h"
#include "tests/unit/engine/gguf_make.h"

#define TOKENS 90 /* of a test sequence: more than a span of attention */
#define PAGES 64
#define BENCH_SEED 11
#define BENCH_SHAPES 4

extern const struct llama_shape bench_shapes[BENCH_SHAPES];

struct bench {
    struct gguf_make file;
    int fd;
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
};

void bench_init(struct bench *b, const struct llama_shape *shape, const char *kernels,
                enum kv_type kv_type); /* with pages of 16 tokens, on one thread */
/* The same over a model file at `path`, which must exist as long as the call lasts. */
void bench_load(struct bench *b, const char *path, const char *kernels, enum kv_type kv_type);
void bench_fini(struct bench *b);
void bench_runner(struct bench *b, uint32_t page_tokens, uint32_t threads); /* a new one */

void bench_ids(uint64_t seed, uint32_t vocab, uint32_t *ids, uint32_t count);

void bench_step(struct bench *b, const struct batch_item *items, uint32_t count);
/* Feeds ids[0, count) from position 0 in chunks; writes the last token's logits. */
void bench_feed(struct bench *b, const uint32_t *ids, uint32_t count, uint32_t chunk,
                const uint32_t *page_table, float *logits);

/* Return page tables of PAGES entries, ascending and scattered; they stay valid. */
const uint32_t *bench_table_up(void);
const uint32_t *bench_table_scattered(void);

/* t_llama.c - models: against an independent forward pass, against stored vectors, against
 * themselves in every split, and files that are no llama. */
#include "base/core/fault.h"
#include "engine/kernels/op.h"
#include "engine/model/model.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/llama_truth.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKENS 90 /* of the test sequences: more than a span of attention */
#define PAGES 64
#define BENCH_SEED 11

/* clang-format off */
static const struct llama_shape shapes[] = {
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

/* A model, its pages and a runner over them. */
struct bench {
    struct gguf_make file;
    int fd;
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
};

static void bench_fini(struct bench *b)
{
    model_runner_free(b->runner);
    kv_store_free(b->kv);
    model_free(b->model);
    make_fini(&b->file);
    if (b->fd > 0) close(b->fd);
}

static void bench_runner(struct bench *b, uint32_t page_tokens, uint32_t threads)
{
    model_runner_free(b->runner);
    kv_store_free(b->kv);
    b->runner = NULL, b->kv = NULL;
    struct model_runner_options opt = { .tokens_max = 300, .seqs_max = 8, .threads = threads };
    struct err err = { { 0 } };
    assert_int_equal(kv_store_new(b->model, PAGES, page_tokens, &b->kv, &err), 0);
    assert_int_equal(model_runner_new(b->model, b->kv, &opt, &b->runner, &err), 0);
}

static void bench_init(struct bench *b, const struct llama_shape *shape, const char *kernels,
                       enum kv_type kv_type)
{
    *b = (struct bench){ 0 };
    make_init(&b->file);
    make_llama(&b->file, shape, BENCH_SEED, NULL);
    char path[64];
    b->fd = make_path(&b->file, path);
    struct model_load_options opt = { .kv_type = kv_type, .kernels = kernels };
    struct err err = { { 0 } };
    if (model_load(path, &opt, &b->model, &err) != 0) fail_msg("%s", err.text);
    bench_runner(b, 16, 1);
}

static void ids_of(uint64_t seed, uint32_t vocab, uint32_t *ids, uint32_t count)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (uint32_t)rng_below(&rng, vocab);
}

static void step(struct bench *b, const struct batch_item *items, uint32_t count)
{
    struct err err = { { 0 } };
    if (model_step(b->runner, items, count, &err) != 0) fail_msg("%s", err.text);
}

/* Feeds ids[0, count) from position 0 in chunks; logits of the last. */
static void feed(struct bench *b, const uint32_t *ids, uint32_t count, uint32_t chunk,
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
        step(b, &item, 1);
    }
}

static const uint32_t *table_up(void)
{
    static uint32_t table[PAGES];
    for (uint32_t i = 0; i < PAGES; i++)
        table[i] = i;
    return table;
}

static const uint32_t *table_scattered(void)
{
    static uint32_t table[PAGES];
    for (uint32_t i = 0; i < PAGES; i++)
        table[i] = (i * 37 + 5) % PAGES;
    return table;
}

static double off_by(const float *got, const double *truth, uint32_t count)
{
    double off = 0, top = 0;
    for (uint32_t i = 0; i < count; i++) {
        off = fmax(off, fabs((double)got[i] - truth[i]));
        top = fmax(top, fabs(truth[i]));
    }
    return isfinite(off) ? off / top : HUGE_VAL;
}

/* ---- against truth */

static void check_truth(size_t index, const char *kernels, enum kv_type kv_type,
                        const uint32_t *ids, const double *truth)
{
    static const uint32_t lengths[] = { 1, 2, 17, 65, TOKENS };
    uint32_t vocab = shapes[index].vocab;
    CLEANUP(bench_fini) struct bench b;
    bench_init(&b, &shapes[index], kernels, kv_type);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        float logits[128];
        feed(&b, ids, lengths[i], 300, table_up(), logits);
        double off = off_by(logits, truth + (size_t)(lengths[i] - 1) * vocab, vocab);
        double bound = kv_type == KV_F32 ? 1e-5 : 2e-3; /* F16 rounds K and V */
        if (!(off < bound))
            fail_msg("shape %zu, %s, KV %s, %u tokens: off by %g", index, kernels,
                     kv_type_name(kv_type), lengths[i], off);
    }
}

static void logits_equal_an_independent_forward_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        CLEANUP(make_fini) struct gguf_make file;
        uint32_t ids[TOKENS];
        make_init(&file);
        make_llama(&file, &shapes[i], BENCH_SEED, NULL);
        ids_of(i, shapes[i].vocab, ids, TOKENS);
        double *truth = llama_truth(&file, &shapes[i], ids, TOKENS);
        for (const struct ops *const *row = ops_table; *row; row++)
            for (uint32_t type = 0; type < KV_TYPE_COUNT && (*row)->supported(); type++)
                check_truth(i, (*row)->name, type, ids, truth);
        free(truth);
    }
}

/* One "prompt" group of logits.txt; see tests/vectors/model/README.md. */
static void check_stored(struct bench *b, const char *ids_line, uint32_t position,
                         const float *stored, uint32_t vocab, double bound)
{
    uint32_t *ids = calloc(position + 1, sizeof *ids), count = 0;
    float *logits = calloc(vocab, sizeof *logits);
    char *at = (char *)(uintptr_t)ids_line;
    while (count <= position)
        ids[count++] = (uint32_t)strtoul(at, &at, 10);
    feed(b, ids, count, 300, table_scattered(), logits);
    double off = 0, top = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        off = fmax(off, fabs((double)logits[i] - (double)stored[i]));
        top = fmax(top, fabs((double)stored[i]));
    }
    free(ids);
    free(logits);
    if (!(off / top < bound)) fail_msg("position %u: off by %g", position, off / top);
}

/* Feeds each best token back in, as long as the reference was sure of its choices. Returns how
 * many were compared. */
static uint32_t check_greedy(struct bench *b, const char *ids_line, const char *greedy_line,
                             const char *gaps_line, double sure)
{
    uint32_t vocab = model_info(b->model)->vocab_size, compared = 0, count = 0;
    uint32_t *ids = calloc(model_info(b->model)->context_length, sizeof *ids);
    float *logits = calloc(vocab, sizeof *logits);
    char *at = (char *)(uintptr_t)ids_line, *end;
    for (uint32_t id = (uint32_t)strtoul(at, &end, 10); end != at;
         at = end, id = (uint32_t)strtoul(at, &end, 10))
        ids[count++] = id;
    feed(b, ids, count, 300, table_scattered(), logits);
    char *best_at = (char *)(uintptr_t)greedy_line, *gap_at = (char *)(uintptr_t)gaps_line;
    for (; compared < 24 && strtod(gap_at, &gap_at) > sure; compared++, count++) {
        uint32_t best = 0, expected = (uint32_t)strtoul(best_at, &best_at, 10);
        for (uint32_t i = 1; i < vocab; i++)
            if (logits[i] > logits[best]) best = i;
        if (best != expected) fail_msg("greedy token %u: %u, not %u", compared, best, expected);
        ids[count] = best;
        const struct batch_item item = { .ids = ids + count,
                                         .count = 1,
                                         .position = count,
                                         .page_table = table_scattered(),
                                         .pages = PAGES,
                                         .want_logits = true,
                                         .logits = logits };
        step(b, &item, 1);
    }
    free(ids);
    free(logits);
    return compared;
}

static void check_all_stored(struct bench *b, FILE *text, const struct str bin, double bound)
{
    CLEANUP(buf_fini) struct buf ids = { 0 }, greedy = { 0 };
    char *line = NULL;
    size_t cap = 0;
    uint32_t vocab = model_info(b->model)->vocab_size, position, offset, checked = 0, chosen = 0;
    while (getline(&line, &cap, text) > 0) {
        if (strncmp(line, "ids ", 4) == 0) {
            buf_clear(&ids);
            buf_text(&ids, line + 4);
        } else if (strncmp(line, "greedy ", 7) == 0) {
            buf_clear(&greedy);
            buf_text(&greedy, line + 7);
        } else if (strncmp(line, "gaps ", 5) == 0) {
            chosen += check_greedy(b, ids.data, greedy.data, line + 5, 100 * bound);
        } else if (sscanf(line, "logits %u %u", &position, &offset) == 2) {
            assert_true(offset + vocab * sizeof(float) <= bin.len);
            check_stored(b, ids.data, position, (const float *)(const void *)(bin.data + offset),
                         vocab, bound);
            checked++;
        }
    }
    free(line);
    assert_true(checked >= 15);
    assert_true(chosen >= 15);
}

static void read_all(const char *path, struct buf *out)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s ships with the tests", path);
    char piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0)
        buf_append(out, piece, n);
    fclose(file);
}

#define MODEL_PATH "models/muster-tiny-q8_0.gguf"

static void the_shipped_model_computes_its_vectors(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf bin = { 0 };
    read_all("tests/vectors/model/logits.bin", &bin);
    static const double bounds[KV_TYPE_COUNT] = { [KV_F16] = 1e-3, [KV_F32] = 1e-5 };
    for (uint32_t kv_type = 0; kv_type < KV_TYPE_COUNT; kv_type++) {
        FILE *text = fopen("tests/vectors/model/logits.txt", "r");
        if (!text) fail_msg("logits.txt ships with the tests");
        CLEANUP(bench_fini) struct bench b = { 0 };
        struct model_load_options opt = { .kv_type = kv_type };
        struct err err = { { 0 } };
        int rc = model_load(MODEL_PATH, &opt, &b.model, &err);
        if (rc != 0) fail_msg("%s", err.text);
        bench_runner(&b, 64, 1);
        check_all_stored(&b, text, buf_view(&bin), bounds[kv_type]);
        fclose(text);
        const struct model_info *info = model_info(b.model);
        assert_int_equal(vocab_count(info->vocab), info->vocab_size);
        assert_true(info->template_source.len > 0);
        assert_true(strlen(info->digest) == SHA256_HEX);
    }
}

/* ---- the same bits in every split */

static void check_bits(const float *got, const float *expected, uint32_t vocab, const char *kernels,
                       const char *what, uint32_t n)
{
    if (memcmp(got, expected, vocab * sizeof *got) != 0)
        fail_msg("%s: %s %u: logits differ", kernels, what, n);
}

static void chunks_pages_and_threads_do_not_matter(struct bench *b, const char *kernels,
                                                   const uint32_t *ids, const float *expected)
{
    uint32_t vocab = model_info(b->model)->vocab_size;
    static const uint32_t chunks[] = { 1, 3, 15, 16, 17, 64, 89 };
    float logits[128];
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        feed(b, ids, TOKENS, chunks[i], table_scattered(), logits);
        check_bits(logits, expected, vocab, kernels, "chunks of", chunks[i]);
    }
    static const uint32_t page_tokens[] = { 32, 48, 128 };
    for (size_t i = 0; i < COUNT_OF(page_tokens); i++) {
        bench_runner(b, page_tokens[i], 1);
        feed(b, ids, TOKENS, 40, table_scattered(), logits);
        check_bits(logits, expected, vocab, kernels, "pages of", page_tokens[i]);
    }
    for (uint32_t threads = 2; threads <= 4; threads++) {
        bench_runner(b, 16, threads);
        feed(b, ids, TOKENS, 31, table_up(), logits);
        check_bits(logits, expected, vocab, kernels, "threads", threads);
    }
    bench_runner(b, 16, 1);
}

/* Six sequences: one prefills, one decodes, one wants no logits, ...: ours is among them. */
static void company_does_not_matter(struct bench *b, const char *kernels, const uint32_t *ids,
                                    const float *expected)
{
    uint32_t vocab = model_info(b->model)->vocab_size, others[TOKENS], table[6][10];
    float logits[6][128];
    ids_of(99, vocab, others, TOKENS);
    struct batch_item items[6];
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t p = 0; p < 10; p++)
            table[i][p] = (i * 10 + p) % PAGES;
        items[i] = (struct batch_item){ .ids = others + i,
                                        .count = 1 + i * 7,
                                        .page_table = table[i],
                                        .pages = 10,
                                        .want_logits = i % 2 == 1,
                                        .logits = logits[i] };
    }
    for (uint32_t mine = 0; mine < 6; mine += 5) {
        struct batch_item batch[6];
        memcpy(batch, items, sizeof batch);
        for (uint32_t at = 0; at < TOKENS; at += 30) {
            batch[mine] = (struct batch_item){ .ids = ids + at,
                                               .count = 30,
                                               .position = at,
                                               .page_table = table[mine],
                                               .pages = 10,
                                               .want_logits = true,
                                               .logits = logits[mine] };
            step(b, batch, 6);
        }
        check_bits(logits[mine], expected, vocab, kernels, "in company as item", mine);
    }
    /* Decode of the last token, with the others decoding. */
    feed(b, ids, TOKENS - 1, 300, table[0], logits[0]);
    for (uint32_t i = 0; i < 6; i++)
        items[i].count = 1, items[i].position = i > 0 ? i * 3 : 0;
    items[0] = (struct batch_item){ .ids = ids + TOKENS - 1,
                                    .count = 1,
                                    .position = TOKENS - 1,
                                    .page_table = table[0],
                                    .pages = 10,
                                    .want_logits = true,
                                    .logits = logits[0] };
    step(b, items, 6);
    check_bits(logits[0], expected, vocab, kernels, "decoding in company as item", 0);
}

/* A second sequence goes on over the first one's pages, the last of them copied on write. */
static void a_cached_prefix_does_not_matter(struct bench *b, const char *kernels,
                                            const uint32_t *ids, const float *expected)
{
    uint32_t vocab = model_info(b->model)->vocab_size, table[10], changed[TOKENS];
    float logits[128];
    memcpy(changed, ids, sizeof changed);
    for (uint32_t i = 37; i < TOKENS; i++)
        changed[i] = (ids[i] + 1) % vocab;
    feed(b, changed, TOKENS, 300, table_up(), logits);
    for (uint32_t i = 0; i < 10; i++)
        table[i] = i < 2 ? i : 20 + i;
    kv_store_copy_page(b->kv, table[2], b->kv, 2); /* positions 32 .. 47, of which 37 are shared */
    struct batch_item item = { .ids = ids + 37,
                               .count = TOKENS - 37,
                               .position = 37,
                               .page_table = table,
                               .pages = 10,
                               .want_logits = true,
                               .logits = logits };
    step(b, &item, 1);
    check_bits(logits, expected, vocab, kernels, "after a prefix of", 37);
}

static void logits_are_a_function_of_the_ids_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        uint32_t ids[TOKENS];
        ids_of(i + 50, shapes[i].vocab, ids, TOKENS);
        for (const struct ops *const *row = ops_table; *row; row++) {
            if (!(*row)->supported()) continue;
            if (*row == &op_ref && i > 0) continue; /* slow, and nothing is blocked in it */
            CLEANUP(bench_fini) struct bench b;
            bench_init(&b, &shapes[i], (*row)->name, i % 2 == 0 ? KV_F16 : KV_F32);
            float expected[128];
            feed(&b, ids, TOKENS, 300, table_up(), expected);
            chunks_pages_and_threads_do_not_matter(&b, (*row)->name, ids, expected);
            company_does_not_matter(&b, (*row)->name, ids, expected);
            a_cached_prefix_does_not_matter(&b, (*row)->name, ids, expected);
        }
    }
}

/* ---- steps that are refused */

static void wrong_steps_are_refused(void **state)
{
    (void)state;
    CLEANUP(bench_fini) struct bench b;
    bench_init(&b, &shapes[0], NULL, KV_F16);
    uint32_t ids[TOKENS], bad_id = 50, bad_page[1] = { PAGES };
    float logits[128];
    ids_of(1, 50, ids, TOKENS);
    const struct batch_item good = { .ids = ids,
                                     .count = 1,
                                     .page_table = table_up(),
                                     .pages = 1,
                                     .want_logits = true,
                                     .logits = logits };
    struct batch_item i[9];
    for (uint32_t n = 0; n < 9; n++)
        i[n] = good;
    step(&b, &good, 1);
    step(&b, NULL, 0); /* nothing to do is no mistake */

    struct err err = { { 0 } };
    assert_int_equal(model_step(b.runner, i, 9, &err), -EINVAL);
    assert_non_null(strstr(err.text, "9 items"));
    i[0].count = 301;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0].count = 0;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0].count = 17; /* one page holds 16 */
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "its 1 pages hold 16"));
    i[0] = good, i[0].position = 128, i[0].pages = PAGES;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "context is 128"));
    i[0] = good, i[0].position = UINT32_MAX;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0] = good, i[0].ids = &bad_id;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    assert_string_equal(err.text, "item 0 of the batch has token 50, the vocabulary ends at 50");
    i[0] = good, i[0].page_table = bad_page;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
    i[0] = good, i[0].logits = NULL;
    assert_int_equal(model_step(b.runner, i, 1, &err), -EINVAL);
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    CLEANUP(bench_fini) struct bench b;
    bench_init(&b, &shapes[0], NULL, KV_F16);
    struct err err = { { 0 } };
    struct kv_store *kv = NULL;
    static const uint32_t sizes[] = { 0, 8, 24, 2048 };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        assert_int_equal(kv_store_new(b.model, 4, sizes[i], &kv, &err), -EINVAL);
    assert_int_equal(kv_store_new(b.model, 0, 16, &kv, &err), -EINVAL);
    fault_arm("kv_store.map", 1);
    assert_int_equal(kv_store_new(b.model, 4, 16, &kv, &err), -ENOMEM);
    fault_disarm();
    assert_null(kv);

    struct model_runner *runner = NULL;
    struct model_runner_options opt = { .tokens_max = 4, .seqs_max = 8 };
    assert_int_equal(model_runner_new(b.model, b.kv, &opt, &runner, &err), -EINVAL);
    opt = (struct model_runner_options){ .tokens_max = 8, .seqs_max = 8, .threads = 257 };
    assert_int_equal(model_runner_new(b.model, b.kv, &opt, &runner, &err), -EINVAL);
    opt = (struct model_runner_options){ 0 };
    assert_int_equal(model_runner_new(b.model, b.kv, &opt, &runner, &err), -EINVAL);
    assert_null(runner);
}

/* ---- files that are refused */

static void more_string(struct gguf_make *m, const char *key, const char *value)
{
    make_str(m, key, value);
}

static void unknown_key(struct gguf_make *m)
{
    make_u32(m, "llama.attention.sliding_window", 512);
}

static void experts(struct gguf_make *m)
{
    make_u32(m, "llama.expert_count", 8);
}

static void yarn(struct gguf_make *m)
{
    more_string(m, "llama.rope.scaling.type", "yarn");
}

static void linear_half(struct gguf_make *m)
{
    more_string(m, "llama.rope.scaling.type", "linear");
    make_f32(m, "llama.rope.scaling.factor", 0.5f);
}

static void rope_odd(struct gguf_make *m)
{
    make_u32(m, "llama.rope.dimension_count", 5);
}

static void more_tensor(struct gguf_make *m)
{
    struct rng rng;
    rng_seed(&rng, 1);
    make_random(m, "blk.0.attn_q.bias", WEIGHT_F32, 1, 64, 1, &rng);
}

static void factors_long(struct gguf_make *m)
{
    static const uint64_t dims[1] = { 9 };
    static const float factors[9];
    make_tensor(m, "rope_freqs.weight", 1, dims, 0, factors, sizeof factors);
}

static void factors_zero(struct gguf_make *m)
{
    static const uint64_t dims[1] = { 8 };
    static const float factors[8];
    make_tensor(m, "rope_freqs.weight", 1, dims, 0, factors, sizeof factors);
}

static void output_narrow(struct gguf_make *m)
{
    struct rng rng;
    rng_seed(&rng, 1);
    make_random(m, "output.weight", WEIGHT_F32, 49, 64, 1, &rng);
}

static void template_number(struct gguf_make *m)
{
    make_u32(m, "tokenizer.chat_template", 1);
}

static void tokens_differ(struct gguf_make *m)
{
    make_key(m, "tokenizer.ggml.tokens", GGUF_ARRAY);
    make_u32_raw(&m->values, GGUF_STRING);
    make_u64_raw(&m->values, 3);
    for (int i = 0; i < 3; i++)
        make_u64_raw(&m->values, 0);
}

/* A field of the shape, or a thing put on top of a good file. */
/* clang-format off */
static const struct {
    void (*damage)(struct gguf_make *m);
    struct llama_shape change; /* fields that are not 0 replace the good shape's */
    const char *skip;
    int rc;
    const char *says;
} no_llamas[] = {
    { .damage = unknown_key, .rc = -ENOTSUP, .says = "key 'llama.attention.sliding_window' is unknown" },
    { .damage = experts, .rc = -ENOTSUP, .says = "key 'llama.expert_count' asks for something" },
    { .damage = yarn, .rc = -ENOTSUP, .says = "'llama.rope.scaling.type' is 'yarn'; none and linear" },
    { .damage = linear_half, .rc = -EINVAL, .says = "'llama.rope.scaling.factor' is 0.5" },
    { .damage = rope_odd, .rc = -EINVAL, .says = "RoPE over 5 dimensions" },
    { .damage = more_tensor, .rc = -ENOTSUP, .says = "tensor 'blk.0.attn_q.bias' is not one" },
    { .damage = factors_long, .rc = -EINVAL, .says = "tensor 'rope_freqs.weight' is [9, 1] in 1 dimensions, expected [8, 1] in 1" },
    { .damage = factors_zero, .rc = -EINVAL, .says = "has a factor of 0" },
    { .damage = output_narrow, .rc = -EINVAL, .says = "tensor 'output.weight' is [64, 49]" },
    { .damage = template_number, .rc = -EINVAL, .says = "'tokenizer.chat_template' is a u32, it must be a string" },
    { .damage = tokens_differ, .rc = -EINVAL, .says = "'llama.vocab_size' is 50, but there are 3 tokens" },
    { .skip = "blk.1.ffn_down.weight", .rc = -EINVAL, .says = "tensor 'blk.1.ffn_down.weight' is missing" },
    { .change = { .kv_heads = 3 }, .rc = -EINVAL, .says = "4 heads cannot share 3 KV heads" },
    { .change = { .head_dim = 24 }, .rc = -ENOTSUP, .says = "heads of 24; multiples of 16" },
    { .change = { .context = 1u << 30 }, .rc = -EINVAL, .says = "'llama.context_length' is 1073741824" },
    { .change = { .rope_dims = 18 }, .rc = -EINVAL, .says = "'llama.rope.dimension_count' is 18, it must be 2 to 16" },
};
/* clang-format on */

static int load(const struct gguf_make *m, struct model **ret, struct err *err)
{
    char path[64];
    int fd = make_path(m, path);
    int rc = model_load(path, NULL, ret, err);
    close(fd);
    return rc;
}

static void what_is_no_llama_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(no_llamas); i++) {
        CLEANUP(make_fini) struct gguf_make m;
        struct model *model = NULL;
        struct err err = { { 0 } };
        struct llama_shape shape = shapes[0];
        const struct llama_shape *change = &no_llamas[i].change;
        if (change->kv_heads) shape.kv_heads = change->kv_heads;
        if (change->head_dim) shape.head_dim = change->head_dim;
        if (change->context) shape.context = change->context;
        if (change->rope_dims) shape.rope_dims = change->rope_dims;
        make_init(&m);
        make_llama(&m, &shape, 1, no_llamas[i].skip);
        if (no_llamas[i].damage) no_llamas[i].damage(&m);
        int rc = load(&m, &model, &err);
        if (rc != no_llamas[i].rc || !strstr(err.text, no_llamas[i].says) || model)
            fail_msg("row %zu: %d \"%s\", expected %d \"%s\"", i, rc, err.text, no_llamas[i].rc,
                     no_llamas[i].says);
        assert_memory_equal(err.text, "/proc/self/fd/", 14); /* the file is named */
    }
}

static void what_is_no_model_is_refused(void **state)
{
    (void)state;
    CLEANUP(make_fini) struct gguf_make m;
    struct model *model = NULL;
    struct err err = { { 0 } };
    make_init(&m);
    make_u32(&m, "x", 1);
    assert_int_equal(load(&m, &model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "key 'general.architecture' is missing"));
    make_str(&m, "general.architecture", "mamba");
    assert_int_equal(load(&m, &model, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "architecture 'mamba' is unknown; there are: llama"));
    assert_int_equal(model_load("/nonexistent", NULL, &model, &err), -ENOENT);
    struct model_load_options opt = { .kernels = "abacus" };
    assert_int_equal(model_load("/nonexistent", &opt, &model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "kernels 'abacus' are unknown; there are: "));
    assert_null(model);
}

/* Each allocation, mapping and read of a load fails once: an answer, and nothing leaks. */
static void a_load_that_fails_anywhere_is_an_answer(void **state)
{
    (void)state;
    CLEANUP(make_fini) struct gguf_make m;
    make_init(&m);
    make_llama(&m, &shapes[0], 1, NULL);
    char path[64];
    int fd = make_path(&m, path);
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        struct model *model = NULL;
        struct err err = { { 0 } };
        fault_arm(NULL, nth);
        int rc = model_load(path, NULL, &model, &err);
        reached = fault_hits() >= nth;
        fault_disarm();
        if (reached && (rc == 0 || model || err.text[0] == 0)) fail_msg("fault %u", (unsigned)nth);
        if (!reached) assert_int_equal(rc, 0);
        model_free(model);
    }
    assert_true(nth > 50);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_an_independent_forward_pass),
        cmocka_unit_test(the_shipped_model_computes_its_vectors),
        cmocka_unit_test(logits_are_a_function_of_the_ids_alone),
        cmocka_unit_test(wrong_steps_are_refused),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(what_is_no_llama_is_refused),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(a_load_that_fails_anywhere_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* t_llama.c - what models compute: against an independent forward pass, against stored vectors,
 * and against themselves in every split. */
#include "tests/unit/engine/llama_bench.h"
#include "tests/unit/engine/llama_truth.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
    uint32_t vocab = bench_shapes[index].vocab;
    CLEANUP(bench_fini) struct bench b;
    bench_init(&b, &bench_shapes[index], kernels, kv_type);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        float logits[128];
        bench_feed(&b, ids, lengths[i], 300, bench_table_up(), logits);
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
    for (size_t i = 0; i < COUNT_OF(bench_shapes); i++) {
        CLEANUP(make_fini) struct gguf_make file;
        uint32_t ids[TOKENS];
        make_init(&file);
        make_llama(&file, &bench_shapes[i], BENCH_SEED, NULL);
        bench_ids(i, bench_shapes[i].vocab, ids, TOKENS);
        double *truth = llama_truth(&file, &bench_shapes[i], ids, TOKENS);
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
    bench_feed(b, ids, count, 300, bench_table_scattered(), logits);
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
    bench_feed(b, ids, count, 300, bench_table_scattered(), logits);
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
                                         .page_table = bench_table_scattered(),
                                         .pages = PAGES,
                                         .want_logits = true,
                                         .logits = logits };
        bench_step(b, &item, 1);
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
        bench_feed(b, ids, TOKENS, chunks[i], bench_table_scattered(), logits);
        check_bits(logits, expected, vocab, kernels, "chunks of", chunks[i]);
    }
    static const uint32_t page_tokens[] = { 32, 48, 128 };
    for (size_t i = 0; i < COUNT_OF(page_tokens); i++) {
        bench_runner(b, page_tokens[i], 1);
        bench_feed(b, ids, TOKENS, 40, bench_table_scattered(), logits);
        check_bits(logits, expected, vocab, kernels, "pages of", page_tokens[i]);
    }
    for (uint32_t threads = 2; threads <= 4; threads++) {
        bench_runner(b, 16, threads);
        bench_feed(b, ids, TOKENS, 31, bench_table_up(), logits);
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
    bench_ids(99, vocab, others, TOKENS);
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
            bench_step(b, batch, 6);
        }
        check_bits(logits[mine], expected, vocab, kernels, "in company as item", mine);
    }
    /* Decode of the last token, with the others decoding. */
    bench_feed(b, ids, TOKENS - 1, 300, table[0], logits[0]);
    for (uint32_t i = 0; i < 6; i++)
        items[i].count = 1, items[i].position = i > 0 ? i * 3 : 0;
    items[0] = (struct batch_item){ .ids = ids + TOKENS - 1,
                                    .count = 1,
                                    .position = TOKENS - 1,
                                    .page_table = table[0],
                                    .pages = 10,
                                    .want_logits = true,
                                    .logits = logits[0] };
    bench_step(b, items, 6);
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
    bench_feed(b, changed, TOKENS, 300, bench_table_up(), logits);
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
    bench_step(b, &item, 1);
    check_bits(logits, expected, vocab, kernels, "after a prefix of", 37);
}

static void logits_are_a_function_of_the_ids_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bench_shapes); i++) {
        uint32_t ids[TOKENS];
        bench_ids(i + 50, bench_shapes[i].vocab, ids, TOKENS);
        for (const struct ops *const *row = ops_table; *row; row++) {
            if (!(*row)->supported()) continue;
            if (*row == &op_ref && i > 0) continue; /* slow, and nothing is blocked in it */
            CLEANUP(bench_fini) struct bench b;
            bench_init(&b, &bench_shapes[i], (*row)->name, i % 2 == 0 ? KV_F16 : KV_F32);
            float expected[128];
            bench_feed(&b, ids, TOKENS, 300, bench_table_up(), expected);
            chunks_pages_and_threads_do_not_matter(&b, (*row)->name, ids, expected);
            company_does_not_matter(&b, (*row)->name, ids, expected);
            a_cached_prefix_does_not_matter(&b, (*row)->name, ids, expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_an_independent_forward_pass),
        cmocka_unit_test(the_shipped_model_computes_its_vectors),
        cmocka_unit_test(logits_are_a_function_of_the_ids_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

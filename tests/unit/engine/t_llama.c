/* t_llama.c - tests model outputs: against an independent forward pass, stored vectors, and
 * themselves in every split. */
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/llama_bench.h"
#include "tests/unit/read_file.h"
#include "tests/unit/unit.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct truth {
    const struct llama_shape *s;
    struct gguf *g;
    struct str file;
    uint32_t count;
    double *x; /* [count][embd] */
};

static double *zeros(size_t count)
{
    double *p = calloc(count, sizeof *p);
    must(p);
    return p;
}

static float *tensor(const struct truth *t, const char *format, uint32_t layer)
{
    char name[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, format, layer);
#pragma GCC diagnostic pop
    const struct gguf_tensor *found = gguf_tensor_find(t->g, str_from(name));
    if (!found) return NULL;
    float *values = calloc(found->elements, sizeof *values);
    must(values);
    weight_types[found->type].to_f32(t->file.data + found->offset, (uint32_t)found->elements,
                                     values);
    return values;
}

/* Computes y[rows] = W x; each row of W is `cols` long. */
static void multiply(const float *w, const double *x, uint32_t rows, uint32_t cols, double *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t k = 0; k < cols; k++)
            y[r] += (double)w[(size_t)r * cols + k] * x[k];
    }
}

static void norm(const double *x, const float *w, uint32_t n, double *y)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] / sqrt(squares / n + (double)1e-5f) * (double)w[i];
}

static void rotate(const struct truth *t, double *x, uint32_t heads, uint32_t position)
{
    uint32_t dims = t->s->rope_dims ? t->s->rope_dims : t->s->head_dim;
    float *factors = tensor(t, "rope_freqs.weight", 0);
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < dims / 2; i++) {
            double *pair = x + (size_t)h * t->s->head_dim + 2 * (size_t)i;
            double angle = position * pow(500, -2.0 * i / dims);
            if (factors) angle /= (double)factors[i];
            if (t->s->rope_scale > 0) angle /= (double)t->s->rope_scale;
            double complex z = CMPLX(pair[0], pair[1]) * cexp(CMPLX(0, angle));
            pair[0] = creal(z), pair[1] = cimag(z);
        }
    }
    free(factors);
}

/* Computes one head of one query over keys and values [position + 1][kv width]. */
static void attend_head(const struct truth *t, const double *q, const double *k, const double *v,
                        uint32_t position, double *out)
{
    uint32_t dim = t->s->head_dim, width = t->s->kv_heads * dim;
    double *weight = zeros(position + 1), sum = 0;
    for (uint32_t p = 0; p <= position; p++) {
        double score = 0;
        for (uint32_t d = 0; d < dim; d++)
            score += q[d] * k[(size_t)p * width + d];
        weight[p] = exp(score / sqrt(dim));
        sum += weight[p];
    }
    for (uint32_t d = 0; d < dim; d++) {
        out[d] = 0;
        for (uint32_t p = 0; p <= position; p++)
            out[d] += weight[p] / sum * v[(size_t)p * width + d];
    }
    free(weight);
}

static void attention(struct truth *t, uint32_t layer)
{
    const struct llama_shape *s = t->s;
    uint32_t q_width = s->heads * s->head_dim, kv_width = s->kv_heads * s->head_dim;
    float *wq = tensor(t, "blk.%u.attn_q.weight", layer);
    float *wk = tensor(t, "blk.%u.attn_k.weight", layer);
    float *wv = tensor(t, "blk.%u.attn_v.weight", layer);
    float *wo = tensor(t, "blk.%u.attn_output.weight", layer);
    float *wn = tensor(t, "blk.%u.attn_norm.weight", layer);
    double *n = zeros(s->embd), *q = zeros(q_width), *out = zeros(q_width), *y = zeros(s->embd);
    double *k = zeros(t->count * kv_width), *v = zeros(t->count * kv_width);
    for (uint32_t p = 0; p < t->count; p++) {
        double *x = t->x + (size_t)p * s->embd;
        norm(x, wn, s->embd, n);
        multiply(wq, n, q_width, s->embd, q);
        multiply(wk, n, kv_width, s->embd, k + (size_t)p * kv_width);
        multiply(wv, n, kv_width, s->embd, v + (size_t)p * kv_width);
        rotate(t, q, s->heads, p);
        rotate(t, k + (size_t)p * kv_width, s->kv_heads, p);
        for (uint32_t h = 0; h < s->heads; h++) {
            size_t head = (size_t)(h / (s->heads / s->kv_heads)) * s->head_dim;
            attend_head(t, q + (size_t)h * s->head_dim, k + head, v + head, p,
                        out + (size_t)h * s->head_dim);
        }
        multiply(wo, out, s->embd, q_width, y);
        for (uint32_t i = 0; i < s->embd; i++)
            x[i] += y[i];
    }
    free(wq), free(wk), free(wv), free(wo), free(wn);
    free(n), free(q), free(out), free(y), free(k), free(v);
}

static void feed_forward(struct truth *t, uint32_t layer)
{
    const struct llama_shape *s = t->s;
    float *wg = tensor(t, "blk.%u.ffn_gate.weight", layer);
    float *wu = tensor(t, "blk.%u.ffn_up.weight", layer);
    float *wd = tensor(t, "blk.%u.ffn_down.weight", layer);
    float *wn = tensor(t, "blk.%u.ffn_norm.weight", layer);
    double *n = zeros(s->embd), *gate = zeros(s->ff), *up = zeros(s->ff), *y = zeros(s->embd);
    for (uint32_t p = 0; p < t->count; p++) {
        double *x = t->x + (size_t)p * s->embd;
        norm(x, wn, s->embd, n);
        multiply(wg, n, s->ff, s->embd, gate);
        multiply(wu, n, s->ff, s->embd, up);
        for (uint32_t i = 0; i < s->ff; i++)
            gate[i] *= up[i] / (1 + exp(-gate[i]));
        multiply(wd, gate, s->embd, s->ff, y);
        for (uint32_t i = 0; i < s->embd; i++)
            x[i] += y[i];
    }
    free(wg), free(wu), free(wd), free(wn);
    free(n), free(gate), free(up), free(y);
}

/* Returns the logits [count][vocab] after each id; the caller frees. */
static double *llama_truth(const struct gguf_make *file, const struct llama_shape *shape,
                           const uint32_t *ids, uint32_t count)
{
    struct buf bytes = { 0 };
    make_finish(file, &bytes);
    struct truth t = { .s = shape, .file = buf_view(&bytes), .count = count };
    struct gguf_source source = memory_source(&t.file);
    must(gguf_parse(&source, &t.g, NULL) == 0);
    float *embedding = tensor(&t, "token_embd.weight", 0);
    t.x = zeros(count * (size_t)shape->embd);
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < shape->embd; i++)
            t.x[(size_t)p * shape->embd + i] = (double)embedding[(size_t)ids[p] * shape->embd + i];
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        attention(&t, layer);
        feed_forward(&t, layer);
    }
    float *wn = tensor(&t, "output_norm.weight", 0), *wo = tensor(&t, "output.weight", 0);
    double *logits = zeros(count * (size_t)shape->vocab), *n = zeros(shape->embd);
    for (uint32_t p = 0; p < count; p++) {
        norm(t.x + (size_t)p * shape->embd, wn, shape->embd, n);
        multiply(wo ? wo : embedding, n, shape->vocab, shape->embd,
                 logits + (size_t)p * shape->vocab);
    }
    free(embedding), free(wn), free(wo), free(n), free(t.x);
    gguf_free(t.g);
    buf_fini(&bytes);
    return logits;
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

/* Parts of the largest logit. Products with quantised weights round activations to int8, which costs up to 0.036 with the
 * few weights of these models; some round to BF16 where weights are BF16, which costs up to 0.0066. */
static double rounding_off_max(const struct ops *o, enum weight_type_id type)
{
    if (o->bf16 && type == WEIGHT_BF16) return 0.012;
    return ops_round(o, type) ? 0.04 : 0;
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
        static const double bounds[KV_TYPE_COUNT] = {
            [KV_F16] = 2e-3, [KV_F32] = 1e-5, [KV_Q8] = 0.02, [KV_Q4] = 0.2
        };
        double bound = bounds[kv_type]; /* all but F32 round K and V */
        enum weight_type_id type = bench_shapes[index].type;
        bound = fmax(bound, rounding_off_max(ops_find(str_from(kernels)), type));
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

/* ---- every tensor type, embedding and output rows too */

#define TYPE_TOKENS 28

/* Compares the logits after each token, and the best next token where the truth's lead is beyond
 * doubt. Returns the number of such tokens. */
static uint32_t check_type(const struct llama_shape *shape, const char *path, const char *kernels,
                           const uint32_t *ids, const double *truths, double bound)
{
    CLEANUP(bench_fini) struct bench b;
    uint32_t sure = 0;
    bench_load(&b, path, kernels, KV_F32);
    for (uint32_t count = 1; count <= TYPE_TOKENS; count++) {
        const double *truth = truths + (size_t)(count - 1) * shape->vocab;
        double top = 0;
        float logits[128];
        uint32_t best = 0, ours = 0, second = 1;
        const struct batch_item item = { .ids = ids + count - 1,
                                         .count = 1,
                                         .position = count - 1,
                                         .page_table = bench_table_up(),
                                         .pages = PAGES,
                                         .want_logits = true,
                                         .logits = logits };
        bench_step(&b, &item, 1);
        double off = off_by(logits, truth, shape->vocab);
        if (!(off < bound))
            fail_msg("%s, %s, token %u: off by %g", weight_types[shape->type].name, kernels, count,
                     off);
        for (uint32_t i = 0; i < shape->vocab; i++) {
            top = fmax(top, fabs(truth[i]));
            if (truth[i] > truth[best])
                second = best, best = i;
            else if (i != best && truth[i] > truth[second])
                second = i;
            if (logits[i] > logits[ours]) ours = i;
        }
        bool doubtful = truth[best] - truth[second] <= 2 * bound * top;
        if (!doubtful && ours != best)
            fail_msg("%s, %s: token %u instead of %u", weight_types[shape->type].name, kernels,
                     ours, best);
        sure += !doubtful;
    }
    return sure;
}

static void every_tensor_type_agrees_with_its_dequantised_weights(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        for (uint32_t tied = 0; tied < 2; tied++) {
            const struct llama_shape shape = { .vocab = 50,
                                               .layers = 2,
                                               .embd = 256,
                                               .heads = 4,
                                               .kv_heads = 2,
                                               .head_dim = 64,
                                               .ff = 512,
                                               .context = 128,
                                               .type = type,
                                               .tied = tied == 1,
                                               .norm_offset = 1 };
            CLEANUP(make_fini) struct gguf_make file;
            make_init(&file);
            make_llama(&file, &shape, BENCH_SEED, NULL);
            char path[64];
            int fd = make_path(&file, path);
            uint32_t ids[TYPE_TOKENS];
            bench_ids(type, shape.vocab, ids, TYPE_TOKENS);
            double *truths = llama_truth(&file, &shape, ids, TYPE_TOKENS);
            for (const struct ops *const *row = ops_table; *row; row++) {
                if (!(*row)->supported()) continue;
                double bound = fmax(1e-5, rounding_off_max(*row, type));
                uint32_t sure = check_type(&shape, path, (*row)->name, ids, truths, bound);
                if (sure < TYPE_TOKENS / 4)
                    fail_msg("%s: only %u tokens are beyond doubt", weight_types[type].name, sure);
            }
            close(fd);
            free(truths);
        }
    }
}

/* Checks one "prompt" group of logits.txt; see tests/vectors/model/README.md. */
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

/* Feeds each best token back in while the reference's gap exceeds `sure`. Returns the number of
 * tokens compared. */
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

/* `sure` is the gap of logits beyond which a greedy token must be the stored one. */
static void check_all_stored(struct bench *b, FILE *text, const struct str bin, double bound,
                             double sure)
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
            chosen += check_greedy(b, ids.data, greedy.data, line + 5, sure);
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

#define MODEL_PATH "models/muster-tiny-q8_0.gguf"

static void the_shipped_model_computes_its_vectors(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf bin = { 0 };
    read_file("tests/vectors/model/logits.bin", &bin);
    /* The vectors' activations are not rounded; those of fast kernels for Q8_0 are. The test above has
     * the reference at tight bounds. */
    bool rounds = ops_round(ops_best(), WEIGHT_Q8_0);
    static const double bounds[KV_TYPE_COUNT] = {
        [KV_F16] = 1e-3, [KV_F32] = 1e-5, [KV_Q8] = 0.02, [KV_Q4] = 0.1
    };
    for (uint32_t kv_type = 0; kv_type < KV_TYPE_COUNT; kv_type++) {
        double bound = rounds ? fmax(0.02, bounds[kv_type]) : bounds[kv_type];
        FILE *text = fopen("tests/vectors/model/logits.txt", "r");
        if (!text) fail_msg("logits.txt ships with the tests");
        CLEANUP(bench_fini) struct bench b = { 0 };
        struct model_load_options opt = { .kv_type = kv_type };
        struct err err = { { 0 } };
        int rc = model_load(MODEL_PATH, &opt, &b.model, &err);
        if (rc != 0) fail_msg("%s", err.text);
        bench_runner(&b, 64, 1);
        check_all_stored(&b, text, buf_view(&bin), bound, rounds ? 0.5 : 100 * bound);
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

/* Six sequences prefill, decode or want no logits; ours is one of them. */
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
    /* The last token decodes while the others decode. */
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

/* Each row of a step with guesses has the logits of a step that ends there, and wrong guesses leave
 * nothing behind: the same places are written again. */
static void guesses_do_not_matter(struct bench *b, const char *kernels, const uint32_t *ids)
{
    enum { DRAFTED = 30, KNOWN = TOKENS - DRAFTED };
    uint32_t vocab = model_info(b->model)->vocab_size, guessed[TOKENS];
    float rows[(1 + DRAFTED) * 128], expected[128];
    memcpy(guessed, ids, sizeof guessed);
    for (uint32_t i = KNOWN; i < TOKENS; i++)
        guessed[i] = (ids[i] + 1) % vocab;
    bench_feed(b, ids, KNOWN - 1, 300, bench_table_scattered(), expected);
    for (uint32_t wrong = 2; wrong-- > 0;) {
        struct batch_item item = { .ids = (wrong ? guessed : ids) + KNOWN - 1,
                                   .count = 1 + DRAFTED,
                                   .position = KNOWN - 1,
                                   .page_table = bench_table_scattered(),
                                   .pages = PAGES,
                                   .want_logits = true,
                                   .drafted = DRAFTED,
                                   .logits = rows };
        bench_step(b, &item, 1);
    }
    for (uint32_t i = 0; i <= DRAFTED; i++) {
        bench_feed(b, ids, KNOWN + i, 300, bench_table_up(), expected);
        check_bits(rows + (size_t)i * vocab, expected, vocab, kernels, "as a guess, row", i);
    }
}

/* A second sequence continues on the first one's pages, in a page of its own. */
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

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0) return false;
    return true;
}

/* The last token of a prompt that lies in shared pages is computed for its logits, and nothing is written there. */
static void a_stored_token_is_not_written(struct bench *b, const char *kernels, const uint32_t *ids)
{
    enum { WHOLE = 64 };
    uint32_t vocab = model_info(b->model)->vocab_size;
    const uint32_t *table = bench_table_up();
    float expected[128], logits[128];
    bench_feed(b, ids, WHOLE, 300, table, expected);
    struct batch_item item = { .ids = ids + WHOLE - 1,
                               .count = 1,
                               .position = WHOLE - 1,
                               .stored = 1,
                               .page_table = table,
                               .pages = PAGES,
                               .want_logits = true,
                               .logits = logits };
    bench_step(b, &item, 1);
    check_bits(logits, expected, vocab, kernels, "stored, of", WHOLE);
    kv_store_drop(b->kv);
    bench_step(b, &item, 1);
    const struct kv_layout *layout = kv_store_layout(b->kv);
    const char *page = kv_store_page(b->kv, table[(WHOLE - 1) / layout->page_tokens]);
    assert_true(is_zero(page, kv_page_bytes(layout)));
    item.stored = 0;
    bench_step(b, &item, 1);
    assert_false(is_zero(page, kv_page_bytes(layout)));
}

static void logits_are_a_function_of_the_ids_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bench_shapes); i++) {
        uint32_t ids[TOKENS];
        bench_ids(i + 50, bench_shapes[i].vocab, ids, TOKENS);
        for (const struct ops *const *row = ops_table; *row; row++) {
            if (!(*row)->supported()) continue;
            if (*row == &op_ref && i > 0) continue; /* op_ref is slow and has no blocking to vary */
            CLEANUP(bench_fini) struct bench b;
            bench_init(&b, &bench_shapes[i], (*row)->name, (enum kv_type)(i % KV_TYPE_COUNT));
            float expected[128];
            bench_feed(&b, ids, TOKENS, 300, bench_table_up(), expected);
            chunks_pages_and_threads_do_not_matter(&b, (*row)->name, ids, expected);
            company_does_not_matter(&b, (*row)->name, ids, expected);
            a_cached_prefix_does_not_matter(&b, (*row)->name, ids, expected);
            guesses_do_not_matter(&b, (*row)->name, ids);
            a_stored_token_is_not_written(&b, (*row)->name, ids);
        }
    }
}

static int llama_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_an_independent_forward_pass),
        cmocka_unit_test(every_tensor_type_agrees_with_its_dequantised_weights),
        cmocka_unit_test(the_shipped_model_computes_its_vectors),
        cmocka_unit_test(logits_are_a_function_of_the_ids_alone),
    };
    return cmocka_run_group_tests_name("llama", tests, NULL, NULL);
}

int main(void)
{
    return llama_tests();
}

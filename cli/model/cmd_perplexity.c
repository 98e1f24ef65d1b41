/* cmd_perplexity.c - `muster perplexity`: how well a model predicts a text, as exp of the mean negative log-probability
 * of its tokens.
 *
 * The ids are cut into windows of --context tokens that do not overlap; what is left at the end is not used. A begin
 * token, where the model has one, replaces the first id of each window. The tokens of a window's second half are
 * predicted, each from all before it in the window: none has less than half a window to go by. llama.cpp's
 * perplexity tool cuts and counts in the same way, so that figures can be laid side by side.
 *
 * Windows go in step: one step of the model predicts the token at the same place of up to --batch windows, which
 * reads the weights once for all. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdlib.h>

#define BATCH_MAX 64
#define PAGE_TOKENS 64
#define PROMPT_STEP 512

struct perplexity_options {
    struct str model, text, kernels;
    int64_t context, batch, threads, windows;
    int kv_cache_dtype, output;
};

#define AT(member) .offset = offsetof(struct perplexity_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "context", .letter = 'c', .type = CONFIG_INT, .default_text = "512", .min = 16, .max = 65536,
      .unit = "tokens", AT(context), .about = "Length of a window; half of it is predicted." },
    { .name = "windows", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e6, AT(windows),
      .about = "Use only so many windows from the start; 0: all." },
    { .name = "batch", .type = CONFIG_INT, .default_text = "16", .min = 1, .max = BATCH_MAX, AT(batch),
      .about = "Windows that are computed together." },
    { .name = "threads", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = MODEL_THREADS_MAX,
      AT(threads), .about = "Threads that compute." },
    { .name = "kv_cache_dtype", .type = CONFIG_ENUM, .default_text = "auto", .names = kv_dtype_names,
      AT(kv_cache_dtype), .about = "How K and V are stored: auto is f16." },
    { .name = "kernels", .type = CONFIG_TEXT, AT(kernels),
      .about = "Kernels, as ref; the best that this processor runs by default." },
    REMOTE_OUTPUT_ROW(struct perplexity_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "MODEL", .required = true, AT(model),
      .about = "GGUF file, or folder in Hugging Face's format, with its tokenizer." },
    { .name = "TEXT", .required = true, AT(text), .about = "File of plain text; - for standard input." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct perplexity_options, rows);
static const struct opt_command usage = {
    .name = "muster perplexity",
    .about = "Measure how well a model predicts a text: lower is better.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "Figures of two models compare only with the same tokenizer, text and --context.",
};

struct measurement {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
    struct model_windows windows;
    uint32_t *pages; /* `window_pages` for each window of a batch */
    float *logits;   /* of each window of a batch */
    uint32_t batch, window_pages, threads;
    uint64_t tokens;     /* predicted so far */
    double sum, squares; /* of their negative log-probabilities, in nats */
};

static void measurement_fini(struct measurement *m)
{
    model_runner_free(m->runner);
    kv_store_free(m->kv);
    model_free(m->model);
    model_windows_fini(&m->windows);
    free(m->pages);
    free(m->logits);
}

static int reserve(struct measurement *m, struct err *err)
{
    m->batch = min_u32(m->batch, m->windows.count);
    m->window_pages = ceil_div_u32(m->windows.context, PAGE_TOKENS);
    uint32_t pages = m->batch * m->window_pages;
    m->pages = calloc(pages, sizeof *m->pages);
    m->logits = calloc((size_t)m->batch * model_info(m->model)->vocab_size, sizeof *m->logits);
    if (!m->pages || !m->logits) return err_set(err, -ENOMEM, "no memory to measure");
    for (uint32_t i = 0; i < pages; i++)
        m->pages[i] = i;
    int rc = kv_store_new(m->model, pages, PAGE_TOKENS, &m->kv, err);
    const struct model_runner_options run = { .tokens_max = max_u32(PROMPT_STEP, m->batch),
                                              .seqs_max = m->batch,
                                              .threads = m->threads };
    return rc < 0 ? rc : model_runner_new(m->model, m->kv, &run, &m->runner, err);
}

static int start(const struct perplexity_options *o, struct measurement *m, struct err *err)
{
    const struct model_load_options load = { .kv_type = kv_dtype_type(o->kv_cache_dtype),
                                             .kernels = o->kernels.len ? o->kernels.data : NULL };
    m->batch = (uint32_t)o->batch;
    m->threads = (uint32_t)o->threads;
    int rc = model_load(o->model.data, &load, &m->model, err);
    if (rc == 0)
        rc = model_windows_read(m->model, o->text, (uint32_t)o->context, (uint32_t)o->windows,
                                &m->windows, err);
    return rc < 0 ? rc : reserve(m, err);
}

/* ---- the windows ---- */

/* Returns the negative log-probability of a token, in nats. */
static double surprise(const float *logits, uint32_t count, uint32_t token)
{
    float top = logits[0];
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > top) top = logits[i];
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - (double)top);
    return log(sum) - ((double)logits[token] - (double)top);
}

static struct batch_item item_of(const struct measurement *m, uint32_t first, uint32_t i,
                                 uint32_t position, uint32_t count, bool logits)
{
    return (struct batch_item){
        .ids = m->windows.ids.data + (size_t)(first + i) * m->windows.context + position,
        .count = count,
        .position = position,
        .page_table = m->pages + (size_t)i * m->window_pages,
        .pages = m->window_pages,
        .want_logits = logits,
        .logits = m->logits + (size_t)i * model_info(m->model)->vocab_size,
    };
}

/* Computes what lies before the first prediction of window `first` + i. */
static int read_half(const struct measurement *m, uint32_t first, uint32_t i, struct err *err)
{
    uint32_t half = m->windows.context / 2;
    for (uint32_t at = 0; at < half; at += PROMPT_STEP) {
        struct batch_item item = item_of(m, first, i, at, min_u32(PROMPT_STEP, half - at), false);
        int rc = model_step(m->runner, &item, 1, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Predicts the second halves of `count` windows from `first` on. Each window is added up by itself, so that the sum
 * does not depend on how many go together. */
static int predict(struct measurement *m, uint32_t first, uint32_t count, struct err *err)
{
    struct batch_item items[BATCH_MAX];
    double sum[BATCH_MAX] = { 0 }, squares[BATCH_MAX] = { 0 };
    const uint32_t vocab = model_info(m->model)->vocab_size;
    for (uint32_t at = m->windows.context / 2; at + 1 < m->windows.context; at++) {
        for (uint32_t i = 0; i < count; i++)
            items[i] = item_of(m, first, i, at, 1, true);
        int rc = model_step(m->runner, items, count, err);
        if (rc < 0) return rc;
        for (uint32_t i = 0; i < count; i++) {
            double nats = surprise(items[i].logits, vocab, items[i].ids[1]);
            sum[i] += nats;
            squares[i] += nats * nats;
            m->tokens++;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        m->sum += sum[i], m->squares += squares[i];
    return 0;
}

static int measure(struct measurement *m, struct err *err)
{
    struct model_progress bar = { .unit = "windows" };
    int rc = 0;
    for (uint32_t first = 0; first < m->windows.count && rc == 0; first += m->batch) {
        uint32_t count = min_u32(m->batch, m->windows.count - first);
        for (uint32_t i = 0; i < count && rc == 0; i++)
            rc = read_half(m, first, i, err);
        if (rc == 0) rc = predict(m, first, count, err);
        model_progress_show(&bar, first + count, m->windows.count);
    }
    model_progress_end(&bar);
    return rc;
}

/* ---- the figure ---- */

static int perplexity(const void *options, struct err *err)
{
    const struct perplexity_options *o = options;
    CLEANUP(measurement_fini) struct measurement m = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = start(o, &m, err);
    if (rc == 0) rc = measure(&m, err);
    if (rc < 0) return rc;
    double count = (double)m.tokens, mean = m.sum / count;
    double variance = m.squares / count - mean * mean;
    /* To first order the error of exp(mean) is exp(mean) times the mean's. */
    double value = exp(mean), error = value * sqrt(fmax(variance, 0) / fmax(count - 1, 1));
    if (o->output == REMOTE_JSON) {
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object(&w);
        json_kv_f64(&w, "perplexity", value);
        json_kv_f64(&w, "error", error);
        json_kv_f64(&w, "nats_per_token", mean);
        json_kv_u64(&w, "tokens", m.tokens);
        json_kv_u64(&w, "windows", m.windows.count);
        json_kv_u64(&w, "context", m.windows.context);
        json_kv_str(&w, "numerics", str_from(model_info(m.model)->numerics));
        json_object_end(&w);
        buf_byte(&out, '\n');
    } else {
        buf_printf(&out, "perplexity %.4f +- %.4f, %llu tokens of %u windows of %u\n", value, error,
                   (unsigned long long)m.tokens, m.windows.count, m.windows.context);
    }
    return command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct perplexity_options options;
    return command_run(&usage, argc, argv, &options, perplexity);
}

const struct command command_perplexity = {
    .name = "perplexity",
    .group = "Measure",
    .about = "how well a model predicts a text",
    .run = run,
};

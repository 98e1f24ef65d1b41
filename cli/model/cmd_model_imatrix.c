/* cmd_model_imatrix.c - `muster model imatrix`: runs a model over a text and writes its importance matrix, by which
 * `muster model quantize --imatrix` weights errors.
 *
 * The text is cut into windows as `muster perplexity` cuts it, and each is computed whole, STEP_TOKENS at a time.
 * Logits of all tokens are asked for, so that the last layer and the output matrix see every token too; they are
 * thrown away. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"
#include "engine/model/imatrix.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_TOKENS 64
#define STEP_TOKENS 128 /* their logits bound the memory */

struct imatrix_options {
    struct str model, text, to, kernels;
    int64_t context, threads, windows;
    bool force;
    int output;
};

#define AT(member) .offset = offsetof(struct imatrix_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "context", .letter = 'c', .type = CONFIG_INT, .default_text = "512", .min = 16, .max = 65536,
      .unit = "tokens", AT(context), .about = "Length of a window." },
    { .name = "windows", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e6, AT(windows),
      .about = "Use only so many windows from the start; 0: all." },
    { .name = "threads", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = MODEL_THREADS_MAX,
      AT(threads), .about = "Threads that compute; the result does not depend on it." },
    { .name = "kernels", .type = CONFIG_TEXT, AT(kernels),
      .about = "Kernels, as ref; the best that this processor runs by default." },
    { .name = "force", .type = CONFIG_BOOL, .default_text = "false", AT(force),
      .about = "Replace TO if it exists." },
    REMOTE_OUTPUT_ROW(struct imatrix_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "MODEL", .required = true, AT(model),
      .about = "GGUF file, or folder in Hugging Face's format, with its tokenizer." },
    { .name = "TEXT", .required = true, AT(text), .about = "File of plain text; - for standard input." },
    { .name = "TO", .required = true, AT(to), .about = "GGUF file to write." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct imatrix_options, rows);
static const struct opt_command usage = {
    .name = "muster model imatrix",
    .about = "Measure which columns of a model's weights matter, for `muster model quantize`.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "Of each matrix, and of each expert's, the squares of what its columns are multiplied with "
        "are\nadded up over the text. The file is an importance matrix as llama.cpp writes it, and "
        "theirs are\nread by `muster model quantize`. It is gathered from the model in F32, F16, "
        "BF16 or Q8_0 at best.",
};

struct gathering {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
    struct importance *importance;
    struct model_windows windows;
    uint32_t *pages;
    float *logits;
    uint32_t page_count;
};

static void gathering_fini(struct gathering *g)
{
    model_runner_free(g->runner);
    kv_store_free(g->kv);
    importance_free(g->importance);
    model_free(g->model);
    model_windows_fini(&g->windows);
    free(g->pages);
    free(g->logits);
}

/* Refuses a file that could not be written when all is computed. */
static int check_output(const struct imatrix_options *o, struct err *err)
{
    struct str folder = o->to;
    int rc = model_output_free(o->to.data, o->force, err);
    while (folder.len > 0 && folder.data[folder.len - 1] != '/')
        folder.len--;
    CLEANUP(buf_fini) struct buf path = { 0 };
    buf_str(&path, folder.len > 0 ? folder : STR("."));
    buf_byte(&path, 0);
    if (rc < 0 || access(path.data, W_OK) == 0) return rc;
    return err_set(err, -errno, "%s: cannot be written: %s", o->to.data, strerror(errno));
}

static int start(const struct imatrix_options *o, struct gathering *g, struct err *err)
{
    const struct model_load_options load = { .kernels = o->kernels.len ? o->kernels.data : NULL };
    struct model_runner_options run = { .tokens_max = STEP_TOKENS,
                                        .seqs_max = 1,
                                        .threads = (uint32_t)o->threads };
    int rc = check_output(o, err);
    if (rc == 0) rc = model_load(o->model.data, &load, &g->model, err);
    if (rc == 0) rc = importance_new(g->model, &g->importance, err);
    if (rc == 0)
        rc = model_windows_read(g->model, o->text, (uint32_t)o->context, (uint32_t)o->windows,
                                &g->windows, err);
    if (rc < 0) return rc;
    g->page_count = ceil_div_u32(g->windows.context, PAGE_TOKENS);
    g->pages = calloc(g->page_count, sizeof *g->pages);
    g->logits = calloc((size_t)STEP_TOKENS * model_info(g->model)->vocab_size, sizeof *g->logits);
    if (!g->pages || !g->logits) return err_set(err, -ENOMEM, "no memory for a window");
    for (uint32_t i = 0; i < g->page_count; i++)
        g->pages[i] = i;
    rc = kv_store_new(g->model, g->page_count, PAGE_TOKENS, &g->kv, err);
    run.importance = g->importance;
    return rc < 0 ? rc : model_runner_new(g->model, g->kv, &run, &g->runner, err);
}

static int compute_window(const struct gathering *g, uint32_t window, struct err *err)
{
    const uint32_t context = g->windows.context;
    for (uint32_t at = 0; at < context; at += STEP_TOKENS) {
        const uint32_t count = min_u32(STEP_TOKENS, context - at);
        const struct batch_item item = { .ids = g->windows.ids.data + (size_t)window * context + at,
                                         .count = count,
                                         .position = at,
                                         .page_table = g->pages,
                                         .pages = g->page_count,
                                         .want_logits = true,
                                         .rows_before = count - 1,
                                         .logits = g->logits };
        int rc = model_step(g->runner, &item, 1, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int compute(const struct gathering *g, struct err *err)
{
    struct model_progress bar = { .unit = "windows" };
    int rc = 0;
    for (uint32_t i = 0; i < g->windows.count && rc == 0; i++) {
        rc = compute_window(g, i, err);
        model_progress_show(&bar, i + 1, g->windows.count);
    }
    model_progress_end(&bar);
    return rc;
}

/* Counts the matrices that the text reached, and all. */
static void count_matrices(const struct importance *im, uint64_t *ret_reached, uint64_t *ret_all)
{
    *ret_reached = *ret_all = 0;
    for (uint32_t i = 0; i < im->count; i++) {
        *ret_all += im->entries[i].count;
        for (uint32_t j = 0; j < im->entries[i].count; j++)
            *ret_reached += im->entries[i].rows[j] > 0;
    }
}

static int print(const struct imatrix_options *o, const struct gathering *g, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint64_t reached, all;
    count_matrices(g->importance, &reached, &all);
    if (o->output == REMOTE_JSON) {
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object(&w);
        json_kv_str(&w, "file", o->to);
        json_kv_u64(&w, "matrices", all);
        json_kv_u64(&w, "reached", reached);
        json_kv_u64(&w, "windows", g->windows.count);
        json_kv_u64(&w, "context", g->windows.context);
        json_object_end(&w);
        buf_byte(&out, '\n');
    } else {
        buf_printf(&out, "%s: %llu of %llu matrices reached, %u windows of %u tokens\n", o->to.data,
                   (unsigned long long)reached, (unsigned long long)all, g->windows.count,
                   g->windows.context);
    }
    return command_print(&out, err);
}

static int gather(const void *options, struct err *err)
{
    const struct imatrix_options *o = options;
    CLEANUP(gathering_fini) struct gathering g = { 0 };
    int rc = start(o, &g, err);
    if (rc == 0) rc = compute(&g, err);
    if (rc < 0) return rc;
    const struct imatrix_origin origin = { o->text, g.windows.count, g.windows.context };
    rc = imatrix_write(o->to.data, g.importance, &origin, err);
    return rc < 0 ? rc : print(o, &g, err);
}

int model_imatrix_run(int argc, char *const *argv)
{
    struct imatrix_options options;
    return command_run(&usage, argc, argv, &options, gather);
}

/* cmd_bench_engine.c - `muster bench engine`: times the prompts and outputs of a model, without server or
 * scheduler.
 *
 *     prefill_tok_s    prompt tokens of all sequences / time, in steps of up to PROMPT_STEP tokens
 *     decode_tok_s     tokens of all sequences / time, one step a token of each
 *     bytes_per_token  (weights that a step reads + K and V of all sequences, in the mean) / sequences
 *     bandwidth_share  decode_tok_s * bytes_per_token / read bandwidth
 *     peak_share       prefill_tok_s * operations a prompt token / int8 rate (F32 rate for F32, F16 and BF16, that of
 *                      BF16 where kernels round to it)
 *
 * Time is that of the clock; with one thread, which computes all itself, it is processor time, so that other work
 * on the machine counts little.
 * Operations are two a weight of the products; attention is not counted, nor are the logits of prompt
 * tokens, which are not computed. The table of embeddings is not counted as read. Token i of a sequence has the
 * id (7919 i + 13) mod vocabulary, so that another engine can be given the same; next_token is the most likely
 * token after the prompt. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/bench/cmd_bench.h"
#include "cli/bench/limits.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "engine/model/arch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_STEP 512
#define PAGE_TOKENS 64
#define BATCH_MAX 64
#define TOKENS_MAX 65536

struct engine_options {
    struct str model, kernels, weight_cache;
    int64_t prompt_tokens, gen_tokens, batch, threads;
    int kv_cache_dtype, output;
};

#define AT(member) .offset = offsetof(struct engine_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT, .required = true, AT(model),
      .about = "GGUF file, or folder in Hugging Face's format; needs no tokenizer." },
    { .name = "prompt_tokens", .type = CONFIG_INT, .default_text = "256", .min = 1, .max = TOKENS_MAX,
      .unit = "tokens", AT(prompt_tokens), .about = "Prompt of each sequence." },
    { .name = "gen_tokens", .type = CONFIG_INT, .default_text = "32", .min = 1, .max = TOKENS_MAX,
      .unit = "tokens", AT(gen_tokens), .about = "Output of each sequence." },
    { .name = "batch", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = BATCH_MAX, AT(batch),
      .about = "Sequences that decode together." },
    { .name = "threads", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = BENCH_THREADS_MAX,
      AT(threads), .about = "Threads that compute." },
    { .name = "kv_cache_dtype", .type = CONFIG_ENUM, .default_text = "auto", .names = kv_dtype_names,
      AT(kv_cache_dtype), .about = "How K and V are stored: auto is f16." },
    { .name = "weight_cache", .type = CONFIG_TEXT, AT(weight_cache),
      .about = "Folder of packed weights to map, as of `muster engine`; without it they are packed anew." },
    { .name = "kernels", .type = CONFIG_TEXT, AT(kernels),
      .about = "Kernels, as avx2; the best that this processor runs by default." },
    REMOTE_OUTPUT_ROW(struct engine_options, output),
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct engine_options, rows);
static const struct opt_command usage = {
    .name = "muster bench engine",
    .about = "Time prompts and outputs of a model beside this machine's limits.",
    .options = &record,
    .notes = "One thread is timed by the processor, more are timed by the clock. A share of 1 is "
             "the limit "
             "measured in the same\nrun: reads from memory for decode, multiplications in "
             "registers for prefill.",
};

struct bench {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
    uint32_t *ids;   /* of a prompt; all sequences have the same */
    uint32_t *pages; /* `seq_pages` for each sequence */
    float *logits;   /* of each sequence */
    uint32_t seq_pages;
    bool alone; /* one thread computes */
};

static void bench_fini(struct bench *b)
{
    model_runner_free(b->runner);
    kv_store_free(b->kv);
    model_free(b->model);
    free(b->ids);
    free(b->pages);
    free(b->logits);
}

static int bench_init(const struct engine_options *o, struct bench *b, struct err *err)
{
    uint32_t batch = (uint32_t)o->batch, tokens = (uint32_t)(o->prompt_tokens + o->gen_tokens);
    const struct model_load_options load = {
        .kv_type = kv_dtype_type(o->kv_cache_dtype),
        .kernels = o->kernels.len ? o->kernels.data : NULL,
        .weight_cache = o->weight_cache.len ? o->weight_cache.data : NULL,
        .weight_cache_bytes_max = UINT64_MAX,
    };
    int rc = model_load(o->model.data, &load, &b->model, err);
    if (rc < 0) return rc;
    const struct model_info *info = model_info(b->model);
    if (tokens > info->context_length)
        return err_set(err, COMMAND_MISUSED,
                       "--prompt-tokens and --gen-tokens make %u tokens, the model's context is %u",
                       tokens, info->context_length);
    b->alone = o->threads == 1;
    b->seq_pages = ceil_div_u32(tokens, PAGE_TOKENS);
    uint32_t pages = batch * b->seq_pages;
    b->ids = calloc(tokens, sizeof *b->ids);
    b->pages = calloc(pages, sizeof *b->pages);
    b->logits = calloc((size_t)batch * info->vocab_size, sizeof *b->logits);
    if (!b->ids || !b->pages || !b->logits) return err_set(err, -ENOMEM, "no memory to measure");
    for (uint32_t i = 0; i < tokens; i++)
        b->ids[i] = (uint32_t)((7919ull * i + 13) % info->vocab_size);
    for (uint32_t i = 0; i < pages; i++)
        b->pages[i] = i;
    rc = kv_store_new(b->model, pages, PAGE_TOKENS, &b->kv, err);
    const struct model_runner_options run = { .tokens_max = PROMPT_STEP,
                                              .seqs_max = batch,
                                              .threads = (uint32_t)o->threads };
    return rc < 0 ? rc : model_runner_new(b->model, b->kv, &run, &b->runner, err);
}

static struct batch_item item_of(const struct bench *b, uint32_t seq, uint32_t position,
                                 uint32_t count, bool logits)
{
    return (struct batch_item){
        .ids = b->ids + position,
        .count = count,
        .position = position,
        .page_table = b->pages + (size_t)seq * b->seq_pages,
        .pages = b->seq_pages,
        .want_logits = logits,
        .logits = b->logits + (size_t)seq * model_info(b->model)->vocab_size,
    };
}

static double now_s(const struct bench *b)
{
    return b->alone ? bench_thread_s() : bench_now_s();
}

static int prompts(const struct bench *b, uint32_t tokens, uint32_t batch, double *ret_s,
                   struct err *err)
{
    double start = now_s(b);
    for (uint32_t seq = 0; seq < batch; seq++) {
        for (uint32_t at = 0; at < tokens; at += PROMPT_STEP) {
            uint32_t count = min_u32(PROMPT_STEP, tokens - at);
            struct batch_item item = item_of(b, seq, at, count, at + count == tokens);
            int rc = model_step(b->runner, &item, 1, err);
            if (rc < 0) return rc;
        }
    }
    *ret_s = now_s(b) - start;
    return 0;
}

static int outputs(const struct bench *b, uint32_t position, uint32_t tokens, uint32_t batch,
                   double *ret_s, struct err *err)
{
    struct batch_item items[BATCH_MAX];
    double start = now_s(b);
    for (uint32_t i = 0; i < tokens; i++) {
        for (uint32_t seq = 0; seq < batch; seq++)
            items[seq] = item_of(b, seq, position + i, 1, true);
        int rc = model_step(b->runner, items, batch, err);
        if (rc < 0) return rc;
    }
    *ret_s = now_s(b) - start;
    return 0;
}

/* Returns the most likely token after the first sequence's last step. */
static uint32_t next_token(const struct bench *b)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < model_info(b->model)->vocab_size; i++)
        if (b->logits[i] > b->logits[best]) best = i;
    return best;
}

struct result {
    uint32_t next_token;
    double prefill_tok_s, decode_tok_s, bytes_per_token, bandwidth_share, peak_share;
    double gb_s, gop_s;    /* of decode, of prefill */
    const char *peak_name; /* that gop_s is a share of */
};

static struct result judge(const struct engine_options *o, const struct bench *b, double prompt_s,
                           double output_s, const struct bench_limits *limits)
{
    const struct model_info *info = model_info(b->model);
    double batch = (double)o->batch, prompt = (double)o->prompt_tokens;
    double context = prompt + (double)o->gen_tokens / 2;
    double head = (double)info->vocab_size * info->n_embd;
    double body = (double)info->parameters - head * (info->tied ? 1 : 2);
    /* Weights of a quantised type take less than two bytes. */
    bool int8 = (double)info->weight_bytes < 1.9 * (double)info->parameters;
    bool bf16 = !int8 && strstr(info->numerics, "+bf16");
    double peak = int8 ? limits->int8_gop_s : bf16 ? limits->bf16_gop_s : limits->f32_gop_s;
    struct result r = { .prefill_tok_s = batch * prompt / prompt_s,
                        .decode_tok_s = batch * (double)o->gen_tokens / output_s,
                        .peak_name = int8   ? "int8"
                                     : bf16 ? "BF16"
                                            : "F32" };
    r.bytes_per_token = (double)(info->weight_bytes - info->table_bytes) / batch +
                        context * (double)info->kv_bytes_per_token;
    r.gb_s = 1e-9 * r.decode_tok_s * r.bytes_per_token;
    r.gop_s = 2e-9 * batch * (body * prompt + head) / prompt_s;
    r.bandwidth_share = r.gb_s / limits->read_gb_s;
    r.peak_share = peak > 0 ? r.gop_s / peak : 0;
    return r;
}

static void write_json(const struct engine_options *o, const struct bench *b,
                       const struct result *r, const struct bench_limits *limits, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_f64(&w, "prefill_tok_s", r->prefill_tok_s);
    json_kv_f64(&w, "decode_tok_s", r->decode_tok_s);
    json_kv_f64(&w, "bytes_per_token", r->bytes_per_token);
    json_kv_f64(&w, "bandwidth_share", r->bandwidth_share);
    json_kv_f64(&w, "peak_share", r->peak_share);
    json_kv_u64(&w, "threads", (uint64_t)o->threads);
    json_kv_u64(&w, "batch", (uint64_t)o->batch);
    json_kv_u64(&w, "next_token", r->next_token);
    json_kv_str(&w, "kernels", model_info(b->model)->kernels);
    json_kv_f64(&w, "read_gb_s", limits->read_gb_s);
    json_kv_f64(&w, "int8_gop_s", limits->int8_gop_s);
    json_kv_f64(&w, "bf16_gop_s", limits->bf16_gop_s);
    json_kv_f64(&w, "f32_gop_s", limits->f32_gop_s);
    json_object_end(&w);
    buf_byte(out, '\n');
}

static void write_table(const struct engine_options *o, const struct bench *b,
                        const struct result *r, const struct bench_limits *limits, struct buf *out)
{
    buf_printf(out,
               "limits    %8.1f GB/s read, %.0f GOP/s int8, %.0f GOP/s F32; %d threads, %.*s\n",
               limits->read_gb_s, limits->int8_gop_s, limits->f32_gop_s, (int)o->threads,
               (int)model_info(b->model)->kernels.len, model_info(b->model)->kernels.data);
    buf_printf(out, "prefill   %8.1f tokens/s   %8.1f GOP/s, %.0f %% of %s\n", r->prefill_tok_s,
               r->gop_s, 100 * r->peak_share, r->peak_name);
    buf_printf(out, "decode    %8.1f tokens/s   %8.1f GB/s, %.0f %% of read; %.2f MB a token\n",
               r->decode_tok_s, r->gb_s, 100 * r->bandwidth_share, 1e-6 * r->bytes_per_token);
}

static int bench_engine(const void *options, struct err *err)
{
    const struct engine_options *o = options;
    const struct ops *ops = o->kernels.len ? ops_find(o->kernels) : ops_best();
    if (!ops || !ops->supported())
        return err_set(err, COMMAND_MISUSED, "--kernels " STR_FMT ": none of that name run here",
                       STR_ARG(o->kernels));
    CLEANUP(bench_fini) struct bench b = { 0 };
    int rc = bench_init(o, &b, err);
    if (rc < 0) return rc;
    struct bench_limits limits;
    double prompt_s, output_s, unused_s;
    rc = bench_limits_measure(ops, (uint32_t)o->threads, &limits, err);
    /* The first step touches memory for the first time. */
    if (rc == 0) rc = prompts(&b, 1, (uint32_t)o->batch, &unused_s, err);
    if (rc == 0) rc = prompts(&b, (uint32_t)o->prompt_tokens, (uint32_t)o->batch, &prompt_s, err);
    uint32_t after_prompt = rc == 0 ? next_token(&b) : 0;
    if (rc == 0)
        rc = outputs(&b, (uint32_t)o->prompt_tokens, (uint32_t)o->gen_tokens, (uint32_t)o->batch,
                     &output_s, err);
    if (rc < 0) return rc;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct result r = judge(o, &b, prompt_s, output_s, &limits);
    r.next_token = after_prompt;
    if (o->output == REMOTE_JSON)
        write_json(o, &b, &r, &limits, &out);
    else
        write_table(o, &b, &r, &limits, &out);
    return command_print(&out, err);
}

int bench_engine_run(int argc, char *const *argv)
{
    struct engine_options options;
    return command_run(&usage, argc, argv, &options, bench_engine);
}

/* cmd_model_verify.c - `muster model verify`: reads a whole model file and says whether it can be trusted to serve.
 *
 *     sha256      the file is the one that was meant (with --sha256)
 *     weights     every number in it is finite
 *     tokenizer   there is one, and it is well-formed
 *     result      an engine loads it; the logits behind a few tokens are finite, and those of this processor's kernels
 *                 are those of the slow ones (RESULT_MAX)
 *
 * Names, sizes, metadata and bounds are checked before all that, as for an engine: a file that is not well-formed ends
 * the command. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"
#include "cli/tokenizer_load.h"
#include "engine/files/gguf_shards.h"
#include "engine/files/hf_model.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdlib.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define RUN_TOKENS 8u
#define RUN_PAGE_TOKENS 16u
/* Kernels round activations to eight bits: of the largest logit that costs .2 to 4 % (t_llama, t_arch). */
#define RESULT_MAX 0.1

struct verify_options {
    struct str file, sha256;
    bool run;
    int output;
};

#define AT(member) .offset = offsetof(struct verify_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "sha256", .type = CONFIG_TEXT, .max = SHA256_HEX, AT(sha256),
      .about = "SHA-256 of the file, in hex, as the place that it came from states it." },
    { .name = "run", .type = CONFIG_BOOL, .default_text = "true", AT(run),
      .about = "Load the model, and compare what this processor's kernels compute with the slow ones." },
    REMOTE_OUTPUT_ROW(struct verify_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "FILE", .required = true, AT(file),
      .about = "GGUF file (the first of several), or folder in Hugging Face's format." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct verify_options, rows);
static const struct opt_command usage = {
    .name = "muster model verify",
    .about = "Read a whole model file and say whether it can be trusted to serve.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "Exits with 1 if a check failed.",
};

enum check { SHA, WEIGHTS, TOKENIZER, RESULT, CHECK_COUNT };
static const char *const check_names[CHECK_COUNT] = { "sha256", "weights", "tokenizer", "result" };

struct verification {
    struct gguf_shards *shards; /* or */
    struct hf_model *folder;
    const struct gguf *gguf;
    const struct gguf_source *source;
    const char *status[CHECK_COUNT]; /* "ok", "failed", "skipped" */
    struct err why[CHECK_COUNT];
    uint32_t failed;
};

static void verification_fini(struct verification *v)
{
    gguf_shards_free(v->shards);
    hf_model_free(v->folder);
}

static void freep(char **p)
{
    free(*p);
}

static int open_model(const struct verify_options *o, struct verification *v, struct err *err)
{
    if (hf_model_is(o->file.data)) {
        int rc = hf_model_open(o->file.data, &v->folder, err);
        if (rc < 0) return rc;
        v->gguf = v->folder->gguf;
        v->source = v->folder->source;
        return 0;
    }
    int rc = gguf_shards_open(o->file.data, &v->shards, err);
    if (rc < 0) return rc;
    v->gguf = v->shards->gguf;
    v->source = v->shards->source;
    return 0;
}

/* ---- the checks: 0 and what was found, or a negative errno and why ---- */

static int check_sha(const struct verify_options *o, struct err *ret)
{
    CLEANUP(freep) char *piece = malloc(PIECE_BYTES);
    struct gguf_file file;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    if (!piece) return err_set(ret, -ENOMEM, "no memory to read it");
    int rc = gguf_file_open(o->file.data, &file, ret);
    if (rc < 0) return rc;
    struct sha256_run *run = sha256_begin();
    for (uint64_t at = 0; at < file.source.bytes && rc == 0;) {
        size_t n = min_size(PIECE_BYTES, (size_t)(file.source.bytes - at));
        rc = file.source.read(file.source.ctx, at, piece, n, ret);
        if (rc == 0) sha256_more(run, piece, n);
        at += n;
    }
    sha256_end(run, digest);
    gguf_file_close(&file);
    if (rc < 0) return rc;
    hex_from(digest, sizeof digest, hex);
    if (!str_eq(o->sha256, str_from(hex))) return err_set(ret, -EINVAL, "it is %s", hex);
    return err_set(ret, 0, "%s", hex);
}

/* Reads the rows of a tensor; names the first number that is none. */
static int check_tensor(const struct verification *v, const struct gguf_tensor *t, struct err *ret)
{
    const uint32_t cols = (uint32_t)t->dims[0];
    const size_t row_bytes = weight_row_bytes(t->type, cols);
    const uint64_t row_count = t->elements / cols, at_once = PIECE_BYTES / row_bytes + 1;
    CLEANUP(freep) char *raw = malloc(at_once * row_bytes);
    CLEANUP(freep) char *memory = malloc(cols * sizeof(float));
    float *x = (float *)(void *)memory;
    if (!raw || !memory) return err_set(ret, -ENOMEM, "no memory for a row");
    for (uint64_t row = 0; row < row_count; row += at_once) {
        uint64_t n = min_u64(at_once, row_count - row);
        int rc = v->source->read(v->source->ctx, t->offset + row * row_bytes, raw,
                                 (size_t)n * row_bytes, ret);
        if (rc < 0) return rc;
        for (uint64_t i = 0; i < n; i++) {
            weight_types[t->type].to_f32(raw + i * row_bytes, cols, x);
            for (uint32_t j = 0; j < cols; j++)
                if (!isfinite(x[j]))
                    return err_set(
                        ret, -EINVAL, "tensor '" STR_FMT "': number %u of row %llu is %g",
                        STR_ARG(t->name), j, (unsigned long long)(row + i), (double)x[j]);
        }
    }
    return 0;
}

static int check_weights(const struct verification *v, struct err *ret)
{
    struct model_progress bar = { 0 };
    uint64_t done = 0, total = 0;
    int rc = 0;
    for (uint32_t i = 0; i < v->gguf->tensor_count; i++)
        total += v->gguf->tensors[i].bytes;
    for (uint32_t i = 0; i < v->gguf->tensor_count && rc == 0; i++) {
        rc = check_tensor(v, &v->gguf->tensors[i], ret);
        done += v->gguf->tensors[i].bytes;
        model_progress_show(&bar, done, total);
    }
    model_progress_end(&bar);
    if (rc < 0) return rc;
    return err_set(ret, 0, "%u tensors, %.2f GB, all numbers finite", v->gguf->tensor_count,
                   1e-9 * (double)total);
}

static int check_tokenizer(const struct verify_options *o, struct err *ret)
{
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    int rc = tokenizer_read(o->file.data, &vocab, &template, ret);
    if (rc < 0) return rc;
    if (!vocab) return err_set(ret, -ENOENT, "there is none: an engine does not serve the model");
    return err_set(ret, 0, "%u tokens, %s chat template", vocab_count(vocab),
                   template ? "with a" : "no");
}

/* Computes the sum of an encoder's states of the tokens. */
static int run_states(struct model_runner *runner, struct batch_item *item, uint32_t width,
                      float *ret, struct err *err)
{
    double *sum = calloc(width, sizeof *sum);
    if (!sum) return err_set(err, -ENOMEM, "no memory for the states");
    item->state_sum = sum;
    int rc = model_step(runner, item, 1, err);
    for (uint32_t i = 0; i < width && rc == 0; i++)
        ret[i] = (float)sum[i];
    free(sum);
    return rc;
}

/* Computes the logits behind the last of some tokens, or an encoder's states, by the kernels named or the
 * best. */
static int run_once(const char *path, const char *kernels, float **ret, uint32_t *ret_count,
                    struct err *err)
{
    const struct model_load_options load = { .kv_type = KV_F32, .kernels = kernels };
    CLEANUP(model_freep) struct model *model = NULL;
    CLEANUP(kv_store_freep) struct kv_store *kv = NULL;
    CLEANUP(model_runner_freep) struct model_runner *runner = NULL;
    const struct model_runner_options run = { .tokens_max = RUN_TOKENS, .seqs_max = 1 };
    uint32_t ids[RUN_TOKENS], page = 0;
    int rc = model_load(path, &load, &model, err);
    if (rc == 0) rc = kv_store_new(model, 1, RUN_PAGE_TOKENS, &kv, err);
    if (rc == 0) rc = model_runner_new(model, kv, &run, &runner, err);
    if (rc < 0) return rc;
    const bool encoder = model_info(model)->task != MODEL_GENERATE;
    const uint32_t vocab = model_info(model)->vocab_size;
    const uint32_t count = encoder ? model_info(model)->n_embd : vocab;
    for (uint32_t i = 0; i < RUN_TOKENS; i++)
        ids[i] = (uint32_t)((7919ull * i + 13) % vocab);
    *ret = calloc(count, sizeof **ret);
    *ret_count = count;
    if (!*ret) return err_set(err, -ENOMEM, "no memory for the logits");
    struct batch_item item = { .ids = ids,
                               .count = min_u32(RUN_TOKENS, model_info(model)->context_length),
                               .page_table = &page,
                               .pages = 1,
                               .want_logits = !encoder,
                               .logits = *ret };
    return encoder ? run_states(runner, &item, count, *ret, err)
                   : model_step(runner, &item, 1, err);
}

static int check_result(const struct verify_options *o, struct err *ret)
{
    float *fast = NULL, *slow = NULL;
    uint32_t count = 0;
    int rc = run_once(o->file.data, NULL, &fast, &count, ret);
    if (rc == 0) rc = run_once(o->file.data, "ref", &slow, &count, ret);
    double most = 0, off = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (!isfinite(fast[i]) || !isfinite(slow[i]))
            rc = err_set(ret, -ERANGE, "result %u is %g, by the slow kernels %g", i,
                         (double)fast[i], (double)slow[i]);
        most = fmax(most, fabs((double)slow[i]));
        off = fmax(off, fabs((double)fast[i] - (double)slow[i]));
    }
    free(fast);
    free(slow);
    if (rc < 0) return rc;
    double share = most > 0 ? off / most : 0;
    return err_set(ret, share > RESULT_MAX ? -ERANGE : 0,
                   "results differ by %.2f %% of the largest from those of the slow kernels",
                   100 * share);
}

static void note(struct verification *v, enum check check, int rc)
{
    v->status[check] = rc < 0 ? "failed" : "ok";
    v->failed += rc < 0;
}

static void skip(struct verification *v, enum check check, const char *why)
{
    v->status[check] = "skipped";
    err_set(&v->why[check], 0, "%s", why);
}

static void check_all(const struct verify_options *o, struct verification *v)
{
    if (o->sha256.len == 0)
        skip(v, SHA, "none was given");
    else
        note(v, SHA, check_sha(o, &v->why[SHA]));
    note(v, WEIGHTS, check_weights(v, &v->why[WEIGHTS]));
    note(v, TOKENIZER, check_tokenizer(o, &v->why[TOKENIZER]));
    if (!o->run)
        skip(v, RESULT, "not asked for");
    else
        note(v, RESULT, check_result(o, &v->why[RESULT]));
}

static int verify(const void *options, struct err *err)
{
    const struct verify_options *o = options;
    CLEANUP(verification_fini) struct verification v = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    if (o->sha256.len > 0 && hf_model_is(o->file.data))
        return err_set(err, COMMAND_MISUSED, "--sha256 is of one file, and %s is a folder",
                       o->file.data);
    int rc = open_model(o, &v, err);
    if (rc < 0) return rc;
    check_all(o, &v);
    json_writer_init(&w, &out);
    if (o->output == REMOTE_JSON) json_array(&w);
    for (int i = 0; i < CHECK_COUNT; i++) {
        if (o->output != REMOTE_JSON) {
            buf_printf(&out, "%-10s %-8s %s\n", check_names[i], v.status[i], v.why[i].text);
            continue;
        }
        json_object(&w);
        json_kv_text(&w, "check", check_names[i]);
        json_kv_text(&w, "status", v.status[i]);
        json_kv_text(&w, "why", v.why[i].text);
        json_object_end(&w);
    }
    if (o->output == REMOTE_JSON) {
        json_array_end(&w);
        buf_byte(&out, '\n');
    }
    rc = command_print(&out, err);
    return rc < 0 ? rc : v.failed > 0 ? EXIT_FAILED : 0;
}

int model_verify_run(int argc, char *const *argv)
{
    struct verify_options options;
    return command_run(&usage, argc, argv, &options, verify);
}

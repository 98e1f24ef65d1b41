/* cmd_model_make_random.c - `muster model make-random`: a model of random weights, to measure speed and
 * memory with a shape of one's own. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"

#include <sys/stat.h>

struct make_options {
    struct str file, arch, type, tokenizer;
    int64_t width, layers, idle_layers, ff, heads, kv_heads, vocab, context, window, window_period,
        seed;
    bool tied, force;
    int output;
};

#define AT(member) .offset = offsetof(struct make_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "arch", .type = CONFIG_TEXT, .default_text = "llama", AT(arch),
      .about = "Architecture: llama, or smollm3, which is a llama without RoPE in every fourth layer and may have a "
               "window in some." },
    { .name = "width", .type = CONFIG_INT, .default_text = "256", .min = 16, .max = MAKE_WIDTH_MAX,
      AT(width), .about = "Width of the residual stream." },
    { .name = "layers", .type = CONFIG_INT, .default_text = "4", .min = 1, .max = MAKE_LAYERS_MAX,
      AT(layers), .about = "Number of layers." },
    { .name = "idle_layers", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = MAKE_LAYERS_MAX,
      AT(idle_layers), .about = "Of them, the last so many add nothing: with --tied the model without them, of the "
                                "same seed, is a draft model that is always right." },
    { .name = "ff", .type = CONFIG_INT, .default_text = "1024", .min = 1, .max = MAKE_WIDTH_MAX,
      AT(ff), .about = "Inner width of a feed-forward." },
    { .name = "heads", .type = CONFIG_INT, .default_text = "4", .min = 1, .max = MAKE_HEADS_MAX,
      AT(heads), .about = "Query heads; they divide the width." },
    { .name = "kv_heads", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = MAKE_HEADS_MAX,
      AT(kv_heads), .about = "Heads of K and V, which divide the query heads; 0: as many." },
    { .name = "vocab", .type = CONFIG_INT, .default_text = "4096", .min = 1, .max = MAKE_VOCAB_MAX,
      AT(vocab), .about = "Tokens of the vocabulary, without --tokenizer." },
    { .name = "tokenizer", .type = CONFIG_TEXT, AT(tokenizer),
      .about = "GGUF file whose tokenizer and chat template are copied; without, there is none." },
    { .name = "context", .type = CONFIG_INT, .default_text = "8192", .min = 1, .max = MAKE_CONTEXT_MAX,
      .unit = "tokens", AT(context), .about = "Longest context that the file claims." },
    { .name = "window", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = MAKE_CONTEXT_MAX,
      .unit = "tokens", AT(window), .about = "Sliding window: the last tokens that a layer sees; 0: all." },
    { .name = "window_period", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = MAKE_LAYERS_MAX,
      AT(window_period), .about = "Layers but the last of each so many have the window (Gemma 3: 6); 0: all have." },
    { .name = "type", .letter = 't', .type = CONFIG_TEXT, .default_text = "q8_0", AT(type),
      .about = "Type of the matrices, as q4_0; norms are F32." },
    { .name = "tied", .type = CONFIG_BOOL, .default_text = "false", AT(tied),
      .about = "Embedding and output share a matrix." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e15, AT(seed),
      .about = "The same shape and seed give the same file." },
    { .name = "force", .type = CONFIG_BOOL, .default_text = "false", AT(force),
      .about = "Replace FILE if it exists." },
    REMOTE_OUTPUT_ROW(struct make_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "FILE", .required = true, AT(file), .about = "GGUF file to write." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct make_options, rows);
static const struct opt_command usage = {
    .name = "muster model make-random",
    .about = "Write a model of random weights as a GGUF file.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "Its output is noise at the speed and memory of a real model. An engine serves it "
             "only with "
             "a\ntokenizer: --tokenizer models/muster-tiny-q8_0.gguf, for one.",
};

static int report(const char *path, int output, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct stat st;
    if (stat(path, &st) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (output == REMOTE_JSON) {
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object(&w);
        json_kv_text(&w, "file", path);
        json_kv_u64(&w, "bytes", (uint64_t)st.st_size);
        json_object_end(&w);
        buf_byte(&out, '\n');
    } else {
        buf_printf(&out, "%s: ", path);
        model_bytes_text((double)st.st_size, &out);
        buf_byte(&out, '\n');
    }
    return command_print(&out, err);
}

static int make_random(const void *options, struct err *err)
{
    const struct make_options *o = options;
    struct random_model m = {
        .arch = o->arch.data,
        .width = (uint32_t)o->width,
        .layers = (uint32_t)o->layers,
        .idle_layers = (uint32_t)o->idle_layers,
        .ff = (uint32_t)o->ff,
        .heads = (uint32_t)o->heads,
        .kv_heads = (uint32_t)(o->kv_heads ? o->kv_heads : o->heads),
        .vocab = (uint32_t)o->vocab,
        .context = (uint32_t)o->context,
        .window = (uint32_t)o->window,
        .window_period = (uint32_t)o->window_period,
        .tied = o->tied,
        .seed = (uint64_t)o->seed,
    };
    struct model_progress bar = { 0 };
    const struct make_progress progress = { model_progress_show, &bar };
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    CLEANUP(gguf_freep) struct gguf *tokenizer = NULL;
    int rc = model_type_read(o->type, &m.type, err);
    if (rc == 0) rc = model_output_free(o->file.data, o->force, err);
    if (rc == 0 && o->tokenizer.len > 0) {
        rc = gguf_file_open(o->tokenizer.data, &file, err);
        if (rc == 0) rc = gguf_parse(&file.source, &tokenizer, err);
        m.tokenizer = tokenizer;
    }
    if (rc < 0) return rc;
    rc = random_model_write(&m, o->file.data, &progress, err);
    model_progress_end(&bar);
    if (rc == -EINVAL || rc == -ENOTSUP) return COMMAND_MISUSED; /* the shape */
    return rc < 0 ? rc : report(o->file.data, o->output, err);
}

int model_make_random_run(int argc, char *const *argv)
{
    struct make_options options;
    return command_run(&usage, argc, argv, &options, make_random);
}

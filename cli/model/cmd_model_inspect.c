/* cmd_model_inspect.c - `muster model inspect`: prints what a model file holds and the memory that it
 * needs, from its metadata and tensor table alone. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "engine/files/gguf_shards.h"
#include "engine/files/hf_model.h"
#include "engine/model/decoder.h"

#include <stdio.h>

struct inspect_options {
    struct str file;
    int output;
};

#define AT(member) .offset = offsetof(struct inspect_options, member)
static const struct config_field rows[] = { REMOTE_OUTPUT_ROW(struct inspect_options, output) };
static const struct opt_positional positionals[] = {
    { .name = "FILE",
      .required = true,
      AT(file),
      .about = "GGUF file, or folder in Hugging Face's format." },
};
static const struct config_record record = CONFIG_RECORD_OF(struct inspect_options, rows);
static const struct opt_command usage = {
    .name = "muster model inspect",
    .about = "Print a card of a model file: sizes, types, vocabulary, template, memory.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "The whole of the metadata is checked as an engine checks it; weights are not read.",
};

/* Zero and empty where the file does not say. */
struct card {
    struct str file, name, architecture, vocab_kind, vocab_pre, rope_scaling;
    struct str imatrix, imatrix_dataset; /* files that its weights were rounded by */
    uint32_t imatrix_entries, imatrix_chunks;
    const char *packing; /* how a folder stores weights of few bits; NULL: it has none */
    uint64_t file_bytes, parameters, weight_bytes;
    uint64_t type_bytes[WEIGHT_TYPE_COUNT];
    uint32_t type_tensors[WEIGHT_TYPE_COUNT];
    uint32_t tensors, layers, width, ff, heads, kv_heads, head_dim, context, vocab;
    /* Layers with a window of `window` tokens. */
    uint32_t experts, experts_used, window, window_layers;
    uint32_t latent, turned; /* numbers of a latent KV vector, and those of its keys that turn */
    float rope_base;
    bool chat_template;
    bool known, served;          /* this engine has the architecture; and there is a tokenizer */
    uint64_t kv_bytes_per_token; /* in F16 */
};

static uint32_t number(const struct gguf *g, struct str arch, const char *name)
{
    char key[256];
    uint32_t value = 0;
    snprintf(key, sizeof key, STR_FMT ".%s", STR_ARG(arch), name);
    (void)gguf_get_u32(g, key, &value, NULL); /* a card shows what is there */
    return value;
}

static void read_shape(const struct gguf *g, struct card *c)
{
    struct str arch = c->architecture;
    char key[256];
    c->layers = number(g, arch, "block_count");
    c->width = number(g, arch, "embedding_length");
    c->ff = number(g, arch, "feed_forward_length");
    c->heads = number(g, arch, "attention.head_count");
    c->kv_heads = number(g, arch, "attention.head_count_kv");
    c->head_dim = number(g, arch, "attention.key_length");
    c->context = number(g, arch, "context_length");
    c->vocab = number(g, arch, "vocab_size");
    c->experts = number(g, arch, "expert_count");
    c->experts_used = number(g, arch, "expert_used_count");
    c->window = number(g, arch, "attention.sliding_window");
    c->latent = number(g, arch, "attention.kv_lora_rank");
    if (c->latent > 0) { /* newer files have the latent's length as key_length */
        const uint32_t of_head = number(g, arch, "attention.key_length_mla");
        c->turned = number(g, arch, "rope.dimension_count");
        c->head_dim = of_head > 0 ? of_head : c->head_dim;
        c->kv_heads = 1;
    }
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->heads > 0) c->head_dim = c->width / c->heads;
    snprintf(key, sizeof key, STR_FMT ".rope.freq_base", STR_ARG(arch));
    (void)gguf_get_f32(g, key, &c->rope_base, NULL);
    snprintf(key, sizeof key, STR_FMT ".rope.scaling.type", STR_ARG(arch));
    (void)gguf_get_str(g, key, &c->rope_scaling, NULL);
    c->kv_bytes_per_token =
        (uint64_t)2 * c->layers *
        (c->latent > 0 ? c->latent + c->turned : 2 * (uint64_t)c->kv_heads * c->head_dim);
}

/* Counts the layers with a window, as an engine does. */
static void count_windows(const struct gguf *g, const struct decoder_form *form, struct card *c)
{
    char key[256];
    uint32_t period = form->window_period;
    snprintf(key, sizeof key, STR_FMT ".attention.sliding_window_pattern",
             STR_ARG(c->architecture));
    const struct gguf_value *list = gguf_find(g, str_from(key));
    if (c->window == 0 || c->window >= c->context || c->layers > MODEL_LAYERS_MAX) return;
    if (list && list->type != GGUF_ARRAY) {
        (void)gguf_get_u32(g, key, &period, NULL);
        list = NULL;
    }
    if (list && (list->array.count != c->layers || !list->array.items)) return;
    for (uint32_t i = 0; i < c->layers; i++)
        c->window_layers += decoder_layer_has_window(list, period, i);
}

/* Returns the bytes of K and V of a sequence: layers with a window keep the last tokens only. */
static double kv_bytes(const struct card *c, uint32_t tokens)
{
    const double layer = (double)c->kv_bytes_per_token / max_u32(c->layers, 1);
    const uint32_t kept = c->window_layers > 0 ? min_u32(tokens, c->window) : 0;
    return layer *
           ((double)(c->layers - c->window_layers) * tokens + (double)c->window_layers * kept);
}

static void read_card(const struct gguf *g, uint64_t bytes, struct card *c)
{
    struct str template = { "", 0 };
    const struct gguf_value *tokens = gguf_find(g, STR("tokenizer.ggml.tokens"));
    c->file = g->file;
    c->file_bytes = bytes;
    c->tensors = g->tensor_count;
    (void)gguf_get_str(g, "general.name", &c->name, NULL);
    (void)gguf_get_str(g, "general.architecture", &c->architecture, NULL);
    (void)gguf_get_str(g, "tokenizer.ggml.model", &c->vocab_kind, NULL);
    (void)gguf_get_str(g, "tokenizer.ggml.pre", &c->vocab_pre, NULL);
    (void)gguf_get_str(g, "tokenizer.chat_template", &template, NULL);
    c->chat_template = template.len > 0;
    read_shape(g, c);
    (void)gguf_get_str(g, "quantize.imatrix.file", &c->imatrix, NULL);
    (void)gguf_get_str(g, "quantize.imatrix.dataset", &c->imatrix_dataset, NULL);
    (void)gguf_get_u32(g, "quantize.imatrix.entries_count", &c->imatrix_entries, NULL);
    (void)gguf_get_u32(g, "quantize.imatrix.chunks_count", &c->imatrix_chunks, NULL);
    if (tokens && tokens->type == GGUF_ARRAY) c->vocab = (uint32_t)tokens->array.count;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        c->parameters += t->elements;
        c->weight_bytes += t->bytes;
        c->type_bytes[t->type] += t->bytes;
        c->type_tensors[t->type]++;
    }
    for (const struct model_arch *const *row = arch_table; *row; row++) {
        if (!str_eq(str_from((*row)->name), c->architecture)) continue;
        c->known = true;
        if ((*row)->form) count_windows(g, (*row)->form, c);
        if (!(*row)->form) c->kv_bytes_per_token = 0; /* an encoder keeps none */
    }
    bool no_tokenizer = c->vocab_kind.len == 0 || str_eq(c->vocab_kind, STR("no_vocab"));
    c->served = c->known && !no_tokenizer;
}

/* Adds what a folder has beside its tensors, checked as an engine checks it. */
static int read_tokenizer(const struct hf_model *hf, struct vocab **vocab, struct card *c,
                          struct err *err)
{
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    int rc = hf_model_tokenizer(hf, vocab, &template, err);
    if (rc < 0 || !*vocab) return rc;
    c->vocab_kind = vocab_kind(*vocab);
    c->vocab_pre = vocab_pre(*vocab);
    c->chat_template = template != NULL;
    c->served = c->known;
    return 0;
}

static void write_json(const struct card *c, struct buf *out)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        { "bytes", c->file_bytes },
        { "parameters", c->parameters },
        { "weight_bytes", c->weight_bytes },
        { "kv_bytes_per_token", c->kv_bytes_per_token },
        { "tensors", c->tensors },
        { "layers", c->layers },
        { "width", c->width },
        { "ff", c->ff },
        { "heads", c->heads },
        { "kv_heads", c->kv_heads },
        { "head_dim", c->head_dim },
        { "kv_latent", c->latent + c->turned },
        { "context", c->context },
        { "vocab", c->vocab },
        { "experts", c->experts },
        { "experts_used", c->experts_used },
        { "window", c->window },
        { "window_layers", c->window_layers },
        { "kv_bytes_context", (uint64_t)kv_bytes(c, c->context) },
    };
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "file", c->file);
    json_kv_str(&w, "name", c->name);
    json_kv_str(&w, "architecture", c->architecture);
    json_key(&w, "served");
    json_put_bool(&w, c->served);
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        json_kv_u64(&w, counts[i].name, counts[i].value);
    json_key(&w, "types");
    json_object(&w);
    for (uint32_t i = 0; i < WEIGHT_TYPE_COUNT; i++)
        if (c->type_tensors[i]) json_kv_u64(&w, weight_types[i].name, c->type_bytes[i]);
    json_object_end(&w);
    if (c->packing) json_kv_text(&w, "packing", c->packing);
    if (c->imatrix.len > 0) {
        json_key(&w, "imatrix");
        json_object(&w);
        json_kv_str(&w, "file", c->imatrix);
        json_kv_str(&w, "dataset", c->imatrix_dataset);
        json_kv_u64(&w, "entries", c->imatrix_entries);
        json_kv_u64(&w, "chunks", c->imatrix_chunks);
        json_object_end(&w);
    }
    json_kv_str(&w, "vocab_kind", c->vocab_kind);
    json_kv_str(&w, "vocab_pre", c->vocab_pre);
    json_key(&w, "chat_template");
    json_put_bool(&w, c->chat_template);
    json_object_end(&w);
    buf_byte(out, '\n');
}

static void put_line(struct buf *out, const char *title)
{
    buf_printf(out, "%-14s", title);
}

/* Text of the file is a stranger's: without terminal codes. */
static void put_text(struct buf *out, const char *title, struct str text)
{
    if (text.len == 0) return;
    put_line(out, title);
    plain_whole(text, out);
    buf_byte(out, '\n');
}

static void put_types(const struct card *c, struct buf *out)
{
    for (uint32_t i = 0; i < WEIGHT_TYPE_COUNT; i++) {
        if (!c->type_tensors[i]) continue;
        put_line(out, "");
        buf_printf(out, "%-7s %4u tensors  ", weight_types[i].name, c->type_tensors[i]);
        model_bytes_text((double)c->type_bytes[i], out);
        buf_printf(out, "  %.1f %%\n", 100.0 * (double)c->type_bytes[i] / (double)c->weight_bytes);
    }
}

static void put_imatrix(const struct card *c, struct buf *out)
{
    if (c->imatrix.len == 0) return;
    put_line(out, "weighted by");
    plain_whole(c->imatrix, out);
    buf_printf(out, ", %u matrices", c->imatrix_entries);
    if (c->imatrix_dataset.len > 0) {
        buf_printf(out, ", %u windows of ", c->imatrix_chunks);
        plain_whole(c->imatrix_dataset, out);
    }
    buf_byte(out, '\n');
}

static void put_memory(const struct card *c, struct buf *out)
{
    put_line(out, "memory");
    buf_text(out, "weights ");
    model_bytes_text((double)c->weight_bytes, out);
    if (c->kv_bytes_per_token > 0) {
        buf_text(out, ", KV in F16 ");
        model_bytes_text((double)c->kv_bytes_per_token, out);
        buf_printf(out, " a token, ");
        if (c->window_layers > 0)
            buf_printf(out, "of which %u of %u layers keep the last %u tokens, ", c->window_layers,
                       c->layers, c->window);
        model_bytes_text(kv_bytes(c, c->context), out);
        buf_printf(out, " for one whole context");
    }
    buf_byte(out, '\n');
}

static void write_text(const struct card *c, struct buf *out)
{
    put_text(out, "file", c->file);
    put_text(out, "name", c->name);
    put_text(out, "architecture", c->architecture);
    put_line(out, "served");
    buf_text(out, c->served  ? "yes\n"
                  : c->known ? "no: it has no tokenizer\n"
                             : "no: this engine lacks the architecture\n");
    put_line(out, "parameters");
    buf_printf(out,
               c->parameters < 1000000000 ? "%.2f million in %u tensors, "
                                          : "%.2f billion in %u tensors, ",
               (double)c->parameters * (c->parameters < 1000000000 ? 1e-6 : 1e-9), c->tensors);
    model_bytes_text((double)c->file_bytes, out);
    if (c->parameters > 0)
        buf_printf(out, ", %.2f bits a weight",
                   8.0 * (double)c->weight_bytes / (double)c->parameters);
    buf_byte(out, '\n');
    put_types(c, out);
    if (c->packing) put_text(out, "stored as", str_from(c->packing));
    put_imatrix(c, out);
    put_line(out, "shape");
    buf_printf(out, "%u layers of width %u, feed-forward %u, %u heads of %u, ", c->layers, c->width,
               c->ff, c->heads, c->head_dim);
    if (c->latent > 0)
        buf_printf(out, "latent KV of %u + %u\n", c->latent, c->turned);
    else
        buf_printf(out, "%u KV heads\n", c->kv_heads);
    if (c->experts > 0) {
        put_line(out, "experts");
        buf_printf(out, "%u, of which a token uses %u\n", c->experts, c->experts_used);
    }
    put_line(out, "context");
    buf_printf(out, "%u tokens", c->context);
    if (c->window > 0) buf_printf(out, ", a sliding window of %u", c->window);
    if (c->rope_base > 0) buf_printf(out, ", RoPE base %g", (double)c->rope_base);
    if (c->rope_scaling.len > 0) {
        buf_text(out, ", scaling ");
        plain_whole(c->rope_scaling, out);
    }
    buf_byte(out, '\n');
    put_line(out, "vocabulary");
    buf_printf(out, "%u tokens, ", c->vocab);
    plain_whole(c->vocab_kind.len ? c->vocab_kind : STR("no tokenizer"), out);
    if (c->vocab_pre.len > 0) {
        buf_text(out, ", pre-tokeniser ");
        plain_whole(c->vocab_pre, out);
    }
    buf_byte(out, '\n');
    put_line(out, "chat template");
    buf_text(out, c->chat_template ? "yes\n" : "no\n");
    put_memory(c, out);
}

static int inspect(const void *options, struct err *err)
{
    const struct inspect_options *o = options;
    CLEANUP(gguf_shards_freep) struct gguf_shards *file = NULL;
    CLEANUP(hf_model_freep) struct hf_model *hf = NULL;
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct card card = { 0 };
    bool is_hf = hf_model_is(o->file.data);
    int rc =
        is_hf ? hf_model_open(o->file.data, &hf, err) : gguf_shards_open(o->file.data, &file, err);
    if (rc < 0) return rc;
    read_card(is_hf ? hf->gguf : file->gguf, is_hf ? hf->source->bytes : file->source->bytes,
              &card);
    card.packing = is_hf ? hf->packing : NULL;
    rc = is_hf ? read_tokenizer(hf, &vocab, &card, err) : 0;
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON)
        write_json(&card, &out);
    else
        write_text(&card, &out);
    return command_print(&out, err);
}

int model_inspect_run(int argc, char *const *argv)
{
    struct inspect_options options;
    return command_run(&usage, argc, argv, &options, inspect);
}

/* hf_model.c - gives a folder of safetensors the shape of a GGUF file, so that loader and architectures
 * know one kind of file.
 *
 * The joint source is a space of its own: each tensor at a multiple of 64, with zeros between. A read finds the tensor's segment, and its rows in their file. */
#include "engine/model/hf_model.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "engine/kernels/half.h"
#include "engine/kernels/kv_layout.h"
#include "engine/model/hf_folder.h"
#include "engine/model/hf_rope.h"
#include "engine/model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define HF_PATH_MAX 4096
#define HF_NAME_MAX 255
#define HF_INDEX_NAME "model.safetensors.index.json"
#define HF_ALIGN 64u
#define HF_VALUES 16
#define HF_MEMORY_BYTES_MAX ((size_t)256 << 20)
#define F8_PIECE 4096u

/* A tensor in the joint source. */
struct segment {
    uint64_t offset, bytes; /* there */
    uint64_t from;          /* in the file */
    const char *memory;     /* it is here instead; NULL: in the file */
    uint32_t file;
    uint32_t head_rows; /* of a head whose rows are reordered; 0: none are */
    uint64_t row_bytes; /* there */
    bool f8;            /* one byte in the file is two there */
};

struct hf_file {
    struct gguf_file file;
    struct safetensors *table;
    char path[HF_PATH_MAX];
};

struct hf_all {
    struct hf_model model; /* first: the caller's view */
    struct gguf gguf;
    struct gguf_source source;
    struct arena arena;
    char folder[HF_PATH_MAX];
    struct hf_file *files;
    uint32_t file_count;
    struct segment *segments;
    struct gguf_tensor *tensors; /* as many as segments */
    struct gguf_value values[HF_VALUES];
    uint32_t used, value_count;
    uint32_t heads, kv_heads, width, head_dim; /* head_dim 0: width / heads */
    struct hf_rope rope;
    bool tied;
};

static struct hf_all *all_of(struct hf_model *m)
{
    return (struct hf_all *)(void *)m;
}

void hf_model_free(struct hf_model *m)
{
    if (!m) return;
    struct hf_all *a = all_of(m);
    for (uint32_t i = 0; i < a->file_count; i++) {
        safetensors_free(a->files[i].table);
        gguf_file_close(&a->files[i].file);
    }
    free(a->files);
    free(a->segments);
    free(a->tensors);
    arena_fini(&a->arena);
    free(a);
}

bool hf_model_is(const char *path)
{
    struct stat st;
    return str_ends(str_from(path), STR(".safetensors")) ||
           (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

/* ---- the joint source */

/* E4M3 has four bits of exponent (bias 7) and three of fraction, no infinity, and NaN in 0x7f. */
static uint16_t f8_to_f16(uint8_t v)
{
    uint16_t sign = (uint16_t)((v & 0x80) << 8);
    uint32_t exponent = v >> 3 & 15u, fraction = v & 7u;
    if ((v & 0x7f) == 0x7f) return sign | 0x7e00;
    float f = exponent ? (float)(8 + fraction) * f32_from_bits((exponent + 117) << 23)
                       : (float)fraction * 0x1p-9f;
    return sign | f32_to_f16(f);
}

static int read_f8(const struct gguf_source *s, uint64_t from, char *to, size_t count,
                   struct err *err)
{
    char piece[F8_PIECE];
    while (count > 0) {
        size_t n = min_size(count, sizeof piece);
        int rc = s->read(s->ctx, from, piece, n, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < n; i++) {
            uint16_t half = f8_to_f16((uint8_t)piece[i]);
            memcpy(to + i * 2, &half, sizeof half);
        }
        from += n, to += n * 2, count -= n;
    }
    return 0;
}

/* Returns where row `row` is in the file: adjacent pairs there come from the halves of a head. */
static uint64_t file_row(const struct segment *s, uint64_t row)
{
    if (s->head_rows == 0) return row;
    uint64_t in_head = row % s->head_rows;
    return row - in_head + in_head / 2 + in_head % 2 * (s->head_rows / 2);
}

/* Reads bytes of one segment, row by row where rows are reordered. */
static int read_segment(const struct hf_all *a, const struct segment *s, uint64_t at, char *to,
                        size_t len, struct err *err)
{
    if (s->memory) {
        memcpy(to, s->memory + at, len);
        return 0;
    }
    const struct gguf_source *file = &a->files[s->file].file.source;
    while (len > 0) {
        uint64_t row = at / s->row_bytes, in_row = at % s->row_bytes;
        size_t n = s->head_rows ? min_size(len, (size_t)(s->row_bytes - in_row)) : len;
        uint64_t place = file_row(s, row) * s->row_bytes + in_row;
        must(!s->f8 || (place % 2 == 0 && n % 2 == 0)); /* segments are, and pieces of digests */
        int rc = s->f8 ? read_f8(file, s->from + place / 2, to, n / 2, err)
                       : file->read(file->ctx, s->from + place, to, n, err);
        if (rc < 0) return err_prefix(err, rc, "%s", a->files[s->file].path);
        at += n, to += n, len -= n;
    }
    return 0;
}

/* Returns the first segment that ends behind `offset`; `used` if there is none. */
static uint32_t segment_at(const struct hf_all *a, uint64_t offset)
{
    uint32_t low = 0, high = a->used;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (a->segments[middle].offset + a->segments[middle].bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int read_joint(void *ctx, uint64_t offset, void *data, size_t len, struct err *err)
{
    const struct hf_all *a = ctx;
    char *to = data;
    memset(to, 0, len); /* what lies between the segments */
    uint64_t end = offset + len;
    for (uint32_t i = segment_at(a, offset); i < a->used && a->segments[i].offset < end; i++) {
        const struct segment *s = &a->segments[i];
        uint64_t first = max_u64(offset, s->offset), last = min_u64(end, s->offset + s->bytes);
        int rc = read_segment(a, s, first - s->offset, to + (first - offset),
                              (size_t)(last - first), err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- config.json */

static struct gguf_value *put(struct hf_all *a, const char *key, enum gguf_type type)
{
    must(a->value_count < HF_VALUES);
    struct gguf_value *v = &a->values[a->value_count++];
    *v = (struct gguf_value){ .key = str_from(key), .type = type };
    return v;
}

enum config_form {
    CONFIG_COUNT,
    CONFIG_REAL,
    CONFIG_LLAMA,
    CONFIG_SILU,
    CONFIG_NOT,
    CONFIG_TIED,
    CONFIG_ROPE
};

/* clang-format off */
/* Keys of config.json that say what is computed; others name files and habits of training. */
static const struct config_row { const char *name; enum config_form form; const char *key; } config_rows[] = {
    { "model_type",              CONFIG_LLAMA, NULL },
    { "hidden_size",             CONFIG_COUNT, "llama.embedding_length" },
    { "num_hidden_layers",       CONFIG_COUNT, "llama.block_count" },
    { "intermediate_size",       CONFIG_COUNT, "llama.feed_forward_length" },
    { "num_attention_heads",     CONFIG_COUNT, "llama.attention.head_count" },
    { "num_key_value_heads",     CONFIG_COUNT, "llama.attention.head_count_kv" },
    { "head_dim",                CONFIG_COUNT, "llama.attention.key_length" },
    { "max_position_embeddings", CONFIG_COUNT, "llama.context_length" },
    { "vocab_size",              CONFIG_COUNT, "llama.vocab_size" },
    { "rms_norm_eps",            CONFIG_REAL,  "llama.attention.layer_norm_rms_epsilon" },
    { "rope_theta",              CONFIG_REAL,  NULL },
    { "hidden_act",              CONFIG_SILU,  NULL },
    { "tie_word_embeddings",     CONFIG_TIED,  NULL },
    { "rope_scaling",            CONFIG_ROPE,  NULL },
    { "rope_parameters",         CONFIG_ROPE,  NULL },
    { "attention_bias",          CONFIG_NOT,   NULL },
    { "mlp_bias",                CONFIG_NOT,   NULL },
    { "quantization_config",     CONFIG_NOT,   NULL },
};
/* clang-format on */

static int take_word(struct json_reader *r, struct hf_all *a, const char *name, const char *wanted,
                     struct err *err)
{
    struct str text = { "", 0 };
    if (json_text_arena(r, &a->arena, &text) == 0 && str_eq(text, str_from(wanted))) return 0;
    return err_set(err, -ENOTSUP, "key '%s' is '" STR_FMT "'; computed is '%s'", name,
                   STR_ARG(text), wanted);
}

static int take_config(struct json_reader *r, struct hf_all *a, const struct config_row *row,
                       struct err *err)
{
    uint64_t count = 0;
    double real = 0;
    switch (row->form) {
    case CONFIG_COUNT:
        if (r->token == JSON_NULL) return 0; /* as if it were absent */
        if (json_u64(r, &count) < 0 || count > UINT32_MAX)
            return err_set(err, -EINVAL, "key '%s' is no number from 0 to %u", row->name,
                           UINT32_MAX);
        put(a, row->key, GGUF_U32)->u = count;
        if (strcmp(row->name, "num_attention_heads") == 0) a->heads = (uint32_t)count;
        if (strcmp(row->name, "num_key_value_heads") == 0) a->kv_heads = (uint32_t)count;
        if (strcmp(row->name, "hidden_size") == 0) a->width = (uint32_t)count;
        if (strcmp(row->name, "head_dim") == 0) a->head_dim = (uint32_t)count;
        return 0;
    case CONFIG_REAL:
        if (json_f64(r, &real) < 0)
            return err_set(err, -EINVAL, "key '%s' is no number", row->name);
        if (strcmp(row->name, "rope_theta") == 0) {
            if (a->rope.has_theta) return err_set(err, -EINVAL, "rope_theta is there twice");
            a->rope.has_theta = true;
            a->rope.theta = real;
            return 0;
        }
        put(a, row->key, GGUF_F64)->f = real;
        return 0;
    case CONFIG_LLAMA:
        return take_word(r, a, row->name, "llama", err);
    case CONFIG_SILU:
        return take_word(r, a, row->name, "silu", err);
    case CONFIG_TIED:
        if (json_bool(r, &a->tied) < 0)
            return err_set(err, -EINVAL, "key '%s' is neither true nor false", row->name);
        return 0;
    case CONFIG_ROPE:
        return hf_rope_read(r, row->name, &a->rope, err);
    case CONFIG_NOT:
        break;
    }
    if (r->token == JSON_NULL || r->token == JSON_FALSE) return 0;
    return err_set(err, -ENOTSUP,
                   "key '%s' asks for something that is not computed for safetensors", row->name);
}

static int read_keys(struct hf_all *a, struct str text, struct err *err)
{
    struct json_reader r;
    uint32_t seen = 0;
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the configuration");
    while (json_next(&r) == JSON_KEY) {
        size_t i = 0;
        while (i < COUNT_OF(config_rows) && !json_key_is(&r, config_rows[i].name))
            i++;
        if (i == COUNT_OF(config_rows)) {
            json_skip(&r);
            continue;
        }
        if (seen & 1u << i)
            return err_set(err, -EINVAL, "key '%s' is there twice", config_rows[i].name);
        seen |= 1u << i;
        json_next(&r);
        int rc = take_config(&r, a, &config_rows[i], err);
        if (rc < 0) return rc;
        if (r.token == JSON_OBJECT || r.token == JSON_ARRAY) json_skip_rest(&r);
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the configuration");
    if (!(seen & 1u)) return err_set(err, -EINVAL, "key 'model_type' is missing");
    if (a->kv_heads == 0) a->kv_heads = a->heads;
    return a->heads > 0 ? 0 : err_set(err, -EINVAL, "key 'num_attention_heads' is missing or 0");
}

static int by_key(const void *a, const void *b)
{
    return str_cmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int read_config(struct hf_all *a, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = hf_folder_read(a->folder, "config.json", HF_CONFIG_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    a->rope.theta = 10000;
    rc = read_keys(a, buf_view(&text), err);
    if (rc < 0) return err_prefix(err, rc, "%s/config.json", a->folder);
    put(a, "llama.rope.freq_base", GGUF_F64)->f = a->rope.theta;
    put(a, "general.architecture", GGUF_STRING)->text = STR("llama");
    put(a, "tokenizer.ggml.model", GGUF_STRING)->text = STR("no_vocab");
    qsort(a->values, a->value_count, sizeof *a->values, by_key);
    return 0;
}

/* ---- files */

static int open_file(struct hf_all *a, struct str name, struct err *err)
{
    struct hf_file *f = &a->files[a->file_count];
    f->file.fd = -1;
    a->file_count++;
    int len = snprintf(f->path, sizeof f->path, "%s/" STR_FMT, a->folder, STR_ARG(name));
    if (len < 0 || (size_t)len >= sizeof f->path)
        return err_set(err, -ENAMETOOLONG, "%s: a path of more than %d bytes", a->folder,
                       HF_PATH_MAX - 1);
    int rc = gguf_file_open(f->path, &f->file, err);
    return rc < 0 ? rc : safetensors_parse(&f->file.source, &f->table, err);
}

static struct str base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return str_from(slash ? slash + 1 : path);
}

/* Returns the file of that name, or file_count. */
static uint32_t file_named(const struct hf_all *a, struct str name)
{
    uint32_t i = 0;
    while (i < a->file_count && !str_eq(base_name(a->files[i].path), name))
        i++;
    return i;
}

static int take_shard(struct hf_all *a, struct str tensor, struct str file, struct err *err)
{
    if (file.len == 0 || file.len > HF_NAME_MAX || memchr(file.data, '/', file.len) ||
        memchr(file.data, 0, file.len) || file.data[0] == '.' ||
        strlen(a->folder) + file.len + 2 > HF_PATH_MAX)
        return err_set(err, -EINVAL,
                       "tensor '" STR_FMT "' is in a file with a name of %zu bytes that "
                       "is no plain file name",
                       STR_ARG(tensor), file.len);
    uint32_t i = file_named(a, file);
    if (i == a->file_count) {
        if (i == HF_SHARDS_MAX) return err_set(err, -E2BIG, "more than %u files", HF_SHARDS_MAX);
        int rc = open_file(a, file, err);
        if (rc < 0) return rc;
    }
    if (safetensors_find(a->files[i].table, tensor)) return 0;
    return err_set(err, -EINVAL, "tensor '" STR_FMT "' is not in " STR_FMT, STR_ARG(tensor),
                   STR_ARG(file));
}

/* Opens the files that "weight_map" names; returns how many tensors it lists. */
static int read_index(struct hf_all *a, struct str text, size_t *ret, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, text);
    *ret = 0;
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the index");
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "weight_map")) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "weight_map");
        while (json_next(&r) == JSON_KEY) {
            struct str tensor = { "", 0 }, file = { "", 0 };
            int rc = json_text_arena(&r, &a->arena, &tensor);
            json_next(&r);
            if (rc == 0) rc = json_text_arena(&r, &a->arena, &file);
            if (rc < 0) return err_set(err, rc, "weight_map holds something that is no file name");
            rc = take_shard(a, tensor, file, err);
            if (rc < 0) return rc;
            ++*ret;
        }
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the index");
    return *ret > 0 ? 0 : err_set(err, -EINVAL, "it has no weight_map");
}

static int open_files(struct hf_all *a, struct err *err)
{
    char path[HF_PATH_MAX + 32];
    struct stat st;
    a->files = calloc(HF_SHARDS_MAX, sizeof *a->files);
    if (!a->files) return err_set(err, -ENOMEM, "%s: no memory", a->folder);
    snprintf(path, sizeof path, "%s/" HF_INDEX_NAME, a->folder);
    if (stat(path, &st) < 0) return open_file(a, STR("model.safetensors"), err);
    CLEANUP(buf_fini) struct buf text = { 0 };
    size_t listed = 0, held = 0;
    int rc = hf_folder_read(a->folder, HF_INDEX_NAME, HF_INDEX_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = read_index(a, buf_view(&text), &listed, err);
    for (uint32_t i = 0; i < a->file_count && rc == 0; i++)
        held += a->files[i].table->count;
    if (rc == 0 && held != listed)
        rc = err_set(err, -EINVAL, "it lists %zu tensors, its files hold %zu", listed, held);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

/* ---- tensors */

/* clang-format off */
static const struct tensor_row { const char *from, *to; } layer_rows[] = {
    { "input_layernorm", "attn_norm" },          { "self_attn.q_proj", "attn_q" },
    { "self_attn.k_proj", "attn_k" },            { "self_attn.v_proj", "attn_v" },
    { "self_attn.o_proj", "attn_output" },       { "post_attention_layernorm", "ffn_norm" },
    { "mlp.gate_proj", "ffn_gate" },             { "mlp.up_proj", "ffn_up" },
    { "mlp.down_proj", "ffn_down" },
}, top_rows[] = {
    { "model.embed_tokens.weight", "token_embd.weight" },
    { "model.norm.weight", "output_norm.weight" },
    { "lm_head.weight", "output.weight" },
};
/* clang-format on */

/* Writes the GGUF name; returns false for a tensor that a Llama does not have. */
static bool gguf_name(struct str name, char to[GGUF_NAME_BYTES_MAX + 1])
{
    for (size_t i = 0; i < COUNT_OF(top_rows); i++) {
        if (!str_eq(name, str_from(top_rows[i].from))) continue;
        snprintf(to, GGUF_NAME_BYTES_MAX + 1, "%s", top_rows[i].to);
        return true;
    }
    struct str rest = name, prefix = STR("model.layers.");
    if (!str_starts(rest, prefix)) return false;
    rest = (struct str){ rest.data + prefix.len, rest.len - prefix.len };
    struct str digits = str_cut(&rest, '.');
    uint64_t layer = 0;
    if (str_to_u64(digits, &layer) < 0 || layer > UINT32_MAX) return false;
    for (size_t i = 0; i < COUNT_OF(layer_rows); i++) {
        struct str from = str_from(layer_rows[i].from);
        if (rest.len != from.len + 7 || !str_starts(rest, from) || !str_ends(rest, STR(".weight")))
            continue;
        snprintf(to, GGUF_NAME_BYTES_MAX + 1, "blk.%u.%s.weight", (uint32_t)layer,
                 layer_rows[i].to);
        return true;
    }
    return false;
}

/* Older files store the rotary frequencies, which follow from rope_theta; with tied embeddings an
 * lm_head is a copy that is not read. */
static bool is_spare(const struct hf_all *a, struct str name)
{
    return str_ends(name, STR(".rotary_emb.inv_freq")) ||
           (a->tied && str_eq(name, STR("lm_head.weight")));
}

static int take_tensor(struct hf_all *a, uint32_t file, const struct safetensor *t, uint64_t *end,
                       struct err *err)
{
    static const enum weight_type_id types[] = { [SAFETENSOR_F32] = WEIGHT_F32,
                                                 [SAFETENSOR_F16] = WEIGHT_F16,
                                                 [SAFETENSOR_BF16] = WEIGHT_BF16,
                                                 [SAFETENSOR_F8_E4M3] = WEIGHT_F16 };
    char name[GGUF_NAME_BYTES_MAX + 1];
    if (is_spare(a, t->name)) return 0;
    if (!gguf_name(t->name, name))
        return err_set(err, -ENOTSUP, "tensor '" STR_FMT "' is not one that a Llama has here",
                       STR_ARG(t->name));
    struct segment *s = &a->segments[a->used];
    struct gguf_tensor *g = &a->tensors[a->used];
    bool f8 = t->type == SAFETENSOR_F8_E4M3;
    size_t bytes, offset;
    if (!mul_fits((size_t)t->bytes, f8 ? 2 : 1, &bytes) || !align_fits(*end, HF_ALIGN, &offset) ||
        !add_fits(offset, bytes, end))
        return err_set(err, -EINVAL, "its tensors have more than 2^64 bytes");
    *g = (struct gguf_tensor){ .name = arena_str(&a->arena, str_from(name)),
                               .n_dims = t->n_dims,
                               .type = types[t->type],
                               .elements = t->elements,
                               .offset = offset,
                               .bytes = bytes };
    if (!g->name.data) return err_set(err, -ENOMEM, "no memory for the names");
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++)
        g->dims[i] = i < t->n_dims ? t->dims[t->n_dims - 1 - i] : 1;
    *s = (struct segment){
        .offset = offset, .bytes = bytes, .from = t->offset, .file = file, .f8 = f8
    };
    s->row_bytes = bytes / (t->elements / g->dims[0]);
    uint32_t heads = str_ends(g->name, STR(".attn_q.weight"))   ? a->heads
                     : str_ends(g->name, STR(".attn_k.weight")) ? a->kv_heads
                                                                : 0;
    if (heads > 0) {
        if (t->n_dims != 2 || t->dims[0] % heads != 0 || t->dims[0] / heads % 2 != 0 ||
            t->dims[0] / heads > UINT32_MAX)
            return err_set(err, -EINVAL,
                           "tensor '" STR_FMT "' has no rows for %u heads of even size",
                           STR_ARG(t->name), heads);
        s->head_rows = (uint32_t)(t->dims[0] / heads);
    }
    a->used++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

/* Adds the tensor that GGUF files have for the scaling of Llama 3.1: it follows from config.json. */
static int add_rope_factors(struct hf_all *a, uint64_t *end, struct err *err)
{
    if (!a->rope.llama3) return 0;
    const uint32_t pairs = (a->head_dim ? a->head_dim : a->width / a->heads) / 2;
    const size_t bytes = pairs * sizeof(float);
    size_t offset;
    if (pairs == 0 || pairs > KV_HEAD_DIM_MAX)
        return err_set(err, -EINVAL, "%s/config.json: heads of %u pairs to rotate, 1 to %d are",
                       a->folder, pairs, KV_HEAD_DIM_MAX);
    float *factors = arena_array(&a->arena, pairs, sizeof *factors);
    if (!factors) return err_set(err, -ENOMEM, "%s: no memory", a->folder);
    if (!align_fits(*end, HF_ALIGN, &offset) || !add_fits(offset, bytes, end))
        return err_set(err, -EINVAL, "%s: its tensors have more than 2^64 bytes", a->folder);
    hf_rope_factors(&a->rope, pairs, factors);
    a->segments[a->used] = (struct segment){
        .offset = offset, .bytes = bytes, .memory = (const char *)factors, .row_bytes = bytes
    };
    a->tensors[a->used++] = (struct gguf_tensor){ .name = STR("rope_freqs.weight"),
                                                  .n_dims = 1,
                                                  .dims = { pairs, 1, 1, 1 },
                                                  .type = WEIGHT_F32,
                                                  .elements = pairs,
                                                  .offset = offset,
                                                  .bytes = bytes };
    return 0;
}

static int join(struct hf_all *a, struct err *err)
{
    size_t count = 0;
    uint64_t end = 0;
    for (uint32_t i = 0; i < a->file_count; i++)
        count += a->files[i].table->count;
    if (count > GGUF_TENSORS_MAX)
        return err_set(err, -E2BIG, "%s: %zu tensors, at most %u are read", a->folder, count,
                       GGUF_TENSORS_MAX);
    a->segments = calloc(count + 1, sizeof *a->segments); /* and the factors of RoPE */
    a->tensors = calloc(count + 1, sizeof *a->tensors);
    if (!a->segments || !a->tensors)
        return err_set(err, -ENOMEM, "%s: no memory for the tensor table", a->folder);
    for (uint32_t i = 0; i < a->file_count; i++) {
        for (uint32_t t = 0; t < a->files[i].table->count; t++) {
            int rc = take_tensor(a, i, &a->files[i].table->tensors[t], &end, err);
            if (rc < 0) return err_prefix(err, rc, "%s", a->files[i].path);
        }
    }
    int made = add_rope_factors(a, &end, err);
    if (made < 0) return made;
    if (!align_fits(end, HF_ALIGN, &end))
        return err_set(err, -EINVAL, "%s: its tensors have more than 2^64 bytes", a->folder);
    qsort(a->tensors, a->used, sizeof *a->tensors, by_name);
    for (uint32_t i = 1; i < a->used; i++)
        if (str_eq(a->tensors[i - 1].name, a->tensors[i].name))
            return err_set(err, -EINVAL, "%s: tensor '" STR_FMT "' is there twice", a->folder,
                           STR_ARG(a->tensors[i].name));
    a->source =
        (struct gguf_source){ .name = a->folder, .bytes = end, .read = read_joint, .ctx = a };
    a->gguf = (struct gguf){ .file = str_from(a->folder),
                             .values = a->values,
                             .tensors = a->tensors,
                             .value_count = a->value_count,
                             .tensor_count = a->used };
    a->model = (struct hf_model){ &a->gguf, &a->source };
    if (!a->tied && !gguf_tensor_find(&a->gguf, STR("output.weight")))
        return err_set(err, -EINVAL,
                       "%s: tensor 'lm_head.weight' is missing, and config.json does not say "
                       "tie_word_embeddings",
                       a->folder);
    return 0;
}

/* A file stands for its folder. */
static int find_folder(struct hf_all *a, const char *path, struct err *err)
{
    struct str folder = str_from(path);
    if (str_ends(folder, STR(".safetensors"))) folder.len -= base_name(path).len;
    while (folder.len > 1 && folder.data[folder.len - 1] == '/')
        folder.len--;
    if (folder.len == 0) folder = STR(".");
    if (folder.len >= HF_PATH_MAX - HF_NAME_MAX)
        return err_set(err, -ENAMETOOLONG, "a path of %zu bytes", folder.len);
    snprintf(a->folder, sizeof a->folder, STR_FMT, STR_ARG(folder));
    return 0;
}

int hf_model_open(const char *path, struct hf_model **ret, struct err *err)
{
    CLEANUP(hf_model_freep) struct hf_model *m = NULL;
    struct hf_all *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, -ENOMEM, "%s: no memory to read it", path);
    m = &a->model;
    arena_init(&a->arena, HF_MEMORY_BYTES_MAX);
    int rc = find_folder(a, path, err);
    if (rc == 0) rc = read_config(a, err);
    if (rc == 0) rc = open_files(a, err);
    if (rc == 0) rc = join(a, err);
    if (rc < 0) return rc;
    *ret = TAKE(m);
    return 0;
}

int hf_model_tokenizer(const struct hf_model *m, struct vocab **ret,
                       struct chat_template **ret_template, struct err *err)
{
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    const char *folder = m->source->name;
    const struct gguf_tensor *rows = gguf_tensor_find(m->gguf, STR("token_embd.weight"));
    int rc = hf_folder_tokenizer(folder, &vocab, &template, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    if (rows && rows->n_dims == 2 && rows->dims[1] != vocab_count(vocab))
        return err_set(
            err, -EINVAL,
            "%s: %u tokens (tokenizer.json, with those that vocab_size of config.json adds), "
            "but %llu rows of model.embed_tokens.weight",
            folder, vocab_count(vocab), (unsigned long long)rows->dims[1]);
    *ret = TAKE(vocab);
    *ret_template = TAKE(template);
    return 0;
}

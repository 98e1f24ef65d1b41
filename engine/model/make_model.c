/* make_model.c - makes model files of random weights, and rounds the weights of files.
 *
 * A wide random matrix is put together from a pool of rounded chunks: drawing each weight and searching
 * its block's scale would take minutes for a billion of them. Two rows of ROW_CHUNKS chunks are equal by
 * a chance of 1 in 2^80; narrower rows are drawn anew, for equal rows of an embedding are equal tokens. */
#include "engine/model/make_model.h"

#include "base/core/bits.h"
#include "base/core/rng.h"
#include "engine/model/gguf_shards.h"
#include "engine/model/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define POOL_CHUNKS 1024u
#define ROW_CHUNKS 8u                 /* at least so many in a row that is put together */
#define PIECE_BYTES ((size_t)1 << 20) /* rows are read and written about this much at a time */
#define FILE_QUANT_VERSION 2u

static void freep(char **p)
{
    free(*p);
}

const char *made_type_names(void)
{
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K";
}

static int check_type(enum weight_type_id type, struct err *err)
{
    if (weight_types[type].from_f32) return 0;
    return err_set(err, -ENOTSUP, "type %s is read but not written; these are: %s",
                   weight_types[type].name, made_type_names());
}

static void tell(const struct make_progress *p, uint64_t done, uint64_t total)
{
    if (p && p->fn) p->fn(p->ctx, done, total);
}

/* ---- random weights */

struct maker {
    const struct random_model *m;
    struct gguf_writer *writer;
    const struct make_progress *progress;
    struct err *err;
    struct rng rng;
    uint64_t done, total;
    uint32_t pool_cols; /* that the pool was made for; 0: none */
    uint32_t chunk;     /* elements of a chunk of it */
    size_t chunk_bytes;
    char *pool, *piece;
};

/* The sum of twelve uniform numbers less their mean: near enough to normal. */
static float near_normal(struct rng *rng)
{
    uint64_t bits = rng_u64(rng), more = rng_u64(rng);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 6; i++)
        sum += (uint32_t)(bits >> i * 10 & 1023) + (uint32_t)(more >> i * 10 & 1023);
    return ((float)sum - 6 * 1023.0f) / 1024;
}

static void draw_chunk(struct maker *k, char *to)
{
    float x[QUANT_SUPER], scale = (float)(1 / sqrt((double)k->pool_cols));
    for (uint32_t j = 0; j < k->chunk; j++)
        x[j] = near_normal(&k->rng) * scale;
    weight_types[k->m->type].from_f32(x, k->chunk, to);
}

static void choose_chunk(struct maker *k, uint32_t cols)
{
    k->chunk = cols % QUANT_SUPER == 0 ? QUANT_SUPER : cols % QUANT_BLOCK == 0 ? QUANT_BLOCK : 1;
    k->chunk_bytes = weight_row_bytes(k->m->type, k->chunk);
    k->pool_cols = cols;
    for (uint32_t i = 0; i < POOL_CHUNKS && cols / k->chunk >= ROW_CHUNKS; i++)
        draw_chunk(k, k->pool + i * k->chunk_bytes);
}

static int write_matrix(struct maker *k, uint32_t rows, uint32_t cols)
{
    size_t used = 0;
    if (k->pool_cols != cols) choose_chunk(k, cols);
    uint64_t chunks = (uint64_t)rows * (cols / k->chunk);
    for (uint64_t i = 0; i < chunks; i++) {
        if (cols / k->chunk < ROW_CHUNKS)
            draw_chunk(k, k->piece + used);
        else
            memcpy(k->piece + used, k->pool + rng_u64(&k->rng) % POOL_CHUNKS * k->chunk_bytes,
                   k->chunk_bytes);
        used += k->chunk_bytes;
        if (used + k->chunk_bytes <= PIECE_BYTES && i + 1 < chunks) continue;
        int rc = gguf_writer_data(k->writer, k->piece, used, k->err);
        if (rc < 0) return rc;
        k->done += used, used = 0;
        tell(k->progress, k->done, k->total);
    }
    return 0;
}

static int write_norm(struct maker *k, uint32_t count)
{
    const float one = 1;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = gguf_writer_data(k->writer, &one, sizeof one, k->err);
    k->done += count * sizeof one;
    return rc;
}

/* Puts one tensor into the table, or, with data, writes it: both walk the same list. */
static int each_tensor(struct maker *k, bool data, const char *name, uint32_t rows, uint32_t cols)
{
    const uint64_t dims[2] = { cols, rows };
    if (data) return rows ? write_matrix(k, rows, cols) : write_norm(k, cols);
    gguf_put_tensor(k->writer, str_from(name), rows ? 2 : 1, dims, rows ? k->m->type : WEIGHT_F32);
    return 0;
}

static int llama_layer(struct maker *k, bool data, uint32_t layer)
{
    const struct random_model *m = k->m;
    uint32_t kv = m->width / m->heads * m->kv_heads;
    const struct {
        const char *name;
        uint32_t rows, cols; /* rows 0: a norm */
    } tensor[] = {
        { "attn_norm", 0, m->width },
        { "attn_q", m->width, m->width },
        { "attn_k", kv, m->width },
        { "attn_v", kv, m->width },
        { "attn_output", m->width, m->width },
        { "ffn_norm", 0, m->width },
        { "ffn_gate", m->ff, m->width },
        { "ffn_up", m->ff, m->width },
        { "ffn_down", m->width, m->ff },
    };
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(tensor) && rc == 0; i++) {
        char name[GGUF_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensor[i].name);
        rc = each_tensor(k, data, name, tensor[i].rows, tensor[i].cols);
    }
    return rc;
}

static int llama_tensors(struct maker *k, bool data)
{
    const struct random_model *m = k->m;
    int rc = each_tensor(k, data, "token_embd.weight", m->vocab, m->width);
    for (uint32_t i = 0; i < m->layers && rc == 0; i++)
        rc = llama_layer(k, data, i);
    if (rc == 0) rc = each_tensor(k, data, "output_norm.weight", 0, m->width);
    if (rc == 0 && !m->tied) rc = each_tensor(k, data, "output.weight", m->vocab, m->width);
    return rc;
}

static void llama_values(struct gguf_writer *w, const struct random_model *m)
{
    gguf_put_str(w, "general.architecture", STR("llama"));
    gguf_put_str(w, "general.name", STR("random llama"));
    gguf_put_u32(w, "general.file_type", weight_types[m->type].file_type);
    gguf_put_u32(w, "general.quantization_version", FILE_QUANT_VERSION);
    gguf_put_u32(w, "llama.vocab_size", m->vocab);
    gguf_put_u32(w, "llama.context_length", m->context);
    gguf_put_u32(w, "llama.embedding_length", m->width);
    gguf_put_u32(w, "llama.block_count", m->layers);
    gguf_put_u32(w, "llama.feed_forward_length", m->ff);
    gguf_put_u32(w, "llama.attention.head_count", m->heads);
    gguf_put_u32(w, "llama.attention.head_count_kv", m->kv_heads);
    gguf_put_u32(w, "llama.rope.dimension_count", m->width / m->heads);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_f32(w, "llama.rope.freq_base", 10000);
    if (!m->tokenizer) gguf_put_str(w, "tokenizer.ggml.model", STR("no_vocab"));
    for (uint32_t i = 0; m->tokenizer && i < m->tokenizer->value_count; i++)
        if (str_starts(m->tokenizer->values[i].key, STR("tokenizer.")))
            gguf_put_value(w, &m->tokenizer->values[i]);
}

static int check_shape(const struct random_model *m, struct err *err)
{
    const struct weight_type *t = &weight_types[m->type];
    if (!str_eq(str_from(m->arch), STR("llama")))
        return err_set(err, -ENOTSUP, "architecture '%s' is not made; llama is", m->arch);
    int rc = check_type(m->type, err);
    if (rc < 0) return rc;
    if (m->width % m->heads != 0)
        return err_set(err, -EINVAL, "a width of %u is no multiple of %u heads", m->width,
                       m->heads);
    if (m->heads % m->kv_heads != 0)
        return err_set(err, -EINVAL, "%u heads cannot share %u KV heads evenly", m->heads,
                       m->kv_heads);
    if (m->width / m->heads % TILE_ROWS != 0)
        return err_set(err, -EINVAL, "heads of %u; the engine computes multiples of %d",
                       m->width / m->heads, TILE_ROWS);
    const uint32_t cols[] = { m->width, m->ff };
    for (size_t i = 0; i < COUNT_OF(cols); i++)
        if (cols[i] % t->block_elements != 0)
            return err_set(
                err, -EINVAL,
                "rows of %u elements; %s comes in blocks of %u: choose another width, or "
                "another type",
                cols[i], t->name, t->block_elements);
    return 0;
}

/* Takes the size of the vocabulary from the tokenizer. */
static int take_vocab(struct random_model *m, struct err *err)
{
    const struct gguf_value *tokens = NULL;
    int rc = gguf_get_array(m->tokenizer, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, err);
    if (rc < 0) return -EINVAL;
    if (tokens->array.count == 0 || tokens->array.count > MAKE_VOCAB_MAX)
        return err_set(err, -EINVAL, STR_FMT ": a tokenizer of %zu tokens; 1 to %u are possible",
                       STR_ARG(m->tokenizer->file), tokens->array.count, MAKE_VOCAB_MAX);
    m->vocab = (uint32_t)tokens->array.count;
    return 0;
}

int random_model_write(const struct random_model *wanted, const char *path,
                       const struct make_progress *progress, struct err *err)
{
    struct random_model shape = *wanted;
    const struct random_model *m = &shape;
    CLEANUP(gguf_writer_freep) struct gguf_writer *w = NULL;
    CLEANUP(freep) char *pool = malloc(POOL_CHUNKS * QUANT_SUPER * sizeof(float));
    CLEANUP(freep) char *piece = malloc(PIECE_BYTES);
    int rc = check_shape(m, err);
    if (rc == 0 && m->tokenizer) rc = take_vocab(&shape, err);
    if (rc < 0) return rc;
    if (!pool || !piece) return err_set(err, -ENOMEM, "%s: no memory to make it", path);
    rc = gguf_writer_new(path, &w, err);
    if (rc < 0) return rc;
    struct maker k = {
        .m = m, .writer = w, .progress = progress, .err = err, .pool = pool, .piece = piece
    };
    rng_seed(&k.rng, m->seed);
    llama_values(w, m);
    rc = llama_tensors(&k, false);
    if (rc == 0) rc = gguf_writer_begin(w, &k.total, err);
    if (rc == 0) rc = llama_tensors(&k, true);
    return rc < 0 ? rc : gguf_writer_finish(w, err);
}

/* ---- rounding */

struct rounder {
    const struct gguf_source *source;
    struct gguf_writer *writer;
    const struct make_progress *progress;
    struct quantise_result *result;
    struct err *err;
    double off, all; /* squares */
    uint64_t done, total;
};

static int by_offset(const void *a, const void *b)
{
    uint64_t x = (*(const struct gguf_tensor *const *)a)->offset;
    uint64_t y = (*(const struct gguf_tensor *const *)b)->offset;
    return (x > y) - (x < y);
}

/* Vectors stay; rows that are no whole blocks of the type take the nearest type that fits. */
static enum weight_type_id type_for(const struct gguf_tensor *t, enum weight_type_id type)
{
    if (t->n_dims < 2) return t->type;
    if (t->dims[0] % weight_types[type].block_elements == 0) return type;
    return t->dims[0] % QUANT_BLOCK == 0 ? WEIGHT_Q8_0 : WEIGHT_F16;
}

static int check_source(const struct gguf *g, const char *path, struct err *err)
{
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (t->n_dims < 2 || weight_types[t->type].block_elements == 1) continue;
        return err_set(err, -ENOTSUP,
                       "%s: tensor '" STR_FMT
                       "' is %s already; rounding twice loses more than once: "
                       "start from a file in F32, F16 or BF16, or pass --requantize",
                       path, STR_ARG(t->name), weight_types[t->type].name);
    }
    return 0;
}

static int copy_tensor(struct rounder *r, const struct gguf_tensor *t, char *piece)
{
    for (uint64_t at = 0; at < t->bytes;) {
        size_t n = min_size(PIECE_BYTES, (size_t)(t->bytes - at));
        int rc = r->source->read(r->source->ctx, t->offset + at, piece, n, r->err);
        if (rc == 0) rc = gguf_writer_data(r->writer, piece, n, r->err);
        if (rc < 0) return rc;
        at += n, r->done += n;
    }
    return 0;
}

/* Rounds one row at `raw` in place of the types' rows: F32 in x, the result in `to`. */
static int round_row(struct rounder *r, const struct gguf_tensor *t, enum weight_type_id type,
                     const char *raw, float *x, float *back, char *to)
{
    uint32_t cols = (uint32_t)t->dims[0];
    weight_types[t->type].to_f32(raw, cols, x);
    weight_types[type].from_f32(x, cols, to);
    weight_types[type].to_f32(to, cols, back);
    double off = 0, all = 0;
    for (uint32_t i = 0; i < cols; i++) {
        double e = (double)back[i] - (double)x[i];
        off += e * e, all += (double)x[i] * (double)x[i];
    }
    r->off += off, r->all += all;
    if (isfinite(all) && isfinite(off)) return 0;
    return err_set(r->err, -EINVAL,
                   "a weight is infinite, NaN, or beyond what %s can hold; the file is damaged or "
                   "wants a wider type",
                   weight_types[type].name);
}

struct rows {
    char *raw, *to;
    float *x, *back;
};

static void rows_fini(struct rows *b)
{
    free(b->raw), free(b->to), free(b->x), free(b->back);
}

static int round_tensor(struct rounder *r, const struct gguf_tensor *t, enum weight_type_id type)
{
    uint32_t cols = (uint32_t)t->dims[0];
    size_t from_bytes = weight_row_bytes(t->type, cols), to_bytes = weight_row_bytes(type, cols);
    uint64_t rows = t->elements / cols, at_once = PIECE_BYTES / (cols * sizeof(float)) + 1;
    CLEANUP(rows_fini)
    struct rows b = { malloc(at_once * from_bytes), malloc(at_once * to_bytes),
                      malloc(cols * sizeof(float)), malloc(cols * sizeof(float)) };
    if (!b.raw || !b.to || !b.x || !b.back) return err_set(r->err, -ENOMEM, "no memory for a row");
    for (uint64_t row = 0; row < rows; row += at_once) {
        uint64_t n = min_u64(at_once, rows - row);
        int rc = r->source->read(r->source->ctx, t->offset + row * from_bytes, b.raw,
                                 (size_t)n * from_bytes, r->err);
        for (uint64_t i = 0; i < n && rc == 0; i++)
            rc = round_row(r, t, type, b.raw + i * from_bytes, b.x, b.back, b.to + i * to_bytes);
        if (rc == 0) rc = gguf_writer_data(r->writer, b.to, (size_t)n * to_bytes, r->err);
        if (rc < 0) return rc;
        r->done += n * to_bytes;
        tell(r->progress, r->done, r->total);
    }
    return 0;
}

static void put_values(struct gguf_writer *w, const struct gguf *g, enum weight_type_id type)
{
    static const char *const own[] = { "general.file_type", "general.alignment",
                                       "general.quantization_version" };
    for (uint32_t i = 0; i < g->value_count; i++) {
        bool ours = str_starts(g->values[i].key, STR("split."));
        for (size_t j = 0; j < COUNT_OF(own); j++)
            ours = ours || str_eq(g->values[i].key, str_from(own[j]));
        if (!ours) gguf_put_value(w, &g->values[i]);
    }
    gguf_put_u32(w, "general.file_type", weight_types[type].file_type);
    gguf_put_u32(w, "general.quantization_version", FILE_QUANT_VERSION);
}

static int round_all(struct rounder *r, const struct gguf_tensor **order, uint32_t count,
                     enum weight_type_id type)
{
    CLEANUP(freep) char *piece = malloc(PIECE_BYTES);
    if (!piece) return err_set(r->err, -ENOMEM, "no memory to copy");
    for (uint32_t i = 0; i < count; i++) {
        const struct gguf_tensor *t = order[i];
        enum weight_type_id to = type_for(t, type);
        bool kept = t->n_dims < 2;
        int rc = kept ? copy_tensor(r, t, piece) : round_tensor(r, t, to);
        if (rc < 0)
            return err_prefix(r->err, rc, "%s: tensor '" STR_FMT "'", r->source->name,
                              STR_ARG(t->name));
        r->result->kept += kept;
        r->result->tensors += !kept;
        r->result->fallback += !kept && to != type;
    }
    r->result->error = r->all > 0 ? sqrt(r->off / r->all) : 0;
    return 0;
}

int quantise_model(const char *from, const char *to, enum weight_type_id type, bool again,
                   const struct make_progress *progress, struct quantise_result *ret,
                   struct err *err)
{
    CLEANUP(gguf_shards_freep) struct gguf_shards *file = NULL;
    CLEANUP(gguf_writer_freep) struct gguf_writer *w = NULL;
    struct quantise_result result = { 0 };
    int rc = check_type(type, err);
    if (rc == 0) rc = gguf_shards_open(from, &file, err);
    if (rc == 0 && !again) rc = check_source(file->gguf, from, err);
    if (rc == 0) rc = gguf_writer_new(to, &w, err);
    if (rc < 0) return rc;
    const struct gguf *g = file->gguf;
    const struct gguf_tensor **order = calloc(g->tensor_count + 1, sizeof *order);
    if (!order) return err_set(err, -ENOMEM, "%s: no memory", from);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        order[i] = &g->tensors[i];
    qsort(order, g->tensor_count, sizeof *order, by_offset); /* reads front to back */
    put_values(w, g, type);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        gguf_put_tensor(w, order[i]->name, order[i]->n_dims, order[i]->dims,
                        type_for(order[i], type));
    struct rounder r = {
        .source = file->source, .writer = w, .progress = progress, .result = &result, .err = err
    };
    rc = gguf_writer_begin(w, &r.total, err);
    if (rc == 0) rc = round_all(&r, order, g->tensor_count, type);
    free(order);
    if (rc == 0) rc = gguf_writer_finish(w, err);
    if (rc == 0) *ret = result;
    return rc;
}

/* make_model.c - makes model files of random weights.
 *
 * A wide random matrix is put together from a pool of rounded chunks: drawing each weight and searching
 * its block's scale would take minutes for a billion of them. Two rows of ROW_CHUNKS chunks are equal by
 * a chance of 1 in 2^80; narrower rows are drawn anew, for equal rows of an embedding are equal tokens. */
#include "engine/model/make_model.h"

#include "base/core/bits.h"
#include "base/core/rng.h"
#include "engine/files/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define POOL_CHUNKS 1024u
#define ROW_CHUNKS 8u                 /* at least so many in a row that is put together */
#define PIECE_BYTES ((size_t)1 << 20) /* rows are read and written about this much at a time */

static void freep(char **p)
{
    free(*p);
}

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
    bool idle; /* the matrix that is written is zero */
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

static void zero_chunk(const struct maker *k, char *to)
{
    static const float zero[QUANT_SUPER];
    weight_types[k->m->type].from_f32(zero, k->chunk, to);
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
        if (k->idle)
            zero_chunk(k, k->piece + used);
        else if (cols / k->chunk < ROW_CHUNKS)
            draw_chunk(k, k->piece + used);
        else
            memcpy(k->piece + used, k->pool + rng_u64(&k->rng) % POOL_CHUNKS * k->chunk_bytes,
                   k->chunk_bytes);
        used += k->chunk_bytes;
        if (used + k->chunk_bytes <= PIECE_BYTES && i + 1 < chunks) continue;
        int rc = gguf_writer_data(k->writer, k->piece, used, k->err);
        if (rc < 0) return rc;
        k->done += used, used = 0;
        make_progress_tell(k->progress, k->done, k->total);
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
        bool adds;           /* to the residual stream */
    } tensor[] = {
        { "attn_norm", 0, m->width, false },         { "attn_q", m->width, m->width, false },
        { "attn_k", kv, m->width, false },           { "attn_v", kv, m->width, false },
        { "attn_output", m->width, m->width, true }, { "ffn_norm", 0, m->width, false },
        { "ffn_gate", m->ff, m->width, false },      { "ffn_up", m->ff, m->width, false },
        { "ffn_down", m->width, m->ff, true },
    };
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(tensor) && rc == 0; i++) {
        char name[GGUF_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensor[i].name);
        k->idle = layer + m->idle_layers >= m->layers && tensor[i].adds;
        rc = each_tensor(k, data, name, tensor[i].rows, tensor[i].cols);
    }
    k->idle = false;
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

static void put_u32(struct gguf_writer *w, const struct random_model *m, const char *name,
                    uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, name);
    gguf_put_u32(w, key, value);
}

static void put_f32(struct gguf_writer *w, const struct random_model *m, const char *name,
                    float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, name);
    gguf_put_f32(w, key, value);
}

static void llama_values(struct gguf_writer *w, const struct random_model *m)
{
    char title[64];
    snprintf(title, sizeof title, "random %s", m->arch);
    gguf_put_str(w, "general.architecture", str_from(m->arch));
    gguf_put_str(w, "general.name", str_from(title));
    gguf_put_u32(w, "general.file_type", weight_types[m->type].file_type);
    gguf_put_u32(w, "general.quantization_version", GGUF_QUANT_VERSION);
    put_u32(w, m, "vocab_size", m->vocab);
    put_u32(w, m, "context_length", m->context);
    put_u32(w, m, "embedding_length", m->width);
    put_u32(w, m, "block_count", m->layers);
    put_u32(w, m, "feed_forward_length", m->ff);
    put_u32(w, m, "attention.head_count", m->heads);
    put_u32(w, m, "attention.head_count_kv", m->kv_heads);
    put_u32(w, m, "rope.dimension_count", m->width / m->heads);
    put_f32(w, m, "attention.layer_norm_rms_epsilon", 1e-5f);
    put_f32(w, m, "rope.freq_base", 10000);
    if (m->window > 0) put_u32(w, m, "attention.sliding_window", m->window);
    if (m->window_period > 0) put_u32(w, m, "attention.sliding_window_pattern", m->window_period);
    if (!m->tokenizer) gguf_put_str(w, "tokenizer.ggml.model", STR("no_vocab"));
    for (uint32_t i = 0; m->tokenizer && i < m->tokenizer->value_count; i++)
        if (str_starts(m->tokenizer->values[i].key, STR("tokenizer.")))
            gguf_put_value(w, &m->tokenizer->values[i]);
}

static int check_arch(const struct random_model *m, struct err *err)
{
    const bool llama = str_eq(str_from(m->arch), STR("llama"));
    if (!llama && !str_eq(str_from(m->arch), STR("smollm3")))
        return err_set(err, -ENOTSUP, "architecture '%s' is not made; llama and smollm3 are",
                       m->arch);
    if (m->window_period > 0 && (llama || m->window == 0))
        return err_set(
            err, -EINVAL,
            "a window in some layers only: that takes the architecture smollm3 and a window");
    return 0;
}

static int check_shape(const struct random_model *m, struct err *err)
{
    const struct weight_type *t = &weight_types[m->type];
    int rc = check_arch(m, err);
    if (rc < 0) return rc;
    if (m->idle_layers >= m->layers)
        return err_set(err, -EINVAL, "%u idle layers of %u: at least one computes something",
                       m->idle_layers, m->layers);
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

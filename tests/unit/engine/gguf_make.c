/* gguf_make.c - writes GGUF files for tests; see gguf_make.h. */
#include "tests/unit/engine/gguf_make.h"

#include "engine/kernels/half.h"
#include "tests/unit/engine/block_scales.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void make_init(struct gguf_make *m)
{
    *m = (struct gguf_make){ .version = GGUF_VERSION, .alignment = 32, .magic = "GGUF" };
}

void make_fini(struct gguf_make *m)
{
    buf_fini(&m->values);
    buf_fini(&m->table);
    buf_fini(&m->data);
}

void make_u32_raw(struct buf *b, uint32_t v)
{
    must(buf_append(b, &v, sizeof v) == 0);
}

void make_u64_raw(struct buf *b, uint64_t v)
{
    must(buf_append(b, &v, sizeof v) == 0);
}

static void put_text(struct buf *b, const char *text)
{
    make_u64_raw(b, strlen(text));
    must(buf_text(b, text) == 0);
}

void make_key(struct gguf_make *m, const char *key, uint32_t type)
{
    put_text(&m->values, key);
    make_u32_raw(&m->values, type);
    m->value_count++;
}

void make_u32(struct gguf_make *m, const char *key, uint32_t value)
{
    make_key(m, key, GGUF_U32);
    make_u32_raw(&m->values, value);
}

void make_f32(struct gguf_make *m, const char *key, float value)
{
    make_key(m, key, GGUF_F32);
    make_u32_raw(&m->values, f32_bits(value));
}

void make_bool(struct gguf_make *m, const char *key, uint8_t value)
{
    make_key(m, key, GGUF_BOOL);
    must(buf_byte(&m->values, (char)value) == 0);
}

void make_str(struct gguf_make *m, const char *key, const char *value)
{
    make_key(m, key, GGUF_STRING);
    put_text(&m->values, value);
}

void make_tensor_row(struct gguf_make *m, const char *name, uint32_t n_dims, const uint64_t *dims,
                     uint32_t type, uint64_t offset)
{
    put_text(&m->table, name);
    make_u32_raw(&m->table, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        make_u64_raw(&m->table, dims[i]);
    make_u32_raw(&m->table, type);
    make_u64_raw(&m->table, offset);
    m->tensor_count++;
}

static void pad(struct buf *b, uint32_t alignment)
{
    while (b->len % alignment != 0)
        must(buf_byte(b, 0) == 0);
}

void make_tensor(struct gguf_make *m, const char *name, uint32_t n_dims, const uint64_t *dims,
                 uint32_t type, const void *data, size_t len)
{
    pad(&m->data, m->alignment);
    make_tensor_row(m, name, n_dims, dims, type, m->data.len);
    must(buf_append(&m->data, data, len) == 0);
}

/* Returns a sum of uniform numbers: near enough to normal, and bounded. */
static float noise(struct rng *rng, float scale)
{
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += rng_f64(rng) - 0.5;
    return (float)(sum * 1.7) * scale;
}

static void put_block_q8(struct buf *b, const float *x)
{
    float top = 0;
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        top = fmaxf(top, fabsf(x[i]));
    uint16_t scale = f32_to_f16(top / 127);
    float step = f16_to_f32(scale);
    must(buf_append(b, &scale, sizeof scale) == 0);
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        long q = step > 0 ? lroundf(x[i] / step) : 0;
        must(buf_byte(b, (char)(q > 127 ? 127 : q < -127 ? -127 : q)) == 0);
    }
}

/* Fills blocks of a type that we do not write: random bits, and scales that suit `scale`. */
static void put_random_blocks(struct buf *b, enum weight_type_id type, uint32_t count, float scale,
                              struct rng *rng)
{
    const struct weight_type *t = &weight_types[type];
    for (uint32_t i = 0; i < count / t->block_elements; i++) {
        char block[WEIGHT_BLOCK_BYTES_MAX];
        float values[QUANT_SUPER], top = 0;
        for (uint32_t j = 0; j < t->block_bytes; j++)
            block[j] = (char)rng_u64(rng);
        make_scales(type, block, 1);
        t->to_f32(block, t->block_elements, values);
        for (uint32_t j = 0; j < t->block_elements; j++)
            top = fmaxf(top, fabsf(values[j]));
        make_scales(type, block, scale / (2 * top)); /* mild: some types lean to one side */
        must(buf_append(b, block, t->block_bytes) == 0);
    }
}

static void put_values(struct buf *b, enum weight_type_id type, float *x, uint32_t count,
                       float scale, struct rng *rng)
{
    if (type == WEIGHT_Q8_0) {
        for (uint32_t i = 0; i < count; i += QUANT_BLOCK)
            put_block_q8(b, x + i);
    } else if (weight_types[type].from_f32) {
        size_t bytes = weight_row_bytes(type, count);
        char *row = calloc(1, bytes);
        must(row);
        weight_types[type].from_f32(x, count, row);
        must(buf_append(b, row, bytes) == 0);
        free(row);
    } else {
        put_random_blocks(b, type, count, scale, rng);
    }
}

void make_random(struct gguf_make *m, const char *name, enum weight_type_id type, uint32_t rows,
                 uint32_t cols, float scale, struct rng *rng)
{
    struct buf data = { 0 };
    float *row = calloc(cols, sizeof *row);
    must(row);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < cols; i++)
            row[i] = noise(rng, scale);
        put_values(&data, type, row, cols, scale, rng);
    }
    uint64_t dims[2] = { cols, rows };
    make_tensor(m, name, 2, dims, weight_types[type].gguf_id, data.data, data.len);
    free(row);
    buf_fini(&data);
}

static void make_vector(struct gguf_make *m, const char *name, uint32_t count, float offset,
                        float scale, struct rng *rng)
{
    struct buf data = { 0 };
    for (uint32_t i = 0; i < count; i++)
        make_u32_raw(&data, f32_bits(offset + noise(rng, scale)));
    uint64_t dims[1] = { count };
    make_tensor(m, name, 1, dims, weight_types[WEIGHT_F32].gguf_id, data.data, data.len);
    buf_fini(&data);
}

static const char *family(const struct llama_shape *s)
{
    return s->window_period > 0 ? "smollm3" : "llama";
}

static const char *key_of(const struct llama_shape *s, const char *name)
{
    static char key[96];
    snprintf(key, sizeof key, "%s.%s", family(s), name);
    return key;
}

static void make_llama_keys(struct gguf_make *m, const struct llama_shape *s)
{
    make_str(m, "general.architecture", family(s));
    make_str(m, "general.name", "random");
    if (!s->own_tokenizer) make_str(m, "tokenizer.ggml.model", "no_vocab");
    make_u32(m, key_of(s, "vocab_size"), s->vocab);
    make_u32(m, key_of(s, "context_length"), s->context);
    make_u32(m, key_of(s, "embedding_length"), s->embd);
    make_u32(m, key_of(s, "block_count"), s->layers);
    make_u32(m, key_of(s, "feed_forward_length"), s->ff);
    make_u32(m, key_of(s, "attention.head_count"), s->heads);
    make_u32(m, key_of(s, "attention.head_count_kv"), s->kv_heads);
    make_u32(m, key_of(s, "attention.key_length"), s->head_dim);
    make_u32(m, key_of(s, "attention.value_length"), s->head_dim);
    make_f32(m, key_of(s, "attention.layer_norm_rms_epsilon"), 1e-5f);
    make_f32(m, key_of(s, "rope.freq_base"), 500.0f); /* low, so that short contexts rotate far */
    if (s->rope_dims) make_u32(m, key_of(s, "rope.dimension_count"), s->rope_dims);
    if (s->rope_scale > 0) {
        make_str(m, key_of(s, "rope.scaling.type"), "linear");
        make_f32(m, key_of(s, "rope.scaling.factor"), s->rope_scale);
    }
    if (s->window > 0) make_u32(m, key_of(s, "attention.sliding_window"), s->window);
    if (s->window_period > 0)
        make_u32(m, key_of(s, "attention.sliding_window_pattern"), s->window_period);
}

static void make_layer(struct gguf_make *m, const struct llama_shape *s, uint32_t layer,
                       const char *skip, struct rng *rng)
{
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const struct {
        const char *name;
        uint32_t rows, cols;
    } matrix[] = {
        { "attn_q", q, s->embd },       { "attn_k", kv, s->embd },
        { "attn_v", kv, s->embd },      { "attn_output", s->embd, q },
        { "ffn_gate", s->ff, s->embd }, { "ffn_up", s->ff, s->embd },
        { "ffn_down", s->embd, s->ff },
    };
    char name[64];
    for (size_t i = 0; i < COUNT_OF(matrix); i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, matrix[i].name);
        if (skip && strcmp(skip, name) == 0) continue;
        float scale = 1.2f / sqrtf((float)matrix[i].cols);
        if (s->idle_from > 0 && layer >= s->idle_from && matrix[i].rows == s->embd) scale = 0;
        make_random(m, name, s->type, matrix[i].rows, matrix[i].cols, scale, rng);
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", layer);
    make_vector(m, name, s->embd, s->norm_offset, 0.3f, rng);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", layer);
    make_vector(m, name, s->embd, s->norm_offset, 0.3f, rng);
}

void make_llama(struct gguf_make *m, const struct llama_shape *s, uint64_t seed, const char *skip)
{
    struct rng rng;
    rng_seed(&rng, seed);
    make_llama_keys(m, s);
    make_random(m, "token_embd.weight", s->type, s->vocab, s->embd, 0.7f, &rng);
    make_vector(m, "output_norm.weight", s->embd, s->norm_offset, 0.3f, &rng);
    if (!s->tied) make_random(m, "output.weight", s->type, s->vocab, s->embd, 0.2f, &rng);
    if (s->rope_factors) {
        uint32_t dims = s->rope_dims ? s->rope_dims : s->head_dim;
        make_vector(m, "rope_freqs.weight", dims / 2, 3.0f, 0.5f, &rng);
    }
    for (uint32_t i = 0; i < s->layers; i++)
        make_layer(m, s, i, skip, &rng);
}

void make_finish(const struct gguf_make *m, struct buf *out)
{
    must(buf_text(out, m->magic) == 0);
    make_u32_raw(out, m->version);
    make_u64_raw(out, m->tensor_count);
    make_u64_raw(out, m->value_count);
    must(buf_append(out, m->values.data, m->values.len) == 0);
    must(buf_append(out, m->table.data, m->table.len) == 0);
    pad(out, m->alignment);
    must(buf_append(out, m->data.data, m->data.len) == 0);
}

int make_path(const struct gguf_make *m, char ret_path[64])
{
    struct buf file = { 0 };
    make_finish(m, &file);
    int fd = memfd_create("made.gguf", MFD_CLOEXEC);
    must(fd >= 0);
    must(write(fd, file.data, file.len) == (ssize_t)file.len);
    buf_fini(&file);
    snprintf(ret_path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static int memory_read(void *ctx, uint64_t offset, void *data, size_t len, struct err *err)
{
    const struct str *file = ctx;
    (void)err;
    must(offset <= file->len && len <= file->len - offset); /* gguf.h guarantees it */
    if (len > 0) memcpy(data, file->data + offset, len);
    return 0;
}

struct gguf_source memory_source(const struct str *file)
{
    return (struct gguf_source){
        .name = "test.gguf", .bytes = file->len, .read = memory_read, .ctx = (void *)(uintptr_t)file
    };
}

int parse_memory(struct str file, struct gguf **ret, struct err *err)
{
    const struct gguf_source source = memory_source(&file);
    return gguf_parse(&source, ret, err);
}

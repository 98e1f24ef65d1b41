/* hf_packed.c - goes through the packed weights once, front to back, in bands of about a MiB, and puts each run of
 * 32 columns of a row into its block.
 *
 *     w = scale (q - zero)        Q4_0  d (q - 8)      d = scale, where zero is 8
 *                                 Q4_1  d q + m        d = scale, m = -scale zero
 *
 * The product scale * zero is exact in F32 for scales of F16 and BF16; rounded to F16 it is off by at most
 * 15 * 2^-11 scale, 0.7 % of the distance between two weights. A Q5_0 block would hold q - zero exactly, for half a
 * bit more of each weight; that was not taken.
 *
 * With act-order each column of a group of 32 may have another scale, and no block type carries that: such rows are
 * computed in F32 and rounded to Q8_0. */
#include "engine/files/hf_packed.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "engine/kernels/half.h"

#include <math.h>
#include <stdlib.h>

#define BAND_BYTES ((size_t)1 << 20)
#define PER_WORD 8u /* weights in an I32 */
#define ZERO 8      /* of symmetric weights */
#define E8M0_NAN 255

/* Scales and zero points, [scales_down][scales_across]; zeros is NULL where all are 8. */
struct scales {
    float *scale;
    uint8_t *zero;
};

static void scales_fini(struct scales *s)
{
    free(s->scale);
    free(s->zero);
}

static void freep(char **p)
{
    free(*p);
}

size_t hf_packed_row_bytes(const struct hf_packed *p)
{
    return weight_row_bytes(p->type, p->cols);
}

size_t hf_packed_bytes(const struct hf_packed *p)
{
    return hf_packed_row_bytes(p) * p->rows;
}

/* Reads `len` bytes at `at` of the tensor's. */
static int read_part(const struct hf_part *p, uint64_t at, void *to, size_t len, struct err *err)
{
    const struct gguf_source *s = &p->file->file.source;
    must(at <= p->tensor->bytes && len <= p->tensor->bytes - at);
    int rc = s->read(s->ctx, p->tensor->offset + at, to, len, err);
    return rc < 0 ? err_prefix(err, rc, "%s", p->file->path) : 0;
}

static char *take(size_t bytes, struct err *err)
{
    char *p = malloc(bytes);
    if (!p) err_set(err, -ENOMEM, "no memory to unpack weights");
    return p;
}

/* Returns true for layouts whose scales and zero points have rows beside each other. */
static bool is_upright(const struct hf_packed *p)
{
    return p->layout == HF_COLUMNS_PACKED || p->layout == HF_ROWS_PACKED;
}

/* ---- scales and zero points */

/* Returns the bit at which row `row` of eight lies in its word. */
static uint32_t shift_of_row(enum hf_layout layout, uint32_t row)
{
    static const uint8_t place[PER_WORD] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    row %= PER_WORD;
    return 4 * (layout == HF_ROWS_PACKED ? place[row] : row);
}

static int check_scale(const struct hf_packed *p, float scale, uint32_t row, uint32_t group,
                       struct err *err)
{
    const float times = p->type == WEIGHT_Q4_1  ? 15
                        : p->type == WEIGHT_F16 ? 448
                                                : 1; /* m; the largest F8 */
    float most = times * fabsf(scale);
    if (isfinite(f16_to_f32(f32_to_f16(most)))) return 0;
    return err_set(err, -EINVAL,
                   "tensor '" STR_FMT
                   "': the scale of row %u, group %u is %g; %g of it must be in F16's range",
                   STR_ARG(p->scales.tensor->name), row, group, (double)scale, (double)times);
}

static int read_scales(const struct hf_packed *p, struct scales *s, struct err *err)
{
    static const enum weight_type_id types[] = { [SAFETENSOR_F32] = WEIGHT_F32,
                                                 [SAFETENSOR_F16] = WEIGHT_F16,
                                                 [SAFETENSOR_BF16] = WEIGHT_BF16 };
    const struct safetensor *t = p->scales.tensor;
    const uint32_t down = p->scales_down, across = p->scales_across;
    size_t count = (size_t)down * across;
    CLEANUP(freep) char *raw = take((size_t)t->bytes, err);
    CLEANUP(freep) char *read = take(count * sizeof(float), err);
    s->scale = (float *)(void *)take(count * sizeof(float), err);
    if (!raw || !read || !s->scale) return -ENOMEM;
    float *values = (float *)(void *)read;
    int rc = read_part(&p->scales, 0, raw, (size_t)t->bytes, err);
    if (rc < 0) return rc;
    weight_types[types[t->type]].to_f32(raw, (uint32_t)count, values);
    for (uint32_t r = 0; r < down; r++)
        for (uint32_t g = 0; g < across; g++) {
            float scale =
                is_upright(p) ? values[(size_t)g * down + r] : values[(size_t)r * across + g];
            rc = check_scale(p, scale, r, g, err);
            if (rc < 0) return rc;
            s->scale[(size_t)r * across + g] = scale;
        }
    return 0;
}

/* GPTQModel takes one off each word, with borrows, and adds it again; so do we. */
static uint32_t zeros_word(const struct hf_packed *p, uint32_t word)
{
    return p->zeros_less_one ? word + 0x11111111u : word;
}

static int read_zeros(const struct hf_packed *p, struct scales *s, struct err *err)
{
    const struct safetensor *t = p->zeros.tensor;
    const uint32_t rows = p->rows, groups = p->scales_across, words = rows / PER_WORD;
    CLEANUP(freep) char *raw = take((size_t)t->bytes, err);
    s->zero = (uint8_t *)take((size_t)rows * groups, err);
    if (!raw || !s->zero) return -ENOMEM;
    int rc = read_part(&p->zeros, 0, raw, (size_t)t->bytes, err);
    if (rc < 0) return rc;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < groups; g++) {
            size_t at = is_upright(p) ? (size_t)g * words + r / PER_WORD
                                      : (size_t)(r / PER_WORD) * groups + g;
            uint32_t word = zeros_word(p, load_u32(raw + at * 4));
            uint8_t zero = word >> shift_of_row(p->layout, r) & 15;
            s->zero[(size_t)r * groups + g] = zero;
            if (p->type != WEIGHT_Q4_0 || zero == ZERO) continue;
            return err_set(err, -EINVAL,
                           "tensor '" STR_FMT
                           "': the zero point of row %u, group %u is %u, but config.json says "
                           "sym: true, which is %d",
                           STR_ARG(t->name), r, g, zero, ZERO);
        }
    return 0;
}

/* ---- blocks of 4 bits */

static void put_half(char *p, float f)
{
    uint16_t h = f32_to_f16(f);
    memcpy(p, &h, sizeof h);
}

static void put_nibbles(const uint8_t q[QUANT_BLOCK], char *to)
{
    for (uint32_t i = 0; i < QUANT_BLOCK / 2; i++)
        to[i] = (char)(q[i] | q[i + QUANT_BLOCK / 2] << 4);
}

/* Writes the block of `q` at column `col` of a row. */
static void put_block(const struct hf_packed *p, const struct scales *s, uint32_t row, uint32_t col,
                      const uint8_t q[QUANT_BLOCK], char *to)
{
    const float *scale = s->scale + (size_t)row * p->scales_across;
    const uint8_t *zero = s->zero ? s->zero + (size_t)row * p->scales_across : NULL;
    if (p->group_of) {
        float x[QUANT_BLOCK];
        for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
            uint32_t g = p->group_of[col + i];
            x[i] = scale[g] * (float)((int32_t)q[i] - (zero ? zero[g] : ZERO));
        }
        quantise_q8_0(x, QUANT_BLOCK, to);
        return;
    }
    uint32_t g = col / p->scale_cols;
    put_half(to, scale[g]);
    if (p->type == WEIGHT_Q4_1) put_half(to + 2, -scale[g] * (float)zero[g]);
    put_nibbles(q, to + (p->type == WEIGHT_Q4_1 ? 4 : 2));
}

static void word_nibbles(uint32_t word, uint8_t *to)
{
    for (uint32_t i = 0; i < PER_WORD; i++)
        to[i] = word >> 4 * i & 15;
}

/* Takes 32 columns of a row out of a band that begins with them. */
static void band_nibbles(const struct hf_packed *p, const char *band, uint32_t row,
                         uint8_t q[QUANT_BLOCK])
{
    if (p->layout == HF_COLUMNS_PACKED) {
        for (uint32_t i = 0; i < QUANT_BLOCK / PER_WORD; i++)
            word_nibbles(load_u32(band + ((size_t)i * p->rows + row) * 4),
                         q + (size_t)i * PER_WORD);
        return;
    }
    const uint32_t words = p->rows / PER_WORD, shift = shift_of_row(p->layout, row);
    band += (size_t)(row / PER_WORD) * 4;
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        q[i] = load_u32(band + (size_t)i * words * 4) >> shift & 15;
}

/* Reads bands of some columns of all rows, for layouts where rows lie beside each other. */
static int read_upright(const struct hf_packed *p, const struct scales *s, char *to,
                        struct err *err)
{
    const size_t row_bytes = hf_packed_row_bytes(p), block = weight_types[p->type].block_bytes;
    const size_t run = (size_t)p->rows * QUANT_BLOCK / 2; /* bytes of 32 columns */
    const uint32_t runs = p->cols / QUANT_BLOCK;
    const uint32_t at_once = (uint32_t)max_size(1, min_size(runs, BAND_BYTES / run));
    CLEANUP(freep) char *band = take(at_once * run, err);
    uint8_t q[QUANT_BLOCK];
    if (!band) return -ENOMEM;
    for (uint32_t first = 0; first < runs; first += at_once) {
        uint32_t n = min_u32(at_once, runs - first);
        int rc = read_part(&p->weights, first * run, band, n * run, err);
        if (rc < 0) return rc;
        for (uint32_t r = 0; r < p->rows; r++)
            for (uint32_t i = 0; i < n; i++) {
                band_nibbles(p, band + i * run, r, q);
                put_block(p, s, r, (first + i) * QUANT_BLOCK, q,
                          to + r * row_bytes + (first + i) * block);
            }
    }
    return 0;
}

/* ---- rows one after the other */

static void packed_row(const struct hf_packed *p, const struct scales *s, uint32_t row,
                       const char *from, char *to)
{
    const size_t block = weight_types[p->type].block_bytes;
    uint8_t q[QUANT_BLOCK];
    for (uint32_t col = 0; col < p->cols;
         col += QUANT_BLOCK, from += QUANT_BLOCK / 2, to += block) {
        for (uint32_t i = 0; i < QUANT_BLOCK / PER_WORD; i++)
            word_nibbles(load_u32(from + (size_t)i * 4), q + (size_t)i * PER_WORD);
        put_block(p, s, row, col, q, to);
    }
}

static void int8_row(const struct hf_packed *p, const struct scales *s, uint32_t row,
                     const char *from, char *to)
{
    const float *scale = s->scale + (size_t)(row / p->scale_rows) * p->scales_across;
    for (uint32_t col = 0; col < p->cols; col += QUANT_BLOCK, from += QUANT_BLOCK, to += 34) {
        put_half(to, scale[col / p->scale_cols]);
        memcpy(to + 2, from, QUANT_BLOCK);
    }
}

static void float8_row(const struct hf_packed *p, const struct scales *s, uint32_t row,
                       const char *from, char *to)
{
    const float *scale = s->scale + (size_t)(row / p->scale_rows) * p->scales_across;
    for (uint32_t col = 0; col < p->cols; col++)
        put_half(to + (size_t)col * 2,
                 f8_e4m3_to_f32((uint8_t)from[col]) * scale[col / p->scale_cols]);
}

static void every_row(const struct hf_packed *p, const struct scales *s, uint32_t row,
                      const char *from, char *to)
{
    const size_t size = weight_types[p->type].block_bytes;
    (void)s, (void)row;
    for (uint32_t col = 0; col < p->cols; col++)
        memcpy(to + col * size, from + (p->first + (size_t)p->step * col) * size, size);
}

typedef void (*row_fn)(const struct hf_packed *p, const struct scales *s, uint32_t row,
                       const char *from, char *to);

/* Reads rows that lie behind each other, of `bytes` each in the tensor. */
static int read_rows(const struct hf_packed *p, const struct scales *s, row_fn row, size_t bytes,
                     char *to, struct err *err)
{
    const size_t row_bytes = hf_packed_row_bytes(p);
    const uint32_t at_once = (uint32_t)max_size(1, min_size(p->rows, BAND_BYTES / bytes));
    CLEANUP(freep) char *band = take(at_once * bytes, err);
    if (!band) return -ENOMEM;
    for (uint32_t first = 0; first < p->rows; first += at_once) {
        uint32_t n = min_u32(at_once, p->rows - first);
        int rc = read_part(&p->weights, first * bytes, band, n * bytes, err);
        if (rc < 0) return rc;
        for (uint32_t r = 0; r < n; r++, to += row_bytes)
            row(p, s, first + r, band + r * bytes, to);
    }
    return 0;
}

/* ---- experts of gpt-oss */

/* Of two neighbours in a byte there, GGUF has one in the first half of the block and one in the second. */
static void micro_block(uint8_t exponent, const char *from, char *to)
{
    uint8_t q[QUANT_BLOCK];
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        q[i] = (uint8_t)from[i / 2] >> i % 2 * 4 & 15;
    to[0] = (char)exponent;
    put_nibbles(q, to + 1);
}

static int read_micro(const struct hf_packed *p, char *to, struct err *err)
{
    const size_t blocks = p->cols / QUANT_BLOCK, all = blocks * p->all;
    CLEANUP(freep) char *from = take(all * 16, err);
    CLEANUP(freep) char *exponents = take(all, err);
    if (!from || !exponents) return -ENOMEM;
    int rc = read_part(&p->weights, p->skip, from, all * 16, err);
    if (rc == 0) rc = read_part(&p->scales, p->skip / 16, exponents, all, err);
    if (rc < 0) return rc;
    for (uint32_t r = 0; r < p->rows; r++)
        for (size_t b = 0; b < blocks; b++, to += 17) {
            size_t at = (p->first + (size_t)r * p->step) * blocks + b;
            uint8_t exponent = (uint8_t)exponents[at];
            if (exponent == E8M0_NAN)
                return err_set(err, -EINVAL,
                               "tensor '" STR_FMT "': the scale of row %u, block %zu is NaN",
                               STR_ARG(p->scales.tensor->name), r, b);
            micro_block(exponent, from + at * 16, to);
        }
    return 0;
}

static int read_turned(const struct hf_packed *p, char *to, struct err *err)
{
    const size_t size = weight_types[p->type].block_bytes, line = p->all * size;
    const uint32_t at_once = (uint32_t)max_size(1, min_size(p->cols, BAND_BYTES / line));
    CLEANUP(freep) char *band = take(at_once * line, err);
    if (!band) return -ENOMEM;
    for (uint32_t first = 0; first < p->cols; first += at_once) {
        uint32_t n = min_u32(at_once, p->cols - first);
        int rc = read_part(&p->weights, p->skip * size + first * line, band, n * line, err);
        if (rc < 0) return rc;
        for (uint32_t r = 0; r < p->rows; r++)
            for (uint32_t i = 0; i < n; i++)
                memcpy(to + ((size_t)r * p->cols + first + i) * size,
                       band + i * line + (p->first + (size_t)p->step * r) * size, size);
    }
    return 0;
}

int hf_packed_read(const struct hf_packed *p, char *to, struct err *err)
{
    CLEANUP(scales_fini) struct scales s = { 0 };
    int rc = p->scales.file && p->layout != HF_MICRO ? read_scales(p, &s, err) : 0;
    if (rc == 0 && p->zeros.file) rc = read_zeros(p, &s, err);
    if (rc < 0) return rc;
    switch (p->layout) {
    case HF_COLUMNS_PACKED:
    case HF_ROWS_PACKED:
        return read_upright(p, &s, to, err);
    case HF_PACKED:
        return read_rows(p, &s, packed_row, p->cols / 2, to, err);
    case HF_INT8:
        return read_rows(p, &s, int8_row, p->cols, to, err);
    case HF_FLOAT8:
        return read_rows(p, &s, float8_row, p->cols, to, err);
    case HF_EVERY:
        return read_rows(p, &s, every_row, p->all * weight_types[p->type].block_bytes, to, err);
    case HF_MICRO:
        return read_micro(p, to, err);
    case HF_TURNED:
        break;
    }
    return read_turned(p, to, err);
}

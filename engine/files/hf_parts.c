/* hf_parts.c - looks up the last part of a tensor's name in the table of its method, then checks shapes. */
#include "engine/files/hf_parts.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME_BYTES 256
#define PER_WORD 8u
#define SIDES_MAX 5

/* clang-format off */
static const struct {
    const char *first; /* of a matrix */
    enum safetensor_type type;
    const char *sides[SIDES_MAX];
} names[HF_QUANT_METHODS] = {
    [HF_QUANT_GPTQ] = { "qweight", SAFETENSOR_I32, { "scales", "qzeros", "g_idx" } },
    [HF_QUANT_AWQ] = { "qweight", SAFETENSOR_I32, { "scales", "qzeros" } },
    [HF_QUANT_PACKED] = { "weight_packed", SAFETENSOR_I32,
                          { "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx" } },
    [HF_QUANT_INT8] = { "weight", SAFETENSOR_I8, { "weight_scale", "input_scale", "input_zero_point" } },
    [HF_QUANT_FLOAT8] = { "weight", SAFETENSOR_F8_E4M3, { "weight_scale", "weight_scale_inv", "input_scale" } },
};
/* clang-format on */

/* Where the parts of a matrix are looked for. */
struct place {
    const struct hf_files *files;
    uint32_t near;
    struct str stem; /* the module's name, with the last point */
    struct err *err;
};

static struct hf_part find(const struct place *at, const char *last)
{
    char name[NAME_BYTES];
    int len = snprintf(name, sizeof name, STR_FMT "%s", STR_ARG(at->stem), last);
    if (len < 0 || (size_t)len >= sizeof name) return (struct hf_part){ 0 };
    return hf_files_find(at->files, at->near, str_from(name));
}

static bool is_float(const struct safetensor *t)
{
    return t->type == SAFETENSOR_F32 || t->type == SAFETENSOR_F16 || t->type == SAFETENSOR_BF16;
}

/* Finds a part with this type (SAFETENSOR_F32: any float) and shape; 0 for a dimension that may be any. */
static int want(const struct place *at, const char *last, enum safetensor_type type,
                uint32_t n_dims, const uint64_t *dims, struct hf_part *ret)
{
    struct hf_part p = find(at, last);
    if (!p.file)
        return err_set(at->err, -EINVAL, "tensor '" STR_FMT "%s' is missing", STR_ARG(at->stem),
                       last);
    const struct safetensor *t = p.tensor;
    bool fits = t->n_dims == n_dims && (type == SAFETENSOR_F32 ? is_float(t) : t->type == type);
    for (uint32_t i = 0; i < n_dims; i++)
        fits = fits && (dims[i] == 0 || t->dims[i] == dims[i]);
    if (fits && t->elements <= UINT32_MAX) {
        *ret = p;
        return 0;
    }
    return err_set(at->err, -EINVAL,
                   "tensor '" STR_FMT
                   "' is %s [%llu, %llu] in %u dimensions, expected %s [%llu, %llu] in %u (0 is "
                   "any)",
                   STR_ARG(t->name), safetensor_type_name(t->type), (unsigned long long)t->dims[0],
                   (unsigned long long)t->dims[1], t->n_dims,
                   type == SAFETENSOR_F32 ? "a float type" : safetensor_type_name(type),
                   (unsigned long long)dims[0], (unsigned long long)(n_dims > 1 ? dims[1] : 1),
                   n_dims);
}

/* ---- groups */

static int check_bounds(const struct place *at, const struct hf_packed *p, uint64_t rows,
                        uint64_t cols)
{
    if (rows == 0 || rows > UINT32_MAX || cols > HF_PACKED_COLS_MAX ||
        hf_packed_bytes(p) > HF_PACKED_BYTES_MAX)
        return err_set(at->err, -E2BIG,
                       "matrix '" STR_FMT
                       "' is [%llu, %llu]; unpacked are up to %u columns and %zu bytes",
                       STR_ARG(at->stem), (unsigned long long)rows, (unsigned long long)cols,
                       HF_PACKED_COLS_MAX, HF_PACKED_BYTES_MAX);
    return 0;
}

static int check_size(const struct place *at, const struct hf_packed *p, uint64_t rows,
                      uint64_t cols)
{
    int rc = check_bounds(at, p, rows, cols);
    if (rc < 0 || cols % QUANT_BLOCK == 0) return rc;
    return err_set(at->err, -ENOTSUP,
                   "matrix '" STR_FMT "' has rows of %llu; multiples of %u are read",
                   STR_ARG(at->stem), (unsigned long long)cols, QUANT_BLOCK);
}

/* Divides the columns into groups, as many as the scales have. */
static int set_groups(const struct place *at, const struct hf_quant *q, struct hf_packed *p,
                      uint64_t groups)
{
    uint32_t cols = p->cols, group = groups > 0 && groups <= cols ? (uint32_t)(cols / groups) : 0;
    if (group == 0 || cols % groups != 0 || group % QUANT_BLOCK != 0)
        return err_set(at->err, -ENOTSUP,
                       "matrix '" STR_FMT
                       "' has %u columns and %llu groups; groups of a multiple of %u are read",
                       STR_ARG(at->stem), cols, (unsigned long long)groups, QUANT_BLOCK);
    if ((q->group > 0 && group != (uint32_t)q->group) || (q->group < 0 && groups != 1))
        return err_set(at->err, -EINVAL,
                       "matrix '" STR_FMT
                       "' has groups of %u columns, config.json says group_size: %d",
                       STR_ARG(at->stem), group, (int)q->group);
    p->scale_rows = 1;
    p->scale_cols = group;
    p->scales_down = p->rows;
    p->scales_across = (uint32_t)groups;
    return 0;
}

static void freep(char **p)
{
    free(*p);
}

/* Reads the group of each column. Where they are not one behind the other, the matrix becomes Q8_0. */
static int set_order(const struct place *at, const char *last, struct hf_packed *p,
                     struct arena *arena)
{
    struct hf_part part = { 0 };
    int rc = want(at, last, SAFETENSOR_I32, 1, (uint64_t[]){ p->cols }, &part);
    if (rc < 0) return rc;
    CLEANUP(freep) char *raw = malloc((size_t)part.tensor->bytes);
    uint32_t *groups = arena_array(arena, p->cols, sizeof *groups);
    if (!raw || !groups) return err_set(at->err, -ENOMEM, "no memory for the order of columns");
    const struct gguf_source *s = &part.file->file.source;
    rc = s->read(s->ctx, part.tensor->offset, raw, (size_t)part.tensor->bytes, at->err);
    if (rc < 0) return rc;
    bool scattered = false;
    for (uint32_t i = 0; i < p->cols; i++) {
        groups[i] = load_u32(raw + (size_t)i * 4);
        if (groups[i] >= p->scales_across)
            return err_set(at->err, -EINVAL,
                           "tensor '" STR_FMT "': column %u is of group %d, there are %u",
                           STR_ARG(part.tensor->name), i, (int)groups[i], p->scales_across);
        scattered = scattered || groups[i] != i / p->scale_cols;
    }
    if (!scattered) return 0;
    p->group_of = groups;
    p->type = WEIGHT_Q8_0;
    return 0;
}

/* ---- one method */

static int of_gptq(const struct place *at, const struct hf_quant *q, struct arena *arena,
                   struct hf_packed *p)
{
    bool gptq = q->method == HF_QUANT_GPTQ;
    const uint64_t *dims = p->weights.tensor->dims;
    uint64_t rows = gptq ? dims[1] : dims[1] * PER_WORD, cols = gptq ? dims[0] * PER_WORD : dims[0];
    p->layout = gptq ? HF_COLUMNS_PACKED : HF_ROWS_PACKED;
    p->type = gptq && q->symmetric ? WEIGHT_Q4_0 : WEIGHT_Q4_1;
    p->zeros_less_one = gptq && !q->zeros_whole;
    p->rows = (uint32_t)rows, p->cols = (uint32_t)cols;
    int rc = check_size(at, p, rows, cols);
    if (rc == 0 && rows % PER_WORD != 0)
        rc =
            err_set(at->err, -ENOTSUP, "matrix '" STR_FMT "' has %u rows; multiples of %u are read",
                    STR_ARG(at->stem), p->rows, PER_WORD);
    if (rc == 0) rc = want(at, "scales", SAFETENSOR_F32, 2, (uint64_t[]){ 0, rows }, &p->scales);
    if (rc == 0) rc = set_groups(at, q, p, p->scales.tensor->dims[0]);
    if (rc == 0)
        rc = want(at, "qzeros", SAFETENSOR_I32, 2,
                  (uint64_t[]){ p->scales_across, rows / PER_WORD }, &p->zeros);
    if (rc == 0 && gptq && find(at, "g_idx").file) rc = set_order(at, "g_idx", p, arena);
    return rc;
}

static int check_shape(const struct place *at, const struct hf_packed *p)
{
    struct hf_part part = { 0 };
    char raw[16];
    int rc = want(at, "weight_shape", SAFETENSOR_I64, 1, (uint64_t[]){ 2 }, &part);
    if (rc < 0) return rc;
    const struct gguf_source *s = &part.file->file.source;
    rc = s->read(s->ctx, part.tensor->offset, raw, sizeof raw, at->err);
    if (rc < 0 || (load_u64(raw) == p->rows && load_u64(raw + 8) == p->cols)) return rc;
    return err_set(at->err, -EINVAL,
                   "tensor '" STR_FMT "' says [%lld, %lld], the packed weights have [%u, %u]",
                   STR_ARG(part.tensor->name), (long long)load_u64(raw),
                   (long long)load_u64(raw + 8), p->rows, p->cols);
}

static int of_packed(const struct place *at, const struct hf_quant *q, struct arena *arena,
                     struct hf_packed *p)
{
    const uint64_t *dims = p->weights.tensor->dims;
    bool zeros = find(at, "weight_zero_point").file != NULL;
    uint64_t cols = dims[1] <= HF_PACKED_COLS_MAX ? dims[1] * PER_WORD : dims[1];
    p->layout = HF_PACKED;
    p->type = zeros ? WEIGHT_Q4_1 : WEIGHT_Q4_0;
    p->rows = (uint32_t)dims[0], p->cols = (uint32_t)cols;
    int rc = check_size(at, p, dims[0], cols);
    if (rc == 0) rc = check_shape(at, p);
    if (rc == 0)
        rc = want(at, "weight_scale", SAFETENSOR_F32, 2, (uint64_t[]){ dims[0], 0 }, &p->scales);
    if (rc == 0) rc = set_groups(at, q, p, p->scales.tensor->dims[1]);
    if (rc == 0 && zeros && dims[0] % PER_WORD != 0)
        rc = err_set(at->err, -ENOTSUP,
                     "matrix '" STR_FMT "' has %u rows; with zero points multiples of %u are read",
                     STR_ARG(at->stem), p->rows, PER_WORD);
    if (rc == 0 && zeros)
        rc = want(at, "weight_zero_point", SAFETENSOR_I32, 2,
                  (uint64_t[]){ dims[0] / PER_WORD, p->scales_across }, &p->zeros);
    if (rc == 0 && find(at, "weight_g_idx").file) rc = set_order(at, "weight_g_idx", p, arena);
    return rc;
}

/* Scales of bytes: one for all, one a row, one a group of columns, or one a block of F8. */
static int of_bytes(const struct place *at, const struct hf_quant *q, struct arena *arena,
                    struct hf_packed *p)
{
    const uint64_t *dims = p->weights.tensor->dims;
    bool f8 = q->method == HF_QUANT_FLOAT8;
    const char *scale =
        f8 && find(at, "weight_scale_inv").file ? "weight_scale_inv" : "weight_scale";
    (void)arena;
    p->layout = f8 ? HF_FLOAT8 : HF_INT8;
    p->type = f8 ? WEIGHT_F16 : WEIGHT_Q8_0;
    p->rows = (uint32_t)dims[0], p->cols = (uint32_t)dims[1];
    int rc = check_size(at, p, dims[0], dims[1]);
    struct hf_part part = rc == 0 ? find(at, scale) : (struct hf_part){ 0 };
    uint32_t n_dims = part.file && part.tensor->n_dims == 1 ? 1 : 2;
    if (rc == 0) rc = want(at, scale, SAFETENSOR_F32, n_dims, (uint64_t[]){ 0, 0 }, &p->scales);
    if (rc < 0) return rc;
    const uint64_t down = p->scales.tensor->dims[0], across = p->scales.tensor->dims[1];
    const uint32_t *block = q->block;
    p->scales_down = (uint32_t)down;
    p->scales_across = (uint32_t)across;
    p->scale_rows = p->rows, p->scale_cols = p->cols;
    if (down == 1 && across == 1) return 0;
    if (f8 && block[0] > 0 && down == ceil_div_u32(p->rows, block[0]) &&
        across == ceil_div_u32(p->cols, block[1])) {
        p->scale_rows = block[0], p->scale_cols = block[1];
        return 0;
    }
    if (down == p->rows) return set_groups(at, &(struct hf_quant){ 0 }, p, across);
    return err_set(
        at->err, -ENOTSUP,
        "tensor '" STR_FMT
        "' is [%llu, %llu] for a matrix [%u, %u]; read are one scale, one a row or group "
        "of columns, and of F8 one a block of weight_block_size",
        STR_ARG(p->scales.tensor->name), (unsigned long long)down, (unsigned long long)across,
        p->rows, p->cols);
}

/* Cuts a name behind its last point. */
static struct str cut_last(struct str name, struct str *ret_stem)
{
    size_t at = name.len;
    while (at > 0 && name.data[at - 1] != '.')
        at--;
    *ret_stem = (struct str){ name.data, at };
    return (struct str){ name.data + at, name.len - at };
}

static bool is_side(enum hf_quant_method method, struct str last)
{
    for (size_t i = 0; i < SIDES_MAX && names[method].sides[i]; i++)
        if (str_eq(last, str_from(names[method].sides[i]))) return true;
    return false;
}

int hf_parts_of(const struct hf_quant *q, const struct hf_files *files, uint32_t index,
                const struct safetensor *t, struct arena *arena, enum hf_role *ret_role,
                struct str *ret_name, struct hf_packed *ret, struct err *err)
{
    static int (*const makers[HF_QUANT_METHODS])(const struct place *, const struct hf_quant *,
                                                 struct arena *, struct hf_packed *) = {
        [HF_QUANT_GPTQ] = of_gptq,  [HF_QUANT_AWQ] = of_gptq,     [HF_QUANT_PACKED] = of_packed,
        [HF_QUANT_INT8] = of_bytes, [HF_QUANT_FLOAT8] = of_bytes,
    };
    struct place at = { .files = files, .near = index, .err = err };
    struct str last = cut_last(t->name, &at.stem);
    const char *first = names[q->method].first;
    char name[NAME_BYTES];
    *ret_role = HF_WHOLE;
    if (!first) return 0;
    if (is_side(q->method, last)) {
        struct hf_part other = find(&at, first);
        *ret_role = HF_SIDE;
        if (other.file && other.tensor->type == names[q->method].type) return 0;
        return err_set(
            err, -EINVAL, "tensor '" STR_FMT "' has no '" STR_FMT "%s' of type %s beside it",
            STR_ARG(t->name), STR_ARG(at.stem), first, safetensor_type_name(names[q->method].type));
    }
    if (!str_eq(last, str_from(first)) ||
        (str_eq(last, STR("weight")) && t->type != names[q->method].type))
        return 0;
    if (t->type != names[q->method].type || t->n_dims != 2)
        return err_set(err, -EINVAL,
                       "tensor '" STR_FMT "' is %s in %u dimensions, expected %s in 2",
                       STR_ARG(t->name), safetensor_type_name(t->type), t->n_dims,
                       safetensor_type_name(names[q->method].type));
    *ret = (struct hf_packed){ .weights = { &files->at[index], t } };
    int rc = makers[q->method](&at, q, arena, ret);
    int len = snprintf(name, sizeof name, STR_FMT "weight", STR_ARG(at.stem));
    if (rc == 0 && (len < 0 || (size_t)len >= sizeof name))
        rc = err_set(err, -EINVAL, "a name of %d bytes", len);
    if (rc < 0) return rc;
    *ret_role = HF_MATRIX;
    *ret_name = arena_str(arena, str_from(name));
    return ret_name->data ? 0 : err_set(err, -ENOMEM, "no memory for the names");
}

/* ---- experts in one tensor */

static enum weight_type_id float_type(const struct safetensor *t)
{
    return t->type == SAFETENSOR_F32   ? WEIGHT_F32
           : t->type == SAFETENSOR_F16 ? WEIGHT_F16
                                       : WEIGHT_BF16;
}

int hf_parts_stack(const struct hf_stack_row *row, struct str end, const struct hf_files *files,
                   uint32_t index, const struct safetensor *t, enum hf_role *ret_role,
                   struct hf_packed *ret, uint32_t *ret_experts, uint64_t *ret_stride,
                   struct err *err)
{
    const bool blocks = str_eq(end, STR("_blocks")), bias = str_eq(end, STR("_bias"));
    struct place at = { files, index, { t->name.data, t->name.len - end.len }, err };
    const uint64_t *dims = t->dims;
    *ret_role = HF_SIDE;
    if (str_eq(end, STR("_scales"))) {
        if (find(&at, "_blocks").file) return 0;
        return err_set(err, -EINVAL, "tensor '" STR_FMT "' has no '" STR_FMT "_blocks' beside it",
                       STR_ARG(t->name), STR_ARG(at.stem));
    }
    struct hf_packed p = { .weights = { &files->at[index], t },
                           .first = row->first,
                           .step = row->step };
    const uint64_t all = blocks || bias ? dims[1] : dims[2];
    const uint64_t rows = bias ? dims[0] : all / row->step;
    const uint64_t cols = bias ? all / row->step : blocks ? dims[2] * QUANT_BLOCK : dims[1];
    const uint32_t n_dims = blocks ? 4 : bias ? 2 : 3;
    if ((end.len > 0 && !blocks && !bias) || t->n_dims != n_dims || all % row->step != 0 ||
        all > UINT32_MAX || dims[2] > HF_PACKED_COLS_MAX ||
        (blocks ? t->type != SAFETENSOR_U8 || dims[3] != 16 : !is_float(t)))
        return err_set(err, -EINVAL,
                       "tensor '" STR_FMT
                       "' is %s [%llu, %llu, %llu] in %u dimensions, which is no form of experts "
                       "that is read",
                       STR_ARG(t->name), safetensor_type_name(t->type), (unsigned long long)dims[0],
                       (unsigned long long)dims[1], (unsigned long long)dims[2], t->n_dims);
    p.layout = blocks ? HF_MICRO : bias ? HF_EVERY : HF_TURNED;
    p.type = blocks ? WEIGHT_MXFP4 : float_type(t);
    p.rows = (uint32_t)rows, p.cols = (uint32_t)cols, p.all = (uint32_t)all;
    int rc = check_bounds(&at, &p, rows, cols);
    if (rc == 0 && blocks)
        rc = want(&at, "_scales", SAFETENSOR_U8, 3, (uint64_t[]){ dims[0], dims[1], dims[2] },
                  &p.scales);
    if (rc < 0) return rc;
    *ret_role = HF_MATRIX;
    *ret = p;
    *ret_experts = bias ? 1 : (uint32_t)min_u64(dims[0], UINT32_MAX);
    *ret_stride = bias ? 0 : dims[1] * dims[2] * (blocks ? 16 : 1);
    return 0;
}

bool hf_parts_zeros(const struct hf_file *file, const struct safetensor *t)
{
    CLEANUP(freep) char *raw = t->bytes <= HF_ZEROS_MAX ? malloc((size_t)t->bytes) : NULL;
    const struct gguf_source *s = &file->file.source;
    if (!raw || s->read(s->ctx, t->offset, raw, (size_t)t->bytes, NULL) < 0) return false;
    for (size_t i = 0; i < t->bytes; i++)
        if (raw[i] != 0) return false;
    return true;
}

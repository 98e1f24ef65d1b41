/* rewrite_model.c - writes a model file anew: its matrices rounded to another type, or a folder's tensors as one GGUF
 * file. Values come first, then tensors in the order in which the source has them, so that it is read front to back. */
#include "engine/model/rewrite_model.h"

#include "base/core/bits.h"
#include "engine/files/gguf_shards.h"
#include "engine/files/gguf_write.h"
#include "engine/files/hf_model.h"
#include "engine/files/vocab_gguf.h"
#include "engine/model/imatrix.h"

#include <math.h>
#include <stdlib.h>

#define PIECE_BYTES ((size_t)1 << 20) /* rows are read and written about this much at a time */

static void freep(char **p)
{
    free(*p);
}

struct rounder {
    const struct gguf_source *source;
    struct gguf_writer *writer;
    const struct make_progress *progress;
    struct quantise_result *result;
    struct err *err;
    enum weight_type_id type;      /* of matrices; WEIGHT_TYPE_COUNT: each keeps its own */
    bool of_folder;                /* vectors become F32; else they keep theirs */
    const struct imatrix *imatrix; /* NULL: none */
    double off, all;               /* squares */
    uint64_t done, total;
};

static int by_offset(const void *a, const void *b)
{
    uint64_t x = (*(const struct gguf_tensor *const *)a)->offset;
    uint64_t y = (*(const struct gguf_tensor *const *)b)->offset;
    return (x > y) - (x < y);
}

/* Rows that are no whole blocks of the type take the nearest type that fits. */
static enum weight_type_id type_for(const struct rounder *r, const struct gguf_tensor *t)
{
    if (t->n_dims < 2) return r->of_folder ? WEIGHT_F32 : t->type;
    if (r->type == WEIGHT_TYPE_COUNT) return t->type;
    if (t->dims[0] % weight_types[r->type].block_elements == 0) return r->type;
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

struct rows {
    char *raw, *to;
    float *x, *back, *weights; /* weights: of the columns of each matrix; NULL: none */
};

static void rows_fini(struct rows *b)
{
    free(b->raw), free(b->to), free(b->x), free(b->back), free(b->weights);
}

/* Rounds row `row` of the tensor, which is at `raw`, to `to`. */
static int round_row(struct rounder *r, const struct gguf_tensor *t, enum weight_type_id type,
                     const struct rows *b, uint64_t row, const char *raw, char *to)
{
    uint32_t cols = (uint32_t)t->dims[0];
    float *x = b->x, *back = b->back;
    weight_types[t->type].to_f32(raw, cols, x);
    if (b->weights)
        weight_types[type].from_f32_weighted(x, b->weights + row / t->dims[1] * cols, cols, to);
    else
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

/* Reads the weights of a tensor's columns, where there are some and the type can use them. */
static int find_weights(struct rounder *r, const struct gguf_tensor *t, enum weight_type_id type,
                        float **ret)
{
    uint32_t blank;
    if (!r->imatrix || !weight_types[type].from_f32_weighted) return 0;
    int rc = imatrix_weights(r->imatrix, t, ret, &blank, r->err);
    if (rc < 0) return rc;
    r->result->weighted += *ret != NULL;
    r->result->unweighted += *ret == NULL;
    r->result->blank += blank;
    return 0;
}

static int round_tensor(struct rounder *r, const struct gguf_tensor *t, enum weight_type_id type)
{
    uint32_t cols = (uint32_t)t->dims[0];
    size_t from_bytes = weight_row_bytes(t->type, cols), to_bytes = weight_row_bytes(type, cols);
    uint64_t rows = t->elements / cols, at_once = PIECE_BYTES / (cols * sizeof(float)) + 1;
    CLEANUP(rows_fini)
    struct rows b = { malloc(at_once * from_bytes), malloc(at_once * to_bytes),
                      malloc(cols * sizeof(float)), malloc(cols * sizeof(float)), NULL };
    if (!b.raw || !b.to || !b.x || !b.back) return err_set(r->err, -ENOMEM, "no memory for a row");
    int rc = find_weights(r, t, type, &b.weights);
    if (rc < 0) return rc;
    for (uint64_t row = 0; row < rows; row += at_once) {
        uint64_t n = min_u64(at_once, rows - row);
        rc = r->source->read(r->source->ctx, t->offset + row * from_bytes, b.raw,
                             (size_t)n * from_bytes, r->err);
        for (uint64_t i = 0; i < n && rc == 0; i++)
            rc = round_row(r, t, type, &b, row + i, b.raw + i * from_bytes, b.to + i * to_bytes);
        if (rc == 0) rc = gguf_writer_data(r->writer, b.to, (size_t)n * to_bytes, r->err);
        if (rc < 0) return rc;
        r->done += n * to_bytes;
        make_progress_tell(r->progress, r->done, r->total);
    }
    return 0;
}

/* Puts the values of the source, but those that are of the file and not of the model. */
static void put_values(struct rounder *r, const struct gguf *g, bool own_tokenizer)
{
    static const char *const own[] = { "general.file_type", "general.alignment",
                                       "general.quantization_version" };
    enum weight_type_id type = r->type;
    for (uint32_t i = 0; i < g->tensor_count && type == WEIGHT_TYPE_COUNT; i++)
        if (g->tensors[i].n_dims > 1) type = g->tensors[i].type;
    for (uint32_t i = 0; i < g->value_count; i++) {
        struct str key = g->values[i].key;
        bool ours = str_starts(key, STR("split.")) || str_starts(key, STR("quantize.")) ||
                    (own_tokenizer && str_starts(key, STR("tokenizer.")));
        for (size_t j = 0; j < COUNT_OF(own); j++)
            ours = ours || str_eq(key, str_from(own[j]));
        if (ours) continue;
        struct gguf_value value = g->values[i];
        /* Numbers of config.json; files have them in 32 bits, and llama.cpp reads no others. */
        if (r->of_folder && value.type == GGUF_F64) value.type = GGUF_F32;
        gguf_put_value(r->writer, &value);
    }
    if (type == WEIGHT_TYPE_COUNT) return;
    gguf_put_u32(r->writer, "general.file_type", weight_types[type].file_type);
    gguf_put_u32(r->writer, "general.quantization_version", GGUF_QUANT_VERSION);
}

/* Puts which importance matrix the weights were rounded by, under llama.cpp's names. */
static void put_imatrix(struct gguf_writer *w, const struct imatrix *im)
{
    gguf_put_str(w, "quantize.imatrix.file", str_from(im->source->name));
    if (im->origin.dataset.len > 0) gguf_put_str(w, "quantize.imatrix.dataset", im->origin.dataset);
    gguf_put_u32(w, "quantize.imatrix.entries_count", im->entries);
    if (im->origin.chunks > 0) gguf_put_u32(w, "quantize.imatrix.chunks_count", im->origin.chunks);
}

static int rewrite_tensors(struct rounder *r, const struct gguf_tensor **order, uint32_t count)
{
    CLEANUP(freep) char *piece = malloc(PIECE_BYTES);
    if (!piece) return err_set(r->err, -ENOMEM, "no memory to copy");
    for (uint32_t i = 0; i < count; i++) {
        const struct gguf_tensor *t = order[i];
        enum weight_type_id to = type_for(r, t);
        bool rounded = t->n_dims > 1 && r->type != WEIGHT_TYPE_COUNT,
             same = !rounded && to == t->type;
        int rc = same ? copy_tensor(r, t, piece) : round_tensor(r, t, to);
        if (rc < 0)
            return err_prefix(r->err, rc, "%s: tensor '" STR_FMT "'", r->source->name,
                              STR_ARG(t->name));
        r->result->kept += !rounded;
        r->result->tensors += rounded;
        r->result->fallback += rounded && to != r->type;
    }
    r->result->error = r->all > 0 ? sqrt(r->off / r->all) : 0;
    return 0;
}

/* Writes all tensors, front to back as the source has them, and ends the file. */
static int rewrite_all(struct rounder *r, const struct gguf *g)
{
    const struct gguf_tensor **order = calloc(g->tensor_count + 1, sizeof *order);
    if (!order) return err_set(r->err, -ENOMEM, "%s: no memory", r->source->name);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        order[i] = &g->tensors[i];
    qsort(order, g->tensor_count, sizeof *order, by_offset);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        gguf_put_tensor(r->writer, order[i]->name, order[i]->n_dims, order[i]->dims,
                        type_for(r, order[i]));
    int rc = gguf_writer_begin(r->writer, &r->total, r->err);
    if (rc == 0) rc = rewrite_tensors(r, order, g->tensor_count);
    free(order);
    return rc < 0 ? rc : gguf_writer_finish(r->writer, r->err);
}

/* Opens the importance matrix and compares it with the model. */
static int open_imatrix(const struct quantise_ask *ask, const struct gguf *g, struct imatrix **ret,
                        struct err *err)
{
    if (!ask->imatrix) return 0;
    if (!weight_types[ask->type].from_f32_weighted)
        return err_set(err, -ENOTSUP,
                       "%s rounds each weight by itself, an importance matrix changes nothing; "
                       "it changes the types of at most six bits",
                       weight_types[ask->type].name);
    int rc = imatrix_open(ask->imatrix, ret, err);
    return rc < 0 ? rc : imatrix_check(*ret, g, err);
}

int quantise_model(const char *from, const char *to, const struct quantise_ask *ask,
                   struct quantise_result *ret, struct err *err)
{
    CLEANUP(gguf_shards_freep) struct gguf_shards *file = NULL;
    CLEANUP(gguf_writer_freep) struct gguf_writer *w = NULL;
    CLEANUP(imatrix_freep) struct imatrix *imatrix = NULL;
    struct quantise_result result = { .has_imatrix = ask->imatrix != NULL };
    int rc = gguf_shards_open(from, &file, err);
    if (rc == 0 && !ask->again) rc = check_source(file->gguf, from, err);
    if (rc == 0) rc = open_imatrix(ask, file->gguf, &imatrix, err);
    if (rc == 0) rc = gguf_writer_new(to, &w, err);
    if (rc < 0) return rc;
    struct rounder r = { .source = file->source,
                         .writer = w,
                         .progress = ask->progress,
                         .result = &result,
                         .err = err,
                         .type = ask->type,
                         .imatrix = imatrix };
    put_values(&r, file->gguf, false);
    if (imatrix) put_imatrix(w, imatrix);
    rc = rewrite_all(&r, file->gguf);
    if (rc == 0) *ret = result;
    return rc;
}

/* ---- a folder as one file */

int convert_model(const char *from, const char *to, enum weight_type_id type,
                  const struct make_progress *progress, struct quantise_result *ret,
                  struct err *err)
{
    CLEANUP(hf_model_freep) struct hf_model *model = NULL;
    CLEANUP(gguf_writer_freep) struct gguf_writer *w = NULL;
    CLEANUP(vocab_freep) struct vocab *vocab = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    struct quantise_result result = { 0 };
    int rc = hf_model_open(from, &model, err);
    if (rc == 0) rc = hf_model_tokenizer(model, &vocab, &template, err);
    if (rc == 0) rc = gguf_writer_new(to, &w, err);
    if (rc < 0) return rc;
    struct rounder r = { .source = model->source,
                         .writer = w,
                         .progress = progress,
                         .result = &result,
                         .err = err,
                         .type = type,
                         .of_folder = true };
    put_values(&r, model->gguf, vocab != NULL);
    if (vocab) rc = vocab_to_gguf(vocab, template, w, err);
    if (rc < 0) return err_prefix(err, rc, "%s", from);
    rc = rewrite_all(&r, model->gguf);
    if (rc == 0) *ret = result;
    return rc;
}

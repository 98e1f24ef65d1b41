/* imatrix.c - importance matrices as GGUF files.
 *
 * Sums are read one tensor at a time, so that memory is that of the largest one. A file is checked whole before it is
 * used: a matrix of another model would weight columns at random, and nothing would look wrong. Columns that were
 * always zero in the text get the weight WEIGHT_MIN instead of none, for another text may use them. */
#include "engine/model/imatrix.h"

#include "base/core/bits.h"
#include "engine/files/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SUMS ".in_sum2"
#define COUNTS ".counts"
#define WEIGHT_MIN 1e-4f /* of the mean */
#define NAME_BYTES (GGUF_NAME_BYTES_MAX + sizeof SUMS)

static void floats_freep(float **p)
{
    free(*p);
}

/* ---- reading */

static int read_origin(struct imatrix *im, struct err *err)
{
    const struct gguf *g = im->gguf;
    const struct gguf_value *texts = gguf_find(g, STR("imatrix.datasets"));
    struct str type = { "", 0 };
    int rc = gguf_get_str(g, "general.type", &type, err);
    if (rc < 0 || !str_eq(type, STR("imatrix")))
        return err_set(err, -EINVAL,
                       "%s: no importance matrix: general.type is '" STR_FMT "', not 'imatrix'",
                       im->source->name, STR_ARG(type));
    for (uint32_t i = 0; i < g->tensor_count; i++)
        im->entries += str_ends(g->tensors[i].name, STR(SUMS));
    if (im->entries == 0)
        return err_set(err, -EINVAL, "%s: an importance matrix without entries (NAME" SUMS ")",
                       im->source->name);
    im->origin.dataset = STR("");
    if (texts && texts->type == GGUF_ARRAY && texts->array.type == GGUF_STRING &&
        texts->array.count > 0)
        im->origin.dataset = texts->array.texts[0];
    rc = gguf_get_u32(g, "imatrix.chunk_count", &im->origin.chunks, err);
    if (rc == 0 || rc == -ENOENT)
        rc = gguf_get_u32(g, "imatrix.chunk_size", &im->origin.chunk_size, err);
    return rc == -ENOENT ? 0 : rc;
}

/* Says so if a file is in the form that llama.cpp wrote before GGUF. */
static int check_form(const struct gguf_source *source, struct err *err)
{
    char magic[4] = "GGUF";
    int rc =
        source->bytes < sizeof magic ? 0 : source->read(source->ctx, 0, magic, sizeof magic, err);
    if (rc < 0 || memcmp(magic, "GGUF", sizeof magic) == 0) return rc;
    return err_set(err, -EINVAL,
                   "%s: no importance matrix in GGUF; llama.cpp's older form (.dat) becomes one by "
                   "llama-imatrix --in-file OLD -o NEW.gguf",
                   source->name);
}

static int parse(struct imatrix *im, const struct gguf_source *source, struct err *err)
{
    im->source = source;
    int rc = check_form(source, err);
    if (rc == 0) rc = gguf_parse(source, &im->gguf, err);
    return rc < 0 ? rc : read_origin(im, err);
}

static struct imatrix *new_imatrix(void)
{
    struct imatrix *im = calloc(1, sizeof *im);
    if (im) im->file.fd = -1;
    return im;
}

int imatrix_parse(const struct gguf_source *source, struct imatrix **ret, struct err *err)
{
    CLEANUP(imatrix_freep) struct imatrix *im = new_imatrix();
    if (!im) return err_set(err, -ENOMEM, "%s: no memory to read it", source->name);
    int rc = parse(im, source, err);
    if (rc == 0) *ret = TAKE(im);
    return rc;
}

int imatrix_open(const char *path, struct imatrix **ret, struct err *err)
{
    CLEANUP(imatrix_freep) struct imatrix *im = new_imatrix();
    if (!im) return err_set(err, -ENOMEM, "%s: no memory to read it", path);
    int rc = gguf_file_open(path, &im->file, err);
    if (rc == 0) rc = parse(im, &im->file.source, err);
    if (rc == 0) *ret = TAKE(im);
    return rc;
}

void imatrix_free(struct imatrix *im)
{
    if (!im) return;
    gguf_free(im->gguf);
    gguf_file_close(&im->file);
    free(im);
}

/* Finds the tensor NAME with a suffix, and checks that it is of F32. */
static int find_part(const struct imatrix *im, struct str name, const char *suffix,
                     const struct gguf_tensor **ret, struct err *err)
{
    char text[NAME_BYTES];
    int len = snprintf(text, sizeof text, STR_FMT "%s", STR_ARG(name), suffix);
    *ret = len < (int)sizeof text ? gguf_tensor_find(im->gguf, str_from(text)) : NULL;
    if (!*ret || (*ret)->type == WEIGHT_F32) return 0;
    return err_set(err, -EINVAL, "%s: '%s' is %s, importance is read in F32", im->source->name,
                   text, weight_types[(*ret)->type].name);
}

/* Reads a tensor of F32 whose numbers are finite and not negative. */
static int read_numbers(const struct imatrix *im, const struct gguf_tensor *t, float **ret,
                        struct err *err)
{
    CLEANUP(floats_freep) float *x = malloc((size_t)t->bytes);
    if (!x) return err_set(err, -ENOMEM, "%s: no memory to read it", im->source->name);
    int rc = im->source->read(im->source->ctx, t->offset, x, (size_t)t->bytes, err);
    for (uint64_t i = 0; i < t->elements && rc == 0; i++)
        if (!(x[i] >= 0) || isinf(x[i]))
            rc = err_set(err, -EINVAL,
                         "%s: number %llu of '" STR_FMT "' is %g; sums of squares and counts are "
                         "finite and at least 0",
                         im->source->name, (unsigned long long)i, STR_ARG(t->name), (double)x[i]);
    if (rc == 0) *ret = TAKE(x);
    return rc;
}

/* Makes weights of the sums of one matrix, in place. Returns false if no row reached it. */
static bool make_weights(float *sums, uint64_t cols)
{
    double sum = 0;
    for (uint64_t i = 0; i < cols; i++)
        sum += (double)sums[i];
    for (uint64_t i = 0; i < cols; i++)
        sums[i] = sum > 0 ? fmaxf((float)((double)sums[i] * (double)cols / sum), WEIGHT_MIN) : 1;
    return sum > 0;
}

static int check_shape(const struct imatrix *im, const struct gguf_tensor *t,
                       const struct gguf_tensor *sums, const struct gguf_tensor *counts,
                       struct err *err)
{
    const uint64_t matrices = t->n_dims < 2 ? 0 : t->elements / t->dims[0] / t->dims[1];
    if (matrices == 0)
        return err_set(err, -EINVAL, "%s: '" STR_FMT "' is no matrix of the model",
                       im->source->name, STR_ARG(t->name));
    if (!counts)
        return err_set(err, -EINVAL, "%s: '" STR_FMT "' has no counterpart '" STR_FMT COUNTS "'",
                       im->source->name, STR_ARG(sums->name), STR_ARG(t->name));
    /* One count for several matrices is what files have that were converted from the older form. */
    if (sums->elements == t->dims[0] * matrices &&
        (counts->elements == matrices || counts->elements == 1))
        return 0;
    return err_set(err, -EINVAL,
                   "%s: '" STR_FMT "' has %llu sums and %llu counts, the model's tensor has %llu "
                   "matrices of %llu columns: it was gathered from another model",
                   im->source->name, STR_ARG(t->name), (unsigned long long)sums->elements,
                   (unsigned long long)counts->elements, (unsigned long long)matrices,
                   (unsigned long long)t->dims[0]);
}

int imatrix_weights(const struct imatrix *im, const struct gguf_tensor *t, float **ret,
                    uint32_t *ret_blank, struct err *err)
{
    CLEANUP(floats_freep) float *w = NULL;
    CLEANUP(floats_freep) float *count = NULL;
    const struct gguf_tensor *sums = NULL, *counts = NULL;
    *ret = NULL, *ret_blank = 0;
    int rc = find_part(im, t->name, SUMS, &sums, err);
    if (rc < 0 || !sums) return rc;
    rc = find_part(im, t->name, COUNTS, &counts, err);
    if (rc == 0) rc = check_shape(im, t, sums, counts, err);
    if (rc == 0) rc = read_numbers(im, sums, &w, err);
    if (rc == 0) rc = read_numbers(im, counts, &count, err);
    if (rc < 0) return rc;
    const uint64_t cols = t->dims[0], matrices = sums->elements / cols;
    for (uint64_t i = 0; i < matrices; i++) {
        const bool reached = make_weights(w + i * cols, cols);
        if (reached && !(count[counts->elements == 1 ? 0 : i] > 0))
            return err_set(err, -EINVAL,
                           "%s: matrix %llu of '" STR_FMT "' has sums, and a count of 0",
                           im->source->name, (unsigned long long)i, STR_ARG(t->name));
        *ret_blank += !reached;
    }
    *ret = TAKE(w);
    return 0;
}

int imatrix_check(const struct imatrix *im, const struct gguf *model, struct err *err)
{
    for (uint32_t i = 0; i < im->gguf->tensor_count; i++) {
        struct str name = im->gguf->tensors[i].name;
        if (!str_ends(name, STR(SUMS))) continue;
        name.len -= strlen(SUMS);
        const struct gguf_tensor *t = gguf_tensor_find(model, name);
        if (!t)
            return err_set(err, -EINVAL,
                           "%s: '" STR_FMT "' is no tensor of the model: it was gathered from "
                           "another one, or from one with other names",
                           im->source->name, STR_ARG(name));
        CLEANUP(floats_freep) float *w = NULL;
        uint32_t blank;
        int rc = imatrix_weights(im, t, &w, &blank, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- writing */

static bool is_reached(const struct importance_entry *e)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->rows[i] > 0) return true;
    return false;
}

static void put_part(struct gguf_writer *w, const struct importance_entry *e, const char *suffix,
                     uint32_t cols)
{
    char name[NAME_BYTES];
    int len = snprintf(name, sizeof name, STR_FMT "%s", STR_ARG(e->name), suffix);
    must(len > 0 && len <= (int)GGUF_NAME_BYTES_MAX); /* names that an architecture has */
    gguf_put_tensor(w, str_from(name), 2, (uint64_t[2]){ cols, e->count }, WEIGHT_F32);
}

static int write_entry(struct gguf_writer *w, const struct importance_entry *e, struct err *err)
{
    const size_t columns = (size_t)e->cols * e->count;
    CLEANUP(floats_freep) float *x = malloc((columns + e->count) * sizeof *x);
    if (!x) return err_set(err, -ENOMEM, "no memory to write");
    for (size_t i = 0; i < columns; i++) {
        x[i] = (float)e->sums[i];
        if (!isfinite(x[i]))
            return err_set(err, -EINVAL,
                           "column %zu of '" STR_FMT "' adds up to %g: the model computes numbers "
                           "that are not finite",
                           i % e->cols, STR_ARG(e->name), e->sums[i]);
    }
    for (uint32_t i = 0; i < e->count; i++)
        x[columns + i] = (float)e->rows[i];
    int rc = gguf_writer_data(w, x, columns * sizeof *x, err);
    return rc < 0 ? rc : gguf_writer_data(w, x + columns, e->count * sizeof *x, err);
}

int imatrix_write(const char *path, const struct importance *from,
                  const struct imatrix_origin *origin, struct err *err)
{
    CLEANUP(gguf_writer_freep) struct gguf_writer *w = NULL;
    const struct gguf_value datasets = { .key = STR("imatrix.datasets"),
                                         .type = GGUF_ARRAY,
                                         .array = { GGUF_STRING, 1, NULL, &origin->dataset } };
    int rc = gguf_writer_new(path, &w, err);
    if (rc < 0) return rc;
    gguf_put_str(w, "general.type", STR("imatrix"));
    gguf_put_value(w, &datasets);
    gguf_put_u32(w, "imatrix.chunk_count", origin->chunks);
    gguf_put_u32(w, "imatrix.chunk_size", origin->chunk_size);
    for (uint32_t i = 0; i < from->count; i++) {
        if (!is_reached(&from->entries[i])) continue;
        put_part(w, &from->entries[i], SUMS, from->entries[i].cols);
        put_part(w, &from->entries[i], COUNTS, 1);
    }
    rc = gguf_writer_begin(w, NULL, err);
    for (uint32_t i = 0; i < from->count && rc == 0; i++)
        if (is_reached(&from->entries[i])) rc = write_entry(w, &from->entries[i], err);
    return rc < 0 ? rc : gguf_writer_finish(w, err);
}

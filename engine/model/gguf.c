/* gguf.c - the reader of gguf.h: one forward pass over header, metadata and tensor table.
 *
 *     "GGUF" u32 version, u64 tensors, u64 values,
 *     value:  string key, u32 type, value          string: u64 length, bytes
 *     tensor: string name, u32 n_dims, u64 dims[], u32 type, u64 offset from the data
 *     padding to the alignment, data
 *
 * A count is refused when that many of the smallest entries would not fit in what is left of the
 * file: memory is at most a small multiple of the file's size whatever the file says. */
#include "base/core/bits.h"
#include "engine/model/gguf_part.h"

#include <stdlib.h>

enum {
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* name of one byte, one dimension */
};

struct gguf_memory {
    struct gguf gguf;
    struct arena arena;
};

/* clang-format off */
/* Tensor types of other engines, so that a refusal can name them. */
static const struct { uint32_t id; const char *name; } foreign_types[] = {
    { 2, "Q4_0" },     { 3, "Q4_1" },     { 6, "Q5_0" },     { 7, "Q5_1" },    { 9, "Q8_1" },
    { 10, "Q2_K" },    { 11, "Q3_K" },    { 12, "Q4_K" },    { 13, "Q5_K" },   { 14, "Q6_K" },
    { 15, "Q8_K" },    { 16, "IQ2_XXS" }, { 17, "IQ2_XS" },  { 18, "IQ3_XXS" }, { 19, "IQ1_S" },
    { 20, "IQ4_NL" },  { 21, "IQ3_S" },   { 22, "IQ2_S" },   { 23, "IQ4_XS" }, { 24, "I8" },
    { 25, "I16" },     { 26, "I32" },     { 27, "I64" },     { 28, "F64" },    { 29, "IQ1_M" },
    { 34, "TQ1_0" },   { 35, "TQ2_0" },   { 39, "MXFP4" },   { 40, "NVFP4" },
};
/* clang-format on */

/* ---- tensors */

static int tensor_type(struct gguf_cursor *c, uint32_t id, enum weight_type_id *ret)
{
    if (weight_type_of_gguf(id, ret)) return 0;
    for (size_t i = 0; i < COUNT_OF(foreign_types); i++)
        if (foreign_types[i].id == id)
            return err_set(c->err, -ENOTSUP, "type %s; this engine reads %s", foreign_types[i].name,
                           weight_type_names());
    return err_set(c->err, -ENOTSUP, "type %u, unknown; this engine reads %s", id,
                   weight_type_names());
}

/* Elements and bytes from dims and type; nothing may wrap. */
static int tensor_size(struct gguf_cursor *c, struct gguf_tensor *t)
{
    const struct weight_type *type = &weight_types[t->type];
    size_t elements = 1, bytes;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] == 0) return err_set(c->err, -EINVAL, "dimension %u is 0", i);
        if (!mul_fits(elements, t->dims[i], &elements))
            return err_set(c->err, -EINVAL, "its dimensions multiply to more than 2^64");
    }
    if (t->dims[0] % type->block_elements != 0)
        return err_set(c->err, -EINVAL, "a row of %llu elements; %s comes in blocks of %u",
                       (unsigned long long)t->dims[0], type->name, type->block_elements);
    if (!mul_fits(elements / type->block_elements, type->block_bytes, &bytes))
        return err_set(c->err, -EINVAL, "more than 2^64 bytes");
    t->elements = elements;
    t->bytes = bytes;
    return 0;
}

static int take_tensor(struct gguf_cursor *c, struct gguf_tensor *t)
{
    int rc = gguf_take_string(c, GGUF_NAME_BYTES_MAX, &t->name, "a tensor's name");
    if (rc < 0) return rc;
    uint32_t type = 0;
    rc = gguf_take_u32(c, &t->n_dims, "a tensor");
    if (rc == 0 && t->name.len == 0) rc = err_set(c->err, -EINVAL, "an empty name");
    if (rc == 0 && (t->n_dims == 0 || t->n_dims > GGUF_DIMS_MAX))
        rc = err_set(c->err, -EINVAL, "%u dimensions, 1 to %d are possible", t->n_dims,
                     GGUF_DIMS_MAX);
    for (uint32_t i = 0; i < GGUF_DIMS_MAX && rc == 0; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims) rc = gguf_take_u64(c, &t->dims[i], "a tensor");
    }
    if (rc == 0) rc = gguf_take_u32(c, &type, "a tensor");
    if (rc == 0) rc = tensor_type(c, type, &t->type);
    if (rc == 0) rc = tensor_size(c, t);
    if (rc == 0) rc = gguf_take_u64(c, &t->offset, "a tensor");
    return rc < 0 ? err_prefix(c->err, rc, "tensor '" STR_FMT "'", STR_ARG(t->name)) : 0;
}

static int tensor_cmp_offset(const void *a, const void *b)
{
    uint64_t x = ((const struct gguf_tensor *)a)->offset;
    uint64_t y = ((const struct gguf_tensor *)b)->offset;
    return (x > y) - (x < y);
}

static int tensor_cmp_name(const void *a, const void *b)
{
    return str_cmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int take_tensors(struct gguf_cursor *c, struct gguf *g, struct gguf_tensor **ret,
                        uint64_t count)
{
    if (count > gguf_bytes_left(c) / TENSOR_BYTES_MIN)
        return err_set(c->err, -EINVAL, "%llu tensors cannot fit in the %llu bytes that follow",
                       (unsigned long long)count, (unsigned long long)gguf_bytes_left(c));
    if (count > GGUF_TENSORS_MAX)
        return err_set(c->err, -E2BIG, "%llu tensors, at most %u are read",
                       (unsigned long long)count, GGUF_TENSORS_MAX);
    struct gguf_tensor *tensors = arena_array(c->arena, (size_t)count, sizeof *tensors);
    if (!tensors) return err_set(c->err, -ENOMEM, "no memory for the tensor table");
    for (size_t i = 0; i < count; i++) {
        int rc = take_tensor(c, &tensors[i]);
        if (rc < 0) return rc;
    }
    g->tensors = *ret = tensors;
    g->tensor_count = (uint32_t)count;
    return 0;
}

/* Offsets become absolute; every tensor is aligned, inside the file and apart from the others. */
static int place_tensors(struct gguf_cursor *c, struct gguf_tensor *tensors, size_t count,
                         uint32_t alignment)
{
    size_t data;
    if (!align_fits(c->pos, alignment, &data))
        return err_set(c->err, -EINVAL, "the data would start beyond 2^64");
    for (size_t i = 0; i < count; i++) {
        struct gguf_tensor *t = &tensors[i];
        size_t start, end;
        const char *problem = NULL;
        if (t->offset % alignment != 0)
            problem = "is not a multiple of the alignment";
        else if (!add_fits(data, t->offset, &start) || !add_fits(start, t->bytes, &end) ||
                 end > c->source->bytes)
            problem = "reaches beyond the end of the file";
        if (problem)
            return err_set(c->err, -EINVAL,
                           "tensor '" STR_FMT "': offset %llu (%llu bytes; alignment %u) %s",
                           STR_ARG(t->name), (unsigned long long)t->offset,
                           (unsigned long long)t->bytes, alignment, problem);
        t->offset = start;
    }
    qsort(tensors, count, sizeof *tensors, tensor_cmp_offset);
    for (size_t i = 1; i < count; i++)
        if (tensors[i].offset - tensors[i - 1].offset < tensors[i - 1].bytes)
            return err_set(c->err, -EINVAL,
                           "tensors '" STR_FMT "' and '" STR_FMT "' overlap in the file",
                           STR_ARG(tensors[i - 1].name), STR_ARG(tensors[i].name));
    qsort(tensors, count, sizeof *tensors, tensor_cmp_name);
    for (size_t i = 1; i < count; i++)
        if (str_eq(tensors[i - 1].name, tensors[i].name))
            return err_set(c->err, -EINVAL, "tensor '" STR_FMT "' is there twice",
                           STR_ARG(tensors[i].name));
    return 0;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, struct str name)
{
    struct gguf_tensor wanted = { .name = name };
    if (g->tensor_count == 0) return NULL;
    return bsearch(&wanted, g->tensors, g->tensor_count, sizeof wanted, tensor_cmp_name);
}

/* ---- the file */

static int take_header(struct gguf_cursor *c, uint64_t *ret_tensors, uint64_t *ret_values)
{
    char magic[4];
    uint32_t version = 0;
    int rc = gguf_take(c, magic, sizeof magic, "the header");
    if (rc < 0) return rc;
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return err_set(c->err, -EINVAL, "not a GGUF file: it does not start with 'GGUF'");
    rc = gguf_take_u32(c, &version, "the header");
    if (rc < 0) return rc;
    if (version == __builtin_bswap32(GGUF_VERSION))
        return err_set(c->err, -ENOTSUP, "a big-endian GGUF file; little-endian ones are read");
    if (version != GGUF_VERSION)
        return err_set(c->err, -ENOTSUP, "GGUF version %u; version %d is read", version,
                       GGUF_VERSION);
    rc = gguf_take_u64(c, ret_tensors, "the header");
    return rc < 0 ? rc : gguf_take_u64(c, ret_values, "the header");
}

static int parse(struct gguf_cursor *c, struct gguf *g)
{
    uint64_t tensor_count = 0, value_count = 0;
    uint32_t alignment = 0;
    struct gguf_tensor *tensors = NULL;
    int rc = take_header(c, &tensor_count, &value_count);
    if (rc == 0) rc = gguf_take_values(c, g, value_count);
    if (rc == 0) rc = gguf_alignment(g, &alignment, c->err);
    if (rc == 0) rc = take_tensors(c, g, &tensors, tensor_count);
    if (rc == 0) rc = place_tensors(c, tensors, g->tensor_count, alignment);
    return rc;
}

static void cursor_freep(struct gguf_cursor **c)
{
    free(*c);
}

int gguf_parse(const struct gguf_source *source, struct gguf **ret, struct err *err)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    CLEANUP(cursor_freep) struct gguf_cursor *c = malloc(sizeof *c);
    struct gguf_memory *memory = calloc(1, sizeof *memory);
    if (memory) {
        arena_init(&memory->arena, GGUF_META_BYTES_MAX);
        g = &memory->gguf;
        g->memory = memory;
        g->file = arena_str(&memory->arena, str_from(source->name));
    }
    if (!c || !g || !g->file.data)
        return err_set(err, -ENOMEM, "%s: no memory to read it", source->name);
    c->source = source, c->arena = &memory->arena, c->err = err;
    c->pos = c->window_start = 0, c->window_len = 0;
    int rc = parse(c, g);
    if (rc < 0) return err_prefix(err, rc, "%s", source->name);
    *ret = TAKE(g);
    return 0;
}

void gguf_free(struct gguf *g)
{
    if (!g) return;
    arena_fini(&g->memory->arena);
    free(g->memory);
}

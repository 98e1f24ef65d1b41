/* gguf.c - reads GGUF files in one forward pass over header, metadata and tensor table.
 *
 *     "GGUF" u32 version, u64 tensors, u64 values,
 *     value:  string key, u32 type, value          string: u64 length, bytes
 *     tensor: string name, u32 n_dims, u64 dims[], u32 type, u64 offset from the data
 *     padding to the alignment, data
 *
 * A count is refused if that many of the smallest entries would not fit in the rest of the file, so
 * that memory is at most a small multiple of the file's size, whatever the file says. */
#include "engine/files/gguf.h"

#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/hash.h"

#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GGUF_WINDOW_BYTES = 64 << 10 };

struct gguf_cursor {
    const struct gguf_source *source;
    struct arena *arena; /* where strings, values and tensors go */
    struct err *err;
    uint64_t pos;
    uint64_t window_start;
    size_t window_len;
    char window[GGUF_WINDOW_BYTES];
};

static inline uint64_t gguf_bytes_left(const struct gguf_cursor *c)
{
    return c->source->bytes - c->pos;
}

/* ---- bytes of the file in order, through a window -------------------------------------------- */

static int gguf_take(struct gguf_cursor *c, void *data, size_t len, const char *what)
{
    if (len > gguf_bytes_left(c))
        return err_set(c->err, -EINVAL, "the file ends inside %s at byte %llu", what,
                       (unsigned long long)c->pos);
    char *to = data;
    while (len > 0) {
        uint64_t in_window = c->pos - c->window_start;
        if (in_window >= c->window_len) {
            size_t more = min_size(GGUF_WINDOW_BYTES, gguf_bytes_left(c));
            int rc = c->source->read(c->source->ctx, c->pos, c->window, more, c->err);
            if (rc < 0) return rc;
            c->window_start = c->pos, c->window_len = more, in_window = 0;
        }
        size_t n = min_size(len, c->window_len - in_window);
        memcpy(to, c->window + in_window, n);
        to += n, c->pos += n, len -= n;
    }
    return 0;
}

static int gguf_take_u32(struct gguf_cursor *c, uint32_t *ret, const char *what)
{
    char bytes[sizeof *ret];
    int rc = gguf_take(c, bytes, sizeof bytes, what);
    if (rc == 0) *ret = load_u32(bytes);
    return rc;
}

static int gguf_take_u64(struct gguf_cursor *c, uint64_t *ret, const char *what)
{
    char bytes[sizeof *ret];
    int rc = gguf_take(c, bytes, sizeof bytes, what);
    if (rc == 0) *ret = load_u64(bytes);
    return rc;
}

static int gguf_take_string(struct gguf_cursor *c, size_t max, struct str *ret, const char *what)
{
    uint64_t len = 0;
    int rc = gguf_take_u64(c, &len, what);
    if (rc < 0) return rc;
    if (len > gguf_bytes_left(c))
        return err_set(c->err, -EINVAL, "%s at byte %llu: %llu bytes long, the file has %llu left",
                       what, (unsigned long long)c->pos, (unsigned long long)len,
                       (unsigned long long)gguf_bytes_left(c));
    if (len > max)
        return err_set(c->err, -E2BIG, "%s at byte %llu: %llu bytes long, at most %zu are read",
                       what, (unsigned long long)c->pos, (unsigned long long)len, max);
    char *text = arena_alloc(c->arena, (size_t)len + 1);
    if (!text) return err_set(c->err, -ENOMEM, "no memory for %s", what);
    rc = gguf_take(c, text, (size_t)len, what);
    if (rc == 0) *ret = (struct str){ text, (size_t)len };
    return rc;
}

/* ---- metadata: values read, checked and found by key ----------------------------------------- */

enum {
    VALUE_BYTES_MIN = 8 + 1 + 4 + 1, /* key of one byte, type, one byte */
};

/* clang-format off */
static const struct type_row {
    const char *name;
    uint32_t bytes; /* of a scalar; for strings and arrays of the smallest one */
} type_table[GGUF_TYPE_COUNT] = {
    [GGUF_U8]     = { "u8", 1 },   [GGUF_I8]   = { "i8", 1 },
    [GGUF_U16]    = { "u16", 2 },  [GGUF_I16]  = { "i16", 2 },
    [GGUF_U32]    = { "u32", 4 },  [GGUF_I32]  = { "i32", 4 },
    [GGUF_F32]    = { "f32", 4 },  [GGUF_BOOL] = { "bool", 1 },
    [GGUF_STRING] = { "string", 8 }, [GGUF_ARRAY] = { "array", 12 },
    [GGUF_U64]    = { "u64", 8 },  [GGUF_I64]  = { "i64", 8 },
    [GGUF_F64]    = { "f64", 8 },
};
/* clang-format on */

static const char *type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? type_table[type].name : "unknown";
}

uint32_t gguf_type_bytes(enum gguf_type type)
{
    return type_table[type].bytes;
}

/* ---- reading */

static int take_scalar(struct gguf_cursor *c, struct gguf_value *v)
{
    must(v->type != GGUF_STRING && v->type != GGUF_ARRAY);
    char bytes[8] = { 0 };
    int rc = gguf_take(c, bytes, type_table[v->type].bytes, "a value");
    if (rc < 0) return rc;
    switch (v->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        v->u = load_u64(bytes); /* zeros behind the narrow ones */
        break;
    case GGUF_BOOL:
        v->u = load_u64(bytes);
        if (v->u > 1) return err_set(c->err, -EINVAL, "a bool of %u", (unsigned)v->u);
        break;
    case GGUF_I8:
        v->i = (int8_t)bytes[0];
        break;
    case GGUF_I16:
        v->i = (int16_t)load_u16(bytes);
        break;
    case GGUF_I32:
        v->i = (int32_t)load_u32(bytes);
        break;
    case GGUF_I64:
        v->i = (int64_t)load_u64(bytes);
        break;
    case GGUF_F32: {
        float f;
        memcpy(&f, bytes, sizeof f);
        v->f = (double)f;
        break;
    }
    case GGUF_F64:
        memcpy(&v->f, bytes, sizeof v->f);
        break;
    case GGUF_STRING:
    case GGUF_ARRAY:
    case GGUF_TYPE_COUNT:
        break;
    }
    return 0;
}

static int take_array(struct gguf_cursor *c, struct gguf_value *v)
{
    uint32_t type = 0;
    uint64_t count = 0;
    int rc = gguf_take_u32(c, &type, "the type of an array");
    if (rc == 0) rc = gguf_take_u64(c, &count, "the length of an array");
    if (rc < 0) return rc;
    if (type >= GGUF_TYPE_COUNT)
        return err_set(c->err, -EINVAL, "an array of type %u, which GGUF v3 does not have", type);
    if (type == GGUF_ARRAY) return err_set(c->err, -ENOTSUP, "an array of arrays");
    uint32_t item_bytes = type_table[type].bytes;
    if (count > gguf_bytes_left(c) / item_bytes)
        return err_set(c->err, -EINVAL, "an array of %llu items, the file has %llu bytes left",
                       (unsigned long long)count, (unsigned long long)gguf_bytes_left(c));
    v->array.type = (enum gguf_type)type;
    v->array.count = (size_t)count;
    if (type != GGUF_STRING) {
        char *items = arena_array(c->arena, v->array.count, item_bytes);
        if (!items) return err_set(c->err, -ENOMEM, "no memory for an array");
        v->array.items = items;
        return gguf_take(c, items, v->array.count * item_bytes, "an array");
    }
    struct str *texts = arena_array(c->arena, v->array.count, sizeof *texts);
    if (!texts) return err_set(c->err, -ENOMEM, "no memory for an array");
    v->array.texts = texts;
    for (size_t i = 0; i < v->array.count && rc == 0; i++)
        rc = gguf_take_string(c, GGUF_STRING_BYTES_MAX, &texts[i], "a string of an array");
    return rc;
}

static int take_value(struct gguf_cursor *c, struct gguf_value *v)
{
    int rc = gguf_take_string(c, GGUF_KEY_BYTES_MAX, &v->key, "a key");
    if (rc < 0) return rc;
    if (v->key.len == 0)
        return err_set(c->err, -EINVAL, "an empty key before byte %llu",
                       (unsigned long long)c->pos);
    uint32_t type = 0;
    rc = gguf_take_u32(c, &type, "the type of a value");
    if (rc == 0 && type >= GGUF_TYPE_COUNT)
        rc = err_set(c->err, -EINVAL, "type %u, which GGUF v3 does not have", type);
    if (rc == 0) {
        v->type = (enum gguf_type)type;
        if (type == GGUF_STRING)
            rc = gguf_take_string(c, GGUF_STRING_BYTES_MAX, &v->text, "a string");
        else if (type == GGUF_ARRAY)
            rc = take_array(c, v);
        else
            rc = take_scalar(c, v);
    }
    return rc < 0 ? err_prefix(c->err, rc, "key '" STR_FMT "'", STR_ARG(v->key)) : 0;
}

static int value_cmp(const void *a, const void *b)
{
    return str_cmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int gguf_take_values(struct gguf_cursor *c, struct gguf *g, uint64_t count)
{
    if (count > gguf_bytes_left(c) / VALUE_BYTES_MIN)
        return err_set(c->err, -EINVAL, "%llu values cannot fit in the %llu bytes that follow",
                       (unsigned long long)count, (unsigned long long)gguf_bytes_left(c));
    if (count > GGUF_VALUES_MAX)
        return err_set(c->err, -E2BIG, "%llu values, at most %u are read",
                       (unsigned long long)count, GGUF_VALUES_MAX);
    struct gguf_value *values = arena_array(c->arena, (size_t)count, sizeof *values);
    if (!values) return err_set(c->err, -ENOMEM, "no memory for the values");
    for (size_t i = 0; i < count; i++) {
        int rc = take_value(c, &values[i]);
        if (rc < 0) return rc;
    }
    qsort(values, (size_t)count, sizeof *values, value_cmp);
    for (size_t i = 1; i < count; i++)
        if (str_eq(values[i - 1].key, values[i].key))
            return err_set(c->err, -EINVAL, "key '" STR_FMT "' is there twice",
                           STR_ARG(values[i].key));
    g->values = values;
    g->value_count = (uint32_t)count;
    return 0;
}

/* ---- looking up */

const struct gguf_value *gguf_find(const struct gguf *g, struct str key)
{
    struct gguf_value wanted = { .key = key };
    if (g->value_count == 0) return NULL;
    return bsearch(&wanted, g->values, g->value_count, sizeof wanted, value_cmp);
}

static int gguf_alignment(const struct gguf *g, uint32_t *ret, struct err *err)
{
    const struct gguf_value *v = gguf_find(g, STR("general.alignment"));
    *ret = GGUF_ALIGNMENT_DEFAULT;
    if (!v) return 0;
    if (v->type != GGUF_U32)
        return err_set(err, -EINVAL, "key 'general.alignment' is a %s, it must be a u32",
                       type_name(v->type));
    if (!is_power_of_two(v->u) || v->u < GGUF_ALIGNMENT_MIN || v->u > GGUF_ALIGNMENT_MAX)
        return err_set(err, -EINVAL,
                       "key 'general.alignment' is %llu, it must be a power of two from %u to %u",
                       (unsigned long long)v->u, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    *ret = (uint32_t)v->u;
    return 0;
}

static int wrong_type(const struct gguf *g, const struct gguf_value *v, const char *wanted,
                      struct err *err)
{
    return err_set(err, -EINVAL, STR_FMT ": key '" STR_FMT "' is a %s, it must be %s",
                   STR_ARG(g->file), STR_ARG(v->key), type_name(v->type), wanted);
}

static int find_or_say(const struct gguf *g, const char *key, const struct gguf_value **ret,
                       struct err *err)
{
    *ret = gguf_find(g, str_from(key));
    if (*ret) return 0;
    return err_set(err, -ENOENT, STR_FMT ": key '%s' is missing", STR_ARG(g->file), key);
}

static bool is_unsigned(enum gguf_type t)
{
    return t == GGUF_U8 || t == GGUF_U16 || t == GGUF_U32 || t == GGUF_U64;
}

static bool is_signed(enum gguf_type t)
{
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *ret, struct err *err)
{
    const struct gguf_value *v;
    int rc = find_or_say(g, key, &v, err);
    if (rc < 0) return rc;
    if (!is_unsigned(v->type) && !is_signed(v->type)) return wrong_type(g, v, "an integer", err);
    if (v->u > UINT32_MAX) /* a negative one is a large one here */
        return err_set(err, -EINVAL, STR_FMT ": key '%s' is out of range (0 to %u)",
                       STR_ARG(g->file), key, UINT32_MAX);
    *ret = (uint32_t)v->u;
    return 0;
}

int gguf_get_f32(const struct gguf *g, const char *key, float *ret, struct err *err)
{
    const struct gguf_value *v;
    int rc = find_or_say(g, key, &v, err);
    if (rc < 0) return rc;
    if (v->type != GGUF_F32 && v->type != GGUF_F64) return wrong_type(g, v, "a float", err);
    if (!isfinite(v->f) || fabs(v->f) > (double)FLT_MAX)
        return err_set(err, -EINVAL, STR_FMT ": key '%s' is not a finite f32", STR_ARG(g->file),
                       key);
    *ret = (float)v->f;
    return 0;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *ret, struct err *err)
{
    const struct gguf_value *v;
    int rc = find_or_say(g, key, &v, err);
    if (rc < 0) return rc;
    if (v->type != GGUF_BOOL) return wrong_type(g, v, "a bool", err);
    *ret = v->u == 1;
    return 0;
}

int gguf_get_str(const struct gguf *g, const char *key, struct str *ret, struct err *err)
{
    const struct gguf_value *v;
    int rc = find_or_say(g, key, &v, err);
    if (rc < 0) return rc;
    if (v->type != GGUF_STRING) return wrong_type(g, v, "a string", err);
    *ret = v->text;
    return 0;
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type type,
                   const struct gguf_value **ret, struct err *err)
{
    const struct gguf_value *v;
    int rc = find_or_say(g, key, &v, err);
    if (rc < 0) return rc;
    if (v->type != GGUF_ARRAY || v->array.type != type)
        return err_set(err, -EINVAL, STR_FMT ": key '%s' must be an array of %s", STR_ARG(g->file),
                       key, type_name(type));
    *ret = v;
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

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
    { 9, "Q8_1" },   { 15, "Q8_K" },  { 16, "IQ2_XXS" }, { 17, "IQ2_XS" }, { 18, "IQ3_XXS" },
    { 19, "IQ1_S" }, { 21, "IQ3_S" }, { 22, "IQ2_S" },   { 23, "IQ4_XS" }, { 24, "I8" },
    { 25, "I16" },   { 26, "I32" },   { 27, "I64" },     { 28, "F64" },    { 29, "IQ1_M" },
    { 34, "TQ1_0" }, { 35, "TQ2_0" }, { 40, "NVFP4" },
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

/* Computes elements and bytes from dims and type; refuses sizes that would wrap. */
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

/* Makes offsets absolute and sorts by name; refuses a tensor that is not aligned, not inside the
 * file, not apart from the others or there twice. */
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

/* ---- a regular file as a source; the digest -------------------------------------------------- */

#define DIGEST_PIECE ((size_t)1 << 20)

static int file_read(void *ctx, uint64_t offset, void *data, size_t len, struct err *err)
{
    const struct gguf_file *f = ctx;
    char *to = data;
    while (len > 0) {
        ssize_t n = pread(f->fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 || FAULT("gguf.read")) {
            int rc = n < 0 ? -errno : -EIO;
            return err_set(err, rc, "reading %zu bytes at %llu: %s", len,
                           (unsigned long long)offset, strerror(-rc));
        }
        if (n == 0)
            return err_set(err, -EIO, "the file ended at %llu while it was read: it was cut",
                           (unsigned long long)offset);
        to += n, offset += (uint64_t)n, len -= (size_t)n;
    }
    return 0;
}

uint64_t gguf_file_identity(const struct stat *st)
{
    const uint64_t what[] = { st->st_dev,
                              st->st_ino,
                              (uint64_t)st->st_size,
                              (uint64_t)st->st_mtim.tv_sec,
                              (uint64_t)st->st_mtim.tv_nsec,
                              (uint64_t)st->st_ctim.tv_sec,
                              (uint64_t)st->st_ctim.tv_nsec };
    return hash64(what, sizeof what, 0);
}

int gguf_file_open(const char *path, struct gguf_file *ret, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) < 0)
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(err, -EINVAL, "%s: not a regular file", path);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *ret = (struct gguf_file){ .fd = fd };
    ret->source = (struct gguf_source){ .name = path,
                                        .bytes = (uint64_t)st.st_size,
                                        .identity = gguf_file_identity(&st),
                                        .read = file_read,
                                        .ctx = ret };
    return 0;
}

void gguf_file_close(struct gguf_file *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

static int read_watched(void *ctx, uint64_t offset, void *data, size_t len, struct err *err)
{
    const struct gguf_watched *w = ctx;
    if (w->watch.goes_on && !w->watch.goes_on(w->watch.arg)) return err_set(err, -EINTR, "stopped");
    return w->inner->read(w->inner->ctx, offset, data, len, err);
}

void gguf_watched_init(struct gguf_watched *w, const struct gguf_source *inner,
                       const struct gguf_watch *watch)
{
    *w = (struct gguf_watched){ .source = *inner, .inner = inner, .watch = *watch };
    w->source.read = read_watched;
    w->source.ctx = w;
}

static void freep(char **p)
{
    free(*p);
}

int gguf_digest(const struct gguf_source *source, char *ret_hex, struct err *err)
{
    size_t pieces = (size_t)(source->bytes / DIGEST_PIECE) + (source->bytes % DIGEST_PIECE != 0);
    CLEANUP(freep) char *piece = malloc(DIGEST_PIECE);
    CLEANUP(freep) char *list = malloc(pieces * SHA256_BYTES + 1);
    if (!piece || !list) return err_set(err, -ENOMEM, "%s: no memory to digest", source->name);
    uint64_t offset = 0;
    for (size_t i = 0; i < pieces; i++) {
        size_t len = min_size(DIGEST_PIECE, source->bytes - offset);
        int rc = source->read(source->ctx, offset, piece, len, err);
        if (rc < 0) return err_prefix(err, rc, "%s", source->name);
        sha256(piece, len, (uint8_t *)list + i * SHA256_BYTES);
        offset += len;
    }
    uint8_t digest[SHA256_BYTES];
    sha256(list, pieces * SHA256_BYTES, digest);
    hex_from(digest, sizeof digest, ret_hex);
    return 0;
}

/* safetensors.c - reads the header of a safetensors file in two passes: one counts, one takes.
 *
 * Counting first keeps the table's memory in proportion to the header, whatever it says. */
#include "engine/files/safetensors.h"

#include "base/core/bits.h"
#include "base/core/json.h"

#include <stdlib.h>

#define LENGTH_BYTES 8u

/* clang-format off */
static const struct { const char *name; uint32_t bytes; } types[] = {
    [SAFETENSOR_F32] = { "F32", 4 },   [SAFETENSOR_F16] = { "F16", 2 },
    [SAFETENSOR_BF16] = { "BF16", 2 }, [SAFETENSOR_F8_E4M3] = { "F8_E4M3", 1 },
    [SAFETENSOR_U8] = { "U8", 1 },     [SAFETENSOR_I8] = { "I8", 1 },
    [SAFETENSOR_I32] = { "I32", 4 },   [SAFETENSOR_I64] = { "I64", 8 },
};
/* clang-format on */

const char *safetensor_type_name(enum safetensor_type type)
{
    return types[type].name;
}

static int take_type(const struct json_reader *r, struct arena *a, struct safetensor *t,
                     struct err *err)
{
    struct str name = { "", 0 };
    int rc = json_text_arena(r, a, &name);
    if (rc == -ENOMEM) return err_set(err, rc, "no memory for the header");
    if (rc < 0) return err_set(err, -EINVAL, "its dtype is no text");
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        if (!str_eq(name, str_from(types[i].name))) continue;
        t->type = (enum safetensor_type)i;
        return 0;
    }
    return err_set(err, -ENOTSUP,
                   "type " STR_FMT "; read are F32, F16, BF16, F8_E4M3, U8, I8, I32 and I64",
                   STR_ARG(name));
}

/* Reads an array of 1 to `max` numbers. */
static int take_numbers(struct json_reader *r, uint64_t *ret, uint32_t max, uint32_t *ret_count,
                        struct err *err)
{
    *ret_count = 0;
    if (r->token != JSON_ARRAY) return err_set(err, -EINVAL, "shape or data_offsets is no list");
    while (json_next(r) != JSON_ARRAY_END) {
        if (*ret_count == max) return err_set(err, -EINVAL, "a list of more than %u numbers", max);
        if (json_u64(r, &ret[*ret_count]) < 0)
            return err_set(err, -EINVAL,
                           "shape or data_offsets holds something that is no number "
                           "from 0 to 2^64");
        ++*ret_count;
    }
    return *ret_count > 0 ? 0 : err_set(err, -EINVAL, "an empty shape or data_offsets");
}

/* Compares what dims, type and offsets say. */
static int check_size(struct safetensor *t, const uint64_t offsets[2], struct err *err)
{
    size_t elements = 1, bytes;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] == 0) return err_set(err, -EINVAL, "dimension %u is 0", i);
        if (!mul_fits(elements, t->dims[i], &elements))
            return err_set(err, -EINVAL, "its dimensions multiply to more than 2^64");
    }
    if (!mul_fits(elements, types[t->type].bytes, &bytes))
        return err_set(err, -EINVAL, "more than 2^64 bytes");
    if (offsets[0] > offsets[1] || offsets[1] - offsets[0] != bytes)
        return err_set(err, -EINVAL, "data_offsets %llu to %llu, its shape has %zu bytes",
                       (unsigned long long)offsets[0], (unsigned long long)offsets[1], bytes);
    t->elements = elements;
    t->bytes = bytes;
    t->offset = offsets[0];
    return 0;
}

static int take_tensor(struct json_reader *r, struct arena *a, struct safetensor *t,
                       struct err *err)
{
    uint64_t offsets[2] = { 0 };
    uint32_t count = 0;
    bool has_type = false, has_shape = false, has_offsets = false;
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++)
        t->dims[i] = 1;
    if (json_next(r) != JSON_OBJECT) return err_set(err, -EINVAL, "no object");
    int rc = 0;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        bool *has = json_key_is(r, "dtype")          ? &has_type
                    : json_key_is(r, "shape")        ? &has_shape
                    : json_key_is(r, "data_offsets") ? &has_offsets
                                                     : NULL;
        if (!has || *has) return err_set(err, -EINVAL, "a key that is unknown or there twice");
        *has = true;
        json_next(r);
        if (has == &has_type)
            rc = take_type(r, a, t, err);
        else if (has == &has_shape)
            rc = take_numbers(r, t->dims, GGUF_DIMS_MAX, &t->n_dims, err);
        else
            rc = take_numbers(r, offsets, 2, &count, err);
    }
    if (rc < 0) return rc;
    if (r->token != JSON_OBJECT_END || !has_type || !has_shape || count != 2)
        return err_set(err, -EINVAL, "dtype, shape and two data_offsets are needed");
    return check_size(t, offsets, err);
}

static bool is_metadata(const struct json_reader *r)
{
    return json_key_is(r, "__metadata__");
}

static int count_tensors(struct str header, size_t *ret, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, header);
    *ret = 0;
    if (header.len == 0 || header.data[0] != '{')
        return err_set(err, -EINVAL, "the header does not start with '{'");
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        *ret += !is_metadata(&r);
        json_skip(&r);
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the header");
    if (json_next(&r) != JSON_END) return json_fail(&r, err, "the header");
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

static int by_offset(const void *a, const void *b)
{
    uint64_t x = ((const struct safetensor *)a)->offset, y = ((const struct safetensor *)b)->offset;
    return (x > y) - (x < y);
}

/* The tensors must cover the data from its start to the end of the file. */
static int place(struct safetensor *t, size_t count, uint64_t data, uint64_t file_bytes,
                 struct err *err)
{
    uint64_t end = 0, bytes = file_bytes - data;
    qsort(t, count, sizeof *t, by_offset);
    for (size_t i = 0; i < count; i++) {
        if (t[i].offset != end)
            return err_set(err, -EINVAL,
                           "tensor '" STR_FMT "' starts at %llu of the data, the one "
                           "before it ends at %llu",
                           STR_ARG(t[i].name), (unsigned long long)t[i].offset,
                           (unsigned long long)end);
        if (t[i].bytes > bytes - end)
            return err_set(err, -EINVAL, "tensor '" STR_FMT "' reaches beyond the end of the file",
                           STR_ARG(t[i].name));
        end += t[i].bytes;
        t[i].offset += data;
    }
    if (end != bytes)
        return err_set(err, -EINVAL, "%llu bytes behind the last tensor",
                       (unsigned long long)(bytes - end));
    qsort(t, count, sizeof *t, by_name);
    for (size_t i = 1; i < count; i++)
        if (str_eq(t[i - 1].name, t[i].name))
            return err_set(err, -EINVAL, "tensor '" STR_FMT "' is there twice", STR_ARG(t[i].name));
    return 0;
}

static int take_tensors(struct safetensors *s, struct str header, uint64_t file_bytes,
                        struct err *err)
{
    size_t count = 0, used = 0;
    int rc = count_tensors(header, &count, err);
    if (rc < 0) return rc;
    if (count > GGUF_TENSORS_MAX)
        return err_set(err, -E2BIG, "%zu tensors, at most %u are read", count, GGUF_TENSORS_MAX);
    struct safetensor *t = arena_array(&s->arena, count, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for the tensor table");
    struct json_reader r;
    json_reader_init(&r, header);
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        if (is_metadata(&r)) {
            json_skip(&r);
            continue;
        }
        if (json_text_arena(&r, &s->arena, &t[used].name) < 0)
            return err_set(err, -ENOMEM, "no memory for the names");
        rc = take_tensor(&r, &s->arena, &t[used], err);
        if (rc < 0) return err_prefix(err, rc, "tensor '" STR_FMT "'", STR_ARG(t[used].name));
        used++;
    }
    must(used == count); /* both passes read the same text */
    s->tensors = t;
    s->count = (uint32_t)count;
    return place(t, count, LENGTH_BYTES + header.len, file_bytes, err);
}

static void freep(char **p)
{
    free(*p);
}

static int parse(struct safetensors *s, const struct gguf_source *source, struct err *err)
{
    char length[LENGTH_BYTES];
    if (source->bytes < LENGTH_BYTES)
        return err_set(err, -EINVAL, "not a safetensors file: it ends inside the header's length");
    int rc = source->read(source->ctx, 0, length, sizeof length, err);
    if (rc < 0) return rc;
    uint64_t bytes = load_u64(length);
    if (bytes > source->bytes - LENGTH_BYTES)
        return err_set(err, -EINVAL, "a header of %llu bytes in a file of %llu",
                       (unsigned long long)bytes, (unsigned long long)source->bytes);
    if (bytes > SAFETENSORS_HEADER_BYTES_MAX)
        return err_set(err, -E2BIG, "a header of %llu bytes, at most %zu are read",
                       (unsigned long long)bytes, SAFETENSORS_HEADER_BYTES_MAX);
    CLEANUP(freep) char *header = malloc((size_t)bytes + 1);
    if (!header) return err_set(err, -ENOMEM, "no memory for the header");
    rc = source->read(source->ctx, LENGTH_BYTES, header, (size_t)bytes, err);
    if (rc < 0) return rc;
    return take_tensors(s, (struct str){ header, (size_t)bytes }, source->bytes, err);
}

int safetensors_parse(const struct gguf_source *source, struct safetensors **ret, struct err *err)
{
    CLEANUP(safetensors_freep) struct safetensors *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, -ENOMEM, "%s: no memory to read it", source->name);
    arena_init(&s->arena, SAFETENSORS_MEMORY_BYTES_MAX);
    int rc = parse(s, source, err);
    if (rc < 0) return err_prefix(err, rc, "%s", source->name);
    *ret = TAKE(s);
    return 0;
}

void safetensors_free(struct safetensors *s)
{
    if (!s) return;
    arena_fini(&s->arena);
    free(s);
}

const struct safetensor *safetensors_find(const struct safetensors *s, struct str name)
{
    struct safetensor wanted = { .name = name };
    if (s->count == 0) return NULL;
    return bsearch(&wanted, s->tensors, s->count, sizeof wanted, by_name);
}

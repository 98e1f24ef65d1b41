/* gguf_values.c - the metadata of a GGUF file: values read, checked and found by key. */
#include "base/core/bits.h"
#include "engine/model/gguf_part.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

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

int gguf_take_values(struct gguf_cursor *c, struct gguf *g, uint64_t count)
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

int gguf_alignment(const struct gguf *g, uint32_t *ret, struct err *err)
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
